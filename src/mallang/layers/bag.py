"""A text as a bag of words: how often each word of the vocabulary occurs in it; their order is forgotten."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mallang.text.vocabulary import Vocabulary


def bag_of(
    tokens: Int[Tensor, "batch time"], mask: Bool[Tensor, "batch time"], vocabulary: Vocabulary
) -> Float[Tensor, "batch words"]:
    """How often every word occurs in each text, where the mask lets it be seen; special tokens are no words."""
    for special in vocabulary.specials:
        mask = mask & (tokens != special)
    bags = torch.zeros(len(tokens), len(vocabulary), device=tokens.device)
    return bags.scatter_add(1, tokens, mask.float())
