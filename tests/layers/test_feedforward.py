import math

import pytest
import torch

from mallang.layers.feedforward import FeedForward

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
            for row, bias in zip(layer.up_proj.weight, layer.up_proj.bias, strict=True)
        ]
        expected = layer.down_proj.weight @ torch.tensor(hidden) + layer.down_proj.bias
        torch.testing.assert_close(found[place], expected)
