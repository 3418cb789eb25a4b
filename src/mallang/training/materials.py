"""What a training run reads: tokenizers, sets of labels, and the splits as arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mallang.data.choices import plain_text
from mallang.data.columns import NAMED, TOKENIZED, Kind, LabelSet, split_cell
from mallang.data.corpus import Corpus, Rows, open_corpus
from mallang.data.filters import Filters
from mallang.data.first_rows import First
from mallang.data.header import check_header
from mallang.data.held_out import HeldOut
from mallang.data.knowledge import Graph, as_token
from mallang.data.mixture import prepare_split
from mallang.data.prepared import Prepared
from mallang.data.roles import lemma_forms
from mallang.data.unpaired import Unpaired, check_languages
from mallang.decoding.contract import DEFAULTS
from mallang.errors import UserError, nearest
from mallang.find import find
from mallang.models.contract import marks_of
from mallang.recipe import Recipe
from mallang.runs.files import unwritable
from mallang.runs.folder import Run
from mallang.runs.given import Given, locate, open_given
from mallang.tasks.contract import (
    Distilling,
    Labeled,
    Task,
    TextLayout,
    column_kinds,
    make_task,
    special_tokens,
    text_columns,
)
from mallang.tasks.finetuning import FineTuned, frame_marks_of
from mallang.tasks.graphs import graph_for, lender
from mallang.tasks.own_input import ReadsUnpaired
from mallang.text.added_words import with_special_tokens
from mallang.text.tokenizer import Tokenizer
from mallang.training.pretrained import with_extra_words


@dataclass(frozen=True)
class Materials:
    """Prepared data: the task with its tokenizers, and the splits as arrays."""

    task: Task
    corpus: Corpus
    train: Prepared
    valid: Prepared
    labels: Mapping[str, LabelSet] = field(default_factory=dict)
    given: Mapping[str, Given] = field(default_factory=dict)
    graph: Graph | None = None


def prepare_data(
    recipe: Recipe, folder: Path | None, start: Path | None = None, say: Callable[[str], None] = lambda text: None
) -> Materials:
    """Open the corpus, learn or load the tokenizers, turn the text into arrays."""
    kind = find("tasks", recipe.task_name).Task
    check_metric(recipe, kind.metrics)
    check_search(recipe, kind.unread)
    corpus = open_corpus(recipe.data, kind.columns)
    rows, held_out_rows = corpus.split("train"), corpus.split("valid")
    check_unpaired(recipe, kind, rows)
    for note in corpus.notes:
        say(note)
    kinds = column_kinds(kind, recipe.task)
    texts = text_columns(kind, recipe.task)
    if folder is not None and (folder / "tokenizer.json").exists():
        tokenizers = Run.open(folder).tokenizers(texts)
    elif start is not None:
        tokenizers = tokenizers_of(start, recipe, texts)
    elif issubclass(kind, Distilling):
        tokenizers = tokenizers_of(teacher_of(kind, recipe), recipe, texts)
    elif (name := lender(kind, recipe.given)) is not None:
        tokenizers = tokenizers_of(locate(name, recipe.given[name]).folder, recipe, texts)
    else:
        tokenizers = with_extra_words(recipe, learn_tokenizers(recipe, rows, kind.columns, kinds))
    check_special(recipe, tokenizers, start)
    labels = label_sets(folder, rows, kinds, recipe.data.header)
    if folder is not None and not (folder / "tokenizer.json").exists():
        save_tokenizers(folder, tokenizers)
    given = open_given(recipe.given, None if folder is None else Run.open(folder))
    graph = graph_for(kind, recipe.task, folder)
    if graph is not None:
        say(f"graph: {graph.note()}")
    task = make_task(kind, recipe.task, tokenizers, labels, given, graph)
    filters, anything = task.filters(recipe.data) if isinstance(task, TextLayout) else usual_filters(recipe.data)
    chosen = task.arrays() if isinstance(task, Labeled) else [tokenizers[column] for column in kind.columns]
    tags = tokenizers[texts[0]].domains
    prepared = prepare_split(rows, chosen, filters, tags)
    say(str(prepared.account))
    held_out = prepare_split(held_out_rows, chosen, anything, tags)
    return Materials(task, corpus, prepared, held_out, labels, given, graph)


def check_unpaired(recipe: Recipe, kind: type[Any], rows: Rows) -> None:
    """Refuse unpaired text where the task needs pairs, and unpaired text of one language."""
    if recipe.data.unpaired == "no":
        return
    if not (issubclass(kind, ReadsUnpaired) and kind.reads_unpaired()):
        raise UserError(
            f"data.unpaired = {recipe.data.unpaired!r} has no effect: {recipe.task_name} reads no unpaired text",
            todo="data.unpaired=no, or task.name=unsupervised-translation",
        )
    for part in rows.parts:
        source = part.source.whole if isinstance(part.source, First) else part.source
        source = source.files if isinstance(source, HeldOut) else source
        if isinstance(source, Unpaired):
            check_languages(source, part.name)


def teacher_of(kind: type[Distilling], recipe: Recipe) -> Path:
    """The folder of the run that a model learns from."""
    name = kind.learns_from()
    if name not in recipe.given:
        raise UserError(f"{recipe.task_name} learns from another run", todo=f"given.{name}=runs/NAME")
    return locate(name, recipe.given[name]).folder


def label_sets(
    folder: Path | None, rows: Rows, kinds: Mapping[str, Kind], header: bool | None = None
) -> dict[str, LabelSet]:
    """The labels of every column that has some: of the run folder, or else those of the training rows.

    `header` is what the recipe says of the first line of a table.
    """
    found: dict[str, LabelSet] = {}
    for column, kind in kinds.items():
        if kind not in NAMED:
            continue
        if folder is not None and (folder / f"labels.{column}.json").exists():
            found[column] = LabelSet.load(folder, column)
            continue
        place = rows.columns.index(column)
        cells: Iterable[str] = (row[place] for row in rows)
        if kind == "predicates":  # a lemma is kept with its forms
            words = rows.columns.index("words")
            cells = (lemma_forms(row[words], row[place]) for row in rows)
        found[column] = LabelSet.learn(cells, kind, column)
        check_header(rows, column, found[column], header)
        if folder is not None:
            try:
                found[column].save(folder, column)
            except OSError as error:
                raise unwritable(folder, error) from error
    return found


def usual_filters(data: Any) -> tuple[Filters, Filters]:
    """The filters of training rows, and of validation rows: of these only what the model cannot read is dropped."""
    some = Filters(
        min_length=data.min_length,
        max_length=data.max_length,
        max_ratio=data.max_ratio,
        drop_duplicates=data.drop_duplicates,
    )
    return some, Filters(min_length=0, max_length=data.max_length, max_ratio=0.0, drop_empty=False)


def tokenizers_of(start: Path, recipe: Recipe, columns: tuple[str, ...]) -> dict[str, Tokenizer]:
    """The tokenizers of the run to start from; its weights are only valid with them."""
    run = Run.open(start)
    theirs, ours = asdict(run.recipe().text), asdict(recipe.text)
    changes = [f"text.{key}: {theirs[key]} → {ours[key]}" for key in ours if theirs[key] != ours[key]]
    if changes:
        raise UserError(
            f"a run that starts or learns from {start} keeps its tokenizer, but the recipe wants another:\n  "
            + "\n  ".join(changes),
            todo=f"take the recipe of that run: mallang train {start} --from {start} data.train=…",
        )
    return {column: with_frame_marks(recipe, each) for column, each in run.tokenizers(columns).items()}


def with_frame_marks(recipe: Recipe, tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer of a run with the special tokens that its model reads under the head of a task alone."""
    known = dict(tokenizer.vocabulary.optional)
    missing = [name for name in frame_marks(recipe) if name not in known]
    return with_special_tokens(tokenizer, missing) if missing else tokenizer


