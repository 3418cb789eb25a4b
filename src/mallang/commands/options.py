"""Options and arguments that several commands share, with their help and shell completion."""

from __future__ import annotations

import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from mallang import find, recipe, schema, toml
from mallang.errors import UserError, some_of

if TYPE_CHECKING:
    from mallang.text.tokenizer import Tokenizer

Text = TypeVar("Text")


def complete_recipe(incomplete: str) -> list[str]:
    """Recipes, models and run folders that begin like this."""
    known = [*recipe.names(), *(name.replace("_", "-") for name in schema.names("model"))]
    return [name for name in known if name.startswith(incomplete)] + complete_run(incomplete)


def complete_run(incomplete: str) -> list[str]:
    """Run folders that begin like this: below the folder typed so far, or below `runs`."""
    folder = Path(incomplete) if incomplete.endswith("/") else Path(incomplete).parent
    places = [folder, Path("runs")] if folder == Path() else [folder]
    found = sorted({str(run) for place in places for run in find.runs(place)})
    return [run for run in found if run.startswith(incomplete)]


def check_run(run: Path | None) -> Path | None:
    """A run folder that is given is there; of one that is not, the nearest ones are named."""
    if run is not None and not run.is_dir():
        raise find.no_run(run)
    return run


def check_texts(texts: list[str] | None) -> list[str] | None:
    """Texts that are arguments: what changes a recipe, as `train` takes it, is none of them."""
    for text in texts or ():
        section, _, change = text.partition(".")
        if section in schema.SECTIONS and re.fullmatch(r"\w+=\S*", change):
            raise UserError(
                f"{text} stands where a text should",
                todo=f"commands that search take --search {change}"
                if section == "decoding"
                else "what a run was trained with stays as it is",
            )
    return texts


def complete_override(context: typer.Context, incomplete: str) -> list[str]:
    """The `section.key=` texts that the recipe typed before knows."""
    try:
        resolved = recipe.read(str(context.params.get("recipe", ""))).resolved()
    except UserError:
        return []
    dotted = [f"{section}.{key}=" for section in schema.SECTIONS for key in resolved.get(section, ())]
    return [text for text in [*dotted, "seed="] if text.startswith(incomplete)]


def add_plugins(paths: Iterable[Path] | None) -> None:
    """Make the models in these files known; every command with `--plugin` begins with this."""
    for path in paths or ():
        find.add_plugin(path)


RecipeName = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE",
        help="A recipe by name, a path to your own, a run folder, or a model's name.",
        autocompletion=complete_recipe,
        show_default=False,
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SECTION.KEY=VALUE",
        help="What to change, such as model.layers=6 train.steps=2000.",
        autocompletion=complete_override,
        show_default=False,
    ),
]
LongTexts = Annotated[
    str | None,
    typer.Option(
        "--long-texts", metavar="windows|cut", show_default=False,
        help="Texts beyond the positions: the mean over windows, or their beginning; otherwise as the run says.",
    ),
]  # fmt: skip
Texts = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TEXT", help="Texts; without any, standard input.", callback=check_texts, show_default=False
    ),
]
RunFolder = Annotated[
    Path,
    typer.Argument(
        metavar="RUN",
        help="The folder of a finished run.",
        autocompletion=complete_run,
        callback=check_run,
        show_default=False,
    ),
]
Device = Annotated[str, typer.Option("--device", metavar="NAME", help="auto, cpu, cuda or cuda:1.")]
Plugin = Annotated[
    list[Path] | None,
    typer.Option("--plugin", metavar="FILE", help="A Python file with a model of your own.", show_default=False),
]
Columns = Annotated[
    str | None,
    typer.Option(
        "--columns", metavar="TEXT,LABEL", help="Columns of --data, by name or number; those of a run as in training.",
        show_default=False,
    ),
]  # fmt: skip
Int8 = Annotated[bool, typer.Option("--int8", help="Quantize weights to int8: faster on a CPU.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.", show_default=False)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print results only.", show_default=False)]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say more.", show_default=False)]
Search = Annotated[
    list[str] | None,
    typer.Option(
        "--search", metavar="KEY=VALUE", help="Change the search: beam=8, method=greedy …", show_default=False
    ),
]

