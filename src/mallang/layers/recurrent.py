"""Recurrent layers over whole sequences and step by step: LSTM, GRU, Elman, padding, the state between steps, maxout.

    LSTM   i, f, o = σ(W x + U h + b)   g = tanh(W x + U h + b)          c' = f∘c + i∘g     h' = o∘tanh(c')
    GRU    r, z    = σ(W x + U h + b)   n = tanh(W x + b + r∘(U h + b))  h' = (1−z)∘n + z∘h
    Elman  h' = tanh(W x + U h + b), or relu

All as in torch: the LSTM (Hochreiter and Schmidhuber 1997) has no peepholes, and the GRU (Cho et al. 2014) resets
after the product with U, where its paper resets before. A whole sequence is one call of cuDNN.

Sequences are padded to a rectangle, and lengths stay on the GPU, so that a step can be captured and replayed. That
rules torch's packed sequences out. `Reader` puts the padding in front of the words instead and gives it zeros to read:
g and n have no bias there, so a state of zero stays exactly zero until the first word comes. Then the last state of
every row is right in all layers, whatever was padded, and the other direction is no more than a flip.

    right-padded   a b c . .          padding in front   . . a b c  →  last state: after c
                                      flipped            . . c b a  →  last state: after a
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
import torch.backends.cudnn.rnn as cudnn_rnn
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from mallang.layers.dropout import Dropout

Kind = Literal["lstm", "gru"]
"""Those with gates."""
Cell = Literal["lstm", "gru", "tanh", "relu"]
"""The last two are Elman's (1990), without gates."""
MODES: dict[str, str] = {"lstm": "LSTM", "gru": "GRU", "tanh": "RNN_TANH", "relu": "RNN_RELU"}


class Memory(NamedTuple):
    """What a recurrent stack remembers: a row per sequence, so that rows can be reordered and copied."""

    hidden: Float[Tensor, "rows layers dim"]
    cell: Float[Tensor, "rows layers dim"] | None
    """An LSTM's inner memory; others have none."""

    def of_layer(self, layer: int) -> Memory:
        """The part of one layer."""
        here = slice(layer, layer + 1)
        return Memory(self.hidden[:, here], None if self.cell is None else self.cell[:, here])

    def to(self, dtype: torch.dtype) -> Memory:
        """The same in another type."""
        return Memory(self.hidden.to(dtype), None if self.cell is None else self.cell.to(dtype))

    def detach(self) -> Memory:
        """The same without its history: gradients end here."""
        return Memory(self.hidden.detach(), None if self.cell is None else self.cell.detach())


class Recurrent(nn.RNNBase):
    """A stack of recurrent layers that goes on from a state, with dropout between the layers."""

    def __init__(self, kind: Cell, input_dim: int, dim: int, layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__(MODES[kind], input_dim, dim, layers, batch_first=True)
        self.kind = kind
        # Not cuDNN's own dropout: its random numbers follow no seed of ours.
        self.between: nn.Dropout = Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "rows time inputs"], memory: Memory | None = None
    ) -> tuple[Float[Tensor, "rows time dim"], Memory]:
        """The outputs of the last layer, and the state after the last of them; without a state it starts at zero."""
        if memory is None:
            memory = self.nothing(x)
        drops, weights = self.training and self.between.p > 0, self.weights()
        if not drops and not stepwise(x):
            return self.run(x, memory, weights)
        after = []
        for layer in range(self.num_layers):
            x = x if layer == 0 else self.between(x)
            x, own = self.run(x, memory.of_layer(layer), weights[4 * layer : 4 * layer + 4])
            after.append(own)
        return x, joined(after)

    def by_layer(self, x: Float[Tensor, "rows time inputs"]) -> list[Float[Tensor, "rows time dim"]]:
        """The outputs of every layer, from nothing and without dropout."""
        memory, weights, outputs = self.nothing(x), self.weights(), []
        for layer in range(self.num_layers):
            x, _ = self.run(x, memory.of_layer(layer), weights[4 * layer : 4 * layer + 4])
            outputs.append(x)
        return outputs

    def run(self, x: Tensor, memory: Memory, weights: list[Tensor]) -> tuple[Tensor, Memory]:
        """The layers of these weights in one go."""
        if stepwise(x):
            return unrolled(self.kind, x, memory, weights)
        if not x.is_cuda:
            return whole(self.kind, x, memory, weights)
        wanted = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else x.dtype
        computed = computed_as(wanted)
        if not (self.lies_in_one_piece(weights) and computed == weights[0].dtype == torch.float32):
            weights = list(InOnePiece.apply(computed, self.mode, *weights))  # type: ignore[no-untyped-call]
        with torch.autocast("cuda", enabled=False):
            outputs, after = whole(self.kind, x.to(computed), memory.to(computed), weights)
        return outputs.to(wanted), after.to(wanted)

    def nothing(self, x: Float[Tensor, "rows time inputs"]) -> Memory:
        """The state of zeros, before anything was read."""
        zeros = x.new_zeros(len(x), self.num_layers, self.hidden_size)
        return Memory(zeros, zeros if self.kind == "lstm" else None)

    def weights(self) -> list[Tensor]:
        """Of each layer: W, U, and the biases of both."""
        return list(self._flat_weights)  # type: ignore[arg-type]

    def lies_in_one_piece(self, weights: list[Tensor]) -> bool:
        """Whether these are the weights of all layers, where torch has put them for cuDNN."""
        return len(weights) == 4 * self.num_layers

    def reset_parameters(self) -> None:
        """Xavier for W and orthogonal for U, gate by gate; no biases, but 1 for an LSTM's forget gate.

        An LSTM that forgets by half at every step hardly learns to keep (Jozefowicz et al. 2015).
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
    """A stack that reads whole padded texts from nothing; the biases of its g or n stay at zero."""

    def __init__(self, kind: Kind, input_dim: int, dim: int, layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__(kind, input_dim, dim, layers, dropout)

    def forward(  # type: ignore[override]
        self, x: Float[Tensor, "rows time inputs"], lengths: Int[Tensor, " rows"], backwards: bool = False
    ) -> tuple[Float[Tensor, "rows time dim"], Memory]:
        """The output at every word, zero at padding, and each row's state after its last word.

        Backwards it begins at the last word: the output of a word is what was read from there to it, and the last
        state is that after the first word.
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
        """Of each layer: W, U, and the biases of both, which learn for the gates only."""
        return [Resting.apply(part, self.hidden_size) if part.dim() == 1 else part for part in super().weights()]  # type: ignore[no-untyped-call]


