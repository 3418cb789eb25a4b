"""`mallang prompt`: a language model does a task that a few examples tell it."""

from __future__ import annotations

import json as json_format
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mallang.commands.options import (
    Device,
    Json,
    Plugin,
    Quiet,
    Search,
    add_plugins,
    complete_run,
    load_for,
    note_unknown,
    print_json,
    read_search,
)
from mallang.errors import UserError, some_of

if TYPE_CHECKING:
    from mallang.evaluation.score import Score
    from mallang.tasks.prompting import Answer, Example, Prompter
    from mallang.tasks.templates import Template

EXAMPLES = (
    "mallang prompt runs/modern-gpt-miniworld-prompts --corpus miniworld-topics --columns ko,ko-topic"
    " --template miniworld --shots 0,8",
    'mallang prompt runs/gpt --text "정말 좋은 영화" --examples reviews.tsv --shots 4 --template "{text} → {label}"',
    "mallang prompt runs/small runs/large --data test.tsv --examples train.tsv --shots 0,1,2,4,8 --figure shots.svg",
    'mallang prompt runs/gpt --text "The dog is asleep." --examples pairs.tsv --shots 3 --template translate',
)
Runs = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN...", help="Folders of language models.", autocompletion=complete_run, show_default=False
    ),
]
Text = Annotated[
    list[str] | None, typer.Option("--text", metavar="TEXT", help="What to answer. Repeatable.", show_default=False)
]
DataFile = Annotated[
    str | None, typer.Option("--data", metavar="FILE", help="Rows of text and label to score.", show_default=False)
]
ExampleFile = Annotated[
    str | None, typer.Option("--examples", metavar="FILE", help="Rows that shots are drawn from.", show_default=False)
]
CorpusName = Annotated[
    str | None,
    typer.Option("--corpus", metavar="NAME", help="Take both from a corpus by name.", show_default=False),
]
Split = Annotated[
    str | None, typer.Option("--split", help="The split of --corpus to score; otherwise test.", show_default=False)
]
Columns = Annotated[
    str | None,
    typer.Option("--columns", metavar="TEXT,LABEL", help="The two columns, by name or number.", show_default=False),
]
TemplateName = Annotated[
    str, typer.Option("--template", metavar="NAME|TEXT|FILE", help="plain, question, translate, tldr …, or your own.")
]
Separator = Annotated[
    str | None,
    typer.Option("--separator", metavar="TEXT", help="What stands between examples.", show_default=False),
]
Instruction = Annotated[
    str | None, typer.Option("--instruction", metavar="TEXT", help="What stands before them.", show_default=False)
]
Labels = Annotated[
    str | None,
    typer.Option("--labels", metavar="A,B", help="The labels; otherwise those of the rows.", show_default=False),
]
Relabel = Annotated[
    str | None,
    typer.Option(
        "--relabel", metavar="X,Y,Z", help="Words that stand for the labels, drawn again for every text.",
        show_default=False,
    ),
]  # fmt: skip
Shots = Annotated[str, typer.Option("--shots", metavar="0,1,4", help="How many examples each prompt has.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Another number draws other examples.")]
Calibrate = Annotated[str, typer.Option("--calibrate", help="none, length or prior: what is taken off a label.")]
Limit = Annotated[
    int | None, typer.Option("--limit", metavar="N", help="Score the first N rows only.", show_default=False)
]
Figure = Annotated[
    Path | None,
    typer.Option("--figure", metavar="FILE", help="Draw the score by shots: .png, .svg.", show_default=False),
]
Completed = Annotated[
    Path | None,
    typer.Option(
        "--completed", metavar="FILE", help="Write the examples in words, a line each, to fine-tune on; do no more.",
        show_default=False,
    ),
]  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """The scores of one run with one number of shots."""

    run: str
    parameters: int
    shots: int
    scores: list[Score]
    dropped: int
    """Examples that were left out of prompts, over all of them, for they did not fit."""


