"""Recurrent layers as operators of ONNX: one LSTM, GRU or RNN node each, for texts of any length.

A tracer would unroll the loop over time for the length of its example. The gates are ordered as ONNX has them:

            torch         ONNX
    LSTM    i, f, g, o    i, o, f, c
    GRU     r, z, n       z, r, h       with linear_before_reset, since torch applies the reset gate after the matmul
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from mallang.kernels.recurrent import Memory
from mallang.layers.recurrent import Recurrent

ORDER: dict[str, tuple[int, ...]] = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "tanh": (0,), "relu": (0,)}
"""The gates of torch in the order of ONNX."""
OPERATORS = {"lstm": "LSTM", "gru": "GRU", "tanh": "RNN", "relu": "RNN"}


def as_operators(model: nn.Module) -> None:
    """Let every recurrent layer of a model, which is thrown away after the export, be traced as an operator."""
    for part in model.modules():
        if isinstance(part, Recurrent):
            part.run = partial(operators, part.kind)  # type: ignore[method-assign]


def operators(kind: str, x: Tensor, memory: Memory, weights: list[Tensor]) -> tuple[Tensor, Memory]:
    """The layers of these weights over a sequence: the outputs of the last, and the state of each after the end."""
    x, hiddens, cells = x.transpose(0, 1), list[Tensor](), list[Tensor]()
    for layer in range(len(weights) // 4):
        own = memory.of_layer(layer)
        x, hidden, cell = operator(kind, x, own, weights[4 * layer : 4 * layer + 4])
        hiddens.append(hidden)
        cells += [] if cell is None else [cell]
    return x.transpose(0, 1), Memory(torch.cat(hiddens, dim=1), torch.cat(cells, dim=1) if cells else None)


def operator(kind: str, x: Tensor, memory: Memory, weights: list[Tensor]) -> tuple[Tensor, Tensor, Tensor | None]:
    """One layer, time first: its outputs, and its state as [batch, 1, dim]."""
    w, u, b, d = (in_order(weight, kind)[None] for weight in weights)
    hidden, cell = memory.hidden, memory.cell
    dim = u.shape[2]
    attributes: dict[str, Any] = {"hidden_size": dim}
    if kind == "gru":
        attributes["linear_before_reset"] = 1
    if kind == "relu":
        attributes["activations"] = ["Relu"]
    given = [x, w, u, torch.cat((b, d), dim=1), None, hidden.transpose(0, 1)]
    state = [1, x.shape[1], dim]
    shapes: list[list[Any]] = [[x.shape[0], 1, x.shape[1], dim], state]
    if cell is not None:
        given.append(cell.transpose(0, 1))
        shapes.append(state)
    found = torch.onnx.ops.symbolic_multi_out(
        OPERATORS[kind], given, attributes, dtypes=[x.dtype] * len(shapes), shapes=shapes
    )
    after = [each.transpose(0, 1) for each in found[1:]]
    return found[0].squeeze(1), after[0], after[1] if cell is not None else None


def in_order(weight: Tensor, kind: str) -> Tensor:
    """A weight or bias with its gates in the order of ONNX."""
    gates = weight.detach().chunk(len(ORDER[kind]))
    return torch.cat([gates[place] for place in ORDER[kind]])
