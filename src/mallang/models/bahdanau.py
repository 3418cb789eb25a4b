"""Translation that learns where to look: attention over all words of the source, in place of one vector for it.

Neural Machine Translation by Jointly Learning to Align and Translate. Bahdanau, Cho, Bengio 2014, arXiv:1409.0473.

New against Cho's encoder-decoder: the encoder reads both ways and keeps a vector of every word, and before each word
that it writes the decoder attends to those which fit its state. So nothing has to pass through a vector of fixed size,
and long sentences no longer fail.

    source → embedding → GRU →, GRU ← → memory [→h_j; ←h_j]       s_0 = tanh(W_s ←h_1)
                                           ↓
        α_i = softmax_j vᵀtanh(W_a s_{i−1} + U_a h_j),  c_i = Σ_j α_ij h_j          looked from the state before
                                           ↓
    y_{i−1} → embedding → s_i = GRU([y_{i−1}; c_i], s_{i−1}) → t_i = maxout(y_{i−1}, s_i, c_i) → logits W_o t_i

Where this differs from the paper: the GRU is torch's, which resets after the product with U; its readout, equation 4
in the text, takes s_i, while the appendix prints s_{i−1}; the weights start by Xavier's rule, W_s, W_a and the gates
too. `dropout` and `tie_weights` are later habits and off, as in the paper.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.kernels.recurrent import gru_cell
from mallang.kernels.repeated_matmul import repeated
from mallang.layers.attention import additive
from mallang.layers.cache import State
from mallang.layers.checks import check_alike, check_shared, check_sizes
from mallang.layers.dropout import Dropout
from mallang.layers.head import Projection
from mallang.layers.initialization import xavier
from mallang.layers.recurrent import BidirectionalReader, Maxout
from mallang.layers.scores import AdditiveScore, ScoredAttention
from mallang.text.vocabulary import Vocabulary

__all__ = ["SIZES", "Bahdanau", "Config", "Model"]

TASK = "translation"


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of the model; the defaults are RNNsearch of the paper."""

    embedding_dim: int = 620
    """Size of the vector of a word."""
    dim: int = 1000
    """Size of the decoder's state, and of the encoder's in each direction."""
    score_dim: int = 1000
    """Size of the hidden layer that scores a state and a word of the source."""
    readout_dim: int = 500
    """Size of the maxout layer before the words."""
    dropout: float = 0.0
    """Share of values dropped from embeddings, from the memory and before the words."""
    tie_weights: Literal["all", "target", "none"] = "none"
    """One weight for both embeddings and the output (needs one vocabulary), for the decoder's two, or for none."""

    def __post_init__(self) -> None:
        check_sizes(self, "embedding_dim", "dim", "score_dim", "readout_dim")
        check_alike(self, "readout_dim")


