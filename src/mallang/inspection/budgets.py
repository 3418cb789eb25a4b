"""Training budgets of the systems of a comparison: updates, tokens, seconds, parameters, data.

A difference in quality says little about two models when one of them has read ten times as much text. So every
comparison reports which budgets were unequal.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from mallang.find import find
from mallang.inspection.comparison_tables import short
from mallang.inspection.entrants import Entrant, listed
from mallang.models.contract import is_fitted

ALIKE = 0.1
"""The relative difference up to which budgets count as equal."""
SPENT = (("tokens", "tokens read in training"), ("seconds", "seconds of training"), ("steps", "updates"))


@runtime_checkable
class Group(Protocol):
    """The runs of one line of a comparison."""

    @property
    def name(self) -> str:
        """The name of the line."""

    @property
    def entrants(self) -> Sequence[Entrant]:
        """Its runs."""


def budget_notes(groups: Sequence[Group]) -> list[str]:
    """A note for each budget that differs between systems."""
    return [*training_budgets(groups), *sizes(groups), *texts(groups)]


def training_budgets(groups: Sequence[Group]) -> list[str]:
    """Whether all systems that learn by gradients had the same budget: as many tokens, or as many seconds."""
    trained = [group for group in groups if not is_fitted(find("models", group.entrants[0].run.info["model"]))]
    described, is_one = [], False
    for key, what in SPENT:
        found = known_values(trained, key)
        if found is None:
            continue
        low, high = min(found), max(found)
        is_one |= (alike := high <= (1 + ALIKE) * low) and key != "steps"  # an update may read any number of tokens
        described.append(
            f"about {short(statistics.mean(found))} {what}" if alike else f"{short(low)} to {short(high)} {what}"
        )
    apart = [group.name for group in groups if group not in trained]
    if described and apart:
        described.append(f"{', '.join(apart)} counted the text and learned nothing by gradients")
    return [f"{'one budget' if is_one else 'no common budget'}: {', '.join(described)}"] if described else []


def sizes(groups: Sequence[Group]) -> list[str]:
    """Whether the models differ in size."""
    found = known_values(groups, "parameters")
    if found is None or max(found) <= (1 + ALIKE) * min(found):
        return []
    return [f"the models differ in size: {short(min(found))} to {short(max(found))} parameters"]


def texts(groups: Sequence[Group]) -> list[str]:
    """Whether the systems were trained on different text."""
    entrants = [entrant for group in groups for entrant in group.entrants]
    corpora = listed((str(entrant.run.info.get("data", {}).get("corpus")), entrant) for entrant in entrants)
    if len(corpora) < 2:
        return []
    by_corpus = "; ".join(f"{name}: {', '.join(each.path.name for each in found)}" for name, found in corpora.items())
    return [f"they were trained on different text ({by_corpus})"]


def known_values(groups: Sequence[Group], key: str) -> list[float] | None:
    """The value that each system recorded; None where one recorded none, or there is nothing to compare."""
    values = [mean_of([entrant.run.info for entrant in group.entrants], key) for group in groups]
    known = [value for value in values if value]
    return known if len(known) == len(values) > 1 else None


def mean_of(infos: Iterable[Mapping[str, Any]], key: str) -> float | None:
    """The mean of the values that the runs recorded; None where one recorded none."""
    values = [info.get(key) for info in infos]
    return None if None in values else statistics.mean(float(value) for value in values if value is not None)