class BidirectionalReader(nn.Module):
    """Each layer reads both ways and joins the two outputs of a word (Schuster and Paliwal 1997)."""

    def __init__(self, kind: Kind, input_dim: int, dim: int, layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        inputs = [input_dim] + [2 * dim] * (layers - 1)
        self.forwards = nn.ModuleList(Reader(kind, size, dim) for size in inputs)
        self.backwards = nn.ModuleList(Reader(kind, size, dim) for size in inputs)
        self.between = Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "rows time inputs"], lengths: Int[Tensor, " rows"]
    ) -> tuple[Float[Tensor, "rows time both"], Memory, Memory]:
        """Both outputs of every word, joined; the state of each direction after the last word that it read."""
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
    """Each output is the larger one of two linear maps (Goodfellow et al. 2013, arXiv:1302.4389)."""

    def __init__(self, input_dim: int, dim: int) -> None:
        super().__init__()
        self.pairs = nn.Linear(input_dim, 2 * dim)

    def forward(self, x: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch dim"]:
        """The new x."""
        return maxout(self.pairs(x))


def maxout(pairs: Float[Tensor, "*batch twice"]) -> Float[Tensor, "*batch dim"]:
    """The larger one of the values j and dim + j."""
    return torch.maximum(*pairs.chunk(2, dim=-1))


def roll(x: Float[Tensor, "rows time dim"], by: Int[Tensor, " rows"]) -> Float[Tensor, "rows time dim"]:
    """Every row moved to the right by its own number of places; what falls off comes in again on the left."""
    places = torch.arange(x.shape[1], device=x.device)
    return x.gather(1, ((places - by[:, None]) % x.shape[1])[:, :, None].expand_as(x))


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


def stepwise(x: Float[Tensor, "rows time inputs"]) -> bool:
    """Whether to go step by step: a compiler can fuse that, and for one step cuDNN is not worth calling."""
    return torch.compiler.is_compiling() or (x.is_cuda and x.shape[1] == 1)


def whole(kind: Cell, x: Tensor, memory: Memory, weights: list[Tensor]) -> tuple[Tensor, Memory]:
    """Layers over a whole sequence, in one call of torch."""
    # With gradients cuDNN must keep what its backward pass needs, even where nothing is dropped.
    options = True, len(weights) // 4, 0.0, torch.is_grad_enabled(), False, True
    hidden = layers_first(memory.hidden)
    if memory.cell is None:
        run = {"gru": torch.gru, "tanh": torch.rnn_tanh, "relu": torch.rnn_relu}[kind]
        outputs, hidden = run(x, hidden, weights, *options)
        return outputs, Memory(hidden.transpose(0, 1), None)
    outputs, hidden, cell = torch.lstm(x, (hidden, layers_first(memory.cell)), weights, *options)
    return outputs, Memory(hidden.transpose(0, 1), cell.transpose(0, 1))


def unrolled(kind: Cell, x: Tensor, memory: Memory, weights: list[Tensor]) -> tuple[Tensor, Memory]:
    """One layer, step by step."""
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


def joined(memories: Sequence[Memory]) -> Memory:
    """The states of layers as that of their stack."""
    cells = [memory.cell for memory in memories if memory.cell is not None]
    return Memory(torch.cat([memory.hidden for memory in memories], dim=1), torch.cat(cells, dim=1) if cells else None)


def layers_first(part: Float[Tensor, "rows layers dim"]) -> Float[Tensor, "layers rows dim"]:
    """As cuDNN wants it."""
    return part.transpose(0, 1).contiguous()


def computed_as(wanted: torch.dtype) -> torch.dtype:
    """What cuDNN computes in: what is wanted, unless that is bfloat16 and its version does not know it yet.

    Autocast would not ask: it gives cuDNN float16 in any case, whose gradients vanish where the loss is not scaled.
    """
    version = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    return torch.float32 if wanted == torch.bfloat16 and (version or 0) < 91300 else wanted


class InOnePiece(torch.autograd.Function):
    """Weights in another type, lying in memory one after the other in cuDNN's order; else it would copy and warn."""

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
        """In the type of the weights as they were."""
        return None, None, *(gradient.to(ctx.dtype) for gradient in gradients)


class Resting(torch.autograd.Function):
    """A bias as it is, whose part for g or n, the third in both kinds, gets no gradient.

    The same memory, so that cuDNN finds its weights in one piece.
    """

    @staticmethod
    def forward(ctx: Any, bias: Tensor, dim: int) -> Tensor:
        """The bias."""
        ctx.dim = dim
        return bias.view_as(bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Zero for the third part."""
        gradient = gradient.clone()
        gradient[2 * ctx.dim : 3 * ctx.dim] = 0
        return gradient, None
