"""Batches of texts with masked tokens, and the vectors at these positions alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mallang.data.batch import IGNORE, Batch, pad_rows, pad_texts
from mallang.data.masking import mask_tokens
from mallang.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class MaskedTexts:
    """How the tokens of texts are masked."""

    vocabulary: Vocabulary
    rate: float
    """Share of the tokens of a text that are masked, at least one."""
    random_share: float
    """Share of these that become a random word."""
    kept_share: float
    """Share of these that stay what they are."""

    def collate(self, texts: Sequence[np.ndarray], random: np.random.Generator) -> Batch:
        """A padded batch of texts: masked, with the masked positions and what was there."""
        vocabulary = self.vocabulary
        special = np.array(sorted(vocabulary.specials))
        words = np.setdiff1d(np.arange(len(vocabulary)), special)
        first = vocabulary.frame_length - 1
        found = [
            mask_tokens(
                ids, ~np.isin(ids, special), random, rate=self.rate, mask_id=vocabulary.mask,
                random_share=self.random_share, kept_share=self.kept_share, vocabulary=words,
            ) for ids in texts
        ]  # fmt: skip
        tokens, lengths = pad_texts([corrupted for corrupted, _ in found], vocabulary)
        masked, _ = pad_rows([places + first for _, places in found], -1)
        originals, _ = pad_rows([ids[places] for ids, (_, places) in zip(texts, found, strict=True)], IGNORE)
        return Batch(tokens=tokens, lengths=lengths, masked=masked, originals=originals)


def asked_tokens(batch: Batch) -> Bool[Tensor, "batch time"]:
    """All tokens but padding and rows without a masked token, such as those that fill up a batch."""
    assert batch.masked is not None
    return batch.mask & (batch.masked >= 0).any(dim=1, keepdim=True)


def masked_rows(hidden: Float[Tensor, "batch time dim"], batch: Batch) -> Float[Tensor, "rows dim"]:
    """The vectors at the masked positions.

    On a CPU only those have a row; on a GPU all of `batch.masked` have one, since a choice would synchronize with the
    host.
    """
    assert batch.masked is not None
    places = batch.masked.clamp(min=0)[:, :, None].expand(-1, -1, hidden.shape[-1])
    chosen = hidden.gather(1, places)
    return chosen.flatten(0, 1) if chosen.is_cuda else chosen[batch.masked >= 0]


def masked_labels(batch: Batch) -> Int[Tensor, " rows"]:
    """What was at these positions, row by row; IGNORE where there is none."""
    assert batch.originals is not None
    return batch.originals.flatten() if batch.originals.is_cuda else batch.originals[batch.originals != IGNORE]
