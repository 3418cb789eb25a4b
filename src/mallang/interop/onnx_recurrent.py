"""Recurrent layers as operators of ONNX: one LSTM, GRU or RNN node each, for texts of any length.

A tracer would unroll the loop over time for the length of its example. An operator gets the lengths of the texts, so a
`Reader` needs no padding in front of them. A plain `Recurrent` reads the padding after the words, and gets no lengths.
The gates are ordered as ONNX has them:

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
from mallang.layers.recurrent import Reader, Recurrent

ORDER: dict[str, tuple[int, ...]] = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "tanh": (0,), "relu": (0,)}
"""The gates of torch in the order of ONNX."""
OPERATORS = {"lstm": "LSTM", "gru": "GRU", "tanh": "RNN", "relu": "RNN"}


def as_operators(model: nn.Module) -> None:
    """Let every recurrent layer of a model, which is thrown away after the export, be traced as an operator."""
    for part in model.modules():
        if isinstance(part, Reader):
            part.forward = partial(read, part)  # type: ignore[method-assign]
        elif isinstance(part, Recurrent):
            part.forward = partial(proceed, part)  # type: ignore[method-assign]


def read(part: Reader, x: Tensor, lengths: Tensor, backwards: bool = False) -> tuple[Tensor, Memory]:
    """What a `Reader` computes: the output at every word, zero at padding, and the state after the last word."""
    return stacked(part, x, None, lengths.int(), backwards)


def proceed(part: Recurrent, x: Tensor, memory: Memory | None = None) -> tuple[Tensor, Memory]:
    """What a `Recurrent` computes: the output at every position, padding too, and the state after the last one."""
    return stacked(part, x, memory, None)


def stacked(
    part: Recurrent, x: Tensor, memory: Memory | None, lengths: Tensor | None, backwards: bool = False
) -> tuple[Tensor, Memory]:
    """All layers, one operator each; they start from a state, or from zeros."""
    weights, x = part.weights(), x.transpose(0, 1)
    hiddens: list[Tensor] = []
    cells: list[Tensor] = []
    for layer in range(part.num_layers):
        start = None if memory is None else memory.of_layer(layer)
        own = weights[4 * layer : 4 * layer + 4]
        x, hidden, cell = operator(part, x, start, own, lengths, backwards)
        hiddens.append(hidden)
        cells += [] if cell is None else [cell]
    return x.transpose(0, 1), Memory(torch.cat(hiddens, dim=1), torch.cat(cells, dim=1) if cells else None)


def operator(
    part: Recurrent, x: Tensor, start: Memory | None, weights: list[Tensor], lengths: Tensor | None, backwards: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """One layer, time first: its outputs, and its state as [batch, 1, dim]. With lengths the operator skips padding."""
    w, u, b, d = (in_order(weight, part.kind)[None] for weight in weights)
    dim = part.hidden_size
    attributes: dict[str, Any] = {"hidden_size": dim, "direction": "reverse" if backwards else "forward"}
    if part.kind == "gru":
        attributes["linear_before_reset"] = 1
    if part.kind == "relu":
        attributes["activations"] = ["Relu"]
    state = [1, x.shape[1], dim]
    shapes: list[list[Any]] = [[x.shape[0], 1, x.shape[1], dim], state, *([state] if part.kind == "lstm" else [])]
    given: list[Tensor | None] = [x, w, u, torch.cat((b, d), dim=1), lengths]
    if start is not None:
        given += [one.transpose(0, 1) for one in start if one is not None]
    found = torch.onnx.ops.symbolic_multi_out(
        OPERATORS[part.kind], given, attributes, dtypes=[x.dtype] * len(shapes), shapes=shapes
    )
    after = [each.transpose(0, 1) for each in found[1:]]
    return found[0].squeeze(1), after[0], after[1] if part.kind == "lstm" else None


def in_order(weight: Tensor, kind: str) -> Tensor:
    """A weight or bias with its gates in the order of ONNX."""
    size = len(weight) // len(ORDER[kind])
    rows = [number for place in ORDER[kind] for number in range(place * size, (place + 1) * size)]
    return weight.detach().index_select(0, torch.tensor(rows, device=weight.device))
