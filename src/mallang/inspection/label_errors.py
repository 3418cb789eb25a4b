"""Labels of a file that are probably wrong, by out-of-fold probabilities (confident learning).

    found = find_label_errors(labeled_rows("reviews.tsv"), folds=5)
    print(found.suspects[0])

Every row is predicted by a model that was trained on the other folds, so that no model has seen the label that it
judges. Rows are divided by a hash of their text: equal texts are in one fold. Which rows are reported, and in which
order, is said in evaluation/error_analysis.py.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from mallang import recipe as recipes
from mallang.data.columns import natural
from mallang.data.corpus import Rows
from mallang.data.excluded import fold
from mallang.data.held_out import place_of
from mallang.errors import UserError
from mallang.evaluation.error_analysis import likely_label_errors
from mallang.find import find
from mallang.inspection.label_comparison import SHARE, divide, write_rows
from mallang.loading import load
from mallang.models.contract import is_fitted
from mallang.tasks.contract import column_kinds
from mallang.training.train import Options, train

FOLDS, FEWEST = 5, 20
QUICK: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "characters": (
        "logistic regression on character n-grams of 1 to 4",
        "bag_of_words",
        ("text.unit=char", "model.orders=[1,2,3,4]", "model.classifier=logistic", "model.C=16"),
    ),
    "words": (
        "logistic regression on words and word pairs",
        "bag_of_words",
        ("text.unit=word", "text.vocabulary=50000", "model.orders=[1,2]", "model.classifier=logistic", "model.C=16"),
    ),
}
"""Models that train in seconds, by name: what they are, the model, and what differs from its defaults.

