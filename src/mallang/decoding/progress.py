"""One step of any search: greedy search, beam search and sampling differ only in how hypotheses grow.

    read    the model reads the tokens chosen last and says what may come next
    rule    what must not come next is struck out
    grow    the search chooses tokens, and which hypotheses they continue
    reorder the model's memory follows the hypotheses

One such step is a function from tensors to tensors of the same shapes that never looks at a value, so that a GPU can
replay it as one captured graph. Who runs the steps, and when the host looks at them, is the runner's affair.
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
    """The hypotheses of some sentences: tensors that have a row per sentence; every change makes a new one.

    A tensor of three axes has a hypothesis in the second and a token in the third.
    """

    numbers: Int[Tensor, " sentences"]
    """Each sentence's number in the whole batch; −1 for one that only fills a place."""
    limit: Int[Tensor, " sentences"]
    """The most tokens it may say."""
    stopped: Bool[Tensor, " sentences"]
    """Whose search is over. It may go on for a while, until someone looks, but nothing is heard of it."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Hypotheses of each sentence."""

    @property
    @abstractmethod
    def said(self) -> Int[Tensor, "rows limit"]:
        """What each open hypothesis has said; `<pad>` after it."""

    @abstractmethod
    def grow(
        self, log_probs: Float[Tensor, "rows vocabulary"], said: Int[Tensor, ""], vocabulary: Vocabulary, config: Config
    ) -> tuple[Search, Int[Tensor, " rows"], Int[Tensor, " rows"] | None]:
        """One token further: the hypotheses, the tokens they end with, and which row each continues from (none: its
        own).

        `said` tokens were said before this one.
        """

    def grow_at_once(
        self, logits: Float[Tensor, "rows vocabulary"], said: Int[Tensor, ""], vocabulary: Vocabulary, config: Config
    ) -> tuple[Search, Int[Tensor, " rows"], Int[Tensor, " rows"] | None] | None:
        """The same from logits, where no rules hold and a kernel does without log-probabilities; none: it cannot."""
        return None

    @abstractmethod
    def outputs(self, vocabulary: Vocabulary, config: Config) -> dict[int, list[Hypothesis]]:
        """What was found for each sentence, by its number."""

    def keep(self, sentences: Int[Tensor, " kept"]) -> Search:
        """These sentences only, in this order."""
        kept: Search = map_nest(self, lambda tensor: tensor.index_select(0, sentences))
        return kept


@dataclass(frozen=True)
class Progress:
    """What was found so far, what the model remembers of it, and what it reads next."""

    search: Search
    state: State
    tokens: Int[Tensor, " rows"]
    said: Int[Tensor, ""]
    """How many tokens were said: a tensor, so that a captured graph can count."""
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
        """Read the source and `<s>`, once per sentence, and choose the first tokens; `room` reserves memory."""
        tokens = torch.full((len(batch), 1), model.vocabulary.bos, device=batch.tokens.device)
        logits, state = model.step(tokens, model.start(batch))
        state = state.widen(search.width) if room is None else state.reserve(room.steps, search.width, room.align)
        log_probs = normalize(logits[:, -1], model.vocabulary).repeat_interleave(search.width, dim=0)
        nothing = torch.zeros((), dtype=torch.long, device=tokens.device)
        first = Progress(search, state, tokens[:, 0].repeat_interleave(search.width), nothing, rules)
        return first.choose(log_probs, model.vocabulary, config)

    def advance(self, model: Autoregressive, config: Config) -> Progress:
        """One step."""
        logits, state = model.step(self.tokens[:, None], self.state)
        after, words = replace(self, state=state), model.vocabulary
        if self.rules is None and (grown := self.search.grow_at_once(logits[:, -1], self.said, words, config)):
            return after.move(*grown)
        return after.choose(normalize(logits[:, -1], words), words, config)

    def choose(self, log_probs: Float[Tensor, "rows vocabulary"], vocabulary: Vocabulary, config: Config) -> Progress:
        """Strike out what must not follow, and grow."""
        if config.min_length > 1:
            log_probs[:, vocabulary.eos].masked_fill_(self.said + 1 < config.min_length, -torch.inf)
        if self.rules is not None:
            log_probs = self.rules.apply(log_probs, self.search.said, self.said)
        return self.move(*self.search.grow(log_probs, self.said, vocabulary, config))

    def move(self, search: Search, tokens: Int[Tensor, " rows"], rows: Int[Tensor, " rows"] | None) -> Progress:
        """Go on with these hypotheses, which continue those of `rows`: the memory follows."""
        state = self.state if rows is None else self.state.select(rows)
        return Progress(search, state, tokens, self.said + 1, self.rules)

    def keep(self, sentences: Int[Tensor, " kept"]) -> Progress:
        """Go on with these sentences only."""
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
    """How much memory to reserve: for how many steps, in slots of which multiple."""

    steps: int
    align: int = 1
