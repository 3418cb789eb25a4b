"""Health checks of a classifier or tagger by the labels that it gives: each takes labels beside gold labels.

A label is that of a text, or the tag of a word; several labels of a text are one output. Labels that are unequal in the
gold labels may be so in the outputs too: what is compared with the outputs is how often each occurs there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from mallang.data.columns import split_cell
from mallang.inspection.health import FEW, Finding, shorten

RARE = 0.02
"""The share of gold labels below which a label may be missing among the outputs."""
REMEDY = (
    "train longer, or with another optimizer.learning_rate; see that labels and texts belong together (data.columns, "
    "mallang data label-errors); where one label is much more frequent than the others: task.class_weights=balanced"
)


@dataclass(frozen=True)
class Labels:
    """What was labeled, beside the output and the gold label of each: texts, or all words of them."""

    items: Sequence[str]
    outputs: Sequence[str]
    golds: Sequence[str]

    @classmethod
    def of(cls, rows: Sequence[Sequence[str]], outputs: Sequence[str], *, tags: bool) -> Labels:
        """Those of texts with a label each, or of words with a tag each."""
        if not tags:
            return cls([row[0] for row in rows], outputs, [row[-1] for row in rows])
        words, golds = ([item for row in rows for item in split_cell(row[at], "words")] for at in (0, 1))
        return cls(words, [tag for line in outputs for tag in line.split()], golds)

    def facts(self) -> dict[str, str]:
        """How many labels there are, and how many are right."""
        right = sum(one == two for one, two in zip(self.outputs, self.golds, strict=True))
        return {
            "outputs": f"{len(set(self.outputs))} different labels; the gold labels have {len(set(self.golds))}",
            "right": f"{right:,} of {len(self.golds):,} labels",
        }


def examine_labels(found: Labels) -> list[Finding]:
    """All findings about the labels that a model gives; none from few items, or where all gold labels are equal."""
    if len(found.golds) < FEW or len(set(found.golds)) < 2:
        return []
    same = one_label(found)
    findings = [same, missing_labels(found) if same is None else None, no_better(found) if same is None else None]
    return [finding for finding in findings if finding is not None]


def one_label(found: Labels) -> Finding | None:
    """Nearly everything gets the same label, though the gold labels differ."""
    label, times = Counter(found.outputs).most_common(1)[0]
    usual = Counter(found.golds).most_common(1)[0][1]
    others, expected = len(found.outputs) - times, len(found.golds) - usual
    if others >= 0.1 * expected:
        return None
    what = f"{times:,} of {len(found.outputs):,} outputs are the label {label!r}; of the gold labels at most {usual:,}"
    return Finding("one output", True, f"{what} are equal", REMEDY, times, len(found.outputs), example(found, label))


def missing_labels(found: Labels) -> Finding | None:
    """Labels that are not rare among the gold labels, and that are never given."""
    counts, said = Counter(found.golds), set(found.outputs)
    least = max(3, RARE * len(found.golds))
    missing = [label for label, count in counts.most_common() if count >= least and label not in said]
    if not missing:
        return None
    named = ", ".join(map(repr, missing[:5])) + (", …" if len(missing) > 5 else "")
    what = f"{len(missing)} of {len(counts)} labels are never given, though they are not rare: {named}"
    return Finding("missing labels", False, what, REMEDY, len(missing), len(counts))


def no_better(found: Labels) -> Finding | None:
    """No more labels are right than if all were the most frequent one."""
    right = sum(one == two for one, two in zip(found.outputs, found.golds, strict=True))
    label, usual = Counter(found.golds).most_common(1)[0]
    if right > usual:
        return None
    what = f"{right:,} of {len(found.golds):,} labels are right; if all were {label!r}, {usual:,} would be"
    return Finding("hardly learned", True, what, REMEDY, right, len(found.golds))


def example(found: Labels, label: str) -> str:
    """An item that has this label and should have another."""
    triples = zip(found.items, found.outputs, found.golds, strict=True)
    item, gold = next(((item, gold) for item, said, gold in triples if said == label != gold), ("", ""))
    return f"{shorten(item)} → {label}, and should be {gold}" if gold else ""
