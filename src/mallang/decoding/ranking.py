"""What is better: length penalties, and finished outputs ranked by their normalized scores."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from mallang.decoding.contract import Config, Hypothesis, NoOutputError
from mallang.text.vocabulary import Vocabulary


def penalty(length: Any, config: Config) -> Any:
    """What the score of an output of this length is divided by, a number or a tensor; `</s>` counts.

    It never falls with the length.
    """
    if config.length_penalty == "average":
        return length
    if config.length_penalty == "gnmt":
        return ((5 + length) / 6) ** config.alpha
    return 1.0


def hypothesis(
    labels: Sequence[int], token_scores: Sequence[float], vocabulary: Vocabulary, config: Config
) -> Hypothesis:
    """What was said token by token, up to the first `<pad>`, as a scored output."""
    length = labels.index(vocabulary.pad) if vocabulary.pad in labels else len(labels)
    finished = length > 0 and labels[length - 1] == vocabulary.eos
    stuck = not finished and -math.inf in token_scores[length : length + 1]  # nothing could follow, so `<pad>` did
    score = math.fsum(token_scores[:length]) if length and not stuck else -math.inf
    if not math.isfinite(score):
        raise NoOutputError(
            f"the model gives no output a probability: the best one scores {score}",
            todo="see whether its training diverged",
        )
    return Hypothesis(
        tokens=tuple(labels[: length - finished]),
        score=score,
        normalized=score / penalty(length, config),
        finished=finished,
        token_scores=tuple(token_scores[:length]),
    )


def ranked(hypotheses: Iterable[Hypothesis]) -> list[Hypothesis]:
    """Best first; equals stay in the order given."""
    return sorted(hypotheses, key=lambda one: -one.normalized)
