"""Recurrent language models: a hidden state is carried from word to word, so that the history is not limited.

Finding Structure in Time. Elman 1990; as a language model: Mikolov et al. 2010, Recurrent neural network based language
model. LSTM: Hochreiter and Schmidhuber 1997; GRU: Cho et al. 2014, arXiv:1406.1078.
Recurrent Neural Network Regularization. Zaremba, Sutskever, Vinyals 2014, arXiv:1409.2329 (`medium`, `large`).
Regularizing and Optimizing LSTM Language Models. Merity, Keskar, Socher 2017, arXiv:1708.02182 (`awd`).

New against the feed-forward model, nplm: there is no window. The whole history is summarized in one hidden state,

    Elman   h_t = f(W_h h_{t−1} + W_e e_t)         GRU, LSTM: with gates that keep and forget, see layers/recurrent.py

    tokens → embedding → layer → … → layer → hidden → logits
     word ↗  input ↗    ↻ U: weight   between     output ↗       the kinds of dropout

The state can be carried from one batch to the next: `forward_stateful` returns it detached (truncated backpropagation
through time); `forward` starts from zeros and its gradient goes back to the first word.

`variational` uses one dropout mask for all time steps; `word_dropout` drops whole words of the embedding,
`weight_dropout` single weights of U. `ar` and `tar` are regularization terms of the loss: the squared activations, and
the squared changes of the hidden states.

Where this differs from the papers: Mikolov's f is the logistic function, here it is tanh or relu, which cuDNN has. With
`tie_weights` the last layer has the size of the embedding, as in the AWD-LSTM. The pairs of `tar` are within one batch,
and their sum is divided by the tokens, not by the pairs. GRUs and LSTMs are torch's: no peepholes, reset after U."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.layers.cache import State
from mallang.layers.checks import check_sizes
from mallang.layers.dropout import Dropout, VariationalDropout, dropout_mask
from mallang.layers.encoded import Encoded, EncoderDims
from mallang.layers.head import Projection
from mallang.layers.pooling import last_seen
from mallang.layers.recurrent import Memory
from mallang.layers.stateful import StatefulOutput
from mallang.layers.weight_drop import WeightDropped
from mallang.text.vocabulary import Vocabulary

__all__ = ["RNNLM", "SIZES", "Config", "Model"]

TASK = "language_modeling"


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of a recurrent language model; the defaults are Zaremba's medium LSTM."""

    cell: Literal["elman", "gru", "lstm"] = "lstm"
    """The recurrent cell: Elman's without gates, GRU with two, or LSTM with three."""
    activation: Literal["tanh", "relu"] = "tanh"
    """elman: the activation f of the hidden state."""
    layers: int = 2
    """Recurrent layers."""
    embedding_dim: int = 650
    """Size of token embeddings."""
    dim: int = 650
    """Size of the hidden state of each layer."""
    tie_weights: bool = False
    """Tie the embedding and the output projection; the last layer then has the size of the embedding."""
    dropout: float = 0.5
    """Dropout between layers, and the default of input_dropout and output_dropout."""
    input_dropout: float | None = None
    """Dropout on token embeddings; default: `dropout`."""
    output_dropout: float | None = None
    """Dropout on the hidden vectors; default: `dropout`."""
    variational: bool = False
    """Variational dropout: one mask per row for all time steps, not a new one at each."""
    word_dropout: float = 0.0
    """Word dropout: probability that the embedding of a word is zero throughout a batch."""
    weight_dropout: float = 0.0
    """Weight dropout (DropConnect) on the recurrent weights, one mask per batch."""
    ar: float = 0.0
    """Weight of activation regularization, the mean square of the hidden vectors; 2 in the AWD-LSTM."""
    tar: float = 0.0
    """Weight of temporal activation regularization, the mean squared change of the hidden states; 1 in the AWD-LSTM."""
    init: float | None = None
    """Uniform initialization in ±init; default: layers in ±1/√size, embeddings in ±0.1, the output bias at 0."""

    def __post_init__(self) -> None:
        given = [name for name in ("input_dropout", "output_dropout") if getattr(self, name) is not None]
        shares = ("dropout", *given, "word_dropout", "weight_dropout")
        check_sizes(self, "layers", "embedding_dim", "dim", dropouts=shares)
        if self.cell != "elman" and self.activation != "tanh":
            raise ValueError(f'activation = "{self.activation}" has no effect on the cell {self.cell}; it is for elman')
        if self.variational and not any(getattr(self, name) for name in ("dropout", *given)):
            raise ValueError("variational = true has no effect without dropout")
        for name in ("ar", "tar"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, but is {getattr(self, name)}")
        if self.init is not None and self.init <= 0:
            raise ValueError(f"init must be above 0, but is {self.init}")


class RNNLM(nn.Module):
    """An embedding, recurrent layers and an output projection."""

    reads_source = False

    def __init__(self, config: Config, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        last = config.embedding_dim if config.tie_weights else config.dim
        drop = VariationalDropout if config.variational else Dropout
        self.embedding = nn.Embedding(len(vocabulary), config.embedding_dim)
        self.input_dropout = drop(config.dropout if config.input_dropout is None else config.input_dropout)
        self.stacks = nn.ModuleList(make_stacks(config, last))
        self.between = drop(config.dropout)
        self.output_dropout = drop(config.dropout if config.output_dropout is None else config.output_dropout)
        self.head = Projection(last, len(vocabulary), self.embedding if config.tie_weights else None, bias=True)
        self.init_weights()

    def forward(self, batch: Batch) -> Float[Tensor, "batch time dim"]:
        """The hidden vector of every position, from which its next token is predicted."""
        return self.read(batch.tokens, None)[0]

    def forward_stateful(self, batch: Batch, carry: list[Memory] | None) -> StatefulOutput:
        """Hidden vectors of a window that continues from `carry`, or starts from zeros; and the state after it."""
        hidden, states, after = self.read(batch.tokens, carry)
        return StatefulOutput(hidden, [memory.detach() for memory in after], self.penalties(hidden, states, batch.mask))

    def read(
        self, tokens: Int[Tensor, "rows time"], memories: list[Memory] | None
    ) -> tuple[Float[Tensor, "rows time dim"], Float[Tensor, "rows time dim"], list[Memory]]:
        """The hidden vectors, the last layer's states before output dropout, and the final state of all layers."""
        x, after = self.input_dropout(self.embed(tokens)), []
        for number, stack in enumerate(self.stacks):
            x = x if number == 0 else self.between(x)
            x, memory = stack(x, None if memories is None else memories[number])
            after.append(memory)
        return self.output_dropout(x), x, after

    def encode(self, batch: Batch) -> Encoded:
        """The hidden vector of every token, read after `<s>` as in training; the last one is that of the text."""
        begin = torch.full_like(batch.tokens[:, :1], self.vocabulary.bos)
        hidden = self.read(torch.cat((begin, batch.tokens), dim=1), None)[0][:, 1:]
        return Encoded(layers=[hidden], mask=batch.mask, pooled=last_seen(hidden, batch.mask))

    def encoder_dims(self) -> EncoderDims:
        """The sizes of what `encode` gives."""
        return EncoderDims(pooled=self.layers()[-1].hidden_size, token=self.layers()[-1].hidden_size)

    def hidden_states(self, tokens: Int[Tensor, "rows time"]) -> list[Float[Tensor, "rows time _"]]:
        """Token embeddings, then the hidden states of every layer: contextual features of the tokens."""
        states = [self.embed(tokens)]
        for stack in self.layers():
            states += stack.by_layer(states[-1])
        return states

    def embed(self, tokens: Int[Tensor, "rows time"]) -> Float[Tensor, "rows time word_dim"]:
        """Token embeddings, with word dropout in training (Gal and Ghahramani 2016, arXiv:1512.05287)."""
        x: Tensor = self.embedding(tokens)
        if not self.training or not self.config.word_dropout:
            return x
        return x * dropout_mask(self.embedding.weight[:, :1].detach(), self.config.word_dropout)[tokens]

    def penalties(
        self,
        hidden: Float[Tensor, "rows time dim"],
        states: Float[Tensor, "rows time dim"],
        mask: Bool[Tensor, "rows time"],
    ) -> dict[str, Float[Tensor, ""]]:
        """The regularization terms of the loss in training: weighted sums over the tokens of the batch."""
        found = {}
        if self.training and self.config.ar:
            found["ar"] = self.config.ar * (hidden.float().square().mean(dim=-1) * mask).sum()
        if self.training and self.config.tar:
            changes = (states[:, 1:] - states[:, :-1]).float().square().mean(dim=-1)
            found["tar"] = self.config.tar * (changes * mask[:, 1:]).sum()
        return found

    def output(self, hidden: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch words"]:
        """One logit per word of the vocabulary."""
        logits: Tensor = self.head(hidden)
        return logits

    def input_embedding(self) -> nn.Embedding:
        """The embedding of tokens."""
        return self.embedding

    def output_projection(self) -> Projection:
        """The linear layer that `output` applies."""
        return self.head

    def start(self, batch: Batch) -> State:
        """The initial state: zeros."""
        nothing = self.embedding.weight.new_zeros(len(batch), 1, 1)
        return State(fixed=None, moving=[stack.nothing(nothing) for stack in self.layers()])

    def step(self, tokens: Int[Tensor, "rows time"], state: State) -> tuple[Float[Tensor, "rows time words"], State]:
        """The logits after each of these tokens, which follow those of earlier steps."""
        hidden, _, after = self.read(tokens, state.moving)
        return self.output(hidden), State(None, after)

    def init_weights(self) -> None:
        """All weights uniform in ±init, as Zaremba's; by default as in the AWD-LSTM, with torch's rule for layers."""
        given = self.config.init
        for stack in self.layers():
            for weight in stack.parameters():
                uniform(weight, given or stack.hidden_size**-0.5)
        uniform(self.embedding.weight, given or 0.1)
        uniform(self.head.weight, given or 0.1)
        if given and self.head.bias is not None:
            uniform(self.head.bias, given)

    def layers(self) -> list[WeightDropped]:
        """The stacks of recurrent layers, one stack per size."""
        return [stack for stack in self.stacks if isinstance(stack, WeightDropped)]


def uniform(weight: Tensor, spread: float) -> None:
    """Initialize a weight uniformly from −spread to spread."""
    nn.init.uniform_(weight, -spread, spread)


def make_stacks(config: Config, last: int) -> list[WeightDropped]:
    """Stacks of layers of one size each; with `tie_weights` the last layer may have another size."""
    cell: Any = config.activation if config.cell == "elman" else config.cell
    alike = config.layers if last == config.dim else config.layers - 1
    drops = config.dropout, config.weight_dropout, config.variational
    stacks = [WeightDropped(cell, config.embedding_dim, config.dim, alike, *drops)] if alike else []
    if alike < config.layers:
        stacks.append(WeightDropped(cell, config.dim if alike else config.embedding_dim, last, 1, *drops))
    return stacks


AWD: dict[str, Any] = {
    "layers": 3, "embedding_dim": 400, "dim": 1150, "tie_weights": True, "dropout": 0.25, "input_dropout": 0.4,
    "output_dropout": 0.4, "variational": True, "word_dropout": 0.1, "weight_dropout": 0.5, "ar": 2.0, "tar": 1.0,
}  # fmt: skip
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"layers": 2, "embedding_dim": 24, "dim": 32, "dropout": 0.1},
    "small": {"layers": 1, "embedding_dim": 256, "dim": 256, "dropout": 0.2},
    "medium": {"init": 0.05},
    "large": {"embedding_dim": 1500, "dim": 1500, "dropout": 0.65, "init": 0.04},
    "awd": AWD,
}
"""Named shapes, as changes to the defaults; medium and large are Zaremba's, awd is Merity's for Penn Treebank."""

Model = RNNLM
