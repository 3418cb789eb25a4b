"""Train and test translation systems side by side on one device, then score what they wrote.

python -m benchmarks.translation plan LIST.toml                     # which runs these are, and what is wrong with them
python -m benchmarks.translation run LIST.toml --out FOLDER         # train, translate; all of it in FOLDER/runs.json
python -m benchmarks.translation sweep FOLDER/runs.json             # score by both protocols and print a table
python -m benchmarks.translation collect FOLDER/runs.json           # the same, and write results/
python -m benchmarks.translation check                              # score the hypotheses in results/ again

A list, in TOML or JSON; `defaults` may say whatever an experiment may, and its overrides come first:

    [defaults]
    recipe = "transformer-multi30k"
    splits = ["valid", "test2016"]
    [[experiments]]
    name = "dropout-0.4"
    overrides = ["model.dropout=0.4"]
    seeds = [1, 2, 3]
    searches.beam-10 = ["beam=10"]            # one more search beside the recipe's own
    both_ways = true                          # a run of two directions: score both

Where a run has several corpora, a split is written as "korean-english/bible:test".
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from benchmarks import report, translation_results, translation_runs
from mallang import recipe as recipes
from mallang.errors import UserError, nearest


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One training with one seed, and what is translated with it."""

    name: str
    recipe: str
    overrides: tuple[str, ...]
    seed: int
    splits: tuple[str, ...]
    searches: Mapping[str, tuple[str, ...]]
    """Options of `--search` by a name of one's own; the recipe's own search has the name ""."""
    both_ways: bool = False
    """Whether the run translates from the target into the source too, and is scored in both directions."""

    @property
    def run(self) -> str:
        """What its run folder is called."""
        return f"{self.name}-seed{self.seed}"

    def words(self, options: Sequence[str]) -> list[str]:
        """The options of a search as arguments of `mallang evaluate`."""
        return [word for option in options for word in ("--search", option)]

    def about(self) -> dict[str, Any]:
        """What it is, and what follows from its recipe."""
        resolved = recipes.read(self.recipe, [*self.overrides, f"seed={self.seed}"])
        resolved.build()  # a wrong value raises before anything is trained
        whole = resolved.resolved()
        data = whole["data"]
        if data["corpus"] is None or data["train"] is not None or data["test"] is not None:
            raise UserError(f"{self.name} uses files", todo="give the name of a corpus: its splits are scored")
        for split in self.splits:
            if (":" in split) != (data["corpora"] is not None):
                raise UserError(f"the split {split!r} does not fit the data", todo="CORPUS:SPLIT of several corpora")
        return {
            **{field.name: getattr(self, field.name) for field in fields(self)},
            "system": whole["model"]["name"].replace("_", "-"),
            "corpus": data["corpus"],
            "source": data["source"],
            "target": data["target"],
            "decoding": whole["decoding"],
        }


Kind = TypeVar("Kind", bound=Experiment)


def read_experiments(path: Path, kind: type[Kind] = Experiment) -> list[Kind]:  # type: ignore[assignment]
    """All runs of a list, a seed each."""
    try:
        text = path.read_text("utf-8")
        whole = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    check_keys(whole, ("defaults", "experiments"), str(path))
    defaults = {"seeds": [1], "overrides": [], "searches": {}, **whole.get("defaults", {})}
    found = [each for given in whole.get("experiments", []) for each in experiments_of(given, defaults, path, kind)]
    names = [each.run for each in found]
    if not names or len(set(names)) < len(names):
        raise UserError(f"{path} holds no experiments, or two of one name", todo="[[experiments]] with a name each")
    return found


def experiments_of(given: Mapping[str, Any], defaults: Mapping[str, Any], path: Path, kind: type[Kind]) -> list[Kind]:
    """One entry of a list, once for each of its seeds."""
    check_keys(given, ("name", "recipe", "overrides", "seeds", "splits", "searches", "both_ways"), str(path))
    values = {**defaults, **given}
    for key in ("name", "recipe", "splits"):
        if key not in values:
            raise UserError(f"an experiment has no {key}", where=str(path))
    searches = {"": [], **defaults["searches"], **values["searches"]}
    return [
        kind(
            name=values["name"],
            recipe=values["recipe"],
            overrides=(*defaults["overrides"], *given.get("overrides", ())),
            seed=seed,
            splits=tuple(values["splits"]),
            searches={name: tuple(options) for name, options in searches.items()},
            both_ways=values.get("both_ways", False),
        )
        for seed in values["seeds"]
    ]


