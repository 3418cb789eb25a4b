"""What `mallang inspect` draws, prints and writes: attention, attributions, search trees, live pages."""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mallang.commands.inputs import choose_split, read_inputs, read_texts
from mallang.commands.inspected_roles import is_role_labeler, show_roles
from mallang.commands.options import print_json
from mallang.commands.outputs import PAGES, is_page, make_folder, say_paths
from mallang.errors import UserError

if TYPE_CHECKING:
    from mallang.inspection.alignment import Seen
    from mallang.inspection.attention_by_label import WordAttention
    from mallang.inspection.highlights import Highlights

PICTURES = (".png", ".svg")
PAGE = "inspect.html"
"""The page of a run, in its folder."""


@dataclass(frozen=True)
class Asked:
    """What is asked for on the command line."""

    layers: tuple[str, ...] = ()
    head: str | None = None
    words: bool = False
    numbers: bool = False
    start: int | None = None
    json: bool = False
    quiet: bool = False
    target: str | None = None
    domain: str | None = None
    search: Mapping[str, Any] = field(default_factory=dict)
    searched: Mapping[str, Any] = field(default_factory=dict)
    """The options that only a search has, by their names on the command line."""

    @property
    def options(self) -> dict[str, Any]:
        """How an output is found for a text."""
        return {**self.search, "domain": self.domain, "target": self.target}


def show_attention(
    run: Path, others: list[Path], device: str, texts: Sequence[str], out: Path | None, asked: Asked
) -> None:
    """Write a page, draw or print what a model attends to: maps, numbers, words of a classifier that pools."""
    from mallang.inspection.highlights import pools_by_attention
    from mallang.loading import load

    is_silent = (asked.json or asked.numbers) and out is None
    where = None if is_silent else out or run / PAGE
    if where is None or not is_page(where):
        refuse({"--start": asked.start}, "but on a page")
    if others and (where is None or not is_page(where)):
        raise UserError("--with compares runs on a page", todo="--out NAME.html, without --json")
    model = load(run, device)
    texts = joined_texts(model, texts)
    if asked.target is not None and len(texts) != 1:
        raise UserError(f"--target is the output of one text, but {len(texts)} were given", todo="give one text")
    if where is None or not is_page(where) or texts:
        check_out(where or run / PAGE, len(texts), asked.layers)
    if asked.numbers:
        print_numbers(model, texts, asked)
        refuse({"--out": out if where is not None and not is_page(where) else None}, "as a picture of --numbers")
    elif texts and is_captioner(model) and where is not None and not is_page(where) and not asked.json:
        refuse({"--layer": asked.layers, "--head": asked.head, "--words": asked.words}, "on images")
        show_images(model, texts, where, asked)
        return
    elif texts and is_role_labeler(model) and not others:
        asked_of_maps = {"--layer": asked.layers, "--head": asked.head, "--words": asked.words}
        refuse({**asked.searched, **asked_of_maps, "--start": asked.start}, "on semantic roles")
        show_roles(model, texts, where, asked.json, asked.quiet)
        return
    elif pools_by_attention(model):
        refuse({**asked.searched, "--layer": asked.layers}, "on a classifier that has one weight per word")
        if not others and (asked.json or out is None or not is_page(out)) and texts:
            show_highlights(model, texts, where if out else None, asked)
            return
    elif asked.json or (where is not None and not is_page(where)):
        show_maps(model, texts, where, asked)
    if where is not None and is_page(where):
        runs = [(run, model), *((each, load(each, device)) for each in others)]
        make_folder(where.parent)
        say_paths([page_of(where, runs, texts, asked)], asked.json or asked.numbers, asked.quiet)


def joined_texts(model: Any, texts: Sequence[str]) -> list[str]:
    """The texts to read; a run that reads several texts at once takes arguments without a tab as the parts of one."""
    from mallang.tasks import answerer, chooser, completer
    from mallang.tasks.contract import ReadsPairs

    is_several = isinstance(model, ReadsPairs | answerer.Verbs | chooser.Verbs | completer.Verbs)
    if is_several and len(texts) > 1 and not any("\t" in text for text in texts):
        return ["\t".join(texts)]
    return list(texts)


