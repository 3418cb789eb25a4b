"""Runs that are compared by the scores of `evaluate`: classifiers, taggers, similarity, answers, choices, and so on."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from mallang.decoding.options import change_search
from mallang.errors import UserError, nearest
from mallang.evaluation.lengths import Bucket
from mallang.evaluation.score import Score, Statistics
from mallang.inspection.cost import REPEATS, Speed
from mallang.inspection.entrants import Entrant, compared_by
from mallang.inspection.no_answer import calibrate
from mallang.inspection.outputs import kept, stamp_of
from mallang.inspection.row_statistics import statistics_of
from mallang.tasks.contract import Calibrating

LOWER = re.compile(r"\b(loss|perplexity|bits|NLL|Brier|ECE|MSE|MAE|rank)\b")
"""Words in the names of scores of which the lower one is better; CoNLL F1 is none of them."""
FEWEST = 2
"""Rows that speed is measured on, at least: one number correlates with nothing."""
ROUNDING = 0.05
"""How far a score may lie from that of the written outputs, whose numbers are rounded."""


class ScoredEntrant(Entrant):
    """One run of a comparison whose task gives its own scores."""

    @property
    def text(self) -> str:
        """What it is scored on, in words."""
        return self.origin

    @cached_property
    def search(self) -> Any:
        """All search options of the run; none where nothing is searched."""
        recipe = self.recipe
        return None if recipe.decoding is None else change_search(recipe.decoding, self.options.search)

    def check(self) -> None:
        """Refuse options that mean nothing here."""
        self.refuse(("samples", "prompts", "context"), "these runs; it is for language models")
        self.refuse(("lengths",), "these runs; it is for translations and language models")
        if self.recipe.decoding is None:
            self.refuse(("search",), "these runs, which search for no output")

    @cached_property
    def model(self) -> Any:
        """The model, with its verbs."""
        model = self.load()
        if isinstance(model, Calibrating):
            calibrate(self.path, model)
        return model

    def write(self) -> None:
        """Load the outputs of all rows and their scores, or compute them as `mallang evaluate` does."""
        name = self.parts[0].name if len(self.parts) == 1 else "all"
        stamp = stamp_of(self.run, self.rows, self.search, {})
        found = kept(self.path, name, stamp, len(self.rows))
        if found is None:
            self.options.say(f"{self.path}: scoring {len(self.rows):,} rows")
            scores, outputs = self.model.evaluate(self.rows, **self.options.search)
            self.keep(name, outputs, scores, dict(self.options.search), stamp)
            found = outputs, scores
        self.outputs, scores = found
        self.scores = {}
        for score in scores:  # those of single types or roles have the names of the whole, and come after it
            if not any(part.startswith(("type:", "role:")) for part in score.signature.split("|")):
                self.scores.setdefault(score.name, score)

    @cached_property
    def measure(self) -> Any:
        """The statistics of the main score, for tests; only where they follow from outputs and references."""
        return lambda outputs, references: statistics_of(self.model.evaluated, self.metric, outputs, references)

    @cached_property
    def references(self) -> list[Any]:
        """The rows themselves: what is right in them depends on the task."""
        return list(self.rows)

    @cached_property
    def metric(self) -> str:
        """The name of the score that decides."""
        wanted = compared_by(self.run) if self.options.metric is None else (self.options.metric,)
        assert isinstance(wanted, tuple)
        by_letters = {name.lower(): name for name in reversed(self.scores)}
        for name in wanted:
            if name.lower() in by_letters:
                return by_letters[name.lower()]
        raise UserError(
            f"{self.path} has no score {wanted[0]!r}; it has {', '.join(self.scores)}",
            todo=nearest(wanted[0], list(self.scores)),
        )

    @property
    def is_lower_better(self) -> bool:
        """Whether the lower one of two main scores is better."""
        return LOWER.search(self.metric) is not None

    @property
    def is_share(self) -> bool:
        """Whether the main score is a percentage, so that the distance from 100 is an error."""
        return not self.is_lower_better and not self.metric.startswith("CIDEr")

    @property
    def can_be_tested(self) -> bool:
        """Whether the main score follows from the outputs and the rows, which a paired test needs."""
        found = statistics_of(self.model.evaluated, self.metric, self.outputs, self.references)
        return found is not None and math.isclose(found.value, self.scores[self.metric].value, abs_tol=ROUNDING)

    def statistics(self, bucket: Bucket) -> Statistics:
        """Not asked for: ranges of source lengths are for translations."""
        raise NotImplementedError

    def speed(self) -> Speed | None:
        """Rows scored per second in one call, after one warm-up call; on rows taken evenly."""
        wanted = min(max(self.options.speed, FEWEST), len(self.rows))
        if not self.options.speed or self.model.evaluated == "word pairs":  # their lists of words take the time
            return None
        self.options.say(f"{self.path}: measuring speed on {wanted} rows")
        rows: Sequence[tuple[str, ...]] = [self.rows[place * len(self.rows) // wanted] for place in range(wanted)]
        best = math.inf
        for _ in range(REPEATS + 1):
            began = time.perf_counter()
            self.model.evaluate(rows, **self.options.search)
            best = min(best, time.perf_counter() - began)
        return Speed(wanted / best, None)


def shared_scores(entrants: Sequence[Entrant]) -> list[str]:
    """The names of the scores that all runs have."""
    found: list[dict[str, Score]] = [entrant.scores for entrant in entrants]
    return [name for name in found[0] if all(name in scores for scores in found)]
