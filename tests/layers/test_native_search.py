"""The kernels of a search against the formula, read cell by cell."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from contracts.toy_models import tiny_vocabulary
from mallang.decoding import ranking
from mallang.decoding.beam import Beams
from mallang.decoding.contract import Config
from mallang.decoding.ranking import best
from mallang.layers import native, native_search

needs_kernels = pytest.mark.skipif(native.library() is None, reason="no compiler, or not such a processor")
few = st.integers(1, 6)
seeds = st.integers(0, 2**32 - 1)


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the size, one thread or two."""
    monkeypatch.setattr(native, "threads", lambda multiplications: request.param)


def by_sorting(totals: Tensor, scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The formula: the whole table, sorted."""
    table = totals[:, :, None] + scores.nan_to_num(nan=-math.inf, neginf=-math.inf).view(*totals.shape, scores.shape[1])
    values, cells = table.flatten(1).sort(dim=1, descending=True, stable=True)
    return values[:, :count], cells[:, :count]


@needs_kernels
@pytest.mark.usefixtures("threads")
@settings(max_examples=200, deadline=None)
@given(
    sentences=few, width=few, places=st.integers(1, 70), count=st.integers(1, 64), seed=seeds,
    kinds=st.sampled_from([2, 5, 10**6]), hidden=st.sampled_from([0.0, 0.1, 0.97]), spare=st.integers(0, 3),
)  # fmt: skip
def test_the_best_sums_are_the_first_of_the_sorted_table(
    sentences: int, width: int, places: int, count: int, seed: int, kinds: int, hidden: float, spare: int
) -> None:
    """With many equals or few, with much that is −∞ or not a number, wherever the next row begins."""
    torch.manual_seed(seed)
    count = min(count, width * places)
    totals = -torch.randint(kinds, (sentences, width)).double() / 3
    scores = (-torch.randint(kinds, (sentences * width, places + spare)) / 7)[:, :places]
    scores[torch.rand_like(scores) < hidden] = -math.inf
    scores[torch.rand_like(scores) < hidden / 2] = math.nan
    totals[torch.rand_like(totals) < hidden] = -math.inf
    assert native_search.finds_best(totals, scores, count)
    values, cells = native_search.best_sums(totals, scores, count)
    expected = by_sorting(totals, scores, count)
    assert torch.equal(values, expected[0])
    assert torch.equal(cells, expected[1])


@needs_kernels
def test_where_no_cell_is_finite_the_first_ones_are_taken() -> None:
    totals = torch.zeros(1, 2, dtype=torch.float64)
    values, cells = native_search.best_sums(totals, torch.full((2, 9), math.nan), 4)
    assert values.tolist() == [[-math.inf] * 4]
    assert cells.tolist() == [[0, 1, 2, 3]]


@needs_kernels
def test_searches_ask_the_kernel_and_find_what_torch_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    totals, scores = -torch.rand(3, 5, dtype=torch.float64), torch.randn(15, 3001).log_softmax(dim=1)
    scores[:, 17] = scores[:, 2000]
    scores[4] = math.nan
    found = ranking.best_sums(totals, scores, 10), ranking.best(scores[:4], 1), ranking.best(scores[:4], 3)
    monkeypatch.setattr(native, "library", lambda: None)
    wanted = ranking.best_sums(totals, scores, 10), ranking.best(scores[:4], 1), ranking.best(scores[:4], 3)
    for (values, places), (expected, expected_places) in zip(found, wanted, strict=True):
        assert values.dtype == expected.dtype
        assert torch.equal(values, expected)
        assert torch.equal(places, expected_places)


@needs_kernels
def test_what_the_kernel_cannot_read_is_left_to_torch() -> None:
    totals, scores = torch.zeros(2, 3, dtype=torch.float64), torch.randn(6, 40)
    assert native_search.finds_best(totals, scores, 5)
    assert not native_search.finds_best(totals.float(), scores, 5)
    assert not native_search.finds_best(totals, scores.double(), 5)
    assert not native_search.finds_best(totals, scores.repeat(1, 2)[:, ::2], 5)
    assert not native_search.finds_best(totals, scores, native_search.MOST + 1)
    assert not native_search.finds_best(totals, scores[:, :1], 5)
    assert not native_search.finds_best(totals.to("meta"), scores, 5)
    assert not native_search.finds_best(totals, scores.clone().requires_grad_(), 5)


@needs_kernels
@settings(deadline=None)
@given(sentences=few, width=few, nbest=few, seed=seeds, places=st.integers(2, 20), limit=few, data=st.data())
def test_paths_are_followed_as_torch_follows_them(
    sentences: int, width: int, nbest: int, seed: int, places: int, limit: int, data: st.DataObject
) -> None:
    torch.manual_seed(seed)
    vocabulary, config = tiny_vocabulary(places), Config(beam=max(width, nbest), nbest=nbest)
    beams = Beams.start([limit] * sentences, vocabulary, config, torch.device("cpu"))
    beams = replace(
        beams,
        totals=beams.totals[:, :width],
        labels=torch.randint(9, (sentences, nbest + width, limit)),
        token_scores=torch.randn(sentences, nbest + width, limit),
    )
    cells = torch.randint(width * places, (sentences, 2 * width))
    listed = torch.randint(nbest + 2 * width, (sentences, nbest))
    chosen = torch.cat([listed, nbest + torch.randint(2 * width, (sentences, width))], dim=1)
    given = chosen, cells, torch.randn(sentences * width, places)
    said = torch.tensor(data.draw(st.integers(0, limit - 1)))
    with pytest.MonkeyPatch.context() as patch:
        found = beams.follow(*given, said, vocabulary)
        patch.setattr(native, "library", lambda: None)
        wanted = beams.follow(*given, said, vocabulary)
    for each, expected in zip(found, wanted, strict=True):
        assert each.dtype == expected.dtype
        assert torch.equal(each, expected)


GUARDED = """
import ctypes, mmap, torch
from mallang.layers import native_search

page = mmap.PAGESIZE
memory = mmap.mmap(-1, 2 * page)
start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
assert ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(start + page), page, 0) == 0
for size in range(1, 40):
    numbers = (ctypes.c_float * size).from_address(start + page - 4 * size)
    scores = torch.frombuffer(numbers, dtype=torch.float32).view(1, size)  # nothing may be read behind them
    native_search.best_sums(torch.zeros(1, 1, dtype=torch.float64), scores, 1)
"""


@needs_kernels
def test_nothing_is_read_behind_the_last_score() -> None:
    done = subprocess.run([sys.executable, "-c", GUARDED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_best_none_of_a_row_are_none() -> None:
    values, places = best(torch.randn(2, 20), 0)
    assert values.shape == places.shape == (2, 0)
