"""End-to-end coreference: which spans of a text are mentions, and which of them mean the same.

End-to-end Neural Coreference Resolution. Lee, He, Lewis and Zettlemoyer 2017, arXiv:1707.07045.

New against systems before it: no parser and no detector of mentions comes first. Every span of words up to a width is a
candidate; a score of being a mention and a score of every earlier span as its antecedent are learned together, from
clusters alone. New against lstm_crf, whose word vectors it has: what is scored are spans, not words.

    word, characters → x_t → BiLSTM over its sentence → x*_t
    span i:  α_t = FFNN_α(x*_t),  x̂_i = Σ softmax(α)_t x_t          the head word, found by attention
             g_i = [x*_start; x*_end; x̂_i; φ(width)]
             s_m(i) = FFNN_m(g_i)                                     is it a mention?
    the best λT spans that do not cross stay, in the order of the text
             s_a(i, j) = FFNN_a([g_i; g_j; g_i∘g_j; φ(distance)])
             s(i, j) = s_m(i) + s_m(j) + s_a(i, j),  s(i, ε) = 0      j: a span before i, or ε: none

A first layer over concatenated vectors is the sum of a layer over each, so the vectors of words go through it before
they are put together to spans: g is made for the spans that stay, and for no others.

Where this differs from the paper: word vectors are learned, not GloVe and Turian's; there are no features of speaker
and genre, and one model instead of five. Vectors of another encoder may stand beside the word vectors (as in ELMo,
Peters et al. 2018, where the BiLSTM reads them too).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.layers.characters import Characters
from mallang.layers.checks import check_sizes
from mallang.layers.dropout import Dropout
from mallang.layers.embedding import Spellings
from mallang.layers.recurrent import BidirectionalReader
from mallang.layers.spans import (
    DISTANCES,
    Scorer,
    SpanScores,
    at,
    distance_bucket,
    grid_of,
    previous,
    prune,
    span_attention,
    windows,
)
from mallang.layers.spelling import NOTHING
from mallang.layers.words import Folds, WordVectors
from mallang.text.vocabulary import Vocabulary

__all__ = ["SIZES", "Config", "E2ECoref", "Model"]

TASK = "coreference"
WIDTHS = 3
"""Widths of the character filters: 3, 4 and 5."""
LONGEST_WORD = 30
"""The maximum number of characters of a word, the two marks around it included; longer words are cut."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of the model; the defaults are those of the paper, but for the word vectors, which are smaller."""

    embedding_dim: int = 100
    """Size of the vector of a word itself."""
    fold_words: Folds = "case-and-digits"
    """Words that differ in nothing else share that vector; characters are read as they are."""
    character_dim: int = 8
    """Size of character embeddings."""
    character_features: int = 150
    """Size of the vector of a word from its characters, a third of it for each width of filters."""
    jamo: bool = False
    """Spell Hangul in jamo, not in syllables."""
    dim: int = 200
    """Size of the LSTM's state in each direction."""
    layers: int = 1
    """Bidirectional layers."""
    width: int = 10
    """Maximum number of words of a span."""
    feature_dim: int = 20
    """Size of the embeddings of widths and distances."""
    hidden_dim: int = 150
    """Size of the hidden layers of the feed-forward networks."""
    hidden_layers: int = 2
    """Hidden layers of each of them."""
    span_ratio: float = 0.4
    """λ: spans that stay, for each word of a document."""
    antecedents: int = 250
    """Maximum number of spans before a span that it may refer to, the nearest ones."""
    dropout: float = 0.5
    """Dropout on word vectors."""
    hidden_dropout: float = 0.2
    """Dropout on the output of the LSTM and on hidden layers."""

    def __post_init__(self) -> None:
        sizes = "embedding_dim", "character_dim", "dim", "layers", "width", "feature_dim", "hidden_dim", "hidden_layers"
        check_sizes(self, *sizes, "antecedents", dropouts=("dropout", "hidden_dropout"))
        if self.character_features < WIDTHS:
            raise ValueError(f"character_features must be at least {WIDTHS}, but is {self.character_features}")
        if not 0.0 < self.span_ratio <= 1.0:
            raise ValueError(f"span_ratio must be above 0 and at most 1, but is {self.span_ratio}")


