"""`mallang fill`, and `mallang data show` and `evaluate` of a masked language model, by the real commands."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from commands.running import as_served
from mallang.commands.main import main
from mallang.recipe import read
from mallang.training.train import Options, train

TEXT = "the man went to the store . he bought milk .\nmy dog is hairy . it is very old .\n"
CHANGES = (
    "task.name=masked_lm", "task.length=24", "task.rate=0.3", "task.pairs=order", "model.pretraining_heads=both",
    "model.layers=1", "model.dim=32", "model.heads=2", "model.max_length=24", "model.dropout=0",
    "model.attention_dropout=0", "text.unit=wordpiece", "text.vocabulary=80", "train.steps=60",
    "train.batch_tokens=256", "train.workers=0", "train.validate_every=60", "optimizer.learning_rate=0.01",
    "schedule.warmup=10",
)  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fill")
    text = folder / "text.txt"
    text.write_text(TEXT * 20, "utf-8")
    data = [f"data.{split}={text}" for split in ("train", "valid", "test")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MALLANG_CACHE", str(folder / "cache"))
        train(read("bert", [*CHANGES, *data]).build(), Options(folder=folder / "run", device="cpu", quiet=True))
    return folder


@pytest.fixture
def call(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    """Run one command in this process: its exit code, what it printed, and what it said."""
    monkeypatch.chdir(home)
    monkeypatch.setenv("MALLANG_CACHE", str(home / "cache"))
    monkeypatch.setattr("mallang.evaluation.score.RESAMPLES", 40)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["mallang", *arguments])
        code = 0
        try:
            main()
        except SystemExit as left:
            code = int(left.code or 0)
        return code, *capsys.readouterr()

    return run


def test_gaps_are_filled_as_lines_and_as_json(call, home: Path) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = call("fill", "run", "the man went to [MASK] store .", "--top", "2")
    lines = [line.split("\t") for line in out.splitlines()]
    assert code == 0 and len(lines) == 2 and float(lines[0][0]) >= float(lines[1][0])
    assert all(text == f"the man went to {word} store." for _, word, text in lines if word.isalpha())
    code, out, _ = call("fill", "run", "my <mask> is [MASK] .", "my dog is [MASK] .", "--json", "--top", "3")
    first, second = map(json.loads, out.splitlines())
    assert code == 0 and first["input"] == "my <mask> is [MASK] ." and len(second["gaps"]) == 1
    assert len(first["gaps"]) == 2 and len(first["nbest"]) == 3 and len(first["tokens"]) == 2
    texts = [first["input"], second["input"]]
    assert [first, second] == as_served(home / "run", "fill", texts, count=3)
    assert first["output"] == first["nbest"][0]["text"] and first["score"] == first["nbest"][0]["score"]


def test_what_cannot_be_filled_is_told(call) -> None:  # type: ignore[no-untyped-def]
    code, _, told = call("fill", "run", "the man")
    assert code == 2 and "has no gap to fill" in told and "write [MASK]" in told
    code, _, told = call("translate", "run", "the man")
    assert code == 2 and "`mallang fill`" in told


def test_the_run_is_evaluated_on_masked_tokens_and_both_kinds_of_pairs(call) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = call("evaluate", "run", "--json")
    scores = {each["name"]: each for each in json.loads(out)}
    assert code == 0 and "rate:0.15|mask:80/10/10" in scores["mlm loss"]["signature"]
    assert {"mlm accuracy", "pseudo-perplexity", "unigram loss", "nsp accuracy", "sop accuracy"} <= scores.keys()
    code, _, told = call("evaluate", "run", "--explain", "1")
    assert code == 2 and "masked tokens" in told


def test_examples_are_shown_with_masks_and_pairs(call) -> None:  # type: ignore[no-untyped-def]
    text = "my dog is hairy . the man went to the store ."
    code, out, _ = call("data", "show", "run", "--text", text, "--json")
    [shown] = json.loads(out)
    tokens = shown["read"].split()
    assert code == 0 and tokens[0] == "<cls>" and tokens.count("<sep>") == 2
    changes = [change.split(" → ") for change in shown["masked"].split(", ")]
    assert changes and all(len(change) == 2 and change[1] in tokens for change in changes)
    whole = restored(shown)
    first = "mydogishairy." if shown["pair"] == "in order" else "themanwenttothestore."
    assert whole.startswith(f"<cls>{first}<sep>") and len(whole) == len(
        "<cls>mydogishairy.themanwenttothestore.<sep><sep>"
    )
    code, out, _ = call("data", "show", "run", "--rows", "3", "--split", "valid")
    assert code == 0 and len(out.splitlines()) == 4 and out.startswith("example\tread\tmasked\tpair")
    code, _, told = call("data", "show", "run", "--split", "test")
    assert code == 2 and "not trained on" in told
    code, _, told = call("data", "show", "miniworld", "--text", "a")
    assert code == 2 and "--text is for a recipe" in told


def test_my_dog_is_hairy(call) -> None:  # type: ignore[no-untyped-def]
    """The paper's example: what is hidden is named, and all else is read as it stands."""
    code, out, _ = call("data", "show", "run", "--text", "my dog is hairy .", "--json")
    [shown] = json.loads(out)
    assert code == 0 and shown["pair"] == "" and restored(shown) == "<cls>mydogishairy.<sep>"


