"""ELMo: a forward and a backward language model over words that are read from their characters, as contextual vectors.

Deep contextualized word representations. Peters, Neumann, Iyyer, Gardner, Clark, Lee, Zettlemoyer 2018,
arXiv:1802.05365. The network is the CNN-BIG-LSTM of Exploring the Limits of Language Modeling. Jozefowicz, Vinyals,
Schuster, Shazeer, Wu 2016, arXiv:1602.02410, in both directions.

New against the character-aware model, char_aware: there are two language models, one that reads from the first word and
one that reads from the last. Each has LSTM layers of its own and is trained by its own loss, so that no direction sees
the word that it predicts; the word vectors and the softmax are shared. All layers are given to a task, not the last
one alone, and each task learns how to mix them (layers/mix.py).

    <s> w1 … wn </s> → characters → convolutions → highway layers → linear → x
        forward    x → LSTM → LSTM (+ its input) → softmax: the next word
        backward   x → LSTM → LSTM (+ its input) → softmax: the word before
    layers 0, 1, 2: [x; x], [forward 1; backward 1], [forward 2; backward 2]

Every text starts from a zero state: its vectors depend on nothing that was read before it.

Where this differs from the paper: a character is a character of the text (or a jamo), not a byte; tanh comes after the
convolutions; the softmax is over the whole vocabulary, not sampled; the cells are not clipped. The vector of a text,
which the paper does not have, is the mean of the last layer over its words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.layers.characters import Characters, Highway
from mallang.layers.checks import check_sizes
from mallang.layers.dropout import Dropout
from mallang.layers.encoded import Encoded, EncoderDims
from mallang.layers.head import Projection
from mallang.layers.pooling import masked_mean
from mallang.layers.projected_lstm import ProjectedLSTM, reversed_rows
from mallang.text.vocabulary import Vocabulary

__all__ = ["SIZES", "Config", "ELMo", "Model"]

TASK = "bidirectional_language_modeling"


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of the model; the defaults are the paper's."""

    character_dim: int = 16
    """Size of character embeddings."""
    filters: tuple[int, ...] = (32, 32, 64, 128, 256, 512, 1024)
    """Number of filters of width 1, of width 2, and so on."""
    highways: int = 2
    """Highway layers after the filters."""
    layers: int = 2
    """LSTM layers of each direction."""
    dim: int = 512
    """Size of a word vector, and of the output of each layer of each direction."""
    hidden_dim: int | None = 4096
    """LSTM cells of each layer, projected to `dim`; none: `dim` cells without a projection."""
    skip: bool = True
    """Add the input of every layer but the first to its output."""
    dropout: float = 0.1
    """Dropout on the input of every layer, and on the hidden vectors before the softmax."""
    jamo: bool = False
    """Spell Hangul in jamo, not in syllables."""
    longest_word: int = 50
    """The maximum number of characters of a word, the two marks around it included; longer words are cut."""

    def __post_init__(self) -> None:
        check_sizes(self, "character_dim", "layers", "dim", "hidden_dim")
        if self.highways < 0:
            raise ValueError(f"highways must not be negative, but is {self.highways}")
        if min(self.filters, default=0) < 0 or not sum(self.filters):
            raise ValueError(f"filters must be one number per width, some above 0, but are {list(self.filters)}")
        if self.longest_word < 3:
            raise ValueError(f"longest_word must be at least 3, a character and two marks, but is {self.longest_word}")


