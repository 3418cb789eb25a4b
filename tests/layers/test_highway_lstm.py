"""The highway LSTM against its formulas word by word, in both directions, and its one dropout mask for all steps."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mallang.layers.highway_lstm import HighwayLSTM


def by_hand(layer: HighwayLSTM, words: Tensor, mask: Tensor | None = None) -> Tensor:
    """The states of one row, from formulas on single vectors."""
    size = layer.dim
    w, v = layer.inputs.weight.split([4 * size, size])
    b, a = layer.inputs.bias.split([4 * size, size])
    u, r = layer.recurrent.weight.split([4 * size, size])
    hidden = cell = torch.zeros(size)
    states = []
    for x in words:
        i, f, g, o = (w @ x + b + u @ hidden).chunk(4)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        share = (v @ x + a + r @ hidden).sigmoid()
        hidden = share * (o.sigmoid() * cell.tanh()) + (1 - share) * (layer.carry.weight @ x)
        hidden = hidden if mask is None else hidden * mask
        states.append(hidden)
    return torch.stack(states)


@pytest.mark.parametrize("backwards", [False, True])
def test_it_is_its_formulas(backwards: bool) -> None:
    torch.manual_seed(1)
    layer = HighwayLSTM(5, 4, backwards=backwards)
    torch.nn.init.normal_(layer.inputs.bias)
    x, lengths = torch.randn(3, 6, 5), torch.tensor([6, 1, 4])
    found = layer(x, lengths)
    for row, length in enumerate(lengths.tolist()):
        words = x[row, :length]
        expected = by_hand(layer, words.flip(0)).flip(0) if backwards else by_hand(layer, words)
        torch.testing.assert_close(found[row, :length], expected)


def test_one_mask_falls_on_all_steps() -> None:
    torch.manual_seed(1)
    layer = HighwayLSTM(5, 64, dropout=0.5).train()
    states = layer(torch.randn(2, 6, 5), torch.tensor([6, 6]))
    dropped = states == 0
    assert (dropped == dropped[:, :1]).all() and 0.3 < dropped.float().mean() < 0.7
    assert not torch.equal(dropped[0], dropped[1]), "each row has a mask of its own"
    torch.testing.assert_close(
        layer.eval()(torch.zeros(1, 3, 5), torch.tensor([3]))[0], by_hand(layer, torch.zeros(3, 5))
    )


def test_the_gradient_passes_through_all_steps() -> None:
    torch.manual_seed(1)
    layer, x = HighwayLSTM(5, 4), torch.randn(1, 5, 5, requires_grad=True)
    layer(x, torch.tensor([5]))[0, -1].sum().backward()
    assert x.grad is not None and (x.grad[0].abs().sum(dim=1) > 0).all()
    assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in layer.parameters())
