"""Runs of every task that has a score are compared: in one table with costs, and a warning about unequal budgets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import mallang
from contracts import golden_losses
from gpu import stand_ins
from mallang import recipe, schema
from mallang.find import find
from mallang.inspection.comparison import Comparison
from mallang.kernels import c_library
from mallang.training import materials
from mallang.training.train import Options, train


def recipes() -> dict[str, str]:
    """For every task whose runs are compared by their scores a recipe, on the small world if there is one."""
    found: dict[str, str] = {}
    for name in sorted(recipe.names(), key=lambda name: ("miniworld" not in name, len(name))):
        found.setdefault(recipe.read(name).resolved()["task"]["name"].replace("-", "_"), name)
    return {task: name for task, name in found.items() if isinstance(find("tasks", task).Verbs.compared_by, tuple)}


RECIPES = recipes()
QUICK = ("classification", "similarity", "tagging")
"""Tasks that are tried in every run of the tests."""


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    c_library.library()  # else it would be compiled again for the new cache folder
    assert all("miniworld" in name for name in RECIPES.values())  # others would need stand-ins of their corpora
    folder = tmp_path_factory.mktemp("compared")
    with pytest.MonkeyPatch.context() as patch, stand_ins.shortened(train=1000, valid=8, test=12):
        patch.setenv("MALLANG_CACHE", str(folder / "cache"))
        patch.setattr("mallang.training.loop.check_health", lambda *given, **options: None)  # some diverge so small
        patch.setattr("mallang.data.corpus.open_corpus", materials.open_corpus)  # what compare opens
        yield folder


def runs_of(task: str, home: Path) -> list[Path]:
    """Two runs of a task, one with twice the updates of the other."""
    folders = []
    for steps in (2, 4):
        sizes = {"dim": 16, "batch_tokens": 256, "context": 32, "precision": "fp32"}
        built = golden_losses.small(RECIPES[task], steps=steps, **sizes)
        folders.append(home / f"{task}-{steps}")
        run = train(replace(built, seed=steps), Options(folder=folders[-1], device="cpu", quiet=True))
        run.update(seconds=float(steps))  # how fast this machine was does not matter
    return folders


def test_every_task_that_evaluates_is_compared() -> None:
    for name in schema.names("task"):
        verbs = find("tasks", name).Verbs
        assert (verbs.compared_by is not None) == ("evaluate" in verbs.verbs), name


@pytest.mark.parametrize(
    "task", [pytest.param(each, marks=() if each in QUICK else pytest.mark.slow) for each in sorted(RECIPES)]
)
def test_runs_of_every_task_with_a_score_are_compared(task: str, home: Path) -> None:
    runs = runs_of(task, home)
    found = mallang.compare(runs, speed=1)
    assert isinstance(found, Comparison) and found.metric in find("tasks", task).Verbs.compared_by
    told = json.loads(json.dumps(found.to_json()))
    for system in found.systems:
        kept = json.loads(next((Path(system.runs[0]) / "scores").glob("*.json")).read_text("utf-8"))["scores"]
        main = next(score for score in kept if score["name"] == found.metric)
        assert system.scores[found.metric].mean == float(main["value"])
        assert system.seconds is not None and system.parameters is not None
    values = [system.scores[found.metric].mean for system in found.systems]
    assert values == sorted(values, reverse="loss" in found.metric or "perplexity" in found.metric)
    assert told["metric"] == found.metric and len(told["systems"]) == 2
    is_fitted = golden_losses.is_fitted(RECIPES[task])
    assert any(note.startswith("no common budget") for note in found.notes) != is_fitted
    assert str(found).count("baseline") == 2
