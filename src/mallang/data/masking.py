"""Masking for masked language models: some tokens of a text are hidden, and the model is asked what they were."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int


def mask_tokens(
    tokens: Int[np.ndarray, " tokens"],
    maskable: Bool[np.ndarray, " tokens"],
    rng: np.random.Generator,
    *,
    rate: float,
    mask_id: int,
    random_share: float = 0.1,
    kept_share: float = 0.1,
    vocabulary: Int[np.ndarray, " words"],
) -> tuple[Int[np.ndarray, " tokens"], Int[np.ndarray, " masked"]]:
    """A text with some tokens hidden, and their positions in order: `rate` of the maskable ones, at least one.

    Positions are drawn without replacement, so that their number is exact. Of these tokens `random_share` become a
    random one of `vocabulary`, `kept_share` stay what they are, and all others become `mask_id`.
    """
    candidates = np.flatnonzero(maskable)
    count = min(len(candidates), max(1, round(rate * len(candidates))))
    positions = np.sort(rng.choice(candidates, size=count, replace=False)) if count else candidates[:0]
    corrupted, draws = tokens.copy(), rng.random(count)
    others = rng.choice(vocabulary, size=count) if random_share and count else np.full(count, mask_id)
    is_kept = draws >= 1.0 - kept_share
    is_random = (draws >= 1.0 - kept_share - random_share) & ~is_kept
    chosen = np.where(is_kept, tokens[positions], np.where(is_random, others, mask_id))
    corrupted[positions] = chosen
    return corrupted, positions
