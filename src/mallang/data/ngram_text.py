"""Texts as n-grams see them: one row of words, and where in its text each of them stands.

    batches   read <s> a b | <s> c     said a b </s> | c </s>
    words     <s> a b </s> <s> c </s>
    places     0  1 2  3    0  1  2

An n-gram of length n ends at each word whose place is at least n − 1: none reaches over the beginning of a text. Where
`<s>` is not to be read it is left out, and the first word stands at place 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int, Integer
from torch import Tensor

from mallang.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class Text:
    """All texts as one row of words."""

    words: Integer[np.ndarray, " words"]
    places: Integer[np.ndarray, " words"]
    """Where in its text each word stands, from 0."""

    def split(self, share: float) -> tuple[Text, Text]:
        """Two parts, the second with this share of the texts, taken evenly from everywhere."""
        number = np.cumsum(self.places == 0)
        apart = np.floor(number * share) > np.floor((number - 1) * share)
        return Text(self.words[~apart], self.places[~apart]), Text(self.words[apart], self.places[apart])


@dataclass(frozen=True)
class Flat:
    """A batch as one row of words."""

    words: Int[Tensor, " words"]
    places: Int[Tensor, " words"]
    labels: Int[Tensor, " labels"]
    """Which of the words each label of the batch is, row by row, `<pad>` left out."""


def text_of(parts: Iterable[Flat]) -> Text:
    """The words of many batches."""
    words, places = [np.empty(0, np.int32)], [np.empty(0, np.int32)]
    for flat in parts:
        words.append(flat.words.cpu().numpy().astype(np.int32))
        places.append(flat.places.cpu().numpy().astype(np.int32))
    return Text(np.concatenate(words), np.concatenate(places))


def flatten(
    read: Int[Tensor, "batch time"],
    said: Int[Tensor, "batch time"],
    mask: Bool[Tensor, "batch time"],
    vocabulary: Vocabulary,
    *,
    begin: bool,
) -> Flat:
    """The words that are read and, where they are not read next, those that are said.

    With `begin` texts begin with `<s>`, else with their first word. `mask` is True where there is something to read.
    """
    opens = mask & (read == vocabulary.bos)
    is_asked = said != vocabulary.pad
    follows = torch.zeros_like(is_asked)
    follows[:, :-1] = (read[:, 1:] == said[:, :-1]) & mask[:, 1:] & ~opens[:, 1:]
    # Two columns for every position: what is read there, then what is said there.
    kept = torch.stack((mask & ~opens if not begin else mask, is_asked & ~follows), dim=2)
    fresh = torch.zeros_like(kept)
    fresh[:, :, 0] = opens
    fresh[:, 0, 0] = True
    before = kept.flatten().cumsum(0) - kept.flatten().long()  # words before each column: its number if it is kept
    base = torch.where(fresh.flatten(), before, 0).cummax(0).values
    numbers = before.view_as(kept)
    following = torch.nn.functional.pad(numbers[:, 1:, 0], (0, 1))
    labels = torch.where(follows, following, numbers[:, :, 1])[is_asked]
    words = torch.stack((read, said), dim=2)
    return Flat(words[kept], (before - base)[kept.flatten()], labels)
