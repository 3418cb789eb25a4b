"""Fused cross-entropy on a CPU, in C: the loss of logits and its gradient. See kernels.c.

It is the CPU counterpart of fused_cross_entropy.py. Op by op the logits are read three times and written twice; here
they are read and written once, since a row stays in the cache of its core.
"""

from __future__ import annotations

import torch
from jaxtyping import Float32, Int
from torch import Tensor

from mallang.kernels import c_library
from mallang.text.vocabulary import PAD


def c_cross_entropy_(
    logits: Float32[Tensor, "positions words"], labels: Int[Tensor, " positions"], smoothing: float = 0.0
) -> Float32[Tensor, "sums positions"]:
    """The smoothed loss and the negative log-likelihood of each row; logits become softmax − (1 − smoothing) · one-hot.

    Rows labeled `<pad>` have no loss and become zero. The smoothing term, which is the same for every word, is not
    subtracted.
    """
    kernels, (rows, words), labels = c_library.library(), logits.shape, labels.contiguous()
    assert kernels is not None
    assert logits.stride(1) == 1
    assert labels.shape == (rows,)
    assert labels.dtype == torch.long
    if not ((labels >= 0) & (labels < words)).all():
        raise IndexError(f"a label is not among {words} words")  # the kernel would write out of bounds
    sums = logits.new_empty(2, rows)
    kernels.cross_entropy(
        logits.data_ptr(), rows, words, logits.stride(0), labels.data_ptr(), PAD, smoothing,
        sums[0].data_ptr(), sums[1].data_ptr(), c_library.threads(8 * rows * words),
    )  # fmt: skip
    return sums