With = Annotated[
    list[Path] | None,
    typer.Option(
        "--with", metavar="RUN", help="Another run to join: an ensemble. Repeatable.", autocompletion=complete_run,
        show_default=False,
    ),
]  # fmt: skip
Reverse = Annotated[
    bool,
    typer.Option("--reverse", help="Translate from the target's language, if the run was trained for both directions.",
                 show_default=False),
]  # fmt: skip
ReplaceUnknown = Annotated[
    bool,
    typer.Option("--replace-unknown", help="Replace <unk> by source words (unit word).", show_default=False),
]
Lexicon = Annotated[
    Path | None,
    typer.Option(
        "--lexicon", metavar="FILE", help="Source and target words, for --replace-unknown.", show_default=False
    ),
]
Domain = Annotated[
    str | None,
    typer.Option("--domain", metavar="NAME", help="Domain of the text: one that the run knows.", show_default=False),
]

Pair = Annotated[
    list[str] | None, typer.Argument(metavar="SOURCE TARGET", help="A source and its output.", show_default=False)
]
PairFile = Annotated[
    Path | None, typer.Option("--file", "-f", help="Pairs, a line each, with a tab between.", show_default=False)
]
Nbest = Annotated[int, typer.Option("--nbest", min=1, help="Outputs for each text.")]
Split = Annotated[
    str | None,
    typer.Option("--split", help="The split of the run's corpus; otherwise test, or valid.", show_default=False),
]
Data = Annotated[
    str | None, typer.Option("--data", metavar="PATH", help="Your own pairs instead of a split.", show_default=False)
]
Part = Annotated[
    str | None,
    typer.Option("--corpus", metavar="NAME", help="One of the run's corpora, not each of them.", show_default=False),
]


OutFile = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="FILE", help="Write the results to this file.", show_default=False),
]


