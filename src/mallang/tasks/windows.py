"""Long contexts in overlapping windows, so that a model with few positions reads them, and no answer is lost.

    question · context tokens   0 … room                     window 0
    question · context tokens        step … step + room      window 1
    question · context tokens             n − room … n       the last one, moved back to the end

The step is `stride`, or less: two windows share at least `most` − 1 tokens, so that every answer of up to `most` tokens
lies whole in one of them. Only where a long question leaves room for less than two answers do they share less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int

from mallang.data.answers import NOWHERE
from mallang.data.batch import IGNORE
from mallang.errors import UserError

NO_ANSWER = -1
"""The span of a window without the answer: both its ends stand at the token that means no answer."""


Cut = Callable[[Sequence[Any], int, int, int], tuple[Any, ...]]
"""The part of the further arrays of an example that a window has: of so many question tokens, from begin to end."""


@dataclass(frozen=True)
class Windows:
    """How questions and contexts of so many tokens are cut into windows."""

    window: int
    """The maximum number of tokens of a row: question, part of the context, and special tokens."""
    stride: int
    most: int
    """The maximum number of tokens of an answer."""
    frame: int
    """The number of special tokens of a row."""
    max_question: int = 0
    """The number of tokens of a question that are read; 0: all of them."""

    def question(self, tokens: int) -> int:
        """How many tokens of a question are read."""
        return min(tokens, self.max_question) if self.max_question else tokens

    def room(self, question: int) -> int:
        """The number of context tokens beside a question."""
        found = self.window - self.frame - self.question(question)
        if found < 1:
            raise UserError(
                f"a question has {question} tokens, and task.window = {self.window} has no room for its context",
                todo="raise task.window, or read only the beginning of long questions: task.max_question=64",
            )
        return found

    def starts(self, question: int, context: int) -> list[int]:
        """The first context token of each window."""
        room = self.room(question)
        if context <= room:
            return [0]
        shared = min(self.most, max(1, room // 2)) - 1
        step = max(1, min(self.stride, room - shared))
        last = context - room
        return [*range(0, last, step), last]

    def bounds(self, question: int, context: int) -> list[tuple[int, int]]:
        """The first context token of each window, and the one after its last."""
        room = self.room(question)
        return [(start, min(start + room, context)) for start in self.starts(question, context)]

    def part(
        self, example: Sequence[Any], begin: int, end: int, cut: Cut | None
    ) -> tuple[Any, Any, tuple[int, int], *tuple[Any, ...]]:
        """What a window has of an example: of the question, of the context, the answer in it, and of further arrays.

        An example whose answers are not known has none in their place.
        """
        question, context, spans, *others = example
        read = self.question(len(question))
        answer = (IGNORE, IGNORE) if spans is None else span_within(spans, begin, end)
        more = () if cut is None else cut(others, read, begin, end)
        return question[:read], context[begin:end], answer, *more


class WindowExamples(Sequence[tuple[Any, ...]]):
    """The windows of questions as training examples: question, part of the context, and the answer in that part.

    The answer is the first one of the question that lies whole in the window; else it is NO_ANSWER, and IGNORE where no
    token holds it.
    """

    def __init__(self, examples: Any, windows: Windows, cut: Cut | None) -> None:
        self.examples, self.windows, self.cut = examples, windows, cut
        questions, contexts = (examples.lengths[:, place].tolist() for place in (0, 1))
        bounds = [windows.bounds(*pair) for pair in zip(questions, contexts, strict=True)]
        self.rows = np.repeat(np.arange(len(bounds)), [len(each) for each in bounds])
        places = np.array([pair for each in bounds for pair in each], dtype=np.int64).reshape(-1, 2)
        self.begins, self.ends = places[:, 0], places[:, 1]
        read = np.array([windows.question(length) for length in questions])[self.rows]
        self.lengths: Int[np.ndarray, "windows 1"] = (read + self.ends - self.begins + windows.frame)[:, None]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> tuple[Any, ...]:  # type: ignore[override]
        example = self.examples[int(self.rows[number])]
        return self.windows.part(example, int(self.begins[number]), int(self.ends[number]), self.cut)


def span_within(spans: Int[np.ndarray, " ends"], begin: int, end: int) -> tuple[int, int]:
    """The first of the spans, pairs of first and last tokens, that lies in a window, counted from its begin."""
    pairs = [(int(first), int(last)) for first, last in zip(spans[::2], spans[1::2], strict=True)]
    known = [pair for pair in pairs if pair[0] != NOWHERE]
    if pairs and not known:
        return IGNORE, IGNORE
    for first, last in known:
        if begin <= first and last < end:
            return first - begin, last - begin
    return NO_ANSWER, NO_ANSWER


def span_table(
    parts: Sequence[tuple[int, Any, Any]], tokens: int, most: int
) -> np.ndarray:  # a row per first token, a column per number of further tokens
    """The log-probability of every span of up to `most` tokens: that of the window which gives it the highest.

    `parts` are the windows: the first context token, and the log-probability of the begin and of the end at each.
    """
    table = np.full((tokens, max(1, min(most, tokens))), -np.inf)
    for start, begins, ends in parts:
        size = len(begins)
        for further in range(min(table.shape[1], size)):
            place = table[start : start + size - further, further]
            np.maximum(place, begins[: size - further] + ends[further:], out=place)
    return table
