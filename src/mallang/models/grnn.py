"""GRNN: sentences by a CNN or an LSTM, documents by a gated recurrent network over them.

Document Modeling with Gated Recurrent Neural Network for Sentiment Classification. Tang, Qin and Liu, EMNLP 2015,
doi:10.18653/v1/D15-1167. They are the models Conv-GRNN and LSTM-GRNN that HAN is compared with.

New against `cnn` and `rnn_classifier`: a level of sentences. `han` adds attention, and reads in both directions.

    tokens → embedding → sentence encoder → vectors of sentences → GRU → mean over the sentences

    lstm   the last state of an LSTM over the words
    cnn    filters over one, two and three words; mean over time, tanh; the mean of the three widths

Differences: the document network is the GRU of torch with its candidate bias fixed at zero (layers/recurrent.py), where
the paper's cell has an input and a forget gate; embeddings start small and random, not from word vectors that were
trained on the reviews.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mallang.data.batch import Batch, lengths_to_mask
from mallang.layers.checks import check_sizes
from mallang.layers.convolution import Convolution
from mallang.layers.documents import gather_sentences
from mallang.layers.dropout import Dropout
from mallang.layers.encoded import Encoded, EncoderDims
from mallang.layers.initialization import xavier
from mallang.layers.pooling import masked_mean
from mallang.layers.recurrent import Reader
from mallang.text.vocabulary import Vocabulary

__all__ = ["GRNN", "SIZES", "Config", "Model"]

TASK = "classification"
WIDTHS = (1, 2, 3)
"""Words that the filters of the CNN cover."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of a document network; the defaults are those of the paper where it names them."""

    sentence_encoder: Literal["lstm", "cnn"] = "lstm"
    """How the words of a sentence become one vector: LSTM-GRNN or Conv-GRNN."""
    embedding_dim: int = 200
    """Size of a word vector."""
    dim: int = 50
    """Size of the vector of a sentence, and of the state over sentences."""
    dropout: float = 0.0
    """Dropout on the vectors of words and on those of sentences."""

    def __post_init__(self) -> None:
        check_sizes(self, "embedding_dim", "dim")


class GRNN(nn.Module):
    """Tokens → vectors of sentences → one vector per document."""

    reads_source = False
    reads_sentences = True

    def __init__(self, config: Config, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        self.embedding = nn.Embedding(len(vocabulary), config.embedding_dim)
        self.dropout = Dropout(config.dropout)
        make = LastState if config.sentence_encoder == "lstm" else AveragedFilters
        self.sentence_encoder = make(config.embedding_dim, config.dim)
        self.document_reader = Reader("gru", config.dim, config.dim)
        self.init_weights()

    def forward(self, batch: Batch) -> Float[Tensor, "examples pooled"]:
        """The vector of every document."""
        return self.encode(batch).pooled

    def encode(self, batch: Batch) -> Encoded:
        """The vectors of the words in their sentences, and one vector per document."""
        words = self.dropout(self.embedding(batch.tokens)) * batch.mask[:, :, None]
        states, sentences = self.sentence_encoder(words, batch.lengths)
        vectors, counts = gather_sentences(sentences, batch)
        documents, _ = self.document_reader(self.dropout(vectors), counts)
        pooled = masked_mean(documents, lengths_to_mask(counts, documents.shape[1]))
        return Encoded(layers=[states], mask=batch.mask, pooled=pooled)

    def encoder_dims(self) -> EncoderDims:
        """The sizes of what `encode` gives."""
        return EncoderDims(pooled=self.config.dim, token=self.config.dim)

    def input_embedding(self) -> nn.Embedding:
        """The word vectors."""
        return self.embedding

    def init_weights(self) -> None:
        """Xavier for the filters, small normal word vectors; recurrent.py initializes LSTM and GRU."""
        xavier(self)
        nn.init.normal_(self.embedding.weight, std=0.1)


class LastState(nn.Module):
    """The sentence as the last state of an LSTM."""

    def __init__(self, input_dim: int, dim: int) -> None:
        super().__init__()
        self.reader = Reader("lstm", input_dim, dim)

    def forward(
        self, words: Float[Tensor, "batch time inputs"], lengths: Int[Tensor, " batch"]
    ) -> tuple[Float[Tensor, "batch time dim"], Float[Tensor, "batch dim"]]:
        """The states at the words, and the vector of each sentence."""
        states, memory = self.reader(words, lengths)
        return states, memory.hidden[:, -1]


class AveragedFilters(nn.Module):
    """The sentence as the mean of its unigrams, bigrams and trigrams, each a tanh of a mean over time."""

    def __init__(self, input_dim: int, dim: int) -> None:
        super().__init__()
        self.filters = nn.ModuleList(Convolution(input_dim, width, output_dim=dim) for width in WIDTHS)

    def forward(
        self, words: Float[Tensor, "batch time inputs"], lengths: Int[Tensor, " batch"]
    ) -> tuple[Float[Tensor, "batch time dim"], Float[Tensor, "batch dim"]]:
        """The mean response of the filters at the words, and the vector of each sentence."""
        maps = [filter(words) for filter in self.filters]
        means = [
            torch.tanh(masked_mean(each, whole_windows(lengths, width, words.shape[1])))
            for each, width in zip(maps, WIDTHS, strict=True)
        ]
        return torch.stack(maps).mean(dim=0), torch.stack(means).mean(dim=0)


def whole_windows(lengths: Int[Tensor, " batch"], width: int, time: int) -> Bool[Tensor, "batch time"]:
    """Where the window of a filter lies inside the sentence; in a shorter sentence the window at its first word.

    A window of width w at position i covers i − (w − 1) // 2 … i + w // 2.
    """
    places = torch.arange(time, device=lengths.device)
    left = (width - 1) // 2
    inside = (places >= left) & (places < (lengths - width // 2)[:, None])
    short = (lengths < width)[:, None]
    return torch.where(short, places == 0, inside)


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"embedding_dim": 16, "dim": 12},
    "small": {"embedding_dim": 100, "dim": 64},
    "base": {},
}
"""Named shapes, as changes to the defaults."""

Model = GRNN