C = 16 found more labels that were changed at random than C = 1 and C = 4, on miniworld, TREC and NSMC.
"""
OFTEN = 0.15
"""Share of suspects from which it is said that many of them are right."""


@dataclass(frozen=True)
class Suspect:
    """A row whose label is probably wrong."""

    row: int
    """The number of the row, from 1; a header does not count."""
    label: str
    probability: float
    """The out-of-fold probability of the label."""
    suggested: str
    suggested_probability: float
    text: str


@dataclass(frozen=True, kw_only=True)
class LabelErrors:
    """The rows of a file whose label is probably wrong, the likeliest first."""

    data: str
    rows: int
    labels: int
    folds: int
    model: str
    accuracy: float
    """The share of rows, in percent, whose label is the most probable one out of fold."""
    suspects: Sequence[Suspect]
    notes: Sequence[str] = ()

    def __str__(self) -> str:
        found = f"{len(self.suspects):,} of {self.rows:,} rows of {self.data} have a label that is improbable"
        return f"{found}: {self.folds}-fold cross-validation of {self.model}, which is right on {self.accuracy:.1f} %"

    def table(self, most: int) -> tuple[list[str], list[list[str]]]:
        """Header and rows; 0: all."""
        rows = [
            [str(each.row), each.label, f"{each.probability:.4f}", each.suggested, f"{each.suggested_probability:.4f}",
             " ".join(each.text.split())]
            for each in self.suspects[: most or None]
        ]  # fmt: skip
        return ["row", "label", "probability", "suggested", "its probability", "text"], rows

    def to_json(self, most: int) -> dict[str, Any]:
        """Plain values; 0: all suspects."""
        about = {key: value for key, value in vars(self).items() if key != "suspects"}
        return {
            **about,
            "found": len(self.suspects),
            "suspects": [asdict(each) for each in self.suspects[: most or None]],
        }


def find_label_errors(
    data: Rows,
    *,
    folds: int = FOLDS,
    model: str = "characters",
    device: str = "auto",
    say: Callable[[str], None] = lambda text: None,
) -> LabelErrors:
    """Train on all folds but one, predict that one, and report the rows whose label is improbable.

    `model` is one of QUICK, or any recipe or model that classifies.
    """
    numbered = [(number, text, label) for number, (text, label) in enumerate(data, start=1)]
    kept = [row for row in numbered if row[1].strip() and row[2].strip()]
    rows = [(text, label) for _, text, label in kept]
    counts = Counter(label for _, label in rows)
    if len(rows) < max(FEWEST, 2 * folds) or len(counts) < 2:
        few = "are too few" if len(counts) > 1 else f"of one class, {next(iter(counts))!r}, are not enough"
        raise UserError(
            f"the {len(rows)} labeled texts of {data.name} {few if counts else 'are too few'} to judge their labels",
            todo=f"give at least {max(FEWEST, 2 * folds)} rows of two classes; --columns names the right columns",
        )
    names = sorted(counts, key=natural)
    parts = [part for part in divide(rows, folds) if part.any()]
    what, name, overrides = QUICK.get(model, (model, model, ()))
    check_model(name)
    shares = np.zeros((len(rows), len(names)))
    for number, part in enumerate(parts, start=1):
        say(f"fold {number} of {len(parts)}: {what}")
        shares[part] = predict_fold(rows, part, names, (name, overrides), device)
    golds = np.array([names.index(label) for _, label in rows])
    suspects = [
        Suspect(
            kept[error.item][0],
            names[error.gold],
            error.gold_probability,
            names[error.suggested],
            error.suggested_probability,
            rows[error.item][0],
        )
        for error in likely_label_errors(shares, golds)
        if error.suggested_probability > error.gold_probability
    ]
    notes = [data.note] if data.note else []
    if len(suspects) > OFTEN * len(rows):
        notes.append(
            "the model is often wrong on these texts, so that many of the labels are right: see the first ones"
        )
    return LabelErrors(
        data=data.name, rows=len(rows), labels=len(names), folds=len(parts), model=what,
        accuracy=right(shares, golds), suspects=suspects, notes=notes,
    )  # fmt: skip


def right(shares: Float[np.ndarray, "rows classes"], golds: Int[np.ndarray, " rows"]) -> float:
    """The accuracy in percent."""
    return 100 * float((shares.argmax(axis=1) == golds).mean())


def check_model(name: str) -> None:
    """Refuse recipes that give a text something else than exactly one label."""
    recipe = recipes.read(name).build()
    kind = column_kinds(find("tasks", recipe.task_name).Task, recipe.task).get("label")
    if kind != "label":
        what = "several labels per text" if kind == "labels" else recipe.task_name
        raise UserError(
            f"{name} is for {what}, and rows with one label are judged by a classifier of one",
            todo=f"--model {' or '.join(QUICK)}, or a model such as cnn",
        )


def predict_fold(
    rows: Sequence[tuple[str, str]],
    part: Bool[np.ndarray, " rows"],
    names: Sequence[str],
    model: tuple[str, Sequence[str]],
    device: str,
) -> Float[np.ndarray, "predicted classes"]:
    """The probabilities of the rows of one fold; 0 for classes that the other folds do not have."""
    others = [row for row, out in zip(rows, part, strict=True) if not out]
    with tempfile.TemporaryDirectory(prefix="mallang-label-errors-") as folder:
        place = Path(folder)
        given = [f"data.train={place / 'train.jsonl'}", f"data.valid={place / 'valid.jsonl'}", *model[1]]
        recipe = recipes.read(model[0], given).build()
        learned, held_out = divided(others, fitted=is_fitted(find("models", recipe.model_name)))
        write_rows(place / "train.jsonl", learned)
        write_rows(place / "valid.jsonl", held_out)
        run = train(recipe, Options(folder=place / "run", device=device, quiet=True))
        loaded = load(run.folder, device)
        found = loaded.predictions([text for (text, _), out in zip(rows, part, strict=True) if out])
        shares = np.zeros((len(found), len(names)))
        shares[:, [names.index(name) for name in found.names]] = found.probabilities()
    return shares


def divided(rows: Sequence[tuple[str, str]], *, fitted: bool) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Rows to train on, and to validate on: of a model that is fitted some of the same rows, for nothing is chosen.

    The hash is not that of the folds, where rows with a low one are all in the first fold.
    """
    if fitted:
        return list(rows), list(rows[:50])
    places = [place_of((fold(text), "dev")) for text, _ in rows]
    chosen = [place <= max(SHARE, min(places)) for place in places]
    learned = [row for row, out in zip(rows, chosen, strict=True) if not out]
    known = {label for _, label in learned}
    held_out = [row for row, out in zip(rows, chosen, strict=True) if out and row[1] in known]
    return learned, held_out or learned[:50]
