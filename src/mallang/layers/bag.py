"""A text as a bag of words: the count of each word of the vocabulary, without their order."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mallang.text.vocabulary import Vocabulary


def bag_of(
    tokens: Int[Tensor, "batch time"], mask: Bool[Tensor, "batch time"], vocabulary: Vocabulary
) -> Float[Tensor, "batch words"]:
    """The count of every word in each text where the mask is true; special tokens are not counted."""
    for special in vocabulary.specials:
        mask = mask & (tokens != special)
    bags = torch.zeros(len(tokens), len(vocabulary), device=tokens.device)
    return bags.scatter_add(1, tokens, mask.float())
