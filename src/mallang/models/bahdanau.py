"""Translation with attention over all words of the source, in place of one vector for the whole source.

Neural Machine Translation by Jointly Learning to Align and Translate. Bahdanau, Cho, Bengio 2014, arXiv:1409.0473.

New against Cho's encoder-decoder: the encoder is bidirectional and keeps a vector of every word, and before each word
that it generates the decoder attends to those that fit its state. So the source need not be compressed into a vector
of fixed size, and long sentences no longer fail.

    source → embedding → GRU →, GRU ← → memory [→h_j; ←h_j]       s_0 = tanh(W_s ←h_1)
                                           ↓
        α_i = softmax_j vᵀtanh(W_a s_{i−1} + U_a h_j),  c_i = Σ_j α_ij h_j          attention from the state before
                                           ↓
    y_{i−1} → embedding → s_i = GRU([y_{i−1}; c_i], s_{i−1}) → t_i = maxout(y_{i−1}, s_i, c_i) → logits W_o t_i

Where this differs from the paper: the GRU is torch's, which resets after the matmul with U; the readout takes s_i, as
equation 4 in the text, while the appendix prints s_{i−1}; all weights have Xavier initialization, W_s, W_a and the
gates too. `dropout` and `tie_weights` came later and are off by default, as in the paper.
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
    """Size of word embeddings."""
    dim: int = 1000
    """Size of the decoder's state, and of the encoder's in each direction."""
    score_dim: int = 1000
    """Size of the hidden layer of the attention score."""
    readout_dim: int = 500
    """Size of the maxout layer before the output projection."""
    dropout: float = 0.0
    """Dropout on embeddings, on the memory and before the output projection."""
    tie_weights: Literal["all", "target", "none"] = "none"
    """Tie both embeddings and the output projection (needs one vocabulary), those of the decoder, or none."""

    def __post_init__(self) -> None:
        check_sizes(self, "embedding_dim", "dim", "score_dim", "readout_dim")
        check_alike(self, "readout_dim")


class Bahdanau(nn.Module):
    """A bidirectional encoder, and a decoder that attends to it before every word."""

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
        """The hidden vector of every position, from which its next token is predicted."""
        state = self.start(batch)
        hidden, _ = self.write(batch.tokens, state)
        return hidden

    def start(self, batch: Batch) -> State:
        """Encode the source in both directions; the decoder starts from the last state of the backward GRU."""
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
        """The hidden vector after each of these tokens: a loop over time, then one readout of all steps."""
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
        """The embedding of source tokens."""
        return self.own_source_embedding or self.embedding

    def output_projection(self) -> Projection:
        """The linear layer that `output` applies."""
        return self.head

    def step(self, tokens: Int[Tensor, "rows time"], state: State) -> tuple[Float[Tensor, "rows time words"], State]:
        """The logits after each of these tokens, which follow those of earlier steps."""
        hidden, state = self.write(tokens, state)
        return self.output(hidden), state

    def init_weights(self) -> None:
        """Xavier for every matrix, orthogonal for U as in the paper; embeddings of expected norm 1."""
        xavier(self)
        inputs, states = nn.init.xavier_uniform_, nn.init.orthogonal_
        for gates, rule in ((self.word_gates, inputs), (self.context_gates, inputs), (self.state_gates, states)):
            # Each gate is initialized by itself, though one matmul computes them all.
            for gate in gates.weight.detach().split_with_sizes([self.config.dim] * 3):
                rule(gate)


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"embedding_dim": 24, "dim": 32, "score_dim": 16, "readout_dim": 24},
    "small": {"embedding_dim": 256, "dim": 256, "score_dim": 256, "readout_dim": 256},
    "base": {},
}
"""Named shapes, as changes to the defaults; base is the paper's."""

Model = Bahdanau
