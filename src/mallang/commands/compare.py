"""`mallang compare`: several runs in one table and one figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeGuard

import typer

from mallang.commands.inputs import choose_split
from mallang.commands.options import (
    Columns,
    Device,
    Json,
    Plugin,
    Quiet,
    Search,
    add_plugins,
    complete_run,
    print_json,
    read_search,
)
from mallang.commands.outputs import show_tables
from mallang.errors import UserError

if TYPE_CHECKING:
    from mallang.inspection.comparison import Comparison
    from mallang.inspection.label_comparison import LabelComparison
    from mallang.inspection.language_comparison import LanguageComparison

EXAMPLES = (
    "mallang compare runs/transformer-miniworld runs/deeper",
    "mallang compare runs/* --split valid --search method=greedy --figure comparison.png",
    "mallang compare runs/* --baseline runs/lexicon-miniworld --metric exact --markdown",
    "mallang compare runs/* --data mine.tsv --lengths 10,20,30 --speed 0 --csv",
    "mallang compare runs/nplm-miniworld runs/gpt-miniworld --prompt 나는 --samples 3 --figure models.png",
    "mallang compare --data reviews.tsv --seconds 30 --figure models.svg",
    "mallang compare --objectives plan.toml --out objectives",
)
Runs = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="RUN RUN …", help="Folders of finished runs.", autocompletion=complete_run, show_default=False
    ),
]
Split = Annotated[
    str | None, typer.Option("--split", help="The split of the runs' corpus; otherwise test.", show_default=False)
]
Data = Annotated[
    str | None,
    typer.Option("--data", metavar="PATH", help="Your own pairs, or text, instead of a split.", show_default=False),
]
Baseline = Annotated[
    Path | None,
    typer.Option(
        "--baseline", metavar="RUN", help="Compare the others with this one; otherwise the worst.",
        autocompletion=complete_run, show_default=False,
    ),
]  # fmt: skip
Metric = Annotated[
    str | None,
    typer.Option(
        "--metric", metavar="NAME", show_default=False,
        help="The main metric: bleu, chrf, words, exact or brackets; otherwise bleu, for parse trees brackets. "
        "Language models: word, token or byte; otherwise word. Others: any score of evaluate, such as 'macro F1'.",
    ),
]  # fmt: skip
Lengths = Annotated[
    str | None,
    typer.Option(
        "--lengths", metavar="10,20,30", show_default=False,
        help="Ends of the ranges of source length, in words; language models: of the words before a word.",
    ),
]  # fmt: skip
Speed = Annotated[
    int, typer.Option("--speed", metavar="N", help="Sentences, or rows, to measure speed on; 0: do not measure.")
]
Samples = Annotated[int, typer.Option("--samples", metavar="N", help="Language models: samples of each; 0: none.")]
Prompt = Annotated[
    list[str] | None,
    typer.Option(
        "--prompt", metavar="TEXT", help="Language models: a prompt for the samples. Repeatable.", show_default=False
    ),
]
Context = Annotated[
    int, typer.Option("--context", metavar="N", help="Language models: words of a window for the loss by position.")
]
Figure = Annotated[
    Path | None,
    typer.Option("--figure", metavar="FILE", help="Draw a figure too: .png or .svg.", show_default=False),
]
Seconds = Annotated[
    float, typer.Option("--seconds", metavar="S", help="Without runs: how long each model may train on --data.")
]
Test = Annotated[
    str | None,
    typer.Option(
        "--test", metavar="PATH", show_default=False,
        help="Without runs: labeled texts on which every model is scored too; the choice does not depend on them.",
    ),
]  # fmt: skip
Objectives = Annotated[
    Path | None,
    typer.Option(
        "--objectives", metavar="PLAN", show_default=False,
        help="Pre-training objectives: train and fine-tune what this plan says, with equal tokens and equal FLOPs.",
    ),
]  # fmt: skip
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="FOLDER", help="Objectives: where runs and report lie.", show_default=False),
]
Shard = Annotated[
    str, typer.Option("--shard", metavar="I/N", help="Objectives: do the I-th of N parts, beside other processes.")
]
Csv = Annotated[bool, typer.Option("--csv", help="Print CSV, one line per system.", show_default=False)]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print tables in Markdown.", show_default=False)]


def command(
    runs: Runs = None,
    split: Split = None,
    data: Data = None,
    baseline: Baseline = None,
    metric: Metric = None,
    search: Search = None,
    lengths: Lengths = None,
    speed: Speed = 100,
    samples: Samples = 2,
    prompt: Prompt = None,
    context: Context = 128,
    figure: Figure = None,
    json: Json = False,
    csv: Csv = False,
    markdown: Markdown = False,
    plugin: Plugin = None,
    seconds: Seconds = 60.0,
    columns: Columns = None,
    test: Test = None,
    objectives: Objectives = None,
    out: Out = None,
    shard: Shard = "1/1",
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Compare runs: quality with intervals, cost, speed, and quality by source length.

    All are scored on the same rows. Runs that differ only in the seed become one line, mean ± standard deviation. p is
    that of a paired bootstrap against the baseline; error reduction is the decrease of its distance from 100. Outputs
    in RUN/outputs are reused where the run would generate them again. Training FLOPs are counted on some batches,
    without the optimizer; speed is measured now, on the same sentences for all, after a warm-up.

    Language models are compared by perplexity per word, token and byte, by cost, by loss by position (the surprisal of
    a word by the number of words before it), and by samples; runs of other tasks by their main score (accuracy, F1 …).

    Without runs, --data FILE of labeled texts trains every kind of classifier on it, each for --seconds, and says which
    one to use. --objectives PLAN pre-trains and fine-tunes what a plan says, and reports to --out.
    """
    if json + csv + markdown > 1:
        raise UserError("--json, --csv and --markdown exclude each other", todo="give one of them")
    add_plugins(plugin)
    wanted = choose_split(split, data, usual="test")
    if figure is not None:
        check_figure(figure)
    say = (lambda text: None) if quiet else (lambda text: typer.echo(text, err=True))
    if is_of_objectives(objectives, out, shard, has_others=bool(runs or data)):
        print_objectives(objectives, out, read_shard(shard), device, say, json=json, markdown=markdown)
        return
    if not runs:
        found = compare_models(data, test, seconds, columns, device, say)
        present(found, figure, json=json, csv=csv, markdown=markdown, quiet=quiet)
        return
    if test is not None:
        raise UserError("--test is for labeled texts without runs", todo="score runs on it with --data")
    options = {"speed": speed, "samples": samples, "prompts": tuple(prompt or ()), "context": context, "device": device}
    compared = compare_runs(
        runs, wanted, data, metric, baseline, read_search(search), read_lengths(lengths), say, options
    )
    present(compared, figure, json=json, csv=csv, markdown=markdown, quiet=quiet)


