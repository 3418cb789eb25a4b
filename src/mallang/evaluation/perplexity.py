"""Perplexity per token, per word and per byte, always together.

Perplexity per token is the training objective, but depends on the tokenizer; perplexity per word is comparable with the
literature; bits per byte compares any two models on the same text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mallang.errors import UserError
from mallang.evaluation.score import RESAMPLES, SEED, Score, interval


def perplexities(
    log_probs: Sequence[float],
    tokens: Sequence[int],
    words: Sequence[int],
    bytes: Sequence[int],
    *,
    ends: bool = True,
    tokenizer: str | None = None,
    context_mode: str | None = None,
) -> dict[str, Score]:
    """The scores "token", "word" and "byte" of a text, from one number per sentence in every list.

    `log_probs` are natural logarithms summed over a sentence; the counts are those of its text, without `</s>`. With
    `ends` the sums include `</s>`, and it is counted as one token, one word and one byte (the end of the line) of
    every sentence. The signature names the `tokenizer` and the `context_mode`: the layout of the text, the context of a
    token, and the stride of windows."""
    counts = {"token": tokens, "word": words, "byte": bytes}
    for name, numbers in counts.items():
        if len(numbers) != len(log_probs):
            raise UserError(f"there are {len(log_probs)} sentences but {len(numbers)} counts of their {name}s")
    end = 1 if ends else 0
    read = [] if context_mode is None else [context_mode]
    cut = [] if tokenizer is None else [f"tok:{tokenizer}"]
    scores = {}
    for unit, numbers in counts.items():
        statistics = np.array([[-nats, number + end] for nats, number in zip(log_probs, numbers, strict=True)])
        if not len(statistics) or not statistics[:, 1].sum() > 0:
            raise UserError(f"there is no {unit} to compute a perplexity of")
        about = [*(cut if unit == "token" or read else []), *read]
        scores[unit] = _score(unit, statistics, ends, about)
    return scores


def _score(unit: str, statistics: np.ndarray, ends: bool, about: list[str]) -> Score:
    """Mean surprisal per unit: its exponential, or for bytes the value itself in bits."""

    def measure(sums: np.ndarray) -> float:
        nats, count = sums
        # A resample may consist of empty sentences, without surprisal; the exponential may overflow.
        average = nats / max(count, 1.0)
        if unit == "byte":
            return float(average / math.log(2))
        with np.errstate(over="ignore"):
            return float(np.exp(average))

    low, high = interval(statistics, measure)
    name = "bits per byte" if unit == "byte" else f"perplexity per {unit}"
    parts = [f"unit:{unit}", f"ends:{'counted' if ends else 'not-counted'}", f"log:{'2' if unit == 'byte' else 'e'}"]
    parts += [*about, f"bs:{RESAMPLES}", f"seed:{SEED}"]
    return Score(name, measure(statistics.sum(axis=0)), "|".join(parts), low, high, len(statistics))