def print_numbers(model: Any, texts: Sequence[str], asked: Asked) -> None:
    """Print the attention of one layer and head step by step, with all numbers."""
    from mallang.inspection.attention_steps import choose_steps
    from mallang.inspection.shown_texts import read_text

    if len(asked.layers) > 1:
        raise UserError("--numbers prints one layer", todo="give one --layer, or --out PAGE.html for several")
    if asked.words or asked.head == "mean":
        given = "--words" if asked.words else "--head mean"
        raise UserError(
            f"{given} has no effect on --numbers, which are those of tokens and one head", todo="leave it out"
        )
    if asked.head is not None and not asked.head.isdecimal():
        raise UserError(f"there is no head {asked.head!r}", todo="give 1 for the first")
    head = int(asked.head or 1)
    for text in texts:
        reading = read_text(model, text, target=asked.target, domain=asked.domain, **asked.search)
        steps = choose_steps({} if reading is None else reading.steps(), (asked.layers or (None,))[0])
        if asked.json:
            print(json_format.dumps({"input": text, **steps.to_json(head)}, ensure_ascii=False), flush=True)
        else:
            print(f"{steps.name}, head {head} of {len(steps.q)}\n\n{steps.text(head)}\n", flush=True)


def is_captioner(model: Any) -> bool:
    """Whether a model writes captions of images."""
    from mallang.tasks import captioner

    return isinstance(model, captioner.Verbs)


def show_images(model: Any, cells: Sequence[str], out: Path, asked: Asked) -> None:
    """Draw the attention of every word to its image: a figure of one image, or figures into a folder."""
    from mallang.inspection.image_attention import draw_looked, looked_at

    looked = [looked_at(model, cell, **asked.options) for cell in cells]
    is_folder = out.is_dir() or not out.suffix
    make_folder(out if is_folder else out.parent)
    if is_folder:
        paths = [draw_looked(out / f"{number}.png", [each]) for number, each in enumerate(looked, start=1)]
    else:
        paths = [draw_looked(out, looked)]
    say_paths(paths, False, asked.quiet)


def page_of(where: Path, runs: list[tuple[Path, Any]], texts: Sequence[str], asked: Asked) -> Path:
    """Write the page of runs and texts."""
    from mallang.inspection.page import write_page
    from mallang.inspection.shown_runs import shown_runs
    from mallang.inspection.shown_texts import Wanted

    wanted = Wanted(
        layers=asked.layers, head=None if asked.numbers else asked.head, words=asked.words, numbers=asked.numbers,
        start=(asked.start or 1) - 1, target=asked.target, domain=asked.domain, search=asked.search,
    )  # fmt: skip
    return write_page(where, shown_runs(runs, texts, wanted))


def show_maps(model: Any, texts: Sequence[str], where: Path | None, asked: Asked) -> None:
    """Print the attention maps of each text, or draw them."""
    from mallang.inspection.alignment import attention_of, in_words
    from mallang.inspection.page import as_plain

    seen = [attention_of(model, text, **asked.options) for text in texts]
    seen = [in_words(one) for one in seen] if asked.words else seen
    for one in seen if asked.json else ():
        print(json_format.dumps(as_plain(one, asked.layers, asked.head), ensure_ascii=False), flush=True)
    if where is not None and not is_page(where):
        say_paths(draw(where, seen, asked.layers, asked.head), asked.json, asked.quiet)


def show_highlights(model: Any, texts: Sequence[str], out: Path | None, asked: Asked) -> None:
    """Print each text with the words that the classifier attends to, or write a page or figures."""
    from mallang.inspection.highlights import as_plain, highlights_of

    found = highlights_of(model, list(texts), head=asked.head, words=asked.words)
    show_shaded(found, [as_plain(each) for each in found], out, asked.json, asked.quiet)


