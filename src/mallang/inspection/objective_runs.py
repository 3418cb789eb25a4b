"""The runs of a comparison of objectives: pre-trained to equal budgets, fine-tuned alike, resumed after a stop.

    OUT/plan.toml                  the plan, copied before the first run; a changed one is refused
    OUT/counts.json                of each objective: tokens per update, FLOPs per token, parameters
    OUT/runs/NAME-STEPS-seedN      the pre-trained models
    OUT/lines.jsonl                a line for every model that was fine-tuned and scored, as soon as it is

A budget in tokens becomes a number of updates by the tokens of an average update. A budget in FLOPs is divided by the
FLOPs per token of the objective, all networks counted (evaluation/flops.py). Every budget is a run of its own, whose
learning rate rises and falls within it. Where both budgets give about the same number of updates, one run serves both.
"""

from __future__ import annotations

import json
import re
import shutil
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from os import SEEK_END
from pathlib import Path
from typing import Any

import numpy as np

from mallang import recipe as recipes
from mallang.data.corpus import open_corpus
from mallang.data.loader import gather
from mallang.errors import UserError
from mallang.find import find
from mallang.inspection.cost import count_for
from mallang.inspection.objective_plan import Axis, Downstream, Objective, Plan, plan_of
from mallang.loading import load
from mallang.runs.files import replace_file, to_json
from mallang.runs.folder import Run
from mallang.runs.own_files import INFO
from mallang.tasks.contract import Evaluating
from mallang.training.defaults import with_defaults
from mallang.training.materials import prepare_data
from mallang.training.train import Options, train

Line = dict[str, Any]
"""What is known of one fine-tuned model."""
ALIKE = 0.02
"""The relative difference up to which two numbers of updates are one run."""
BATCHES = 64
"""Batches whose tokens are counted."""
HELD_OUT = 1000
"""Rows of held-out text on which a pre-trained model is scored."""
NO_UPDATE = "optimizer.learning_rate=1e-30"
"""A budget of 0 is one update at this rate, which leaves the weights as they were: a run to start from."""


@dataclass(frozen=True)
class Count:
    """What an update of an objective costs."""

    tokens_per_update: float
    flops_per_token: float
    parameters: int


@dataclass(frozen=True)
class Point:
    """One pre-training of an objective, for all seeds: its updates, and the budgets that it stands for."""

    objective: str
    steps: int
    budgets: Mapping[Axis, int]
    """By axis, the budget in tokens of the reference."""


@dataclass(frozen=True)
class Place:
    """Where runs lie, what trains them, and where to report progress."""

    folder: Path
    device: str = "auto"
    shard: tuple[int, int] = (1, 1)
    """The number of this process among those that share the work."""
    say: Callable[[str], None] = lambda text: None

    @property
    def lines(self) -> Path:
        """The file that this process writes."""
        number, count = self.shard
        return self.folder / ("lines.jsonl" if count == 1 else f"lines-{number}.jsonl")


def begin(path: Path, text: str, place: Place) -> Plan:
    """The plan; it is copied before the first run, and then stays as it is, but for more seeds."""
    import tomllib

    plan = plan_of(tomllib.loads(text), str(path))
    kept = place.folder / "plan.toml"
    place.folder.mkdir(parents=True, exist_ok=True)
    if kept.exists():
        before = asdict(plan_of(tomllib.loads(kept.read_text("utf-8")), str(kept)))
        changed = [key for key, value in asdict(plan).items() if value != before[key] and key != "seeds"]
        if changed:
            raise UserError(
                f"{path} has other {' and '.join(changed)} than when its first run began",
                where=str(kept), todo="another --out, or the plan as it was: expectations are written down before runs",
            )  # fmt: skip
    replace_file(kept, text.encode("utf-8"))
    return plan


def do_all(plan: Plan, place: Place) -> None:
    """Pre-train, fine-tune and score what is missing."""
    counts = count_all(plan, place)
    known = {key_of(line) for line in read_lines(place.folder) if "failed" not in line}
    units = [(point, seed) for point in points_of(plan, counts) for seed in plan.seeds]
    mine = [unit for number, unit in enumerate(units) if number % place.shard[1] == place.shard[0] - 1]
    for number, (point, seed) in enumerate(mine, start=1):
        missing = [task for task in plan.tasks if (point.objective, point.steps, seed, task.name) not in known]
        if not missing:
            continue
        place.say(f"{number} of {len(mine)}: {point.objective}, {point.steps:,} updates, seed {seed}")
        for line in done(plan, point, seed, missing, place):
            add_line(place.lines, line)
            place.say(f"  {line['task']}: {line['failed'] if 'failed' in line else format(line['score'], '.2f')}")


