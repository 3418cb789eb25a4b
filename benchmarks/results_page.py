"""RESULTS.md: one page of headlines by question, from headlines.toml and results/*.json."""

from __future__ import annotations

import re
import statistics
import textwrap
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.ages import oldest
from benchmarks.kinds import command_of, kind_of
from benchmarks.translation_results import ENDED
from mallang import recipe as recipes
from mallang.errors import UserError

Value = Mapping[str, Any]
SEEDS = 3
"""How many seeds a headline of a trained system should have."""
NOTHING_CHOSEN = "nothing chosen"
EARLY = "Runs that ended before the last update of their recipe (results of older runs do not say):"
FEW_SEEDS = f"### Measured with fewer than {SEEDS} seeds: not headlines"
HEAD = """# Results

One row per headline; every value comes from files in `results/`, and all values are listed in
[results/tables](results/tables). `python -m benchmarks.report` writes this page. *Ours* is the mean ± standard
deviation over training seeds. *Against* is the published value, a target, or a peer measured in the same run (its best
form, over its own seeds); then the difference, or ours divided by the peer. A headline of a trained system has three
seeds (AWD-LSTM may have one); what was trained less often is in a table of its own at the end of its section.
*Measured* is the commit and its date; +N counts the later commits to the code that it depends on. A speed is
**stale** where that code has changed in more than comments; for quality +N is information.
`python -m benchmarks.report --stale` lists what to measure again, `--seeds` which systems have fewer than three seeds,
each with its command.
"""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A headline, as headlines.toml has it."""

    label: str
    ours: str
    peer: str = ""
    """A pattern of peer results, of which the best form counts: the highest mean over its seeds."""
    target: float | None = None
    """What was to be reached, where nobody has published a value on this split."""
    sweep: str = ""
    deterministic: bool = False
    """Whether another seed gives the same value."""
    one_seed: bool = False
    """Whether one seed is enough, for training takes long."""
    optional: bool = False
    """Whether the row appears only once it was measured, and its peer too."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """A table of the page."""

    title: str
    about: str
    tables: Sequence[str]
    rows: Sequence[Row]
    tuned: bool = False


@dataclass(frozen=True)
class Spread:
    """A value over seeds."""

    mean: float
    deviation: float | None
    seeds: int | None
    """None where the measurement has no seed of training."""


@cache
def questions() -> tuple[Question, ...]:
    """All tables of the page."""
    whole = tomllib.loads(Path(__file__).with_name("headlines.toml").read_text("utf-8"))
    return tuple(Question(**each | {"rows": tuple(Row(**row) for row in each["rows"])}) for each in whole["questions"])


def page(values: Sequence[Value]) -> str:
    """The whole page."""
    asked = [question for question in questions() if any(is_there(row, values) for row in question.rows)]
    parts = [HEAD, *(section(question, values) for question in asked), choices(values)]
    return "\n".join(parts)


def section(question: Question, values: Sequence[Value]) -> str:
    """One question: what is measured, and a row for each headline."""
    links = ", ".join(f"[{name}](results/tables/{name}.md)" for name in question.tables)
    about = filled(f"{question.about} All values: {links}.")
    shown = [row for row in question.rows if is_there(row, values)]
    headlines = [row for row in shown if is_headline(row, values)]
    parts = [f"## {question.title}", "", about, "", *table(headlines, question, values)]
    if others := [row for row in shown if row not in headlines]:
        parts += ["", FEW_SEEDS, "", *table(others, question, values)]
    return "\n".join([*parts, *notes(shown, values)]) + "\n"


def filled(text: str, indent: str = "") -> str:
    """Prose in lines of the page's width, all but the first indented."""
    return textwrap.fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def table(rows: Sequence[Row], question: Question, values: Sequence[Value]) -> list[str]:
    """Rows under their head."""
    lines = [f"| {' | '.join(cells(row, question, values))} |" for row in rows]
    return ["|  | ours | against |  | on | measured | command |", "|---|---|---|---|---|---|---|", *lines]


def is_headline(row: Row, values: Sequence[Value]) -> bool:
    """Whether a row has all the seeds it needs: a value without training has none."""
    mine = found(row.ours, values)
    return row.deterministic or row.one_seed or not is_trained(mine[0]) or (spread_of(mine).seeds or SEEDS) >= SEEDS


