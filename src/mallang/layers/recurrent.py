"""Recurrent layers over whole sequences and step by step: LSTM, GRU, Elman; padded batches, their state, maxout.

    LSTM   i, f, o = σ(W x + U h + b)   g = tanh(W x + U h + b)          c' = f∘c + i∘g     h' = o∘tanh(c')
    GRU    r, z    = σ(W x + U h + b)   n = tanh(W x + b + r∘(U h + b))  h' = (1−z)∘n + z∘h
    Elman  h' = tanh(W x + U h + b), or relu

All as in torch: the LSTM (Hochreiter and Schmidhuber 1997) has no peepholes, and the GRU (Cho et al. 2014) applies its
reset gate after the matmul with U, where its paper applies it before. A whole sequence is one call of cuDNN.

Sequences are padded to a rectangle, and lengths stay on the GPU, so that a step can be captured as a CUDA graph. That
rules out torch's packed sequences. `Reader` instead moves the padding in front of the words, as zero inputs: its
candidates g and n, and Elman's cell, have no bias, so a zero state stays exactly zero until the first word. Then the
last state of every row is right in all layers, however much was padded, and the other direction is only a flip.

    right-padded   a b c . .          padding in front   . . a b c  →  last state: after c
                                      flipped            . . c b a  →  last state: after a
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mallang.kernels.recurrent import MODES, Cell, Memory, goes_stepwise, run_layers
from mallang.layers.dropout import Dropout

__all__ = ["BidirectionalReader", "Cell", "Kind", "Maxout", "Memory", "Reader", "Recurrent", "joined", "maxout", "roll"]

Kind = Literal["lstm", "gru"]
"""The gated cells."""


class Recurrent(nn.RNNBase):
    """A stack of recurrent layers that continues from a state, with dropout between the layers."""

    def __init__(self, kind: Cell, input_dim: int, dim: int, layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__(MODES[kind], input_dim, dim, layers, batch_first=True)
        self.kind = kind
        # Not cuDNN's own dropout: torch's seed does not control its random numbers.
        self.between: nn.Dropout = Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "rows time inputs"], memory: Memory | None = None
    ) -> tuple[Float[Tensor, "rows time dim"], Memory]:
        """The outputs of the last layer, and the state after the last step; without a state it starts from zeros."""
        if memory is None:
            memory = self.nothing(x)
        drops, weights = self.training and self.between.p > 0, self.weights()
        if not drops and not goes_stepwise(x):
            return self.run(x, memory, weights)
        after = []
        for layer in range(self.num_layers):
            x = x if layer == 0 else self.between(x)
            x, own = self.run(x, memory.of_layer(layer), weights[4 * layer : 4 * layer + 4])
            after.append(own)
        return x, joined(after)

    def by_layer(self, x: Float[Tensor, "rows time inputs"]) -> list[Float[Tensor, "rows time dim"]]:
        """The outputs of every layer, from a zero state and without dropout."""
        memory, weights, outputs = self.nothing(x), self.weights(), []
        for layer in range(self.num_layers):
            x, _ = self.run(x, memory.of_layer(layer), weights[4 * layer : 4 * layer + 4])
            outputs.append(x)
        return outputs

    def run(self, x: Tensor, memory: Memory, weights: list[Tensor]) -> tuple[Tensor, Memory]:
        """Run the layers of these weights in one call."""
        return run_layers(self.kind, x, memory, weights, self.is_flattened(weights))

    def nothing(self, x: Float[Tensor, "rows time inputs"]) -> Memory:
        """The zero state, before the first step."""
        zeros = x.new_zeros(len(x), self.num_layers, self.hidden_size)
        return Memory(zeros, zeros if self.kind == "lstm" else None)

    def weights(self) -> list[Tensor]:
        """Input weights W, recurrent weights U and both biases of every layer."""
        return list(self._flat_weights)  # type: ignore[arg-type]

    def is_flattened(self, weights: list[Tensor]) -> bool:
        """Whether these are the weights of all layers, in the memory that torch flattened for cuDNN."""
        return len(weights) == 4 * self.num_layers

    def reset_parameters(self) -> None:
        """Xavier for W and orthogonal for U, gate by gate; zero biases, but 1 for an LSTM's forget gate.

        With a zero forget bias the gate starts at one half, and an LSTM hardly learns long dependencies (Jozefowicz et
        al. 2015).
        """
        for name, weight in self.named_parameters():
            if "weight" in name:
                for gate in torch.split(weight.detach(), self.hidden_size):
                    (nn.init.orthogonal_ if "_hh_" in name else nn.init.xavier_uniform_)(gate)
            else:
                nn.init.zeros_(weight)
                if self.mode == "LSTM" and "_ih_" in name:
                    nn.init.ones_(weight.detach()[self.hidden_size : 2 * self.hidden_size])


class Reader(Recurrent):
    """A recurrent encoder for padded batches; its candidate biases (g or n), and Elman's only ones, are fixed at zero.

    It moves the padding to the front, where zero inputs then keep the state at zero.
    """

    def __init__(self, kind: Cell, input_dim: int, dim: int, layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__(kind, input_dim, dim, layers, dropout)
        if kind not in ("lstm", "gru"):
            for bias in self.biases():
                bias.requires_grad_(False)

    def biases(self) -> list[nn.Parameter]:
        """The biases of all layers."""
        return [part for part in self.parameters() if part.dim() == 1]

    def reset_candidate_biases(self) -> None:
        """Set to zero what must be zero for padding to have no effect, whatever initialization ran before."""
        for bias in self.biases():
            nn.init.zeros_(bias.detach()[candidate_part(len(bias), self.hidden_size)])

    def forward(  # type: ignore[override]
        self, x: Float[Tensor, "rows time inputs"], lengths: Int[Tensor, " rows"], backwards: bool = False
    ) -> tuple[Float[Tensor, "rows time dim"], Memory]:
        """The output at every word, zero at padding, and each row's state after its last word.

        Backwards it starts at the last word: the output at a word covers the words from the last one to this one, and
        the final state is the one after the first word.
        """
        real = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
        x = x * real[:, :, None].to(x.dtype)
        if backwards:
            outputs, memory = super().forward(x.flip(1))
            return outputs.flip(1), memory
        padding = x.shape[1] - lengths
        outputs, memory = super().forward(roll(x, padding))
        return roll(outputs, -padding), memory

    def weights(self) -> list[Tensor]:
        """W, U and both biases of every layer; the candidate part of a bias gets no gradient."""
        return [
            Resting.apply(part, self.hidden_size) if part.dim() == 1 and part.requires_grad else part  # type: ignore[no-untyped-call]
            for part in super().weights()
        ]


class BidirectionalReader(nn.Module):
    """Bidirectional layers: each concatenates the outputs of both directions (Schuster and Paliwal 1997)."""

    def __init__(self, kind: Cell, input_dim: int, dim: int, layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        inputs = [input_dim] + [2 * dim] * (layers - 1)
        self.forwards = nn.ModuleList(Reader(kind, size, dim) for size in inputs)
        self.backwards = nn.ModuleList(Reader(kind, size, dim) for size in inputs)
        self.between = Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "rows time inputs"], lengths: Int[Tensor, " rows"]
    ) -> tuple[Float[Tensor, "rows time both"], Memory, Memory]:
        """The concatenated outputs of every word; the final state of each direction."""
        ends = []
        for number, (right, left) in enumerate(zip(self.forwards, self.backwards, strict=True)):
            x = x if number == 0 else self.between(x)
            there, last = right(x, lengths)
            back, first = left(x, lengths, backwards=True)
            x = torch.cat((there, back), dim=-1)
            ends.append((last, first))
        rightmost, leftmost = (joined(direction) for direction in zip(*ends, strict=True))
        return x, rightmost, leftmost


class Maxout(nn.Module):
    """Maxout: each output is the maximum of two linear units (Goodfellow et al. 2013, arXiv:1302.4389)."""

    def __init__(self, input_dim: int, dim: int) -> None:
        super().__init__()
        self.pairs = nn.Linear(input_dim, 2 * dim)

    def forward(self, x: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch dim"]:
        """The new x."""
        return maxout(self.pairs(x))


def maxout(pairs: Float[Tensor, "*batch twice"]) -> Float[Tensor, "*batch dim"]:
    """The maximum of the values j and dim + j."""
    return torch.maximum(*pairs.chunk(2, dim=-1))


def roll(x: Float[Tensor, "rows time dim"], by: Int[Tensor, " rows"]) -> Float[Tensor, "rows time dim"]:
    """Rotate every row to the right by its own number of positions, like `torch.roll`."""
    places = torch.arange(x.shape[1], device=x.device)
    return x.gather(1, ((places - by[:, None]) % x.shape[1])[:, :, None].expand_as(x))


def joined(memories: Sequence[Memory]) -> Memory:
    """Concatenate the states of single layers into the state of their stack."""
    cells = [memory.cell for memory in memories if memory.cell is not None]
    return Memory(torch.cat([memory.hidden for memory in memories], dim=1), torch.cat(cells, dim=1) if cells else None)


def candidate_part(size: int, dim: int) -> slice:
    """The part of a bias that belongs to the candidate: the third (g or n) of a gated cell, all of Elman's."""
    return slice(2 * dim, 3 * dim) if size > dim else slice(0, dim)


class Resting(torch.autograd.Function):
    """The identity on a bias, but without a gradient for its candidate part (g or n), the third in both cells.

    The output is a view: cuDNN still finds its weights flattened.
    """

    @staticmethod
    def forward(ctx: Any, bias: Tensor, dim: int) -> Tensor:
        """The bias, as a view."""
        ctx.dim = dim
        return bias.view_as(bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """The gradient, with zeros for the candidate part."""
        gradient = gradient.clone()
        gradient[candidate_part(len(gradient), ctx.dim)] = 0
        return gradient, None
