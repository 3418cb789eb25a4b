"""Frozen features where two texts are read: the given encoder reads each of them by itself (tasks/features.py).

    pairs                 first  → given encoder → u ┐
                          second → given encoder → v ┴→ u, v, |u − v|, u · v (Conneau et al. 2017, arXiv:1705.02364)

    question answering    question, context → given encoder → a vector for every token of the own tokenizer

Both are joined to what the own encoder says of the same pair, or of the same token, under the head. A token of the own
tokenizer has the vector of that token of the given one which holds its first character, so that the two may cut a text
differently. Special tokens, and tokens beyond the maximum length of the given encoder, have zeros.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from mallang.data.answers import NOWHERE, offsets_of
from mallang.data.batch import Batch, pad_rows
from mallang.data.columns import Column
from mallang.layers.frozen import Frozen
from mallang.layers.mix import LayerMix
from mallang.runs.given import Given
from mallang.tasks.features import Features, Mixing
from mallang.text.tokenizer import Tokenizer

SECOND = "second_"
"""What the names of the fields of the second text begin with."""


class PairFeatures(Features):
    """The features of a pair: u, v, |u − v| and u · v of both texts, or the vector of the one that is read."""

    def __init__(self, given: Given, options: Mixing, own: Tokenizer, read: str) -> None:
        super().__init__(given, "text", options, own)
        self.read = ("first", "second") if read == "both" else (read,)
        self.dim *= 4 if read == "both" else 1

    def arrays(self) -> list[Column]:
        """The tokens of both texts, from columns 0 and 1."""
        return [Column(place, self.tokenizer, is_text=False) for place in (0, 1)]

    def examples(self, firsts: list[str], seconds: list[str]) -> list[tuple[Any, ...]]:
        """Those arrays of pairs that are read outside of a corpus."""
        sides = [[np.array(ids, np.int64) for ids in self.tokenizer.encode_batch(each)] for each in (firsts, seconds)]
        return list(zip(*sides, strict=True))

    def fields(self, rows: Sequence[Sequence[Any]]) -> dict[str, Tensor]:
        """The fields of a batch from those arrays of each pair."""
        first, second = (super(PairFeatures, self).fields([row[place : place + 1] for row in rows]) for place in (0, 1))
        return {**first, **{SECOND + name: value for name, value in second.items()}}

    def vectors(self, features: Frozen, batch: Batch, mix: LayerMix | None = None) -> Float[Tensor, "pairs dim"]:
        """The features of pairs."""
        sides = {"first": batch, "second": second_of(batch)}
        found = [super(PairFeatures, self).vectors(features, sides[name], mix) for name in self.read]
        if len(found) == 1:
            return found[0]
        one, two = found
        return torch.cat((one, two, (one - two).abs(), one * two), dim=-1)


class TokenFeatures(Features):
    """The features of the tokens of a question and of its context."""

    def __init__(self, given: Given, options: Mixing, own: Tokenizer) -> None:
        super().__init__(given, "text", options, own, of_words=True)
        self.places = Aligned(own, given.tokenizer)

    def arrays(self) -> list[Column]:
        """The given tokens of both texts, columns 0 and 1, and the one that each own token has its vector of."""
        return [Column(place, each, is_text=False) for place in (0, 1) for each in (self.tokenizer, self.places)]

    def example(self, question: str, context: str) -> tuple[Any, ...]:
        """Those arrays of a question that is read outside of a corpus."""
        cells = {0: question, 1: context}
        rows = [each.encoder.encode_batch([cells[each.place]])[0] for each in self.arrays()]  # type: ignore[union-attr]
        return tuple(np.array(row, np.int64) for row in rows)

    def window(self, arrays: Sequence[Any], question: int, begin: int, end: int) -> tuple[Any, ...]:
        """The arrays of a window: the first own tokens of the question, and those from `begin` to `end` of a context.

        The given encoder reads the same part of the context, and all of the question.
        """
        asked, asked_places, tokens, places = arrays
        known = places[places != NOWHERE]
        if not len(known):
            return asked, asked_places[:question], tokens, places[begin:end]
        first = int(places[begin])
        last = max(int(places[end - 1]) + 1, int(places[end]) if end < len(places) else len(tokens))
        return asked, asked_places[:question], tokens[first:last], places[begin:end] - first

    def joined_fields(
        self, rows: Sequence[Sequence[Any]], asked: int, contexts: Sequence[int], widths: Sequence[int]
    ) -> dict[str, Tensor]:
        """The fields of a batch of windows whose questions begin at `asked`, and whose contexts at `contexts`."""
        offset = self.given.tokenizer.vocabulary.frame_length - 1
        found: dict[str, Tensor] = {}
        places = [np.full(width, -1, np.int64) for width in widths]
        for prefix, part, begins in (("", 0, [asked] * len(rows)), (SECOND, 2, contexts)):
            sides = super().fields_of_tokens([row[part] for row in rows])
            found |= {prefix + name: value for name, value in sides.items()}
            for row, begin, line in zip(rows, begins, places, strict=True):
                own = row[part + 1]
                read = len(row[part]) - 1 - own if self.backward else own
                line[begin : begin + len(own)] = np.where(own == NOWHERE, -1, read + offset)
        return {**found, "feature_words": pad_rows(places, -1)[0]}

    def parts(self, features: Frozen, batch: Batch, mix: LayerMix | None) -> list[Float[Tensor, "batch time dim"]]:
        """The vector of every token of the rows, from each layer that counts."""
        assert batch.feature_words is not None and batch.token_types is not None
        one, two = (super(TokenFeatures, self).parts(features, side, mix) for side in (batch, second_of(batch)))
        is_second = (batch.token_types == 1)[:, :, None]
        known = (batch.feature_words >= 0)[:, :, None]
        return [torch.where(known & is_second, b, torch.where(known, a, 0.0)) for a, b in zip(one, two, strict=True)]


@dataclass
class Aligned:
    """Encodes a text as the token of another tokenizer that holds the first character of each own token."""

    own: Tokenizer
    other: Tokenizer
    kept: dict[str, Int[np.ndarray, " tokens"]] = field(default_factory=dict)
    """The text read last: several questions in a row are about one context."""

    @property
    def fingerprint(self) -> str:
        """A sum over both tokenizers."""
        return hashlib.sha256(f"aligned 1 {self.own.fingerprint} {self.other.fingerprint}".encode()).hexdigest()

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """A token of the other tokenizer for every own token of every text; NOWHERE where the other has none at all."""
        return [self.places(text).tolist() for text in texts]

    def places(self, text: str) -> Int[np.ndarray, " tokens"]:
        """Those of one text."""
        if text not in self.kept:
            (_, own), (_, other) = offsets_of(self.own, text), offsets_of(self.other, text)
            found = np.searchsorted(other[:, 0], own[:, 0], side="right") - 1
            self.kept = {text: np.maximum(found, 0) if len(other) else np.full(len(own), NOWHERE)}
        return self.kept[text]


def second_of(batch: Batch) -> Batch:
    """The batch with the second text in place of the first one, as the given encoder reads it."""
    return replace(batch, feature_tokens=batch.second_feature_tokens, feature_lengths=batch.second_feature_lengths)
