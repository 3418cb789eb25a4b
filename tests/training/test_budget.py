"""`train.seconds` alone: the number of updates is measured once, undone, written down and never changed."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from commands.running import TINY, mallang, metrics, write_corpus
from mallang import recipe as recipes
from mallang.runs.folder import Run
from mallang.training import budget
from mallang.training.budget import Budget, Costs, is_alone, is_enough, plan_updates, time_left
from mallang.training.loop import Loop
from mallang.training.options import Config
from mallang.training.stopping import Stop
from mallang.training.train import Options, train
from training.test_distributed import torchrun

SHORT = (*TINY, "model.dropout=0.2", "train.workers=0", "train.threads=1", "train.ema_decay=0.9")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_corpus(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MALLANG_CACHE", str(tmp_path / "cache"))
    return tmp_path


def trained(name: str, *overrides: str, warmup: str = "schedule.warmup=20") -> Run:
    given = [*(text for text in SHORT if not text.startswith("schedule.warmup")), warmup, *overrides]
    recipe = recipes.read("transformer", given).build()
    return train(recipe, Options(folder=Path("runs", name), device="cpu", quiet=True))


def planned(seconds: float, costs: Costs, warmup: int = 4000, *, is_typed: bool = False, **config: Any) -> Budget:
    return plan_updates(seconds, costs, Config(seconds=seconds, **config), warmup, is_typed=is_typed)


def spent(found: Budget, costs: Costs, save_every: int | None = None) -> float:
    """What the run takes if every update costs what the trial says."""
    looks = -(-found.steps // found.validate_every)
    saves = 0 if save_every is None else found.steps // save_every
    return (
        costs.start
        + found.steps * costs.update
        + looks * (costs.validation + costs.checkpoint)
        + saves * costs.checkpoint
    )


@pytest.mark.parametrize("costs", [
    Costs(0.01, 0.0, 0.0), Costs(0.3, 2.0, 0.1, start=3.0), Costs(0.002, 0.5, 0.5), Costs(1.7, 0.2, 0.3),
])  # fmt: skip
@pytest.mark.parametrize("seconds", [60.0, 300.0, 3600.0])
@pytest.mark.parametrize("config", [{}, {"validate_every": 40}, {"save_every": 25}])
def test_the_updates_validations_and_checkpoints_fill_the_time(
    seconds: float, costs: Costs, config: dict[str, Any]
) -> None:
    found = planned(seconds, costs, **config)
    assert spent(found, costs, config.get("save_every")) == pytest.approx(seconds, rel=0.05)


def test_validations_nobody_asked_for_take_a_tenth_of_the_time_at_most() -> None:
    found = planned(100.0, Costs(0.1, 4.0, 1.0))
    assert -(-found.steps // found.validate_every) == 2
    cheap = planned(100.0, Costs(0.1, 0.01, 0.01))
    assert -(-cheap.steps // cheap.validate_every) == budget.VALIDATIONS
    assert planned(60.0, Costs(50.0, 90.0, 1.0)).steps == 1, "one update at least"


def test_a_warm_up_scales_with_the_updates_unless_it_was_typed() -> None:
    assert planned(100.0, Costs(0.1, 0.0, 0.0)).warmup == 100
    assert planned(100.0, Costs(0.1, 0.0, 0.0), warmup=30).warmup == 30
    assert planned(100.0, Costs(0.1, 0.0, 0.0), warmup=0).warmup == 0
    assert planned(100.0, Costs(0.1, 0.0, 0.0), is_typed=True).warmup == 4000


def test_a_trial_takes_its_share_and_a_slow_one_is_taken_from_the_run() -> None:
    assert not is_enough([0.1] * 20, 3.0) and is_enough([0.1] * 31, 3.0)
    assert not is_enough([2.0, 2.0], 3.0) and is_enough([3.0, 3.0], 3.0), "few updates have twice the time"
    assert not is_enough([50.0], 3.0), "the first one tells little"
    assert time_left(60.0, 3.0) == 58.5
    for trial in (1.0, 3.0, 10.0, 25.0):
        assert 0.9 * 60 <= time_left(60.0, trial) + trial <= 1.1 * 60, "with the trial the time is kept"


def test_the_trial_of_a_long_run_is_short(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []

    def remember(loop: Loop, limit: float, stop: Stop) -> Costs:
        limits.append(limit)
        return Costs(36000.0, 0.0, 0.0)

    monkeypatch.setattr(budget, "costs_of", remember)
    assert trained("long", "train.seconds=36000").info["steps"] == 1
    assert limits == [30.0]
    assert time_left(36000.0, 1800.0) == 36000.0 - 1770.0, "all beyond the thirty seconds counts"


def test_the_checkpoint_of_the_trial_is_written_in_the_run_folder_and_removed(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, written = Loop.save, []

    def remember(loop: Loop, *, validated: bool) -> None:
        save(loop, validated=validated)
        written.append(loop.plan.folder)

    monkeypatch.setattr(Loop, "save", remember)
    run = trained("kept", "train.seconds=1")
    assert written[0].parent == run.folder == written[-1]
    assert not written[0].exists()


def test_with_steps_or_epochs_seconds_are_what_they_were() -> None:
    assert is_alone(Config(seconds=60.0))
    assert not any(
        is_alone(Config(**given)) for given in ({"seconds": 60.0, "steps": 5}, {"seconds": 6.0, "epochs": 1})
    )
    assert not is_alone(Config())


def test_the_trial_changes_nothing_of_the_training(home: Path) -> None:
    """As many updates without a trial give the same weights, bit for bit: moments, averages and chance are undone."""
    timed = trained("timed", "train.seconds=1", "optimizer.name=adamw")
    found = timed.info["budget"]
    assert found["steps"] == timed.info["steps"] >= 1 and found["warmup"] == 20, "typed"
    same = trained("same", f"train.steps={found['steps']}", f"train.validate_every={found['validate_every']}",
                   "optimizer.name=adamw")  # fmt: skip
    assert same.info["weights"] == timed.info["weights"]
    assert "budget" not in same.info


def test_a_run_that_was_stopped_resumes_with_the_number_it_began_with(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = Budget(steps=12, validate_every=5, warmup=2)
    monkeypatch.setattr(budget, "measure", lambda loop, recipe, stop: number)
    whole = trained("whole", "train.seconds=60", "train.save_every=2")
    assert whole.info["steps"] == 12

    update = Loop.update

    def update_to_seven(loop: Loop, drawn: Any, stop: Stop) -> bool:
        return update(loop, drawn, replace(stop, asked=loop.step == 7))

    monkeypatch.setattr(Loop, "update", update_to_seven)
    with pytest.raises(KeyboardInterrupt):
        trained("halves", "train.seconds=60", "train.save_every=2")
    assert json.loads(Path("runs/halves/run.json").read_text("utf-8"))["budget"]["steps"] == 12
    monkeypatch.setattr(Loop, "update", update)
    monkeypatch.setattr(budget, "measure", lambda *given: pytest.fail("measured a second time"))
    assert trained("halves", "train.seconds=60", "train.save_every=2").info["weights"] == whole.info["weights"]


def test_a_stop_during_the_trial_leaves_a_run_that_begins_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    update, calls = Loop.update, []

    def stop_at_second(loop: Loop, drawn: Any, stop: Stop) -> bool:
        calls.append(loop.step)
        return update(loop, drawn, replace(stop, asked=len(calls) >= 2))

    monkeypatch.setattr(Loop, "update", stop_at_second)
    with pytest.raises(KeyboardInterrupt):
        trained("asked", "train.seconds=1")
    assert calls == [0, 1, 0], "one update of the trial, then none of the run"
    assert "budget" not in json.loads(Path("runs/asked/run.json").read_text("utf-8"))
    monkeypatch.setattr(Loop, "update", update)
    assert trained("asked", "train.seconds=1").info["budget"]["steps"] >= 1


def test_defaults_leave_the_length_to_the_seconds(home: Path) -> None:
    from mallang.training.defaults import with_defaults

    resolved = recipes.read("transformer", ["data.train=train.tsv", "train.seconds=60"])
    recipe = with_defaults(resolved)[0].build()
    assert is_alone(recipe.train) and recipe.train.patience is None


@pytest.mark.slow
def test_two_processes_share_one_number_of_updates(home: Path) -> None:
    given = ("train", "transformer", *SHORT, "train.log_every=1")
    ended = torchrun(*given, "train.seconds=2", "--name", "two", cwd=home)
    assert ended.code == 0, ended.err
    found = json.loads((home / "runs/two/run.json").read_text("utf-8"))["budget"]
    same = (f"train.steps={found['steps']}", f"train.validate_every={found['validate_every']}")
    ended = mallang(*given, *same, "train.gradient_accumulation=2", "--name", "one", cwd=home)
    assert ended.code == 0, ended.err
    losses = [[entry["loss"] for entry in metrics(home / "runs" / name)] for name in ("two", "one")]
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)


@pytest.mark.slow
def test_sixty_seconds_are_sixty_seconds_within_a_tenth(home: Path) -> None:
    began = time.monotonic()
    ended = mallang("train", "transformer", "data.train=train.tsv", "train.seconds=60", "train.workers=0", cwd=home)
    assert ended.code == 0, ended.err
    assert time.monotonic() - began < 90
    info = json.loads((home / "runs/transformer/run.json").read_text("utf-8"))
    assert info["seconds"] == pytest.approx(60, rel=0.1) and info["steps"] == info["budget"]["steps"]
