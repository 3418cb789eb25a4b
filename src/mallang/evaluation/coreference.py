"""Scores of coreference: MUC, B³ and CEAFe of predicted clusters, their mean, and how many mentions were found.

    coreference_scores(outputs, golds)["CoNLL F1"]       # each a list of documents, a document a list of clusters

| measure | counts                                                                                            |
|---------|---------------------------------------------------------------------------------------------------|
| MUC     | links that hold the clusters of one side together, and are in the other (Vilain et al. 1995)       |
| B³      | of each mention: how much of its cluster is with it in the other side (Bagga and Baldwin 1998)     |
| CEAFe   | the similarity φ₄ = 2 |K ∩ R| / (|K| + |R|) of clusters in the best one-to-one matching (Luo 2005) |

The mean of the three F1 is the score of the CoNLL shared tasks. Recall divides by what the gold clusters have,
precision by what the predicted ones have; both are pooled over documents before they are divided, as the reference
scorer does (Pradhan et al. 2014). A cluster of one mention, a singleton, is no link for MUC, and counts in the others.
`without_singletons` drops them from both sides, as OntoNotes has none.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float, Int

from mallang.errors import UserError
from mallang.evaluation.bag_of_words import harmonic
from mallang.evaluation.score import RESAMPLES, SEED, Score, Statistics

Clustering = Sequence[Sequence[Hashable]]
"""The clusters of a document, each a list of mentions; no mention is in two of them."""
MEASURES = ("mention", "MUC", "B3", "CEAFe")
SHARES = ("recall", "precision", "F1")


def coreference_scores(outputs: Sequence[Clustering], golds: Sequence[Clustering]) -> dict[str, Score]:
    """Recall, precision and F1 of each measure, and "CoNLL F1", the mean of three; 0 to 100, with intervals.

    Names are those of the measure and the share: "MUC recall". The intervals draw documents again.
    """
    if len(outputs) != len(golds):
        raise UserError(f"there are {len(outputs)} documents with clusters, but {len(golds)} with gold clusters")
    if not golds:
        raise UserError("there are no documents, so that their clusters have no score")
    table = np.stack([counts(output, gold) for output, gold in zip(outputs, golds, strict=True)])
    signature = f"bs:{RESAMPLES}|seed:{SEED}|documents:pooled|mentions:exact|CEAF:phi4"
    found = {}
    for place, name in enumerate(MEASURES):
        for share in SHARES:
            statistics = Statistics(f"{name} {share}", table, share_of(place, share), signature)
            found[f"{name} {share}"] = statistics.score()
    mean = Statistics("CoNLL F1", table, conll_f1, f"{signature}|mean:MUC,B3,CEAFe").score()
    return {"CoNLL F1": mean, **found}


def without_singletons(clusters: Clustering) -> list[Sequence[Hashable]]:
    """The clusters of two mentions or more."""
    return [cluster for cluster in clusters if len(cluster) > 1]


def renamed(scores: Iterable[Score], ending: str) -> list[Score]:
    """Scores with an addition to their names and signatures."""
    return [replace(score, name=f"{score.name}, {ending}", signature=f"{score.signature}|{ending}") for score in scores]


def share_of(place: int, share: str) -> Callable[[Float[np.ndarray, " counts"]], float]:
    """Recall, precision or F1 of a measure, in percent, from summed counts."""

    def measure(sums: Float[np.ndarray, " counts"]) -> float:
        return 100 * shares(sums, place)[SHARES.index(share)]

    return measure


def shares(sums: Float[np.ndarray, " counts"], place: int) -> tuple[float, float, float]:
    """Recall, precision and F1 of a measure; 0 where there is nothing to divide by."""
    recalled, gold, right, output = sums[4 * place : 4 * place + 4].tolist()
    recall, precision = recalled / gold if gold else 0.0, right / output if output else 0.0
    return recall, precision, harmonic(precision, recall)


def conll_f1(sums: Float[np.ndarray, " counts"]) -> float:
    """The mean F1 of MUC, B³ and CEAFe, in percent."""
    return 100 * sum(shares(sums, place)[2] for place in (1, 2, 3)) / 3


def counts(output: Clustering, gold: Clustering) -> Float[np.ndarray, " counts"]:
    """The numerator and the denominator of recall, then those of precision, for each measure."""
    overlap, own, golds = overlaps(output, gold)
    found = float(overlap.sum())
    similarity = best_matching(2 * overlap / (own[:, None] + golds[None, :])) if overlap.size else 0.0
    parts = [
        (found, float(golds.sum()), found, float(own.sum())),
        (*muc(overlap.T, golds), *muc(overlap, own)),
        (b_cubed(overlap.T, golds), float(golds.sum()), b_cubed(overlap, own), float(own.sum())),
        (similarity, float(len(golds)), similarity, float(len(own))),
    ]
    return np.array(parts, dtype=np.float64).ravel()


def overlaps(
    output: Clustering, gold: Clustering
) -> tuple[Float[np.ndarray, "outputs golds"], Int[np.ndarray, " outputs"], Int[np.ndarray, " golds"]]:
    """How many mentions each predicted cluster shares with each gold one, and the sizes of both."""
    sides = [[frozenset(cluster) for cluster in clusters] for clusters in (output, gold)]
    for clusters in sides:
        if sum(map(len, clusters)) != len(frozenset().union(*clusters)) or not all(clusters):
            raise ValueError("a mention is in two clusters, or a cluster has none")
    owner = {mention: number for number, cluster in enumerate(sides[1]) for mention in cluster}
    table = np.zeros((len(sides[0]), len(sides[1])))
    for row, cluster in enumerate(sides[0]):
        for mention in cluster:
            if mention in owner:
                table[row, owner[mention]] += 1
    own, golds = (np.array([len(cluster) for cluster in clusters], dtype=np.int64) for clusters in sides)
    return table, own, golds


def muc(overlap: Float[np.ndarray, "clusters others"], sizes: Int[np.ndarray, " clusters"]) -> tuple[float, float]:
    """The links of clusters that the other side has, and all: a cluster in n parts has n − 1 links too few.

    A mention that is in no cluster of the other side is a part by itself.
    """
    parts = (overlap > 0).sum(axis=1) + sizes - overlap.sum(axis=1)
    return float((sizes - parts).sum()), float((sizes - 1).sum())


def b_cubed(overlap: Float[np.ndarray, "clusters others"], sizes: Int[np.ndarray, " clusters"]) -> float:
    """The sum over mentions of the share of their cluster that is with them in the other side."""
    return float((overlap**2 / sizes[:, None]).sum())


def best_matching(weights: Float[np.ndarray, "rows columns"]) -> float:
    """The greatest sum of weights of a one-to-one matching (Kuhn 1955), by shortest augmenting paths.

    Potentials u and v keep cost − u − v at 0 or above; each row is matched along the path of least cost.
    """
    cost = -(weights if len(weights) <= weights.shape[1] else weights.T)
    rows, columns = cost.shape
    u, v = np.zeros(rows), np.zeros(columns)
    row_of = np.full(columns, -1)
    for row in range(rows):
        distance, origin = np.full(columns, np.inf), np.full(columns, -1)
        is_done = np.zeros(columns, dtype=bool)
        here, reached, shortest = row, -1, 0.0
        while True:
            nearer = shortest + cost[here] - u[here] - v
            better = ~is_done & (nearer < distance)
            distance[better], origin[better] = nearer[better], reached
            reached = int(np.where(is_done, np.inf, distance).argmin())
            shortest, is_done[reached] = float(distance[reached]), True
            if row_of[reached] < 0:
                break
            here = int(row_of[reached])
        passed = is_done & (np.arange(columns) != reached)
        u[row] += shortest
        u[row_of[passed]] += shortest - distance[passed]
        v[passed] -= shortest - distance[passed]
        while reached >= 0:  # every column of the path gets the row of the column before it
            before = int(origin[reached])
            row_of[reached] = row if before < 0 else row_of[before]
            reached = before
    matched = row_of >= 0
    return float(-cost[row_of[matched], np.flatnonzero(matched)].sum())
