"""Ranking of hypotheses: length penalties, and finished outputs sorted by their normalized scores."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from mallang.decoding.contract import Config, Hypothesis, NoOutputError
from mallang.text.vocabulary import Vocabulary


def penalty(length: Any, config: Config) -> Any:
    """The length penalty, by which a score is divided, for a length (number or tensor) that counts `</s>`.

    It never decreases with the length.
    """
    if config.length_penalty == "average":
        return length
    if config.length_penalty == "gnmt":
        return ((5 + length) / 6) ** config.alpha
    return 1.0


def hypothesis(
    labels: Sequence[int], token_scores: Sequence[float], vocabulary: Vocabulary, config: Config
) -> Hypothesis:
    """A scored output from the generated tokens up to the first `<pad>`."""
    length = labels.index(vocabulary.pad) if vocabulary.pad in labels else len(labels)
    finished = length > 0 and labels[length - 1] == vocabulary.eos
    stuck = not finished and -math.inf in token_scores[length : length + 1]  # no token was possible, so `<pad>` was
    score = math.fsum(token_scores[:length]) if length and not stuck else -math.inf
    if not math.isfinite(score):
        raise NoOutputError(
            f"no output has a finite score under the model: the best one scores {score}",
            todo="check whether its training diverged",
        )
    return Hypothesis(
        tokens=tuple(labels[: length - finished]),
        score=score,
        normalized=score / penalty(length, config),
        finished=finished,
        token_scores=tuple(token_scores[:length]),
    )


def ranked(hypotheses: Iterable[Hypothesis]) -> list[Hypothesis]:
    """The hypotheses, best first; ties keep their order."""
    return sorted(hypotheses, key=lambda one: -one.normalized)
