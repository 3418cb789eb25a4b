"""Sampling: draw each next token at random, from the whole distribution or from its most probable part.

The probabilities are first sharpened or flattened by `temperature`, then cut to the `top_k` most probable tokens
(Fan et al., 2018, arXiv 1805.04833), then to the smallest set that reaches `top_p` (Holtzman et al., 2019, arXiv
1904.09751); equals go to the lower id. Scores stay the model's own, before any of that. Every sample of every sentence
has random numbers of its own, drawn from (seed, the sentence's number, the sample's number): neither the other
sentences of a batch nor how many samples are asked for changes it. No more than `WIDTH` samples of a sentence are drawn
at once: their KV caches lie side by side, and each sample is shown all of them, masked: the cost is quadratic in that.
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
"""Samples of a sentence that are drawn at once."""
Number = int | tuple[int, int]
"""Of a sentence; or that and the number of the first sample to draw."""


def search(
    model: Autoregressive,
    batch: Batch,
    config: Config,
    numbers: Sequence[Number] | None = None,
    rules: Rules | None = None,
) -> list[list[Hypothesis]]:
    """`nbest` independent samples of each sentence, in the order drawn: the first is the one that `nbest` 1 gives."""
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
    """Nothing said yet, and the random numbers of all that will be."""
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
    """Paths whose tokens are drawn."""

    draws: Float64[Tensor, "sentences width limit"]
    """A random number from [0, 1) for every token."""

    def choose(
        self, log_probs: Float[Tensor, "rows vocabulary"], said: Int[Tensor, ""], config: Config
    ) -> Int[Tensor, " rows"]:
        """A token of each row, drawn at random."""
        return pick(truncate(log_probs, config), self.draws.index_select(2, said[None]).flatten())

    def grow_from_logits(self, *_: object) -> None:
        """Drawing needs the probabilities of all."""


def uniforms(seed: int, number: int, sample: int, count: int) -> Float[Tensor, " count"]:
    """Random numbers from [0, 1) that belong to one sample of one sentence; a larger count adds to the same ones."""
    digest = hashlib.sha256(f"{seed} {number} {sample}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
    return torch.rand(count, generator=generator, dtype=torch.float64)


def truncate(log_probs: Float[Tensor, "rows vocabulary"], config: Config) -> Float[Tensor, "rows vocabulary"]:
    """The probabilities to draw from, after temperature, top-k and top-p."""
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
    """The token at which the cumulated probabilities pass a share `uniform` of their total: the inverse CDF."""
    cumulated = probs.cumsum(dim=1)
    total = cumulated[:, -1:]
    token = torch.searchsorted(cumulated, uniform[:, None] * total, right=True)
    # Rounding may reach the total itself; the last token that has any probability is meant then.
    last = (cumulated < total).sum(dim=1, keepdim=True)
    return torch.minimum(token, last)[:, 0]
