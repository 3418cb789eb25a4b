"""Reports on tags by the real command: against nervaluate, and explicit loops over what is printed."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from nervaluate import Evaluator

from commands.running import mallang, ran

PEOPLE, PLACES = ("Anna Kim", "Bob", "민수", "Paris Lee", "London"), ("Seoul", "New York", "부산", "Paris", "London")
MORE = ("model.size=tiny", "train.epochs=3", "train.batch_sentences=8", "optimizer.learning_rate=0.02", "-q")


def sentence(draw: random.Random) -> tuple[list[str], list[str]]:
    """A sentence whose names may be of either type."""
    words: list[str] = []
    tags: list[str] = []
    for kind, known in (("PER", PEOPLE), ("LOC", PLACES)):
        name = draw.choice(known).split()
        words += [*name, draw.choice(("saw", "likes", "left"))]
        tags += [f"B-{kind}", *[f"I-{kind}"] * (len(name) - 1), "O"]
    return words, tags


def write(path: Path, rows: list[tuple[list[str], list[str]]]) -> None:
    lines = (json.dumps({"words": words, "tags": tags}, ensure_ascii=False) for words, tags in rows)
    path.write_text("\n".join(lines) + "\n", "utf-8")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a weak tagger, and test sentences of which some were in training."""
    folder, draw = tmp_path_factory.mktemp("tags"), random.Random(4)
    train = [sentence(draw) for _ in range(40)]
    write(folder / "train.jsonl", train)
    write(
        folder / "test.jsonl", [*(sentence(draw) for _ in range(30)), ([w.upper() for w in train[0][0]], train[0][1])]
    )
    files = ("data.train=train.jsonl", "data.valid=train.jsonl", "data.test=test.jsonl")
    ran("train", "lstm-crf", *files, *MORE, "--name", "names", cwd=folder)
    return folder


def spans(tags: list[str]) -> set[tuple[str, int, int]]:
    """The spans of IOB2 tags, by a loop: type, first word, last word."""
    found: list[list] = []
    for place, tag in enumerate(tags):
        if tag.startswith("B-") or (tag.startswith("I-") and (place == 0 or tags[place - 1][2:] != tag[2:])):
            found.append([tag[2:], place, place])
        elif tag.startswith("I-"):
            found[-1][2] = place
    return {(kind, first, last) for kind, first, last in found}


def test_scores_by_type_and_without_seen_sentences(home: Path) -> None:
    report = json.loads(ran("evaluate", "runs/names", "--json", cwd=home).out)
    rows = [json.loads(line) for line in (home / "test.jsonl").read_text("utf-8").splitlines()]
    golds = [row["tags"] for row in rows]
    outputs = [line.split() for line in (home / "runs/names/outputs/test.txt").read_text("utf-8").splitlines()]
    theirs = Evaluator(golds, outputs, tags=["PER", "LOC"], loader="list").evaluate()
    strict = theirs["overall"]["strict"]
    scores = {score["name"]: score["value"] for score in report["scores"]}
    assert scores["span F1"] == pytest.approx(100 * strict.f1) and scores["span F1"] < 99
    for kind, own in theirs["entities"].items():
        row = report["types"][kind]
        expected = own["strict"].precision, own["strict"].recall, own["strict"].f1
        assert (row["precision"], row["recall"], row["f1"]) == pytest.approx([100 * each for each in expected])
        assert row["support"] == own["strict"].possible
    train = [json.loads(line) for line in (home / "train.jsonl").read_text("utf-8").splitlines()]
    known = {" ".join(row["words"]).lower() for row in train}
    seen = [" ".join(row["words"]).lower() in known for row in rows]
    assert report["seen"] == sum(seen) >= 1 and seen[-1]
    pairs = [(spans(out), spans(gold)) for out, gold, is_seen in zip(outputs, golds, seen, strict=True) if not is_seen]
    right, ours, gold = (sum(map(len, each)) for each in zip(*((a & b, a, b) for a, b in pairs), strict=True))
    unseen = {score["name"]: score["value"] for score in report["unseen"]["scores"]}
    assert unseen["span F1"] == pytest.approx(200 * right / (ours + gold))