def notes(rows: Sequence[Row], values: Sequence[Value]) -> list[str]:
    """Which training runs behind the rows have fewer updates than their recipe asks for, and why."""
    ends: dict[str, list[str]] = {}
    for row in rows:
        for value in found(row.ours, values):
            _, _, cause = str(value["protocol"]).partition(ENDED)
            if cause:
                ends.setdefault(row.label, []).append(f"seed {value['seed']} by{cause}")
    listed = [filled(f"- {label}: {'; '.join(causes)}", indent="  ") for label, causes in ends.items()]
    return ["", EARLY, "", *listed] if listed else []


def cells(row: Row, question: Question, values: Sequence[Value]) -> list[str]:
    """One headline as the cells of its row."""
    mine = found(row.ours, values)
    spread, one = spread_of(mine), mine[0]
    is_recipe = question.tuned and one["recipe"] in recipes.names()
    command = train_command(one) if is_recipe else command_of(one)
    return [
        row.label, f"{in_words(spread, one, row)} {unit_of(one)}", *against(row, one, spread, values),
        machine(one), str(oldest(mine)), f"`{command}`",
    ]  # fmt: skip


def against(row: Row, one: Value, spread: Spread, values: Sequence[Value]) -> tuple[str, str]:
    """The value that ours is compared with, and the difference or ratio."""
    if row.peer:
        peers = best_peer(found(row.peer, values))
        theirs = spread_of(peers)
        seeds = f" ({len(peers)} seeds)" if len(peers) > 1 else ""
        told = f"{peers[0]['system']} {in_words(theirs, peers[0], row)}{seeds}"
        return told, f"{spread.mean / theirs.mean:.2f}×"
    for kind, value in (("published", one["published"]), ("target", row.target)):
        if value is not None:
            difference = figure(spread.mean - value, one)
            return f"{kind} {figure(value, one)}", difference if difference[0] == "-" else f"+{difference}"
    return "", ""


def best_peer(peers: Sequence[Value]) -> list[Value]:
    """The results of the best form of a peer, by the mean over its seeds: its best settings, not its best seed."""
    forms = {peer["system"]: [each for each in peers if each["system"] == peer["system"]] for peer in peers}
    return max(forms.values(), key=lambda form: spread_of(form).mean)


def is_there(row: Row, values: Sequence[Value]) -> bool:
    """Whether a row is to be shown: only an optional one may lack its results."""
    wanted = [row.ours, *([row.peer] if row.peer else [])]
    return not row.optional or all(any(fnmatchcase(value["file"], each) for value in values) for each in wanted)


def found(pattern: str, values: Sequence[Value]) -> list[Value]:
    """The results that a headline names, one per seed."""
    mine = [value for value in values if fnmatchcase(value["file"], pattern)]
    if not mine:
        raise UserError(f"no file in results/ is called {pattern}.json", where="benchmarks/headlines.toml")
    return mine


def spread_of(mine: Sequence[Value]) -> Spread:
    """Mean and standard deviation over seeds; the protocol of a value that is already such a mean has them."""
    stated = re.search(r"mean over (\d+) training seeds.*± ([\d.]+)", mine[0]["protocol"] or "")
    if stated and len(mine) == 1:
        return Spread(mine[0]["value"], float(stated[2]), int(stated[1]))
    numbers = [value["value"] for value in mine]
    deviation = statistics.stdev(numbers) if len(numbers) > 1 else None
    return Spread(statistics.mean(numbers), deviation, None if mine[0]["recipe"] is None else len(numbers))


def in_words(spread: Spread, one: Value, row: Row) -> str:
    """A value with its deviation and number of seeds."""
    deviation = "" if spread.deviation is None else f" ± {figure(spread.deviation, one)}"
    seeds = "" if spread.seeds is None or row.deterministic else f" ({spread.seeds} seed{'s' * (spread.seeds > 1)})"
    return f"{figure(spread.mean, one)}{deviation}{seeds if is_trained(one) else ''}"


