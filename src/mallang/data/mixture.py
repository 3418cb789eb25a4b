"""Several prepared corpora as one: how often an epoch reads each, and the tag that tells the domain of a row.

A weight of 2 reads every row twice an epoch. Of a weight of 0.25 each epoch reads another quarter of the rows: they lie
in a shuffled ring, and an epoch goes on in it where the one before ended, so that no row is read much more often than
another. All of it is an arithmetic function of (seed, epoch); the sampler shuffles what was drawn.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Integer

from mallang.data.columns import Column
from mallang.data.corpus import Joined, Rows
from mallang.data.filters import Account, Filters
from mallang.data.prepared import Prepared, TextEncoder, prepare
from mallang.data.sampler import generator
from mallang.errors import UserError, nearest

DRAW, UNTAG = 3, 4
"""These set the random numbers here apart from those that plan, make and cut batches; the last of four says which."""
Example = tuple[Integer[np.ndarray, " tokens"], ...]


def prepare_split(
    rows: Rows, tokenizers: Sequence[TextEncoder | Column], filters: Filters, tags: Mapping[str, int] | None = None
) -> Prepared:
    """The rows of a split as ids, each corpus by itself where there are several; `tags` has the id of each domain."""
    if not isinstance(rows.source, Joined):
        return prepare(rows, tokenizers, filters)
    parts = []
    for member in rows.source.members:
        tag = None if member.domain is None else tag_of(member.domain, tags or {})
        parts.append(Part(prepare(member.rows, tokenizers, filters), member.weight, member.domain, tag))
    return Mixture(parts, rows.source.untagged)


def tag_of(domain: str, tags: Mapping[str, int]) -> int:
    """The id of a domain's tag, or a message that names the domains there are."""
    if domain in tags:
        return tags[domain]
    if not tags:
        raise UserError(f"there is no domain {domain!r}: the tokenizer was learned without domains")
    raise UserError(f"there is no domain {domain!r}; there are {', '.join(tags)}", todo=nearest(domain, tags))


@dataclass(frozen=True)
class Part:
    """One corpus of a mixture."""

    rows: Prepared
    weight: float = 1.0
    """How often an epoch reads each row."""
    domain: str | None = None
    tag: int | None = None
    """The id that goes before the first column."""


class Mixture(Prepared):
    """The rows of all parts, one part after the other, each with its tag; `epoch` draws from them."""

    def __init__(self, parts: Sequence[Part], untagged: float = 0.0) -> None:
        self.parts, self.untagged = tuple(parts), untagged
        self.starts = [0]
        for part in parts:
            self.starts.append(self.starts[-1] + len(part.rows))
        facts = [[part.rows.fingerprint, part.weight, part.tag] for part in parts]
        self.fingerprint = hashlib.sha256(json.dumps([facts, untagged]).encode()).hexdigest()
        self.account = Accounts.of(self.parts)

    def __len__(self) -> int:
        return self.starts[-1]

    def __getitem__(self, place: int) -> Example:
        if not -len(self) <= place < len(self):
            raise IndexError(place)
        return self.example(place % len(self), is_tagged=True)

    def example(self, place: int, *, is_tagged: bool) -> Example:
        """One row, with the tag of its part or without."""
        number = bisect_right(self.starts, place) - 1
        part = self.parts[number]
        first, *others = part.rows[place - self.starts[number]]
        if part.tag is not None and is_tagged:
            first = np.concatenate((np.array([part.tag]), first))
        return (first, *others)

    @cached_property
    def lengths(self) -> Integer[np.ndarray, "rows columns"]:
        """How many tokens each row has in each column, its tag counted."""
        found = []
        for part in self.parts:
            tag = np.zeros(part.rows.lengths.shape[1], np.int32)
            tag[0] = part.tag is not None
            found.append(part.rows.lengths + tag)
        return np.concatenate(found)

    def column(self, number: int) -> tuple[Integer[np.ndarray, " items"], Integer[np.ndarray, " bounds"]]:
        """All integers of one array, part after part, without tags, and where each row begins."""
        items, bounds = zip(*(part.rows.column(number) for part in self.parts), strict=True)
        starts = np.cumsum([0, *map(len, items)])
        moved = [own[:-1] + start for own, start in zip(bounds, starts, strict=False)]
        return np.concatenate(items), np.concatenate([*moved, starts[-1:]])

    @property
    def flat(self) -> None:
        """The ids of the parts do not lie together."""
        return None

    @property
    def domains(self) -> list[str | None]:
        """The domain of every row that was read, those that were left out included."""
        return [part.domain for part in self.parts for _ in range(part.rows.account.read)]

    def epoch(self, seed: int, epoch: int) -> Drawn:
        """The rows that an epoch reads, some several times, some not at all."""
        drawn = [
            start + draw(len(part.rows), part.weight, seed=seed, epoch=epoch, part=number)
            for number, (start, part) in enumerate(zip(self.starts, self.parts, strict=False))
        ]
        places = np.concatenate(drawn)
        is_tagged = generator(seed, epoch, 0, UNTAG).random(len(places)) >= self.untagged
        return Drawn(self, places, is_tagged)

    def __reduce__(self) -> tuple[Any, ...]:
        return Mixture, (self.parts, self.untagged)


def draw(rows: int, weight: float, *, seed: int, epoch: int, part: int) -> Integer[np.ndarray, " drawn"]:
    """The rows of one part that an epoch reads: each as often as the weight's whole says, and a share once more."""
    often, share = divmod(weight, 1)
    whole = np.repeat(np.arange(rows), int(often))
    if not share:
        return whole
    count = max(1, round(share * rows))
    ring = generator(seed, part, 0, DRAW).permutation(rows)
    return np.concatenate((whole, ring[(epoch * count + np.arange(count)) % rows]))


@dataclass(frozen=True)
class Drawn(Sequence[Example]):
    """The examples of one epoch, by number."""

    mixture: Mixture
    places: Integer[np.ndarray, " drawn"]
    is_tagged: Bool[np.ndarray, " drawn"]

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, number: int) -> Example:  # type: ignore[override]
        return self.mixture.example(int(self.places[number]), is_tagged=bool(self.is_tagged[number]))

    @property
    def account(self) -> Account:
        """What became of the rows that could be drawn."""
        return self.mixture.account

    @cached_property
    def lengths(self) -> Integer[np.ndarray, "drawn columns"]:
        """How many tokens each example has in each column; one that lost its tag is counted with it."""
        return np.take(self.mixture.lengths, self.places, axis=0)


@dataclass
class Accounts(Account):
    """What became of the rows of each part, and of all together."""

    parts: tuple[str, ...] = ()

    @classmethod
    def of(cls, parts: Sequence[Part]) -> Accounts:
        """The sum over the parts; told, it is a paragraph a part."""
        dropped: dict[str, int] = {}
        for part in parts:
            for reason, number in part.rows.account.dropped.items():
                dropped[reason] = dropped.get(reason, 0) + number
        name = " + ".join(part.rows.account.name for part in parts)
        read = sum(part.rows.account.read for part in parts)
        return cls(parts[0].rows.account.filters, name, read, dropped, tuple(map(_described, parts)))

    def __str__(self) -> str:
        return "\n".join(self.parts)


def _described(part: Part) -> str:
    times = "" if part.weight == 1 else f"\n  read {part.weight:g} times an epoch"
    return f"{part.rows.account}{times}" + ("" if part.domain is None else f"\n  domain: {part.domain}")
