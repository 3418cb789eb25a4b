"""Pooling equals loops over the positions that may be seen."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mallang.layers.pooling import Pooling, first_of_words, masked_max, masked_mean, pooled

few = settings(deadline=None, max_examples=40)
masks = st.integers(1, 5).flatmap(
    lambda time: st.lists(st.lists(st.booleans(), min_size=time, max_size=time), min_size=1, max_size=4)
)
shapes = st.lists(st.integers(0, 5), min_size=1, max_size=4).filter(any)
"""The lengths of the texts of a batch, not all of them empty."""


def vectors_of(rows: int, time: int, seed: int = 1) -> Tensor:
    """Below zero throughout, so that a zero from elsewhere would be the maximum."""
    return -1 - torch.rand(rows, time, 3, generator=torch.Generator().manual_seed(seed))


def by_loops(row: Tensor, seen: list[int], pooling: Pooling) -> list[float]:
    """The vector of one text, number by number; zeros where nothing may be seen."""
    found = []
    for column in range(3):
        values = [float(row[place, column]) for place in seen]
        mean, high = (sum(values) / len(values), max(values)) if values else (0.0, 0.0)
        found.append({"mean": mean, "max": high, "last": values[-1] if values else 0.0}[pooling])
    return found


def check(found: Tensor, expected: list[Any]) -> None:
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-6, atol=1e-6)


@few
@given(masks)
def test_mean_and_maximum_are_those_of_the_seen_positions(mask: list[list[bool]]) -> None:
    vectors, seen = (
        vectors_of(len(mask), len(mask[0])),
        [[i for i, is_seen in enumerate(row) if is_seen] for row in mask],
    )
    mean, high = ([by_loops(*each, kind) for each in zip(vectors, seen, strict=True)] for kind in ("mean", "max"))
    check(masked_mean(vectors, torch.tensor(mask)), mean)
    check(masked_max(vectors, torch.tensor(mask)), high)
    check(pooled(vectors, torch.tensor(mask), "mean"), mean)
    check(pooled(vectors, torch.tensor(mask), "max"), high)
    check(pooled(vectors, torch.tensor(mask), "mean-max"), [[*a, *b] for a, b in zip(mean, high, strict=True)])


@few
@given(shapes)
def test_the_last_vector_is_that_of_the_last_token(lengths: list[int]) -> None:
    lengths = [max(1, length) for length in lengths]
    vectors = vectors_of(len(lengths), max(lengths))
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    check(pooled(vectors, mask, "last"), [vectors[row, length - 1].tolist() for row, length in enumerate(lengths)])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("pooling", ["mean", "max", "last", "mean-max"])
def test_half_precision_stays_and_is_finite(dtype: torch.dtype, pooling: Pooling) -> None:
    mask = torch.tensor([[True, True, False], [True, False, False]])
    found = pooled(vectors_of(2, 3).to(dtype), mask, pooling)
    assert found.dtype == dtype and found.isfinite().all()
    torch.testing.assert_close(found.float(), pooled(vectors_of(2, 3), mask, pooling), rtol=1e-2, atol=1e-2)


def test_the_gradient_reaches_seen_positions_only() -> None:
    mask = torch.tensor([[True, True, False], [False, False, False]])
    for pooling in ("mean", "max"):
        vectors = vectors_of(2, 3).requires_grad_()
        pooled(vectors, mask, pooling).sum().backward()
        assert vectors.grad is not None and vectors.grad.isfinite().all()
        assert (vectors.grad.sum(dim=1) - mask.any(dim=1)[:, None].float()).abs().max() < 1e-6
        assert not vectors.grad[~mask].any()


@few
@given(starts=st.lists(st.lists(st.integers(0, 4), max_size=4), min_size=1, max_size=4).filter(any))
def test_a_word_has_the_vector_of_its_first_token(starts: list[list[int]]) -> None:
    vectors, most = vectors_of(len(starts), 5), max(map(len, starts))
    words = torch.tensor([[*row, *[-1] * (most - len(row))] for row in starts])
    found = first_of_words(vectors, words)
    assert found.shape == (len(starts), most, 3)
    for row, places in enumerate(starts):
        for number, place in enumerate(places):
            assert torch.equal(found[row, number], vectors[row, place])