class ELMo(nn.Module):
    """Word vectors from characters, two directions of LSTM layers, and a softmax that both share."""

    reads_source = False

    def __init__(self, config: Config, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        self.characters = Characters(
            vocabulary, config.character_dim, config.filters, longest=config.longest_word, jamo=config.jamo
        )
        self.characters.skips_unknown = True
        self.highways = nn.ModuleList(Highway(self.characters.dim) for _ in range(config.highways))
        self.to_words = nn.Linear(self.characters.dim, config.dim)
        self.forwards = nn.ModuleList(make_layer(config) for _ in range(config.layers))
        self.backwards = nn.ModuleList(make_layer(config) for _ in range(config.layers))
        self.dropout = Dropout(config.dropout)
        self.head = Projection(config.dim, len(vocabulary), bias=True)
        self.init_weights()

    def forward(self, batch: Batch) -> Float[Tensor, "batch time both"]:
        """The vector of every word from the last layer of both directions."""
        return self.encode(batch).layers[-1]

    def directions(self, batch: Batch) -> tuple[Float[Tensor, "batch time dim"], Float[Tensor, "batch time dim"]]:
        """The hidden vectors of both language models: of what follows each position, and of what comes before it."""
        words = self.word_vectors(batch.tokens)
        there = self.read(self.forwards, words)[-1]
        back = self.read(self.backwards, reversed_rows(words, batch.lengths))[-1]
        return self.dropout(there), self.dropout(reversed_rows(back, batch.lengths))

    def encode(self, batch: Batch) -> Encoded:
        """The word vectors and the outputs of every layer, joined from both directions; texts are read after `<s>`."""
        begin = torch.full_like(batch.tokens[:, :1], self.vocabulary.bos)
        words, lengths = self.word_vectors(torch.cat((begin, batch.tokens), dim=1)), batch.lengths + 1
        there = self.read(self.forwards, words)
        back = [reversed_rows(x, lengths) for x in self.read(self.backwards, reversed_rows(words, lengths))]
        layers = [torch.cat(pair, dim=-1)[:, 1:] for pair in zip([words, *there], [words, *back], strict=True)]
        return Encoded(layers=layers, mask=batch.mask, pooled=masked_mean(layers[-1], batch.mask))

    def read(self, layers: nn.ModuleList, x: Float[Tensor, "rows time dim"]) -> list[Float[Tensor, "rows time dim"]]:
        """The outputs of every layer of a direction, which reads rows from their first position."""
        outputs: list[Tensor] = []
        for number, layer in enumerate(layers):
            after = layer(self.dropout(x))
            x = x + after if number and self.config.skip else after
            outputs.append(x)
        return outputs

    def word_vectors(self, tokens: Int[Tensor, "rows time"]) -> Float[Tensor, "rows time dim"]:
        """The vectors of words, computed from their characters."""
        x: Tensor = self.characters(tokens)
        for highway in self.highways:
            x = highway(x)
        vectors: Tensor = self.to_words(x)
        return vectors

    def shared_projection(self) -> Projection:
        """The linear layer before the softmax of both directions."""
        return self.head

    def encoder_dims(self) -> EncoderDims:
        """The sizes of what `encode` gives."""
        return EncoderDims(pooled=2 * self.config.dim, token=2 * self.config.dim, layers=self.config.layers + 1)

    def layer_groups(self) -> Sequence[Sequence[nn.Module]]:
        """What makes word vectors of characters, and the layers of both directions; the softmax is of the highest."""
        below = [self.characters, self.highways, self.to_words]
        *lower, last = zip(self.forwards, self.backwards, strict=True)
        return [below, *lower, [*last, self.head]]

    def token_lookups(self) -> list[nn.Module]:
        """The characters of words."""
        return [self.characters]

    def ids_of_oov(self, words: Sequence[str]) -> list[int]:
        """Input ids for out-of-vocabulary words; they are never predicted."""
        return self.characters.ids_of_oov(words)

    def keep_words(self, words: Sequence[str]) -> list[int]:
        """Input ids for out-of-vocabulary words that are never freed."""
        return self.characters.keep_words(words)

    def forget_oov(self, most: int | None = None) -> None:
        """Free the ids of out-of-vocabulary words if there are many."""
        self.characters.forget_oov(most)

    def init_weights(self) -> None:
        """Characters uniform in ±1, filters and linear layers by Xavier, the gates of the highways nearly closed."""
        self.characters.init_weights(1.0)
        for weight in self.characters.weights:
            nn.init.xavier_uniform_(weight)
        nn.init.zeros_(self.characters.bias)
        for highway in self.highways:
            assert isinstance(highway, Highway)
            highway.init_weights(self.characters.dim**-0.5)
        nn.init.xavier_uniform_(self.to_words.weight)
        nn.init.zeros_(self.to_words.bias)
        nn.init.normal_(self.head.weight, std=self.config.dim**-0.5)


def make_layer(config: Config) -> ProjectedLSTM:
    """One LSTM layer of a direction, with its projection if there is one."""
    if config.hidden_dim is None:
        return ProjectedLSTM(config.dim, config.dim)
    return ProjectedLSTM(config.dim, config.hidden_dim, config.dim)


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {
        "character_dim": 8, "filters": (8, 12, 12), "highways": 1, "dim": 16, "hidden_dim": 24, "dropout": 0.0,
    },
    "mini": {"filters": (16, 32, 48, 64), "highways": 1, "dim": 128, "hidden_dim": None},
    "small": {"filters": (32, 32, 64, 128, 256, 512), "highways": 1, "dim": 128, "hidden_dim": 1024},
    "medium": {"filters": (32, 32, 64, 128, 256, 512, 1024), "highways": 1, "dim": 256, "hidden_dim": 2048},
    "original": {},
}  # fmt: skip
"""Named shapes, as changes to the defaults; mini is for a CPU, the others are those that the authors published."""

Model = ELMo
