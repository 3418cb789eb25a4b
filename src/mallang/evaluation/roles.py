"""Labeled F1 of semantic roles: an argument is right if predicate, words and role are those of the data.

    gave: Minsu ARG0, book ARG1        found  Minsu ARG0, book ARG2        1 right of 2 and 2: F1 50

An argument is a head word with a role (CoNLL-2009, but for the senses of predicates), or a span with a role
(CoNLL-2005). Continuations C-X and references R-X are arguments by themselves; V, the verb itself, is none. Where
predicates are found and not given, the arguments of a predicate that is missed are missed, and those of one that is
none are wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from mallang.data.role_files import NONE, subtree_spans
from mallang.evaluation.bag_of_words import harmonic, precision_and_recall
from mallang.evaluation.score import RESAMPLES, SEED, Score, Statistics
from mallang.evaluation.spans import read_spans

SHARES = ("F1", "precision", "recall")


class Argument(NamedTuple):
    """Some words with a role for a predicate."""

    predicate: int
    """The word that is the predicate."""
    role: str
    start: int
    """The first word."""
    end: int
    """The first word after it."""


@dataclass(frozen=True)
class Labeled:
    """The predicates of a sentence, and the roles of all words for each."""

    predicates: Sequence[int]
    roles: Sequence[Sequence[str]]

    def arguments(self, *, spans: bool) -> set[Argument]:
        """All arguments of all predicates."""
        rows = zip(self.predicates, self.roles, strict=True)
        if spans:
            return {Argument(place, *span) for place, tags in rows for span in read_spans(tags)}
        return {
            Argument(place, role, word, word + 1)
            for place, own in rows
            for word, role in enumerate(own)
            if role != NONE
        }


def by_tree(labeled: Labeled, heads: Sequence[int]) -> Labeled:
    """Roles on head words as spans: the words below each head word in a tree (data/roles.py, `subtree_spans`)."""
    pairs = zip(labeled.predicates, labeled.roles, strict=True)
    return Labeled(labeled.predicates, [subtree_spans(roles, heads, place) for place, roles in pairs])


def role_table(
    outputs: Sequence[Labeled], golds: Sequence[Labeled], *, spans: bool, role: str | None = None
) -> Int[np.ndarray, "sentences 3"]:
    """For every sentence the right arguments, those of the output and those of the data; of one role if it is named."""
    rows = []
    for output, gold in zip(outputs, golds, strict=True):
        ours, theirs = output.arguments(spans=spans), gold.arguments(spans=spans)
        if role is not None:
            ours, theirs = ({each for each in found if each.role == role} for found in (ours, theirs))
        rows.append((len(ours & theirs), len(ours), len(theirs)))
    return np.array(rows, dtype=np.int64).reshape(-1, 3)


def role_statistics(
    outputs: Sequence[Labeled], golds: Sequence[Labeled], *, spans: bool, found: bool = False
) -> dict[str, Statistics]:
    """The statistics of "F1", "precision" and "recall"; `found` says that the predicates are those of the model."""
    table, signature = role_table(outputs, golds, spans=spans), signature_of(spans=spans, found=found)
    name = "end-to-end role" if found else "role"
    return {share: share_of(share, f"{name} {share}", table, signature) for share in SHARES}


def predicate_statistics(outputs: Sequence[Labeled], golds: Sequence[Labeled]) -> Statistics:
    """The statistics of the F1 of predicates."""
    pairs = [(set(output.predicates), set(gold.predicates)) for output, gold in zip(outputs, golds, strict=True)]
    table = np.array([(len(ours & theirs), len(ours), len(theirs)) for ours, theirs in pairs]).reshape(-1, 3)
    return share_of("F1", "predicate F1", table, f"bs:{RESAMPLES}|seed:{SEED}|predicates:found")


def scores_by_role(outputs: Sequence[Labeled], golds: Sequence[Labeled], *, spans: bool) -> list[Score]:
    """The F1 of every role, with the number of its arguments in the data."""
    every = {each.role for labeled in (*outputs, *golds) for each in labeled.arguments(spans=spans)}
    scores = []
    for role in sorted(every):
        table = role_table(outputs, golds, spans=spans, role=role)
        signature = f"{signature_of(spans=spans, found=False)}|role:{role}"
        measured = share_of("F1", "role F1", table, signature)
        scores.append(Score(measured.name, measured.value, signature, count=int(table[:, 2].sum())))
    return scores


def signature_of(*, spans: bool, found: bool) -> str:
    """How arguments are counted."""
    what, whose = "spans" if spans else "heads", "found" if found else "given"
    return f"bs:{RESAMPLES}|seed:{SEED}|roles:{what}|predicates:{whose}|verb:excluded"


def share_of(share: str, name: str, table: Int[np.ndarray, "sentences 3"], signature: str) -> Statistics:
    """Precision, recall or F1 of right, output and gold counts, in percent."""

    def measure(sums: np.ndarray) -> float:
        precision, recall = precision_and_recall(*sums.tolist())
        return 100 * {"precision": precision, "recall": recall, "F1": harmonic(precision, recall)}[share]

    return Statistics(name, table, measure, signature)
