"""Sampling: draw each next token at random, with temperature, top-k and top-p.

The probabilities are first sharpened or flattened by `temperature`, then truncated to the `top_k` most probable tokens
(Fan et al., 2018, arXiv 1805.04833), then to the smallest set that reaches `top_p` (Holtzman et al., 2019, arXiv
1904.09751); ties go to the lower id. Scores stay the model's own, before these changes. Every sample of every sentence
has its own random numbers, seeded by (seed, the sentence's index, the sample's index): a sample depends neither on the
other sentences of its batch nor on the number of samples. At most `WIDTH` samples of a sentence are drawn at once:
their KV caches share one row, and each sample attends to all of it under a mask, so the cost is quadratic in the width.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from mallang.data.batch import Batch
from mallang.decoding.contract import Autoregressive, Config, Hypothesis, Rules, limits
from mallang.decoding.greedy import Walk
from mallang.decoding.runner import run
from mallang.kernels.top_k import top_k

WIDTH = 8
"""The maximum number of samples per sentence that are drawn at once."""
Number = int | tuple[int, int]
"""The index of a sentence, or that and the index of the first sample to draw."""


def search(
    model: Autoregressive,
    batch: Batch,
    config: Config,
    numbers: Sequence[Number] | None = None,
    rules: Rules | None = None,
) -> list[list[Hypothesis]]:
    """`nbest` independent samples of each sentence, in the order drawn; the first is that of `nbest` = 1."""
    found: list[list[Hypothesis]] = [[] for _ in range(len(batch))]
    for first in range(0, config.nbest if found else 0, WIDTH):
        own = replace(config, nbest=min(WIDTH, config.nbest - first))
        drawn = run(model, batch, to_draw(model, batch, own, numbers, first), own, rules)
        for samples, more in zip(found, drawn, strict=True):
            samples += more
    return found


def to_draw(
    model: Autoregressive, batch: Batch, config: Config, numbers: Sequence[Number] | None = None, first: int = 0
) -> Drawn:
    """Empty paths, with the random numbers of all their tokens."""
    most = limits(batch, config, model)
    numbers = range(len(batch)) if numbers is None else numbers
    begins = [number if isinstance(number, tuple) else (number, 0) for number in numbers]
    draws = [
        torch.stack([uniforms(config.seed, number, begin + first + k, max(most)) for k in range(config.nbest)])
        for (number, begin), _ in zip(begins, most, strict=True)
    ]
    device = batch.tokens.device
    start = Walk.start(most, model.vocabulary, device, width=config.nbest)
    return Drawn(**{**vars(start), "draws": torch.stack(draws).to(device)})


@dataclass(frozen=True)
class Drawn(Walk):
    """Paths whose tokens are drawn at random."""

    draws: Float64[Tensor, "sentences width limit"]
    """A random number from [0, 1) for every token."""

    def choose(
        self, log_probs: Float[Tensor, "rows vocabulary"], said: Int[Tensor, ""], config: Config
    ) -> Int[Tensor, " rows"]:
        """A token of each row, drawn at random."""
        return pick(truncate(log_probs, config), self.draws.index_select(2, said[None]).flatten())

    def grow_from_logits(self, *_: object) -> None:
        """None: sampling needs the probabilities of all tokens."""


def uniforms(seed: int, number: int, sample: int, count: int) -> Float[Tensor, " count"]:
    """Random numbers from [0, 1) for one sample of one sentence; a larger count extends the same sequence."""
    digest = hashlib.sha256(f"{seed} {number} {sample}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
    return torch.rand(count, generator=generator, dtype=torch.float64)


def truncate(log_probs: Float[Tensor, "rows vocabulary"], config: Config) -> Float[Tensor, "rows vocabulary"]:
    """The unnormalized probabilities to draw from, after temperature, top-k and top-p."""
    logits = log_probs / config.temperature
    if 0 < config.top_k < logits.shape[1]:
        values, places = top_k(logits, config.top_k)
        logits = torch.full_like(logits, -torch.inf).scatter(1, places, values)
    probs = logits.softmax(dim=-1, dtype=torch.float64)
    if config.top_p < 1:
        ordered, places = probs.sort(dim=1, descending=True, stable=True)
        before = ordered.cumsum(dim=1) - ordered
        probs = torch.zeros_like(probs).scatter(1, places, ordered.masked_fill(before >= config.top_p, 0.0))
    return probs


def pick(probs: Float[Tensor, "rows vocabulary"], uniform: Float[Tensor, " rows"]) -> Int[Tensor, " rows"]:
    """Inverse transform sampling: the token at which the cumulative probability passes `uniform` × the total."""
    cumulated = probs.cumsum(dim=1)
    total = cumulated[:, -1:]
    token = torch.searchsorted(cumulated, uniform[:, None] * total, right=True)
    # If rounding reaches the total itself, take the last token with a nonzero probability.
    last = (cumulated < total).sum(dim=1, keepdim=True)
    return torch.minimum(token, last)[:, 0]
