"""What a loop over time is made of when no kernel can run the whole of it: cells from gates, and products repeated.

A recurrent layer by itself runs in one call (cuDNN). Attention that feeds the next state cannot: its loop is written
in Python, and every step costs as much as the kernels it launches. So all that does not depend on the state is
computed before the loop, the gates of a cell are put together by one kernel on a GPU, and `Product` takes the
gradient of a weight that every step uses once, after the loop, in one product over all steps:

    y_i = x_i W + b          dW = Σ_i x_iᵀ dy_i = [x_1; x_2; …]ᵀ [dy_1; dy_2; …]

GRU and LSTM are those of recurrent.py, which are those of torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from mallang.layers.kernel import is_off
from mallang.layers.recurrent import Memory, Recurrent, gru_update, lstm_update


def gru_cell(
    input_gates: Float[Tensor, "rows gates"],
    state_gates: Float[Tensor, "rows gates"],
    state: Float[Tensor, "rows dim"],
) -> Float[Tensor, "rows dim"]:
    """The next state of a GRU from W x + b and U h + b, whose parts are r, z, n: `gru_update`, one kernel on a GPU."""
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
    if fused(input_gates):
        state, after, _ = torch.ops.aten._thnn_fused_lstm_cell(*alike(input_gates, state_gates, cell))
        return state, after
    return lstm_update(input_gates + state_gates, cell)


class LSTMSteps:
    """The steps of an LSTM stack whose inputs are the words, known before, and what each step is fed.

    Its first layer's W is [W_word W_fed]: the share of the words is computed for all steps at once.
    """

    def __init__(self, stack: Recurrent, words: Float[Tensor, "rows time word_dim"], memory: Memory) -> None:
        if memory.cell is None:
            raise ValueError("these are the steps of an LSTM, but the state is that of a GRU")
        weights = stack.weights()
        self.hidden, self.cell = list(memory.hidden.unbind(1)), list(memory.cell.unbind(1))
        self.from_words = F.linear(words, weights[0][:, : words.shape[2]], weights[2]).unbind(1)
        self.from_fed = Product(weights[0][:, words.shape[2] :].t())
        self.from_below = [Product(w.t(), b) for w, b in zip(weights[4::4], weights[6::4], strict=True)]
        self.from_state = [Product(u.t(), d) for u, d in zip(weights[1::4], weights[3::4], strict=True)]
        self.between = stack.between

    def __call__(self, step: int, fed: Float[Tensor, "rows fed_dim"]) -> Float[Tensor, "rows dim"]:
        """The state of the last layer after this word."""
        gates = self.from_words[step] + self.from_fed(fed)
        for layer, own in enumerate(self.from_state):
            if layer > 0:
                gates = self.from_below[layer - 1](self.between(self.hidden[layer - 1]))
            self.hidden[layer], self.cell[layer] = lstm_cell(gates, own(self.hidden[layer]), self.cell[layer])
        return self.hidden[-1]

    @property
    def memory(self) -> Memory:
        """The state after the last step."""
        return Memory(torch.stack(self.hidden, dim=1), torch.stack(self.cell, dim=1))


def fused(gates: Tensor) -> bool:
    """Whether one kernel does all of a cell; a compiler makes one by itself."""
    return not is_off("fused-cell") and gates.is_cuda and not torch.compiler.is_compiling()


def alike(*tensors: Tensor) -> list[Tensor]:
    """All in the type of the first."""
    return [tensor.to(tensors[0].dtype) for tensor in tensors]


def repeated(*maps: nn.Module) -> Callable[[Tensor], tuple[Tensor, ...]]:
    """Linear maps of the same input, used at every step: in training one product for all of them, and one gradient.

    Maps that are no plain nn.Linear, such as those in 8-bit integers, run as they are.
    """
    plain = all(type(each) is nn.Linear for each in maps)
    if not plain or not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return lambda x: tuple(each(x) for each in maps)
    weights = [each.weight for each in maps if isinstance(each, nn.Linear)]
    biases = [each.bias for each in maps if isinstance(each, nn.Linear)]
    sizes = [len(weight) for weight in weights]
    bias = None
    if any(each is not None for each in biases):
        pairs = zip(biases, weights, strict=True)
        bias = torch.cat([weight.new_zeros(len(weight)) if each is None else each for each, weight in pairs])
    product = Product(torch.cat(weights).t(), bias)
    if len(maps) == 1:  # cut in one part it would be copied on the way back
        return lambda x: (product(x),)
    return lambda x: product(x).split_with_sizes(sizes, dim=-1)


class Product:
    """x W + b with the same W and b at every step, whose gradients are taken once, after the last of them.

    W is one matrix for all rows, or one for each sentence: the memory that attention weighs.
    """

    def __init__(self, matrix: Float[Tensor, "*sentences inputs outputs"], bias: Tensor | None = None) -> None:
        self.matrix, self.bias = at_precision(matrix), None if bias is None else at_precision(bias)
        self.plain_bias = None if self.bias is None else self.bias.detach()
        needs = self.matrix.requires_grad or (self.bias is not None and self.bias.requires_grad)
        self.deferred = (
            not is_off("deferred-gradients") and needs and torch.is_grad_enabled() and not torch.compiler.is_compiling()
        )
        if self.deferred:
            self.inputs: list[Tensor] = []
            self.gradients: list[Tensor | None] = []
            self.token: Tensor = Once.apply(self.matrix, self.bias, self.inputs, self.gradients)  # type: ignore[no-untyped-call]

    def __call__(self, x: Float[Tensor, "*rows inputs"]) -> Float[Tensor, "*rows outputs"]:
        """The product of this step."""
        x = x.to(self.matrix.dtype)
        if not self.deferred:
            return multiply(x, self.matrix, self.bias)
        number = len(self.inputs)
        self.inputs.append(x.detach())
        self.gradients.append(None)
        y: Tensor = Repeat.apply(x, self.token, self.matrix.detach(), self.plain_bias, (number, self.gradients))  # type: ignore[no-untyped-call]
        return y


class Repeat(torch.autograd.Function):
    """One step's product. Backward hands on the gradient of its input and leaves that of its output to `Once`.

    The token, an empty tensor, is the thread between them: autograd comes to `Once` when all steps are done.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, token: Tensor, matrix: Tensor, bias: Tensor | None, place: tuple[int, list[Tensor | None]]
    ) -> Tensor:
        """The product."""
        ctx.save_for_backward(token, matrix)
        ctx.place = place
        return multiply(x, matrix, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient of x."""
        token, matrix = ctx.saved_tensors
        number, gradients = ctx.place
        gradients[number] = gradient
        back = gradient @ matrix.mT if ctx.needs_input_grad[0] else None
        return back, token, None, None, None


class Once(torch.autograd.Function):
    """The gradients of a matrix and a bias that many steps have used."""

    @staticmethod
    def forward(
        ctx: Any, matrix: Tensor, bias: Tensor | None, inputs: list[Tensor], gradients: list[Tensor | None]
    ) -> Tensor:
        """The token that every step is given."""
        ctx.has_bias, ctx.steps = bias is not None, (inputs, gradients)
        ctx.is_transposed = not matrix.is_contiguous()
        return matrix.new_empty(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, token: Tensor) -> tuple[Tensor | None, ...]:
        """One matmul over all steps that were asked for a gradient; the result has the strides of the matrix."""
        pairs = [(x, gradient) for x, gradient in zip(*ctx.steps, strict=True) if gradient is not None]
        x, gradient = (torch.cat(side, dim=-2) for side in zip(*pairs, strict=True))
        back = (gradient.mT @ x).mT if ctx.is_transposed else x.mT @ gradient
        return back, gradient.flatten(0, -2).sum(dim=0) if ctx.has_bias else None, None, None


def multiply(x: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
    """x W + b."""
    return x @ matrix if matrix.dim() > 2 else F.linear(x, matrix.t(), bias)


def at_precision(weight: Tensor) -> Tensor:
    """A weight as autocast would convert it: once, instead of at every step."""
    kind = weight.device.type
    return weight.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else weight
