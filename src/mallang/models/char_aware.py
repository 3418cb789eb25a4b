"""A language model that reads characters and predicts words, so that words with similar spelling have similar vectors.

Character-Aware Neural Language Models. Kim, Jernite, Sontag, Rush 2016, arXiv:1508.06615.

New against the recurrent model, rnn_lm: there is no input embedding table of words. The vector of a word is computed
from its characters by convolutions and highway layers, so that *looked* and *looking*, or 먹었다 and 먹었고, are
similar even if they are rare, and the model is smaller by that table. An out-of-vocabulary word is read in the same
way; only the output vocabulary is closed, with one logit per word, and such a word is `<unk>` there.

    words → characters → vectors → convolutions of widths 1 … w → max-pooling of each filter → highway layers
                                                                        ↓
                                              logits ← LSTM layers ←  word

Where this differs from the paper: filters cover windows inside the word only, including the marks of its start and
end, so that the padding of words has no effect. `jamo` spells Hangul in consonants and vowels; otherwise a syllable is
a character. As in the paper, dropout is between the LSTM layers and before the output, not on the word vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.layers.cache import State
from mallang.layers.characters import Characters, Highway
from mallang.layers.checks import check_sizes
from mallang.layers.dropout import Dropout
from mallang.layers.head import Projection
from mallang.layers.recurrent import Memory, Recurrent
from mallang.layers.stateful import StatefulOutput
from mallang.text.vocabulary import Vocabulary

__all__ = ["SIZES", "CharAware", "Config", "Model"]

TASK = "language_modeling"


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of the model; the defaults are the paper's small one."""

    character_dim: int = 15
    """Size of character embeddings."""
    filters: tuple[int, ...] = (25, 50, 75, 100, 125, 150)
    """Number of filters of width 1, of width 2, and so on."""
    highways: int = 1
    """Highway layers between the filters and the LSTM."""
    layers: int = 2
    """LSTM layers."""
    dim: int = 300
    """Size of the hidden state of each layer."""
    dropout: float = 0.5
    """Dropout between layers and from the hidden vectors."""
    jamo: bool = False
    """Spell Hangul in jamo, not in syllables."""
    longest_word: int = 65
    """The maximum number of characters of a word, the two marks around it included; longer words are cut."""
    init: float = 0.05
    """Uniform initialization of all weights in ±init; the gate biases of the highways start at −2."""

    def __post_init__(self) -> None:
        check_sizes(self, "character_dim", "layers", "dim")
        if self.highways < 0:
            raise ValueError(f"highways must not be negative, but is {self.highways}")
        if min(self.filters, default=0) < 0 or not sum(self.filters):
            raise ValueError(f"filters must be one number per width, some above 0, but are {list(self.filters)}")
        if self.longest_word < 3:
            raise ValueError(f"longest_word must be at least 3, a character and two marks, but is {self.longest_word}")
        if self.init <= 0:
            raise ValueError(f"init must be above 0, but is {self.init}")


class CharAware(nn.Module):
    """Convolutions over characters, highway layers, and an LSTM over words."""

    reads_source = False

    def __init__(self, config: Config, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        self.characters = Characters(
            vocabulary, config.character_dim, config.filters, longest=config.longest_word, jamo=config.jamo
        )
        self.highways = nn.ModuleList(Highway(self.characters.dim) for _ in range(config.highways))
        self.lstm = Recurrent("lstm", self.characters.dim, config.dim, config.layers, config.dropout)
        self.dropout = Dropout(config.dropout)
        self.head = Projection(config.dim, len(vocabulary), bias=True)
        self.init_weights()

    def forward(self, batch: Batch) -> Float[Tensor, "batch time dim"]:
        """The hidden vector of every position, from which its next token is predicted."""
        return self.read(batch.tokens, None)[0]

    def forward_stateful(self, batch: Batch, carry: Memory | None) -> StatefulOutput:
        """Hidden vectors of a window that continues from `carry`, or starts from zeros; and the state after it."""
        hidden, memory = self.read(batch.tokens, carry)
        return StatefulOutput(hidden, memory.detach())

    def read(
        self, tokens: Int[Tensor, "rows time"], memory: Memory | None
    ) -> tuple[Float[Tensor, "rows time dim"], Memory]:
        """The hidden vector after each of these tokens, and the state after the last."""
        states, memory = self.lstm(self.word_vectors(tokens), memory)
        return self.dropout(states), memory

    def word_vectors(self, tokens: Int[Tensor, "rows time"]) -> Float[Tensor, "rows time filters"]:
        """The vectors of words, computed from their characters and passed through the highway layers."""
        x: Tensor = self.characters(tokens)
        for highway in self.highways:
            x = highway(x)
        return x

    def ids_of_oov(self, words: Sequence[str]) -> list[int]:
        """Input ids for out-of-vocabulary words; they are never predicted."""
        return self.characters.ids_of_oov(words)

    def forget_oov(self, most: int | None = None) -> None:
        """Free the ids of out-of-vocabulary words if there are many."""
        self.characters.forget_oov(most)

    def output(self, hidden: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch words"]:
        """One logit per word of the vocabulary."""
        logits: Tensor = self.head(hidden)
        return logits

    def output_projection(self) -> Projection:
        """The linear layer that `output` applies."""
        return self.head

    def start(self, batch: Batch) -> State:
        """The initial state: zeros."""
        return State(fixed=None, moving=self.lstm.nothing(self.head.weight.new_zeros(len(batch), 1, 1)))

    def step(self, tokens: Int[Tensor, "rows time"], state: State) -> tuple[Float[Tensor, "rows time words"], State]:
        """The logits after each of these tokens, which follow those of earlier steps."""
        hidden, memory = self.read(tokens, state.moving)
        return self.output(hidden), State(None, memory)

    def init_weights(self) -> None:
        """As in the paper: all weights uniform in ±init, the gates of the highways nearly closed."""
        spread = self.config.init
        for weight in self.parameters():
            nn.init.uniform_(weight, -spread, spread)
        self.characters.init_weights(spread)
        for part in self.modules():
            if isinstance(part, Highway):
                part.init_weights(spread)


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"character_dim": 8, "filters": (8, 12, 12), "layers": 1, "dim": 32, "dropout": 0.1, "init": 0.2},
    "small": {},
    "large": {"filters": (50, 100, 150, 200, 200, 200, 200), "highways": 2, "dim": 650},
}
"""Named shapes, as changes to the defaults; small and large are the paper's."""

Model = CharAware
