"""The examples of one epoch with their words cut anew, as BPE-dropout wants it."""

from __future__ import annotations

from collections.abc import Sequence

from mallang.data.mixture import Drawn, Example
from mallang.data.prepared import Prepared
from mallang.data.sampler import generator
from mallang.errors import UserError
from mallang.text.dropout import UNITS, Dropout
from mallang.text.tokenizer import Tokenizer

DROPOUT = 1
"""The fourth of the numbers that random ones derive from here; those of batch planning and making have fewer."""


class Resegmented(Sequence[Example]):
    """The examples of an epoch, each cut anew when asked for, from random numbers of (seed, epoch, example) alone.

    Batches are planned by the lengths of the text as it was prepared, and what is cut anew has more tokens: a batch may
    be wider than planned, and takes that much more memory. An example of which a side would grow beyond `longest`
    tokens keeps that side as it was prepared: what a model can read, it can still read.
    """

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
        self.seed, self.epoch = seed, epoch

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, number: int) -> Example:  # type: ignore[override]
        random = generator(self.seed, self.epoch, number, DROPOUT)
        columns = []
        for ids, dropout in zip(self.examples[number], self.dropouts, strict=True):
            anew = ids if dropout is None else dropout.cut(ids, random)
            columns.append(anew if len(anew) <= self.longest else ids)
        return tuple(columns)


def dropouts_of(tokenizers: Sequence[Tokenizer], probability: float) -> list[Dropout | None]:
    """What cuts each column anew: one for equal tokenisers, for it remembers much; none where nothing is merged."""
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
