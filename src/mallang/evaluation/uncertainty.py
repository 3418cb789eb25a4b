"""Which unlabeled texts are most worth labeling next: those that a classifier is least sure of, no two of them alike.

    order = np.argsort(certainty(found), kind="stable")      # the least sure first
    chosen = choose_diverse(texts, order.tolist(), 20)

Without a guard the least sure texts are often copies of each other: labeling one of them answers for all. Two texts are
alike if they share most of their character trigrams, in lower case and with single spaces.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from mallang.data.excluded import fold
from mallang.evaluation.label_predictions import LabelPredictions

By = Literal["margin", "entropy"]
ALIKE = 0.5
"""Share of common trigrams, of all that two texts have, from which they are alike."""


@dataclass(frozen=True)
class Chosen:
    """The texts to label, and those that were passed over."""

    items: list[int]
    """The numbers of the texts, from 0, the least sure first."""
    alike: int
    """How many less sure texts were left out because they are like one that was chosen."""


def certainty(found: LabelPredictions, by: By = "margin", temperature: float = 1.0) -> Float[np.ndarray, " items"]:
    """How sure the classifier is of each text, from 0 to 1; the lowest are most worth labeling.

    margin: the difference between the two most probable classes; of several labels that of the closest decision.
    entropy: 1 − the entropy of the probabilities divided by the highest possible one.
    """
    flat = found.decisions()
    logs = flat.log_probs(temperature)
    shares = np.exp(logs)
    if by == "margin":
        best = np.sort(shares, axis=1)[:, -2:]
        each = best[:, 1] - best[:, 0]
        return np.asarray(each if flat is found else each.reshape(len(found), -1).min(axis=1))
    entropy = -np.multiply(shares, logs, out=np.zeros_like(logs), where=shares > 0).sum(axis=1) / np.log(
        shares.shape[1]
    )
    return np.asarray(1 - (entropy if flat is found else entropy.reshape(len(found), -1).mean(axis=1)))


def choose_diverse(texts: Sequence[str], order: Iterable[int], count: int, alike: float = ALIKE) -> Chosen:
    """The first `count` texts in this order, without those that are like an earlier one, and without empty ones."""
    items: list[int] = []
    sizes: list[int] = []
    having: dict[str, list[int]] = {}
    left_out = 0
    for item in order:
        if len(items) == count:
            break
        own = trigrams(texts[item])
        if not own:
            continue
        shared = Counter(place for part in own for place in having.get(part, ()))
        if any(both >= alike * (len(own) + sizes[place] - both) for place, both in shared.items()):
            left_out += 1
            continue
        for part in own:
            having.setdefault(part, []).append(len(items))
        items.append(item)
        sizes.append(len(own))
    return Chosen(items, left_out)


def trigrams(text: str) -> set[str]:
    """The character trigrams of a text, in lower case and with single spaces; of a shorter one the text itself."""
    folded = fold(text)
    return {folded[place : place + 3] for place in range(max(1, len(folded) - 2))} if folded else set()