def done(plan: Plan, point: Point, seed: int, tasks: Sequence[Downstream], place: Place) -> Iterator[Line]:
    """A line for every task; one that fails does not end the others."""
    base: Line = {"objective": point.objective, "steps": point.steps, "seed": seed}
    try:
        start = pretrained(plan, point, seed, place)
        about = base | about_run(Run.open(start), place.device)
    except UserError as error:
        yield from ({**base, "task": task.name, "failed": error.what} for task in tasks)
        return
    for task in tasks:
        began = time.monotonic()
        try:
            line = {**about, "task": task.name, **fine_tuned(plan, point.objective, task, seed, start, place)}
        except UserError as error:
            line = {**about, "task": task.name, "failed": error.what}
        yield {**line, "fine_tuning_seconds": round(time.monotonic() - began, 2)}


def pretrained(plan: Plan, point: Point, seed: int, place: Place) -> Path:
    """The finished pre-training of a point."""
    folder = place.folder / "runs" / f"{slug(point.objective)}-{point.steps}-seed{seed}"
    if is_finished(folder):
        return folder
    recipe = recipes.read(*recipe_of(plan, plan.objective(point.objective), length_of(plan, point), seed)).build()
    train(recipe, Options(folder=folder, device=place.device, quiet=True))
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    return folder


def recipe_of(plan: Plan, objective: Objective, more: Sequence[str], seed: int) -> tuple[str, list[str]]:
    """The name and the overrides of a pre-training."""
    return objective.recipe, [*plan.pretraining, *objective.pretraining, *more, f"seed={seed}"]


def length_of(plan: Plan, point: Point) -> list[str]:
    """The overrides for the number of updates."""
    steps = max(1, point.steps)
    found = [f"train.steps={steps}", "train.epochs=none", f"train.validate_every={steps}", "train.final=last"]
    return [*found, f"schedule.warmup={round(plan.warmup * steps)}", *([] if point.steps else [NO_UPDATE])]


def is_finished(folder: Path) -> bool:
    """Whether a run has ended."""
    return (folder / INFO).exists() and Run.open(folder).is_finished


