"""`mallang evaluate`: every number with its signature and interval, and where it comes from."""

from __future__ import annotations

import json as json_format
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mallang.commands.inputs import choose_split
from mallang.commands.options import (
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
    Search,
    Split,
    With,
    add_plugins,
    check_run,
    complete_run,
    load_for,
    note_unknown,
    read_search,
)
from mallang.errors import UserError
from mallang.inspection.outputs import keep, read_parts, split_to_score, stamp_of

if TYPE_CHECKING:
    from mallang.evaluation.explanation import Explanation
    from mallang.evaluation.score import Score
    from mallang.evaluation.significance import Comparison
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
    replace_unknown: ReplaceUnknown = False,
    lexicon: Lexicon = None,
    stride: Stride = None,
    rows: Parallel = None,
    json: Json = False,
    plugin: Plugin = None,
    device: Device = "auto",
    int8: Int8 = False,
    quiet: Quiet = False,
) -> None:
    """Score a run on a split of its corpus, or on your own pairs; or score any outputs against references.

    A language model is scored by its perplexity per token, word and byte on the whole text; what is written to
    RUN/outputs is then the log-probability of every line.

    Where it was trained on several corpora each is scored by itself, with the tag of its domain; --domain NAME takes
    another, --domain none takes none. The outputs are written to RUN/outputs and the scores to RUN/scores, as JSON;
    those of an ensemble under a name that tells its other runs. --explain shows how BLEU comes about instead: matching
    n-grams, their precisions, the geometric mean, the brevity penalty.
    """
    add_plugins(plugin)
    reading = {name: value for name, value in (("stride", stride), ("parallel", rows)) if value is not None}
    asked = Asked(split, data, corpus, domain, search, others, replace_unknown, lexicon, device, int8, reading)
    sentence = sentence_of(explain)
    if explain is not None and against is not None:
        raise UserError("--explain and --against were both given", todo="give one of them")
    if run is None:
        judged = [read_files(outputs, references or [], asked, sentence)]
    elif outputs is not None or references:
        raise UserError("a run and files to score were both given", todo="leave out RUN, or --outputs and --references")
    else:
        option = "--explain" if explain is not None else "--against" if against is not None else None
        check_run(run)
        check_task(run, against)
        judged = list(of_run(run, asked, sentence, option, quiet=quiet or json))
    found = [explained(each, sentence) if explain is not None else each.scores for each in judged]
    tests = [compared(each, against, asked) if against is not None else [] for each in judged]
    if json:
        show_json(judged, found, tests)
        return
    for each, result, differences in zip(judged, found, tests, strict=True):
        lines = [str(each) for each in result] if isinstance(result, list) else [*each.told, str(result)]
        for line in [*lines, *(f"against {against}: {difference}" for difference in differences)]:
            print(f"{each.corpus}: {line}" if each.corpus else line)


@dataclass(frozen=True)
class Asked:
    """What is asked of a run."""

    split: str | None
    data: str | None
    corpus: str | None
    domain: str | None
    search: list[str] | None
    others: list[Path] | None
    replace_unknown: bool
    lexicon: Path | None
    device: str
    int8: bool
    reading: dict[str, int]
    """How a language model reads the text."""


