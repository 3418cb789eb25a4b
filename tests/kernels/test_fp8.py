"""Products in 8 bits come near those in 32, and so do their gradients."""

import subprocess
import sys
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from mallang.kernels import fp8, linear
from mallang.kernels.fp8 import WIDEST, fp8_matmuls, is_wanted, multiply, quantize
from mallang.layers.feedforward import ACTIVATIONS, FeedForward
from mallang.layers.linear import Linear


def bf16(*shape):
    return torch.randn(*shape).bfloat16()


def error(found, wanted):
    return float(((found.float() - wanted.float()).norm() / wanted.float().norm()).detach())


def test_every_row_has_a_scale_of_its_own():
    table = torch.tensor([[1.0, -4.0], [1e-6, 3e-7], [0.0, 0.0]]).bfloat16()
    small, scales = quantize(table)
    assert small.dtype == torch.float8_e4m3fn and scales.shape == (3, 1)
    assert small.float().abs().amax(dim=1).tolist() == [448.0, 448.0, 0.0]
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
    for product in (fp8.linear, nn.functional.linear):
        given = [value.clone().requires_grad_() for value in values]
        product(*given).backward(torch.linspace(-1, 1, 2 * 16 * 48).view(2, 16, 48).bfloat16())
        gradients.append([value.grad for value in given])
    for found, wanted, limit in zip(*gradients, (0.05, 0.01, 0.01), strict=True):
        assert found.shape == wanted.shape and error(found, wanted) < limit


@pytest.mark.parametrize("frozen", [0, 1, 2])
def test_what_is_frozen_gets_no_gradient(frozen):
    given = [bf16(16, 32), bf16(16, 32), bf16(16)]
    for number, value in enumerate(given):
        value.requires_grad_(number != frozen)
    fp8.linear(*given).sum().backward()
    assert [value.grad is None for value in given] == [number == frozen for number in range(3)]


@pytest.mark.parametrize(
    ("x", "weight"),
    [
        (bf16(4, 24), bf16(16, 24)),
        (bf16(4, 16), bf16(24, 16)),
        (torch.randn(4, 16), torch.randn(16, 16)),
        (bf16(0, 16), bf16(16, 16)),
        (bf16(16), bf16(16, 16)),
        (bf16(1, 16), bf16(WIDEST + 16, 16)),
    ],
)
def test_other_sizes_and_types_are_multiplied_as_ever(x, weight):
    with fp8_matmuls():
        assert not is_wanted(x, weight)
        assert torch.equal(linear.linear(x, weight, None), nn.functional.linear(x, weight))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_feed_forward_networks_learn_whatever_their_activation(activation):
    torch.manual_seed(4)
    layer, x = FeedForward(32, 64, activation).bfloat16(), bf16(2, 5, 32)
    gradients = []
    for context in (nullcontext(), fp8_matmuls()):
        with context:
            given = x.clone().requires_grad_()
            layer.zero_grad()
            layer(given).square().sum().backward()
        gradients.append([given.grad, *(weight.grad.clone() for weight in layer.parameters())])
    for usual, rough in zip(*gradients, strict=True):
        assert 0 < error(rough, usual) < 0.2


COMPILED = """
import torch
from torch import nn
from mallang.kernels.fp8 import fp8_matmuls
from mallang.layers.linear import Linear
layer = nn.Sequential(Linear(16, 32), nn.GELU(), Linear(32, 16)).bfloat16()
compiled = torch.compile(layer, backend="aot_eager", dynamic=True)
with fp8_matmuls():
    for rows in (4, 7, 9):
        x = torch.randn(rows, 16).bfloat16()
        compiled(x).sum().backward()
        assert torch.equal(compiled(x), layer(x))
"""


def test_they_are_compiled_for_many_shapes():
    """Apart from the rest, since shapes in signatures are checked here and a compiler cannot look through that."""
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def test_linear_maps_do_so_when_told():
    layer, x = Linear(32, 16).bfloat16(), bf16(8, 32)
    usual = layer(x)
    with fp8_matmuls():
        rough = layer(x)
    assert 0 < error(rough, usual) < 0.1 and torch.equal(layer(x), usual)
    assert not fp8._wanted
