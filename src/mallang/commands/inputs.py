"""What several commands read: texts, pairs of texts, requests, and a split of a corpus."""

from __future__ import annotations

import itertools
import json as json_format
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from mallang.errors import UserError, nearest

STDIN = Path("/dev/stdin")


def read_texts(texts: Iterable[str] | None, file: Path | None) -> Iterator[Any]:
    """The texts to work on, a line at a time; blank lines stay, so that line i of the output belongs to line i."""
    from mallang.data.readers import lines

    if texts and file is not None:
        raise UserError("texts and --file were both given", todo="give one of them")
    if texts:
        return iter(texts)
    if file is None and sys.stdin.isatty():
        typer.echo("reading from the keyboard, a text a line; Ctrl-D ends", err=True)
    if file is not None and ".jsonl" in file.suffixes:
        return read_requests(file)
    return lines(file or STDIN)


def read_requests(file: Path) -> Iterator[Any]:
    """Texts with what is asked of their translations, a JSON object a line."""
    from mallang.data.readers import lines
    from mallang.tasks.lexical_constraints import Request

    for number, line in enumerate(lines(file), start=1):
        try:
            yield Request.of(json_format.loads(line))
        except ValueError as error:
            raise UserError(f"this is no JSON: {error}", where=f"{file}, line {number}") from error
        except UserError as error:
            raise UserError(error.what, where=f"{file}, line {number}", todo=error.todo) from error


def read_pairs(pair: list[str] | None, file: Path | None) -> Iterator[tuple[str, str]]:
    """Pairs of a source and a target: one as two arguments, or a line each of a file or standard input."""
    if pair:
        if file is not None:
            raise UserError("a pair and --file were both given", todo="give one of them")
        if len(pair) != 2:
            raise UserError(f"a pair is two texts, but {len(pair)} were given", todo="quote each text, or use --file")
        return iter([(pair[0], pair[1])])
    return split_lines(read_lines(file), file or STDIN)


def split_lines(
    lines: Iterator[str], path: Path, sides: tuple[str, str] = ("source", "target")
) -> Iterator[tuple[str, str]]:
    """Pairs out of lines with one tab each; `sides` is what their texts are called."""
    for number, line in enumerate(lines, 1):
        source, tab, target = line.partition("\t")
        if not tab or "\t" in target:
            what = f"a line must hold a {sides[0]}, a tab and a {sides[1]}"
            raise UserError(what, where=f"{path}, line {number}")
        yield source, target


def read_inputs(model: Any, texts: list[str] | None, file: Path | None) -> Iterator[Any]:
    """What a model reads: texts, or pairs of texts, one as two arguments or a line each with a tab between."""
    from mallang.tasks.contract import ReadsPairs

    if not isinstance(model, ReadsPairs):
        return read_texts(texts, file)
    if texts and file is None and all(text.count("\t") == 1 for text in texts):
        return split_lines(iter(texts), Path("TEXT"), ("first text", "second text"))
    if texts:
        return read_pairs(texts, file)
    if file is None and sys.stdin.isatty():
        typer.echo("reading from the keyboard, two texts a line with a tab between; Ctrl-D ends", err=True)
    return split_lines(read_lines(file), file or STDIN, ("first text", "second text"))


def check_single(model: Any, what: str, todo: str) -> None:
    """Refuse what is for single texts where a model reads pairs."""
    from mallang.tasks.contract import ReadsPairs

    if isinstance(model, ReadsPairs):
        raise UserError(f"{what} for single texts, but this run reads pairs", todo=todo)


def note_cut(model: Any, pairs: Iterable[Any], *, quiet: bool) -> None:
    """Say how many pairs the model cannot read to their ends."""
    from mallang.tasks.contract import ReadsPairs

    if not quiet and isinstance(model, ReadsPairs) and (note := model.note_cut(list(pairs))):
        typer.echo(f"note: {note}", err=True)


def note_empty(given: Iterable[Any], what: str, *, quiet: bool) -> Iterator[Any]:
    """Pass texts or pairs on, and note at the end how many of them hold nothing, whose `what` means nothing."""
    from mallang.tasks.result_json import is_empty

    count = empty = first = 0
    for count, each in enumerate(given, start=1):
        if is_empty(each):
            empty, first = empty + 1, first or count
        yield each
    if empty and not quiet:
        told = f"{empty:,} of {count:,} inputs are empty, first number {first:,}" if count > 1 else "the input is empty"
        typer.echo(f"note: {told}: the {what} of an empty text means nothing", err=True)


def set_long_texts(model: Any, how: str | None) -> None:
    """Read texts that are longer than the model's positions in windows, or cut them, whatever the run does."""
    from typing import get_args

    from mallang.tasks.text_windows import LongTexts, ReadsLongTexts

    if how is None:
        return
    if how not in get_args(LongTexts):
        raise UserError(f"long texts cannot be read by {how!r}", todo=nearest(how, get_args(LongTexts)))
    if not isinstance(model, ReadsLongTexts) or not model.windows.most:
        raise UserError(
            f"--long-texts {how} has no effect: this run reads texts of any length, or cuts pairs", todo="leave it out"
        )
    model.windows = replace(model.windows, how=how)  # type: ignore[arg-type]


def note_long(model: Any, texts: Iterable[Any], *, quiet: bool, option: bool = True) -> None:
    """Say how many texts are longer than the model's positions, what is read of them, and the option to change that."""
    from mallang.tasks.text_windows import ReadsLongTexts

    if not quiet and isinstance(model, ReadsLongTexts) and (note := model.note_long(list(texts))):
        others = {"windows": "--long-texts cut reads their beginning", "cut": "--long-texts windows reads all of them"}
        typer.echo(f"note: {note}; {others[model.windows.how]}" if option else f"note: {note}", err=True)


def read_lines(file: Path | None) -> Iterator[str]:
    """The lines of a file, which must have some, or of standard input, which may be empty as in any pipe."""
    from mallang.data.readers import lines

    found = lines(file or STDIN)
    if file is None:
        return found
    first = next(found, None)
    if first is None:
        raise UserError(f"{file} has no lines", todo="give a file with at least one line")
    return itertools.chain([first], found)


def choose_split(split: str | None, data: str | None, *, usual: str) -> str:
    """The split that is asked for, or the usual one; one's own pairs have none."""
    if split is not None and data is not None:
        raise UserError("--split and --data were both given", todo="give one of them: a file of your own has no splits")
    return split or usual
