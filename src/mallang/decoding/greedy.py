"""Greedy search: always the most probable next token; ties go to the lower id."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mallang.data.batch import Batch
from mallang.decoding.contract import Autoregressive, Config, Hypothesis, Rules, limits
from mallang.decoding.progress import Search
from mallang.decoding.ranking import hypothesis
from mallang.decoding.runner import run
from mallang.kernels.fused_argmax import fused_argmax, is_at_hand
from mallang.kernels.top_k import top_k
from mallang.text.vocabulary import Vocabulary


def search(model: Autoregressive, batch: Batch, config: Config, rules: Rules | None = None) -> list[list[Hypothesis]]:
    """The output that takes the most probable token at every step."""
    most = limits(batch, config, model)
    return run(model, batch, Walk.start(most, model.vocabulary, batch.tokens.device), config, rules) if most else []


@dataclass(frozen=True)
class Walk(Search):
    """Paths without backtracking, one per row; sampling differs from greedy search in `choose` alone."""

    labels: Int[Tensor, "sentences width limit"]
    """The generated tokens; `<pad>`, which is never generated, after the end."""
    token_scores: Float[Tensor, "sentences width limit"]
    ended: Bool[Tensor, "sentences width"]

    @staticmethod
    def start(most: list[int], vocabulary: Vocabulary, device: torch.device, width: int = 1) -> Walk:
        """Empty paths, `width` per sentence."""
        shape = len(most), width, max(most)
        return Walk(
            numbers=torch.arange(len(most), device=device),
            limit=torch.tensor(most, device=device),
            labels=torch.full(shape, vocabulary.pad, device=device),
            token_scores=torch.zeros(shape, device=device),
            ended=torch.zeros(shape[:2], dtype=torch.bool, device=device),
            stopped=torch.zeros(len(most), dtype=torch.bool, device=device),
        )

    @property
    def width(self) -> int:
        """The number of paths per sentence."""
        return self.labels.shape[1]

    @property
    def said(self) -> Int[Tensor, "rows limit"]:
        """The tokens that each path has generated."""
        return self.labels.flatten(0, 1)

    def grow(
        self, log_probs: Float[Tensor, "rows vocabulary"], said: Int[Tensor, ""], vocabulary: Vocabulary, config: Config
    ) -> tuple[Walk, Int[Tensor, " rows"], None]:
        """Extend every path by one token; an ended path runs until the host's next check, but is not recorded."""
        tokens = self.choose(log_probs, said, config)
        return self.record(tokens, log_probs.gather(1, tokens[:, None])[:, 0], said, vocabulary)

    def grow_from_logits(
        self, logits: Float[Tensor, "rows vocabulary"], said: Int[Tensor, ""], vocabulary: Vocabulary, config: Config
    ) -> tuple[Walk, Int[Tensor, " rows"], None] | None:
        """`grow` from logits by the fused argmax kernel of a GPU, without a table of log-probabilities."""
        if not is_at_hand(logits):
            return None
        never = vocabulary.pad, vocabulary.bos
        tokens, scores = fused_argmax(logits, said, never, vocabulary.eos, config.min_length)
        return self.record(tokens, scores, said, vocabulary)

    def record(
        self,
        tokens: Int[Tensor, " rows"],
        scores: Float[Tensor, " rows"],
        said: Int[Tensor, ""],
        vocabulary: Vocabulary,
    ) -> tuple[Walk, Int[Tensor, " rows"], None]:
        """Record the chosen tokens and their log-probabilities."""
        recorded = tokens.view_as(self.ended).masked_fill(self.ended, vocabulary.pad)
        ended = self.ended | (recorded == vocabulary.eos)
        walk = replace(
            self,
            labels=self.labels.index_copy(2, said[None], recorded[:, :, None]),
            token_scores=self.token_scores.index_copy(2, said[None], scores.view(*recorded.shape, 1)),
            ended=ended,
            stopped=self.stopped | ended.all(dim=1) | (self.limit <= said + 1),
        )
        return walk, tokens, None

    def choose(
        self, log_probs: Float[Tensor, "rows vocabulary"], said: Int[Tensor, ""], config: Config
    ) -> Int[Tensor, " rows"]:
        """The most probable token of each row."""
        return top_k(log_probs, 1)[1][:, 0]

    def outputs(self, vocabulary: Vocabulary, config: Config) -> dict[int, list[Hypothesis]]:
        """The paths of each sentence, up to its length limit."""
        found: dict[int, list[Hypothesis]] = {}
        columns = (self.numbers.tolist(), self.limit.tolist(), self.labels.tolist(), self.token_scores.tolist())
        for number, limit, labels, scores in zip(*columns, strict=True):
            if number >= 0:
                paths = zip(labels, scores, strict=True)
                found[number] = [hypothesis(said[:limit], each[:limit], vocabulary, config) for said, each in paths]
        return found
