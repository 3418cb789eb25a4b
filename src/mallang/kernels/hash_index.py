"""Where a key lies among many, by one look instead of twenty: a hash table, made and asked all at once.

    slot of a key = the upper bits of key × an odd number; if another key is there, the slot after it, and so on

Three quarters of the slots or more stay empty, so most keys are found, or found missing, at the first look. A binary
search takes no memory and is ready at once; this pays when as many keys are asked for as there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from jaxtyping import Int
from torch import Tensor

MOST_INDEXED = 2**31
"""N-grams up to which a hash table is made: its places are numbers of 32 bits."""
ODD = 0x1E3779B97F4A7C15
"""2⁶¹ over the golden ratio, about: its multiples spread evenly."""


class Index:
    """The places of sorted keys; the last of them is none that is asked for, and stands for all that are not there."""

    def __init__(self, keys: Int[Tensor, " keys"]) -> None:
        self.keys, self.none = keys, len(keys) - 1
        self.bits = self.none.bit_length() + 2
        self.last = (1 << self.bits) - 1
        self.places = torch.full((self.last + 1,), self.none, dtype=torch.int32)
        numbers, slots = torch.arange(self.none, dtype=torch.int32), self.slots(keys[:-1])
        while len(numbers):
            is_free = self.places[slots] == self.none
            self.places[slots[is_free]] = numbers[is_free]  # of several that want one slot one gets it
            late = self.places[slots] != numbers
            numbers, slots = numbers[late], slots[late].add_(1).bitwise_and_(self.last)

    def slots(self, keys: Int[Tensor, " keys"]) -> Int[Tensor, " keys"]:
        """Where to look for each key first."""
        return keys.mul(ODD).bitwise_right_shift_(63 - self.bits).bitwise_and_(self.last)

    def find(self, wanted: Int[Tensor, " asked"]) -> Int[Tensor, " asked"]:
        """The place of each key."""
        slots = self.slots(wanted)
        found = self.places.index_select(0, slots)
        others = ((self.keys.index_select(0, found) != wanted) & (found != self.none)).nonzero()[:, 0]
        if len(others):
            found.index_copy_(0, others, self.look_on(slots.index_select(0, others), wanted.index_select(0, others)))
        return found

    def look_on(self, slots: Int[Tensor, " asked"], wanted: Int[Tensor, " asked"]) -> Int[Tensor, " asked"]:
        """The same for keys whose first slot another one has."""
        found = torch.full((len(wanted),), self.none, dtype=torch.int32)
        numbers = torch.arange(len(wanted))
        while len(numbers):
            slots = slots.add(1).bitwise_and_(self.last)
            there = self.places.index_select(0, slots)
            is_found = self.keys.index_select(0, there) == wanted
            found[numbers[is_found]] = there[is_found]
            more = (~is_found & (there != self.none)).nonzero()[:, 0]
            numbers, slots, wanted = (each.index_select(0, more) for each in (numbers, slots, wanted))
        return found


def pays(keys: int, asked: int, tokens: Tensor) -> bool:
    """Whether an index of so many keys is worth building once so many were asked for: on a CPU alone."""
    return keys < min(asked, MOST_INDEXED) and not tokens.is_cuda


def side_by_side(work: Callable[[int], Tensor], pieces: Sequence[int], device: torch.device) -> list[Tensor]:
    """What the work makes of each piece, in order; on a CPU as many at once as torch may use threads.

    Most of a lookup are operations that torch does not share among threads.
    """
    threads = min(torch.get_num_threads(), len(pieces))
    if threads <= 1 or device.type != "cpu":
        return [work(piece) for piece in pieces]
    before = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(work, pieces))
    finally:
        torch.set_num_threads(before)  # what a worker says holds for all who come after it
