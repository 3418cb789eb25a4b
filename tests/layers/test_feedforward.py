import math

import pytest
import torch
from torch import nn

from mallang.layers.feedforward import FeedForward, activates_at_once, gelu_by_sigmoid, widen_activated

FORMULAS = {
    "relu": lambda x: max(x, 0.0),
    "gelu": lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2))),
}


@pytest.mark.parametrize("activation", FORMULAS)
def test_it_is_the_formula_at_every_position(activation):
    torch.manual_seed(1)
    layer, x = FeedForward(3, 4, activation), torch.randn(2, 2, 3)
    layer.requires_grad_(False)
    found = layer(x)
    for place in ((0, 0), (0, 1), (1, 1)):
        hidden = [
            FORMULAS[activation](float(row @ x[place] + bias))
            for row, bias in zip(layer.widen.weight, layer.widen.bias, strict=True)
        ]
        expected = layer.narrow.weight @ torch.tensor(hidden) + layer.narrow.bias
        torch.testing.assert_close(found[place], expected)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("activation", ["relu", "gelu-tanh", "gelu", "relu-squared"])
def test_a_gpu_activates_what_it_is_about_to_write(activation):
    layer, x = FeedForward(16, 32, activation).cuda(), torch.randn(2, 3, 16, device="cuda")
    nn.init.normal_(layer.widen.bias)
    wanted = layer(x)
    with torch.no_grad():
        assert activates_at_once(x, layer.widen)
        torch.testing.assert_close(layer(x), wanted.detach(), rtol=1e-4, atol=1e-5)


def test_a_product_with_an_activation_is_both():
    x, weight, bias = torch.randn(5, 8), torch.randn(16, 8), torch.randn(16)
    torch.library.opcheck(widen_activated, (x, weight, bias, False), test_utils=("test_schema", "test_faketensor"))
    torch.testing.assert_close(widen_activated(x, weight, bias, False), torch.relu(x @ weight.T + bias))


def test_gelu_by_a_sigmoid_is_gelu_by_a_tanh():
    x = torch.linspace(-6, 6, 101, dtype=torch.float64)
    torch.testing.assert_close(gelu_by_sigmoid(x), nn.functional.gelu(x, approximate="tanh"))
