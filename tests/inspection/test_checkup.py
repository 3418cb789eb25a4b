"""What metrics and files say about a run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from mallang.inspection import checkup
from mallang.runs.files import sha256
from mallang.runs.folder import Run
from mallang.tasks import translator
from mallang.tasks.translator import Translation
from mallang.text.tokenizer import Config, Tokenizer
from mallang.training import checkpoint
from mallang.training.checkpoint import Checkpoint


def train(*losses: float, nll: float | None = None) -> list[dict[str, Any]]:
    """Lines of metrics, ten steps apart."""
    more = {} if nll is None else {"nll": nll}
    return [{"kind": "train", "step": 10 * i, "loss": loss, **more} for i, loss in enumerate(losses, 1)]


def valid(*values: float) -> list[dict[str, Any]]:
    return [{"kind": "valid", "step": 100 * i, "loss": value, "nll": value} for i, value in enumerate(values, 1)]


def names(entries: list[dict[str, Any]], words: int | None = 1000) -> list[str]:
    return [finding.name for finding in checkup.examine_training(entries, words)]


GOOD = [*train(6.9, 6.0, 5.0, 4.0, 3.0, 2.5, nll=2.0), *valid(4.0, 3.0, 2.8, 2.78)]


def test_a_good_training_has_no_findings() -> None:
    assert names(GOOD) == []
    assert names([]) == []


@pytest.mark.parametrize("losses", [(6.0, 4.0, 2.0, 3.0, 5.0, 5.0), (6.0, 3.0, math.nan), (6.0, 5.0, math.inf)])
def test_a_training_that_diverged(losses: tuple[float, ...]) -> None:
    (found,) = checkup.examine_training(train(*losses), None)
    assert found.name == "diverged" and found.serious
    assert "optimizer.learning_rate" in found.remedy


def test_a_loss_that_wavers_has_not_diverged() -> None:
    assert names(train(6.0, 4.0, 2.0, 2.3, 2.1, 2.2)) == []


@pytest.mark.parametrize(
    "losses", [(7.0, 5.0, 3.5, 2.0, 1.0, 0.5), (7.0, 6.0, 5.0, 4.0, 1.0, 3.0, 3.0), (7.0, 5.0, 3.0, 3.0, 3.0, 1.0, 9.0)]
)
def test_a_loss_whose_lowest_line_is_among_the_last_has_not_diverged(losses: tuple[float, ...]) -> None:
    assert names(train(*losses)) == []


def test_one_low_line_is_no_tendency() -> None:
    assert names(train(6.0, 4.0, 1.0, 3.9, 3.0, 2.8, 2.7)) == []
    (found,) = checkup.examine_training(train(6.0, 4.0, 3.0, 2.0, 1.0, 5.0, 6.0, 7.0), None)
    assert "is 6 at step 80, it was 2 at step 50" in found.what, "means of three lines, by the last of them"


def test_a_loss_that_does_not_fall() -> None:
    assert names(train(6.0, 6.1, 5.9, 6.0, 5.95, 6.0)) == ["not falling"]
    assert names(train(6.0, 6.1)) == [], "two lines prove nothing"
    assert names(train(6.0, 5.9, 5.8, 5.7, 5.6, 5.5)) == []


def test_a_model_that_knows_nothing() -> None:
    assert names(valid(6.8)) == ["hardly learned"]
    assert names(valid(6.8), words=None) == []
    assert names(valid(6.8), words=100_000) == [], "of so many words it knows something"
    assert names(valid(4.0)) == []


def test_over_fitting() -> None:
    (found,) = checkup.examine_training(valid(4.0, 3.0, 3.1, 3.4), 1000)
    assert found.name == "over-fitting" and "best at step 200" in found.what and not found.serious
    assert names(valid(4.0, 3.0, 3.02, 3.05)) == []
    assert names([*train(6, 4, 2, 1, 0.5, 0.3, nll=0.2), *valid(2.1, 2.05, 2.0)]) == ["over-fitting"]
    assert names([*train(6, 4, 2, 1, 0.5, 0.3, nll=0.2), *valid(0.6, 0.5, 0.5)]) == [], "little is little"


def test_a_training_that_ended_early() -> None:
    assert names(valid(4.0, 3.0, 2.0)) == ["ended early"]
    assert names(valid(4.0, 3.0, 2.95)) == []
    assert names(valid(4.0, 3.0)) == [], "two values are no tendency"


def test_damaged_files_are_found(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"status": "training", "task": "translation"}', "utf-8")
    run = Run.open(tmp_path)
    assert checkup.examine_files(run) == []
    for step in (1, 2):
        tensors = {"model": {"w": torch.ones(2)}, "optimizer": {}}
        path = checkpoint.write(tmp_path / "checkpoints", Checkpoint(step, {}, tensors))
    assert checkup.examine_files(run) == []
    (path / "model.safetensors").write_bytes(b"broken")
    (found,) = checkup.examine_files(run)
    assert (found.name, found.count, found.of, found.serious) == ("damaged checkpoints", 1, 2, False)
    assert found.example.startswith("step-000000002: model.safetensors")
    save_file({"w": torch.ones(2), "impossible": torch.tensor([-math.inf])}, tmp_path / "model.safetensors")
    finished = run.update(status="finished", weights=sha256(tmp_path / "model.safetensors"))
    assert [each.name for each in checkup.examine_files(finished)] == ["damaged checkpoints"]
    (tmp_path / "model.safetensors").write_bytes(b"others")
    assert [each.name for each in checkup.examine_files(finished)] == ["damaged weights", "damaged checkpoints"]
    (tmp_path / "model.safetensors").unlink()
    assert "missing" in checkup.examine_files(finished)[0].what


def test_weights_that_are_no_numbers_are_found(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"status": "training", "task": "translation"}', "utf-8")
    run = Run.open(tmp_path)
    broken = {"model": {"right": torch.ones(3), "wrong": torch.tensor([1.0, math.nan, math.inf])}}
    checkpoint.write(tmp_path / "checkpoints", Checkpoint(7, {}, {**broken, "optimizer": {}}))
    (found,) = checkup.examine_files(run)
    assert (found.name, found.serious, found.count, found.of) == ("NaN weights", True, 2, 6)
    assert "step-000000007" in found.what and found.example == "wrong: 2 of 3"
    save_file({"model.wrong": torch.full((4,), math.nan)}, tmp_path / "model.safetensors")
    finished = run.update(status="finished", weights=sha256(tmp_path / "model.safetensors"))
    (found,) = checkup.examine_files(finished)
    assert (found.name, found.count) == ("NaN weights", 4) and "model.safetensors" in found.what
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    rewritten = run.update(status="finished", weights=sha256(tmp_path / "model.safetensors"))
    assert [each.name for each in checkup.examine_files(rewritten)] == ["damaged weights"]


@dataclass
class Speaker:
    """Says the same of every text, with a note that has nothing to do with where it ends."""

    task: Any
    is_cut: bool

    def stream(self, texts: list[str], domain: Any) -> Iterator[Translation]:
        for text in texts:
            yield Translation(
                text, text[::-1], 0.0, (), note="the forbidden 'cut off' was asked for", is_cut=self.is_cut
            )

    write_rows = translator.Verbs.write_rows


@pytest.mark.parametrize("is_cut", [False, True])
def test_outputs_that_were_cut_off_are_known_without_their_note(is_cut: bool) -> None:
    rows = [(f"a{number}", f"{number}a") for number in range(12)]
    letters = Tokenizer.train(["abc0123456789"], Config(unit="char", vocabulary=40))
    report = checkup.Report("run", "finished")
    speaker = Speaker(SimpleNamespace(tokenizers={"source": letters, "target": letters}, open_ended=False), is_cut)
    checkup.examine_outputs(speaker, rows, [None] * len(rows), None, report)
    assert [finding.name for finding in report.findings] == ["cut off"] * is_cut
    assert report.outputs[1] == {"source": "a1", "output": "1a", "reference": "1a"}
    assert report.to_json()["outputs"] == report.outputs


def test_damaged_metrics_are_a_finding(tmp_path: Path) -> None:
    report = checkup.Report("run", "finished")
    assert checkup.read_metrics(tmp_path, report) == []
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\nnonsense\n{"step": 2}\n', "utf-8")
    assert checkup.read_metrics(tmp_path, report) == []
    (found,) = report.findings
    assert found.name == "damaged metrics" and "line 2" in found.what
    assert report.to_json()["serious"] == 0


@pytest.mark.parametrize(
    ("model", "kind"),
    [(SimpleNamespace(), "for training alone"), (SimpleNamespace(evaluated="answers", evaluate=print), "answers")],
)
def test_outputs_that_are_no_labels_are_not_looked_at_as_labels(model: Any, kind: str) -> None:
    report = checkup.Report("run", "finished")
    checkup.examine_outputs(model, [("only text",)], [None], None, report)
    assert report.notes == [f"outputs were not looked at: they are {kind}"]
