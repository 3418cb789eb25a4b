"""How much attention a word gets in the texts of each label: the histograms that HAN is known for.

    found = attention_to(model, rows, "good")
    found.by_label()["5"]                   # the weights of "good" in texts whose label is 5
    draw_by_label(Path("good.png"), found)

If the weight of "good" grows with the rating, the model reads it in its context: if it only knew the word, the weight
would be the same everywhere (Yang et al. 2016, figures 3 and 4). A weight is that of the word among the tokens of its
sentence, summed over its subwords.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mallang.errors import UserError, require
from mallang.inspection.figures import check_format, drawable, families, save
from mallang.inspection.highlights import Row, check_pooling, text_attention

BINS = 25
ALL = "all labels"


@dataclass(frozen=True)
class Occurrence:
    """A word in a text: its weight, the label of the text, and the label that the model predicts for the text."""

    weight: float
    gold: str
    predicted: str


@dataclass(frozen=True)
class WordAttention:
    """All occurrences of a word in some texts."""

    word: str
    texts: int
    """How many texts were read; not all have the word."""
    labels: tuple[str, ...]
    occurrences: tuple[Occurrence, ...]

    def by_label(self, predicted: bool = False) -> dict[str, list[float]]:
        """The weights for each label, in the order of the labels: that of the data, or the predicted one."""
        found: dict[str, list[float]] = {label: [] for label in self.labels}
        for each in self.occurrences:
            found.setdefault(each.predicted if predicted else each.gold, []).append(each.weight)
        return found

    def table(self, predicted: bool = False) -> list[tuple[str, int, float, float]]:
        """For each label, and for all together: the number of occurrences, the mean weight and the median."""
        groups = {**self.by_label(predicted), ALL: [each.weight for each in self.occurrences]}
        return [
            (label, len(weights), float(np.mean(weights)), float(np.median(weights)))
            if weights
            else (label, 0, float("nan"), float("nan"))
            for label, weights in groups.items()
        ]


def attention_to(verbs: Any, rows: Sequence[tuple[str, ...]], word: str, *, head: str | None = None) -> WordAttention:
    """The attention to a word in labeled texts; `word*` stands for all words that begin so. Letter case is ignored."""
    check_pooling(verbs)
    pattern = pattern_of(word)
    chosen = [(text, label) for text, label in rows if pattern.search(text)]
    if not chosen:
        raise UserError(f"no text has the word {word!r}", todo=f"{word}* finds all words that begin so")
    found = []
    for (_, gold), read in zip(chosen, text_attention(verbs, [text for text, _ in chosen], head=head), strict=True):
        weights = [weight for row in read.rows for weight in weights_in(row, pattern)]
        found += [Occurrence(weight, gold, read.label) for weight in weights]
    if not found:
        raise UserError(f"no text has the word {word!r} in the part that the model reads")
    return WordAttention(word, len(rows), verbs.task.labels.names, tuple(found))


def pattern_of(word: str) -> re.Pattern[str]:
    """What finds a word in a text: whole words, or with a star at the end all that begin so."""
    stem = word.removesuffix("*").strip()
    if not stem:
        raise UserError(f"{word!r} is no word", todo="--word good, or --word 좋* for all words that begin so")
    end = r"\w*" if word.endswith("*") else r"(?!\w)"
    return re.compile(rf"(?<!\w){re.escape(stem)}{end}", re.IGNORECASE)


def weights_in(row: Row, pattern: re.Pattern[str]) -> list[float]:
    """The weight of every match in a row: the sum over the tokens that have a part in it."""
    found = []
    for match in pattern.finditer(row.text):
        own = [
            weight
            for (begin, end), weight in zip(row.spans, row.weights, strict=False)
            if begin < match.end() and end > match.start()
        ]
        if own:  # a long sentence is in several rows, and a word in one of them
            found.append(sum(own))
    return found


def as_plain(found: WordAttention, predicted: bool = False) -> dict[str, Any]:
    """The weights as plain values, for each label."""
    groups = found.by_label(predicted)
    rounded = {label: [round(weight, 6) for weight in weights] for label, weights in groups.items()}
    return {"word": found.word, "texts": found.texts, "by": "predicted" if predicted else "gold", "weights": rounded}


def draw_by_label(path: Path, found: WordAttention, *, predicted: bool = False) -> Path:
    """Histograms of the weights: of all occurrences, then of each label; the axes are the same for all."""
    check_format(path)
    groups = {ALL: [each.weight for each in found.occurrences], **found.by_label(predicted)}
    across = min(3, len(groups))
    down = -(-len(groups) // across)
    figure = require("matplotlib.figure", "plots").Figure(
        figsize=(3.2 * across, 2.4 * down + 0.5), layout="constrained"
    )
    fields = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True).flatten().tolist()
    letters = {"fontfamily": families(), "parse_math": False}
    edges = np.linspace(0.0, max(groups[ALL]) or 1.0, BINS + 1)
    for field, (label, weights) in zip(fields, groups.items(), strict=False):
        # Each bar is a share of its label, so that rare labels can be compared with frequent ones.
        field.hist(weights, edges, weights=np.full(len(weights), 1 / max(1, len(weights))), color="#4287f5")
        if weights:
            field.axvline(float(np.mean(weights)), color="#d64045", linewidth=1.2)
        field.set_title(drawable(f"{label} ({len(weights):,})"), fontsize=10, **letters)
    for field in fields[len(groups) :]:
        field.set_axis_off()
    by = "predicted label" if predicted else "label"
    figure.suptitle(drawable(f"attention to “{found.word}” by {by}; line: mean"), **letters)
    figure.supxlabel("weight of the word in its sentence", fontsize=10)
    figure.supylabel("share of occurrences", fontsize=10)
    save(figure, path)
    return path
