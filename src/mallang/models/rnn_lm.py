"""Recurrent language models: one state is carried from word to word, so that no history is too long to be read.

Finding Structure in Time. Elman 1990; as a language model: Mikolov et al. 2010, Recurrent neural network based language
model. LSTM: Hochreiter and Schmidhuber 1997; GRU: Cho et al. 2014, arXiv:1406.1078.
Recurrent Neural Network Regularization. Zaremba, Sutskever, Vinyals 2014, arXiv:1409.2329 (`medium`, `large`).
Regularizing and Optimizing LSTM Language Models. Merity, Keskar, Socher 2017, arXiv:1708.02182 (`awd`).

New against the feed-forward model, nplm: the window is gone. All that was read is one state,

    Elman   h_t = f(W_h h_{t−1} + W_e e_t)         GRU, LSTM: with gates that keep and forget, see layers/recurrent.py

    tokens → embedding → layer → … → layer → hidden → logits
     word ↗  input ↗    ↻ U: weight   between     output ↗       where training drops something

A state can continue from one batch to the next: `forward_stateful` gives it back without its history (truncated
backpropagation through time); `forward` starts from zeros and its gradient goes back to the first word.

`variational` drops the same values at every time; `word_dropout` takes whole words out of the table, `weight_dropout`
single weights of U. `ar` and `tar` are sums for the loss: of what is said squared, and of how it changes squared.

Where this differs from the papers: Mikolov's f is the logistic function, here it is tanh or relu, which cuDNN has. With
`tie_weights` the last layer has the size of the embedding, as in the AWD-LSTM. The pairs of `tar` lie within one batch,
and their sum is divided by the tokens, not by the pairs. GRUs and LSTMs are torch's: no peepholes, reset after U."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.layers.cache import State
from mallang.layers.checks import check_sizes
from mallang.layers.dropout import Dropout, VariationalDropout, dropout_mask
from mallang.layers.head import Projection
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
    """How a state follows from the one before: without gates, with two or with three."""
    activation: Literal["tanh", "relu"] = "tanh"
    """elman: the f that a new state goes through."""
    layers: int = 2
    """Recurrent layers."""
    embedding_dim: int = 650
    """Size of token embeddings."""
    dim: int = 650
    """Size of the hidden state of each layer."""
    tie_weights: bool = False
    """One weight for embedding and output; the last layer then has the size of the embedding."""
    dropout: float = 0.5
    """Dropout between layers, and before and after them where nothing else is given."""
    input_dropout: float | None = None
    """Dropout on token embeddings; default: `dropout`."""
    output_dropout: float | None = None
    """Dropout on the hidden vectors; default: `dropout`."""
    variational: bool = False
    """Drop the same values of a row at every time (variational), not others at each."""
    word_dropout: float = 0.0
    """Word dropout: probability that the embedding of a word is zero throughout a batch."""
    weight_dropout: float = 0.0
    """Share of the weights from state to state that are zero throughout a batch."""
    ar: float = 0.0
    """Weight of the activation penalty, the mean square of the hidden vectors; the AWD-LSTM has 2."""
    tar: float = 0.0
    """Weight of the temporal penalty, the mean square of the difference of two states in a row; the AWD-LSTM has 1."""
    init: float | None = None
    """All weights begin evenly in ±init; default: layers in ±1/√size, embeddings in ±0.1, biases of words at 0."""

    def __post_init__(self) -> None:
        given = [name for name in ("input_dropout", "output_dropout") if getattr(self, name) is not None]
        shares = ("dropout", *given, "word_dropout", "weight_dropout")
        check_sizes(self, "layers", "embedding_dim", "dim", dropouts=shares)
        if self.cell != "elman" and self.activation != "tanh":
            raise ValueError(f'activation = "{self.activation}" has no effect on a {self.cell}; it belongs to elman')
        if self.variational and not any(getattr(self, name) for name in ("dropout", *given)):
            raise ValueError("variational = true has no effect where nothing is dropped")
        for name in ("ar", "tar"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, but is {getattr(self, name)}")
        if self.init is not None and self.init <= 0:
            raise ValueError(f"init must be above 0, but is {self.init}")


class RNNLM(nn.Module):
    """An embedding, recurrent layers, and a word for what they have come to."""

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
        """The same where an earlier batch of these rows ended, or from zeros; and where this one ends."""
        hidden, states, after = self.read(batch.tokens, carry)
        return StatefulOutput(hidden, [memory.detach() for memory in after], self.penalties(hidden, states, batch.mask))

    def read(
        self, tokens: Int[Tensor, "rows time"], memories: list[Memory] | None
    ) -> tuple[Float[Tensor, "rows time dim"], Float[Tensor, "rows time dim"], list[Memory]]:
        """The hidden vectors, the last layer's states that they are without dropout, and the state of all layers."""
        x, after = self.input_dropout(self.embed(tokens)), []
        for number, stack in enumerate(self.stacks):
            x = x if number == 0 else self.between(x)
            x, memory = stack(x, None if memories is None else memories[number])
            after.append(memory)
        return self.output_dropout(x), x, after

    def hidden_states(self, tokens: Int[Tensor, "rows time"]) -> list[Float[Tensor, "rows time _"]]:
        """The vectors of tokens, and the states of every layer after each: features of the tokens in their context."""
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
        """What training adds to the loss: weighted sums over the tokens of the batch."""
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
        """All weights evenly in ±init, as Zaremba's; else as in the AWD-LSTM, where layers begin as torch's do."""
        given = self.config.init
        for stack in self.layers():
            for weight in stack.parameters():
                uniform(weight, given or stack.hidden_size**-0.5)
        uniform(self.embedding.weight, given or 0.1)
        uniform(self.head.weight, given or 0.1)
        if given and self.head.bias is not None:
            uniform(self.head.bias, given)

    def layers(self) -> list[WeightDropped]:
        """The recurrent layers, those of one size together."""
        return [stack for stack in self.stacks if isinstance(stack, WeightDropped)]


def uniform(weight: Tensor, spread: float) -> None:
    """Draw a weight evenly from −spread to spread."""
    nn.init.uniform_(weight, -spread, spread)


def make_stacks(config: Config, last: int) -> list[WeightDropped]:
    """The layers, those of one size together; with `tie_weights` the last one may be of another size."""
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
