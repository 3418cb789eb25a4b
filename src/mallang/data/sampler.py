"""Which examples go into which batch: three plans, each an arithmetic function of (seed, epoch).

A plan is a list that is computed rather than replayed: `plan[k]` is batch k of this epoch, so that resuming at
position k costs nothing and means the same for any number of workers or processes.

    buckets   whole examples of like length under a budget of padded tokens, in random order
    streams   one long text cut into parallel rows, read window after window (a model may carry its state)
    packed    several short examples laid end to end in rows of a fixed width

A batch is a list of rows, a row a tuple of example numbers: one number, or several where they are packed.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from jaxtyping import Integer

from mallang.errors import UserError

Rows = list[tuple[int, ...]]


class Buckets(Sequence[Rows]):
    """Examples of like length together, so that little of a batch is padding.

    With a `multiple`, lengths count as rounded up to it: batches then have a short list of shapes (see `Shapes`).
    """

    def __init__(
        self,
        lengths: Integer[np.ndarray, "examples columns"],
        *,
        tokens: int,
        sentences: int | None = None,
        multiple: int = 1,
        seed: int,
        epoch: int,
    ) -> None:
        if len(lengths) == 0:
            raise UserError("there is nothing to batch: the corpus is empty")
        longest = lengths.max(axis=1)
        if int(longest.max()) > tokens:
            raise UserError(
                f"an example of {int(longest.max())} tokens does not fit into a batch of {tokens}",
                todo="raise train.batch_tokens or lower data.max_length",
            )
        random = generator(seed, epoch)
        shuffled = random.permutation(len(lengths)).astype(np.int32)
        # By the longest side, then by each side. The sort is stable, so examples of equal shape stay shuffled.
        self.order = shuffled[np.lexsort((*lengths[shuffled].T, longest[shuffled]))]
        widths = longest[self.order]
        # An example that fits by itself stays allowed, though rounding up would put it over the budget.
        self.bounds = cut(np.minimum(-(-widths // multiple) * multiple, tokens), tokens, sentences)
        self.turn = random.permutation(len(self.bounds) - 1)

    def __len__(self) -> int:
        return len(self.turn)

    def __getitem__(self, position: int) -> Rows:  # type: ignore[override]
        batch = self.turn[position]
        return [(int(i),) for i in self.order[self.bounds[batch] : self.bounds[batch + 1]]]


def cut(widths: Integer[np.ndarray, " examples"], tokens: int, sentences: int | None) -> Integer[np.ndarray, " bounds"]:
    """Where to cut ascending widths so that each piece's rows × widest row stays within the budget."""
    bounds, start = [0], 0
    while start < len(widths):
        stop = start + tokens // max(1, int(widths[start]))
        if sentences is not None:
            stop = min(stop, start + sentences)
        stop = min(stop, len(widths))
        # Widths only grow, so the widest row is the last one: shrink until the piece fits.
        while (stop - start) * int(widths[stop - 1]) > tokens:
            stop = start + max(1, tokens // int(widths[stop - 1]))
        bounds.append(stop)
        start = stop
    return np.array(bounds, dtype=np.int64)


class Streams(Sequence[Rows]):
    """Row r of every batch goes on where row r of the batch before ended; the order never changes."""

    def __init__(self, windows: int, *, rows: int) -> None:
        if windows < rows:
            raise UserError(
                f"the text fills {windows} windows, too few for {rows} parallel rows",
                todo="lower the number of rows or the window",
            )
        self.rows, self.steps = rows, windows // rows

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, position: int) -> Rows:  # type: ignore[override]
        if not 0 <= position < self.steps:
            raise IndexError(position)
        return [(row * self.steps + position,) for row in range(self.rows)]


class Packed(Sequence[Rows]):
    """Rows of at most `width` tokens, filled with whole examples in random order; `rows` of them make a batch."""

    def __init__(
        self, lengths: Integer[np.ndarray, " examples"], *, width: int, rows: int, seed: int, epoch: int
    ) -> None:
        if len(lengths) == 0:
            raise UserError("there is nothing to batch: the corpus is empty")
        if int(lengths.max()) > width:
            raise UserError(
                f"an example of {int(lengths.max())} tokens does not fit into a row of {width}",
                todo="raise the width or lower data.max_length",
            )
        self.rows = rows
        self.order = generator(seed, epoch).permutation(len(lengths))
        ends = np.cumsum(lengths[self.order])
        bounds = [0]
        while bounds[-1] < len(ends):
            filled = int(ends[bounds[-1] - 1]) if bounds[-1] else 0
            bounds.append(int(np.searchsorted(ends, filled + width, side="right")))
        self.bounds = np.array(bounds, dtype=np.int64)

    def __len__(self) -> int:
        return -(-(len(self.bounds) - 1) // self.rows)

    def __getitem__(self, position: int) -> Rows:  # type: ignore[override]
        if not 0 <= position < len(self):
            raise IndexError(position)
        first = position * self.rows
        edges = self.bounds[first : first + self.rows + 1]
        return [tuple(int(i) for i in self.order[a:b]) for a, b in itertools.pairwise(edges)]


def generator(*key: int) -> np.random.Generator:
    """Random numbers that depend on these numbers and on nothing else."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))
