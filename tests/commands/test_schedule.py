"""`mallang schedule`: the rates that training then has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands.running import TINY, mallang, metrics, write_corpus
from mallang import recipe
from mallang.inspection.schedule_curve import ScheduleCurve, schedule_curve
from mallang.training.defaults import fit_recipe
from mallang.training.schedule import multiplier

QUICK = ("transformer", *TINY, "train.workers=0", "schedule.warmup=3", "train.log_every=1")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("schedule")
    write_corpus(place)
    return place


@pytest.mark.parametrize(
    "changes",
    [
        ("train.steps=7", "schedule.name=linear"),
        ("train.epochs=2", "train.gradient_accumulation=3", "schedule.name=noam"),
    ],
    ids=["steps", "epochs"],
)
def test_training_has_these_rates(home: Path, changes: tuple[str, ...]) -> None:
    name = changes[-1].partition("=")[2]
    assert (ended := mallang("train", *QUICK, *changes, "--name", name, cwd=home)).code == 0, ended.err
    trained = [row["rate"] for row in metrics(home / "runs" / name) if row["kind"] == "train"]
    shown = mallang("schedule", *QUICK, *changes, "--json", cwd=home)
    assert shown.code == 0, shown.err
    found = json.loads(shown.out)
    assert found["schedule"] == name and found["steps"] == len(trained) >= 3
    assert found["rates"] == pytest.approx(trained)


def test_every_step_is_the_multiplier_times_the_rate() -> None:
    checked = recipe.read("transformer-miniworld", ["train.epochs=none", "train.steps=900"]).build()
    curve = schedule_curve(checked)
    assert len(curve.rates) == 900 and curve.peak == 200 and max(curve.rates) == checked.optimizer.learning_rate
    for step in (1, 150, 200, 700, 900):
        expected = checked.optimizer.learning_rate * multiplier(checked.schedule, step, total=900, dim=128)
        assert curve.rates[step - 1] == pytest.approx(expected)


def test_defaults_that_fit_the_data_are_those_of_training(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    bare = recipe.read("transformer", ["data.train=train.tsv", "data.valid=valid.tsv"]).build()
    fitted = fit_recipe(bare, lambda text: None)
    assert (fitted.train.steps, fitted.optimizer.learning_rate) != (bare.train.steps, bare.optimizer.learning_rate)
    curve = schedule_curve(bare)
    assert len(curve.rates) == fitted.train.steps and max(curve.rates) == pytest.approx(fitted.optimizer.learning_rate)
    shown = mallang("schedule", "transformer", "data.train=train.tsv", "data.valid=valid.tsv", "--json", cwd=home)
    assert shown.code == 0, shown.err
    assert json.loads(shown.out)["schedule"] == fitted.schedule.name != bare.schedule.name


def test_points_hold_the_ends_and_the_peak() -> None:
    curve = ScheduleCurve(tuple(min(step, 20 - step) / 10 for step in range(1, 21)))
    shown = dict(curve.points(4))
    assert {1, 10, 20} <= set(shown) and shown[10] == 1.0 and len(shown) <= 6
    assert ScheduleCurve((0.5,)).points(16) == [(1, 0.5)]


def test_a_table_and_a_figure(home: Path) -> None:
    shown = mallang(
        "schedule", "transformer-miniworld", "train.epochs=none", "train.steps=400", "--out", "a.png", cwd=home
    )
    lines = shown.out.splitlines()
    assert shown.code == 0 and lines[0].split()[:2] == ["1", "2e-05"] and lines[-1].split() == ["400", "0"], shown.err
    assert any(line.split()[:2] == ["200", "0.004"] and line.endswith("█" * 40) for line in lines)
    assert (home / "a.png").stat().st_size > 5_000 and shown.err.splitlines()[-1] == "a.png"
    options = ("transformer-miniworld", "train.epochs=none", "train.steps=4")
    assert mallang("schedule", *options, cwd=home).err == ""
    assert mallang("schedule", *options, "--out", "b.png", "-q", cwd=home).err == ""


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("ngram-miniworld",), "it has no learning rate"),
        (("transformer-miniworld", "--out", "a.gif"), "cannot be written as a.gif"),
        (("transformer-miniworld", "--out", "nowhere/a.png"), "there is no folder nowhere"),
        (("transformer-miniworld", "schedule.warmup=-1"), "warmup must not be negative"),
        (("transformr",), "transformr"),
        (("transformer-miniworld", "train.epochs=none", "train.seconds=60"), "measured when training begins"),
    ],
)
def test_bad_input(home: Path, given: tuple[str, ...], message: str) -> None:
    ended = mallang("schedule", *given, cwd=home)
    assert ended.code == 2 and message in ended.err and "Traceback" not in ended.err, ended.err
