"""Texts longer than the positions of an encoder: windows, over which logits and vectors are averaged.

    tokens   0 … most                        window 0
    tokens         begin … begin + most      window 1
    tokens                  n − most … n     the last one

The windows of a text are at equal distances, and there are as few of them as let two neighbors share a quarter of their
tokens. Each is read as a text of its own, between special tokens. The logits of a text are the mean over its windows:
its probabilities are the normalized geometric mean of theirs. Its vector is the mean of theirs, scaled to their mean
length, so that a vector of length 1 stays one. Training reads another window of a long text in every epoch, drawn at
random. With "cut" the first window is read alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float32, Integer

from mallang.errors import UserError

LongTexts = Literal["windows", "cut"]
SHARED = 4
"""Two windows share at least a part of their tokens: one of so many."""


@runtime_checkable
class ReadsLongTexts(Protocol):
    """Verbs that read texts of any length."""

    task: Any
    windows: TextWindows

    def note_long(self, texts: Sequence[str]) -> str:
        """A sentence about the texts that are longer than a window; empty where none is."""


@dataclass(frozen=True)
class TextWindows:
    """How long texts are cut into windows."""

    most: int = 0
    """The number of tokens of a window, special tokens left out; 0: a text may have any length."""
    how: LongTexts = "windows"

    @classmethod
    def of(cls, longest: int | None, frame: int, how: LongTexts = "windows") -> TextWindows:
        """The windows of a model that reads up to `longest` tokens, of which `frame` are special; None: any number."""
        if longest is not None and longest <= frame:
            raise UserError(
                f"rows of {longest} tokens have no room for a text and {frame} special tokens", todo="raise the limit"
            )
        return cls(0 if longest is None else longest - frame, how)

    def starts(self, length: int) -> list[int]:
        """The first token of each window of a text."""
        if not self.most or length <= self.most:
            return [0]
        if self.how == "cut":
            return [0]
        step = max(1, self.most - self.most // SHARED)
        count = 1 + -(-(length - self.most) // step)
        return [(length - self.most) * number // (count - 1) for number in range(count)]

    def parts(self, ids: Any) -> list[Any]:
        """The windows of a text."""
        return [ids[start : start + self.most] if self.most else ids for start in self.starts(len(ids))]

    def widths(self, lengths: Integer[np.ndarray, "*texts"]) -> Integer[np.ndarray, "*texts"]:
        """The tokens of the longest window of texts of so many tokens."""
        return np.minimum(lengths, self.most) if self.most else lengths

    def drawn(self, ids: Any, random: np.random.Generator) -> Any:
        """What training reads of a text in one epoch."""
        if not self.most or len(ids) <= self.most:
            return ids
        start = 0 if self.how == "cut" else int(random.integers(0, len(ids) - self.most + 1))
        return ids[start : start + self.most]

    def note(self, lengths: Sequence[int], *, training: bool = False) -> str:
        """A sentence about the texts that are longer than a window; empty where none is."""
        many = sum(length > self.most for length in lengths) if self.most else 0
        read = "each epoch reads another one" if training else "the mean over their windows counts"
        read = "only their beginning is read" if self.how == "cut" else read
        return longer(many, len(lengths), "texts", f"a window of {self.most} tokens", read)


def longer(many: int, among: int, what: str, limit: str, read: str) -> str:
    """A sentence about the texts or pairs that are longer than a limit, and what is read; empty where none is."""
    return f"{many:,} of {among:,} {what} are longer than {limit}: {read}" if many else ""


def mean_of_windows(
    values: Float32[np.ndarray, "windows dim"], counts: Sequence[int]
) -> Float32[np.ndarray, "texts dim"]:
    """The mean over the windows of every text; `counts` are their numbers of windows."""
    sizes = np.array(counts)
    starts = np.cumsum(sizes) - sizes
    means: np.ndarray = np.add.reduceat(values, starts, axis=0) / sizes[:, None].astype(values.dtype)
    return means


def mean_vectors(
    vectors: Float32[np.ndarray, "windows dim"], counts: Sequence[int]
) -> Float32[np.ndarray, "texts dim"]:
    """The mean vector of the windows of every text, scaled to their mean length; of one window its own vector."""
    if len(counts) == len(vectors):
        return vectors
    means = mean_of_windows(vectors, counts)
    wanted = mean_of_windows(np.linalg.norm(vectors, axis=1, keepdims=True), counts)
    scale = wanted / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    found: np.ndarray = np.where(np.array(counts)[:, None] == 1, means, means * scale)
    return found
