"""`mallang evaluate`: every number with its signature and interval, and where it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mallang.commands.inputs import choose_split, note_cut, note_long
from mallang.commands.judged import (
    Asked,
    Judged,
    check_texts,
    compared,
    explained,
    pick,
    read_columns,
    read_files,
    sentence_of,
    show_json,
)
from mallang.commands.options import (
    Columns,
    Data,
    Device,
    Domain,
    Int8,
    Json,
    Lexicon,
    Part,
    Plugin,
    Quiet,
    ReplaceUnknown,
    Reverse,
    Search,
    Split,
    With,
    add_plugins,
    check_reverse,
    check_run,
    complete_run,
    load_for,
    note_unknown,
    read_search,
)
from mallang.commands.outputs import show_tables
from mallang.errors import UserError
from mallang.inspection.outputs import Scorable, keep, read_parts, split_to_score, stamp_of

if TYPE_CHECKING:
    from mallang.evaluation.explanation import Explanation
    from mallang.evaluation.score import Score
    from mallang.inspection.reports import Report as LabelsReport
    from mallang.tasks.contract import Evaluating

EXAMPLES = (
    "mallang evaluate runs/transformer-miniworld",
    "mallang evaluate runs/transformer-miniworld --split valid --search method=greedy",
    "mallang evaluate runs/transformer-miniworld --data mine.tsv --json",
    "mallang evaluate runs/transformer-miniworld --explain 3",
    "mallang evaluate runs/a --against runs/b",
    "mallang evaluate runs/joint --corpus korean-english/bible --domain none",
    "mallang evaluate runs/a --with runs/b --with runs/c",
    "mallang evaluate runs/gpt-miniworld --stride 32",
    "mallang evaluate runs/cnn-miniworld --report report",
    "mallang evaluate runs/cnn-miniworld --data mine.csv --columns review,stars --json",
    "mallang evaluate --outputs out.txt --references ref.txt --explain all",
)
Run = Annotated[
    Path | None,
    typer.Argument(
        metavar="[RUN]",
        help="The folder of a finished run; none with --outputs.",
        autocompletion=complete_run,
        show_default=False,
    ),
]
Explain = Annotated[
    str | None,
    typer.Option(
        "--explain", metavar="N|all", help="Walk through the BLEU of sentence N, or of all.", show_default=False
    ),
]
Against = Annotated[
    Path | None,
    typer.Option(
        "--against", metavar="RUN|FILE", help="Test the difference from another run, or file of outputs.",
        show_default=False,
    ),
]  # fmt: skip
Outputs = Annotated[
    Path | None,
    typer.Option("--outputs", metavar="FILE", help="Texts to score, one a line, without a run.", show_default=False),
]
References = Annotated[
    list[Path] | None,
    typer.Option("--references", metavar="FILE", help="What --outputs should say. Repeatable.", show_default=False),
]
Stride = Annotated[
    int | None,
    typer.Option(
        "--stride", metavar="N", help="Language models: tokens that each window predicts.", show_default=False
    ),
]
Parallel = Annotated[
    int | None,
    typer.Option(
        "--rows", metavar="N", help="Language models: read a carried text in N parallel rows.", show_default=False
    ),
]
Report = Annotated[
    Path | None,
    typer.Option(
        "--report", metavar="FOLDER", help="Labels and tags: write report, errors and pictures.", show_default=False
    ),
]


def command(
    run: Run = None,
    split: Split = None,
    data: Data = None,
    corpus: Part = None,
    explain: Explain = None,
    against: Against = None,
    outputs: Outputs = None,
    references: References = None,
    domain: Domain = None,
    search: Search = None,
    others: With = None,
    reverse: Reverse = False,
    replace_unknown: ReplaceUnknown = False,
    lexicon: Lexicon = None,
    stride: Stride = None,
    rows: Parallel = None,
    columns: Columns = None,
    report: Report = None,
    json: Json = False,
    plugin: Plugin = None,
    device: Device = "auto",
    int8: Int8 = False,
    quiet: Quiet = False,
) -> None:
    """Score a run on a split of its corpus, or on your own pairs; or score any outputs against references.

    A language model is scored by its perplexity per token, word and byte on the whole text. Several corpora are scored
    one by one, each with the tag of its domain (--domain NAME, or none). Outputs, or the log-probability of every line,
    go to RUN/outputs, scores to RUN/scores as JSON. --explain shows how BLEU comes about.

    A classifier or a tagger is scored with and without the texts that are in the training data too, and by class or
    type; a classifier also by NLL, Brier score and ECE, before and after a temperature that is fitted on the dev set
    and kept in RUN/calibration.json. --report writes all of it, errors and pictures into a folder.
    """
    add_plugins(plugin)
    check_report(report)
    reading = {name: value for name, value in (("stride", stride), ("parallel", rows)) if value is not None}
    asked = Asked(split, data, corpus, domain, search, others, replace_unknown, lexicon, device, int8, reading)
    asked = replace(asked, columns=read_columns(columns, data), report=report, reverse=reverse)
    sentence = sentence_of(explain)
    if explain is not None and against is not None:
        raise UserError("--explain and --against were both given", todo="give one of them")
    if run is not None and (outputs is not None or references):
        raise UserError("a run and files to score were both given", todo="leave out RUN, or --outputs and --references")
    if run is None:
        judged = [read_files(outputs, references or [], asked, sentence)]
    else:
        option = "--explain" if explain is not None else "--against" if against is not None else None
        check_task(run, against)
        judged = list(of_run(run, asked, sentence, option, quiet=quiet or json))
    found = [explained(each, sentence) if explain is not None else each.scores for each in judged]
    tests = [compared(each, against, asked) if against is not None else [] for each in judged]
    if report is not None:
        write_reports(judged, report, quiet=quiet)
    if json:
        show_json(judged, found, tests)
        return
    for each, result, differences in zip(judged, found, tests, strict=True):
        show(each, result, [f"against {against}: {difference}" for difference in differences], quiet=quiet)


def show(judged: Judged, result: list[Score] | Explanation, differences: list[str], *, quiet: bool) -> None:
    """Print a report, or scores and tests line by line, or an explanation."""
    if judged.report is not None:
        show_tables(judged.report.tables(), judged.report.notes, quiet=quiet)
        return
    lines = [str(each) for each in result] if isinstance(result, list) else [*judged.told, str(result)]
    for line in [*lines, *differences]:
        print(f"{judged.corpus}: {line}" if judged.corpus else line)


def of_run(run: Path, asked: Asked, sentence: int, option: str | None, *, quiet: bool) -> Iterator[Judged]:
    """What a run writes for each of its corpora, or for one sentence, with its scores; kept where it is all.

    `option` is the one that goes on to hold outputs against references as texts.
    """
    from mallang.decoding.options import change_search
    from mallang.runs.folder import Run

    split = choose_split(asked.split, asked.data, usual="test")
    options = read_search(asked.search)
    model = load_for(run, None, "evaluate", asked.device, int8=asked.int8, others=asked.others)
    check_texts(model, run, option)
    check_reading(model, asked)
    if options and model.config is None:
        raise UserError(f"--search has no effect: {run} does not search", todo="leave it out")
    opened, wanted = Run.open(run), change_search(model.config, options) if model.config is not None else None
    lexicon = asked.lexicon and str(asked.lexicon)
    if asked.replace_unknown or lexicon:
        options |= {"replace_unknown": asked.replace_unknown, "lexicon": lexicon}
    options |= asked.reading
    if asked.reverse:
        check_reverse(model, run)
        options["reverse"] = True
    others = asked.others or []
    stamped = {"unknown": asked.replace_unknown, "lexicon": lexicon, "int8": asked.int8, **asked.reading}
    stamped |= {"with": bool(others), "reverse": asked.reverse}
    if asked.split is None and asked.data is None:
        split, note = split_to_score(run)
        if note:
            typer.echo(f"note: {note}", err=True)
    calibrate(run, model, asked, quiet=quiet)
    for part in read_parts(run, split, asked.data, asked.corpus, asked.columns):
        chosen = part.domain if asked.domain is None else None if asked.domain == "none" else asked.domain
        rows = [pick(part.rows, sentence)] if sentence else part.rows
        report = report_of(run, model, part, {**options, "domain": chosen}, asked)
        if report is not None:
            scores, outputs = report.scores, report.outputs
        else:
            scores, outputs = evaluated(model, part, rows, {"domain": chosen, **options})
            scores = [*scores, *([] if sentence or part.corpus else pointed(run, model, split, asked))]
        rows = [row[::-1] for row in rows] if asked.reverse else rows
        yield Judged(rows, outputs, scores, part.corpus, chosen, report=report)
        if not quiet:
            note_control(run, model, part.name, report)
            note_unknown_tokens(model, part.name, rows)
            note_lengths(model, rows)
        if sentence:
            continue  # one sentence is not the score of the run
        told = options | ({} if chosen is None else {"domain": chosen}) | ({"weights": "int8"} if asked.int8 else {})
        told |= {"with": [str(other) for other in others]} if others else {}
        told |= {"reverse": True} if asked.reverse else {}
        name = "+".join([part.name + "-reverse" * asked.reverse, *(other.name for other in others)])
        stamp = stamp_of(opened, rows, wanted, stamped | {"domain": chosen})
        if not keep(run, name, outputs, scores, told, stamp, None if report is None else report.to_json()):
            typer.echo(f"note: {run} is read-only: outputs and scores of {part.name} were not kept", err=True)
        elif not quiet:
            tag = "" if chosen is None else f" as domain {chosen}"
            kind = "pairs" if len(model.task.columns) > 1 and report is None else "texts"
            kind = {"answers": "questions", "choices": "questions", "clusters": "documents"}.get(model.evaluated, kind)
            typer.echo(f"{len(rows)} {kind} of {part.name}{tag}; outputs in {run / 'outputs' / name}.txt", err=True)


def note_lengths(model: Any, rows: list[Any]) -> None:
    """Say which rows the model does not read to their ends, or in windows."""
    from mallang.tasks.contract import ReadsPairs

    if isinstance(model, ReadsPairs):  # its note is about both texts
        note_cut(model, [row[:2] for row in rows], quiet=False)
    else:
        note_long(model, [row[0] for row in rows], quiet=False, option=False)


def note_control(run: Path, model: Any, name: str, report: LabelsReport | None) -> None:
    """Say what the control of a run reaches; a report on labels says it itself."""
    from mallang.inspection.controls import control_notes
    from mallang.tasks.contract import Controlled

    for note in control_notes(run, model, name) if report is None and isinstance(model, Controlled) else []:
        typer.echo(f"note: {note}", err=True)


def calibrate(run: Path, model: Any, asked: Asked, *, quiet: bool) -> None:
    """Fit what the model decides by on the dev set, where it decides by anything but probabilities."""
    from mallang.tasks.contract import Calibrating

    if isinstance(model, Calibrating):
        from mallang.inspection.no_answer import calibrate as fit

        for note in fit(run, model, is_kept=not asked.int8):
            if not quiet:
                typer.echo(f"note: {note}", err=True)


def evaluated(model: Any, part: Scorable, rows: list[Any], options: dict[str, Any]) -> tuple[list[Score], list[str]]:
    """The scores and outputs of rows; errors in a row name its file."""
    try:
        found: tuple[list[Score], list[str]] = model.evaluate(rows, **options)
        return found
    except UserError as error:
        raise of_file(error, part) from error


def pointed(run: Path, model: Any, split: str, asked: Asked) -> list[Score]:
    """How often the attention of a captioner points at what a word names, where the rows have boxes.

    Boxes that cannot be read cost none of the other scores.
    """
    from mallang.inspection.pointing import pointing_of

    try:
        return pointing_of(run, model, split, asked.data)
    except UserError as error:
        typer.echo(f"note: attention is not compared with the boxes of these rows: {error.what}", err=True)
        return []


def of_file(error: UserError, part: Scorable) -> UserError:
    """An error in a row, with the file of the row."""
    if error.where is None or not error.where.startswith("row "):
        return error
    return UserError(error.what, where=f"{part.origin}, {error.where}", todo=error.todo)


def report_of(run: Path, model: Any, part: Scorable, options: dict[str, Any], asked: Asked) -> LabelsReport | None:
    """The report on a classifier or a tagger; none for other tasks. Errors in a row name its file."""
    from mallang.tasks.contract import PredictsLabels, PredictsTags

    if not isinstance(model, PredictsLabels | PredictsTags):
        if asked.report is not None:
            raise UserError("--report is for runs that give labels or tags", todo="leave it out")
        return None
    if given := [name for name, value in options.items() if value is not None]:
        raise UserError(f"{given[0]} has no effect on labels and tags", todo="leave it out")
    from mallang.inspection.label_report import label_report
    from mallang.inspection.tag_report import tag_report

    try:
        if isinstance(model, PredictsTags):
            return tag_report(run, model, part.rows, part.name)
        return label_report(run, model, part.rows, part.name, is_kept=not asked.int8)
    except UserError as error:
        raise of_file(error, part) from error


def note_unknown_tokens(model: Any, name: str, rows: Sequence[tuple[str, ...]]) -> None:
    """Say how many tokens of each column of text the model does not know."""
    columns = model.task.columns
    for column, texts in zip(columns, zip(*rows, strict=True), strict=True):
        side = f"{column} of {name}" if len(columns) > 1 else name
        if column in model.task.tokenizers:
            note_unknown(side, plain_texts(model, column, texts), model.task.tokenizers[column], model.model)


def write_reports(judged: Sequence[Judged], folder: Path, *, quiet: bool) -> None:
    """The files of every report, those of several corpora in folders of their own."""
    from mallang.inspection.reports import write_report

    for each in judged:
        if each.report is not None:
            place = folder / each.corpus.replace("/", "-") if each.corpus else folder
            written = write_report(each.report, place)
            if not quiet:
                typer.echo(f"the report is in {place}: {', '.join(written)}", err=True)


def check_task(run: Path, other: Path | None) -> None:
    """Refuse what is no run, and a run of another task: its outputs answer another question."""
    from mallang.runs.folder import Run

    check_run(run)
    if other is not None and other.is_dir() and (theirs := Run.open(other).task) != (ours := Run.open(run).task):
        raise UserError(
            f"{run} was trained for {ours}, but {other} for {theirs}", todo="--against a run of the same task"
        )


def check_report(folder: Path | None) -> None:
    """Refuse a file where the folder of a report should be, before anything is computed."""
    if folder is not None and folder.exists() and not folder.is_dir():
        raise UserError(f"--report {folder} is a file", todo="give a folder; it is made if it is not there")


def check_reading(model: Evaluating, asked: Asked) -> None:
    """Refuse how a text should be read where none is read so."""
    if asked.reading and model.evaluated != "log-probabilities":
        raise UserError("--stride and --rows are for language models", todo="leave them out")


def plain_texts(model: Any, column: str, texts: Sequence[str]) -> list[str]:
    """The cells of a column as text, words with spaces between them."""
    from mallang.tasks.contract import column_kinds
    from mallang.training.materials import spaced

    kind = column_kinds(type(model.task), model.task.config).get(column)
    return [spaced(text, kind) for text in texts]
