"""The plan of a comparison of pre-training objectives: a file that says everything before the first run.

    title = "Two objectives on miniworld"
    seeds = [1, 2, 3]
    reference = "MLM"
    budgets = [0, 100_000, 400_000]      # tokens; the FLOPs in which the reference reads them are the other budget
    hypotheses = what is expected, and between which objectives: written down before the runs, answered by the report

    [[objectives]]                       # each is pre-trained with every budget and seed
    [[tasks]]                            # and then fine-tuned on every task

A budget of 0 is a model with random weights. It has the tokenizer of the others, and is fine-tuned as they are.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from mallang.errors import UserError, nearest

Axis = Literal["tokens", "flops"]
RANDOM = "random weights"
"""What a hypothesis names to compare an objective with the same model without pre-training."""
AXES: tuple[Axis, ...] = ("tokens", "flops")


@dataclass(frozen=True, kw_only=True)
class Objective:
    """What is learned from plain text, by which model."""

    name: str
    recipe: str
    """A recipe, or the bare name of a model."""
    pretraining: tuple[str, ...] = ()
    """Overrides of its pre-training."""
    fine_tuning: tuple[str, ...] = ()
    """Overrides of its fine-tuning, such as how the vector of a text is pooled."""
    scratch: bool = False
    """Whether it is also fine-tuned from random weights; one objective of each model is enough."""


@dataclass(frozen=True, kw_only=True)
class Downstream:
    """A task to fine-tune on."""

    name: str
    overrides: tuple[str, ...]
    split: str = "test"
    """The split that is scored."""
    metric: str = ""
    """The name of the score; the first one if it is empty."""
    rows: int | None = None
    """Rows of the training split that are read: the first ones; all if it is left out."""


@dataclass(frozen=True, kw_only=True)
class Hypothesis:
    """A statement about two objectives that the runs can answer."""

    says: str
    better: str
    than: str
    """Another objective, or `random weights`."""
    axis: Axis = "flops"
    tasks: tuple[str, ...] = ()
    """The tasks over which scores are averaged; all if it is left out."""
    margin: float = 0.0
    """By how many points it should be better."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All of it."""

    title: str
    objectives: tuple[Objective, ...]
    tasks: tuple[Downstream, ...]
    budgets: tuple[int, ...]
    """Tokens that the reference reads."""
    reference: str
    seeds: tuple[int, ...] = (1, 2, 3)
    axes: tuple[Axis, ...] = AXES
    warmup: float = 0.1
    """The share of the updates that the learning rate rises."""
    pretraining: tuple[str, ...] = ()
    """Overrides of every pre-training."""
    fine_tuning: tuple[str, ...] = ()
    """Overrides of every fine-tuning."""
    hypotheses: tuple[Hypothesis, ...] = ()

    def objective(self, name: str) -> Objective:
        """The objective of this name."""
        return next(each for each in self.objectives if each.name == name)


PARTS = {
    part: [each.name for each in fields(kind)]
    for part, kind in (("objectives", Objective), ("tasks", Downstream), ("hypotheses", Hypothesis))
}
"""The tables of a plan, and their keys."""
PAGE = "see docs/how-to/compare-objectives.md"


def read_plan(path: Path) -> Plan:
    """A plan from its file."""
    try:
        return plan_of(tomllib.loads(path.read_text("utf-8")), str(path))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"the plan cannot be read: {error}", where=str(path)) from error


def plan_of(given: Mapping[str, Any], where: str) -> Plan:
    """A plan from the values of its file."""
    check_keys(given, [each.name for each in fields(Plan)], where)
    for name, kind in (("objectives", list), ("tasks", list), ("budgets", list), ("title", str), ("reference", str)):
        if not isinstance(given.get(name), kind) or not given[name]:
            raise UserError(f"{name} is missing or empty", where=where, todo=PAGE)
    for part, known in PARTS.items():
        for each in given.get(part, []):
            check_keys(each, known, where)
    plan = typed(given, where)
    check_numbers(plan, where)
    check_names(plan, where)
    return plan


