"""Values of a comparison of objectives in results/: a file per score, with its seed, and one per hypothesis."""

from __future__ import annotations

import json
import sys
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # the benchmarks are not installed
from benchmarks import objective_results, results_page
from benchmarks.kinds import kind_of

from mallang.inspection.objective_plan import read_plan
from mallang.inspection.objective_runs import Count

ROOT = Path(__file__).parents[1]
PLANS = sorted((ROOT / "benchmarks" / "objectives").glob("*.toml"))
PLAN = """
title = "Two objectives"
seeds = [1, 2, 3]
reference = "MLM"
budgets = [0, 1000]

[[objectives]]
name = "MLM"
recipe = "bert"
scratch = true

[[objectives]]
name = "RTD"
recipe = "electra"

[[tasks]]
name = "topic, 300 sentences"
overrides = []

[[hypotheses]]
says = "RTD is ahead"
better = "RTD"
than = "MLM"

[[hypotheses]]
says = "MLM helps"
better = "MLM"
than = "random weights"
margin = 2.0
"""
COUNTS = {"MLM": Count(10.0, 6.0, 100), "RTD": Count(10.0, 12.0, 130)}
SCORES = {("MLM", 0): (50.0, 51.0, 49.0), ("MLM", 100): (60.0, 62.0, 61.0), ("RTD", 100): (63.0, 64.0, 62.0),
          ("RTD", 50): (61.0, 63.0, 62.0)}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What `mallang compare --objectives` leaves: a plan, counts, and a line per model."""
    found = tmp_path / "some-plan"
    found.mkdir()
    (found / "plan.toml").write_text(PLAN, "utf-8")
    (found / "counts.json").write_text(json.dumps({name: asdict(each) for name, each in COUNTS.items()}), "utf-8")
    usual: dict[str, Any] = {
        "task": "topic, 300 sentences", "metric": "accuracy", "rows": 1000, "parameters": 100, "seconds": 1.0,
        "fine_tuning_seconds": 2.0, "held_out": {},
    }  # fmt: skip
    lines = [
        {"objective": name, "steps": steps, "seed": seed, "score": score, "tokens": 10.0 * steps, **usual}
        for (name, steps), scores in SCORES.items()
        for seed, score in enumerate(scores, start=1)
    ]
    lines.append({"objective": "RTD", "steps": 7, "seed": 1, "task": "topic, 300 sentences", "failed": "no memory"})
    (found / "lines.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return found


def test_every_score_and_every_answer_is_a_file(folder: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    paths = objective_results.write(folder, results, "abc", "a machine")
    found = {path.stem: json.loads(path.read_text("utf-8")) for path in paths}
    task = "topic-300-sentences"
    scores = {name for name in found if "hypothesis" not in name}
    assert scores == {
        f"objectives-some-plan-{name.lower()}-{steps}-{task}-seed{seed}" for name, steps in SCORES for seed in (1, 2, 3)
    }
    one = found[f"objectives-some-plan-rtd-50-{task}-seed2"]
    assert (one["value"], one["seed"], one["commit"], one["seconds"]) == (63.0, 2, "abc", 3.0)
    assert one["protocol"] == "Two objectives: equal FLOPs to 1,000 MLM tokens, then fine-tuned"
    assert "50 updates, 500 tokens, 6e+03 FLOPs" in one["signature"]
    assert "not pre-trained" in found[f"objectives-some-plan-mlm-0-{task}-seed1"]["protocol"]
    assert "equal tokens and FLOPs" in found[f"objectives-some-plan-mlm-100-{task}-seed1"]["protocol"]
    first, second = (found[f"objectives-some-plan-hypothesis{number}"] for number in (1, 2))
    assert first["value"] == pytest.approx(1.0) and "answer: " in first["signature"]
    assert second["value"] == pytest.approx(11.0) and "answer: yes" in second["signature"]
    assert {kind_of(name).table for name in found} == {"pretraining"}


def test_what_was_measured_before_is_replaced(folder: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    results.mkdir()
    (results / "objectives-some-plan-old-7-topic-seed1.json").write_text("{}", "utf-8")
    (results / "objectives-other-plan-mlm-7-topic-seed1.json").write_text("{}", "utf-8")
    objective_results.write(folder, results, "abc", None)
    names = {path.stem for path in results.glob("*.json")}
    assert "objectives-some-plan-old-7-topic-seed1" not in names
    assert "objectives-other-plan-mlm-7-topic-seed1" in names


def test_headlines_name_hypotheses_of_the_plans() -> None:
    (question,) = [each for each in results_page.questions() if each.tables == ["pretraining"]]
    plans = {path.stem: read_plan(path) for path in PLANS}
    for row in question.rows:
        name, _, number = row.ours.removeprefix("objectives-").rpartition("-hypothesis")
        hypothesis = plans[name].hypotheses[int(number) - 1]
        better, _, than = row.label.partition(": ")[2].partition(", ")[0].partition(" over ")
        assert (hypothesis.better, hypothesis.than) == (better, than), row.label


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_plans_are_cheap_with_ten_seeds_or_exclude_what_they_score(path: Path) -> None:
    """Comparisons on miniworld take minutes, so they have ten seeds; on real text no scored text is pre-trained on."""
    plan = read_plan(path)
    excluded = [each for each in plan.pretraining if each.startswith("data.exclude=")]
    if "miniworld" in path.stem:
        assert len(plan.seeds) == 10
        return
    named = tomllib.loads(excluded[0].replace("data.exclude", "x", 1))["x"] if excluded else []
    corpora = {
        (each.partition("=")[2], task.split)
        for task in plan.tasks for each in task.overrides if each.startswith("data.corpus=")
    }  # fmt: skip
    if path.stem == "novels":
        return  # whole chapters: none equals a sentence
    for corpus, split in corpora:
        assert f"{corpus}:{split}" in named or (corpus == "nsmc" and "nsmc:test" in named), corpus