class E2ECoref(nn.Module):
    """Words and characters → BiLSTM → spans → mentions and their antecedents."""

    reads_source = False

    def __init__(self, config: Config, vocabulary: Vocabulary, given_dim: int = 0) -> None:
        """`given_dim` is the size of the vectors of another encoder beside those of words."""
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        each = config.character_features // WIDTHS
        filters = (0, 0, each, each, config.character_features - 2 * each)
        spelling = Characters(vocabulary, config.character_dim, filters, LONGEST_WORD, config.jamo)
        self.words = WordVectors(vocabulary, config.embedding_dim, spelling, folds=config.fold_words)
        inputs, both = config.embedding_dim + config.character_features + given_dim, 2 * config.dim
        self.input_dropout = Dropout(config.dropout)
        self.lstm = BidirectionalReader("lstm", inputs, config.dim, config.layers, config.hidden_dropout)
        self.dropout = Dropout(config.hidden_dropout)
        self.mention = MentionScorer(config, inputs, both)
        self.antecedent = AntecedentScorer(config, inputs + 2 * both + config.feature_dim)
        self.init_weights()

    def forward(self, batch: Batch) -> Float[Tensor, "batch time both"]:
        """The vector of every word, x*."""
        return self.read(self.word_vectors(batch.tokens), batch.lengths)

    def read(self, words: Float[Tensor, "rows time inputs"], lengths: Int[Tensor, " rows"]) -> Tensor:
        """Word vectors in their sentences: x* of x."""
        outputs: Tensor = self.dropout(self.lstm(self.input_dropout(words), lengths)[0])
        return outputs

    def span_scores(self, batch: Batch, words: Float[Tensor, "batch time inputs"]) -> SpanScores:
        """The mentions of documents and their antecedents; `words` are word vectors, with given ones beside them."""
        assert batch.document_words is not None and batch.document_sentences is not None, "these are no documents"
        rows, places = batch.document_words.clamp(min=0).unbind(dim=2)
        both = (each.flatten(0, 1) for each in (words, self.read(words, batch.lengths)))
        x, read = (F.embedding(rows * words.shape[1] + places, each) for each in both)
        is_span = grid_of(batch.document_sentences, self.config.width)
        mentions, attention = self.mention(x, read, is_span)
        mentions = mentions.float().masked_fill(~is_span, torch.finfo(torch.float32).min)
        words_of = (batch.document_sentences >= 0).sum(dim=1)
        spans, is_kept = prune(mentions.detach(), is_span, self.limit(words_of), int(self.limit(is_span.shape[1])))
        starts, widths = spans[:, :, 0], spans[:, :, 1] - spans[:, :, 0]
        grid = starts * self.config.width + widths
        heads = self.heads(x, starts, at(attention.flatten(1, 2), grid))
        size = self.mention.width(widths).to(heads.dtype)
        vectors = torch.cat((at(read, starts), at(read, spans[:, :, 1]), heads, size), dim=-1)
        chosen = at(mentions.flatten(1)[:, :, None], grid)[:, :, 0]
        return SpanScores(mentions, is_span, spans, is_kept, self.antecedent(vectors, chosen, is_kept))

    def limit(self, words: Any) -> Any:
        """How many spans of a document of so many words stay: λT, at least one."""
        if isinstance(words, int):
            return max(1, int(self.config.span_ratio * words))
        return (self.config.span_ratio * words.double()).long().clamp(min=1)

    def heads(
        self,
        words: Float[Tensor, "documents text inputs"],
        starts: Int[Tensor, "documents kept"],
        weights: Float[Tensor, "documents kept width"],
    ) -> Float[Tensor, "documents kept inputs"]:
        """The head word x̂ of every span: the mean of its words by their weights."""
        offsets = torch.arange(weights.shape[2], device=words.device)
        inside = (starts[:, :, None] + offsets).clamp(max=words.shape[1] - 1)
        return (weights[:, :, None].to(words.dtype) @ at(words, inside))[:, :, 0]

    def word_vectors(self, tokens: Int[Tensor, "rows time"]) -> Float[Tensor, "rows time inputs"]:
        """The vectors of words from both of their parts."""
        vectors: Tensor = self.words(tokens)
        return vectors

    def shared_embedding(self) -> nn.Embedding:
        """The learned vectors of words, which those that differ in case or digits alone share."""
        return self.words.embedding

    def shared_spellings(self) -> Spellings:
        """How the word of every learned vector may be spelled."""
        return self.words.spellings()

    def token_lookups(self) -> list[nn.Module]:
        """The word vectors, with both of their parts."""
        return [self.words]

    def ids_of_oov(self, words: Sequence[str]) -> list[int]:
        """Input ids for out-of-vocabulary words: they are read from their characters."""
        return self.words.ids_of_oov(words)

    def forget_oov(self, most: int | None = None) -> None:
        """Free the ids of out-of-vocabulary words if there are many."""
        self.words.forget_oov(most)

    @property
    def hidden_from(self) -> int:
        """What is added to the id of a token to hide the word and leave its characters."""
        return self.words.hidden_from

    def init_weights(self) -> None:
        """Embeddings uniform with variance 1 / dim, as in lstm_crf; Xavier for matrices, zero biases."""
        for part in self.modules():
            if isinstance(part, nn.Embedding):
                spread = (3 / part.embedding_dim) ** 0.5
                nn.init.uniform_(part.weight, -spread, spread)
            elif isinstance(part, nn.Linear):
                nn.init.xavier_uniform_(part.weight)
                if part.bias is not None:
                    nn.init.zeros_(part.bias)
        assert isinstance(self.words.spelling, Characters)
        nn.init.zeros_(self.words.spelling.letters.weight.detach()[NOTHING])
        for weight in self.words.spelling.weights:
            nn.init.xavier_uniform_(weight)


