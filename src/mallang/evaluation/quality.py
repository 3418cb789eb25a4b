"""The choice of metrics for outputs: those of text, or those of parse trees where the references are trees."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mallang.evaluation.bag_of_words import word_f_statistics
from mallang.evaluation.brackets import bracket_statistics, brackets, is_tree
from mallang.evaluation.positions import position_statistics
from mallang.evaluation.score import Score, Statistics
from mallang.evaluation.translation import (
    References,
    bleu_statistics,
    chrf_statistics,
    exact_match,
    exact_statistics,
)

MEASURES: Mapping[str, Callable[[Sequence[str], References], Statistics]] = {
    "bleu": bleu_statistics,
    "chrf": chrf_statistics,
    "words": word_f_statistics,
    "positions": position_statistics,
    "exact": exact_statistics,
    "brackets": bracket_statistics,
}
"""Measures by the name that recipes and options give them."""


FOR_TEXT, FOR_TREES = ("bleu", "chrf", "words", "exact"), ("brackets", "exact")


def quality(outputs: Sequence[str], references: References) -> list[Score]:
    """All scores that suit these references."""
    if are_trees(references):
        return [*brackets(outputs, references).values(), exact_match(outputs, references)]
    return [MEASURES[name](outputs, references).score() for name in FOR_TEXT]


def suited(references: References) -> tuple[str, ...]:
    """The names of the measures that suit these references."""
    return FOR_TREES if are_trees(references) else FOR_TEXT


def are_trees(references: References) -> bool:
    """Whether every reference is a linear parse tree."""
    return bool(references) and all(isinstance(each, str) and is_tree(each) for each in references)
