"""Pre-training objectives side by side: equal budgets, a plan that stays, runs that resume, answers that are honest."""

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands.running import mallang
from mallang import recipe as recipes
from mallang.data.corpus import Config, open_corpus
from mallang.errors import UserError
from mallang.inspection import objective_runs
from mallang.inspection.objective_plan import Downstream, Hypothesis, Objective, Plan, plan_of, read_plan
from mallang.inspection.objective_report import Report, T, judged
from mallang.inspection.objective_runs import Count, Place, Point, begin, count_one, do_all, points_of, read_lines, slug
from mallang.runs.folder import Run

ROOT = Path(__file__).parents[2]
PLAN = """
title = "Two objectives"
seeds = [1]
reference = "MLM"
budgets = [0, 1500]
pretraining = [
  "model.layers=1", "model.dim=16", "model.heads=2", "model.max_length=64", "text.unit=word", "text.vocabulary=300",
  "data.train=docs.jsonl", "data.valid=docs.jsonl", "train.batch_tokens=256", "train.workers=0", "train.threads=1",
]
fine_tuning = ["train.epochs=1", "train.batch_tokens=512", "train.workers=0", "train.threads=1"]

[[objectives]]
name = "MLM"
recipe = "bert"
scratch = true
pretraining = ["task.name=masked_lm", "task.length=32", "model.pretraining_heads=masked-lm"]
fine_tuning = ["model.pooling=mean", "model.pooler=false", "model.pretraining_heads=none"]

[[objectives]]
name = "RTD"
recipe = "electra"
pretraining = [
  "task.name=replaced_token", "task.length=32", "model.pretraining_heads=both", "model.embedding_dim=16",
  "model.generator_width=0.5",
]
fine_tuning = ["model.pooling=mean", "model.pretraining_heads=none"]

[[tasks]]
name = "sentiment"
overrides = ["task.name=classification", "data.train=labels.jsonl", "data.valid=labels.jsonl", "data.test=labels.jsonl"]
metric = "accuracy"

[[hypotheses]]
says = "RTD is ahead at equal compute"
better = "RTD"
than = "MLM"
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a plan, documents of miniworld, and labeled sentences."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MALLANG_CACHE", str(tmp_path / "cache"))
    for name, corpus, columns, roles, count in (
        ("docs", "miniworld-documents", ["en"], ("text",), 60),
        ("labels", "miniworld", ["en", "sentiment"], ("text", "label"), 60),
    ):
        rows = itertools.islice(open_corpus(Config(corpus=corpus, columns=list(columns)), roles).split("train"), count)
        lines = (json.dumps(dict(zip(roles, row, strict=True))) + "\n" for row in rows)
        (tmp_path / f"{name}.jsonl").write_text("".join(lines), "utf-8")
    (tmp_path / "plan.toml").write_text(PLAN, "utf-8")
    return tmp_path


def made(**changes: Any) -> Plan:
    """A plan without runs."""
    objectives = (Objective(name="A", recipe="bert", scratch=True), Objective(name="B", recipe="electra"))
    tasks = (Downstream(name="one", overrides=()), Downstream(name="two", overrides=()))
    plan = Plan(title="t", objectives=objectives, tasks=tasks, budgets=(0, 1000, 4000), reference="A")
    return replace(plan, **changes)


def test_the_comparison_runs_resumes_and_reports(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, told = Place(Path("out"), "cpu"), list[str]()
    plan = begin(Path("plan.toml"), PLAN, place)
    trained = objective_runs.train

    def killed(recipe: Any, options: Any) -> Run:
        if len(told) == 3:
            raise KeyboardInterrupt  # as if the process ended here
        told.append(str(options.folder))
        return trained(recipe, options)

    monkeypatch.setattr(objective_runs, "train", killed)
    with pytest.raises(KeyboardInterrupt):
        do_all(plan, place)
    first = read_lines(place.folder)
    assert len(first) == 1 and len(told) == 3  # a pre-training, its fine-tuning, and the next pre-training
    kept = place.folder / "lines.jsonl"
    kept.write_text(kept.read_text("utf-8") + '{"objective": "ML', "utf-8")  # cut off while it was written
    monkeypatch.setattr(objective_runs, "train", trained)
    assert mallang("compare", "--objectives", "plan.toml", "--out", "out", "--device", "cpu", cwd=home).code == 0
    report = json.loads((home / "out/report.json").read_text("utf-8"))
    assert report["missing"] == 0 and first[0] in report["lines"]
    budgets = {(each["objective"], each["axis"], each["budget"]) for each in report["curves"]}
    assert ("MLM", "tokens", 0) in budgets and ("RTD", "flops", 1500) in budgets and ("RTD", "flops", 0) not in budgets
    equal = {
        each["objective"]: each["flops"] for each in report["curves"] if each["axis"] == "flops" and each["budget"]
    }
    assert equal["RTD"] == pytest.approx(equal["MLM"], rel=0.15)  # whole updates of a tiny budget
    assert "RTD is ahead at equal compute" in (home / "out/report.md").read_text("utf-8")
    assert "<svg" in (home / "out/curves.svg").read_text("utf-8")
    masked = next(line for line in report["lines"] if line["objective"] == "MLM" and line["steps"])
    assert {"mlm accuracy", "pseudo-perplexity"} <= set(masked["held_out"]) and masked["rows"] == 60
    again = mallang("compare", "--objectives", "plan.toml", "--out", "out", "--json", cwd=home)
    assert json.loads(again.out)["lines"] == report["lines"] and "updates, seed" not in again.err


def test_a_plan_stays_as_it_was_but_for_seeds(home: Path) -> None:
    place = Place(home / "out")
    begin(home / "plan.toml", PLAN, place)
    assert begin(home / "plan.toml", PLAN.replace("[1]", "[1, 2]"), place).seeds == (1, 2)
    with pytest.raises(UserError, match="other hypotheses than when its first run began"):
        begin(home / "plan.toml", PLAN.replace("is ahead", "is behind"), place)


def test_a_model_of_budget_0_has_its_random_weights(home: Path) -> None:
    plan = replace(read_plan(Path("plan.toml")), seeds=(1,))
    point = points_of(plan, {name: Count(100.0, 10.0, 1) for name in ("MLM", "RTD")})[0]
    found = Run.open(objective_runs.pretrained(plan, point, 1, Place(home / "out", "cpu"))).read_weights()
    again = [*plan.pretraining, *plan.objectives[0].pretraining, "train.steps=1", "train.epochs=none", "seed=1"]
    longer = recipes.read("bert", [*again, "optimizer.learning_rate=1e-20"]).build()
    other = objective_runs.train(longer, objective_runs.Options(folder=home / "b", device="cpu", quiet=True))
    for name, weights in other.read_weights().items():
        assert np.allclose(found[name], weights, rtol=0, atol=1e-18), name


def test_points_have_equal_tokens_and_equal_flops() -> None:
    counts = {"A": Count(100.0, 6.0, 1), "B": Count(50.0, 12.0, 1)}
    points = points_of(made(), counts)
    assert [(each.objective, each.steps, dict(each.budgets)) for each in points] == [
        ("A", 0, {"tokens": 0, "flops": 0}),
        ("A", 10, {"tokens": 1000, "flops": 1000}),
        ("B", 20, {"tokens": 1000}),
        ("B", 10, {"flops": 1000}),
        ("A", 40, {"tokens": 4000, "flops": 4000}),
        ("B", 80, {"tokens": 4000}),
        ("B", 40, {"flops": 4000}),
    ]
    close = points_of(made(), {"A": Count(100.0, 6.0, 1), "B": Count(100.0, 6.05, 1)})
    assert all(set(each.budgets) == {"tokens", "flops"} for each in close)  # one run serves both


def test_the_generator_is_counted(home: Path) -> None:
    plan = read_plan(Path("plan.toml"))
    wide = replace(plan.objectives[1], pretraining=(*plan.objectives[1].pretraining, "model.generator_width=1.0"))
    narrow, whole = count_one(plan, plan.objectives[1]), count_one(plan, wide)
    masked = count_one(plan, plan.objectives[0])
    assert whole.flops_per_token > 1.2 * narrow.flops_per_token > 1.2 * masked.flops_per_token
    assert narrow.tokens_per_update == pytest.approx(masked.tokens_per_update, rel=0.1)


def test_answers_are_those_of_a_paired_t_interval() -> None:
    stats = pytest.importorskip("scipy.stats")
    assert [stats.t.ppf(0.975, each + 1) for each in range(len(T))] == pytest.approx(T, abs=5e-4)
    hypothesis = Hypothesis(says="B is ahead", better="B", than="A", margin=1.0)
    for apart, said in (((2.0, 2.1, 1.9), "yes"), ((0.0, 0.1, -0.1), "no"), ((2.0, 0.2, 1.9), "not settled")):
        answer = judged(hypothesis, apart)
        low, high = stats.t.interval(0.95, len(apart) - 1, np.mean(apart), stats.sem(apart))
        assert answer.answer.startswith(said) and answer.low is not None and answer.high is not None
        assert math.isclose(answer.low, low, rel_tol=1e-3) and math.isclose(answer.high, high, rel_tol=1e-3)
    assert judged(hypothesis, []).answer == "not measured" and "one seed" in judged(hypothesis, [2.0]).answer


def test_a_report_pairs_seeds_and_says_what_is_missing() -> None:
    hypothesis = Hypothesis(says="B is ahead", better="B", than="A", axis="tokens")
    plan = made(hypotheses=(hypothesis,), budgets=(1000,), axes=("tokens",))
    counts = {"A": Count(100.0, 6.0, 1), "B": Count(50.0, 12.0, 1)}
    scores = {("A", "one"): (50.0, 60.0, 70.0), ("A", "two"): (50.0, 60.0, 70.0), ("B", "one"): (53.0, 62.0, 73.0)}
    lines = [
        {"objective": name, "steps": {"A": 10, "B": 20}[name], "seed": seed, "task": task, "score": score,
         "tokens": 1000, "metric": "accuracy", "rows": 9, "held_out": {"loss": 1.0}}
        for (name, task), found in scores.items() for seed, score in enumerate(found, start=1)
    ]  # fmt: skip
    report = Report(plan, counts, lines)
    assert report.missing == 3 and report.answers()[0].answer == "not measured"  # B has no second task
    more = [{**line, "task": "two"} for line in lines if line["objective"] == "B"]
    whole = Report(plan, counts, [*lines, *more])
    answer = whole.answers()[0]
    assert whole.missing == 0 and answer.difference == pytest.approx(8 / 3) and answer.answer == "yes"
    means = {each.objective: each.mean for each in whole.spots() if each.task == "mean of tasks"}
    assert means == {"A": pytest.approx(60.0), "B": pytest.approx(62.0 + 2 / 3)}
    assert "62.67 ± 10.02" in str(whole)
    random = Hypothesis(says="it helps", better="A", than="random weights", axis="tokens", margin=4.0)
    scratch = [{**line, "steps": 0, "score": line["score"] - 5.0} for line in lines if line["objective"] == "A"]
    helped = Report(replace(plan, budgets=(0, 1000), hypotheses=(random,)), counts, [*lines, *scratch]).answers()[0]
    assert (helped.answer, helped.difference) == ("yes", pytest.approx(5.0))
    failed = [{"objective": "B", "steps": 20, "seed": 1, "task": "two", "failed": "it diverged"}]
    assert "1 runs of B on two: it diverged" in str(Report(plan, counts, [*lines, *failed]))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"budget": [1]}, "means nothing in a plan"),
        ({"budgets": [5, 1]}, "must be whole numbers of tokens that rise"),
        ({"budgets": [0]}, "nothing would be pre-trained"),
        ({"reference": "C"}, "no objective 'C'"),
        ({"tasks": [{"name": "one"}]}, "tasks.1.overrides: Field required"),
        ({"tasks": [{"name": "one", "overrides": "a=b"}]}, "tasks.1.overrides: Input should be a valid tuple"),
        ({"tasks": ["one"]}, "'one' is no table"),
        ({"tasks": [{"name": "one", "overrides": [], "rows": 0}]}, "must be at least 1"),
        ({"objectives": []}, "objectives is missing or empty"),
        ({"hypotheses": [{"says": "x", "better": "C", "than": "A"}]}, "names 'C'"),
        ({"hypotheses": [{"says": "x", "better": "B", "than": "random weights"}]}, "fine-tunes none of bert"),
        ({"hypotheses": [{"says": "x", "better": "B", "than": "A", "tasks": ["x"]}]}, "names the task 'x'"),
        ({"objectives": [{"name": "A", "recipe": "bert"}] * 2}, "two objectives are called 'A'"),
        ({"axes": ["seconds"]}, "axes.1: Input should be 'tokens' or 'flops'"),
        ({"axes": []}, "names none"),
        ({"seeds": []}, "must be whole numbers"),
        ({"warmup": 1.5}, "share of the updates"),
    ],
)
def test_what_a_plan_cannot_say_is_refused(change: dict[str, Any], said: str) -> None:
    plan = {
        "title": "t", "reference": "A", "budgets": [10], "tasks": [{"name": "one", "overrides": []}],
        "objectives": [{"name": "A", "recipe": "bert"}, {"name": "B", "recipe": "bert"}],
    }  # fmt: skip
    assert plan_of(plan, "plan.toml").seeds == (1, 2, 3)
    with pytest.raises(UserError, match=said):
        plan_of({**plan, **change}, "plan.toml")


@pytest.mark.parametrize(
    "path", sorted((ROOT / "benchmarks" / "objectives").glob("*.toml")), ids=lambda path: path.stem
)
def test_every_recipe_of_the_plans_that_are_kept_here_can_be_built(path: Path) -> None:
    plan = read_plan(path)
    assert plan.hypotheses and len(plan.seeds) >= 3 and path.stem in path.read_text("utf-8").splitlines()[1]
    for objective in plan.objectives:
        point = Point(objective.name, 10, {"tokens": 1})
        recipe = recipes.read(*objective_runs.recipe_of(plan, objective, objective_runs.length_of(plan, point), 1))
        model = recipe.build().model_name
        assert recipe.build().task_name in ("language_modeling", "masked_lm", "replaced_token")
        for task in plan.tasks:
            recipes.read(model, [*plan.fine_tuning, *task.overrides, *objective.fine_tuning]).build()


def test_names_of_folders_are_plain_and_apart() -> None:
    assert slug("MLM") == "MLM" and slug("MLM+NSP") != slug("MLM-NSP") and "/" not in slug("80/10/10")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--objectives", "none.toml", "--out", "x"), "the plan cannot be read"),
        (("--objectives", "plan.toml"), "no folder for the runs"),
        (("--objectives", "plan.toml", "--out", "x", "--shard", "3/2"), "is no part"),
        (("--out", "x"), "are for --objectives"),
        (("runs/a", "--objectives", "plan.toml"), "trains its own runs"),
    ],
)
def test_wrong_commands_are_told(home: Path, arguments: tuple[str, ...], said: str) -> None:
    ended = mallang("compare", *arguments, cwd=home)
    assert ended.code == 2 and said in ended.err