class MentionScorer(nn.Module):
    """The score s_m of every span of the grid, and the attention of its words that makes its head word."""

    def __init__(self, config: Config, inputs: int, both: int) -> None:
        super().__init__()
        hidden = config.hidden_dim
        self.attention_input = nn.Linear(both, hidden)
        self.attention = Scorer(hidden, config.hidden_layers, config.hidden_dropout)  # FFNN_α
        self.width = nn.Embedding(config.width, config.feature_dim)
        self.from_start = nn.Linear(both, hidden)
        self.from_end = nn.Linear(both, hidden, bias=False)
        self.from_head = nn.Linear(inputs, hidden, bias=False)
        self.from_width = nn.Linear(config.feature_dim, hidden, bias=False)
        self.scorer = Scorer(hidden, config.hidden_layers, config.hidden_dropout)  # FFNN_m

    def forward(
        self,
        words: Float[Tensor, "documents text inputs"],
        read: Float[Tensor, "documents text both"],
        is_span: Bool[Tensor, "documents text width"],
    ) -> tuple[Float[Tensor, "documents text width"], Float[Tensor, "documents text width width"]]:
        """The score of every span, and the weights of its words in its head word."""
        width = is_span.shape[2]
        attention = span_attention(self.attention(self.attention_input(read)).float(), is_span)
        heads = attention.to(words.dtype) @ windows(self.from_head(words), width)
        first = self.from_start(read)[:, :, None] + windows(self.from_end(read), width) + heads
        return self.scorer(first + self.from_width(self.width.weight)), attention


class AntecedentScorer(nn.Module):
    """The scores s(i, j) of the spans before each span as its antecedents, and 0 for having none."""

    def __init__(self, config: Config, dim: int) -> None:
        super().__init__()
        self.most, hidden = config.antecedents, config.hidden_dim
        self.distance = nn.Embedding(DISTANCES, config.feature_dim)
        self.from_span = nn.Linear(dim, hidden)
        self.from_other = nn.Linear(dim, hidden, bias=False)
        self.from_both = nn.Linear(dim, hidden, bias=False)
        self.from_distance = nn.Linear(config.feature_dim, hidden, bias=False)
        self.scorer = Scorer(hidden, config.hidden_layers, config.hidden_dropout)  # FFNN_a

    def forward(
        self,
        spans: Float[Tensor, "documents kept dim"],
        mentions: Float[Tensor, "documents kept"],
        is_kept: Bool[Tensor, "documents kept"],
    ) -> Float[Tensor, "documents kept choices"]:
        """The score of no antecedent, then of the spans before, the nearest first."""
        most = min(self.most, max(1, spans.shape[1] - 1))
        distances = torch.arange(1, most + 1, device=spans.device)
        similar = self.from_both(spans[:, :, None] * previous(spans, most))
        first = self.from_span(spans)[:, :, None] + previous(self.from_other(spans), most) + similar
        apart = self.from_distance(self.distance(distance_bucket(distances)))
        others = previous(torch.stack((mentions, is_kept.to(mentions.dtype)), dim=2), most)
        scores = self.scorer(first + apart).float() + mentions[:, :, None] + others[..., 0]
        exists = (others[..., 1] > 0) & is_kept[:, :, None]
        scores = scores.masked_fill(~exists, torch.finfo(scores.dtype).min)
        return torch.cat((torch.zeros_like(scores[:, :, :1]), scores), dim=2)


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {
        "embedding_dim": 16, "character_features": 12, "dim": 16, "width": 4, "feature_dim": 8, "hidden_dim": 24,
        "antecedents": 20, "dropout": 0.1, "hidden_dropout": 0.1,
    },
    "small": {"embedding_dim": 50, "character_features": 48, "dim": 64, "hidden_dim": 64, "antecedents": 50},
    "base": {},
}  # fmt: skip
"""Named shapes, as changes to the defaults."""

Model = E2ECoref