def with_out(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with --out, which writes to a file what it would print; one that has its own --out stays as it is."""
    signature = inspect.signature(command, eval_str=True)
    if {"out", "output"} & signature.parameters.keys():
        return command

    @wraps(command)
    def writing(*given: Any, out: Path | None = None, **options: Any) -> None:
        if out is None:
            command(*given, **options)
            return
        with results_in(out):
            command(*given, **options)
        if not options.get("quiet"):
            typer.echo(f"the results are in {out}", err=True)

    added = inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=OutFile)
    writing.__signature__ = signature.replace(parameters=[*signature.parameters.values(), added])  # type: ignore[attr-defined]
    writing.__annotations__ = {name: each.annotation for name, each in signature.parameters.items()} | {"out": OutFile}
    return writing


@contextmanager
def results_in(path: Path) -> Iterator[None]:
    """Redirect standard output to a file, which is replaced atomically; a pipe is written to directly."""
    if path.is_dir():
        raise UserError(f"--out {path} is a folder", todo="--out FILE")
    is_file = path.is_file() or not path.exists()
    if is_file:  # links are followed, but that to a pipe leads to no path
        path = Path(os.path.realpath(path))
    draft = path.with_name(f".draft-{path.name}") if is_file else path
    left: typer.Exit | None = None
    try:
        stream = draft.open("w", encoding="utf-8", newline="\n", errors=sys.stdout.errors)
    except OSError as error:
        what = f"the results cannot be written: {error.strerror}"
        raise UserError(what, where=str(path), todo="--out FILE in a folder that is there") from error
    try:
        with stream, redirect_stdout(stream):
            try:
                yield
            except typer.Exit as ended:  # an exit code, after all results
                left = ended
        if is_file:
            draft.replace(path)
    finally:
        if is_file:
            draft.unlink(missing_ok=True)
    if left is not None:
        raise left


def folder_of_run(runs: Path, name: str) -> Path:
    """Where a run of this name lies; a name that leads out of the folder of runs is refused before anything is made."""
    path = Path(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise UserError(f"--name {name} is no folder inside {runs}", todo="give a name; --runs FOLDER says where")
    return runs / path


def read_search(search: Iterable[str] | None) -> dict[str, Any]:
    """The search options in `beam=8`-like texts."""
    options = {}
    for text in search or ():
        key, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"--search {text!r} has no value", todo="--search beam=8")
        options[key.strip().removeprefix("decoding.").replace("-", "_")] = toml.read_value(value.strip())
    return options


def load_for(
    run: Path,
    task: str | None,
    verb: str,
    device: str,
    *,
    int8: bool = False,
    others: Iterable[Path] | None = None,
    called: str | None = None,
) -> Any:
    """The model in a run folder, or in several, or a message that says why this verb cannot use it.

    A verb that is for no task alone is for every task that has it. `called` is the command, where it is not the verb.
    """
    from mallang.loading import load
    from mallang.runs.folder import Run

    runs = [run, *(others or ())]
    for each in runs:
        check_run(each)
        trained_for = find.plain(Run.open(each).task)
        if not (has_verb(trained_for, verb) if task is None else trained_for == task):
            name, command = task and task.replace("_", " "), called or verb
            needed = f"a run for {name}" if name else "a run whose task has it"
            if name is None and command != verb:
                needed += f", or `mallang {verb}`"
            raise UserError(
                f"{each} was trained for {trained_for.replace('_', ' ')}, but `mallang {command}` needs {needed}",
                todo=f"give the folder of {'a ' + name if name else 'another'} run{verbs_of(trained_for)}",
            )
    return load(runs if others else run, device, "int8" if int8 else "float32")


def check_reverse(model: Any, run: Path) -> None:
    """Refuse --reverse where a run has one direction."""
    from mallang.tasks.two_way_translator import Verbs

    if not isinstance(model, Verbs):
        raise UserError(f"--reverse: {run} translates in one direction only", todo="train one with the other direction")


def has_verb(task: str, verb: str) -> bool:
    """Whether the runs of a task can do this; those of a task that is not known can do nothing."""
    return task in schema.names("task") and verb in find.find("tasks", task).Verbs.verbs


def verbs_of(task: str) -> str:
    """What the runs of a task can do, as the end of a sentence; those of a task that is not known can do nothing."""
    verbs = [f"`mallang {name}`" for name in find.names("commands") if has_verb(task, name)]
    return f"; with this one, {' or '.join(verbs)}" if verbs else ""


def note_unknown(name: str, texts: Sequence[str], tokenizer: Tokenizer, model: Any = None) -> None:
    """Say how many tokens of some texts the model does not know, and what the first of them are."""
    from mallang.layers.head import Headed
    from mallang.models.contract import TokenModel
    from mallang.tasks.out_of_vocabulary import reads_oov

    lines, unk = tokenizer.encode_batch(texts), tokenizer.vocabulary.unk
    found = [tokenizer.unknown_in(text) for text, line in zip(texts, lines, strict=True) if unk in line]
    count, total = sum(map(len, found)), sum(map(len, lines))
    if not count:
        return
    some = dict.fromkeys(piece for pieces in found for piece in pieces)
    how = "unknown to the model, and read as <unk>"
    if reads_oov(model.model if isinstance(model, Headed) else model, tokenizer):
        how = "not in the vocabulary: read from the characters"
        how += ", and scored as <unk>" if isinstance(model, TokenModel) else ""
    typer.echo(f"note: {name}: {count:,} of {total:,} tokens are {how}: {some_of(some)}", err=True)


def note_renamed(resolved: recipe.Resolved, quiet: bool = False) -> None:
    """Report the keys that a recipe or the command line gives under names of an earlier version."""
    if not quiet and os.environ.get("RANK", "0") == "0":  # of several processes one speaks
        for note in resolved.notes:
            typer.echo(f"note: {note}", err=True)


def note_none(texts: Iterable[Text], verb: str, *, quiet: bool = False) -> Iterator[Text]:
    """Pass texts on, and note at the end if there was none, as with an empty pipe."""
    some = False
    for text in texts:
        some = True
        yield text
    if not some and not quiet:
        typer.echo(f"note: there was nothing to {verb}", err=True)


def print_json(value: Any) -> None:
    """JSON for programs, with Hangul as it is."""
    print(json.dumps(value, ensure_ascii=False, indent=2))
