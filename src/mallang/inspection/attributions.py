"""Attributions as highlights: every stretch of text with its signed weight."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mallang.errors import UserError
from mallang.inspection.forward_pass import parts_of
from mallang.inspection.highlights import Highlights, Piece, Row, Sentence, in_words, pieces_of, spelled_rows
from mallang.tasks import answerer, chooser, classifier
from mallang.tasks.attribution import AttributedRow, Attribution, Method
from mallang.tasks.contract import Attributing

Spelled = tuple[str, list[tuple[int, int]]]
"""A text, and where each token lies in it."""


def attributions_of(verbs: Any, texts: Sequence[Any], method: Method, label: str | None = None) -> list[Attribution]:
    """The attributions of texts, or of pairs, by a loaded run; of a tagger one per word."""
    if not isinstance(verbs, Attributing):
        name = verbs.task_name.replace("_", " ")
        raise UserError(
            f"a run for {name} has no score to attribute",
            todo="use a run that classifies, tags, compares, answers or chooses",
        )
    found: list[Attribution] = []
    for each in verbs.attribution(list(texts), method=method, label=label):
        found += each if isinstance(each, list) else [each]
    return found


def question_inputs(verbs: Any, texts: Sequence[str]) -> list[tuple[str, ...]]:
    """Questions with their context, or with their choices; nothing for a run that reads neither."""
    if isinstance(verbs, answerer.Verbs):
        return [parts_of(text, 2) for text in texts]
    return [parts_of(text, None) for text in texts] if isinstance(verbs, chooser.Verbs) else []


def attribution_highlights(verbs: Any, found: Attribution, *, words: bool = False) -> Highlights:
    """An attribution as a text with weights; `words` joins subwords, with the sum of their weights."""
    spelled = spelled_as_read(verbs, found)
    sentences = []
    for number, row in enumerate(found.rows):
        pieces = list(spelled_pieces(row, spelled[number]) if spelled else token_pieces(row))
        sentences.append(Sentence(tuple(in_words(pieces) if words else pieces)))
    label = f"{found.word} {found.label}".strip()
    notes = tuple(found.notes())
    text = found.input if isinstance(found.input, str) else "\t".join(found.input)
    return Highlights(text, label, found.probability, tuple(sentences), False, notes, signed=True)


def spelled_as_read(verbs: Any, found: Attribution) -> list[Spelled]:
    """Where the tokens of each row lie in the text; nothing where rows are not a plain text cut into tokens."""
    if not isinstance(verbs, classifier.Verbs) or not isinstance(found.input, str):
        return []
    spelled = spelled_rows(verbs.task, found.input)
    frame = verbs.task.text.vocabulary.frame_length
    sizes = [len(spans) + frame for _, spans in spelled]
    return spelled if sizes == [len(row.tokens) for row in found.rows] else []


def spelled_pieces(row: AttributedRow, spelled: Spelled) -> Iterator[Piece]:
    """The pieces of a text with their weights, between the special tokens around it."""
    text, spans = spelled
    front = len(row.tokens) - len(spans) - 1
    for token, weight in zip(row.tokens[:front], row.weights[:front], strict=True):
        yield Piece(token, weight, True)
    *pieces, end = pieces_of(Row(text, spans, list(row.weights[front:]), 1.0))
    for number, piece in enumerate(pieces):
        yield piece._replace(spaced=True) if front and not number else piece
    yield end._replace(text=row.tokens[-1])


def token_pieces(row: AttributedRow) -> Iterator[Piece]:
    """The tokens themselves as pieces."""
    for token, weight in zip(row.tokens, row.weights, strict=True):
        yield Piece(token, weight, True)


def as_plain(found: Attribution, shown: Highlights) -> dict[str, Any]:
    """An attribution as plain values: scores, baseline and steps, and the weights of the tokens of every sentence."""
    sentences = [
        {
            "tokens": [piece.text for piece in each.pieces],
            "weights": [round(piece.weight, 6) for piece in each.pieces],
        }
        for each in shown.sentences
    ]
    return {**found.to_json(), "sentences": sentences}