class Bahdanau(nn.Module):
    """A bidirectional encoder, and a decoder that looks at it before every word."""

    reads_source = True

    def __init__(self, config: Config, vocabulary: Vocabulary, source_vocabulary: Vocabulary) -> None:
        super().__init__()
        check_shared(config.tie_weights, vocabulary, source_vocabulary)
        self.config, self.vocabulary, self.source_vocabulary = config, vocabulary, source_vocabulary
        words, dim, gates = config.embedding_dim, config.dim, 3 * config.dim
        self.embedding = nn.Embedding(len(vocabulary), words)
        self.own_source_embedding = None if config.tie_weights == "all" else nn.Embedding(len(source_vocabulary), words)
        self.encoder = BidirectionalReader("gru", words, dim)
        self.first_state = nn.Linear(dim, dim)  # W_s
        self.word_gates = nn.Linear(words, gates)  # W, W_r, W_z
        self.context_gates = nn.Linear(2 * dim, gates, bias=False)  # C, C_r, C_z
        self.state_gates = nn.Linear(dim, gates)  # U, U_r, U_z
        self.cross_attention = ScoredAttention(AdditiveScore(dim, 2 * dim, config.score_dim))  # W_a, U_a, v
        self.readout = Maxout(dim + words + 2 * dim, config.readout_dim)  # [U_o V_o C_o]
        self.head = Projection(
            config.readout_dim, len(vocabulary), self.embedding if config.tie_weights != "none" else None
        )
        self.dropout = Dropout(config.dropout)
        self.init_weights()

    def forward(self, batch: Batch) -> Float[Tensor, "batch time readout"]:
        """The hidden vector of every position: all that is known before its next token is chosen."""
        state = self.start(batch)
        hidden, _ = self.write(batch.tokens, state)
        return hidden

    def start(self, batch: Batch) -> State:
        """Read the source both ways; the decoder starts from what was read from its end to its beginning."""
        if batch.source is None or batch.source_lengths is None:
            raise ValueError("this batch has no source")
        table = self.input_embedding()
        memory, _, backwards = self.encoder(self.dropout(table(batch.source)), batch.source_lengths)
        memory = self.dropout(memory)
        keys = self.cross_attention.score.remember(memory)
        state = self.first_state(backwards.hidden[:, 0]).tanh()
        fixed = {"memory": memory, "keys": keys, "mask": additive(batch.source_mask, keys)}
        return State(fixed, moving=state)

    def write(self, tokens: Int[Tensor, "rows time"], state: State) -> tuple[Float[Tensor, "rows time readout"], State]:
        """The hidden vector after each of these tokens: a loop over time, then the readout of all of them at once."""
        words = self.dropout(self.embedding(tokens))
        looks = self.cross_attention.steps(state.fixed["keys"], state.fixed["memory"], state.fixed["mask"])
        from_state = repeated(self.cross_attention.score.query, self.state_gates)
        from_context = repeated(self.context_gates)
        now, states, contexts = state.moving, [], []
        for word_gates in self.word_gates(words).unbind(1):
            query, state_gates = from_state(now)
            context = looks(query)
            now = gru_cell(word_gates + from_context(context)[0], state_gates, now)
            states.append(now)
            contexts.append(context)
        looks.end()
        seen = torch.cat((torch.stack(states, dim=1), words.to(now.dtype), torch.stack(contexts, dim=1)), dim=-1)
        return self.dropout(self.readout(seen)), State(state.fixed, now)

    def output(self, hidden: Float[Tensor, "*batch readout"]) -> Float[Tensor, "*batch words"]:
        """One logit per word of the target vocabulary."""
        logits: Tensor = self.head(hidden)
        return logits

    def input_embedding(self) -> nn.Embedding:
        """The table of the vectors of source tokens."""
        return self.own_source_embedding or self.embedding

    def output_projection(self) -> Projection:
        """The linear layer that `output` is."""
        return self.head

    def step(self, tokens: Int[Tensor, "rows time"], state: State) -> tuple[Float[Tensor, "rows time words"], State]:
        """The logits after each of these tokens, which follow those of earlier steps."""
        hidden, state = self.write(tokens, state)
        return self.output(hidden), state

    def init_weights(self) -> None:
        """Xavier for every matrix, orthogonal for U as in the paper; embeddings of size one in all."""
        xavier(self)
        inputs, states = nn.init.xavier_uniform_, nn.init.orthogonal_
        for gates, rule in ((self.word_gates, inputs), (self.context_gates, inputs), (self.state_gates, states)):
            # Each gate by itself, though they are computed as one.
            for gate in gates.weight.detach().split_with_sizes([self.config.dim] * 3):
                rule(gate)


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"embedding_dim": 24, "dim": 32, "score_dim": 16, "readout_dim": 24},
    "small": {"embedding_dim": 256, "dim": 256, "score_dim": 256, "readout_dim": 256},
    "base": {},
}
"""Named shapes, as changes to the defaults; base is the paper's."""

Model = Bahdanau
