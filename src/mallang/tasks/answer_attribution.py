"""The attribution of answers: how much every token of a question and its context adds to the score of an answer.

The score is the logit of the first token as the begin, plus that of the last token as the end, in the window that finds
the answer most probable; of no answer, both logits of the token that means none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from mallang.data.answers import NOWHERE, token_span
from mallang.data.batch import Batch
from mallang.decoding.contract import device_of, inference
from mallang.errors import UserError
from mallang.tasks.attribution import Attribution, Explained, Method, check_method, explain
from mallang.tasks.question_reading import Scored, TokenizedQuestion, cut, read, score_spans

if TYPE_CHECKING:
    from mallang.tasks.answerer import Verbs

NOTHING = "no answer"
"""The label of a question without an answer in its context."""


@dataclass(frozen=True)
class Span:
    """An answer that is explained: its first and last token in the context, none for no answer."""

    text: str
    tokens: tuple[int, int] | None
    probability: float


def answer_attributions(
    verbs: Verbs, pairs: Sequence[tuple[str, str]], method: Method, label: str | None = None
) -> list[Attribution]:
    """The attribution of the answer to each question, or of a part of its context that `label` quotes."""
    check_method(method)
    found = []
    for question, context in pairs:
        reading = read(verbs.task, question, context, {})
        (scored,) = score_spans(verbs.task, verbs.model, [reading])
        span = chosen_span(verbs, reading, scored, context, label)
        window, places = most_probable_window(verbs, reading, span)
        found.append(attribution_of(verbs, (question, context), span, window, places, method))
    return found


def chosen_span(verbs: Verbs, reading: TokenizedQuestion, scored: Scored, context: str, label: str | None) -> Span:
    """The answer that the model gives, or the one that is asked for."""
    whole = scored.table.ravel()
    if verbs.task.config.no_answer:
        whole = np.append(whole, scored.nothing)
    total = float(np.logaddexp.reduce(whole))
    if label is not None:
        first, last = quoted(reading, context, label, scored.table.shape[1])
        return Span(label, (first, last), float(np.exp(scored.table[first, last - first] - total)))
    if verbs.task.config.no_answer and scored.margin > verbs.threshold:
        return Span(NOTHING, None, float(np.exp(scored.nothing - total)))
    first, further = divmod(int(scored.table.argmax()), scored.table.shape[1])
    text = context[int(reading.offsets[first, 0]) : int(reading.offsets[first + further, 1])]
    return Span(text, (first, first + further), float(np.exp(scored.table[first, further] - total)))


def quoted(reading: TokenizedQuestion, context: str, text: str, most: int) -> tuple[int, int]:
    """The first and the last token of a part of the context."""
    start = context.find(text)
    first, last = (NOWHERE, NOWHERE) if start < 0 else token_span(reading.offsets, start, start + len(text))
    if first == NOWHERE:
        raise UserError(f"the context does not hold {text!r}", todo="quote a part of it, letter by letter")
    if last - first >= most:
        raise UserError(f"{text[:60]!r} is longer than the {most} tokens of an answer", todo="quote less")
    return first, last


def most_probable_window(
    verbs: Verbs, reading: TokenizedQuestion, span: Span
) -> tuple[tuple[Any, ...], tuple[int, int]]:
    """The window in which the answer is most probable, and the places of begin and end in its row."""
    task, best = verbs.task, []
    for start, *window in cut(task, reading, None):
        question, part, *_ = window
        if span.tokens is None:
            places = (task.null_place(len(question)),) * 2
        else:
            first, last = (place - start for place in span.tokens)
            if first < 0 or last >= len(part):
                continue
            before = task.context_start(len(question))
            places = before + first, before + last
        with inference(verbs.model):
            logits, _ = task.logits(verbs.model, task.collate([tuple(window)]).to(device_of(verbs.model)))
        shares = logits[0].float().log_softmax(dim=1)
        best.append((float(shares[0, places[0]] + shares[1, places[1]]), tuple(window), places))
    choose = min if span.tokens is None else max  # no answer is as probable as in the window that finds it least so
    _, chosen, places = choose(best, key=lambda each: each[0])
    return chosen, places


def attribution_of(
    verbs: Verbs, pair: tuple[str, str], span: Span, window: Any, places: tuple[int, int], method: Method
) -> Attribution:
    """The attribution of one answer in one window."""
    task, device = verbs.task, device_of(verbs.model)
    begin, end = places

    def copies(count: int) -> Batch:
        return task.collate([window] * count).to(device)

    def score(batch: Batch) -> Float[Tensor, " copies"]:
        logits = task.logits(verbs.model, batch)[0].float()
        return logits[:, 0, begin] + logits[:, 1, end]

    constant = () if task.features is None else ("the given features",)
    about = Explained(pair, span.text, span.probability, f"the begin and end logits of {span.text!r}", constant)
    return explain(verbs.model, verbs.model.model, copies, score, task.text.vocabulary, method, about)
