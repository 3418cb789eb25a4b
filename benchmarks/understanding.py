"""Train classifiers and taggers side by side on one device: settings chosen on dev, then three seeds tested.

python -m benchmarks.understanding plan benchmarks/understanding.toml               # which jobs, and what is wrong
python -m benchmarks.understanding run benchmarks/understanding.toml --out lines.jsonl --workers 14 --seconds 480
python -m benchmarks.understanding run … --out more.jsonl --done lines.jsonl        # resumes where the time was over
python -m benchmarks.understanding show lines.jsonl                                 # print tables
python -m benchmarks.understanding collect lines.jsonl                              # write results/ and the sweep

A list names systems; `defaults` may say whatever a system may, and its overrides come first:

    [[systems]]
    name = "cnn-trec"                                  # and the recipe, unless `recipe` names another
    cost = 20                                          # about how many seconds a run takes; the longest come first
    settings = [[], ["model.dropout=0.3"]]             # the sweep: trained with the first seed, scored on dev alone
    seeds = [1, 2, 3]                                  # the final runs, with the setting that is best on dev
    start = "minilm"                                   # fine-tuning: the folder of an imported run, as in --from

Every job that ends adds one line of JSON to the output file at once. A line of a sweep has no score on test. After
`--seconds` no job is started, nor before that if its cost is more than the time left; `--done` names earlier output,
so that the same command resumes; what failed is tried again. `--work` keeps run folders: the final run with the first
seed then needs no training.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import report, understanding_results
from benchmarks.translation import check_keys, is_meant
from benchmarks.understanding_results import chief, read_lines
from benchmarks.understanding_runs import Job, Line, Place, Stage, alone, do
from mallang import recipe as recipes
from mallang.errors import UserError

STAGES: tuple[Stage, ...] = ("sweep", "final")
KEYS = ("name", "recipe", "overrides", "settings", "seeds", "cost", "start")


@dataclass(frozen=True, kw_only=True)
class System:
    """A model on a corpus, the settings to choose from, and the seeds of its final runs."""

    name: str
    recipe: str
    settings: tuple[tuple[str, ...], ...]
    """Overrides; the first is taken where there is nothing to choose, and where scores are equal."""
    seeds: tuple[int, ...]
    cost: float
    start: str | None = None
    """A run whose weights training starts from."""

    def jobs(self, stage: Stage, lines: Sequence[Line]) -> list[Job]:
        """The jobs of a stage; of the final one, none before the sweep is complete."""
        if stage == "sweep":
            chosen, seeds = (self.settings if len(self.settings) > 1 else ()), self.seeds[:1]
        else:
            setting = self.best(lines)
            chosen, seeds = (() if setting is None else (setting,)), self.seeds
        return [
            Job(
                stage=stage, system=self.name, recipe=self.recipe, overrides=overrides, seed=seed, cost=self.cost,
                start=self.start,
            )
            for overrides in chosen
            for seed in seeds
        ]  # fmt: skip

    def best(self, lines: Sequence[Line]) -> tuple[str, ...] | None:
        """The setting with the best score on dev; None while one is missing, or where all failed."""
        if len(self.settings) == 1:
            return self.settings[0]
        mine = [line for line in lines if line["stage"] == "sweep" and line["system"] == self.name]
        known = {tuple(line["overrides"]): line for line in mine}
        if not all(setting in known for setting in self.settings):
            return None
        good = [setting for setting in self.settings if "failed" not in known[setting]]
        return max(good, key=lambda setting: chief(known[setting])[1], default=None)


def read_systems(path: Path) -> list[System]:
    """All systems of a list."""
    try:
        whole = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    check_keys(whole, ("defaults", "systems"), str(path))
    defaults = {"overrides": [], "settings": [[]], "seeds": [1, 2, 3], "cost": 60.0, **whole.get("defaults", {})}
    found = [system_of(given, defaults, path) for given in whole.get("systems", [])]
    names = [each.name for each in found]
    if not names or len(set(names)) < len(names):
        raise UserError(f"{path} holds no systems, or two of one name", todo="[[systems]] with a name each")
    return found


def system_of(given: Mapping[str, Any], defaults: Mapping[str, Any], path: Path) -> System:
    """One entry of a list."""
    check_keys(given, KEYS, str(path))
    if "name" not in given:
        raise UserError("a system has no name", where=str(path))
    values = {**defaults, **given}
    common = (*defaults["overrides"], *given.get("overrides", ()))
    return System(
        name=values["name"],
        recipe=values.get("recipe", values["name"]),
        settings=tuple(dict.fromkeys((*common, *setting) for setting in values["settings"])),
        seeds=tuple(values["seeds"]),
        cost=float(values["cost"]),
        start=values.get("start"),
    )


def todo(
    systems: Iterable[System], lines: Sequence[Line], stages: Sequence[Stage], running: Iterable[Job] = ()
) -> list[Job]:
    """The jobs that can be started now: sweeps before final runs, the longest first."""
    known = {(line["stage"], line["system"], tuple(line["overrides"]), line["seed"]) for line in lines}
    known |= {job.key for job in running}
    jobs = [job for stage in stages for system in systems for job in system.jobs(stage, lines)]
    return sorted((job for job in jobs if job.key not in known), key=lambda job: (STAGES.index(job.stage), -job.cost))


def succeeded(lines: Iterable[Line]) -> list[Line]:
    """The lines of the jobs that did not fail."""
    return [line for line in lines if "failed" not in line]


def read_stages(text: str) -> list[Stage]:
    """The stages that are named in a list with commas, in their order."""
    named = [part.strip() for part in text.split(",")]
    unknown = [part for part in named if part not in STAGES]
    if unknown:
        raise UserError(
            f"--stages {text}: there is no stage {' or '.join(map(repr, unknown))}", todo="--stages sweep,final"
        )
    return [stage for stage in STAGES if stage in named]


def plan(arguments: argparse.Namespace) -> None:
    """Say which jobs there are and about how long they take; leave with 1 where one cannot be trained."""
    wrong = 0
    systems = chosen(arguments)
    for system in systems:
        for setting in system.settings:
            try:
                recipes.read(system.recipe, setting).build()
            except UserError as error:
                wrong += 1
                print(f"{system.name} {' '.join(setting)}: {error}")
        sweep = len(system.settings) if len(system.settings) > 1 else 0
        print(f"{system.name}: {sweep} settings, {len(system.seeds)} seeds, {system.cost:g} s each")
    for stage, jobs in (
        ("sweep", [job for system in systems for job in system.jobs("sweep", [])]),
        ("final", [(system, seed) for system in systems for seed in system.seeds]),
    ):
        seconds = sum(job.cost if isinstance(job, Job) else job[0].cost for job in jobs)
        print(f"{stage}: {len(jobs)} jobs, {seconds:,.0f} s")
    sys.exit(1 if wrong else 0)


def chosen(arguments: argparse.Namespace) -> list[System]:
    """The systems of the list that are wanted."""
    found = read_systems(arguments.list)
    if arguments.only is None:
        return found
    names = {each.name for each in found}
    wanted = [each for each in found if any(is_meant(part, each.name, names) for part in arguments.only)]
    if not wanted:
        raise UserError(f"no system of {arguments.list} has {' or '.join(arguments.only)} in its name")
    return wanted


def run(arguments: argparse.Namespace) -> None:
    """Do what is to be done, several jobs at once; every job that ends is written at once."""
    began = time.monotonic()
    systems, stages = chosen(arguments), read_stages(arguments.stages)
    earlier = [line for path in (*arguments.done, arguments.out) if path.exists() for line in read_lines(path)]
    lines = succeeded(earlier)  # what failed in an earlier command is tried again, once per command
    hardware = f"{report.hardware()}; {arguments.workers} runs at once"
    about = {"commit": arguments.commit or report.commit(), "hardware": hardware}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() if arguments.work is None else nullcontext(arguments.work) as folder:
        place = Place(folder=Path(folder).resolve(), device=arguments.device, about=about)
        workers = Workers(arguments.workers, place)
        while True:
            for job in todo(systems, lines, stages, workers.jobs()):
                if not workers.has_room:
                    break
                if time.monotonic() - began + job.cost <= arguments.seconds:
                    workers.start(job)
            if not workers.running:
                break
            for line in workers.wait():
                lines.append(line)
                with arguments.out.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps(line, ensure_ascii=False) + "\n")
                print(f"{time.monotonic() - began:6.0f} s  {understanding_results.summary(line)}", flush=True)
        workers.close()
    left = todo(systems, succeeded(lines), stages)
    failed = len(lines) - len(succeeded(lines))
    print(f"{len(left)} jobs are left, {failed} failed" + "".join(f"\n  {job.stage} {job.folder}" for job in left))


class Workers:
    """Processes that do one job after the other, each in a pool of its own: if one dies, the others go on."""

    def __init__(self, count: int, place: Place) -> None:
        self.place = place
        self.free = [self.pool() for _ in range(count)]
        self.running: dict[Future[Line], tuple[ProcessPoolExecutor, Job]] = {}

    def pool(self) -> ProcessPoolExecutor:
        """One process, which starts with its first job."""
        return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), initializer=alone)

    @property
    def has_room(self) -> bool:
        """Whether another job can be started."""
        return bool(self.free)

    def start(self, job: Job) -> None:
        """Start a job in a free process."""
        pool = self.free.pop()
        self.running[pool.submit(do, job, self.place)] = pool, job

    def jobs(self) -> list[Job]:
        """The jobs that are running."""
        return [job for _, job in self.running.values()]

    def wait(self) -> list[Line]:
        """The lines of the next jobs that end."""
        ended, _ = wait(self.running, return_when=FIRST_COMPLETED)
        lines = []
        for future in ended:
            pool, job = self.running.pop(future)
            try:
                lines.append(future.result())
            except BrokenProcessPool as error:
                pool.shutdown(wait=False)
                pool = self.pool()
                lines.append({**asdict(job), "failed": f"the process died: {error}", **self.place.about})
            self.free.append(pool)
        return lines

    def close(self) -> None:
        """End all processes."""
        for pool in self.free:
            pool.shutdown()


def parser() -> argparse.ArgumentParser:
    """What may be typed."""
    whole = argparse.ArgumentParser(
        prog="python -m benchmarks.understanding",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = whole.add_subparsers(required=True, metavar="VERB")
    for verb, do_verb in (("plan", plan), ("run", run)):
        one = verbs.add_parser(verb, help=do_verb.__doc__)
        one.set_defaults(do=do_verb)
        one.add_argument("list", type=Path, help="systems in TOML")
        one.add_argument("--only", nargs="+", metavar="NAME", help="the system of this name, or with this in its name")
    one.add_argument("--out", type=Path, required=True, help="a line of JSON for every job that ends is added here")
    one.add_argument("--done", type=Path, nargs="*", default=[], help="earlier output: its jobs are not repeated")
    one.add_argument("--work", type=Path, help="keep run folders here; else they are removed")
    one.add_argument("--stages", default="sweep,final", help="sweep,final if not given")
    one.add_argument("--workers", type=int, default=1, metavar="N", help="processes side by side; 1 if not given")
    one.add_argument("--seconds", type=float, default=float("inf"), help="start nothing that would end after this")
    one.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:1")
    one.add_argument("--commit", help="the commit of this code, where git cannot tell")
    for verb, do_files in (("show", understanding_results.show), ("collect", understanding_results.collect)):
        one = verbs.add_parser(verb, help=do_files.__doc__)
        one.set_defaults(do=lambda arguments, do_files=do_files: do_files(arguments.files))
        one.add_argument("files", type=Path, nargs="+", help="what `run` wrote")
    return whole


def main() -> None:
    """The command."""
    report.do_what_is_asked(parser())


if __name__ == "__main__":
    main()
