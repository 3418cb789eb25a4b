"""Quality by source length of every system in results/: a figure and a table, from the hypotheses there.

python -m benchmarks.ladder                                         # Multi30k test2016, every direction there is
python -m benchmarks.ladder --direction de-en --only sutskever,cho,bahdanau,transformer
python -m benchmarks.ladder --split test2017 --protocol moses-lc-tok --lengths 10,15,20

Writes docs/ladder/CORPUS-DIRECTION-SPLIT.md and .svg, the figure drawn from the table. A row is the mean over the seeds
of one system, with their standard deviation. `python -m benchmarks.translation collect` stores hypotheses; needs the
corpus itself for sources and references.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import page_figures, report
from benchmarks.protocols import Reference, moses_tokens, read_reference
from benchmarks.translation_results import HYPOTHESES, LABELS
from mallang.data.readers import lines
from mallang.errors import UserError
from mallang.evaluation.lengths import Bucket, buckets_of
from mallang.evaluation.translation import bleu_statistics, tokenization
from mallang.inspection.systems import Value

FOLDER = report.ROOT / "docs" / "ladder"
PROTOCOLS = ("sacrebleu", "moses-lc-tok")


@dataclass(frozen=True)
class Stored:
    """The hypotheses of one seed, and the fields of its result files."""

    name: str
    """The system, with its search where that is another one than the recipe's."""
    about: dict[str, Any]
    path: Path


@dataclass(frozen=True)
class Rung:
    """One system: its score on all rows and on those of each length."""

    name: str
    seeds: int
    whole: Value
    by_length: Sequence[Value]


def read_stored(folder: Path, corpus: str, split: str) -> list[Stored]:
    """All stored hypotheses of a split."""
    found = []
    for path in sorted((folder / HYPOTHESES.name).glob("*.txt.xz")):
        base, _, seed = path.name.removesuffix(".txt.xz").rpartition("-seed")
        beside = [folder / f"{base}-{label}-seed{seed}.json" for label in LABELS.values()]
        results = [json.loads(file.read_text("utf-8")) for file in beside if file.exists()]
        if results and (results[0]["corpus"], results[0]["split"]) == (corpus, split):
            found.append(Stored(base.replace(f"-{split}", "", 1), results[0], path))
    return found


def climb(stored: Sequence[Stored], buckets: Sequence[Bucket], reference: Reference, protocol: str) -> list[Rung]:
    """The rungs of the ladder, lowest first."""
    rungs = []
    cut = moses_tokens(reference.texts, reference.language) if protocol == "moses-lc-tok" else reference.texts
    tokenize = "none" if protocol == "moses-lc-tok" else tokenization(reference.language)
    everything = Bucket(0, None, tuple(range(len(cut))))
    for name in dict.fromkeys(each.name for each in stored):
        seeds = []
        for each in (each for each in stored if each.name == name):
            hypotheses = list(lines(each.path))
            if len(hypotheses) != len(cut):
                raise UserError(f"{each.path} has {len(hypotheses)} lines, but the split has {len(cut)}")
            if protocol == "moses-lc-tok":
                hypotheses = moses_tokens(hypotheses, reference.language)
            seeds.append(
                [
                    bleu_statistics(bucket.take(hypotheses), bucket.take(cut), tokenize)
                    for bucket in (everything, *buckets)
                ]
            )
        whole, *by_length = [Value.of(list(same)) for same in zip(*seeds, strict=True)]
        rungs.append(Rung(name, len(seeds), whole, by_length))
    return sorted(rungs, key=lambda rung: (rung.whole.mean, rung.name))


