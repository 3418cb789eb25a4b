"""A function of single tokens, computed once per distinct token on a CPU; a GPU would have to wait for their number."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor


def for_distinct(
    compute: Callable[[Int[Tensor, " tokens"]], Float[Tensor, "tokens dim"]], tokens: Int[Tensor, "rows time"]
) -> Float[Tensor, "rows time dim"]:
    """`compute` applied to every token."""
    if tokens.is_cuda or torch.compiler.is_compiling():
        return compute(tokens.flatten()).view(*tokens.shape, -1)
    words, places = torch.unique(tokens, return_inverse=True)
    return compute(words)[places]
