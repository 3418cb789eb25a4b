"""The report on a tagger: scores with and without seen sentences, by type, errors by kind, and confused types.

report = tag_report(Path("runs/names"), model, rows, "test")
write_report(report, Path("report"))
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool

from mallang.evaluation.bag_of_words import harmonic, precision_and_recall
from mallang.evaluation.classification import ClassScores, Confusion, class_scores
from mallang.evaluation.score import Score
from mallang.evaluation.spans import count_spans, span_scores
from mallang.evaluation.tag_predictions import (
    TagError,
    TagPredictions,
    error_counts,
    flat_tags,
    span_text,
    tag_errors,
    type_confusion,
)
from mallang.inspection.comparison_tables import NOTHING, Table
from mallang.inspection.report_figures import draw_confusion
from mallang.inspection.reports import (
    ALL,
    UNSEEN,
    Figures,
    class_table,
    classes_json,
    confusion_json,
    confusion_table,
    named,
    score_table,
    seen_in_training,
    seen_note,
    unseen_part,
)
from mallang.tasks.contract import PredictsTags
from mallang.tasks.tag_scores import tag_accuracy


@dataclass(frozen=True, kw_only=True)
class TagReport:
    """All that is known of the tags that a run gives to the words of some sentences."""

    name: str
    found: TagPredictions
    is_seen: Bool[np.ndarray, " sentences"] | None = None
    """Whether each sentence is in the training data too."""
    notes: Sequence[str] = ()
    error_columns: ClassVar[tuple[str, ...]] = (
        "row", "kind", "gold", "output", "confidence", "first_word", "last_word", "gold_text", "output_text", "seen",
        "sentence",
    )  # fmt: skip

    @cached_property
    def parts(self) -> dict[str, TagPredictions]:
        """All sentences, and those that were not in training where these are fewer."""
        unseen = unseen_part(self.is_seen)
        return {ALL: self.found} | ({} if unseen is None else {UNSEEN: self.found.take(unseen)})

    @cached_property
    def measured(self) -> dict[str, list[Score]]:
        """The scores of every part."""
        return {name: named(scores_of(each), name) for name, each in self.parts.items()}

    @property
    def scores(self) -> list[Score]:
        """The scores of all sentences."""
        return self.measured[ALL]

    @property
    def outputs(self) -> list[str]:
        """The tags of every sentence."""
        return [" ".join(tags) for tags in self.found.outputs]

    @cached_property
    def confusion(self) -> Confusion:
        """Which type was given for which."""
        return type_confusion(self.found)

    @cached_property
    def mistakes(self) -> list[TagError]:
        """Every mistake, the most confident first."""
        return tag_errors(self.found)

    def tables(self) -> list[Table]:
        """Scores with and without seen sentences, scores by type, errors by kind, and the most frequent confusions."""
        heads = {
            name: f"{len(each):,} sentences" if name == ALL else f"{len(each):,} unseen"
            for name, each in self.parts.items()
        }
        rows = {heads[name]: scores for name, scores in self.measured.items()}
        kinds = error_counts(self.mistakes)
        lines = [[kind, f"{count:,}"] for kind, count in kinds.items()]
        errors = [Table("errors", ["kind", "count"], lines)] if lines and self.found.scheme is not None else []
        head = "tag" if self.found.scheme is None else "type"
        types = class_table(f"{head}s", head, scores_by_type(self.found))
        return [score_table(f"tags of {self.name}", rows), types, *errors, *confusion_table(self.confusion)]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "split": self.name,
            "sentences": len(self.found),
            "seen": None if self.is_seen is None else int(self.is_seen.sum()),
            **{key: value for key, value in self.part_json(ALL).items() if key != "sentences"},
            "unseen": self.part_json(UNSEEN) if UNSEEN in self.parts else None,
            "errors": error_counts(self.mistakes),
            "confusion": confusion_json(self.confusion),
            "notes": list(self.notes),
        }

    def part_json(self, name: str) -> dict[str, Any]:
        """The scores of one part of the sentences as plain values."""
        return {
            "sentences": len(self.parts[name]),
            "scores": [score.to_json() for score in self.measured[name]],
            "types": classes_json(scores_by_type(self.parts[name])),
        }

    def errors(self) -> Iterator[Sequence[Any]]:
        """Every mistake, the most confident first; words are counted from 1."""
        for error in self.mistakes:
            words = self.found.words[error.sentence]
            span = error.output or error.gold
            assert span is not None
            seen = "" if self.is_seen is None else "yes" if self.is_seen[error.sentence] else "no"
            types = (NOTHING if each is None else each.type for each in (error.gold, error.output))
            texts = (span_text(words, each) for each in (error.gold, error.output))
            place = span.start + 1, span.end
            yield error.sentence + 1, error.kind, *types, error.confidence, *place, *texts, seen, " ".join(words)

    def figures(self) -> Figures:
        """The confusion matrix of the types."""
        what = "tag" if self.found.scheme is None else "type"
        title = f"{self.name}: which {what} for which"
        return {"confusion.svg": lambda path: draw_confusion(path, self.confusion, title)}


def scores_of(found: TagPredictions) -> list[Score]:
    """The scores of all types together."""
    if found.scheme is None:
        return [tag_accuracy(found.outputs, found.golds).score()]
    return list(span_scores(found.outputs, found.golds).values())


def scores_by_type(found: TagPredictions) -> dict[str, ClassScores]:
    """Precision, recall, F1 and support of every type of span, or of every tag."""
    if found.scheme is None:
        golds, outputs = zip(*flat_tags(found), strict=True) if any(found.golds) else ((), ())
        return class_scores(outputs, golds) if golds else {}
    counts = count_spans(found.outputs, found.golds)
    rows = {}
    for kind, (right, ours, gold) in zip(counts.types, counts.table.sum(axis=0).tolist(), strict=True):
        precision, recall = precision_and_recall(right, ours, gold)
        rows[kind] = ClassScores(100 * precision, 100 * recall, 100 * harmonic(precision, recall), gold)
    return rows


def tag_report(run: Path, model: PredictsTags, rows: Sequence[tuple[str, ...]], name: str) -> TagReport:
    """The report on rows of words and tags."""
    found = model.tag_predictions(rows)
    is_seen, why = seen_in_training(run, [" ".join(words) for words in found.words], "words")
    notes = [*seen_note(is_seen, "sentences"), *filter(None, [why])]
    return TagReport(name=name, found=found, is_seen=is_seen, notes=notes)