def restored(shown: dict[str, str]) -> str:
    """The tokens of an example as they were before masking, joined."""
    read = shown["read"].split()
    for original, instead in (change.split(" → ") for change in shown["masked"].split(", ") if change):
        read[read.index(instead)] = original
    return "".join(read).replace("##", "")


def test_labeled_texts_get_copies_with_other_words(call, home: Path) -> None:  # type: ignore[no-untyped-def]
    rows = [("the man went to the store .", "go"), ("my dog is hairy .", "be")]
    few = "".join(f"{text}\t{label}\n" for text, label in [("text", "label"), *rows])
    (home / "few.tsv").write_text(few, "utf-8")
    options = "--model", "run", "--copies", "3", "--share", "0.9", "--quiet"
    code, out, told = call("data", "augment", "few.tsv", "more.tsv", *options)
    lines = [line.split("\t") for line in (home / "more.tsv").read_text("utf-8").splitlines()]
    assert code == 0 and out == f"2 rows read, {len(lines) - 1} written to more.tsv\n", told
    assert lines[0] == ["text", "label"] and [each for each in map(tuple, lines) if each in rows] == rows
    assert 4 <= len(lines) <= 9 and all(text.endswith(" .") for text, _ in lines[1:])
    code, _, told = call("data", "augment", "few.tsv", "more.tsv", *options)
    assert code == 2 and "more.tsv is there already" in told
    (home / "pairs.tsv").write_text("first\tsecond\tlabel\nmy dog is old .\tit is hairy .\tyes\n", "utf-8")
    code, out, _ = call("data", "augment", "pairs.tsv", "both.tsv", *options, "--pairs", "--json")
    both = [line.split("\t") for line in (home / "both.tsv").read_text("utf-8").splitlines()]
    assert code == 0 and json.loads(out) == {"read": 1, "written": len(both) - 1}
    assert both[1] == ["my dog is old .", "it is hairy .", "yes"] and {row[2] for row in both[1:]} == {"yes"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("none.tsv", "o.tsv", "--model", "run"), "none.tsv"),
        (("few.tsv", "o.txt", "--model", "run"), "try:   o.tsv"),
        (("few.tsv", "o.tsv", "--model", "run", "--share", "2"), "share = 2.0 must be above 0"),
        (("few.tsv", "o.tsv", "--model", "run", "--vectors", "run"), "augment` needs a run for word vectors"),
    ],
)
def test_what_cannot_be_augmented_is_told(call, home: Path, given: tuple[str, ...], message: str) -> None:  # type: ignore[no-untyped-def]
    (home / "few.tsv").write_text("text\tlabel\nmy dog\tyes\na cat\tno\n", "utf-8")
    code, _, told = call("data", "augment", *given)
    assert code == 2 and message in told and "Traceback" not in told, told
    assert not (home / "o.tsv").exists()
