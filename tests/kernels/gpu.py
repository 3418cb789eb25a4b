"""Where kernels written in triton are tried: on a GPU, or on a CPU by triton's interpreter.

`TRITON_INTERPRET=1` must be set before mallang is imported, so `make test` runs the tests that `needs_kernels` marks a
second time, in processes of their own, with a triton that nothing else sees.
"""

import importlib.util
import os

import pytest
import torch

HAS_GPU = torch.cuda.is_available()
INTERPRETED = not HAS_GPU and os.environ.get("TRITON_INTERPRET") == "1" and bool(importlib.util.find_spec("triton"))
DEVICE = "cuda" if HAS_GPU else "cpu"

needs_gpu = pytest.mark.skipif(not HAS_GPU, reason="needs a GPU")
_skip = pytest.mark.skipif(not HAS_GPU and not INTERPRETED, reason="needs a GPU")


def needs_kernels(test):
    """A test that starts kernels on DEVICE."""
    return pytest.mark.kernels(_skip(test))


def large(*values):
    """A size that the interpreter takes too long for."""
    return pytest.param(*values, marks=pytest.mark.skipif(INTERPRETED, reason="too slow in triton's interpreter"))


BF16 = pytest.param(
    torch.bfloat16, marks=pytest.mark.skipif(INTERPRETED, reason="triton's interpreter has no matmul in bf16")
)
