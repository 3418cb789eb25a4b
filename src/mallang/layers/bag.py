"""A text as a bag of words: how often each word of the vocabulary occurs in it; their order is forgotten."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mallang.data.batch import lengths_to_mask
from mallang.text.vocabulary import Vocabulary


def bag_of(
    tokens: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"], vocabulary: Vocabulary
) -> Float[Tensor, "batch words"]:
    """How often every word occurs in each text; neither special tokens nor padding are words."""
    counted = lengths_to_mask(lengths, tokens.shape[1])
    for special in vocabulary.specials:
        counted = counted & (tokens != special)
    bags = torch.zeros(len(tokens), len(vocabulary), device=tokens.device)
    return bags.scatter_add(1, tokens, counted.float())