def frame_marks(recipe: Recipe) -> tuple[str, ...]:
    """The special tokens that the model reads around texts where the task puts a head on it, and those of that task."""
    task = find("tasks", recipe.task_name).Task
    has_head = issubclass(task, FineTuned) and task.puts_head(recipe.task)
    if not has_head:
        return ()
    return (*frame_marks_of(find("models", recipe.model_name).Model), *special_tokens(task, recipe.task))


def special_of(recipe: Recipe) -> tuple[str, ...]:
    """The special tokens beyond the usual four: those of the task, then those of the model."""
    task = special_tokens(find("tasks", recipe.task_name).Task, recipe.task)
    model = marks_of(find("models", recipe.model_name).Model)
    return tuple(dict.fromkeys((*task, *model, *frame_marks(recipe))))


def check_special(recipe: Recipe, tokenizers: Mapping[str, Tokenizer], start: Path | None) -> None:
    """Refuse tokenizers without the special tokens of the task and the model."""
    marks = marks_of(find("models", recipe.model_name).Model)
    for tokenizer in tokenizers.values():
        known = dict(tokenizer.vocabulary.optional)
        if missing := [name for name in special_of(recipe) if name not in known]:
            needing = recipe.model_name if missing[0] in marks else recipe.task_name
            raise UserError(
                f"{needing} needs the special token {missing[0]!r}, which the tokenizer"
                f"{f' of {start}' if start else ''} does not have",
                todo="leave --from out, or start from a run of a task or a model that needs it too",
            )


