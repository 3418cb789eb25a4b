"""Models that learn without gradients: the same run folder, nothing accepted that has no effect."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import mallang
from mallang.errors import UserError
from mallang.recipe import read
from mallang.runs.folder import Run
from mallang.training.record import read as read_metrics
from mallang.training.train import Options, train

PAIRS = [("개가 뛴다.", "dogs run."), ("새가 뛴다.", "birds run."), ("새가 난다.", "birds fly.")]
DATA = ("data.train=train.tsv", "data.valid=valid.tsv", "model.passes=3", "model.candidates=4", "text.unit=word")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MALLANG_CACHE", str(tmp_path / "cache"))
    for name in ("train", "valid"):
        Path(f"{name}.tsv").write_text("".join(f"{ko}\t{en}\n" for ko, en in PAIRS), "utf-8")
    return tmp_path


def fit(*overrides: str, **options: object) -> Run:
    recipe = read("lexicon", [*DATA, "text.shared=false", *overrides]).build()
    return train(recipe, Options(**{"folder": Path("runs/x"), "device": "cpu", "quiet": True, **options}))  # type: ignore[arg-type]


def test_a_run_of_a_fitted_model_is_a_run() -> None:
    run = fit()
    assert run.is_finished and run.info["steps"] == 3 and run.info["best"]["step"] == 3
    assert run.info["parameters"] == 4 * len(run.tokenizers(("source", "target"))["source"].vocabulary)
    entries = read_metrics(Path("runs/x/metrics.jsonl"))
    assert [(entry["kind"], entry["step"]) for entry in entries] == [
        ("train", 1), ("train", 2), ("train", 3), ("valid", 3),
    ]  # fmt: skip
    assert entries[0]["loss"] > entries[2]["loss"]
    assert run.info["best"]["loss"] == entries[3]["loss"]
    assert "lexicon" in Path("runs/x/card.md").read_text("utf-8")
    assert not Path("runs/x/checkpoints").exists()
    model = mallang.load("runs/x", device="cpu")
    assert [str(output) for output in model.translate(["새가 뛴다.", "개가 난다."])] == ["birds run.", "dogs fly."]


def test_a_killed_fit_begins_anew_and_ends_the_same() -> None:
    whole = fit(folder=Path("runs/whole"))
    run = fit()
    info = {**run.info, "status": "training"}
    for key in ("weights", "best"):
        info.pop(key)
    Path("runs/x/run.json").write_text(json.dumps(info), "utf-8")
    Path("runs/x/model.safetensors").unlink()
    with Path("runs/x/metrics.jsonl").open("a", encoding="utf-8") as stream:
        stream.write('{"kind": "train", "step": 1, "lo')
    again = fit()
    assert again.is_finished
    assert again.info["weights"] == whole.info["weights"]
    assert len(read_metrics(Path("runs/x/metrics.jsonl"))) == 4


def test_a_finished_fit_is_not_done_twice() -> None:
    fit()
    with pytest.raises(UserError, match="is finished"):
        fit()
    assert fit(fresh=True).is_finished


def test_the_metric_that_decides_is_measured() -> None:
    assert fit("train.metric=chrf").info["best"]["chrf"] > 0


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("train.steps=5", "train.steps = 5"),
        ("train.precision=fp32", "train.precision = fp32"),
        ("optimizer.learning_rate=0.1", "optimizer.learning_rate = 0.1"),
        ("schedule.warmup=7", "schedule.warmup = 7"),
    ],
)
def test_what_has_no_effect_is_refused(override: str, told: str) -> None:
    with pytest.raises(UserError, match="so this has no effect: ") as refused:
        fit(override)
    assert told in refused.value.what
    assert not Path("runs/x").exists()


def test_defaults_that_are_spelled_out_are_none_of_it() -> None:
    fit(folder=Path("runs/first"))
    again = train(read("runs/first").build(), Options(folder=Path("runs/second"), device="cpu", quiet=True))
    assert again.info["weights"] == Run.open("runs/first").info["weights"]


def test_there_is_nothing_to_start_from() -> None:
    fit(folder=Path("runs/first"))
    with pytest.raises(UserError, match="--from has no effect"):
        fit(start=Path("runs/first"))


def test_a_bad_lexicon_leaves_no_finished_run() -> None:
    Path("lexicon.txt").write_text("개가 dogs\n뛴다\n", "utf-8")
    with pytest.raises(UserError, match="a line must hold a source word") as refused:
        fit("model.file=lexicon.txt", "model.passes=10")
    assert refused.value.where == "lexicon.txt, line 2"
    assert not Run.open("runs/x").is_finished
    Path("lexicon.txt").write_text("개가 dogs\n뛴다 run\n", "utf-8")
    assert fit("model.file=lexicon.txt", "model.passes=10").is_finished
    assert str(mallang.load("runs/x", device="cpu").translate("개가 뛴다.")) == "dogs run."
