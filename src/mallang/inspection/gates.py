"""What the gates of recurrent layers do at every token of a text: traces of LSTM, GRU and Elman cells.

    LSTM   i input gate   f forget gate   g candidate   o output gate   c cell   h state
    GRU    r reset gate   z update gate (1 keeps the old state, as in torch)   n candidate   h state

    with record_gates(model) as traces:
        model(batch)
    traces["encoder.forwards.0"].gates["z"]      # [time, dim]

A recurrent layer is one call of a fused kernel, which hands out no gates. Its inputs and weights are recorded, and the
gates computed again from them step by step (kernels/recurrent.py); the last of them is the state that the layer gave.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from mallang.kernels.recurrent import CELL_OBSERVERS
from mallang.layers.projected_lstm import ProjectedLSTM
from mallang.layers.recurrent import Reader, Recurrent


@dataclass(frozen=True)
class GateTrace:
    """The gates and states of one layer over one text, in the order of the text."""

    name: str
    kind: str
    """lstm, gru, tanh or relu."""
    gates: Mapping[str, Float[Tensor, "time dim"]]


def lstm_gates(
    inputs: Float[Tensor, "*rows gates"], recurrent: Float[Tensor, "*rows gates"], cell: Float[Tensor, "*rows dim"]
) -> dict[str, Tensor]:
    """The gates of one LSTM step from W x + b, U h + b and the cell before it."""
    i, f, g, o = (inputs + recurrent).chunk(4, dim=-1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    after = f * cell + i * g
    return {"i": i, "f": f, "o": o, "g": g, "c": after, "h": o * after.tanh()}


def gru_gates(
    inputs: Float[Tensor, "*rows gates"], recurrent: Float[Tensor, "*rows gates"], state: Float[Tensor, "*rows dim"]
) -> dict[str, Tensor]:
    """The gates of one GRU step from W x + b, U h + b and the state before it."""
    (input_r, input_z, input_n), (own_r, own_z, own_n) = inputs.chunk(3, dim=-1), recurrent.chunk(3, dim=-1)
    r, z = (input_r + own_r).sigmoid(), (input_z + own_z).sigmoid()
    n = (input_n + r * own_n).tanh()
    return {"r": r, "z": z, "n": n, "h": (1 - z) * n + z * state}


def step_gates(kind: str, inputs: Tensor, recurrent: Tensor, hidden: Tensor, cell: Tensor | None) -> dict[str, Tensor]:
    """The gates of one step of any cell."""
    if kind == "lstm":
        assert cell is not None
        return lstm_gates(inputs, recurrent, cell)
    if kind == "gru":
        return gru_gates(inputs, recurrent, hidden)
    total = inputs + recurrent
    return {"h": total.tanh() if kind == "tanh" else total.relu()}


def unrolled_gates(
    kind: str, x: Float[Tensor, "time inputs"], weights: list[Tensor], hidden: Tensor, cell: Tensor | None
) -> dict[str, Float[Tensor, "time dim"]]:
    """The gates of one layer over a sequence, step by step."""
    w, u, b, d = weights
    steps = []
    for inputs in F.linear(x, w, b):
        found = step_gates(kind, inputs, F.linear(hidden, u, d), hidden, cell)
        hidden, cell = found["h"], found.get("c")
        steps.append(found)
    return stacked(steps)


def stacked(steps: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The gates of all steps, one table each."""
    return {name: torch.stack([step[name].float() for step in steps]).cpu() for name in steps[0]}


@contextmanager
def record_gates(model: nn.Module, row: int = 0) -> Iterator[dict[str, GateTrace]]:
    """Record the gates of every recurrent layer that runs inside, for one row of its batch.

    Layers of a stack are named "decoder.0", "decoder.1"; a loop over single cells, as in a decoder with attention, is
    named after its stack, or "decoder" if it has none.
    """
    found: dict[str, GateTrace] = {}
    stacks = {name: part for name, part in model.named_modules() if isinstance(part, Recurrent | ProjectedLSTM)}
    ran: set[str] = set()
    loops: list[tuple[str, dict[str, Tensor]]] = []

    def observe(kind: str, inputs: Tensor, recurrent: Tensor, state: Tensor) -> None:
        if len(inputs) > row:
            own = (part[row].detach() for part in (inputs, recurrent, state))
            loops.append((kind, lstm_gates(*own) if kind == "lstm" else gru_gates(*own)))

    hooks = [part.register_forward_hook(hook_of(name, row, found, ran), with_kwargs=True)
             for name, part in stacks.items()]  # fmt: skip
    CELL_OBSERVERS.append(observe)
    try:
        yield found
    finally:
        CELL_OBSERVERS.remove(observe)
        for hook in hooks:
            hook.remove()
    if loops:
        name, part = next(((name, part) for name, part in stacks.items() if name not in ran), ("decoder", None))
        layers = part.num_layers if isinstance(part, Recurrent) else 1
        for layer in range(layers):
            kind, own = loops[layer][0], [gates for _, gates in loops[layer::layers]]
            found[layer_name(name, layer, layers)] = GateTrace(layer_name(name, layer, layers), kind, stacked(own))


def hook_of(name: str, row: int, found: dict[str, GateTrace], ran: set[str]) -> Any:
    """A hook that computes the gates of a stack again from what it was called with."""

    def hook(part: Any, given: tuple[Any, ...], options: dict[str, Any], output: Any) -> None:
        ran.add(name)
        if len(given[0]) <= row:
            return
        weights, hidden, cell, backwards = called_with(part, given, options, row)
        x = given[0][row].detach()
        if isinstance(part, Reader):
            x = x[: int(given[1][row])]
        if not len(x):
            return
        x = x.flip(0) if backwards else x
        backwards = backwards or "backwards" in name.split(".")  # a stack whose input was turned round before it
        layers, kind = len(weights) // 4, "lstm" if isinstance(part, ProjectedLSTM) else part.kind
        for layer in range(layers):
            own = None if cell is None else cell[layer]
            gates = unrolled_gates(kind, x, weights[4 * layer : 4 * layer + 4], hidden[layer], own)
            x = gates["h"].to(x)
            ordered = {key: each.flip(0) for key, each in gates.items()} if backwards else gates
            full = layer_name(name, layer, layers)
            earlier = found.get(full)  # a layer that is called token by token
            if earlier is not None:
                ordered = {key: torch.cat((earlier.gates[key], each)) for key, each in ordered.items()}
            found[full] = GateTrace(full, kind, ordered)

    return hook


def called_with(
    part: Any, given: tuple[Any, ...], options: dict[str, Any], row: int
) -> tuple[list[Tensor], Tensor, Tensor | None, bool]:
    """The weights of a stack, the state that a call started from, and whether it read backwards."""
    x = given[0]
    if isinstance(part, ProjectedLSTM):
        zeros = x.new_zeros(1, part.cells)
        recurrent = part.weight_hh if part.projection is None else part.weight_hh @ part.projection.weight
        weights = [part.weight_ih, recurrent, part.bias, torch.zeros_like(part.bias)]
        return weights, zeros, zeros, False
    memory = None if isinstance(part, Reader) else (given[1] if len(given) > 1 else options.get("memory"))
    memory = part.nothing(x) if memory is None else memory
    backwards = isinstance(part, Reader) and bool(given[2] if len(given) > 2 else options.get("backwards", False))
    return part.weights(), memory.hidden[row], None if memory.cell is None else memory.cell[row], backwards


def layer_name(name: str, layer: int, layers: int) -> str:
    """The name of one layer of a stack."""
    return name if layers == 1 else f"{name}.{layer}"
