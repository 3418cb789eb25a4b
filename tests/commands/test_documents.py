"""Documents by the real commands: train, classify, evaluate, embed, and inspect what the classifier attends to."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from commands.running import Ended, mallang

OTHER = ["the", "film", "was", "about", "dog", "and", "two", "cats", "in", "old", "house", "by", "sea"]
OPINIONS = {"good": ["great", "lovely", "fine"], "bad": ["awful", "boring", "dull"]}
REVIEW = "the dog was in the house. I found it great by the sea. two cats."
SMALL = (
    "model.size=tiny", "task.documents=true", "text.unit=word", "text.vocabulary=100", "data.corpus=none",
    "data.train=train.tsv", "data.valid=valid.tsv", "data.test=valid.tsv", "train.epochs=5", "train.batch_tokens=512",
    "optimizer.learning_rate=0.01",
)  # fmt: skip
"""A document classifier that trains in seconds."""


def document(draw: random.Random, label: str) -> str:
    """Several sentences; one of them holds the word that decides."""
    sentences = [" ".join(draw.choices(OTHER, k=draw.randint(2, 9))) + "." for _ in range(draw.randint(1, 6))]
    opinion = ["I found it", draw.choice(OPINIONS[label]), *draw.choices(OTHER, k=draw.randint(0, 3))]
    sentences.insert(draw.randint(0, len(sentences)), " ".join(opinion) + ".")
    return " ".join(sentences)


def write_documents(folder: Path) -> None:
    """Reviews with a label, as train.tsv and valid.tsv."""
    draw = random.Random(1)
    for name, count in (("train.tsv", 400), ("valid.tsv", 80)):
        labels = [draw.choice(list(OPINIONS)) for _ in range(count)]
        lines = [f"{document(draw, label)}\t{label}" for label in labels]
        (folder / name).write_text("\n".join(["text\tlabel", *lines, ""]), "utf-8")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs/han, and runs/bag, which does not attend."""
    home = tmp_path_factory.mktemp("documents")
    write_documents(home)
    ended = mallang("train", "han", *SMALL, cwd=home)
    assert ended.code == 0, ended.err
    others = [each for each in SMALL if each not in ("task.documents=true", "train.epochs=5")]
    ended = mallang("train", "bag-of-means", *others, "train.epochs=1", "--name", "bag", cwd=home)
    assert ended.code == 0, ended.err
    return home


def refused(ended: Ended, *words: str) -> None:
    assert ended.code == 2 and "Traceback" not in ended.err, ended.err
    for word in words:
        assert word in ended.err


def test_documents_are_classified_evaluated_and_embedded(home: Path) -> None:
    (home / "in.txt").write_text(f"{REVIEW}\n\nI found it awful. {'the sea. ' * 100}\n", "utf-8")
    ended = mallang("classify", "runs/han", "--file", "in.txt", cwd=home)
    assert ended.code == 0, ended.err
    first, _, last = ended.out.splitlines()
    assert (first, last) == ("good", "bad")
    ended = mallang("evaluate", "runs/han", "--json", cwd=home)
    assert ended.code == 0, ended.err
    scores = {each["name"]: each["value"] for each in json.loads(ended.out)["scores"]}
    assert scores["accuracy"] >= 95.0
    ended = mallang("embed", "runs/han", REVIEW, "the sea.", "--json", cwd=home)
    assert ended.code == 0, ended.err
    assert [len(json.loads(line)["vector"]) for line in ended.out.splitlines()] == [16, 16]


def test_numbers_are_those_of_every_word_and_sentence(home: Path) -> None:
    ended = mallang("inspect", "runs/han", REVIEW, "--json", cwd=home)
    assert ended.code == 0, ended.err
    seen = json.loads(ended.out)
    assert seen["output"] == "good" and [each["tokens"][0] for each in seen["sentences"]] == ["the", "I", "two"]
    assert sum(each["weight"] for each in seen["sentences"]) == pytest.approx(1.0, abs=1e-4)
    assert all(sum(each["weights"]) == pytest.approx(1.0, abs=1e-4) for each in seen["sentences"])
    label = json.loads(mallang("classify", "runs/han", REVIEW, "--json", cwd=home).out)
    assert (label["output"], label["score"]) == (seen["output"], pytest.approx(seen["score"], abs=1e-5))
    assert not (home / "runs" / "han" / "inspect.html").exists()