def show_attribution(
    run: Path,
    device: str,
    texts: Sequence[str],
    out: Path | None,
    method: Any,
    label: str | None,
    words: bool,
    json: bool,
    quiet: bool,
) -> None:
    """Print each text with what its words add to the score of a label, or write a page or figures."""
    from mallang.inspection.attributions import as_plain, attribution_highlights, attributions_of, question_inputs
    from mallang.loading import load

    check_out(out or run / "attribution.html", min(1, len(texts)), None)
    model = load(run, device)
    given = question_inputs(model, joined_texts(model, texts)) or list(read_inputs(model, list(texts), None))
    check_out(out or run / "attribution.html", len(given), None)
    found = attributions_of(model, given, method, label)
    shown = [attribution_highlights(model, each, words=words) for each in found]
    if out is not None and out.suffix.lower() in PICTURES and not out.is_dir():
        check_out(out, len(shown), None)  # a tagger has several of one text
    show_shaded(shown, [as_plain(*pair) for pair in zip(found, shown, strict=True)], out, json, quiet)


def show_shaded(
    found: Sequence[Highlights], plain: Sequence[dict[str, Any]], out: Path | None, json: bool, quiet: bool
) -> None:
    """Print texts with shaded words, or their plain values as JSON; or write a page or figures."""
    from mallang import console
    from mallang.inspection.highlight_figures import draw_highlights, in_plain_text, in_terminal, write_page

    for values in plain if json else ():
        print(json_format.dumps(values, ensure_ascii=False), flush=True)
    if out is not None:
        is_folder = out.is_dir() or not out.suffix
        make_folder(out if is_folder else out.parent)
        if is_folder:
            paths = [draw_highlights(out / f"{number}.png", each) for number, each in enumerate(found, start=1)]
        else:
            is_page = out.suffix.lower() in PAGES
            paths = [write_page(out, found) if is_page else draw_highlights(out, found[0])]
        for path in [] if quiet else paths:
            print(path) if not json else typer.echo(str(path), err=True)
        return
    screen = console.drawing()
    for each in [] if json else found:
        if screen.is_terminal and not screen.no_color:
            screen.print(in_terminal(each), soft_wrap=True)
        else:
            print(in_plain_text(each))


def show_word(
    run: Path,
    word: str,
    out: Path | None,
    head: str | None,
    split: str | None,
    data: str | None,
    predicted: bool,
    json: bool,
    device: str,
) -> None:
    """Print or draw the attention to a word in the texts of each label."""
    from mallang.inspection.attention_by_label import as_plain, attention_to, draw_by_label, pattern_of
    from mallang.inspection.figures import check_figure
    from mallang.inspection.highlights import check_pooling
    from mallang.inspection.outputs import read_rows, split_to_score
    from mallang.loading import load

    pattern_of(word)
    if out is not None:
        check_figure(out)
    model = load(run, device)
    check_pooling(model)
    usual, note = ("", "") if split or data else split_to_score(run)
    rows, _ = read_rows(run, choose_split(split, data, usual=usual), data)
    found = attention_to(model, rows, word, head=head)
    if note:
        typer.echo(f"note: {note}", err=True)
    if out is not None:
        draw_by_label(out, found, predicted=predicted)
    if json:
        print_json(as_plain(found, predicted))
    else:
        print_table(found, predicted)


def print_table(found: WordAttention, predicted: bool) -> None:
    """A line per label: occurrences of the word, the mean of its weights, and their median."""
    lines = [("predicted label" if predicted else "label", "occurrences", "mean weight", "median")]
    lines += [
        (label, f"{count:,}", f"{mean:.4f}" if count else "-", f"{median:.4f}" if count else "-")
        for label, count, mean, median in found.table(predicted)
    ]
    widths = [max(len(line[column]) for line in lines) for column in range(4)]
    for label, *numbers in lines:
        cells = (number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True))
        print("  ".join([label.ljust(widths[0]), *cells]))


def refuse(options: dict[str, Any], why: str) -> None:
    """Refuse options that would be ignored."""
    for name, value in options.items():
        if value:
            raise UserError(f"{name} has no effect {why}", todo=f"leave out {name}")