def page(rungs: Sequence[Rung], buckets: Sequence[Bucket], title: str, figure: str) -> str:
    """The table in Markdown, with the figure above it."""

    def cell(value: Value) -> str:
        return f"{value.mean:.1f}" if value.deviation is None else f"{value.mean:.1f} ± {value.deviation:.1f}"

    head = ["system", "seeds", "all", *(f"{bucket.name} ({len(bucket)})" for bucket in buckets)]
    body = [
        [rung.name, str(rung.seeds), cell(rung.whole), *(cell(value) for value in rung.by_length)] for rung in rungs
    ]
    written = [f"| {' | '.join(line)} |" for line in (head, *body)]
    written.insert(1, "|---" + "|---:" * (len(head) - 1) + "|")
    about = f"Columns are {buckets[0].unit} of the source, with the number of rows. Written by benchmarks/ladder.py."
    return "\n".join([f"# {title}", "", about, "", f"![{title}]({figure})", "", *written]) + "\n"


def make(arguments: argparse.Namespace, folder: Path = report.RESULTS) -> list[Path]:
    """Write a figure and a table for every direction."""
    stored = read_stored(folder, arguments.corpus, arguments.split)
    if arguments.without:
        stored = [each for each in stored if not each.name.endswith(f"-{arguments.without}")]
    if arguments.only:
        wanted = arguments.only.split(",")
        stored = [each for each in stored if any(each.name.startswith(name) for name in wanted)]
    directions = [arguments.direction] if arguments.direction else [each.about["direction"] for each in stored]
    if not stored:
        raise UserError(
            f"no hypotheses of {arguments.corpus} {arguments.split} in {folder / HYPOTHESES.name}",
            todo="python -m benchmarks.translation run …, then collect",
        )
    ends = [int(end) for end in arguments.lengths.split(",")] if arguments.lengths else None
    written = []
    for direction in dict.fromkeys(directions):
        mine = [each for each in stored if each.about["direction"] == direction]
        if not mine:
            raise UserError(f"no hypotheses of the direction {direction}")
        source, _, target = direction.partition("-")
        sources = read_reference(arguments.corpus, arguments.split, source).texts
        buckets = buckets_of(sources, ends)
        rungs = climb(mine, buckets, read_reference(arguments.corpus, arguments.split, target), arguments.protocol)
        title = f"BLEU ({arguments.protocol}) by source length, {arguments.corpus} {arguments.split} {direction}"
        base = f"{arguments.corpus.replace('/', '-')}-{direction}-{arguments.split}"
        arguments.out.mkdir(parents=True, exist_ok=True)
        figure, table = (arguments.out / f"{base}.{ending}" for ending in ("svg", "md"))
        table.write_text(page(rungs, buckets, title, figure.name), "utf-8")
        figure.write_text(page_figures.ladder_by_length(table), "utf-8")
        report.show(title, [("system", "all", *(bucket.name for bucket in buckets)), *(shown(rung) for rung in rungs)])
        written += [figure, table]
    return written


def shown(rung: Rung) -> tuple[str, ...]:
    """A line of the table on the screen."""
    return (rung.name, *(f"{value.mean:.1f}" for value in (rung.whole, *rung.by_length)))


def parser() -> argparse.ArgumentParser:
    """What may be typed."""
    whole = argparse.ArgumentParser(
        prog="python -m benchmarks.ladder", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    whole.add_argument("--corpus", default="multi30k")
    whole.add_argument("--split", default="test2016")
    whole.add_argument("--direction", help="such as en-de; all that there are if not given")
    whole.add_argument("--without", metavar="SEARCH", help="leave out what was found by this search, such as greedy")
    whole.add_argument("--only", help="names that systems must begin with, joined by commas")
    whole.add_argument("--protocol", choices=PROTOCOLS, default=PROTOCOLS[0])
    whole.add_argument("--lengths", help="ends of the ranges, such as 10,15,20")
    whole.add_argument("--out", type=Path, default=FOLDER)
    return whole


def main() -> None:
    """The command."""
    try:
        for path in make(parser().parse_args()):
            print(path)
    except UserError as error:
        sys.exit(f"benchmarks.ladder: {error}")


if __name__ == "__main__":
    main()
