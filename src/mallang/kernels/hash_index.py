"""A hash table over sorted keys, built and queried in bulk: one lookup instead of a binary search of twenty steps.

    slot of a key = the upper bits of key × an odd number; if another key is there, the slot after it, and so on

At least three quarters of the slots stay empty, so the first probe decides most lookups. A binary search needs no
memory and no preparation; the hash table pays off once there are as many lookups as keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from jaxtyping import Int
from torch import Tensor

MOST_INDEXED = 2**31
"""The maximum number of keys of a hash table: its indices are int32."""
ODD = 0x1E3779B97F4A7C15
"""2⁶⁴ divided by the golden ratio, modulo 2⁶³ (Fibonacci hashing): its multiples spread evenly."""


class Index:
    """A hash index of sorted keys; the last key is a sentinel, whose index stands for all keys that are not there."""

    def __init__(self, keys: Int[Tensor, " keys"]) -> None:
        self.keys, self.none = keys, len(keys) - 1
        self.bits = self.none.bit_length() + 2
        self.last = (1 << self.bits) - 1
        self.places = torch.full((self.last + 1,), self.none, dtype=torch.int32)
        numbers, slots = torch.arange(self.none, dtype=torch.int32), self.slots(keys[:-1])
        while len(numbers):
            is_free = self.places[slots] == self.none
            self.places[slots[is_free]] = numbers[is_free]  # of several keys with one slot, one gets it
            late = self.places[slots] != numbers
            numbers, slots = numbers[late], slots[late].add_(1).bitwise_and_(self.last)

    def slots(self, keys: Int[Tensor, " keys"]) -> Int[Tensor, " keys"]:
        """The first slot of each key."""
        return keys.mul(ODD).bitwise_right_shift_(63 - self.bits).bitwise_and_(self.last)

    def find(self, wanted: Int[Tensor, " asked"]) -> Int[Tensor, " asked"]:
        """The index of each key; that of the sentinel where it is not there."""
        slots = self.slots(wanted)
        found = self.places.index_select(0, slots)
        others = ((self.keys.index_select(0, found) != wanted) & (found != self.none)).nonzero()[:, 0]
        if len(others):
            found.index_copy_(0, others, self.probe(slots.index_select(0, others), wanted.index_select(0, others)))
        return found

    def probe(self, slots: Int[Tensor, " asked"], wanted: Int[Tensor, " asked"]) -> Int[Tensor, " asked"]:
        """Linear probing: the index of keys whose first slot holds another key."""
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
    """Whether an index of this many keys pays off after this many lookups; on a CPU only."""
    return keys < min(asked, MOST_INDEXED) and not tokens.is_cuda


def side_by_side(work: Callable[[int], Tensor], pieces: Sequence[int], device: torch.device) -> list[Tensor]:
    """The result of `work` for each piece, in order; on a CPU in as many threads as torch may use.

    Torch does not parallelize most operations of a lookup.
    """
    threads = min(torch.get_num_threads(), len(pieces))
    if threads <= 1 or device.type != "cpu":
        return [work(piece) for piece in pieces]
    before = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(work, pieces))
    finally:
        torch.set_num_threads(before)  # the setting of a worker would otherwise stay in effect
