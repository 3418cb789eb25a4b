"""Captions of images with attention: before each word the decoder attends to the part of the image that it is about.

Show, Attend and Tell: Neural Image Caption Generation with Visual Attention. Xu et al. 2015, arXiv:1502.03044.

New against captioners before it: the image is not one vector but L annotation vectors, one for each place, from a
convolutional layer; an LSTM attends to them as Bahdanau's decoder does to words. So one sees what each word is about.

    image → convolutions → a_1 … a_L        h_0, c_0 = tanh of linear layers of the mean annotation
                             ↓
    α_t = softmax_i vᵀtanh(W_h h_{t−1} + W_a a_i),   β_t = σ(w_β h_{t−1})
    soft: z_t = β_t Σ_i α_ti a_i        hard: z_t = β_t a_s with s drawn from α_t
                             ↓
    y_{t−1} → embedding → h_t = LSTM([y_{t−1}; z_t], h_{t−1}) → logits L_o (E y_{t−1} + L_h h_t + L_z z_t)

Soft attention is differentiable. Hard attention is trained with REINFORCE, a moving-average baseline and an entropy
bonus; for half of the images of a batch the mean takes the place of the sample, to lower the variance (section 4.1).
The task adds these terms, and the doubly stochastic penalty (tasks/captioning.py). Outside training hard attention
takes the most probable place, so that an output can be scored again.

Where this differs from the paper: the encoder is a small network that is trained with the rest, not VGG pre-trained on
ImageNet; region features of any other network can be given in its place. h_0 and c_0 have one layer each; the readout
ends with tanh, as in the authors' code; weights have Xavier initialization.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.kernels.recurrent import lstm_cell
from mallang.layers.cache import State
from mallang.layers.checks import check_sizes
from mallang.layers.dropout import Dropout
from mallang.layers.head import Projection
from mallang.layers.image_encoder import ImageEncoder
from mallang.layers.initialization import xavier
from mallang.layers.regions import Attended, Steps
from mallang.layers.scores import AdditiveScore, ScoredAttention
from mallang.text.vocabulary import Vocabulary

__all__ = ["SIZES", "Config", "Model", "ShowAttendTell"]

TASK = "captioning"


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of the model; the defaults are for images of some 32 pixels."""

    attention: Literal["soft", "hard"] = "soft"
    """Soft attention takes the mean of all places, hard attention one place, drawn in training."""
    encoder: Literal["convolutions", "given"] = "convolutions"
    """The annotation vectors come from convolutions over the image, or are given as region features."""
    conv_dims: list[int] = field(default_factory=lambda: [32, 64, 128])
    """Output channels of each convolution; the last is the size of an annotation vector."""
    region_dim: int | None = None
    """Size of a given region feature."""
    embedding_dim: int = 128
    """Size of word embeddings, and of the layer before the output projection."""
    dim: int = 256
    """Size of the LSTM's state."""
    score_dim: int = 128
    """Size of the hidden layer of the attention score."""
    dropout: float = 0.0
    """Dropout on embeddings, on the initial state and before the output projection."""
    gate: bool = True
    """Scale the context by β, which the decoder predicts from its state."""
    tie_weights: bool = False
    """Tie the embedding and the output projection."""

    def __post_init__(self) -> None:
        check_sizes(self, "region_dim", "embedding_dim", "dim", "score_dim")
        if len(self.conv_dims) < 2 or min(self.conv_dims) < 1:
            raise ValueError(f"conv_dims needs at least two sizes of 1 or more, but is {list(self.conv_dims)}")
        if (self.encoder == "given") != (self.region_dim is not None):
            raise ValueError('encoder = "given" and region_dim, the size of a given feature, belong together')