def compare_models(
    data: str | None, test: str | None, seconds: float, columns: str | None, device: str, say: Callable[[str], None]
) -> LabelComparison:
    """Every kind of classifier on one file of labeled texts."""
    from mallang.inspection.label_comparison import compare_on

    if data is None:
        raise UserError("there are no runs to compare", todo="give run folders, or --data FILE of labeled texts")
    if seconds <= 0:
        raise UserError(f"--seconds {seconds:g} is no time to train in", todo="--seconds 60")
    named = columns.split(",") if columns else None
    return compare_on(data, test=test, seconds=seconds, columns=named, device=device, say=say)


def is_of_objectives(path: Path | None, out: Path | None, shard: str, *, has_others: bool) -> TypeGuard[Path]:
    """Whether the comparison is one of objectives; options of the other kinds are refused."""
    if path is None and (out is not None or shard != "1/1"):
        raise UserError("--out and --shard are for --objectives", todo="leave them out")
    if path is not None and has_others:
        raise UserError("--objectives trains its own runs", todo="leave out runs and --data")
    return path is not None


def print_objectives(
    path: Path,
    out: Path | None,
    shard: tuple[int, int],
    device: str,
    say: Callable[[str], None],
    *,
    json: bool,
    markdown: bool,
) -> None:
    """Do what a plan of objectives says, and write the report."""
    from mallang.errors import require
    from mallang.inspection.objective_plan import read_plan
    from mallang.inspection.objective_report import Report, write
    from mallang.inspection.objective_runs import Place, begin, count_all, do_all, read_lines

    require("matplotlib.figure", "plots")
    read_plan(path)
    if out is None:
        raise UserError("there is no folder for the runs and the report", todo=f"--out {path.stem}")
    place = Place(out, device, shard, say)
    plan = begin(path, path.read_text("utf-8"), place)
    do_all(plan, place)
    report = Report(plan, count_all(plan, place), read_lines(out))
    files = write(report, out)
    if json:
        print_json(report.to_json())
    else:
        print(report.to_markdown("curves.svg") if markdown else report)
    say(f"the report is in {files[0]}")


def read_shard(text: str) -> tuple[int, int]:
    """The parts of `2/4`."""
    number, _, count = text.partition("/")
    if not (number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
        raise UserError(f"--shard {text!r} is no part", todo="--shard 1/4 is the first of four")
    return int(number), int(count)


def compare_runs(
    runs: list[Path],
    split: str,
    data: str | None,
    metric: str | None,
    baseline: Path | None,
    search: dict[str, Any],
    lengths: list[int] | None,
    say: Callable[[str], None],
    others: Mapping[str, Any],
) -> Comparison | LanguageComparison:
    """Finished runs side by side."""
    from mallang.inspection.comparison import Options, compare

    options = Options(
        split=split, data=data, metric=metric, baseline=baseline, search=search, lengths=lengths, say=say, **others
    )
    return compare(runs, options)


def present(
    found: Comparison | LanguageComparison | LabelComparison,
    figure: Path | None,
    *,
    json: bool,
    csv: bool,
    markdown: bool,
    quiet: bool,
) -> None:
    """Draw and print a comparison."""
    if figure is not None:
        found.draw(figure)
    if json:
        print_json(found.to_json())
    elif csv:
        print(found.to_csv(), end="")
    elif markdown:
        print(found.to_markdown(), end="")
    else:
        show_tables(found.tables(), found.notes, quiet=quiet)
    if figure is not None and not quiet:
        typer.echo(f"the figure is in {figure}", err=True)


def check_figure(path: Path) -> None:
    """Refuse a figure that cannot be drawn, before anything is computed."""
    from mallang.errors import require
    from mallang.inspection.figures import check_format

    check_format(path)
    require("matplotlib.figure", "plots")
    if not path.parent.is_dir():
        raise UserError(f"there is no folder {path.parent} for the figure", todo="make it first")


def read_lengths(text: str | None) -> list[int] | None:
    """The ends in `10,20,30`."""
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise UserError(f"--lengths {text!r} is not a list of whole numbers", todo="--lengths 10,20,30") from error
