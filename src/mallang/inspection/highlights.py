"""The words and sentences that a classifier attends to, for models that pool by attention.

    found = highlights_of(mallang.load("runs/han-imdb"), "Slow at first. The end is great!")
    found.label, found.sentences[1].weight, found.sentences[1].pieces[3].weight

Such a model has one weight per token (HAN, self-attentive), and HAN one per sentence too. A weight is shown on the text
that its token stands for; the weights of a sentence, that of `</s>` included, sum to one. As in the paper of HAN a word
is colored by √(weight of its sentence) · (its own weight), so that sentences without weight stay pale.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from torch import Tensor

from mallang import notebook
from mallang.data.columns import split_cell
from mallang.data.documents import sentence_rows
from mallang.decoding.contract import device_of, inference
from mallang.errors import UserError
from mallang.layers.attention import Observable, record_attention
from mallang.tasks.classifier import Verbs, batch_tokens
from mallang.text.tokenizer import Tokenizer

END = "</s>"
BETWEEN_TOKENS = ("self", "cross", "entity", "path", "pair")
"""Layers whose queries are tokens, or that read a graph; in all others the text has one query, or one per view."""


class Piece(NamedTuple):
    """A stretch of text with its attention weight."""

    text: str
    weight: float
    spaced: bool
    """Whether white space comes before it."""


@dataclass(frozen=True)
class Sentence:
    """A sentence, or a part of a long one: its pieces with their weights, and its own weight in the document."""

    pieces: tuple[Piece, ...]
    weight: float = 1.0

    def shades(self) -> list[float]:
        """How strongly each piece is colored: √(weight of the sentence) · weight."""
        return [math.sqrt(self.weight) * piece.weight for piece in self.pieces]


@dataclass(frozen=True)
class Highlights:
    """A text, its predicted label, and what the model attended to."""

    input: str
    label: str
    probability: float
    sentences: tuple[Sentence, ...]
    has_sentences: bool
    """Whether the model has weights of sentences; otherwise the text is a single one."""
    notes: tuple[str, ...] = ()
    """What must be known to read the weights."""
    signed: bool = False
    """Whether weights are attributions, which may be negative, and not attention."""

    def darkest(self) -> tuple[float, float]:
        """The largest shade of a piece, whatever its sign, and the largest weight of a sentence."""
        shades = [abs(shade) for sentence in self.sentences for shade in sentence.shades()]
        return max([1e-9, *shades]), max(sentence.weight for sentence in self.sentences)

    def _repr_html_(self) -> str:
        """In a notebook: the label, and every sentence with its words shaded."""
        most, _ = self.darkest()
        lines = (
            notebook.shaded(
                [(piece.text, shade / most) for piece, shade in zip(each.pieces, each.shades(), strict=True)],
                [f"{piece.weight:.4f}" for piece in each.pieces],
            )
            for each in self.sentences
        )
        return notebook.block(self.label, *lines)


class Row(NamedTuple):
    """A row of a batch: the text it was read from, where each token lies in it, and all weights."""

    text: str
    spans: list[tuple[int, int]]
    weights: list[float]
    """One for each token, and one for `</s>`."""
    sentence: float
    """The weight of the row in its document."""


class TextAttention(NamedTuple):
    """What a classifier made of a text."""

    label: str
    probability: float
    rows: list[Row]


def highlights_of(verbs: Any, texts: str | Sequence[str], *, head: str | None = None, words: bool = False) -> Any:
    """The highlights of a text, or of each; `head` is a view, from 1, else all count alike; `words` joins subwords."""
    given = [texts] if isinstance(texts, str) else list(texts)
    found = []
    for text, read in zip(given, text_attention(verbs, given, head=head), strict=True):
        sentences = [Sentence(tuple(pieces_of(row)), row.sentence) for row in read.rows]
        sentences = [replace(each, pieces=tuple(in_words(each.pieces))) for each in sentences] if words else sentences
        found.append(Highlights(text, read.label, read.probability, tuple(sentences), verbs.task.config.documents))
    return found[0] if isinstance(texts, str) else found


def pools_by_attention(verbs: Any) -> bool:
    """Whether a loaded model has one weight per token."""
    return isinstance(verbs, Verbs) and bool(pooling_layers(verbs.encoder))


def check_pooling(verbs: Any) -> Verbs:
    """The classifier, if it has one weight per token; other models are refused, before any computation."""
    if not isinstance(verbs, Verbs):
        raise UserError(
            f"a run for {verbs.task_name.replace('_', ' ')} has no label to explain", todo="use a classifier"
        )
    if not pooling_layers(verbs.encoder):
        name = type(verbs.encoder).__name__
        attends = any(isinstance(part, Observable) for part in verbs.encoder.modules())
        raise UserError(
            f"{name} does not pool by attention: no word has a weight" if attends else f"{name} has no attention",
            todo="use a classifier that pools by attention, such as han or self_attentive",
        )
    return verbs


def pooling_layers(model: Any) -> list[str]:
    """The names of the layers that pool by attention."""
    named = [name for name, part in model.named_modules() if isinstance(part, Observable)]
    return [name for name in named if level(name) not in BETWEEN_TOKENS]


def level(name: str) -> str:
    """What a layer attends to, by its name: `word`, `view`, `sentence`, or the tokens of `self` and `cross`."""
    return name.split(".")[-1].split(":")[0].removesuffix("_attention")


def text_attention(verbs: Any, texts: Sequence[str], *, head: str | None = None) -> list[TextAttention]:
    """What a classifier reads and attends to, for every text."""
    verbs = check_pooling(verbs)
    task, device = verbs.task, device_of(verbs.model)
    found: dict[int, list[Row]] = {}
    examples = verbs.examples(texts)
    with inference(verbs.model):
        for group, batch in task.batches(examples, batch_tokens(device)):
            with record_attention(verbs.encoder) as maps:
                task.logits(verbs.model, batch.to(device))
            of_tokens, of_sentences = weights_by_level(maps, head)
            for number, place in enumerate(group):
                rows = [number] if batch.sentences is None else batch.sentences[number].tolist()
                shares = [1.0] if of_sentences is None else of_sentences[number].tolist()
                spelled = spelled_rows(task, texts[place])
                found[place] = [
                    Row(text, spans, of_tokens[row, : len(spans) + 1].tolist(), share)
                    for (text, spans), row, share in zip(spelled, rows, shares, strict=False)
                ]
    labels = verbs.classify(texts)
    return [TextAttention(each.label, each.probability, found[place]) for place, each in enumerate(labels)]


def weights_by_level(
    maps: Mapping[str, Float[Tensor, "_ heads query _key"]], head: str | None
) -> tuple[Float[Tensor, "rows time"], Float[Tensor, "documents sentences"] | None]:
    """The weights of tokens, and those of sentences if there are any; views are averaged unless one is chosen."""
    of_tokens, of_sentences = None, None
    for name, weights in maps.items():
        if level(name) == "sentence":
            of_sentences = weights[:, 0, 0].float().cpu()
        elif level(name) not in BETWEEN_TOKENS:
            of_tokens = view_of(weights.flatten(1, 2).float().cpu(), head)
    assert of_tokens is not None
    return of_tokens, of_sentences


def view_of(weights: Float[Tensor, "rows views time"], head: str | None) -> Float[Tensor, "rows time"]:
    """One view, counted from 1, or the mean of all."""
    if head is None or head == "mean":
        return weights.mean(dim=1)
    if not head.isdecimal() or not 1 <= int(head) <= weights.shape[1]:
        raise UserError(
            f"there is no head {head!r} in a layer of {weights.shape[1]}", todo="give 1 for the first, or mean"
        )
    return weights[:, int(head) - 1]


def spelled_rows(task: Any, text: str) -> list[tuple[str, list[tuple[int, int]]]]:
    """The rows of a text as they are read: the sentence each is from, and where its tokens lie in that."""
    if not task.config.documents:
        return [(text, spans_of(task.text, text)[: task.config.max_tokens or None])]
    sentences = split_cell(text, "document")
    spans = [spans_of(task.text, sentence) or [(0, len(sentence))] for sentence in sentences]  # one `<unk>`
    owners = np.repeat(np.arange(len(spans)), [len(each) for each in spans])
    starts = np.cumsum([0, *map(len, spans)])[:-1]
    rows = sentence_rows(np.arange(len(owners)), starts, task.config.max_words, task.config.max_sentences)
    return [
        (sentences[owners[row[0]]], [spans[owners[row[0]]][place - starts[owners[row[0]]]] for place in row])
        for row in rows
    ]


def spans_of(tokenizer: Tokenizer, text: str) -> list[tuple[int, int]]:
    """Where each token of a text begins and ends, without the white space around it."""
    found = []
    for begin, end in tokenizer.encode(text).offsets:
        own = text[begin:end]
        found.append((begin + len(own) - len(own.lstrip()), max(begin, end - len(own) + len(own.rstrip()))))
    return found


def pieces_of(row: Row) -> Iterator[Piece]:
    """The pieces of a row in order, `</s>` last; tokens that share a character make one piece, with their sum."""
    text, weight, end, begin = "", 0.0, None, 0
    for (first, last), own in zip(row.spans, row.weights, strict=False):
        if end is not None and (last <= first or first < end):
            weight, end = weight + own, max(end, last)
            text = row.text[begin:end]
            continue
        if end is not None:
            yield Piece(text, weight, begin > 0 and row.text[begin - 1].isspace())
        begin, end, weight = first, last, own
        text = row.text[begin:end]
    if end is not None:
        yield Piece(text, weight, begin > 0 and row.text[begin - 1].isspace())
    yield Piece(END, row.weights[-1], True)


def in_words(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """Pieces with no white space between them as one, with the sum of their weights."""
    word: Piece | None = None
    for piece in pieces:
        if word is not None and not piece.spaced:
            word = Piece(word.text + piece.text, word.weight + piece.weight, word.spaced)
            continue
        if word is not None:
            yield word
        word = piece
    if word is not None:
        yield word


def as_plain(found: Highlights) -> dict[str, Any]:
    """Highlights as plain values: for every sentence its weight, its tokens and their weights."""
    sentences = [
        {
            "weight": round(each.weight, 6),
            "tokens": [piece.text for piece in each.pieces],
            "weights": [round(piece.weight, 6) for piece in each.pieces],
        }
        for each in found.sentences
    ]
    return {"input": found.input, "output": found.label, "score": found.probability, "sentences": sentences}
