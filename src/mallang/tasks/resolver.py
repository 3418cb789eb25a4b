"""The verbs of a trained model of coreference: the clusters of a text, and scores."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from mallang import notebook
from mallang.data.batch import Batch
from mallang.data.coreference import Clusters, Mention, Mentions, read_clusters, read_sentences
from mallang.data.sampler import by_length
from mallang.decoding.contract import device_of, inference
from mallang.errors import UserError
from mallang.evaluation.coreference import coreference_scores, renamed, without_singletons
from mallang.evaluation.score import Score
from mallang.layers.head import Headed
from mallang.layers.spans import SpanScores
from mallang.tasks.contract import Evaluated
from mallang.tasks.document_parts import Part, part_of
from mallang.tasks.out_of_vocabulary import forget_oov, ids_to_read
from mallang.text.sentences import split_sentences
from mallang.text.words import Word, joined, split_words

if TYPE_CHECKING:
    from mallang.tasks.coreference import Task

BATCH_WORDS = 4096
"""Padded words per batch of inference."""


@dataclass(frozen=True)
class MentionSpan:
    """A mention, and where it is in the text."""

    text: str
    start: int
    end: int
    """The first character, and the first one after it."""
    words: Mention
    """The first and the last word."""


@dataclass(frozen=True)
class Resolution:
    """The words of a text, and which of them mean the same."""

    input: str
    words: tuple[str, ...]
    offsets: tuple[tuple[int, int], ...]
    """Where each word is in the text: the first character, and the first one after it."""
    clusters: tuple[tuple[MentionSpan, ...], ...]
    """In the order of their first mentions."""

    def __str__(self) -> str:
        opens, closes = dict[int, str](), dict[int, str]()
        spans = [(each, number) for number, cluster in enumerate(self.clusters, start=1) for each in cluster]
        for each, number in sorted(spans, key=lambda span: span[0].start - span[0].end):
            opens[each.start] = opens.get(each.start, "") + "["
            closes[each.end] = f"]{number}" + closes.get(each.end, "")
        places = sorted({0, len(self.input), *opens, *closes})
        pieces = [self.input[begin:end] for begin, end in zip(places, [*places[1:], len(self.input)], strict=True)]
        return "".join(
            closes.get(place, "") + opens.get(place, "") + piece for place, piece in zip(places, pieces, strict=True)
        )

    def _repr_html_(self) -> str:
        rows = [(number, " = ".join(each.text for each in one)) for number, one in enumerate(self.clusters, start=1)]
        return notebook.block(str(self), notebook.table(("", "the same"), rows) if rows else "")


class Verbs:
    """A trained model of coreference."""

    task_name = "coreference"
    verbs = ("coref", "evaluate")
    compared_by = ("CoNLL F1",)

    def __init__(self, task: Task, model: Any, config: None, max_length: int) -> None:
        self.task, self.model, self.config, self.max_length = task, model, config, max_length

    def coref(self, texts: str | Iterable[str | Sequence[Sequence[str]]]) -> Any:
        """The clusters of a text, or of each of several; one that is a list of sentences of words is read as it is."""
        alone = isinstance(texts, str)
        given = [texts] if isinstance(texts, str) else list(texts)
        documents = [self.sentences(each) for each in given]
        inputs = [each if isinstance(each, str) else " ".join(word for line in each for word in line) for each in given]
        found = self.clusters([[[word.text for word in line] for line in lines] for lines in documents])
        results = [resolution(*each) for each in zip(inputs, documents, found, strict=True)]
        return results[0] if alone else results

    def sentences(self, document: str | Sequence[Sequence[str]]) -> list[list[Word]]:
        """The words of each sentence with their places in the whole."""
        if not isinstance(document, str):
            whole = iter(joined([word for line in document for word in line]))
            return [[next(whole) for _ in line] for line in document if line]
        found, begin = [], 0
        for sentence in split_sentences(document):
            begin = document.index(sentence, begin)
            words = split_words(sentence, self.task.config.split)
            found.append([Word(text, begin + start, begin + end) for text, start, end in words])
            begin += len(sentence)
        return [line for line in found if line]

    def clusters(self, documents: Sequence[Sequence[Sequence[str]]]) -> list[Clusters]:
        """The clusters of documents, each given as sentences of words."""
        return predict(self.task, self.model, documents)[0]

    @property
    def evaluated(self) -> Evaluated:
        """What `evaluate` gives for each row."""
        return "clusters"

    def evaluate(self, rows: Sequence[tuple[str, ...]], **options: Any) -> tuple[list[Score], list[str]]:
        """MUC, B³, CEAFe and their mean, with and without singletons; and the clusters of every document as JSON."""
        if options := {name: value for name, value in options.items() if value is not None}:
            raise UserError(f"{next(iter(options))} has no effect on coreference", todo="leave it out")
        documents, golds = read_rows(rows)
        found = self.clusters(documents)
        scores = [*coreference_scores(found, golds).values()]
        linked = coreference_scores(*([without_singletons(each) for each in side] for side in (found, golds)))
        return [*scores, *renamed(linked.values(), "without singletons")], [json.dumps(each) for each in found]


def resolution(text: str, sentences: list[list[Word]], clusters: Clusters) -> Resolution:
    """The result for a text."""
    words = [word for line in sentences for word in line]

    def span(mention: Mention) -> MentionSpan:
        start, end = words[mention[0]].start, words[mention[1]].end
        return MentionSpan(text[start:end], start, end, mention)

    return Resolution(
        text,
        tuple(word.text for word in words),
        tuple((word.start, word.end) for word in words),
        tuple(tuple(map(span, cluster)) for cluster in clusters),
    )


def read_rows(rows: Sequence[tuple[str, ...]]) -> tuple[list[list[list[str]]], list[Clusters]]:
    """The sentences and the gold clusters of rows; an error names the row."""
    documents, golds = [], []
    for number, (sentences, clusters) in enumerate(rows, start=1):
        try:
            documents.append(read_sentences(sentences))
            golds.append(read_clusters(clusters, sum(map(len, documents[-1]))))
        except UserError as error:
            raise UserError(error.what, where=f"row {number}", todo=error.todo) from error
    return documents, golds


def predict(
    task: Task,
    model: nn.Module,
    documents: Sequence[Sequence[Sequence[str]]],
    golds: Sequence[Clusters] | None = None,
) -> tuple[list[Clusters], float]:
    """The clusters of every document, and the summed loss of the gold ones; unknown words are read by their letters."""
    parts = list(parts_of(task, model, documents, golds))
    clusters: list[Clusters] = [()] * len(parts)
    loss, device = 0.0, device_of(model)
    read = [place for place, part in enumerate(parts) if len(part.words)]
    widths = [max(end - begin for begin, end in parts[place].bounds) for place in read]
    with inference(model):
        for group in by_length(widths, BATCH_WORDS, rows=[len(parts[place].bounds) for place in read]) if read else ():
            places = [read[each] for each in group]
            batch: Batch = task.collate([parts[place] for place in places]).to(device)
            scored = task.scores(model, batch)
            loss += float(task.loss_of(scored, batch).sums["loss"]) if golds is not None else 0.0
            for place, found in zip(places, linked(scored, task.config.singletons), strict=True):
                clusters[place] = found
    return clusters, loss


def parts_of(
    task: Task,
    model: nn.Module,
    documents: Sequence[Sequence[Sequence[str]]],
    golds: Sequence[Clusters] | None,
) -> Iterator[Part]:
    """Documents as the model reads them, each whole."""
    inner = model.model if isinstance(model, Headed) else model
    forget_oov(inner)
    flat = [[word for line in lines for word in line] for lines in documents]
    words = list(dict.fromkeys(word for each in flat for word in each))
    read = ids_to_read(inner, task.text, words, task.segments.ids_of([words])[0]) if words else []
    known = dict(zip(words, read, strict=True))
    features = [[]] * len(flat) if task.features is None else task.features.ids_of(flat)
    for number, lines in enumerate(documents):
        starts = np.cumsum([0, *map(len, lines)])[:-1]
        mentions = [] if golds is None else Mentions().flat(golds[number])
        arrays: list[Any] = [np.array([known[word][0] for word in flat[number]], np.int64), starts, mentions]
        if task.features is not None:
            tokens = features[number]
            arrays += [np.array([each for word in tokens for each in word], np.int64)]
            arrays += [np.cumsum([0, *map(len, tokens)])[:-1]]
        yield part_of(arrays, task.config.window)


def linked(scored: SpanScores, singletons: bool) -> Iterator[Clusters]:
    """The clusters of every document: each span is linked to its best antecedent, or to none."""
    best, spans = scored.antecedents.argmax(dim=2).tolist(), scored.spans.tolist()
    starts = scored.spans[:, :, 0] * scored.mentions.shape[2] + scored.spans[:, :, 1] - scored.spans[:, :, 0]
    is_mention = (scored.mentions.flatten(1).gather(1, starts) > 0).tolist()
    for number, counted in enumerate(scored.is_kept.sum(dim=1).tolist()):
        clusters: list[list[Mention]] = []
        owner: list[int] = []
        for place in range(counted):
            back = best[number][place]
            if back:
                owner.append(owner[place - back])
            else:
                owner.append(len(clusters))
                clusters.append([])
            first, last = spans[number][place]
            clusters[owner[-1]].append((first, last))
        alone = {owner[place] for place in range(counted) if singletons and is_mention[number][place]}
        yield tuple(tuple(each) for which, each in enumerate(clusters) if len(each) > 1 or which in alone)


def validation_scores(task: Task, model: nn.Module, rows: Sequence[tuple[str, ...]]) -> list[Score]:
    """The loss per word, the mean of MUC, B³ and CEAFe, and the F1 of mentions of held-out documents."""
    documents, golds = read_rows(rows)
    found, loss = predict(task, model, documents, golds)
    # Captured CUDA graphs read the tables of the vocabulary, so these are put back before training continues.
    forget_oov(model.model if isinstance(model, Headed) else model, 0)
    if task.features is not None:
        task.features.forget()
    words = sum(len(line) for lines in documents for line in lines)
    sides: list[Any] = [found, golds]
    if not task.config.singletons:
        sides = [[without_singletons(each) for each in side] for side in sides]
    scores = coreference_scores(*sides)
    named = {"conll_f1": scores["CoNLL F1"], "mention_f1": scores["mention F1"]}
    return [
        Score("loss", loss / max(1, words), "nats per word", count=len(golds)),
        *(Score(name, each.value, each.signature, each.low, each.high, each.count) for name, each in named.items()),
    ]