def is_trained(one: Value) -> bool:
    """Whether a value depends on the seed of a training run."""
    return one["recipe"] is not None and not kind_of(one["file"]).speed


def figure(value: float, one: Value) -> str:
    """A number with as many digits as its metric has."""
    if "nats" in one["metric"] or "bits" in one["metric"]:
        return f"{value:.4f}"
    if kind_of(one["file"]).speed or abs(value) >= 1000:
        return report.number(value)
    return f"{value:.2f}"


UNITS = {
    "BLEU, moses-lc-tok": "BLEU (moses-lc-tok)",
    "BLEU, sacrebleu": "sacreBLEU",
    "perplexity per word": "perplexity",
    "training GPT on cuda: loss after 500 updates, nats a token":  # words: ok, a key of stored results
        "nats per token after 500 updates",
    "operations a token when the text is twice as long, ratio": "× operations per token at twice the length",
    "search error, % of sentences whose best output is known": "% search errors",
    "best output known, % of sentences": "% proven best",
    "accuracy by examples in the prompt, %": "% accuracy",
    "regret of compare, points": "points of accuracy lost",
    "small data, test2016 BLEU, 500 pairs": "sacreBLEU",
    "small data, test2016 BLEU, 5,000 pairs": "sacreBLEU",
}  # fmt: skip
"""Short names of metrics; other metrics are named by the part after the last comma, or in full."""


def unit_of(one: Value) -> str:
    """The metric of a value in a word or two."""
    metric = str(one["metric"])
    if metric in UNITS:
        return UNITS[metric]
    name, _, unit = metric.rpartition(", ")
    if unit in ("s", "%", "MiB") and name:
        return f"{unit} {name}"
    return unit if kind_of(one["file"]).speed else metric


def machine(one: Value) -> str:
    """The hardware in a few characters, and how loaded it was where that matters."""
    hardware = str(one["hardware"])
    if hardware.startswith("NVIDIA"):
        return hardware.split(",")[0].removeprefix("NVIDIA ")
    cores = re.sub(r"\(R\)| Processor.*| CPU.*", "", hardware.split(",")[0]).replace("Intel ", "").replace("AMD ", "")
    load = re.search(r"load ([\d.]+)", hardware)
    return f"{cores}, load {load[1]}" if load and kind_of(one["file"]).speed else cores


def train_command(one: Value) -> str:
    """The command that trains the system of a result with the recipe of today."""
    return " ".join(["mallang train", str(one["recipe"]), *trained_with(one)])


def trained_with(one: Value) -> list[str]:
    """The overrides a result was trained with that the recipe does not have by now."""
    given = [each for each in one["overrides"] or [] if not each.startswith("decoding.")]
    return [each for each in given if differs(str(one["recipe"]), each)]


@cache
def differs(recipe: str, override: str) -> bool:
    """Whether an override changes anything of a recipe."""
    return recipes.read(recipe, [override]).resolved() != recipes.read(recipe).resolved()


def choices(values: Sequence[Value]) -> str:
    """Which headlines have no sweep that shows how their settings were chosen."""
    rows = [row for question in questions() if question.tuned for row in question.rows if is_there(row, values)]
    kept = dict.fromkeys(row.sweep for row in rows if row.sweep and row.sweep != NOTHING_CHOSEN)
    lost: dict[str, list[str]] = {}
    for row in (row for row in rows if not row.sweep):
        one = found(row.ours, values)[0]
        same = lost.setdefault(one["corpus"], [])
        same += [] if one["recipe"] in same else [one["recipe"]]
    kept_at = ", ".join(f"[{path}]({path})" for path in kept)
    lines = [
        "## How settings were chosen", "",
        f"The rule is: on dev. Sweeps with their dev scores are kept in {kept_at}.",
        "For these recipes no sweep was kept, so nobody can check the choice:", "",
        *(f"- {corpus}, no sweep kept: {', '.join(f'`{recipe}`' for recipe in same)}" for corpus, same in lost.items()),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


AGE = re.compile(r"`[0-9a-f]{7}` [^|`]*\|")


def without_ages(text: str) -> str:
    """A page as it is whatever has changed since: for the test that it is up to date."""
    return AGE.sub("|", text)
