"""The functions of bag.c, which need no particular processor: counting n-grams, and dual coordinate descent."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped

from mallang.kernels import c_library
from mallang.kernels.c_library import Count, Pointer, Signatures
from mallang.kernels.dispatch import is_off

SOURCE = Path(__file__).with_name("bag.c")
SIGNATURES: Signatures = {
    "index_keys": [Pointer, Count, Pointer, Count],
    "count_ngrams": [
        Pointer, Pointer, Count, ctypes.c_int64, Count, Pointer, Count, Pointer, Count, Pointer, Pointer, Pointer,
        Pointer,
    ],
    "count_buckets": [Pointer, Pointer, Count, Count, Pointer, Count, Pointer, Pointer, Pointer, Pointer],
    "renumber": [Pointer, Count, Pointer, Pointer, Pointer],
    "linear_scores": [Pointer, Pointer, Pointer, Count, Pointer, Pointer, Count, Pointer],
    "descend": [
        Pointer, Count, Pointer, Pointer, Pointer, Pointer, Pointer, Pointer, Pointer, Count, Count, ctypes.c_double,
        Pointer, Pointer, Pointer, Pointer, Pointer, Pointer,
    ],
}  # fmt: skip


def library() -> ctypes.CDLL | None:
    """The compiled functions, or None where they are switched off or cannot be compiled."""
    return None if is_off("c-bag") else compiled()


@functools.cache
def compiled() -> ctypes.CDLL | None:
    """The compiled functions, whatever the switch of today says; None where they cannot be compiled."""
    return c_library.compiled([SOURCE], SIGNATURES)


def address(array: Shaped[np.ndarray, ...], dtype: Any) -> int:
    """The address of a contiguous array of this type."""
    assert array.dtype == dtype and array.flags.c_contiguous, (array.dtype, dtype)
    return int(array.ctypes.data)
