"""Products in 8 bits come near those in 32, and so do their gradients."""

import pytest
import torch
from torch import nn

from mallang.layers import float8
from mallang.layers.float8 import (
    ADDED,
    HIGHEST,
    WIDEST,
    Product,
    is_wanted,
    multiply,
    products_in_8_bits,
    rounded,
    rounded_by_formula,
    rounded_with_sums,
)
from mallang.layers.packed import Linear

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def bf16(*shape):
    return torch.randn(*shape).bfloat16()


def error(found, wanted):
    return float(((found.float() - wanted.float()).norm() / wanted.float().norm()).detach())


def test_every_row_has_a_scale_of_its_own():
    table = torch.tensor([[1.0, -4.0], [1e-6, 3e-7], [0.0, 0.0]]).bfloat16()
    small, scales = rounded(table)
    assert small.dtype == torch.float8_e4m3fn and scales.shape == (3, 1)
    assert small.float().abs().amax(dim=1).tolist() == [HIGHEST, HIGHEST, 0.0]
    assert torch.allclose(small.float() * scales, table.float(), rtol=2**-4, atol=0)


def test_a_product_comes_near():
    torch.manual_seed(1)
    x, weight, bias = bf16(32, 64), bf16(48, 64), bf16(48)
    wanted = x.float() @ weight.float().T + bias.float()
    assert 1e-3 < error(multiply(x, weight, bias), wanted) < 0.05


def test_its_gradients_come_near():
    torch.manual_seed(2)
    values = bf16(2, 16, 64), bf16(48, 64), bf16(48)
    gradients = []
    for product in (Product.apply, nn.functional.linear):
        given = [value.clone().requires_grad_() for value in values]
        product(*given).backward(torch.linspace(-1, 1, 2 * 16 * 48).view(2, 16, 48).bfloat16())
        gradients.append([value.grad for value in given])
    for found, wanted, limit in zip(*gradients, (0.05, 0.01, 0.01), strict=True):
        assert found.shape == wanted.shape and error(found, wanted) < limit


@pytest.mark.parametrize(
    ("x", "weight"),
    [(bf16(4, 24), bf16(16, 24)), (bf16(4, 16), bf16(24, 16)), (torch.randn(4, 16), torch.randn(16, 16))],
)
def test_other_sizes_and_types_are_multiplied_as_ever(x, weight):
    with products_in_8_bits():
        assert not is_wanted(x, weight)


def test_linear_maps_do_so_when_told():
    layer, x = Linear(32, 16).bfloat16(), bf16(8, 32)
    usual = layer(x)
    with products_in_8_bits():
        rough = layer(x)
    assert 0 < error(rough, usual) < 0.1 and torch.equal(layer(x), usual)
    assert not float8._wanted


@needs_gpu
@pytest.mark.parametrize("shape", [(5, 48), (ADDED + 1, 768), (3 * ADDED, 3072), (1, WIDEST), (7, 1)])
def test_a_gpu_rounds_rows_in_one_kernel(shape):
    assert float8.works()
    table = torch.randn(*shape, device="cuda").bfloat16()
    table[0] = 0
    (found, scales), (_, wanted) = rounded(table), rounded_by_formula(table)
    assert torch.allclose(scales, wanted) and found.dtype == torch.float8_e4m3fn
    assert torch.allclose(found.float() * scales, table.float(), rtol=2**-4, atol=float(scales.max()) * 2**-9)
    (same, same_scales), sums = rounded_with_sums(table)
    assert torch.equal(same.float(), found.float()) and torch.equal(same_scales, scales)
    assert torch.allclose(sums.float(), table.float().sum(dim=0), rtol=2**-7, atol=1e-5)
