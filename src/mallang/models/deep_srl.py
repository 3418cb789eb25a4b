"""Deep SRL: semantic roles by a deep highway LSTM that reads the sentence to and fro, with a flag at the predicate.

Deep Semantic Role Labeling: What Works and What's Next. He, Lee, Lewis, Zettlemoyer 2017, ACL
(doi:10.18653/v1/P17-1044; no arXiv paper). As ELMo's baseline, the contextual vectors are concatenated to its input
(Peters et al. 2018, arXiv:1802.05365).

New against lstm_crf.py: a sentence is read once for each of its predicates, which has a flag. The layers take turns:
every second one reads backwards what the one below wrote, so that they are deep, with highway connections and one
dropout mask for all steps. The tags of a word depend on no other tag: what tags must keep, spans, core roles that occur
once, R- and C- roles, is left to the search (decoding/role_search.py).

    word, flag → LSTM → ← LSTM → LSTM → ← LSTM … → linear: a score per word and tag

Where this differs from the paper: words may be read from their characters too, where GloVe's vectors were given; the
loss of predicates is that of the same layers on the sentence without a flag, where the paper trains a second network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.layers.characters import check_characters
from mallang.layers.checks import check_sizes
from mallang.layers.embedding import Spellings
from mallang.layers.encoded import Encoded, EncoderDims
from mallang.layers.flagged_words import CharacterOptions, FlaggedWords, RoleScores, RoleSizes
from mallang.layers.highway_lstm import HighwayLSTM
from mallang.layers.pooling import first_of_words, masked_mean
from mallang.layers.words import Folds
from mallang.text.vocabulary import Vocabulary

__all__ = ["SIZES", "Config", "DeepSRL", "Model"]

TASK = "semantic_roles"


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of the model; the defaults are the paper's."""

    embedding_dim: int = 100
    """Size of the vector of a word itself."""
    fold_words: Folds = "case-and-digits"
    """Words that differ in nothing else share that vector; characters are read as they are."""
    character_dim: int = 30
    """Size of character embeddings."""
    character_features: int = 0
    """Size of the vector of a word from its characters; 0: they are not read, as in the paper."""
    jamo: bool = False
    """Spell Hangul in jamo, not in syllables."""
    longest_word: int = 30
    """The maximum number of characters of a word, the two marks around it included; longer words are cut."""
    flag_dim: int = 100
    """Size of the vector that says whether a word is the predicate."""
    dim: int = 300
    """Size of the hidden state."""
    layers: int = 8
    """LSTM layers; the first reads forward, the second backward, and so on."""
    dropout: float = 0.1
    """Variational dropout on the states of every layer."""

    def __post_init__(self) -> None:
        check_sizes(self, "embedding_dim", "character_dim", "flag_dim", "dim", "layers")
        check_characters(self.character_features, self.jamo)
        if self.longest_word < 3:
            raise ValueError(f"longest_word must be at least 3, a character and two marks, but is {self.longest_word}")


class DeepSRL(nn.Module):
    """Flagged words → highway LSTM layers in turn → tags; without sizes it is an encoder alone."""

    reads_source = False

    def __init__(self, config: Config, vocabulary: Vocabulary, sizes: RoleSizes | None = None) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        characters = CharacterOptions(config.character_dim, config.character_features, config.jamo, config.longest_word)
        features = 0 if sizes is None else sizes.features
        self.words = FlaggedWords(
            vocabulary, config.embedding_dim, config.flag_dim, config.fold_words, characters, features
        )
        inputs = [self.words.dim] + [config.dim] * (config.layers - 1)
        self.lstm = nn.ModuleList(
            HighwayLSTM(size, config.dim, config.dropout, backwards=number % 2 == 1)
            for number, size in enumerate(inputs)
        )
        self.to_roles = None if sizes is None else nn.Linear(config.dim, sizes.roles)
        self.to_predicate = None if sizes is None else nn.Linear(config.dim, 1)
        self.init_weights()

    def forward(self, batch: Batch) -> Float[Tensor, "batch time dim"]:
        """The vector of every token."""
        return self.encode(batch).layers[-1]

    def encode(self, batch: Batch, features: Float[Tensor, "batch words _"] | None = None) -> Encoded:
        """The vectors of every token after each layer; their mean is the vector of the text."""
        x, layers = self.words(batch, features), []
        for layer in self.lstm:
            x = layer(x, batch.lengths)
            layers.append(x)
        return Encoded(layers=layers, mask=batch.mask, pooled=masked_mean(x, batch.mask))

    def encoder_dims(self) -> EncoderDims:
        """The sizes of what `encode` gives."""
        return EncoderDims(pooled=self.config.dim, token=self.config.dim, layers=self.config.layers)

    def label(self, batch: Batch, features: Float[Tensor, "batch words _"] | None = None) -> RoleScores:
        """The scores of all words: of tags for the predicate that is asked for, and of being a predicate."""
        assert self.to_roles is not None and self.to_predicate is not None and batch.words is not None
        hidden = first_of_words(self.encode(batch, features).layers[-1], batch.words)
        return RoleScores(self.to_roles(hidden), self.to_predicate(hidden)[:, :, 0])

    def word_vectors(self, tokens: Int[Tensor, "rows time"]) -> Float[Tensor, "rows time _"]:
        """The vectors of words, without a flag."""
        return self.words.token_vectors(tokens)

    def shared_embedding(self) -> nn.Embedding:
        """The learned vectors of words, which those that differ in case or digits alone share."""
        return self.words.words.embedding

    def shared_spellings(self) -> Spellings:
        """How the word of every learned vector may be spelled."""
        return self.words.spellings()

    def token_lookups(self) -> list[nn.Module]:
        """The word vectors, with both of their parts."""
        return [self.words.words]

    def ids_of_oov(self, words: Sequence[str]) -> list[int]:
        """Input ids for out-of-vocabulary words: they are read from their characters."""
        return self.words.ids_of_oov(words)

    def forget_oov(self, most: int | None = None) -> None:
        """Free the ids of out-of-vocabulary words if there are many."""
        self.words.words.forget_oov(most)

    @property
    def hidden_from(self) -> int:
        """What is added to the id of a token to hide the word and leave its characters."""
        return self.words.words.hidden_from

    def init_weights(self) -> None:
        """Embeddings uniform with variance 1 / dim; layers initialize themselves; outputs by Xavier, zero biases."""
        self.words.init_weights()
        for output in (self.to_roles, self.to_predicate):
            if output is not None:
                nn.init.xavier_uniform_(output.weight)
                nn.init.zeros_(output.bias)


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"embedding_dim": 24, "flag_dim": 8, "dim": 24, "layers": 2, "dropout": 0.1},
    "small": {"embedding_dim": 50, "flag_dim": 16, "dim": 64, "layers": 4},
    "original": {},
}
"""Named shapes, as changes to the defaults."""

Model = DeepSRL