class ShowAttendTell(nn.Module):
    """An image encoder, and an LSTM that attends to places of the image before every word."""

    reads_source = False

    def __init__(self, config: Config, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        words, dim, gates = config.embedding_dim, config.dim, 4 * config.dim
        places = config.region_dim or config.conv_dims[-1]
        self.embedding = nn.Embedding(len(vocabulary), words)
        self.first_state = nn.Linear(places, 2 * dim)  # f_init,h and f_init,c
        self.word_gates = nn.Linear(words, gates)
        self.context_gates = nn.Linear(places, gates, bias=False)
        self.state_gates = nn.Linear(dim, gates)
        self.image_attention = ScoredAttention(AdditiveScore(dim, places, config.score_dim))
        self.beta = nn.Linear(dim, 1) if config.gate else None
        self.readout_state = nn.Linear(dim, words)  # L_h
        self.readout_context = nn.Linear(places, words, bias=False)  # L_z
        self.head = Projection(words, len(vocabulary), self.embedding if config.tie_weights else None)
        self.dropout = Dropout(config.dropout)
        xavier(self)
        self.encoder = ImageEncoder(config.conv_dims) if config.encoder == "convolutions" else None

    @property
    def reads_regions(self) -> bool:
        """Whether annotation vectors are given as region features."""
        return self.encoder is None

    def forward(self, batch: Batch) -> Float[Tensor, "batch time words"]:
        """The hidden vector of every position, from which its next token is predicted."""
        return self.attended(batch).hidden

    def attended(self, batch: Batch) -> Attended:
        """The hidden vectors, the attention that led to them, and what was drawn from it."""
        hidden, _, steps = self.write(batch.tokens, self.start(batch))
        return Attended(hidden, steps.all_weights(), steps.all_drawn(), steps.is_drawn)

    def start(self, batch: Batch) -> State:
        """Read the image; the first state of the LSTM follows from the mean annotation."""
        memory = self.annotations(batch)
        keys = self.image_attention.score.remember(memory)
        hidden, cell = self.dropout(self.first_state(memory.mean(dim=1)).tanh()).chunk(2, dim=-1)
        return State({"memory": memory, "keys": keys}, moving=(hidden, cell))

    def annotations(self, batch: Batch) -> Float[Tensor, "batch regions dim"]:
        """The annotation vectors: of convolutions, or as they are given."""
        if self.encoder is None:
            if batch.regions is None:
                raise ValueError("this batch has no region features")
            return batch.regions
        if batch.images is None:
            raise ValueError("this batch has no images")
        found: Tensor = self.encoder(batch.images)
        return found

    def write(
        self, tokens: Int[Tensor, "rows time"], state: State
    ) -> tuple[Float[Tensor, "rows time words"], State, Steps]:
        """The hidden vector after each of these tokens: a loop over time, then one readout of all steps."""
        words, (now, cell) = self.dropout(self.embedding(tokens)), state.moving
        attention = self.image_attention
        is_drawn = self.drawn_images(state.fixed["keys"])
        steps = Steps(attention, state.fixed["keys"], state.fixed["memory"], is_drawn, self.config.attention == "hard")
        states, contexts = [], []
        for word_gates in self.word_gates(words).unbind(1):
            context = steps(attention.score.ask(now))
            if self.beta is not None:
                context = self.beta(now).sigmoid() * context
            now, cell = lstm_cell(word_gates + self.context_gates(context), self.state_gates(now), cell)
            states.append(now)
            contexts.append(context)
        steps.end()
        seen = self.readout_state(torch.stack(states, dim=1)) + self.readout_context(torch.stack(contexts, dim=1))
        return self.dropout((words + seen).tanh()), State(state.fixed, (now, cell)), steps

    def drawn_images(self, keys: Tensor) -> Bool[Tensor, " batch"] | None:
        """The images for which hard attention draws a place in training: half of them; for the others it is soft."""
        if self.config.attention == "soft" or not self.training:
            return None
        return torch.rand(len(keys), device=keys.device) < 0.5

    def output(self, hidden: Float[Tensor, "*batch words_dim"]) -> Float[Tensor, "*batch words"]:
        """One logit per word of the vocabulary."""
        logits: Tensor = self.head(hidden)
        return logits

    def output_projection(self) -> Projection:
        """The linear layer that `output` applies."""
        return self.head

    def step(self, tokens: Int[Tensor, "rows time"], state: State) -> tuple[Float[Tensor, "rows time words"], State]:
        """The logits after each of these tokens, which follow those of earlier steps."""
        hidden, state, _ = self.write(tokens, state)
        return self.output(hidden), state


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"conv_dims": [12, 24], "embedding_dim": 24, "dim": 32, "score_dim": 16},
    "base": {},
}
"""Named shapes, as changes to the defaults."""

Model = ShowAttendTell
