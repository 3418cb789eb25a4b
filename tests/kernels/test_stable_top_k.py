"""The kernel for the best of a row finds what a stable sort finds."""

import pytest
import torch

from kernels.gpu import DEVICE, large, needs_gpu, needs_kernels
from mallang.kernels import stable_top_k as module
from mallang.kernels.stable_top_k import LONGEST, MOST, block_maxima, is_made_for, stable_top_k


def test_it_is_for_a_gpu(monkeypatch):
    monkeypatch.setattr(module, "works", lambda: True)
    assert not is_made_for(torch.zeros(2, 9), 3)


@needs_gpu
def test_a_gpu_has_it_for_rows_that_fit():
    assert is_made_for(torch.zeros(2, LONGEST, device="cuda"), MOST)
    assert not is_made_for(torch.zeros(2, LONGEST + 1, device="cuda"), MOST)
    assert not is_made_for(torch.zeros(2, 3, device="cuda"), 4)


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("rows", "places", "count"), [large(128, 785, 10), (3, 11, 4), (1, 4096, 32), (2, 10, 10)])
def test_equals_stay_in_order_on_a_gpu(rows, places, count, dtype):
    torch.manual_seed(places)
    scores = torch.randint(0, 30, (rows, places), device=DEVICE).to(dtype)
    scores[0, ::2] = -torch.inf
    scores[-1] = -torch.inf
    values, found = stable_top_k(scores, count)
    wanted, places_wanted = scores.sort(dim=1, descending=True, stable=True)
    assert torch.equal(values, wanted[:, :count]) and torch.equal(found, places_wanted[:, :count])


@needs_kernels
def test_what_is_not_a_number_comes_last_on_a_gpu():
    scores = torch.tensor([[torch.nan, 1.0, torch.nan, 2.0]], device=DEVICE)
    values, places = stable_top_k(scores, 3)
    assert values.tolist() == [[2.0, 1.0, -torch.inf]] and places.tolist() == [[3, 1, 0]]


@needs_kernels
@pytest.mark.parametrize("places", [64, 1000, 10_001])
def test_maxima_of_blocks_on_a_gpu(places):
    scores = torch.randn(5, places, device=DEVICE)
    scores[0] = -torch.inf
    scores[1, 3] = torch.nan
    filled = torch.nn.functional.pad(scores, (0, -places % 64), value=-torch.inf)
    wanted = filled.nan_to_num(nan=-torch.inf, neginf=-torch.inf).view(5, -1, 64).amax(dim=2)
    assert torch.equal(block_maxima(scores, 64), wanted)
    assert torch.equal(block_maxima(scores[:, :-1], 64)[:, :-1], wanted[:, :-1])
