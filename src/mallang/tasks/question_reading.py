"""How questions are read: as tokens, in windows of their contexts, with the log-probability of every span."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from mallang.data.answers import Offsets, offsets_of
from mallang.data.batch import IGNORE
from mallang.data.sampler import by_length
from mallang.decoding.contract import device_of, inference
from mallang.errors import UserError
from mallang.tasks.windows import span_table

if TYPE_CHECKING:
    from mallang.tasks.question_answering import Task

BATCH_TOKENS = 16_384
"""Padded tokens per batch of inference."""


@dataclass(frozen=True)
class TokenizedQuestion:
    """A question and its context as tokens."""

    question: Sequence[int]
    context: Sequence[int]
    offsets: Offsets
    features: tuple[Any, ...] = ()
    """What given features read of both."""


@dataclass(frozen=True)
class Scored:
    """What a model says of a question: the log-probability of every span, and of no answer."""

    table: np.ndarray
    """A row per first token, a column per number of further tokens."""
    nothing: float
    loss: float = 0.0
    """The summed loss of its windows, where the answer is known."""
    windows: int = 0

    @property
    def margin(self) -> float:
        """By how much no answer is more probable than the best span."""
        return float(self.nothing - self.table.max())


def read(task: Task, question: str, context: str, known: dict[str, tuple[list[int], Offsets]]) -> TokenizedQuestion:
    """A question and its context as tokens; `known` keeps contexts, for several questions are about one."""
    if not question.strip():
        raise UserError("the question is empty", todo="give a question")
    if context not in known:
        known[context] = offsets_of(task.text, context)
    ids, offsets = known[context]
    if not (offsets[:, 1] > offsets[:, 0]).any():
        raise UserError("the context is empty: it holds no token", todo="give the text that holds the answer")
    features = () if task.features is None else task.features.example(question, context)
    return TokenizedQuestion(task.question.encode(question).ids, ids, offsets, features)


def score_spans(
    task: Task, model: nn.Module, readings: Sequence[TokenizedQuestion], answers: Sequence[Sequence[int]] | None = None
) -> list[Scored]:
    """The log-probability of the spans of every question; with `answers`, first and last tokens, also the loss."""
    windows = [
        (place, start, *part)
        for place, reading in enumerate(readings)
        for start, *part in cut(task, reading, None if answers is None else answers[place])
    ]
    lengths = [len(question) + len(context) + task.windows.frame for _, _, question, context, *_ in windows]
    device, found = device_of(model), dict[int, tuple[Any, Any, float, float]]()
    with inference(model):
        for group in by_length(lengths, BATCH_TOKENS):
            batch = task.collate([windows[each][2:] for each in group])
            logits, _ = task.logits(model, batch.to(device))
            shares = logits.log_softmax(dim=2).cpu().numpy().astype(np.float64)
            for each, own, answer in zip(group, shares, batch.answers.numpy(), strict=True):  # type: ignore[union-attr]
                _, _, question, context, *_ = windows[each]
                begin, null = task.context_start(len(question)), task.null_place(len(question))
                inside = own[:, begin : begin + len(context)]
                loss = np.nan if answer[0] == IGNORE else -float(own[0, answer[0]] + own[1, answer[1]]) / 2
                found[each] = inside[0], inside[1], float(own[0, null] + own[1, null]), loss
    return join(task, readings, windows, found)


def cut(task: Task, reading: TokenizedQuestion, spans: Sequence[int] | None) -> list[tuple[Any, ...]]:
    """The windows of a question: the first context token, the question, the part, and the answer in it."""
    answers = None if spans is None else np.array(spans, dtype=np.int64)
    example = (list(reading.question), list(reading.context), answers, *reading.features)
    more = None if task.features is None else task.features.window
    bounds = task.windows.bounds(len(reading.question), len(reading.context))
    return [(begin, *task.windows.part(example, begin, end, more)) for begin, end in bounds]


def join(
    task: Task, readings: Sequence[TokenizedQuestion], windows: Sequence[Any], found: dict[int, Any]
) -> list[Scored]:
    """What the windows of each question say together: of a span the highest, of no answer the lowest."""
    own: list[list[int]] = [[] for _ in readings]
    for each, (place, *_) in enumerate(windows):
        own[place].append(each)
    scored = []
    for reading, members in zip(readings, own, strict=True):
        parts = [(windows[each][1], *found[each][:2]) for each in members]
        table = span_table(parts, len(reading.context), task.config.max_answer)
        has_text = reading.offsets[:, 1] > reading.offsets[:, 0]
        table[~has_text] = -np.inf  # a token without a character begins and ends no answer
        for further in range(table.shape[1]):
            table[: len(table) - further, further][~has_text[further:]] = -np.inf
        losses = np.array([found[each][3] for each in members])
        nothing, known = min(found[each][2] for each in members), int(np.isfinite(losses).sum())
        scored.append(Scored(table, nothing, float(np.nansum(losses)), known))
    return scored
