"""`mallang evaluate` of language models: whole texts, how they are read, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from commands.running import mallang

TEXT = [" the cat sees <unk> dog", "a bird", "", "the dog is here and sings a song", "a cat sings"] * 4
COMMON = (
    "task.name=language_modeling", "text.unit=space", "text.vocabulary=60", "data.train=train.txt",
    "data.valid=train.txt", "data.test=test.txt", "train.steps=3", "train.workers=0", "-q",
)  # fmt: skip
RECURRENT = ("rnn-lm", "model.layers=1", "model.embedding_dim=8", "model.dim=8", "model.dropout=0.0")
STREAM = ("task.layout=stream", "task.context=6", "train.batch_tokens=24")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a carried model, and one that reads windows."""
    folder = tmp_path_factory.mktemp("texts")
    for name, lines in (("train.txt", TEXT), ("test.txt", TEXT[:7])):
        folder.joinpath(name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    ended = mallang("train", *RECURRENT, *COMMON, *STREAM, "--name", "carried", cwd=folder)
    assert ended.code == 0, ended.err
    shape = ("gpt", "model.size=tiny", "model.max_length=6")
    ended = mallang("train", *shape, *COMMON, *STREAM, "task.order=shuffled", "--name", "windows", cwd=folder)
    assert ended.code == 0, ended.err
    return folder


def test_a_whole_text_is_scored_and_the_lines_are_kept(home: Path) -> None:
    ended = mallang("evaluate", "runs/carried", "--json", cwd=home)
    assert ended.code == 0, ended.err
    token, word, byte = json.loads(ended.out)
    assert [score["name"] for score in (token, word, byte)] == [
        "perplexity per token",
        "perplexity per word",
        "bits per byte",
    ]
    how = "|tok:space|layout:stream|context:carried|stride:none|rows:1|"
    assert all(how in score["signature"] and score["count"] == 7 for score in (token, word, byte))
    sums = [float(line) for line in (home / "runs" / "carried" / "outputs" / "test.txt").read_text().split()]
    words = sum(len(line.split()) + 1 for line in TEXT[:7])
    assert word["value"] == pytest.approx(math.exp(-sum(sums) / words), rel=1e-5)
    assert byte["value"] == pytest.approx(
        -sum(sums) / math.log(2) / sum(len(line.encode()) + 1 for line in TEXT[:7]), rel=1e-5
    )


def test_unknown_tokens_are_counted(home: Path) -> None:
    (home / "strange.txt").write_text("the cow sees a cat\nthe cow sings\na bird\n", "utf-8")
    (home / "plain.txt").write_text("a bird\n", "utf-8")
    ended = mallang("evaluate", "runs/carried", "--data", "strange.txt", cwd=home)
    note = "note: data-strange: 2 of 10 tokens are unknown to the model, and read as <unk>: 'cow'\n"
    assert ended.code == 0 and ended.err.startswith(note), ended.err
    assert "note" not in mallang("evaluate", "runs/carried", "--data", "plain.txt", cwd=home).err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("runs/carried", "--rows", "2"), "context:carried|stride:none|rows:2"),
        (("runs/windows",), "context:6|stride:6"),
        (("runs/windows", "--stride", "2"), "context:6|stride:2"),
    ],
)
def test_the_signature_says_how_it_was_read(home: Path, arguments: tuple[str, ...], told: str) -> None:
    ended = mallang("evaluate", *arguments, cwd=home)
    assert ended.code == 0, ended.err
    assert ended.out.count(f"layout:stream|{told}|") == 3 and "7 texts of test" in ended.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("runs/carried", "--stride", "2"), "a stride is for windows"),
        (("runs/windows", "--stride", "7"), "between 1 and the context, 6"),
        (("runs/windows", "--stride", "0"), "raise it"),
        (("runs/windows", "--rows", "2"), "parallel rows need carried state"),
        (("runs/carried", "--rows", "0"), "cannot be read in 0 rows"),
        (("runs/carried", "--search", "method=greedy"), "method has no effect"),
        (("runs/carried", "--explain", "1"), "--explain compares outputs"),
        (("runs/carried", "--against", "runs/windows"), "--against compares outputs"),
        (("runs/carried", "--domain", "x"), "domain has no effect"),
        (("--outputs", "test.txt", "--references", "test.txt", "--stride", "2"), "--stride or --rows has no effect"),
    ],
)
def test_what_has_no_effect_is_refused(home: Path, arguments: tuple[str, ...], told: str) -> None:
    ended = mallang("evaluate", *arguments, cwd=home)
    assert ended.code == 2 and told in ended.err, ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("transformer", "model.size=tiny"), "it is no language model"),
        (("gpt", "model.size=tiny", *STREAM), "task.order=shuffled"),
        ((*RECURRENT, "task.layout=packed", "task.context=8"), "would read them as one"),
        ((*RECURRENT, "task.layout=stream"), "needs context"),
        ((*RECURRENT, "task.context=9"), "no effect on sentences"),
        ((*RECURRENT, *STREAM, "data.max_length=9"), "data.max_length = 9 has no effect"),
        ((*RECURRENT, *STREAM, "train.batch_tokens=5"), "does not fit into a batch"),
        ((*RECURRENT, *STREAM, "train.batch_tokens=6000"), "too few for 1000 parallel rows"),
    ],
)
def test_a_training_that_makes_no_sense_is_refused(home: Path, arguments: tuple[str, ...], told: str) -> None:
    first, *more = arguments
    ended = mallang("train", first, *COMMON, *more, "--name", "wrong", "--fresh", cwd=home)
    assert ended.code == 2 and told in ended.err, ended.err
    assert "Traceback" not in ended.err
