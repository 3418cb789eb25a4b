"""Filters of training rows, and an account of the dropped rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Int8, Integer

REASONS = ("kept", "empty", "duplicate", "short", "long", "ratio")
"""What can happen to a row; the first reason that applies is reported."""


@dataclass(frozen=True, kw_only=True)
class Filters:
    """Limits of a row; lengths are in tokens, without special tokens."""

    min_length: int = 1
    max_length: int = 256
    """0: no limit."""
    max_ratio: float = 9.0
    """Maximum length ratio of the sides; 0: no limit."""
    drop_duplicates: bool = False
    """Keep only the first of equal rows."""
    drop_empty: bool = True
    """Leave out rows with a side of white space only."""

    def judge(
        self, lengths: Integer[np.ndarray, "rows columns"], fate: Int8[np.ndarray, " rows"]
    ) -> Int8[np.ndarray, " rows"]:
        """The index in REASONS of each row; a row that is already dropped keeps its reason."""
        if lengths.shape[0] == 0:
            return fate
        shortest, longest = lengths.min(axis=1), lengths.max(axis=1)
        fate = _drop(fate, shortest < self.min_length, "short")
        if self.max_length:
            fate = _drop(fate, longest > self.max_length, "long")
        if self.max_ratio:
            fate = _drop(fate, (shortest > 0) & (longest > self.max_ratio * shortest), "ratio")
        return fate

    def explain(self, reason: str) -> str:
        """A reason in words."""
        return {
            "empty": "empty",
            "duplicate": "repeated",
            "short": f"shorter than {self.min_length} tokens",
            "long": f"longer than {self.max_length} tokens",
            "ratio": f"one side over {self.max_ratio:g} times the other",
        }[reason]


@dataclass
class Account:
    """The number of rows read, kept, and dropped for each reason."""

    filters: Filters
    name: str = ""
    read: int = 0
    dropped: dict[str, int] = field(default_factory=dict)

    @property
    def kept(self) -> int:
        """The number of rows kept."""
        return self.read - sum(self.dropped.values())

    def add(self, fate: Int8[np.ndarray, " rows"]) -> None:
        """Count more rows."""
        self.read += len(fate)
        for reason, number in zip(REASONS, np.bincount(fate, minlength=len(REASONS)), strict=True):
            if number and reason != "kept":
                self.dropped[reason] = self.dropped.get(reason, 0) + int(number)

    def to_json(self) -> dict[str, int | Mapping[str, int]]:
        """The counts as plain values."""
        return {"read": self.read, "kept": self.kept, "dropped": dict(self.dropped)}

    def __str__(self) -> str:
        share = f" ({self.kept / self.read:.1%})" if self.read else ""
        lines = [f"{self.name or 'rows'}: {self.read:,} read, {self.kept:,} kept{share}"]
        reasons = [f"{self.dropped[r]:,} {self.filters.explain(r)}" for r in REASONS if r in self.dropped]
        half = (len(reasons) + 1) // 2 if len(reasons) > 3 else len(reasons)
        for part in (reasons[:half], reasons[half:]):
            if part:
                lines.append("  dropped: " + ", ".join(part))
        return "\n".join(lines)


def _drop(fate: Int8[np.ndarray, " rows"], bad: Bool[np.ndarray, " rows"], reason: str) -> Int8[np.ndarray, " rows"]:
    """Drop the rows that are bad, and still kept, for this reason."""
    return np.where((fate == 0) & bad, np.int8(REASONS.index(reason)), fate)
