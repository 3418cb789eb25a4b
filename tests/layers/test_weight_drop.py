"""Locked dropout and weight drop against explicit loops with the same random numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mallang.kernels.recurrent import MODES, unrolled
from mallang.layers.dropout import Dropout, VariationalDropout, dropout_mask
from mallang.layers.recurrent import Recurrent
from mallang.layers.weight_drop import WeightDropped

every_cell = pytest.mark.parametrize("kind", list(MODES))


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)


def elman(x: Tensor, u: Tensor, w: Tensor, b: Tensor, f: Any) -> Tensor:
    """h_t = f(W_h h_{t−1} + W_e e_t + b), word by word."""
    h, outputs = torch.zeros(len(u)), []
    for word in x:
        h = f(u @ h + w @ word + b)
        outputs.append(h)
    return torch.stack(outputs)


@pytest.mark.parametrize(("kind", "f"), [("tanh", torch.tanh), ("relu", torch.relu)])
@torch.no_grad()
def test_an_elman_layer_is_its_formula_whole_and_step_by_step(kind: Any, f: Any) -> None:
    torch.manual_seed(1)
    layer, x = Recurrent(kind, 3, 4), torch.randn(2, 5, 3)
    w, u, b, d = layer.weights()
    nn.init.normal_(b)
    outputs, memory = layer(x)
    stepped, after = unrolled(kind, x, layer.nothing(x), layer.weights())
    assert memory.cell is None and after.cell is None
    for row in range(2):
        expected = elman(x[row], u, w, b + d, f)
        close(outputs[row], expected)
        close(stepped[row], expected)
        close(memory.hidden[row, 0], expected[-1])
    close(after.hidden, memory.hidden)


def test_locked_dropout_drops_the_same_values_at_every_time() -> None:
    torch.manual_seed(2)
    dropout, x = VariationalDropout(0.4), torch.ones(200, 7, 50)
    y = dropout(x)
    assert (y == y[:, :1]).all()
    assert y.unique().tolist() == pytest.approx([0.0, 1 / 0.6], rel=1e-4)
    assert float((y[:, 0] == 0).float().mean()) == pytest.approx(0.4, abs=0.02)
    assert not (y[0, 0] == y[1, 0]).all()
    assert dropout.eval()(x) is x


@every_cell
@pytest.mark.parametrize("variational", [True, False])
def test_a_stack_drops_weights_once_and_values_between_layers(kind: Any, variational: bool) -> None:
    """The same random numbers, in the same order, put into plain layers one after the other; gradients too."""
    torch.manual_seed(3)
    stack, x = (
        WeightDropped(kind, 3, 4, layers=2, dropout=0.5, weight_dropout=0.3, variational=variational),
        torch.randn(2, 6, 3),
    )
    torch.manual_seed(4)
    outputs, _ = stack(x)
    outputs.square().sum().backward()
    found = [parameter.grad for parameter in stack.parameters()]
    stack.zero_grad()

    torch.manual_seed(4)
    weights = Recurrent.weights(stack)
    weights[1], weights[5] = weights[1] * dropout_mask(weights[1], 0.3), weights[5] * dropout_mask(weights[5], 0.3)
    assert 0 < int((weights[1] == 0).sum()) < weights[1].numel()
    below, _ = unrolled(kind, x, stack.nothing(x).of_layer(0), weights[:4])
    between = (VariationalDropout if variational else Dropout)(0.5)
    expected, _ = unrolled(kind, between(below), stack.nothing(x).of_layer(1), weights[4:])
    expected.square().sum().backward()
    close(outputs, expected)
    for one, parameter in zip(found, stack.parameters(), strict=True):
        assert one is not None and parameter.grad is not None
        close(one, parameter.grad)


@torch.no_grad()
def test_nothing_is_dropped_when_it_is_used_and_the_weights_stay_whole() -> None:
    torch.manual_seed(5)
    stack, x = WeightDropped("lstm", 3, 4, layers=2, dropout=0.5, weight_dropout=0.3), torch.randn(2, 6, 3)
    before = {name: value.clone() for name, value in stack.state_dict().items()}
    assert not stack.is_flattened(stack.weights())
    stack(x)
    assert all(torch.equal(value, before[name]) for name, value in stack.state_dict().items())
    theirs = nn.LSTM(3, 4, 2, batch_first=True)
    theirs.load_state_dict(stack.state_dict())
    stack.eval()
    assert stack.is_flattened(stack.weights())
    close(stack(x)[0], theirs(x)[0])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@every_cell
@pytest.mark.parametrize("low", [True, False])
def test_cudnn_gets_dropped_weights_in_one_piece(kind: Any, low: bool) -> None:
    """Else it would warn, and warnings are errors here; one value of a whole window tells that U was dropped once."""
    torch.manual_seed(6)
    stack, x = WeightDropped(kind, 16, 24, layers=2, dropout=0.3, weight_dropout=0.5), torch.randn(4, 9, 16)
    expected = stack.eval()(x)[0]
    stack, x = stack.cuda(), x.cuda()
    with torch.autocast("cuda", torch.bfloat16, enabled=low):
        torch.testing.assert_close(stack(x)[0].float().cpu(), expected, atol=0.05, rtol=0.05)
        outputs, memory = stack.train()(x)
        again, _ = stack(x, memory.detach())
    (outputs.float().sum() + again.float().sum()).backward()  # type: ignore[no-untyped-call]
    for parameter in stack.parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all() and parameter.grad.dtype == torch.float32
