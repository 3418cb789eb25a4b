"""The kernel for a norm and a product gives what the two give."""

import pytest
import torch

from mallang.layers import norm_linear
from mallang.layers.norm_linear import MOST, ROWS, WIDEST, by_formula, is_made_for

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def test_it_is_for_a_gpu(monkeypatch):
    monkeypatch.setattr(norm_linear, "works", lambda: True)
    assert not is_made_for(torch.zeros(1, 8), torch.zeros(4, 8))


@needs_gpu
def test_a_gpu_has_it_for_a_single_row():
    x = torch.zeros(1, 1, 16, device="cuda")
    assert is_made_for(x, torch.zeros(MOST, 16, device="cuda"))
    assert not is_made_for(x, torch.zeros(MOST + 1, 16, device="cuda"))
    assert not is_made_for(x.repeat(1, 2, 1), torch.zeros(4, 16, device="cuda"))
    wide = torch.zeros(1, WIDEST + 1, device="cuda")
    assert not is_made_for(wide, wide)


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("outputs", "inputs"), [(2304, 768), (ROWS + 1, 20), (1, WIDEST)])
def test_a_gpu_gives_what_the_formula_gives(outputs, inputs, bias, dtype):
    torch.manual_seed(outputs)
    made = {"device": "cuda", "dtype": dtype}
    x, gain = torch.randn(1, 1, inputs, **made) + 3, torch.randn(inputs, **made)
    weight = torch.randn(outputs, inputs, **made) / inputs**0.5
    shift, added = (torch.randn(size, **made) if bias else None for size in (inputs, outputs))
    found = norm_linear.norm_linear(x, gain, shift, 1e-5, weight, added)
    wanted = by_formula(x, gain, shift, 1e-5, weight, added)
    assert found.shape == wanted.shape == (1, 1, outputs)
    torch.testing.assert_close(found, wanted, rtol=2e-2, atol=5e-2 if dtype == torch.bfloat16 else 1e-3)