def test_errors_name_their_kind_words_and_confidence(home: Path) -> None:
    ran("evaluate", "runs/names", "--report", "report", "-q", cwd=home)
    assert sorted(path.name for path in (home / "report").iterdir()) == [
        "confusion.svg", "errors.tsv", "report.json", "report.md",
    ]  # fmt: skip
    rows = [json.loads(line) for line in (home / "test.jsonl").read_text("utf-8").splitlines()]
    outputs = [line.split() for line in (home / "runs/names/outputs/test.txt").read_text("utf-8").splitlines()]
    head, *errors = (line.split("\t") for line in (home / "report/errors.tsv").read_text("utf-8").splitlines())
    found = [dict(zip(head, error, strict=True)) for error in errors]
    sure = [float(error["confidence"]) for error in found]
    assert found and sure == sorted(sure, reverse=True) and all(0 <= each <= 1 for each in sure)
    wrong: dict[int, list[dict]] = {}
    for error in found:
        wrong.setdefault(int(error["row"]) - 1, []).append(error)
        assert error["sentence"] == " ".join(rows[int(error["row"]) - 1]["words"])
    for number, (row, tags) in enumerate(zip(rows, outputs, strict=True)):
        own, gold = wrong.get(number, []), spans(row["tags"])
        words = [(error["gold"], error["gold_text"]) for error in own if error["kind"] != "spurious"]
        missed = gold - spans(tags)
        assert sorted(words) == sorted((kind, " ".join(row["words"][a : b + 1])) for kind, a, b in missed)
        told = [(error["output"], int(error["first_word"]) - 1, int(error["last_word"]) - 1) for error in own
                if error["kind"] != "missing"]  # fmt: skip
        assert sorted(told) == sorted(spans(tags) - gold)
    report = json.loads((home / "report/report.json").read_text("utf-8"))
    assert sum(report["errors"].values()) == len(found)
    assert "| kind | count |" in (home / "report/report.md").read_text("utf-8")


def test_confidence_is_that_of_the_verb_tag(home: Path) -> None:
    head, *errors = (line.split("\t") for line in (home / "report/errors.tsv").read_text("utf-8").splitlines())
    for error in [dict(zip(head, line, strict=True)) for line in errors][:3]:
        if error["kind"] == "missing":
            continue
        tagged = ran("tag", "runs/names", error["sentence"], "--pretokenized", "--json", cwd=home).out
        found = {(span["type"], span["text"]): span["confidence"] for span in json.loads(tagged)["spans"]}
        assert float(error["confidence"]) == pytest.approx(found[error["output"], error["output_text"]], abs=1e-4)


def test_parts_of_speech_are_reported_by_tag(home: Path) -> None:
    rows = [(["the", "cat", "sat"], ["DT", "NN", "VB"]), (["a", "dog", "ran"], ["DT", "NN", "VB"])] * 15
    write(home / "pos.jsonl", rows)
    files = ("data.train=pos.jsonl", "data.valid=pos.jsonl")
    ran("train", "rnn-tagger", *files, *MORE, "--name", "pos", cwd=home)
    write(home / "new.jsonl", [(["the", "dog", "sat"], ["DT", "NN", "NN"])])
    ended = ran("evaluate", "runs/pos", "--data", "new.jsonl", "--report", "pos", cwd=home)
    assert "tag accuracy" in ended.out and "\ntags\ntag " in ended.out
    lines = (home / "pos/errors.tsv").read_text("utf-8").splitlines()
    assert any(line.split("\t")[1:4] == ["wrong tag", "NN", "VB"] for line in lines[1:])


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("short.jsonl", '{"words": ["a", "b"], "tags": ["O"]}', ("2 words but 1 tags", "short.jsonl, row 1")),
        ("new.jsonl", '{"words": ["a"], "tags": ["B-LAW"]}', ("'B-LAW' does not occur", "new.jsonl, row 1")),
        ("line.conll", "a O\nb B-PER X\n", ("3 columns where 2 are expected", "line.conll, line 2", "mend the line")),
        ("bare.conll", "a\nb\n", ("1 column, but 2 are needed", "a blank line after each sentence")),
        ("plain.txt", "Anna left\n", ("one column, but 2 are needed: words, tags", ".conll")),
    ],
)
def test_mistakes_are_reported(home: Path, name: str, content: str, words: tuple[str, ...]) -> None:
    (home / name).write_text(content, "utf-8")
    ended = mallang("evaluate", "runs/names", "--data", name, cwd=home)
    assert ended.code == 2 and "Traceback" not in ended.err, ended.err
    for word in words:
        assert word in ended.err
