"""What is better: length penalties, and the best of many where equals go to the one that comes first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mallang.decoding.contract import Config, Hypothesis
from mallang.errors import UserError
from mallang.text.vocabulary import Vocabulary


def best(
    scores: Float[Tensor, "rows places"], count: int
) -> tuple[Float[Tensor, "rows count"], Int[Tensor, "rows count"]]:
    """The highest scores of each row and their places, best first; among equals the lower place wins.

    `torch.topk` does not promise which of several equals it takes. That matters only where a tie straddles the
    boundary: there the lowest places among the equals are looked for in a second pass. To know about ties a GPU
    would have to wait for the host, so there the second pass is always taken.
    """
    values, places = scores.topk(min(count + 1, scores.shape[1]), dim=1)
    straddles = values.shape[1] > count and (scores.is_cuda or bool((values[:, count - 1] == values[:, count]).any()))
    if straddles:
        places = _first_of_equals(scores, values[:, count - 1 : count], count)
    places = places[:, :count].sort(dim=1).values
    values = scores.gather(1, places)
    order = values.sort(dim=1, descending=True, stable=True).indices
    return values.gather(1, order), places.gather(1, order)


def _first_of_equals(
    scores: Float[Tensor, "rows places"], threshold: Float[Tensor, "rows 1"], count: int
) -> Int[Tensor, "rows count"]:
    """The places of what lies above the threshold, then the lowest of those that equal it."""
    size = scores.shape[1]
    place = torch.arange(size, device=scores.device).expand_as(scores)
    # Above the threshold: negative, so taken first. Equal: the place. Below: after all others.
    key = torch.where(scores > threshold, place - size, torch.where(scores == threshold, place, place + size))
    return key.topk(count, dim=1, largest=False).values % size


def penalty(length: int, config: Config) -> float:
    """What the score of an output of this length, `</s>` counted, is divided by; it never falls with the length."""
    if config.length_penalty == "average":
        return float(length)
    if config.length_penalty == "gnmt":
        return float(((5 + length) / 6) ** config.alpha)
    return 1.0


def hypothesis(
    labels: Sequence[int], token_scores: Sequence[float], vocabulary: Vocabulary, config: Config
) -> Hypothesis:
    """What was said token by token, up to the first `<pad>`, as a scored output."""
    length = labels.index(vocabulary.pad) if vocabulary.pad in labels else len(labels)
    score = math.fsum(token_scores[:length]) if length else -math.inf
    if not math.isfinite(score):
        raise UserError(
            f"the model gives no output a probability: the best one scores {score}",
            todo="see whether its training diverged",
        )
    finished = labels[length - 1] == vocabulary.eos
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