@dataclass(frozen=True)
class Judged:
    """Outputs beside what they should say."""

    rows: list[tuple[Any, ...]]
    """The source, where it is known, and the reference, or several of them."""
    outputs: list[str]
    scores: list[Score]
    corpus: str = ""
    domain: str | None = None
    is_of_run: bool = True

    @property
    def references(self) -> list[Any]:
        """What the outputs should say."""
        return [row[-1] for row in self.rows]

    @property
    def told(self) -> list[str]:
        """The source of a single sentence."""
        return [f"source     {self.rows[0][0]}"] if len(self.rows) == 1 and len(self.rows[0]) > 1 else []


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
    others = asked.others or []
    stamped = {"unknown": asked.replace_unknown, "lexicon": lexicon, "int8": asked.int8, **asked.reading}
    stamped["with"] = bool(others)
    if asked.split is None and asked.data is None:
        split, note = split_to_score(run)
        if note:
            typer.echo(f"note: {note}", err=True)
    for part in read_parts(run, split, asked.data, asked.corpus):
        chosen = part.domain if asked.domain is None else None if asked.domain == "none" else asked.domain
        rows = [pick(part.rows, sentence)] if sentence else part.rows
        scores, outputs = model.evaluate(rows, domain=chosen, **options)
        yield Judged(rows, outputs, scores, part.corpus, chosen)
        columns = model.task.columns
        if not quiet:
            for column, texts in zip(columns, zip(*rows, strict=True), strict=True):
                side = f"{column} of {part.name}" if len(columns) > 1 else part.name
                if column in model.task.tokenizers:
                    note_unknown(side, plain_texts(model, column, texts), model.task.tokenizers[column], model.model)
        if sentence:
            continue  # one sentence is not the score of the run
        told = options | ({} if chosen is None else {"domain": chosen}) | ({"weights": "int8"} if asked.int8 else {})
        told |= {"with": [str(other) for other in others]} if others else {}
        name = "+".join([part.name, *(other.name for other in others)])
        stamp = stamp_of(opened, rows, wanted, stamped | {"domain": chosen})
        if not keep(run, name, outputs, scores, told, stamp):
            typer.echo(f"note: {run} is read-only: outputs and scores of {part.name} were not kept", err=True)
        elif not quiet:
            tag = "" if chosen is None else f" as domain {chosen}"
            kind = "pairs" if len(columns) > 1 and model.evaluated not in ("labels", "tags") else "texts"
            typer.echo(f"{len(rows)} {kind} of {part.name}{tag}; outputs in {run / 'outputs' / name}.txt", err=True)


def plain_texts(model: Any, column: str, texts: Sequence[str]) -> list[str]:
    """The cells of a column as text, words with spaces between them."""
    from mallang.tasks.contract import column_kinds
    from mallang.training.materials import spaced

    kind = column_kinds(type(model.task), model.task.config).get(column)
    return [spaced(text, kind) for text in texts]


def read_files(outputs: Path | None, references: list[Path], asked: Asked, sentence: int) -> Judged:
    """Outputs and references from files, a text a line, scored."""
    from mallang.evaluation.quality import quality

    if outputs is None or not references:
        missing = "--references FILE" if outputs is not None else "--outputs FILE" if references else None
        raise UserError(
            f"{missing} is missing" if missing else "there is nothing to score",
            todo="give the folder of a run, or --outputs FILE and --references FILE",
        )
    usual = {"device": "auto"}
    for name, value in vars(asked).items():
        if value and value != usual.get(name):
            option = {"others": "with", "reading": "stride or --rows"}.get(name, name.replace("_", "-"))
            raise UserError(f"--{option} has no effect on files of outputs", todo="leave it out, or give a run")
    texts = read_lines(outputs)
    columns = [read_lines(path, like=texts) for path in references]
    golds: list[Any] = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
    if sentence:
        texts, golds = [pick(texts, sentence)], [pick(golds, sentence)]
    return Judged([(gold,) for gold in golds], texts, quality(texts, golds), is_of_run=False)


def read_lines(path: Path, like: list[str] | None = None) -> list[str]:
    """The lines of a file, as many as others."""
    from mallang.data.readers import lines

    found = list(lines(path))
    if like is not None and len(found) != len(like):
        raise UserError(f"there are {len(like)} outputs, but {path} has {len(found)} lines", todo="line i goes with i")
    if not found:
        raise UserError(f"{path} is empty", todo="give a file with at least one line")
    return found