def about_run(run: Run, device: str) -> Line:
    """What a pre-training cost, and its scores on held-out text."""
    found = {key: run.info[key] for key in ("tokens", "seconds", "parameters")}
    lines = [json.loads(each) for each in (run.folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    last = next(each for each in reversed(lines) if each["kind"] == "valid")
    held_out = {name: value for name, value in last.items() if name not in ("kind", "step", "seconds")}
    model = load(run.folder, device)
    if isinstance(model, Evaluating):
        recipe = run.recipe()
        rows = open_corpus(recipe.data, find("tasks", run.task).Task.columns).split("valid")
        scores, _ = model.evaluate(list(islice(rows, HELD_OUT)))
        held_out = {score.name: score.value for score in scores}
    return {**found, "held_out": held_out}


def fine_tuned(plan: Plan, name: str, task: Downstream, seed: int, start: Path, place: Place) -> Line:
    """The scores of a model after fine-tuning."""
    objective = plan.objective(name)
    folder = place.folder / "runs" / f"{start.name}-on-{slug(task.name)}"
    model = Run.open(start).recipe().model_name
    few = [] if task.rows is None else few_rows(task, place)
    changes = [*plan.fine_tuning, *task.overrides, *objective.fine_tuning, *few, f"seed={seed}"]
    resolved, _ = with_defaults(recipes.read(model, changes), start=start)
    run = train(resolved.build(), Options(folder=folder, device=place.device, quiet=True, start=start, fresh=True))
    rows = list(open_corpus(run.recipe().data, find("tasks", run.task).Task.columns).split(task.split))
    scores = {score.name: score.value for score in load(run.folder, place.device).evaluate(rows)[0]}
    metric = task.metric or next(iter(scores))
    if metric not in scores:
        raise UserError(f"{task.name} has no score {metric!r}", todo=f"metric is one of {', '.join(scores)}")
    dev = {key: value for key, value in run.info["best"].items() if key != "step"}
    shutil.rmtree(folder)
    return {"score": scores[metric], "metric": metric, "scores": scores, "dev": dev, "rows": len(rows)}


def few_rows(task: Downstream, place: Place) -> list[str]:
    """The overrides that read the first rows of the training split: they are written to files of the folder."""
    folder = place.folder / "data" / slug(task.name)
    recipe = recipes.read(
        "bert", list(task.overrides)
    ).build()  # any encoder: the corpus and the columns are the task's
    columns = find("tasks", recipe.task_name).Task.columns
    corpus = open_corpus(recipe.data, columns)
    files = {"train": task.rows, "valid": None, "test": None}
    if not (folder / "test.jsonl").exists():
        folder.mkdir(parents=True, exist_ok=True)
        for split, most in files.items():
            rows = (dict(zip(columns, row, strict=True)) for row in islice(corpus.split(split), most))
            text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            replace_file(folder / f"{split}.jsonl", text.encode("utf-8", "backslashreplace"))
    given = [f"data.{split}={folder.resolve() / split}.jsonl" for split in files]
    return ["data.corpus=none", f"data.columns={json.dumps(list(columns))}", *given]


def count_all(plan: Plan, place: Place) -> dict[str, Count]:
    """The cost of every objective, kept in the folder: it follows from the plan alone."""
    path = place.folder / "counts.json"
    if path.exists():
        return {name: Count(**each) for name, each in json.loads(path.read_text("utf-8")).items()}
    found = {}
    for objective in plan.objectives:
        place.say(f"counting the FLOPs of {objective.name}")
        found[objective.name] = count_one(plan, objective)
    replace_file(path, to_json({name: asdict(each) for name, each in found.items()}))
    return found


def count_one(plan: Plan, objective: Objective) -> Count:
    """The cost of one objective, counted on batches that are spread over the first epoch."""
    recipe = recipes.read(*recipe_of(plan, objective, ["train.steps=1", "train.epochs=none"], 1)).build()
    materials = prepare_data(recipe, None)
    task, given = materials.task, recipe.train
    batches = task.plan(
        materials.train, tokens=given.batch_tokens, sentences=given.batch_sentences, seed=1, epoch=0
    )  # fmt: skip
    examples = task.examples(materials.train, 1, 0)
    chosen = np.unique(np.linspace(0, len(batches) - 1, BATCHES).astype(int)).tolist()
    tokens = [
        max(task.counts(task.prepare(gather(examples, batches[number]), np.random.default_rng(number))).values())
        for number in chosen
    ]
    if given.first_micro_batches is not None:
        raise UserError("budgets are counted in updates of one size", todo="leave train.first_micro_batches out")
    each_update = given.micro_batches or given.gradient_accumulation
    built = task.build(find("models", recipe.model_name), recipe.model)
    parameters = sum(weight.numel() for weight in built.parameters())
    return Count(float(np.mean(tokens)) * each_update, count_for(recipe, materials), parameters)


def points_of(plan: Plan, counts: Mapping[str, Count]) -> list[Point]:
    """All points, small budgets first, so that an unfinished comparison is one of smaller budgets."""
    found = []
    reference = counts[plan.reference]
    for budget in plan.budgets:
        for objective in plan.objectives:
            if budget == 0:
                if objective.scratch:
                    found.append(Point(objective.name, 0, dict.fromkeys(plan.axes, 0)))
                continue
            one = counts[objective.name]
            tokens = {"tokens": budget, "flops": budget * reference.flops_per_token / one.flops_per_token}
            steps = {axis: max(1, round(tokens[axis] / one.tokens_per_update)) for axis in plan.axes}
            if len(steps) > 1 and abs(steps["flops"] - steps["tokens"]) <= ALIKE * steps["tokens"]:
                steps["flops"] = steps["tokens"]
            for number in dict.fromkeys(steps.values()):
                found.append(Point(objective.name, number, {axis: budget for axis in steps if steps[axis] == number}))
    return found


def read_lines(folder: Path) -> list[Line]:
    """What is known of all models so far; of one that was tried again the last line."""
    lines: dict[Any, Line] = {}
    for path in sorted(folder.glob("lines*.jsonl")):
        for text in path.read_text("utf-8").splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                continue  # the end of a file whose writer was killed
            if "failed" not in line or key_of(line) not in lines:
                lines[key_of(line)] = line
    return list(lines.values())


def add_line(path: Path, line: Line) -> None:
    """Add a line to a file; half a line at its end, whose writer was killed, is ended first."""
    with path.open("ab+") as stream:
        size = stream.seek(0, SEEK_END)
        if size:
            stream.seek(size - 1)
            if stream.read(1) != b"\n":
                stream.write(b"\n")
        stream.write(json.dumps(line, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n")


def key_of(line: Line) -> tuple[str, int, int, str]:
    """What tells a line from others."""
    return line["objective"], line["steps"], line["seed"], line["task"]


def slug(name: str) -> str:
    """A name as part of a file name; two names never share one."""
    plain = re.sub(r"[^\w.]+", "-", name).strip("-")
    return plain if plain == name else f"{plain}-{zlib.crc32(name.encode()):08x}"
