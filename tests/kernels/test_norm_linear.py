"""The kernel for a norm and a product gives what the two give."""

import pytest
import torch

from kernels.gpu import DEVICE, HAS_GPU, large, needs_gpu, needs_kernels
from mallang.kernels import norm_linear
from mallang.kernels.norm_linear import MOST, ROWS, WIDEST, is_made_for, plain_norm_linear


def parts(outputs=4, inputs=16, rows=1, **made):
    x, gain, shift = torch.zeros(1, rows, inputs, **made), torch.ones(inputs, **made), torch.zeros(inputs, **made)
    return [x, gain, shift, torch.zeros(outputs, inputs, **made), torch.zeros(outputs, **made)]


def test_it_is_for_a_gpu(monkeypatch):
    monkeypatch.setattr(norm_linear, "works", lambda: True)
    assert not is_made_for(*parts())


@needs_gpu
def test_a_gpu_has_it_for_a_single_row():
    assert is_made_for(*parts(outputs=MOST, device="cuda"))
    assert not is_made_for(*parts(outputs=MOST + 1, device="cuda"))
    assert is_made_for(*parts(inputs=WIDEST, device="cuda"))
    assert not is_made_for(*parts(inputs=WIDEST + 1, device="cuda"))
    assert not is_made_for(*parts(rows=2, device="cuda"))
    assert not is_made_for(*parts(device="cuda", dtype=torch.float64))


@needs_gpu
@pytest.mark.parametrize("place", [1, 2, 3, 4])
def test_a_gpu_has_it_for_what_lies_in_order_and_has_one_type(place):
    given = parts(device="cuda")
    for changed in (given[place].repeat_interleave(2, dim=-1)[..., ::2], given[place].bfloat16()):
        assert not is_made_for(*given[:place], changed, *given[place + 1 :])
    assert is_made_for(*given)


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("outputs", "inputs"), [large(2304, 768), (ROWS + 1, 20), (1, WIDEST)])
def test_a_gpu_gives_what_the_formula_gives(outputs, inputs, bias, dtype):
    torch.manual_seed(outputs)
    made = {"device": DEVICE, "dtype": dtype}
    x, gain = torch.randn(1, 1, inputs, **made) + 3, torch.randn(inputs, **made)
    weight = torch.randn(outputs, inputs, **made) / inputs**0.5
    shift, added = (torch.randn(size, **made) if bias else None for size in (inputs, outputs))
    if HAS_GPU:
        torch.cuda.synchronize()  # what it reads must not just be written
    found = norm_linear.launch(x, gain, shift, 1e-5, weight, added)
    wanted = plain_norm_linear(x, gain, shift, 1e-5, weight, added)
    assert found.shape == wanted.shape == (1, 1, outputs)
    torch.testing.assert_close(found, wanted, rtol=2e-2, atol=5e-2 if dtype == torch.bfloat16 else 1e-3)
