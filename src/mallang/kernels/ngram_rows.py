"""Texts as sparse rows of n-gram counts, in C where it can be compiled and in numpy everywhere.

    key of w₁ … wₙ = ((w₁ + 1) · radix + w₂ + 1) · radix + …        radix = words + 1

A key is exact: no two n-grams of any length share one, and it can be turned back into its tokens. With `buckets` an
n-gram is hashed instead: a matrix of fixed width without a vocabulary, in which n-grams may share a column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
from jaxtyping import Int32, Int64

from mallang.kernels import c_bag
from mallang.kernels.c_bag import address

ODD = 0x9E3779B97F4A7C15
"""2⁶⁴ divided by the golden ratio, as in bag.c."""
LONGEST = 16
"""The maximum length of an n-gram, as in bag.c."""
SLOT = np.dtype([("key", np.int64), ("feature", np.int32), ("last", np.int32)])
FIRST_BITS = 16
"""Bits of the size of a hash table before it grows."""
MOST_ENTRIES = 2**31 - 1
"""The marks of a hash table are int32."""


@dataclass(frozen=True)
class Texts:
    """Texts as token ids, one after the other."""

    ids: Int32[np.ndarray, " tokens"]
    offsets: Int64[np.ndarray, " bounds"]
    """Text i is `ids[offsets[i] : offsets[i + 1]]`."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def ngrams(self, orders: Sequence[int]) -> int:
        """The number of n-grams of these lengths."""
        lengths = np.diff(self.offsets)
        return int(sum(np.maximum(0, lengths - order + 1).sum() for order in orders))


@dataclass(frozen=True)
class Counted:
    """A sparse matrix in CSR form: how often each feature occurs in each text."""

    indptr: Int64[np.ndarray, " bounds"]
    """The entries of row i are those from `indptr[i]` up to `indptr[i + 1]`."""
    indices: Int32[np.ndarray, " entries"]
    counts: Int32[np.ndarray, " entries"]
    features: int
    """The number of columns."""

    def document_counts(self) -> Int64[np.ndarray, " features"]:
        """The number of texts with each feature."""
        return np.bincount(self.indices, minlength=self.features)

    def renumbered(self, numbers: Int32[np.ndarray, " features"]) -> Counted:
        """The matrix with other feature numbers, without features whose number is −1; this one must not be used."""
        features = int(numbers.max(initial=-1)) + 1
        if (kernels := c_bag.library()) is not None:
            rows = len(self.indptr) - 1
            kernels.renumber(
                address(numbers, np.int32), rows, address(self.indptr, np.int64), address(self.indices, np.int32),
                address(self.counts, np.int32),
            )  # fmt: skip
            end = int(self.indptr[-1])
            return Counted(self.indptr, self.indices[:end], self.counts[:end], features)
        indices = numbers[self.indices]
        kept = indices >= 0
        indptr = np.concatenate(([0], np.cumsum(kept)))[self.indptr]
        return Counted(indptr, indices[kept], self.counts[kept], features)