def check_keys(given: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    """Refuse a key that means nothing."""
    for key in given:
        if key not in known:
            raise UserError(f"{key!r} means nothing here", where=where, todo=nearest(key, known))


def plan(arguments: argparse.Namespace) -> None:
    """Say which runs there are; leave with 1 where one of them cannot be trained."""
    wrong = 0
    for experiment in chosen(arguments):
        try:
            experiment.about()
            print(experiment.run)
        except UserError as error:
            wrong += 1
            print(f"{experiment.run}: {error}")
    sys.exit(1 if wrong else 0)


def chosen(arguments: argparse.Namespace) -> list[Experiment]:
    """The experiments of the list that are wanted, with the seeds that are wanted."""
    found: list[Experiment] = read_experiments(arguments.list, arguments.kind)
    if arguments.seeds is not None:
        by_name = {each.name: each for each in found}
        found = [replace(each, seed=seed) for each in by_name.values() for seed in arguments.seeds]
    if arguments.only is None:
        return found
    names = {each.name for each in found}
    wanted = [each for each in found if any(is_meant(part, each.name, names) for part in arguments.only)]
    if not wanted:
        raise UserError(f"no experiment of {arguments.list} has {' or '.join(arguments.only)} in its name")
    return wanted


def is_meant(part: str, name: str, names: Collection[str]) -> bool:
    """Whether an experiment is meant: by its whole name, or by a part of it that is no name."""
    return part == name if part in names else part in name


def seed_numbers(text: str) -> list[int]:
    """Such as 2,3."""
    return [int(each) for each in text.split(",")]


def run(arguments: argparse.Namespace) -> None:
    """Train and evaluate."""
    translation_runs.run_all(
        chosen(arguments),
        translation_runs.Options(
            out=arguments.out,
            work=arguments.work,
            device=arguments.device,
            at_once=arguments.at_once,
            seconds=arguments.seconds,
            commit=arguments.commit,
        ),
    )


def parser() -> argparse.ArgumentParser:
    """What may be typed."""
    whole = argparse.ArgumentParser(
        prog="python -m benchmarks.translation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = whole.add_subparsers(required=True, metavar="VERB")
    add_runs(verbs, Experiment)
    for verb, score in (("sweep", translation_results.sweep), ("collect", translation_results.collect)):
        one = verbs.add_parser(verb, help=score.__doc__)
        one.set_defaults(do=lambda arguments, score=score: score(arguments.files))
        one.add_argument("files", type=Path, nargs="+", help="what `run` wrote")
    one = verbs.add_parser("check", help=translation_results.check.__doc__)
    one.set_defaults(do=lambda arguments: translation_results.check())
    return whole


def add_runs(verbs: Any, kind: type[Experiment]) -> None:
    """The verbs that are the same for experiments of any kind."""
    for verb, do in (("plan", plan), ("run", run)):
        one = verbs.add_parser(verb, help=do.__doc__)
        one.set_defaults(do=do, kind=kind)
        one.add_argument("list", type=Path, help="experiments in TOML or JSON")
        one.add_argument(
            "--only",
            nargs="+",
            metavar="NAME",
            help="only the experiment of this name, or those with this in their name",
        )
        one.add_argument("--seeds", type=seed_numbers, metavar="2,3", help="these seeds in place of those of the list")
    one.add_argument("--out", type=Path, required=True, help="where runs.json goes")
    one.add_argument("--work", type=Path, help="keep run folders here and resume them; else they are removed")
    one.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:1")
    one.add_argument("--at-once", type=int, default=1, metavar="N", help="processes side by side; 1 if not given")
    one.add_argument("--seconds", type=float, default=float("inf"), help="stop then: what is trained by then counts")
    one.add_argument("--commit", help="the commit of this code, where git cannot tell")


def main() -> None:
    """The command."""
    report.do_what_is_asked(parser())


if __name__ == "__main__":
    main()