def command(
    runs: Runs,
    text: Text = None,
    data: DataFile = None,
    examples: ExampleFile = None,
    corpus: CorpusName = None,
    split: Split = None,
    columns: Columns = None,
    template: TemplateName = "plain",
    separator: Separator = None,
    instruction: Instruction = None,
    labels: Labels = None,
    relabel: Relabel = None,
    shots: Shots = "0",
    seed: Seed = 1,
    calibrate: Calibrate = "none",
    limit: Limit = None,
    figure: Figure = None,
    completed: Completed = None,
    search: Search = None,
    json: Json = False,
    plugin: Plugin = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Let language models classify, answer, translate or sum up after zero, one or a few examples.

    A label is chosen by how probable the model finds it after the prompt; templates such as translate let the model
    write. Answers to --text are printed; rows of --data or --corpus are scored, a table by runs and shots.
    """
    from mallang.tasks.templates import read_template

    add_plugins(plugin)
    made, counts, options = read_template(template, separator, instruction), read_shots(shots), read_search(search)
    if completed is not None:
        check_completed({
            "--text": text, "--data": data, "--corpus": corpus if examples else None, "--split": split,
            "--separator": separator, "--instruction": instruction, "--labels": labels, "--relabel": relabel,
            "--shots": counts != [0], "--calibrate": calibrate != "none", "--limit": limit is not None,
            "--figure": figure, "--search": search, "--json": json,
        })  # fmt: skip
        return write_completed(completed, made, list(rows_of(examples, corpus, "train", columns)), quiet=quiet)
    check(text, data, examples, corpus, split, counts, figure, limit)
    check_answers(text, examples, corpus, labels, counts, options, writes=made.answer == "write")
    # Without shots they tell which labels there are.
    pool = list(rows_of(examples, corpus, "train", columns)) if any(counts) or examples or (text and corpus) else []
    rows = [] if text else list(rows_of(data, corpus, split or "test", columns))[:limit]
    names = read_list(labels, "--labels") if labels else sorted({row.label for row in (*pool, *rows)})
    asked = Asked(made, names, calibrate, read_list(relabel, "--relabel"), seed, options)
    if text:
        return answer(runs, text, pool, counts, asked, device=device, json=json, quiet=quiet)
    measured = measure_all(runs, rows, pool, counts, asked, device=device, quiet=quiet or json)
    show(measured, json=json)
    return None if figure is None else draw(measured, figure, quiet=quiet)


@dataclass(frozen=True)
class Asked:
    """What is asked of every run."""

    template: Template
    labels: Sequence[str]
    calibration: str
    relabel: Sequence[str]
    seed: int
    search: dict[str, Any]

    def prompter(self, model: Any) -> Prompter:
        """A run with this template and these labels."""
        from mallang.tasks.prompting import Prompter

        options: dict[str, Any] = {"calibration": self.calibration, "relabel": self.relabel, "seed": self.seed}
        return Prompter(model, self.template, [] if self.template.answer == "write" else self.labels, **options)

    def answers(self, model: Any, texts: Sequence[str], pool: Sequence[Example], count: int) -> list[Answer]:
        """The answers of a run."""
        prompter = self.prompter(model)
        if self.template.answer == "write":
            return prompter.write(texts, pool, count, **self.search)
        return prompter.choose(texts, pool, count)


def check(
    text: Sequence[str] | None, data: str | None, examples: str | None, corpus: str | None, split: str | None,
    counts: Sequence[int], figure: Path | None, limit: int | None,
) -> None:  # fmt: skip
    """Refuse what cannot be done, or would have no effect, before a model is loaded."""
    from mallang.inspection.figures import check_format

    if corpus is not None and (data is not None or examples is not None):
        raise UserError("--corpus and files were both given", todo="give --corpus, or --data and --examples")
    if split is not None and (corpus is None or text):
        raise UserError(f"--split {split} has no effect without rows of a corpus to score", todo="leave it out")
    if text and (data is not None or figure is not None or limit is not None):
        raise UserError("--text is answered, not scored", todo="leave out --data, --figure and --limit")
    if text and len(counts) > 1:
        raise UserError("--text is answered with one number of shots", todo="--shots 4")
    if limit is not None and limit < 1:
        raise UserError(f"--limit {limit}: there is nothing to score", todo="--limit 100")
    if figure is not None:
        check_format(figure)


def check_answers(
    text: Sequence[str] | None, examples: str | None, corpus: str | None, labels: str | None,
    counts: Sequence[int], searched: dict[str, Any], *, writes: bool,
) -> None:  # fmt: skip
    """Refuse what has no effect where labels are chosen, where answers are written, or where there are no shots."""
    if searched and not writes:
        raise UserError(
            "--search has no effect where labels are chosen", todo="a template that writes, or leave it out"
        )
    if labels is not None and writes:
        raise UserError("--labels has no effect where answers are written", todo="leave it out")
    if max(counts) == 0 and (writes or labels is not None):
        for name, value in (("--examples", examples), ("--corpus", corpus if text else None)):
            if value is not None:
                raise UserError(f"{name} {value} has no effect without shots", todo="--shots 4, or leave it out")


def check_completed(given: Mapping[str, Any]) -> None:
    """Refuse options that have no effect where examples are written out."""
    for name, value in given.items():
        if value:
            raise UserError(f"{name} has no effect with --completed, which writes examples out", todo="leave it out")


def read_shots(text: str) -> list[int]:
    """The numbers in a text such as 0,1,4."""
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = [-1]
    if min(found) < 0 or len(set(found)) < len(found):
        raise UserError(f"--shots {text!r} are no numbers of examples", todo="--shots 0,1,2,4,8")
    return found


def read_list(text: str | None, option: str) -> list[str]:
    """Words with commas between."""
    found = [word.strip() for word in text.split(",")] if text is not None else []
    if "" in found or len(set(found)) < len(found):
        raise UserError(f"{option} {text!r} must be different words with commas between", todo=f"{option} good,bad")
    return found


def rows_of(file: str | None, corpus: str | None, split: str, columns: str | None) -> Iterator[Example]:
    """The texts and labels of a file, or of a split of a corpus."""
    from mallang.data.corpus import Config, open_corpus
    from mallang.tasks.prompting import Example

    given: list[str | int] | None = None if columns is None else list(read_list(columns, "--columns"))
    if file is None and corpus is None:
        what = "--examples FILE" if split == "train" else "--text TEXT, or --data FILE"
        raise UserError("there are no examples" if split == "train" else "there is nothing to answer", todo=what)
    if file is not None:
        config, split = Config(corpus=None, train=file, columns=given), "train"
    else:
        config = Config(corpus=corpus, columns=given)
    for text, label in open_corpus(config, ("text", "label")).split(split):
        if text.strip() and label.strip():
            yield Example(text.strip(), label.strip())


def answer(
    runs: Sequence[Path], texts: Sequence[str], pool: Sequence[Example], counts: Sequence[int], asked: Asked,
    *, device: str, json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Print the answer of each run to each text."""
    for run in runs:
        model = load_for(run, "language_modeling", "prompt", device)
        for found in asked.answers(model, texts, pool, counts[0]):
            if json:
                print(json_format.dumps({"run": str(run), **asdict(found)}, ensure_ascii=False), flush=True)
                continue
            print(f"{run}\t{found}" if len(runs) > 1 else found, flush=True)
            if found.unknown and not quiet:
                told = f"unknown to the model, and read as <unk>: {some_of(found.unknown)}"
                typer.echo(f"note: {found.text[:40]!r}: {told}", err=True)
            if found.dropped and not quiet:
                typer.echo(f"note: {found.text[:40]!r}: {told_dropped(found.dropped)[2:]}", err=True)


def measure_all(
    runs: Sequence[Path], rows: Sequence[Example], pool: Sequence[Example], counts: Sequence[int], asked: Asked,
    *, device: str, quiet: bool,
) -> list[Measured]:  # fmt: skip
    """The scores of all runs; each is reported as soon as it is known, with what the run does not know."""
    measured = []
    for run in runs:
        model = load_for(run, "language_modeling", "prompt", device)
        for each in measure(run, model, rows, pool, counts, asked):
            measured.append(each)
            if not quiet:
                typer.echo(f"{run}, {each.shots} shots: {each.scores[0]}{told_dropped(each.dropped)}", err=True)
        if not quiet:
            note_unknown(str(run), [row.text for row in rows], model.tokenizer, model.model)
    return measured


def measure(
    run: Path, model: Any, rows: Sequence[Example], pool: Sequence[Example], counts: Sequence[int], asked: Asked
) -> Iterator[Measured]:
    """The scores of a run with each number of shots."""
    from mallang.tasks.prompting import accuracy, written_quality

    parameters = sum(weight.numel() for weight in model.model.parameters())
    for count in counts:
        answers = asked.answers(model, [row.text for row in rows], pool, count)
        wanted = [row.label for row in rows]
        if asked.template.answer == "write":
            scores = written_quality(answers, wanted)
        else:
            fresh = f"{len(asked.relabel)} words, fresh for every text" if asked.relabel else "own"
            about = f"shots:{count}|seed:{asked.seed}|calibration:{asked.calibration}|labels:{fresh}"
            scores = [accuracy(answers, wanted, f"{about}|template:{asked.template.shot}")]
        yield Measured(run.name, parameters, count, scores, sum(each.dropped for each in answers))


def show(measured: Sequence[Measured], *, json: bool) -> None:
    """A table: a line a run, a column a number of shots."""
    if json:
        print_json([{**asdict(each), "scores": [score.to_json() for score in each.scores]} for each in measured])
        return
    counts = list(dict.fromkeys(each.shots for each in measured))
    names = list(dict.fromkeys(each.run for each in measured))
    print("\t".join([measured[0].scores[0].name, "parameters", *(f"{count} shots" for count in counts)]))
    for name in names:
        own = [each for each in measured if each.run == name]
        cells = [f"{score.value:.1f} [{score.low:.1f}, {score.high:.1f}]" for score in (each.scores[0] for each in own)]
        print("\t".join([name, f"{own[0].parameters:,}", *cells]))
    for each in measured:
        if each.dropped:
            print(f"{each.run}, {each.shots} shots: {told_dropped(each.dropped)[2:]}")


def draw(measured: Sequence[Measured], figure: Path, *, quiet: bool) -> None:
    """The scores by shots as a figure, a line a run."""
    from mallang.inspection.shots_figure import draw_shots

    draw_shots(figure, [(each.run, each.parameters, each.shots, each.scores[0]) for each in measured])
    if not quiet:
        typer.echo(f"the figure is in {figure}", err=True)


def told_dropped(count: int) -> str:
    """What to say of examples that did not fit."""
    return f"; {count:,} examples did not fit into the context and were left out" if count else ""


def write_completed(path: Path, template: Template, pool: Sequence[Example], *, quiet: bool) -> None:
    """The examples in words, a line each: what a language model is trained on to learn the same by its weights."""
    name = template.called
    lines = [template.shot_of(row.text, name(row.label), name(row.label)).replace("\n", " ") for row in pool]
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    if not quiet:
        typer.echo(f"{len(lines)} lines in {path}: mallang train RECIPE --from RUN data.train={path}", err=True)