def test_texts_are_printed_with_weights_or_drawn(home: Path, tmp_path: Path) -> None:
    run, nasty = home / "runs" / "han", "I found \x1b[31m it dull. <b>the sea</b>"
    ended = mallang("inspect", run, REVIEW, nasty, cwd=tmp_path)
    assert (ended.code, ended.err) == (0, "")
    assert "[0." in ended.out and ended.out.startswith("good ") and "\x1b" not in ended.out
    colored = mallang("inspect", run, REVIEW, cwd=tmp_path, env={"NO_COLOR": None, "FORCE_COLOR": "1"})
    assert colored.code == 0 and "\x1b[" in colored.out and "[0." not in colored.out
    for name in ("a.html", "a.png", "a.svg"):
        ended = mallang("inspect", run, nasty, "--out", name, "--words", cwd=tmp_path)
        assert (ended.code, ended.out) == (0, f"{name}\n"), ended.err
    page = (tmp_path / "a.html").read_text("utf-8")
    assert "\\u003cb" in page and "<b>" not in page
    ended = mallang("inspect", run, REVIEW, nasty, "--out", "pictures", "-q", cwd=tmp_path)
    assert (ended.code, ended.out) == (0, "")
    assert sorted(path.name for path in (tmp_path / "pictures").iterdir()) == ["1.png", "2.png"]


def test_attention_to_a_word_is_shown_by_label(home: Path) -> None:
    ended = mallang("inspect", "runs/han", "--word", "great", "--out", "great.png", cwd=home)
    assert ended.code == 0, ended.err
    lines = [line.split() for line in ended.out.splitlines()]
    assert lines[0][:2] == ["label", "occurrences"] and [line[0] for line in lines[1:]] == ["bad", "good", "all"]
    assert lines[1][1] == "0" and int(lines[2][1]) > 5 and (home / "great.png").stat().st_size > 5000
    asked = ("--word", "gre*", "--data", "valid.tsv", "--predicted", "--json")
    plain = json.loads(mallang("inspect", "runs/han", *asked, cwd=home).out)
    assert plain["by"] == "predicted" and len(plain["weights"]["good"]) == int(lines[2][1])
    assert f"{sum(plain['weights']['good']) / len(plain['weights']['good']):.4f}" == lines[2][2]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["runs/bag", "--word", "sea"], ["BagOfMeans has no attention", "such as han or self_attentive"]),
        (["runs/han", "the sea", "--tree"], ["HAN searches for no output"]),
        (["runs/han", "the sea", "--layer", "word"], ["--layer has no effect", "one weight per word"]),
        (["runs/han", "the sea", "--target", "good"], ["--target has no effect"]),
        (["runs/han", "the sea", "--search", "beam=2"], ["--search has no effect"]),
        (["runs/han", "the sea", "--head", "2"], ["no head '2' in a layer of 1"]),
        (["runs/han", "the sea", "--split", "test"], ["--split has no effect without --word"]),
        (["runs/han", "the sea", "--predicted"], ["--predicted has no effect without --word"]),
        (["runs/han", "the sea", "--word", "sea"], ["TEXT has no effect with --word"]),
        (["runs/han", "--word", "nowhere"], ["no text has the word 'nowhere'", "nowhere*"]),
        (["runs/han", "--word", "*"], ["'*' is no word"]),
        (["runs/han", "--word", "sea", "--split", "none"], ["no split 'none'"]),
        (["runs/han", "--word", "sea", "--split", "test", "--data", "valid.tsv"], ["--split and --data were both"]),
        (["runs/han", "--word", "sea", "--out", "a.html"], ["cannot be written as a.html"]),
    ],
)
def test_what_cannot_be_shown_is_reported(home: Path, arguments: list[str], words: list[str]) -> None:
    refused(mallang("inspect", *arguments, cwd=home), *words)


def test_models_without_sentences_refuse_documents(home: Path) -> None:
    ended = mallang("train", "bag-of-means", *SMALL, "--name", "no", cwd=home)
    refused(ended, "models with a level of sentences, and bag_of_means has none", "model.name=han")
