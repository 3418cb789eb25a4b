"""Attention over short texts by our own kernels gives what the formula gives, and its gradients."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mallang.kernels import c_library
from mallang.kernels.attention import plain_attention
from mallang.kernels.c_attention import LONGEST, TrainingAttention, trains
from mallang.layers.attention import SelfAttention, record_attention

needs_kernels = pytest.mark.skipif(c_library.library() is None, reason="no compiler, or not such a processor")
sizes = st.integers(1, 40)


def make(batch: int, heads: int, count: int, slots: int, key_dim: int, value_dim: int) -> list[Tensor]:
    """Queries, keys and values as a layer has them: the heads of a position side by side."""
    shapes = ((count, key_dim), (slots, key_dim), (slots, value_dim))
    return [torch.randn(batch, rows, heads, dim).transpose(1, 2).requires_grad_() for rows, dim in shapes]


def check(given_: list[Tensor], mask: Any) -> None:
    """Both ways, in float32 and by the formula in float64."""
    assert trains(*given_, mask)
    queries, _, values = given_
    gradient = torch.randn(*queries.shape[:3], values.shape[3])
    found = TrainingAttention.apply(*given_, mask).transpose(1, 2)
    double = [each.detach().double().requires_grad_() for each in given_]
    wanted = plain_attention(*double, mask)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-5)
    slopes = torch.autograd.grad(found, given_, gradient), torch.autograd.grad(wanted, double, gradient.double())
    for one, other in zip(*slopes, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-3, atol=1e-4)


@needs_kernels
@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3), st.integers(1, 3), sizes, sizes, sizes, sizes, st.integers(0, 2**32 - 1), st.integers(1, 2))
def test_it_is_the_formula_and_its_gradients(
    batch: int, heads: int, count: int, slots: int, key_dim: int, value_dim: int, seed: int, threads: int
) -> None:
    torch.manual_seed(seed)
    given_ = make(batch, heads, count, slots, key_dim, value_dim)
    some, each = torch.rand(batch, 1, 1, slots) < 0.7, torch.rand(1, 1, count, slots) < 0.6
    each[:, :, 0] = False  # who may see nothing looks nowhere
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(c_library, "threads", lambda work: threads)
        for mask in (None, some, each, *(["causal"] if count == slots else [])):
            check(given_, mask)


@needs_kernels
def test_the_longest_and_widest() -> None:
    check(make(1, 2, LONGEST, LONGEST, 128, 128), "causal")


@needs_kernels
def test_what_is_no_number_stays_none() -> None:
    queries, keys, values = make(1, 1, 3, 4, 5, 5)
    with torch.no_grad():
        queries[0, 0, 1, 0] = math.nan
    found = TrainingAttention.apply(queries, keys, values, None).transpose(1, 2)
    assert found[0, 0, 1].isnan().all() and found[0, 0, ::2].isfinite().all()


@needs_kernels
def test_what_it_is_not_for() -> None:
    queries, keys, values = given_ = make(2, 2, 5, 5, 8, 8)
    assert trains(*given_, None)
    assert not trains(*given_, torch.zeros(2, 1, 5, 5)), "a mask of numbers is that of a search"
    assert not trains(*given_, torch.ones(2, 2, 5, 5, dtype=torch.bool)), "heads that see different things"
    assert not trains(*(each.double() for each in given_), None)
    assert not trains(queries.transpose(2, 3)[:, :, :, :8], keys, values, None), "numbers that lie apart"
    assert not trains(*make(1, 1, 2, LONGEST + 1, 8, 8), None)
    assert not trains(queries, keys[:1], values[:1], None), "one memory for all"
    assert not trains(queries, keys, values[:, :, :4], None), "keys without values"
    assert not trains(*given_, torch.ones(5, 5, dtype=torch.bool))
    with torch.no_grad():
        assert not trains(*given_, None)
    with torch.autocast("cpu", torch.bfloat16):
        assert not trains(*given_, None)


@needs_kernels
def test_a_layer_uses_it_in_training_and_not_where_it_is_watched() -> None:
    layer, x = SelfAttention(16, 2, 8, 8), torch.randn(2, 6, 16)
    found = layer(x, "causal")[0]
    with record_attention(torch.nn.ModuleDict({"a": layer})):
        torch.testing.assert_close(layer(x, "causal")[0], found, rtol=1e-4, atol=1e-5)
    names, nodes = set(), [found.grad_fn]
    while nodes:
        node = nodes.pop()
        names.add(type(node).__name__)
        nodes += [each for each, _ in node.next_functions if each is not None]
    assert "TrainingAttentionBackward" in names


GUARDED = """
import ctypes, mmap, torch
from mallang.kernels import c_library
from mallang.kernels.c_attention import call, described

page, kept = mmap.PAGESIZE, []


def fenced(*shape):
    # Memory right before a page that nobody may touch.
    size = 4 * torch.Size(shape).numel()
    whole = -(-size // page) * page
    memory = mmap.mmap(-1, whole + page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(start + whole), page, 0) == 0
    kept.append(memory)
    numbers = (ctypes.c_char * size).from_address(start + whole - size)
    return torch.frombuffer(numbers, dtype=torch.float32).view(shape).normal_()


for batch, heads, count, slots, key_dim, value_dim in ((1, 1, 1, 1, 1, 1), (2, 3, 5, 17, 7, 33), (1, 2, 33, 31, 16, 8)):
    q, gradient, context = fenced(batch, count, heads, key_dim), *(fenced(batch, count, heads, value_dim) for _ in "gc")
    k, v, dk, dv = (fenced(batch, slots, heads, dim) for dim in (key_dim, value_dim, key_dim, value_dim))
    weights, dq = fenced(batch, heads, count, slots), fenced(batch, count, heads, key_dim)
    given = described(*(each.transpose(1, 2) for each in (q, k, v)), None)
    for name, tensor in dict(weights=weights, context=context, gradient=gradient, dq=dq, dk=dk, dv=dv).items():
        setattr(given, name, tensor.data_ptr())
    call("attention", given)
    call("attention_backward", given)
    torch.testing.assert_close(weights.sum(dim=3), torch.ones(batch, heads, count))
"""


@needs_kernels
def test_nothing_is_touched_behind_the_numbers() -> None:
    done = subprocess.run([sys.executable, "-c", GUARDED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_without_kernels_torch_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c_library, "library", lambda: None)
    assert not trains(*make(1, 1, 2, 2, 4, 4), None)
