"""The examples of one epoch tokenized again, as BPE-dropout needs it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from jaxtyping import Float64, Integer, UInt64

from mallang.data.mixture import Drawn, Example
from mallang.data.prepared import Prepared
from mallang.data.sampler import generator
from mallang.errors import UserError
from mallang.text.dropout import UNITS, Dropout
from mallang.text.tokenizer import Tokenizer

DROPOUT = 1
"""The fourth of the numbers that random ones derive from here; those of batch planning and making have fewer."""
GOLDEN, FIRST, SECOND = (np.uint64(each) for each in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


class Resegmented(Sequence[Example]):
    """The examples of an epoch, each cut again when asked for, from random numbers of (seed, epoch, example) alone.

    Batches are planned by the lengths of the text as it was prepared, and what is cut again has more tokens: a batch
    may be wider than planned, and takes that much more memory. An example of which a side would grow beyond `longest`
    tokens keeps that side as it was prepared: what a model can read, it can still read."""

    def __init__(
        self,
        examples: Prepared | Drawn,
        dropouts: Sequence[Dropout | None],
        *,
        longest: int,
        seed: int,
        epoch: int,
    ) -> None:
        self.examples, self.dropouts, self.longest = examples, dropouts, longest
        self.keys = [
            generator(seed, epoch, column, DROPOUT).integers(2**64, size=1, dtype=np.uint64)
            for column in range(len(dropouts))
        ]

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, number: int) -> Example:  # type: ignore[override]
        return self.many([number])[0]

    def many(self, numbers: Sequence[int]) -> list[Example]:
        """Several examples at once, which is much faster than one after the other."""
        names = np.array(numbers, dtype=np.uint64)
        columns = []
        plain = zip(*(self.examples[number] for number in numbers), strict=True)
        for texts, dropout, key in zip(plain, self.dropouts, self.keys, strict=True):
            again = texts if dropout is None else dropout.cut(texts, partial(uniform, key, names))
            columns.append([new if len(new) <= self.longest else old for new, old in zip(again, texts, strict=True)])
        return list(zip(*columns, strict=True))


def uniform(
    key: UInt64[np.ndarray, " one"], names: UInt64[np.ndarray, " names"], counts: Integer[np.ndarray, " names"]
) -> Float64[np.ndarray, " total"]:
    """Numbers between 0 and 1, a count for each name, that depend on the key, the name and their place alone.

    Each name has a stream of SplitMix64 (Steele, Lea and Flood 2014): arithmetic, so that many are drawn at once.
    """
    streams = mix(key + GOLDEN * mix(names + GOLDEN))
    places = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + 1
    return (mix(np.repeat(streams, counts) + GOLDEN * places.astype(np.uint64)) >> np.uint64(11)) * 2.0**-53


def mix(numbers: UInt64[np.ndarray, " numbers"]) -> UInt64[np.ndarray, " numbers"]:
    """Every bit of a number decides every bit of the result."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * FIRST
    numbers = (numbers ^ (numbers >> np.uint64(27))) * SECOND
    return np.asarray(numbers ^ (numbers >> np.uint64(31)))


def dropouts_of(tokenizers: Sequence[Tokenizer], probability: float) -> list[Dropout | None]:
    """What cuts each column again: one for equal tokenizers, for it remembers much; none where nothing is merged."""
    made: dict[Tokenizer, Dropout] = {}
    for tokenizer in tokenizers:
        if tokenizer.config.unit in UNITS and tokenizer not in made:
            made[tokenizer] = Dropout(tokenizer, probability)
    if not made:
        units = " and ".join(dict.fromkeys(tokenizer.config.unit for tokenizer in tokenizers))
        raise UserError(
            f"task.bpe_dropout = {probability} has nothing to drop: text is cut into pieces by {units}",
            todo=f"task.bpe_dropout=0, or a text.unit of {' or '.join(UNITS)}",
        )
    return [made.get(tokenizer) for tokenizer in tokenizers]