class NgramIndex:
    """The columns of n-grams: of those that it knows, or all in a fixed number of buckets."""

    def __init__(
        self,
        words: int,
        orders: Sequence[int],
        *,
        buckets: int = 0,
        keys: Int64[np.ndarray, " features"] | None = None,
    ) -> None:
        self.radix, self.orders, self.buckets = words + 1, sorted(set(orders)), buckets
        if not self.orders or not 1 <= self.orders[0] <= self.orders[-1] <= LONGEST:
            raise ValueError(f"orders must be between 1 and {LONGEST}, but are {list(orders)}")
        if not buckets and self.radix ** self.orders[-1] >= 2**63:
            raise ValueError(
                f"the {self.orders[-1]}-grams of {words:,} tokens cannot be numbered in 63 bits: give buckets, a "
                f"smaller vocabulary, or shorter n-grams"
            )
        if buckets and (buckets & (buckets - 1) or not 2 <= buckets <= 2**30):
            raise ValueError(f"buckets must be a power of two, but are {buckets}")
        self.keys = np.empty(0, np.int64) if keys is None else keys
        self.table: np.ndarray[Any, Any] | None = None
        """The hash table of the keys, or of the buckets the last entry that counted each; None: not built yet."""
        self.counted = 0
        """The number of entries that the marks of the table refer to."""
        self.order: Int64[np.ndarray, " features"] | None = None
        self.lock = Lock()
        """Held while the table is in use: C functions run beside other threads."""

    def __getstate__(self) -> dict[str, Any]:
        # The table is built again where it is needed: it may be large, and one cannot serve two threads or processes.
        return {**self.__dict__, "table": None, "counted": 0, "lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, lock=Lock())

    @property
    def features(self) -> int:
        """The number of columns."""
        return self.buckets or len(self.keys)

    def tokens(self, feature: int) -> list[int]:
        """The tokens of an n-gram."""
        key, found = int(self.keys[feature]), list[int]()
        while key:
            key, token = divmod(key, self.radix)
            found.insert(0, token - 1)
        return found

    def learn(self, texts: Texts) -> Counted:
        """The counts of all n-grams of these texts, which the index knows afterwards."""
        self.keys, self.table, self.counted, self.order = np.empty(0, np.int64), None, 0, None
        if self.buckets:
            return self.count(texts)
        if c_bag.library() is not None:
            return self._count_in_c(texts, is_new=True)
        keys, rows = self._keys(texts)
        self.keys, found = np.unique(keys, return_inverse=True)
        return self._gathered(rows, found, len(texts))

    def keep(self, chosen: Int64[np.ndarray, " chosen"], counted: Counted) -> Counted:
        """Know these features alone, in this order; returns the matrix with these columns."""
        numbers = np.full(len(self.keys), -1, np.int32)
        numbers[chosen] = np.arange(len(chosen), dtype=np.int32)
        self.keys, self.table, self.counted, self.order = self.keys[chosen], None, 0, None
        return counted.renumbered(numbers)

    def count(self, texts: Texts) -> Counted:
        """The counts of the n-grams that are known."""
        if c_bag.library() is not None:
            with self.lock:
                return self._count_buckets_in_c(texts) if self.buckets else self._count_in_c(texts, is_new=False)
        keys, rows = self._keys(texts)
        if self.buckets:
            found = (keys.view(np.uint64) * np.uint64(ODD) >> np.uint64(64 - self._bits())).astype(np.int64)
            return self._gathered(rows, found, len(texts))
        if self.order is None:
            self.order = np.argsort(self.keys)
        if not len(self.keys):
            return self._gathered(rows[:0], rows[:0], len(texts))
        places = np.minimum(np.searchsorted(self.keys, keys, sorter=self.order), len(self.keys) - 1)
        found = self.order[places]
        is_known = self.keys[found] == keys
        return self._gathered(rows[is_known], found[is_known], len(texts))

    # ---- in numpy ----

    def _keys(self, texts: Texts) -> tuple[Int64[np.ndarray, " ngrams"], Int64[np.ndarray, " ngrams"]]:
        """The key or hash of every n-gram, and the number of its text."""
        lengths = np.diff(texts.offsets)
        rows = np.repeat(np.arange(len(texts)), lengths)
        room = np.repeat(texts.offsets[1:], lengths) - np.arange(len(texts.ids))  # tokens from here to the end
        tokens, keys = texts.ids.astype(np.uint64) + np.uint64(1), np.zeros(len(texts.ids), np.uint64)
        found_keys, found_rows = [np.empty(0, np.uint64)], [np.empty(0, np.int64)]
        for length in range(1, self.orders[-1] + 1):
            starts = np.flatnonzero(room >= length)
            here, next_tokens = keys[starts], tokens[starts + length - 1]
            if self.buckets:
                here = (here + next_tokens) * np.uint64(ODD)
                here ^= here >> np.uint64(32)
            else:
                here = here * np.uint64(self.radix) + next_tokens
            keys[starts] = here
            if length in self.orders:
                found_keys.append(here)
                found_rows.append(rows[starts])
        return np.concatenate(found_keys).view(np.int64), np.concatenate(found_rows)

    def _gathered(self, rows: Int64[np.ndarray, " ngrams"], found: Int64[np.ndarray, " ngrams"], texts: int) -> Counted:
        """Counts from the row and the column of every n-gram."""
        width = max(1, self.features)
        cells, counts = np.unique(rows * width + found, return_counts=True)
        indptr = np.searchsorted(cells, np.arange(texts + 1) * width)
        return Counted(indptr, (cells % width).astype(np.int32), counts.astype(np.int32), self.features)

    # ---- in C ----

    def _bits(self) -> int:
        return self.buckets.bit_length() - 1

    def _count_in_c(self, texts: Texts, *, is_new: bool) -> Counted:
        kernels, bound, rows = c_bag.library(), texts.ngrams(self.orders), len(texts)
        assert kernels is not None
        if bound > MOST_ENTRIES:
            raise ValueError(f"{bound:,} n-grams are too many for one matrix: give fewer orders")
        indptr = np.zeros(rows + 1, np.int64)
        indices, counts = np.empty(bound, np.int32), np.empty(bound, np.int32)
        known = np.empty(bound, np.int64) if is_new else self.keys
        bits = FIRST_BITS if is_new else max(1, (4 * len(known) // 3 + 1).bit_length())  # at most three in four filled
        if self.table is None:
            self._build(known[:0] if is_new else known, bits)
        elif self.counted + bound > MOST_ENTRIES:
            self._forget()
        state = np.array([0, 0, 0 if is_new else len(known), self.counted], np.int64)
        while True:
            assert self.table is not None
            kernels.count_ngrams(
                address(texts.ids, np.int32), address(texts.offsets, np.int64), rows, self.radix, self._order_bits(),
                address(self.table, SLOT), bits, address(known, np.int64), (3 << bits) // 4 if is_new else 0,
                address(state, np.int64), address(indptr, np.int64), address(indices, np.int32),
                address(counts, np.int32),
            )  # fmt: skip
            if state[0] == rows:
                break
            bits += 1  # the next row may not fit
            self._build(known[: state[2]], bits)
        entries = int(state[1])
        if is_new:
            self.keys, self.table = known[: state[2]].copy(), None
        else:
            self.counted += entries
        return Counted(indptr, indices[:entries], counts[:entries], self.features)

    def _count_buckets_in_c(self, texts: Texts) -> Counted:
        kernels, bound, rows = c_bag.library(), texts.ngrams(self.orders), len(texts)
        assert kernels is not None
        if self.table is None or self.counted + bound > MOST_ENTRIES:
            self.table, self.counted = np.full(self.buckets, -1, np.int32), 0
        indptr, state = np.zeros(rows + 1, np.int64), np.array([0, 0, 0, self.counted], np.int64)
        indices, counts = np.empty(bound, np.int32), np.empty(bound, np.int32)
        kernels.count_buckets(
            address(texts.ids, np.int32), address(texts.offsets, np.int64), rows, self._order_bits(),
            address(self.table, np.int32), self._bits(), address(state, np.int64), address(indptr, np.int64),
            address(indices, np.int32), address(counts, np.int32),
        )  # fmt: skip
        entries = int(state[1])
        self.counted += entries
        return Counted(indptr, indices[:entries], counts[:entries], self.buckets)

    def _order_bits(self) -> int:
        return sum(1 << order for order in self.orders)

    def _build(self, keys: Int64[np.ndarray, " keys"], bits: int) -> None:
        kernels = c_bag.library()
        assert kernels is not None
        self.table, self.counted = np.empty(1 << bits, SLOT), 0
        self.table["feature"] = self.table["last"] = -1
        kernels.index_keys(address(keys, np.int64), len(keys), address(self.table, SLOT), bits)

    def _forget(self) -> None:
        assert self.table is not None
        self.table["last"], self.counted = -1, 0