def check_metric(recipe: Recipe, metrics: Iterable[str]) -> None:
    """Refuse a metric that the task does not have, before any work is done."""
    if recipe.train.metric not in metrics:
        raise UserError(
            f"train.metric = {recipe.train.metric!r} is not a metric of {recipe.task_name}",
            todo=nearest(recipe.train.metric, metrics),
        )


def check_search(recipe: Recipe, unread: Iterable[str]) -> None:
    """Refuse search options that this task would never read, before any work is done."""
    for name in unread if recipe.decoding is not None else ():
        if (value := getattr(recipe.decoding, name)) != DEFAULTS[name]:
            raise UserError(
                f"decoding.{name} = {value} has no effect: {recipe.task_name} has no source", todo=f"leave {name} out"
            )


def learn_tokenizers(
    recipe: Recipe, rows: Rows, columns: tuple[str, ...], kinds: Mapping[str, Kind] | None = None
) -> dict[str, Tokenizer]:
    """Train the tokenizers on an even sample of the training rows; the first column has the tags of domains."""
    kinds = kinds or {}
    texts = [place for place, column in enumerate(columns) if kinds.get(column, "text") in TOKENIZED]
    sample = [
        tuple(spaced(row[place], kinds.get(columns[place])) for place in texts)
        for row in thin(rows, recipe.text.sample)
    ]
    domains = tuple(dict.fromkeys((recipe.data.domains or {}).values()))
    names = [columns[place] for place in texts]
    special = special_of(recipe)
    if recipe.text.shared:
        shared = Tokenizer.train((text for row in sample for text in row), recipe.text, domains, special)
        return dict.fromkeys(names, shared)
    return {
        column: Tokenizer.train(
            (row[place] for row in sample), recipe.text.side(column), () if place else domains, special
        )
        for place, column in enumerate(names)
    }


def spaced(cell: str, kind: Kind | None) -> str:
    """A cell as the text that a tokenizer learns from: words and choices have spaces between them, a name has none."""
    if kind == "choices":
        return plain_text(cell)
    if kind == "name":
        return as_token(cell)
    return " ".join(split_cell(cell, kind)) if kind in ("words", "sentences") else cell


def save_tokenizers(folder: Path, tokenizers: Mapping[str, Tokenizer]) -> None:
    """Save the tokenizers; `tokenizer.json`, the last column's, comes last: once it is there, all are there."""
    names = list(tokenizers)
    try:
        for column in names[:-1]:
            if tokenizers[column] is not tokenizers[names[-1]]:
                tokenizers[column].save(folder, f"tokenizer.{column}")
        tokenizers[names[-1]].save(folder)
    except OSError as error:
        raise unwritable(folder, error) from error


def thin(rows: Iterable[tuple[str, ...]], most: int) -> list[tuple[str, ...]]:
    """Every k-th row, k a power of two, so that at most `most` are kept: one pass, bounded memory."""
    kept: list[tuple[str, ...]] = []
    stride = 1
    for number, row in enumerate(rows):
        if number % stride == 0:
            kept.append(row)
            if len(kept) > most:
                kept, stride = kept[::2], stride * 2
    return kept
