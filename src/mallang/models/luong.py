"""Simpler attention (Luong): a deep LSTM decoder attends from its current state, then predicts the word.

Effective Approaches to Attention-based Neural Machine Translation. Luong, Pham, Manning 2015, arXiv:1508.04025.

New against Bahdanau's model: the decoder attends from its current state, not from the one before, and the context does
not enter that state. So the recurrence does not depend on the attention: the whole sentence runs through the LSTM stack
first, and attention is one batched matmul. `input_feeding` restores the dependency: the attentional vector is an input
of the next step, so that the decoder knows what it attended to.

    source → embedding → LSTM stack → memory h̄_s; its last state starts the decoder
                                        ↓
    tokens → embedding → LSTM stack → h_t → α_t = softmax_s score(h_t, h̄_s), c_t = Σ_s α_ts h̄_s
                 ↑                                      ↓
                 └──── input feeding ─────  h̃_t = tanh(W_c [c_t; h_t]) → logits W_s h̃_t

    score = dot  h_tᵀ h̄_s  |  general  h_tᵀ W_a h̄_s  |  concat  v_aᵀ tanh(W_a [h_t; h̄_s])

This is the paper's global attention; its local attention, and its location-based score, which does not read the
source, are not implemented. The source is not reversed, weights have Xavier initialization, and the LSTM has no
peepholes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.kernels.repeated_matmul import repeated
from mallang.layers.attention import additive
from mallang.layers.cache import State
from mallang.layers.checks import check_alike, check_shared, check_sizes
from mallang.layers.dropout import Dropout
from mallang.layers.head import Projection
from mallang.layers.initialization import xavier
from mallang.layers.recurrent import Memory, Reader, Recurrent
from mallang.layers.scores import ConcatScore, DotScore, GeneralScore, Score, ScoredAttention
from mallang.layers.stepping import LSTMSteps
from mallang.text.vocabulary import Vocabulary

__all__ = ["SIZES", "Config", "Luong", "Model"]

TASK = "translation"


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of the model; the defaults are the paper's, without input feeding."""

    layers: int = 4
    """LSTM layers of the encoder and of the decoder."""
    embedding_dim: int = 1000
    """Size of word embeddings."""
    dim: int = 1000
    """Size of a layer's hidden state, and of the attentional vector."""
    score: Literal["dot", "general", "concat"] = "general"
    """The attention score function."""
    input_feeding: bool = False
    """Feed the attentional vector of each step to the next: more information, but steps cannot run in parallel."""
    dropout: float = 0.2
    """Dropout on embeddings, between layers and before the output projection."""
    tie_weights: Literal["all", "target", "none"] = "none"
    """Tie both embeddings and the output projection (needs one vocabulary), those of the decoder, or none."""

    def __post_init__(self) -> None:
        check_sizes(self, "layers", "embedding_dim", "dim")
        check_alike(self, "dim")


class Luong(nn.Module):
    """An LSTM encoder, an LSTM decoder, and attention from the decoder to the encoder at every word."""

    reads_source = True

    def __init__(self, config: Config, vocabulary: Vocabulary, source_vocabulary: Vocabulary) -> None:
        super().__init__()
        check_shared(config.tie_weights, vocabulary, source_vocabulary)
        self.config, self.vocabulary, self.source_vocabulary = config, vocabulary, source_vocabulary
        words, dim, stack = config.embedding_dim, config.dim, (config.dim, config.layers, config.dropout)
        self.embedding = nn.Embedding(len(vocabulary), words)
        self.own_source_embedding = None if config.tie_weights == "all" else nn.Embedding(len(source_vocabulary), words)
        self.encoder = Reader("lstm", words, *stack)
        self.decoder = Recurrent("lstm", words + dim if config.input_feeding else words, *stack)
        self.cross_attention = ScoredAttention(make_score(config))
        self.combine = nn.Linear(2 * dim, dim, bias=False)  # W_c
        self.head = Projection(dim, len(vocabulary), self.embedding if config.tie_weights != "none" else None)
        self.dropout = Dropout(config.dropout)
        self.init_weights()

    def forward(self, batch: Batch) -> Float[Tensor, "batch time dim"]:
        """The hidden vector of every position, from which its next token is predicted."""
        hidden, _ = self.write(batch.tokens, self.start(batch))
        return hidden

    def start(self, batch: Batch) -> State:
        """Encode the source; the decoder starts from the encoder's last state, with zeros for input feeding."""
        if batch.source is None or batch.source_lengths is None:
            raise ValueError("this batch has no source")
        table = self.input_embedding()
        memory, last = self.encoder(self.dropout(table(batch.source)), batch.source_lengths)
        keys = self.cross_attention.score.remember(memory)
        fixed = {"memory": memory, "keys": keys, "mask": additive(batch.source_mask, keys)}
        fed = [memory.new_zeros(len(memory), self.config.dim)] if self.config.input_feeding else []
        return State(fixed, moving={"decoder": last, "fed": fed})

    def write(self, tokens: Int[Tensor, "rows time"], state: State) -> tuple[Float[Tensor, "rows time dim"], State]:
        """The attentional vector after each of these tokens."""
        words = self.dropout(self.embedding(tokens))
        source = state.fixed["keys"], state.fixed["memory"], state.fixed["mask"]
        if self.config.input_feeding:
            vectors, after = self.write_by_steps(words, source, state.moving["decoder"], *state.moving["fed"])
            return self.dropout(vectors), State(state.fixed, {"decoder": after, "fed": [vectors[:, -1]]})
        states, after = self.decoder(words, state.moving["decoder"])
        contexts = self.cross_attention(states, *source)
        vectors = self.combine(torch.cat((contexts, states.to(contexts.dtype)), dim=-1)).tanh()
        return self.dropout(vectors), State(state.fixed, {"decoder": after, "fed": []})

    def write_by_steps(
        self,
        words: Float[Tensor, "rows time word_dim"],
        source: tuple[Tensor, Tensor, Tensor],
        memory: Memory,
        fed: Float[Tensor, "rows dim"],
    ) -> tuple[Float[Tensor, "rows time dim"], Memory]:
        """The decoder with input feeding: each step reads the attentional vector of the step before."""
        decoder, looks = LSTMSteps(self.decoder, words, memory), self.cross_attention.steps(*source)
        ask, combine = self.cross_attention.score.asking(), repeated(self.combine)
        vectors = []
        for step in range(words.shape[1]):
            state = decoder(step, fed)
            context = looks(ask(state))
            fed = combine(torch.cat((context, state.to(context.dtype)), dim=-1))[0].tanh()
            vectors.append(fed)
        looks.end()
        return torch.stack(vectors, dim=1), decoder.memory

    def output(self, hidden: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch words"]:
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
        """Xavier for every matrix; embeddings of expected norm 1; recurrent.py initializes the LSTMs."""
        xavier(self)


def make_score(config: Config) -> Score:
    """The attention score function that the configuration names."""
    if config.score == "dot":
        return DotScore(config.dim, config.dim)
    if config.score == "general":
        return GeneralScore(config.dim, config.dim)
    return ConcatScore(config.dim, config.dim, config.dim)


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"layers": 2, "embedding_dim": 32, "dim": 32},
    "small": {"layers": 2, "embedding_dim": 256, "dim": 256},
    "base": {},
}
"""Named shapes, as changes to the defaults; base is the paper's."""

Model = Luong
