"""One step of any search: greedy search, beam search and sampling differ only in how hypotheses grow.

    read    the model reads the last tokens and predicts the next ones
    rule    constraints mask the tokens that must not come next
    grow    the search chooses tokens, and the hypotheses that they continue
    reorder the KV cache follows the hypotheses

A step is a function from tensors to tensors of the same shapes that never branches on a value, so that a GPU can replay
it as one captured CUDA graph. The runner decides how steps run, and when the host reads their results.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mallang.data.batch import Batch
from mallang.decoding.contract import Autoregressive, Config, Hypothesis, Rules, normalize
from mallang.layers.cache import State, map_nest
from mallang.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class Search(ABC):
    """The hypotheses of some sentences, as an immutable set of tensors with one row per sentence.

    The axes of a three-dimensional tensor are sentences, hypotheses and tokens.
    """

    numbers: Int[Tensor, " sentences"]
    """The index of each sentence in the whole batch; −1 for padding."""
    limit: Int[Tensor, " sentences"]
    """The maximum output length of each sentence."""
    stopped: Bool[Tensor, " sentences"]
    """Whether the search of a sentence is over. Its steps continue until the host's next check, without effect."""

    @property
    @abstractmethod
    def width(self) -> int:
        """The number of hypotheses per sentence."""

    @property
    @abstractmethod
    def said(self) -> Int[Tensor, "rows limit"]:
        """The tokens that each open hypothesis has generated, followed by `<pad>`."""

    @abstractmethod
    def grow(
        self, log_probs: Float[Tensor, "rows vocabulary"], said: Int[Tensor, ""], vocabulary: Vocabulary, config: Config
    ) -> tuple[Search, Int[Tensor, " rows"], Int[Tensor, " rows"] | None]:
        """Extend by one token: the new hypotheses, their last tokens, and the rows that they continue (None: the same
        rows).

        `said` tokens were generated before this one.
        """

    def grow_from_logits(
        self, logits: Float[Tensor, "rows vocabulary"], said: Int[Tensor, ""], vocabulary: Vocabulary, config: Config
    ) -> tuple[Search, Int[Tensor, " rows"], Int[Tensor, " rows"] | None] | None:
        """`grow` from logits by a fused kernel, where no constraint applies; None where there is no such kernel."""
        return None

    @abstractmethod
    def outputs(self, vocabulary: Vocabulary, config: Config) -> dict[int, list[Hypothesis]]:
        """The outputs of each sentence, by its index in the batch."""

    def keep(self, sentences: Int[Tensor, " kept"]) -> Search:
        """These sentences only, in this order."""
        kept: Search = map_nest(self, lambda tensor: tensor.index_select(0, sentences))
        return kept


@dataclass(frozen=True)
class Progress:
    """A search in progress: the hypotheses, the model's state, and the tokens that it reads next."""

    search: Search
    state: State
    tokens: Int[Tensor, " rows"]
    said: Int[Tensor, ""]
    """The number of generated tokens: a tensor, so that a captured graph can increment it."""
    rules: Rules | None = None

    @staticmethod
    def begin(
        model: Autoregressive,
        batch: Batch,
        search: Search,
        config: Config,
        rules: Rules | None,
        room: CacheCapacity | None = None,
    ) -> Progress:
        """Read the source and `<s>`, once per sentence, and choose the first tokens; `room`: use a static KV cache."""
        tokens = torch.full((len(batch), 1), model.vocabulary.bos, device=batch.tokens.device)
        logits, state = model.step(tokens, model.start(batch))
        state = state.widen(search.width) if room is None else state.reserve(room.steps, search.width, room.align)
        log_probs = normalize(logits[:, -1], model.vocabulary).repeat_interleave(search.width, dim=0)
        nothing = torch.zeros((), dtype=torch.long, device=tokens.device)
        first = Progress(search, state, tokens[:, 0].repeat_interleave(search.width), nothing, rules)
        return first.choose(log_probs, model.vocabulary, config)

    def advance(self, model: Autoregressive, config: Config) -> Progress:
        """One decode step."""
        logits, state = model.step(self.tokens[:, None], self.state)
        after, words = replace(self, state=state), model.vocabulary
        if self.rules is None and (grown := self.search.grow_from_logits(logits[:, -1], self.said, words, config)):
            return after.move(*grown)
        return after.choose(normalize(logits[:, -1], words), words, config)

    def choose(self, log_probs: Float[Tensor, "rows vocabulary"], vocabulary: Vocabulary, config: Config) -> Progress:
        """Mask the tokens that must not follow, and grow."""
        if config.min_length > 1:
            log_probs[:, vocabulary.eos].masked_fill_(self.said + 1 < config.min_length, -torch.inf)
        if self.rules is not None:
            log_probs = self.rules.apply(log_probs, self.search.said, self.said)
        return self.move(*self.search.grow(log_probs, self.said, vocabulary, config))

    def move(self, search: Search, tokens: Int[Tensor, " rows"], rows: Int[Tensor, " rows"] | None) -> Progress:
        """Continue with these hypotheses, which extend those of `rows`; the KV cache is reordered accordingly."""
        state = self.state if rows is None else self.state.select(rows)
        return Progress(search, state, tokens, self.said + 1, self.rules)

    def keep(self, sentences: Int[Tensor, " kept"]) -> Progress:
        """Keep these sentences only."""
        width = self.search.width
        rows = (sentences[:, None] * width + torch.arange(width, device=sentences.device)).flatten()
        return Progress(
            search=self.search.keep(sentences),
            state=self.state.keep(sentences, rows),
            tokens=self.tokens[rows],
            said=self.said,
            rules=None if self.rules is None else self.rules.keep(sentences),
        )


@dataclass(frozen=True)
class CacheCapacity:
    """The capacity of a static KV cache: the number of steps, and the multiple that its slots are padded to."""

    steps: int
    align: int = 1
