"""Which examples go into which batch: five plans, each an arithmetic function of (seed, epoch).

A plan is a list that is computed rather than replayed: `plan[k]` is batch k of this epoch, so that resuming at
position k costs nothing and means the same for any number of workers or processes.

    buckets   whole examples of like length under a budget of padded tokens, in random order
    streams   one long text cut into parallel rows, read window after window (a model may carry its state)
    shuffled  windows of one long text in random order
    unpaired  sentences of two languages side by side, as buckets are, though they say different things
    packed    several short examples laid end to end in rows of a fixed width

A batch is a list of rows, a row a tuple of example numbers: one number, or several where they are packed. A row of a
long text is a window of it: the first label and the one after the last.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from jaxtyping import Integer

from mallang.errors import UserError

Rows = list[tuple[int, ...]]
ACROSS = 7
"""Separates the random numbers that draw sentences of two languages from those of other plans."""
WIDTHS = 5
"""Sets the random numbers of window widths apart from all others."""


class Buckets(Sequence[Rows]):
    """Examples of like length together, so that little of a batch is padding.

    With a `multiple`, lengths count as rounded up to it: batches then have a short list of shapes (see `Shapes`).
    `rows` are the rows that each example takes, a document one for each sentence: `lengths` are then those of its
    longest row. A document that is larger than the budget is a batch by itself; a text too, if `long_alone`.
    """

    def __init__(
        self,
        lengths: Integer[np.ndarray, "examples columns"],
        *,
        tokens: int,
        sentences: int | None = None,
        rows: Integer[np.ndarray, " examples"] | None = None,
        multiple: int = 1,
        long_alone: bool = False,
        seed: int,
        epoch: int,
    ) -> None:
        if len(lengths) == 0:
            raise UserError("there is nothing to batch: the corpus is empty")
        longest = lengths.max(axis=1)
        if int(longest.max()) > tokens and not long_alone:
            raise UserError(
                f"an example of {int(longest.max())} tokens does not fit into a batch of {tokens}",
                todo="raise train.batch_tokens or lower data.max_length",
            )
        random = generator(seed, epoch)
        shuffled = random.permutation(len(lengths)).astype(np.int32)
        # By the longest side, then by each side. The sort is stable, so examples of equal shape stay shuffled.
        keys = (*lengths[shuffled].T, longest[shuffled])
        self.order = shuffled[np.lexsort(keys if rows is None else (rows[shuffled], *keys))]
        widths = longest[self.order]
        taken = None if rows is None else rows[self.order]
        # An example that fits by itself stays allowed, though rounding up would put it over the budget.
        self.bounds = cut(np.minimum(-(-widths // multiple) * multiple, tokens), tokens, sentences, taken)
        self.turn = random.permutation(len(self.bounds) - 1)

    def __len__(self) -> int:
        return len(self.turn)

    def __getitem__(self, position: int) -> Rows:  # type: ignore[override]
        batch = self.turn[position]
        return [(int(i),) for i in self.order[self.bounds[batch] : self.bounds[batch + 1]]]


def cut(
    widths: Integer[np.ndarray, " examples"],
    tokens: int,
    sentences: int | None,
    rows: Integer[np.ndarray, " examples"] | None = None,
) -> Integer[np.ndarray, " bounds"]:
    """Where to cut ascending widths so that each piece's rows × widest row stays within the budget.

    An example is one row unless `rows` says how many; one that does not fit is a piece by itself.
    """
    ends = np.arange(len(widths) + 1) if rows is None else np.append(0, np.cumsum(rows))
    bounds, start = [0], 0
    most = tokens if sentences is None else sentences

    def reach(width: int) -> int:
        """The end of the piece that begins at `start`, if its widest row has this width."""
        room = min(tokens // max(1, width), most)
        return max(start + 1, int(np.searchsorted(ends, ends[start] + room, side="right")) - 1)

    while start < len(widths):
        stop = reach(int(widths[start]))
        # Widths only grow, so the widest row is the last one: shrink until the piece fits.
        while (shorter := reach(int(widths[stop - 1]))) < stop:
            stop = shorter
        bounds.append(stop)
        start = stop
    return np.array(bounds, dtype=np.int64)


def by_length(
    lengths: Sequence[int], tokens: int, parts: int = 1, rows: Sequence[int] | None = None
) -> list[list[int]]:
    """Which texts are read together: the places of those of like length, the longest first.

    A group has at most so many padded tokens, or one text; where there are enough texts there are at least so many
    groups as `parts`. `rows` are the rows that each text takes, if it is a document.
    """
    widths, most = np.array(lengths, dtype=np.int64), max(1, tokens)
    order = np.argsort(widths, kind="stable")
    taken = None if rows is None else np.array(rows, dtype=np.int64)[order]
    share = -(-len(order) // parts) if taken is None else -(-int(taken.sum()) // parts)
    bounds = cut(np.minimum(widths[order], most), most, share, taken)
    return [order[begin:end].tolist() for begin, end in itertools.pairwise(bounds)][::-1]


class UnpairedBuckets(Sequence[Rows]):
    """Buckets of rows (i, j): a sentence of one language and a sentence of the other, of similar length.

    Which sentences share a row changes with every epoch. An epoch reads the language with more sentences once, and some
    sentences of the other again. `lengths` is 0 where a row has no text in a language.
    """

    def __init__(
        self,
        lengths: Integer[np.ndarray, "examples 2"],
        *,
        tokens: int,
        sentences: int | None = None,
        multiple: int = 1,
        seed: int,
        epoch: int,
    ) -> None:
        sides = [np.flatnonzero(lengths[:, side]) for side in (0, 1)]
        most = max(map(len, sides))
        if not all(map(len, sides)):
            raise UserError("one of the two languages has no text", todo="look at data.train and data.unpaired")
        self.sides = []
        for side, places in enumerate(sides):
            random = generator(seed, epoch, side, ACROSS)
            drawn = np.concatenate([random.permutation(places) for _ in range(-(-most // len(places)))])[:most]
            self.sides.append(drawn[np.argsort(lengths[drawn, side], kind="stable")])
        both = np.stack([lengths[drawn, side] for side, drawn in enumerate(self.sides)], axis=1)
        self.buckets = Buckets(both + 1, tokens=tokens, sentences=sentences, multiple=multiple, seed=seed, epoch=epoch)

    def __len__(self) -> int:
        return len(self.buckets)

    def __getitem__(self, position: int) -> Rows:  # type: ignore[override]
        return [(int(self.sides[0][row]), int(self.sides[1][row])) for (row,) in self.buckets[position]]


class Streams(Sequence[Rows]):
    """One long text in parallel rows: row r of every batch continues where row r of the batch before ended.

    The rows are as even as they can be, so that only the last batch of an epoch may have a row that is one label
    shorter. With several `streams` the batches take turns: batch k belongs to stream k mod streams, and each stream has
    rows of its own, so that micro-batches of one update, or several processes, each continue with theirs."""

    def __init__(
        self, labels: int, *, rows: int, width: int, streams: int = 1, jitter: tuple[int, int] | None = None
    ) -> None:
        if labels < rows * streams:
            raise UserError(
                f"the text has {labels} tokens, too few for {rows * streams} parallel rows",
                todo="lower train.batch_tokens, which divided by task.context is the number of rows",
            )
        self.rows, self.streams = rows, streams
        self.starts = np.arange(rows * streams + 1) * labels // (rows * streams)
        longest = int(np.diff(self.starts).max())
        self.edges = jittered(longest, width, jitter) if jitter else np.append(np.arange(0, longest, width), longest)

    def __len__(self) -> int:
        return (len(self.edges) - 1) * self.streams

    def __getitem__(self, position: int) -> Rows:  # type: ignore[override]
        if not 0 <= position < len(self):
            raise IndexError(position)
        window, stream = divmod(position, self.streams)
        mine = slice(stream * self.rows, (stream + 1) * self.rows)
        starts, ends = self.starts[:-1][mine], self.starts[1:][mine]
        begins, stops = starts + self.edges[window], np.minimum(starts + self.edges[window + 1], ends)
        return [(int(begin), int(stop)) for begin, stop in zip(begins, stops, strict=True)]


def jittered(longest: int, width: int, key: tuple[int, int]) -> Integer[np.ndarray, " edges"]:
    """Windows of unequal width, so that they end elsewhere in every epoch (Merity et al. 2017, section 5).

    Nineteen of twenty are about `width` wide, the others about half of it: normal with deviation 5, 5 at the least.
    """
    random, most = generator(*key, WIDTHS), longest // 5 + 1
    middle = np.where(random.random(most) < 0.95, width, width / 2)
    edges = np.cumsum(np.maximum(5, random.normal(middle, 5.0).astype(np.int64)))
    return np.concatenate(([0], edges[edges < longest], [longest]))


class Shuffled(Sequence[Rows]):
    """One long text cut into windows that come in random order; where the cuts lie changes with the epoch."""

    def __init__(self, labels: int, *, rows: int, width: int, seed: int, epoch: int) -> None:
        random = generator(seed, epoch)
        first = int(random.integers(1, width + 1))
        self.edges = np.concatenate(([0], np.arange(first, labels, width), [labels]))
        self.rows, self.order = rows, random.permutation(len(self.edges) - 1)

    def __len__(self) -> int:
        return -(-len(self.order) // self.rows)

    def __getitem__(self, position: int) -> Rows:  # type: ignore[override]
        if not 0 <= position < len(self):
            raise IndexError(position)
        chosen = self.order[position * self.rows : (position + 1) * self.rows]
        return [(int(self.edges[i]), int(self.edges[i + 1])) for i in chosen]


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
