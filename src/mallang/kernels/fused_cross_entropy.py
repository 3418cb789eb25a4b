"""Fused cross-entropy on a GPU: the loss of logits and its gradient in one Triton kernel, which overwrites the logits.

Op by op the logits, the largest tensor of a language model, are read and written several times, once in float32. Here
one program per row reads the row twice, the second time from the cache, and writes it once:

    log Σ = m + log Σ exp(x − m)                       m is the running maximum (Milakov and Gimelshein 2018)
    x ← exp(x − log Σ) − (1 − smoothing) · [x is the logit of the label]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, no_type_check

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from mallang.kernels.dispatch import tl, tried_once, triton
from mallang.text.vocabulary import PAD

BLOCK = 8192
"""Columns that a program reads at a time."""
TOGETHER = 8
"""Columns of a block that one thread reads together."""
WARPS = 16
"""Warps per program."""
WHOLE = 64
"""Rows whose width is a multiple of this are read and written with vectorized accesses."""


def is_at_hand(device: torch.device) -> bool:
    """Whether the kernel can run on this device."""
    return device.type == "cuda" and works()


@tried_once("cross-entropy")
def works() -> bool:
    """Self-test: whether the kernel agrees with the formula."""
    logits = torch.arange(6, dtype=torch.float32, device="cuda").view(2, 3)
    labels = torch.tensor([1, 2], device="cuda")
    wanted = logits.softmax(dim=1) - F.one_hot(labels, 3)
    fused_cross_entropy_(logits, labels, 3)
    return torch.allclose(logits, wanted, atol=1e-5)


def padded_vocabulary(weight: Float[Tensor, "words ..."]) -> Float[Tensor, "width ..."]:
    """The weight or bias of an output projection, zero-padded to a vocabulary size that is a multiple of `WHOLE`."""
    if len(weight) % WHOLE == 0:
        return weight
    return F.pad(weight, (0, 0) * (weight.dim() - 1) + (0, -len(weight) % WHOLE))


def fused_cross_entropy_(
    logits: Float[Tensor, "positions width"], labels: Int[Tensor, " positions"], words: int, smoothing: float = 0.0
) -> Float[Tensor, "sums positions"]:
    """The smoothed loss and the negative log-likelihood of each row; logits become softmax − (1 − smoothing) · one-hot.

    Rows labeled `<pad>` have no loss and become zero, as do columns beyond the words. The smoothing term, which is the
    same for every word, is not subtracted.
    """
    assert logits.stride(1) == 1
    labels, sums = labels.contiguous(), torch.empty(2, len(labels), device=logits.device)
    _fused_cross_entropy[(len(labels),)](
        logits, labels, sums, logits.stride(0), len(labels), words, logits.shape[1], smoothing, pad=PAD,
        smooth=smoothing > 0, block=max(TOGETHER, min(BLOCK, triton.next_power_of_2(logits.shape[1]))),
        together=TOGETHER, num_warps=WARPS,
    )  # fmt: skip
    return sums


if TYPE_CHECKING:
    _fused_cross_entropy: Any
elif triton is not None:

    @triton.jit
    @no_type_check
    def _fused_cross_entropy(
        logits, labels, sums, stride, rows, words, width, smoothing,
        pad: tl.constexpr, smooth: tl.constexpr, block: tl.constexpr, together: tl.constexpr,
    ):  # fmt: skip
        """The loss and the gradient of one row."""
        e: tl.constexpr = 1.4426950408889634  # log2(e): a GPU computes exp2
        row = tl.program_id(0).to(tl.int64)
        logits += row * stride
        label = tl.load(labels + row)
        if label == pad:
            for first in range(0, width, block):
                column = first + tl.arange(0, block)
                tl.store(logits + column, tl.zeros((block,), logits.dtype.element_ty), mask=column < width)
            tl.store(sums + row, 0.0)
            tl.store(sums + rows + row, 0.0)
        else:
            said = tl.load(logits + label).to(tl.float32)
            # One maximum and one sum per group of columns that a thread reads together: no thread waits for another.
            highest = tl.full((block // together,), float("-inf"), tl.float32)
            total, plain = tl.zeros((block // together,), tl.float32), tl.zeros((block // together,), tl.float32)
            for first in range(0, words, block):
                column = first + tl.arange(0, block)
                x = tl.load(logits + column, mask=column < words, other=float("-inf")).to(tl.float32)
                x = tl.reshape(x, (block // together, together))
                higher = tl.maximum(highest, tl.max(x, axis=1))
                base = tl.where(higher == float("-inf"), 0.0, higher) * e  # all −∞ so far: avoids −∞ − (−∞)
                total = total * tl.exp2(highest * e - base) + tl.sum(tl.exp2(x * e - base[:, None]), axis=1)
                highest = higher
                if smooth:
                    inside = tl.reshape(column < words, (block // together, together))
                    plain += tl.sum(tl.where(inside, x, 0.0), axis=1)
            top = tl.max(highest, axis=0)
            base = tl.where(top == float("-inf"), 0.0, top)
            whole = top + tl.log(tl.sum(total * tl.exp(highest - base), axis=0))
            for first in range(0, width, block):
                column = first + tl.arange(0, block)
                x = tl.load(logits + column, mask=column < words, other=float("-inf")).to(tl.float32)
                given = tl.exp2(x * e - whole * e).to(logits.dtype.element_ty)
                tl.store(logits + column, given, mask=column < width)
            tl.debug_barrier()  # another thread may have written the column of the label
            right = tl.exp2(said * e - whole * e) - (1 - smoothing)
            tl.store(logits + label, right.to(logits.dtype.element_ty))
            nll = whole - said
            loss = nll
            if smooth:
                loss = (1 - smoothing) * nll + smoothing * (whole - tl.sum(plain, axis=0) / words)
            tl.store(sums + row, loss)
            tl.store(sums + rows + row, nll)
