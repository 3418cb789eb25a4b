"""Attention within texts of unequal lengths that stand one after another in a single row, without padding (varlen).

    row       a a a b b c c c c        bounds    0 3 5 9        every token sees the tokens of its own text

A mask over all pairs would compute 81 scores here, where 9 + 4 + 16 are needed. On a GPU in bfloat16 flash attention
reads the bounds. Everywhere else the texts are padded for the attention alone: whatever is computed of single tokens,
which is most of the work of an encoder on short texts, still runs without padding.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mallang.kernels.dispatch import is_off, tried_once

PADDED = 0.8
"""The share of real tokens in a batch beyond which too little is saved."""


class Texts(NamedTuple):
    """The mask of a single row of texts: a token sees the tokens of its own text."""

    bounds: Int[Tensor, " bounds"]
    """Where every text begins, and the number of all tokens; int32, as flash attention reads it."""
    longest: int
    """A length that no text exceeds."""

    def numbers(self, time: int) -> Int[Tensor, " time"]:
        """The number of the text of every token."""
        places = torch.arange(time, device=self.bounds.device, dtype=self.bounds.dtype)
        return torch.searchsorted(self.bounds[1:], places, right=True)

    def mask(self, time: int) -> Bool[Tensor, "1 1 time time"]:
        """A boolean mask over all pairs."""
        numbers = self.numbers(time)
        return (numbers[:, None] == numbers[None, :])[None, None]


def saves_padding(tokens: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"]) -> bool:
    """Whether a batch is computed faster without its padding: on a GPU, outside training and captured graphs.

    The number of real tokens varies, which neither captured graphs nor compiled code like, and the host must know it.
    """
    if not tokens.is_cuda or torch.is_grad_enabled() or torch.compiler.is_compiling() or is_off("varlen-attention"):
        return False
    return not torch.cuda.is_current_stream_capturing() and int(lengths.sum()) <= PADDED * tokens.numel()


def varlen_attention(
    texts: Texts,
    queries: Float[Tensor, "1 heads time key_dim"],
    keys: Float[Tensor, "1 heads time key_dim"],
    values: Float[Tensor, "1 heads time value_dim"],
    dropout: float = 0.0,
) -> Float[Tensor, "1 heads time value_dim"]:
    """Attention from every token to those of its own text."""
    one, two, three = (each[0].transpose(0, 1) for each in (queries, keys, values))
    if not dropout and is_for_flash(queries, values) and works():
        context = flash(texts, one, two, three)
    else:
        context = padded(texts, one, two, three, dropout)
    return context.transpose(0, 1)[None]


def padded(
    texts: Texts,
    queries: Float[Tensor, "time heads key_dim"],
    keys: Float[Tensor, "time heads key_dim"],
    values: Float[Tensor, "time heads value_dim"],
    dropout: float,
) -> Float[Tensor, "time heads value_dim"]:
    """The texts as padded rows of a batch, which any attention computes, and their tokens again in one row."""
    begins, ends = texts.bounds[:-1].long(), texts.bounds[1:].long()
    index = begins[:, None] + torch.arange(texts.longest, device=begins.device)
    real = index < ends[:, None]
    index = index.clamp(max=len(queries) - 1)
    one, two, three = (each[index].transpose(1, 2) for each in (queries, keys, values))
    context = F.scaled_dot_product_attention(one, two, three, attn_mask=real[:, None, None, :], dropout_p=dropout)
    numbers = texts.numbers(len(queries))
    places = torch.arange(len(queries), device=numbers.device) - begins[numbers]
    return context[numbers, :, places]


def flash(
    texts: Texts,
    queries: Float[Tensor, "time heads key_dim"],
    keys: Float[Tensor, "time heads key_dim"],
    values: Float[Tensor, "time heads value_dim"],
) -> Float[Tensor, "time heads value_dim"]:
    """Flash attention over the bounds: the one place that calls it, for its signature changes between versions."""
    from torch.nn.attention.varlen import varlen_attn

    found = varlen_attn(queries, keys, values, texts.bounds, texts.bounds, texts.longest, texts.longest)
    assert isinstance(found, Tensor)
    return found


def is_for_flash(queries: Tensor, values: Tensor) -> bool:
    """Whether flash attention supports these."""
    return (
        queries.is_cuda
        and queries.dtype == values.dtype
        and queries.dtype in (torch.bfloat16, torch.float16)
        and queries.shape[3] == values.shape[3]
        and queries.shape[3] % 8 == 0
        and queries.shape[3] <= 256
        and not is_off("varlen-attention")
    )


@tried_once(None)
def works() -> bool:
    """Whether flash attention over bounds exists in this version of torch and is right on this GPU."""
    made = torch.Generator(device="cuda").manual_seed(1)
    one, two, three = (torch.randn(11, 2, 32, device="cuda", generator=made).bfloat16() for _ in range(3))
    texts = Texts(torch.tensor([0, 3, 4, 11], dtype=torch.int32, device="cuda"), 8)
    found, expected = flash(texts, one, two, three), padded(texts, one, two, three, 0.0)
    return torch.allclose(found.float(), expected.float(), atol=2e-2)
