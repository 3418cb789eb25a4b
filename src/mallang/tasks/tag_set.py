"""The tags of a run: as the data writes them, and as the model learns them.

Spans may be learned in another scheme than the data has: BIOES says more than IOB2, and IOB1 says less. What the model
predicts is written in the scheme of the data again. Tags that spell no spans, as parts of speech, stay as they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from mallang.data.columns import LabelSet, split_cell
from mallang.errors import UserError, nearest, some_of
from mallang.evaluation.spans import convert_tags, tag_set
from mallang.layers.crf import Constraints, allowed_transitions
from mallang.text.tag_scheme import OUTSIDE, Scheme, split_tag

Learned = Literal["same", "iob2", "bioes"]
"""The scheme that spans are learned in; same: that of the data."""
BEGINS = {"S": "B", "E": "I"}
"""Prefixes of BIOES that say the same as one of IOB2, and when the span ends."""


@dataclass(frozen=True)
class TagSet:
    """The tags of the data, and the scheme that spans are learned in; it encodes the column of the tags."""

    labels: LabelSet
    learned: Learned = "bioes"

    @cached_property
    def scheme(self) -> Scheme | None:
        """The scheme that the model learns; none if the tags spell no spans."""
        if self.labels.scheme is None or self.learned == "same":
            return self.labels.scheme
        return self.learned

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The tags that the model learns, in the order of their numbers."""
        if self.scheme is None:
            return self.labels.names
        kinds = dict.fromkeys(split_tag(name)[1] for name in self.labels.names if name != OUTSIDE)
        return tuple(tag_set(kinds, self.scheme))

    @cached_property
    def ids(self) -> dict[str, int]:
        """The number of every tag that the model learns."""
        return {name: number for number, name in enumerate(self.names)}

    def __len__(self) -> int:
        return len(self.names)

    @property
    def fingerprint(self) -> str:
        """A sum over the tags and the scheme."""
        return hashlib.sha256(f"{self.labels.fingerprint} {self.scheme}".encode()).hexdigest()

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """The numbers of the tags in every cell."""
        return [self.encode(split_cell(text, "tags")) for text in texts]

    def encode(self, tags: Sequence[str]) -> list[int]:
        """The numbers of the tags of a sentence, in the scheme that is learned."""
        written = list(tags) if self.scheme is None else convert_tags(tags, self.scheme)
        for given, tag in zip(tags, written, strict=True):
            if tag not in self.ids:
                raise UserError(
                    f"the tag {given!r} does not occur in the training data, which has {some_of(self.labels.names)}",
                    todo=nearest(given, self.labels.names),
                )
        return [self.ids[tag] for tag in written]

    def decode(self, ids: Sequence[int]) -> list[str]:
        """Tags in the scheme of the data."""
        tags = [self.names[number] for number in ids]
        return tags if self.labels.scheme in (None, self.scheme) else convert_tags(tags, self.labels.scheme)

    def constraints(self, strict: bool) -> Constraints:
        """Which tag may follow which: all if they spell no spans, or without `strict`."""
        if strict and self.scheme is not None:
            return allowed_transitions(self.names, self.scheme)
        anywhere = torch.ones(len(self.names), dtype=torch.bool)
        return Constraints(anywhere[:, None] & anywhere, anywhere, anywhere)

    @cached_property
    def alike(self) -> Float[Tensor, "tags tags"]:
        """1 where two tags say the same of a word in IOB2: B- and S-, I- and E- of one type."""
        groups = [(BEGINS.get(prefix, prefix), kind) for prefix, kind in map(split_tag, self.names)]
        if self.scheme is None:
            return torch.eye(len(self.names))
        return torch.tensor([[float(one == other) for other in groups] for one in groups])