def check_tree(out: Path, texts: int) -> Path:
    """The path for search trees, one file each."""
    out = check_out(out, texts, None)
    if texts > 1 and out.suffix and not out.is_dir():
        raise UserError(f"one search tree cannot show {texts} texts", todo="--out FOLDER for a page of each")
    return out


def show_trees(
    run: Path,
    device: str,
    texts: Sequence[str],
    out: Path | None,
    json: bool,
    quiet: bool,
    options: dict[str, Any],
) -> None:
    """Print or draw the search for each text."""
    from mallang.inspection.search_tree import draw_tree, tree_of
    from mallang.loading import load

    out = None if json and out is None else check_tree(out or run / "search-tree.html", len(texts))
    model = load(run, device)
    for number, text in enumerate(texts, start=1):
        found = tree_of(model, text, **options)
        if json:
            print(json_format.dumps(found.to_json(), ensure_ascii=False), flush=True)
        if out is not None:
            is_folder = out.is_dir() or not out.suffix
            make_folder(out if is_folder else out.parent)
            path = draw_tree(out / f"{number}-tree.html" if is_folder else out, found)
            if not quiet:
                print(path) if not json else typer.echo(str(path), err=True)


def read_plain(texts: Sequence[str] | None, file: Path | None) -> list[str]:
    """The texts to inspect, without blank ones; none if none are given and nothing is piped in."""
    if not texts and file is None and sys.stdin.isatty():
        return []
    given = list(read_texts(texts, file))
    if not all(isinstance(text, str) for text in given):
        raise UserError(f"{file} has constraints, which inspect ignores", todo="give a file with one text per line")
    return [text for text in given if text.strip()]


def check_out(out: Path, texts: int, layers: Sequence[str] | None) -> Path:
    """The output path, checked against the texts and layers before anything is computed."""
    ending = out.suffix.lower()
    if not texts:
        raise UserError("there is no text to inspect", todo='mallang inspect RUN "a text"')
    if out.is_dir() or not ending:
        return out
    if ending not in PICTURES + PAGES:
        raise UserError(f"{out} names no kind of picture", todo="end the name in .html, .png or .svg, or give a folder")
    if ending in PICTURES and (texts > 1 or len(layers or ()) > 1):
        many = f"{texts} texts" if texts > 1 else f"{len(layers or ())} layers"
        raise UserError(f"one picture cannot show {many}", todo="--out FOLDER for a picture of each, or a .html page")
    return out


def draw(out: Path, seen: Sequence[Seen], layers: Sequence[str] | None, head: str | None) -> list[Path]:
    """Draw the picture, or the pictures of every text and layer into a folder."""
    from mallang.inspection.alignment import choose_layers, draw_seen

    is_folder = out.is_dir() or not out.suffix
    make_folder(out if is_folder else out.parent)
    chosen = [choose_layers(one, layers) for one in seen]  # a wrong name is refused before any file is written
    if is_folder:
        return [
            draw_seen(one, out / f"{number}-{name.replace(':', '-')}.png", name, head)
            for number, (one, names) in enumerate(zip(seen, chosen, strict=True), start=1)
            for name in names
        ]
    return [draw_seen(seen[0], out, layers[0] if layers else None, head)]


def write_live(run: Path, device: str, texts: Sequence[str], out: Path | None, quiet: bool) -> None:
    """Write a page that runs the model in the browser; the texts are its examples."""
    from mallang.inspection.live import write_live_page
    from mallang.loading import load

    path = out or run / "live.html"
    if path.is_dir() or path.suffix.lower() not in PAGES:
        raise UserError(f"--live writes one page, and {path} is no name of a page", todo="end the name in .html")
    make_folder(path.parent)
    written = write_live_page(path, load(run, device), run.resolve().name, texts)
    if not quiet:
        print(path)
        typer.echo(f"{written.bytes / 1e6:.2f} MB with {written.weights:,} weights: open it in a browser", err=True)
