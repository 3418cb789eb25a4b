"""Recurrent layers: torch's cells step by step, cuDNN over whole sequences, and fused cells for loops over time.

cuDNN wants the weights of all layers flattened into one block of memory, in the dtype that it computes in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
import torch.backends.cudnn.rnn as cudnn_rnn
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mallang.kernels.dispatch import is_left_out

Cell = Literal["lstm", "gru", "tanh", "relu"]
"""LSTM, GRU, and the two cells of Elman (1990), which have no gates."""
CELL_OBSERVERS: list[Callable[[str, Tensor, Tensor, Tensor], None]] = []
"""Functions that get the kind, both gate inputs and the state (of an LSTM the cell) of every single cell that runs."""
MODES: dict[str, str] = {"lstm": "LSTM", "gru": "GRU", "tanh": "RNN_TANH", "relu": "RNN_RELU"}


class Memory(NamedTuple):
    """The state of a recurrent stack: one row per sequence, so that rows can be reordered and copied."""

    hidden: Float[Tensor, "rows layers dim"]
    cell: Float[Tensor, "rows layers dim"] | None
    """The cell state of an LSTM; None for other cells."""

    def of_layer(self, layer: int) -> Memory:
        """The state of one layer."""
        here = slice(layer, layer + 1)
        return Memory(self.hidden[:, here], None if self.cell is None else self.cell[:, here])

    def to(self, dtype: torch.dtype) -> Memory:
        """The state in another dtype."""
        return Memory(self.hidden.to(dtype), None if self.cell is None else self.cell.to(dtype))

    def detach(self) -> Memory:
        """The state, detached: gradients end here."""
        return Memory(self.hidden.detach(), None if self.cell is None else self.cell.detach())


def lstm_update(
    gates: Float[Tensor, "rows gates"], cell: Float[Tensor, "rows dim"]
) -> tuple[Float[Tensor, "rows dim"], Float[Tensor, "rows dim"]]:
    """The new h and c from W x + U h + b, whose parts are i, f, g, o."""
    i, f, g, o = gates.chunk(4, dim=-1)
    cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


def gru_update(
    inputs: Float[Tensor, "rows gates"], recurrent: Float[Tensor, "rows gates"], hidden: Float[Tensor, "rows dim"]
) -> Float[Tensor, "rows dim"]:
    """The new h from W x + b and U h + b, whose parts are r, z, n."""
    (input_r, input_z, input_n), (own_r, own_z, own_n) = inputs.chunk(3, dim=-1), recurrent.chunk(3, dim=-1)
    r, z = (input_r + own_r).sigmoid(), (input_z + own_z).sigmoid()
    return torch.lerp((input_n + r * own_n).tanh(), hidden, z)


def run_layers(
    kind: Cell, x: Float[Tensor, "rows time inputs"], memory: Memory, weights: list[Tensor], in_one_piece: bool
) -> tuple[Float[Tensor, "rows time dim"], Memory]:
    """Run the layers of these weights over a sequence; `in_one_piece`: torch has flattened the weights for cuDNN."""
    if goes_stepwise(x):
        return unrolled(kind, x, memory, weights)
    if not x.is_cuda:
        return whole(kind, x, memory, weights)
    wanted = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else x.dtype
    computed = computed_as(wanted)
    if not (in_one_piece and computed == weights[0].dtype == torch.float32):
        weights = list(FlattenedWeights.apply(computed, MODES[kind], *weights))  # type: ignore[no-untyped-call]
    with torch.autocast("cuda", enabled=False):
        outputs, after = whole(kind, x.to(computed), memory.to(computed), weights)
    return outputs.to(wanted), after.to(wanted)


def goes_stepwise(x: Float[Tensor, "rows time inputs"]) -> bool:
    """Whether to run step by step: a compiler can fuse the steps, and for a single step cuDNN does not pay off."""
    return torch.compiler.is_compiling() or (x.is_cuda and x.shape[1] == 1)


def whole(kind: Cell, x: Tensor, memory: Memory, weights: list[Tensor]) -> tuple[Tensor, Memory]:
    """Layers over a whole sequence, in one call of torch."""
    # With gradients cuDNN must run in training mode, even without dropout: it saves what its backward pass needs.
    options = True, len(weights) // 4, 0.0, torch.is_grad_enabled(), False, True
    hidden = layers_first(memory.hidden)
    if memory.cell is None:
        run = {"gru": torch.gru, "tanh": torch.rnn_tanh, "relu": torch.rnn_relu}[kind]
        outputs, hidden = run(x, hidden, weights, *options)
        return outputs, Memory(hidden.transpose(0, 1), None)
    outputs, hidden, cell = torch.lstm(x, (hidden, layers_first(memory.cell)), weights, *options)
    return outputs, Memory(hidden.transpose(0, 1), cell.transpose(0, 1))


def unrolled(kind: Cell, x: Tensor, memory: Memory, weights: list[Tensor]) -> tuple[Tensor, Memory]:
    """One layer over a sequence, step by step."""
    w, u, b, d = weights
    from_words, outputs = F.linear(x, w, b), []
    memory = memory.to(from_words.dtype)
    hidden, cell = memory.hidden[:, 0], None if memory.cell is None else memory.cell[:, 0]
    for inputs in from_words.unbind(1):
        own = F.linear(hidden, u, d)
        if cell is not None:
            hidden, cell = lstm_update(inputs + own, cell)
        elif kind == "gru":
            hidden = gru_update(inputs, own, hidden)
        else:
            hidden = (inputs + own).tanh() if kind == "tanh" else (inputs + own).relu()
        outputs.append(hidden)
    return torch.stack(outputs, dim=1), Memory(hidden[:, None], None if cell is None else cell[:, None])


def layers_first(part: Float[Tensor, "rows layers dim"]) -> Float[Tensor, "layers rows dim"]:
    """The layout of states in cuDNN: layers first."""
    return part.transpose(0, 1).contiguous()


def computed_as(wanted: torch.dtype) -> torch.dtype:
    """The dtype that cuDNN computes in: the wanted one, or float32 where its version does not support bfloat16.

    Autocast does not check: it always gives cuDNN float16, whose gradients underflow without loss scaling.
    """
    version = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    return torch.float32 if wanted == torch.bfloat16 and (version or 0) < 91300 else wanted


class FlattenedWeights(torch.autograd.Function):
    """Weights in another dtype, flattened in cuDNN's order; otherwise torch would copy them at every call and warn."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, mode: str, *weights: Tensor) -> tuple[Tensor, ...]:
        """The new weights."""
        ctx.dtype = weights[0].dtype
        copies = [weight.to(dtype, copy=True) for weight in weights]
        inputs, dim, layers = copies[0].shape[1], copies[1].shape[1], len(copies) // 4
        number = cudnn_rnn.get_cudnn_mode(mode)  # type: ignore[no-untyped-call]
        torch._cudnn_rnn_flatten_weight(copies, 4, inputs, number, dim, 0, layers, True, False)
        return tuple(copies)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients, in the dtype of the original weights."""
        return None, None, *(gradient.to(ctx.dtype) for gradient in gradients)


def gru_cell(
    input_gates: Float[Tensor, "rows gates"],
    state_gates: Float[Tensor, "rows gates"],
    state: Float[Tensor, "rows dim"],
) -> Float[Tensor, "rows dim"]:
    """The next state of a GRU from W x + b and U h + b, whose parts are r, z, n: `gru_update`, one kernel on a GPU."""
    for observe in CELL_OBSERVERS:
        observe("gru", input_gates, state_gates, state)
    if fused(input_gates):
        after: Tensor = torch.ops.aten._thnn_fused_gru_cell(*alike(input_gates, state_gates, state))[0]
        return after
    return gru_update(input_gates, state_gates, state)


def lstm_cell(
    input_gates: Float[Tensor, "rows gates"],
    state_gates: Float[Tensor, "rows gates"],
    cell: Float[Tensor, "rows dim"],
) -> tuple[Float[Tensor, "rows dim"], Float[Tensor, "rows dim"]]:
    """The next h and c of an LSTM from W x + b and U h + b, whose parts are i, f, g, o: `lstm_update`, one kernel."""
    for observe in CELL_OBSERVERS:
        observe("lstm", input_gates, state_gates, cell)
    if fused(input_gates):
        state, after, _ = torch.ops.aten._thnn_fused_lstm_cell(*alike(input_gates, state_gates, cell))
        return state, after
    return lstm_update(input_gates + state_gates, cell)


def fused(gates: Tensor) -> bool:
    """Whether to use torch's fused cell kernel: on a GPU, unless a compiler generates one."""
    return not is_left_out("fused-cell") and gates.is_cuda and not torch.compiler.is_compiling()


def alike(*tensors: Tensor) -> list[Tensor]:
    """All tensors in the dtype of the first."""
    return [tensor.to(tensors[0].dtype) for tensor in tensors]
