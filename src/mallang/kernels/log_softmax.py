"""Log-probabilities of logits in float32: torch's log softmax, and on a CPU a C kernel that reads a row once."""

from __future__ import annotations

import torch
from jaxtyping import Float, Float32
from torch import Tensor

from mallang.kernels import c_library
from mallang.kernels.dispatch import is_off


def log_softmax(logits: Float[Tensor, "rows vocabulary"]) -> Float32[Tensor, "rows vocabulary"]:
    """log softmax of every row."""
    if is_off("c-log-softmax") or not c_library.may_take(logits) or logits.stride(1) != 1:
        return logits.log_softmax(dim=-1, dtype=torch.float32)
    kernels, (rows, vocabulary) = c_library.library(), logits.shape
    assert kernels is not None
    found = logits.new_empty(rows, vocabulary)
    kernels.log_softmax(
        logits.data_ptr(), rows, vocabulary, logits.stride(0), found.data_ptr(),
        c_library.threads(8 * rows * vocabulary),
    )  # fmt: skip
    return found
