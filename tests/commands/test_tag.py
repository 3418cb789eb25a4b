"""`mallang tag`, and a tagger trained on one's own files by the real commands."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from commands.running import as_served, mallang

TINY = (
    "model.size=tiny",
    "data.hold_out=0.2",
    "train.epochs=12",
    "train.batch_sentences=8",
    "optimizer.learning_rate=0.02",
)
PEOPLE, PLACES = ("Anna", "Bob", "민수", "Lee"), (("Seoul",), ("New", "York"), ("부산",))


def sentence(draw: random.Random) -> tuple[list[str], list[str]]:
    person, place = draw.choice(PEOPLE), draw.choice(PLACES)
    tags = ["I-PER", "O", "O", *["I-LOC"] * len(place), "O"]
    return [person, "went", "to", *place, "."], tags


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with my.conll, the same as my.jsonl, and a run that was trained on the first."""
    folder, draw = tmp_path_factory.mktemp("tagging"), random.Random(1)
    rows = [sentence(draw) for _ in range(60)]
    blocks = ["".join(f"{word} X {tag}\n" for word, tag in zip(*row, strict=True)) for row in rows]
    folder.joinpath("my.conll").write_text("-DOCSTART- X O\n\n" + "\n".join(blocks), "utf-8")
    lines = [json.dumps({"tokens": words, "ner_tags": tags}, ensure_ascii=False) for words, tags in rows]
    folder.joinpath("my.jsonl").write_text("\n".join(lines), "utf-8")
    done = mallang("train", "lstm-crf", "data.train=my.conll", *TINY, "--name", "ours", cwd=folder)
    assert done.code == 0, done.err
    return folder


def test_tags_as_lines_and_as_json(home: Path) -> None:
    texts = ("Anna went to New York.", "", "민수 went to 🎉 Seoul")
    done = mallang("tag", "runs/ours", *texts, cwd=home)
    assert done.code == 0, done.err
    first, empty, last = done.out.splitlines()
    assert first == "Anna/I-PER went/O to/O New/I-LOC York/I-LOC ./O" and empty == "" and last.startswith("민수/I-PER")
    found = [json.loads(line) for line in mallang("tag", "runs/ours", *texts, "--json", cwd=home).out.splitlines()]
    assert [each["input"] for each in found] == list(texts) and found[1]["words"] == []
    assert found == as_served(home / "runs/ours", "tag", texts)
    assert "1 of 3 inputs are empty, first number 2" in done.err and ["note" in each for each in found] == [0, 1, 0]
    spans = [(span["type"], span["text"], span["start"], span["end"]) for span in found[0]["spans"]]
    assert spans == [("PER", "Anna", 0, 4), ("LOC", "New York", 13, 21)]
    assert all(0 < span["confidence"] <= 1 for span in found[0]["spans"])
    assert [texts[2][a:b] for a, b in found[2]["offsets"]] == found[2]["words"] == ["민수", "went", "to", "🎉", "Seoul"]


def test_files_scores_n_best_and_words_between_spaces(home: Path) -> None:
    home.joinpath("texts.txt").write_text("Anna went to Seoul .\nBob went to Seoul.\n", "utf-8")
    done = mallang("tag", "runs/ours", "--file", "texts.txt", "--scores", "--out", "tags.txt", cwd=home)
    assert done.code == 0 and done.out == "" and "tags.txt" in done.err
    lines = home.joinpath("tags.txt").read_text("utf-8").splitlines()
    assert len(lines) == 2 and lines[0].startswith("Anna/I-PER/0.") and lines[0].count("/") == 2 * 5
    done = mallang("tag", "runs/ours", "--file", "texts.txt", "--pretokenized", cwd=home)
    assert done.out.splitlines()[1].split()[-1].startswith("Seoul./")
    done = mallang("tag", "runs/ours", "Anna went to Seoul .", "--nbest", "3", cwd=home)
    shares = [float(line.split("\t")[0]) for line in done.out.splitlines()]
    assert len(shares) == 3 and shares == sorted(shares, reverse=True) and sum(shares) <= 1.0001
    done = mallang("tag", "runs/ours", "Anna went", "--nbest", "3", "--json", cwd=home)
    assert len(json.loads(done.out)["nbest"]) == 3
    assert [json.loads(done.out)] == as_served(home / "runs/ours", "tag", ["Anna went"], nbest=3)


def test_evaluate_and_doctor(home: Path) -> None:
    done = mallang("evaluate", "runs/ours", "--data", "my.jsonl", "--json", cwd=home)
    assert done.code == 0, done.err
    report = json.loads(done.out)
    assert [each["name"] for each in report["scores"]] == [
        "span precision", "span recall", "span F1", "span macro F1", "tag accuracy",
    ]  # fmt: skip
    assert report["scores"][2]["value"] > 90 and set(report["types"]) == {"LOC", "PER"}
    outputs = home.joinpath("runs/ours/outputs/data-my.txt").read_text("utf-8").splitlines()
    assert len(outputs) == 60 and set(" ".join(outputs).split()) <= {"I-PER", "I-LOC", "O"}
    assert mallang("evaluate", "runs/ours", "--split", "valid", cwd=home).code == 0
    done = mallang("doctor", "runs/ours", cwd=home)
    assert done.code == 0 and "bug" not in done.err


def test_the_same_rows_train_from_json_lists_as_well(home: Path) -> None:
    done = mallang("train", "rnn-tagger", "data.train=my.jsonl", *TINY, "task.head=crf", "--name", "json", cwd=home)
    assert done.code == 0, done.err
    assert mallang("tag", "runs/json", "Anna went to Seoul .", cwd=home).out.startswith("Anna/")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("tag", "runs/ours", "Anna", "--nbest", "0"), "--nbest"),
        (("tag", "runs/none", "Anna"), "runs/none"),
        (("classify", "runs/ours", "Anna"), "`mallang tag`"),
        (("evaluate", "runs/ours", "--data", "my.jsonl", "--explain", "1"), "gives are tags"),
        (("train", "lstm-crf", "data.train=line.conll", "--name", "a"), "line.conll, line 3"),
        (("train", "lstm-crf", "data.train=short.jsonl", "data.valid=my.jsonl", "--name", "b"), "short.jsonl, row 2"),
        (("train", "lstm-crf", "data.train=one.jsonl", "data.valid=my.jsonl", "--name", "c"), "holds only 'O'"),
        (("train", "lstm-crf", "data.train=my.jsonl", "data.valid=new.jsonl", "--name", "d"), "'I-LAW' does not occur"),
        (
            ("train", "modern_gpt", "task.name=tagging", "data.train=my.jsonl", "--name", "e"),
            "modern_gpt encodes no text",
        ),
    ],
)
def test_mistakes_are_told(home: Path, given: tuple[str, ...], message: str) -> None:
    home.joinpath("line.conll").write_text("a X O\nb X I-A\nc O\n", "utf-8")
    rows = {"short": (["O", "I-A"], ["O"]), "one": (["O", "O"], ["O", "O"]), "new": (["O", "I-LAW"], ["O", "O"])}
    for name, tags in rows.items():
        lines = (json.dumps({"tokens": ["a", "b"], "ner_tags": each}) for each in tags)
        home.joinpath(f"{name}.jsonl").write_text("\n".join(lines), "utf-8")
    done = mallang(*given, cwd=home)
    assert done.code == 2 and message in done.err and "Traceback" not in done.err, done.err