def explained(judged: Judged, sentence: int) -> Explanation:
    """Where the BLEU of one sentence comes from, or with 0 that of all."""
    from mallang.evaluation.explanation import explain, explain_corpus
    from mallang.evaluation.quality import are_trees

    if are_trees(judged.references):
        raise UserError("--explain is about BLEU, but here the references are parse trees", todo="leave it out")
    if not sentence:
        return explain_corpus(judged.outputs, judged.references)
    return explain(judged.outputs[0], judged.references[0])


def compared(judged: Judged, other: Path, asked: Asked) -> list[Comparison]:
    """Whether the outputs differ from those of another run, or file, by more than chance."""
    from mallang.evaluation.quality import suited
    from mallang.evaluation.significance import paired_bootstrap

    if other.is_dir():
        if not judged.is_of_run:
            raise UserError(f"{other} is a run, but here are only outputs", todo=f"{other}/outputs/test.txt")
        model = load_for(other, None, "evaluate", asked.device, int8=asked.int8)
        check_texts(model, other, "--against")
        _, theirs = model.evaluate(judged.rows, domain=judged.domain, **read_search(asked.search))
    else:
        theirs = read_lines(other, like=judged.outputs)
    names = suited(judged.references)
    return [paired_bootstrap(judged.outputs, theirs, judged.references, name) for name in names]


def check_task(run: Path, other: Path | None) -> None:
    """Refuse a run of another task before anything is scored: its outputs answer another question."""
    from mallang.runs.folder import Run

    if other is not None and other.is_dir() and (theirs := Run.open(other).task) != (ours := Run.open(run).task):
        raise UserError(
            f"{run} was trained for {ours}, but {other} for {theirs}", todo="--against a run of the same task"
        )


def check_texts(model: Evaluating, run: Path, option: str | None) -> None:
    """Refuse an option that compares texts where the outputs are none: numbers, or bags of words."""
    if option is not None and model.evaluated == "log-probabilities":
        raise UserError(
            f"{option} compares outputs, but what {run} gives is how probable a text is",
            todo="mallang compare RUN RUN lays language models side by side",
        )
    if option is not None and model.evaluated == "bags of words":
        raise UserError(
            f"{option} compares texts, but what {run} gives are words without their order",
            todo=f"leave {option} out: the scores are those of bags of words",
        )
    if option is not None and model.evaluated in ("labels", "tags"):
        raise UserError(
            f"{option} compares texts, but what {run} gives are {model.evaluated}", todo=f"leave {option} out"
        )


def check_reading(model: Evaluating, asked: Asked) -> None:
    """Refuse how a text should be read where none is read so."""
    if asked.reading and model.evaluated != "log-probabilities":
        raise UserError("--stride and --rows are for language models", todo="leave them out")


def show_json(judged: list[Judged], found: list[list[Score] | Explanation], tests: list[list[Comparison]]) -> None:
    """Scores as a list, or beside the tests; an explanation as an object; those of several corpora by name."""
    plain: dict[str, Any] = {}
    for each, result, differences in zip(judged, found, tests, strict=True):
        if not isinstance(result, list):
            source = {"source": each.rows[0][0]} if each.told else {}
            plain[each.corpus] = source | result.to_json()
            continue
        scores = [score.to_json() for score in result]
        tested = [difference.to_json() for difference in differences]
        plain[each.corpus] = {"scores": scores, "against": tested} if tested else scores
    print(json_format.dumps(plain.get("", plain), ensure_ascii=False))


def sentence_of(explain: str | None) -> int:
    """The number of the sentence to explain, from 1; 0 is all of them."""
    if explain in (None, "all"):
        return 0
    if not str(explain).isdecimal() or not int(str(explain)):
        raise UserError(f"--explain {explain!r} is no sentence", todo="give a number, from 1, or all")
    return int(str(explain))


def pick(rows: Sequence[Any], sentence: int) -> Any:
    """One of the rows, by its number from 1."""
    if sentence > len(rows):
        raise UserError(f"--explain {sentence}: there are only {len(rows)} sentences")
    return rows[sentence - 1]