def typed(given: Mapping[str, Any], where: str) -> Plan:
    """The values as a plan; the first that is missing or of a wrong type is named."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(Plan).validate_python(given)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(each + 1) if isinstance(each, int) else each for each in first["loc"])
        raise UserError(f"{place}: {first['msg']}", where=where, todo=PAGE) from error


def check_keys(given: Any, known: Sequence[str], where: str) -> None:
    """Refuse a key that means nothing."""
    if not isinstance(given, dict):
        raise UserError(f"{given!r} is no table", where=where, todo=PAGE)
    for key in given:
        if key not in known:
            raise UserError(f"{key!r} means nothing in a plan", where=where, todo=nearest(key, known))


def check_numbers(plan: Plan, where: str) -> None:
    """Refuse budgets, seeds and axes that cannot be."""
    budgets = plan.budgets
    if any(each < 0 for each in budgets) or list(budgets) != sorted(set(budgets)):
        raise UserError(f"budgets = {list(budgets)} must be whole numbers of tokens that rise", where=where)
    if not any(budgets):
        raise UserError("every budget is 0: nothing would be pre-trained", where=where, todo="budgets = [0, 1_000_000]")
    if not plan.seeds or min(plan.seeds) < 0:
        raise UserError(f"seeds = {list(plan.seeds)} must be whole numbers", where=where, todo="seeds = [1, 2, 3]")
    if not 0.0 <= plan.warmup < 1.0:
        raise UserError(f"warmup = {plan.warmup} must be a share of the updates", where=where, todo="warmup = 0.1")
    if not plan.axes or len(set(plan.axes)) < len(plan.axes):
        raise UserError(f"axes = {list(plan.axes)} names none, or one twice", where=where, todo=f"axes = {list(AXES)}")
    for task in plan.tasks:
        if task.rows is not None and task.rows < 1:
            raise UserError(f"rows = {task.rows} of task {task.name!r} must be at least 1", where=where)


def check_names(plan: Plan, where: str) -> None:
    """Refuse names that are given twice, or that nothing has."""
    objectives, tasks = [each.name for each in plan.objectives], [each.name for each in plan.tasks]
    for what, names in (("objective", objectives), ("task", tasks)):
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise UserError(f"two {what}s are called {twice[0]!r}", where=where, todo="give each a name of its own")
    if plan.reference not in objectives:
        raise UserError(
            f"there is no objective {plan.reference!r}", where=where, todo=nearest(plan.reference, objectives)
        )
    for hypothesis in plan.hypotheses:
        for name in (hypothesis.better, hypothesis.than):
            if name == RANDOM and name is hypothesis.than:
                check_random(plan, hypothesis, where)
            elif name not in objectives:
                raise UserError(f"a hypothesis names {name!r}", where=where, todo=nearest(name, objectives))
        for name in hypothesis.tasks:
            if name not in tasks:
                raise UserError(f"a hypothesis names the task {name!r}", where=where, todo=nearest(name, tasks))
        if hypothesis.axis not in plan.axes:
            raise UserError(f"a hypothesis is about equal {hypothesis.axis}, which is not among the axes", where=where)


def check_random(plan: Plan, hypothesis: Hypothesis, where: str) -> None:
    """Refuse a comparison with random weights where none are fine-tuned."""
    recipe = next((each.recipe for each in plan.objectives if each.name == hypothesis.better), None)
    if recipe and not (0 in plan.budgets and any(each.scratch and each.recipe == recipe for each in plan.objectives)):
        raise UserError(
            f"{hypothesis.says!r} compares with random weights, and the plan fine-tunes none of {recipe}",
            where=where, todo="a budget of 0, and scratch = true for an objective of that model",
        )  # fmt: skip
