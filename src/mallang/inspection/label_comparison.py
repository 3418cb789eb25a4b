"""Which model for these labeled texts? Every candidate trains on the same rows for the same time.

    found = compare_on("my.tsv", seconds=60)
    print(found)                    # quality with intervals, cost, and one sentence that says which to use
    found.draw("models.svg")

Of a small file every row is predicted once, by a model that was trained on other rows (cross-validation); of a larger
one a fixed share is predicted, and the models that this cannot tell from the best are cross-validated where all folds
fit into their time. Rows are divided by a hash of their text, so equal texts are never on both sides. A test file is
scored by the same models, and has no say in which one is recommended.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Shaped

from mallang import recipe as recipes
from mallang import schema
from mallang.data.corpus import Rows
from mallang.data.held_out import place_of
from mallang.errors import UserError
from mallang.evaluation.score import RESAMPLES, SEED
from mallang.inspection import comparison_figure, comparison_tables
from mallang.inspection.comparison_tables import Table
from mallang.inspection.figures import check_format, families, save
from mallang.inspection.labeled_rows import labeled_rows
from mallang.inspection.systems import Value
from mallang.loading import load
from mallang.training.train import Options, train

SMALL = 3000
"""Rows below which a file is cross-validated."""
FOLDS, SHARE = 5, 0.2
FEWEST = 40
"""Rows that a comparison needs."""
LONG = 40
"""Mean words per text from which models of documents take part."""
METRIC = "accuracy"


@dataclass(frozen=True)
class Candidate:
    """A model, and the recipe values that differ from its defaults."""

    name: str
    model: str
    overrides: tuple[str, ...] = ()
    is_for_documents: bool = False


NBSVM = ("model.sublinear=true", "model.boundaries=true", "model.naive_bayes=true")
SMALL_NETWORK = ("model.size=small", "task.max_tokens=400")
"""The start of a text mostly says what it is about; a longer one would leave too few updates for the budget."""
CANDIDATES = (
    Candidate(
        "bag of words", "bag_of_words",
        ("text.unit=word", "text.vocabulary=200000", "text.lowercase=true", "model.orders=[1,2]", *NBSVM),
    ),
    Candidate("bag of characters", "bag_of_words", ("text.unit=char", "model.orders=[1,2,3,4]", "model.C=0.3", *NBSVM)),
    Candidate("bag of means", "bag_of_means", SMALL_NETWORK),
    Candidate("CNN", "cnn", SMALL_NETWORK),
    Candidate("LSTM", "rnn_classifier", SMALL_NETWORK),
    Candidate("HAN", "han", ("model.size=small", "task.documents=true"), is_for_documents=True),
    Candidate("Transformer", "transformer_encoder", SMALL_NETWORK),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class System:
    """One candidate: its scores on the rows that it did not see, and its cost."""

    name: str
    scores: Mapping[str, Value]
    seconds: float
    """Seconds of training, over all folds."""
    parameters: float | None = None
    milliseconds: float | None = None
    """Milliseconds per text when many are classified."""
    test: float | None = None
    """Accuracy on the test file, the mean over the models of all folds."""
    right: Bool[np.ndarray, " rows"] = field(repr=False, default_factory=lambda: np.zeros(0, bool))
    all_right: Bool[np.ndarray, " all_rows"] = field(repr=False, default_factory=lambda: np.zeros(0, bool))
    """Whether a finalist is right about each row without having seen it: the rows of `right`, then all others."""

    @property
    def cross_validated(self) -> float | None:
        """The accuracy of a finalist over all rows."""
        return 100 * float(self.all_right.mean()) if self.all_right.size else None


@dataclass(frozen=True, kw_only=True)
class LabelComparison:
    """All candidates on the same rows, best first."""

    text: str
    rows: int
    labels: int
    folds: int
    seconds: float
    systems: Sequence[System]
    notes: Sequence[str]
    metric: str = METRIC

    @property
    def recommended(self) -> System:
        """The system with the highest accuracy, of those that were cross-validated over all rows."""
        return self.systems[0]

    def tables(self) -> list[Table]:
        """Quality and cost in one table."""
        how = f"{self.folds}-fold cross-validation" if self.folds > 1 else f"{SHARE:.0%} held out"
        lines = [
            [system.name, comparison_tables.shown(system.scores[METRIC]), f"{system.scores['macro F1'].mean:.2f}",
             comparison_tables.short(system.parameters), comparison_tables.plain(system.seconds),
             comparison_tables.plain(system.milliseconds), *([f"{system.test:.2f}"] if system.test is not None else [])]
            for system in self.systems
        ]  # fmt: skip
        head = ["system", f"{METRIC} [95 %]", "macro F1", "parameters", "seconds of training", "ms per text"]
        head += [f"{METRIC} on test"] if self.systems[0].test is not None else []
        title = f"{self.rows:,} rows of {self.text}, {self.labels} labels, {how}, at most {self.seconds:g} s each"
        return [Table(title, head, lines)]

    def __str__(self) -> str:
        return comparison_tables.as_text(self.tables(), self.notes)

    def to_markdown(self) -> str:
        """The table in Markdown."""
        return comparison_tables.as_markdown(self.tables(), self.notes)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        systems = [
            {**{key: value for key, value in vars(system).items() if key not in ("scores", "right", "all_right")},
             "cross_validated": system.cross_validated,
             "scores": {name: asdict(value) for name, value in system.scores.items()}}
            for system in self.systems
        ]  # fmt: skip
        about = {key: value for key, value in vars(self).items() if key != "systems"}
        return {**about, "recommended": self.recommended.name, "systems": systems}

    def to_csv(self) -> str:
        """One line per system."""
        lines = [
            {"system": each["name"], "parameters": each["parameters"], "seconds": each["seconds"],
             "ms per text": each["milliseconds"], "test": each["test"],
             **{name: value["mean"] for name, value in each["scores"].items()}}
            for each in self.to_json()["systems"]
        ]  # fmt: skip
        return comparison_tables.as_csv(lines)

    def draw(self, path: Path | str) -> Path:
        """Accuracy against seconds of training, time per text, and parameters."""
        from mallang.errors import require

        path = Path(path)
        check_format(path)
        letters = {"fontfamily": families(), "parse_math": False}
        figure = require("matplotlib.figure", "plots").Figure(figsize=(13.0, 4.6), layout="constrained")
        costs: list[tuple[str, Callable[[Any], float | None]]] = [
            ("seconds of training", lambda system: system.seconds),
            ("milliseconds per text", lambda system: system.milliseconds),
            ("parameters", lambda system: system.parameters),
        ]
        for place, (cost, measure) in zip(figure.subplots(1, 3), costs, strict=True):
            comparison_figure.draw_points(place, self, cost, measure, letters)  # type: ignore[arg-type]
        figure.suptitle(self.tables()[0].title, **letters)
        save(figure, path)
        return path


def compare_on(
    data: str,
    *,
    seconds: float = 60.0,
    columns: Sequence[str | int] | None = None,
    test: str | None = None,
    candidates: Sequence[Candidate] = CANDIDATES,
    device: str = "auto",
    say: Callable[[str], None] = lambda text: None,
) -> LabelComparison:
    """Train every candidate on a file of labeled texts and say which one to use."""
    opened = labeled_rows(data, columns=columns)
    rows = texts_and_labels(opened)
    tested = [] if test is None else texts_and_labels(labeled_rows(test, columns=columns))
    if test is not None and not tested:
        raise UserError(f"{test} has no labeled texts", todo="give a file with texts and labels, or leave --test out")
    gold = np.array([label for _, label in rows], dtype=object)
    counts = Counter(gold.tolist())
    if len(rows) < FEWEST or len(counts) < 2:
        raise UserError(
            f"{data} has {len(rows)} labeled texts of {len(counts)} classes: too few to compare models",
            todo=f"give at least {FEWEST} rows of two classes; data.columns names the right columns",
        )
    folds = FOLDS if len(rows) < SMALL else 1
    parts = [part for part in divide(rows, folds) if part.any()]
    asked = np.any(parts, axis=0)
    systems, notes = [majority(gold, parts, asked, tested)], [opened.note] if opened.note else []
    words = sum(len(text.split()) for text, _ in rows) / len(rows)
    for candidate in candidates:
        if candidate.model not in schema.names("model") or (candidate.is_for_documents and words < LONG):
            continue
        say(f"{candidate.name}: {seconds:g} s")
        try:
            systems.append(try_candidate(candidate, rows, gold, parts, tested, seconds, device))
        except UserError as error:
            notes.append(f"{candidate.name} took no part: {error.what}")
    systems.sort(key=lambda system: (-system.scores[METRIC].mean, system.seconds))
    if len(parts) == 1:
        systems = decide(systems, candidates, rows, gold, seconds, device, say)
    notes.append(advice(systems))
    return LabelComparison(
        text=data, rows=int(asked.sum()), labels=len(counts), folds=len(parts), seconds=seconds, systems=systems,
        notes=notes,
    )  # fmt: skip


def texts_and_labels(data: Rows) -> list[tuple[str, str]]:
    """The rows that have both."""
    return [(text, label) for text, label in data if text.strip() and label.strip()]


def divide(rows: Sequence[tuple[str, str]], folds: int) -> Iterator[Bool[np.ndarray, " rows"]]:
    """The rows to predict in each fold, by a hash of the text."""
    places = np.array([place_of((" ".join(text.casefold().split()),)) for text, _ in rows])
    if folds == 1:
        yield places < SHARE
    else:
        yield from ((places * folds).astype(int) == fold for fold in range(folds))


def majority(
    gold: Shaped[np.ndarray, " rows"],
    parts: Sequence[Bool[np.ndarray, " rows"]],
    asked: Bool[np.ndarray, " rows"],
    tested: Sequence[tuple[str, str]] = (),
) -> System:
    """The baseline that always predicts the most frequent label of its training rows."""
    said, test = np.empty(len(gold), dtype=object), list[float]()
    for part in parts:
        said[part] = often = Counter(gold[~part].tolist()).most_common(1)[0][0]
        test.append(share_right([often] * len(tested), tested))
    scores = scores_of(said[asked], gold[asked])
    return System(name="majority", scores=scores, seconds=0.0, test=float(np.mean(test)) if tested else None)


def try_candidate(
    candidate: Candidate,
    rows: Sequence[tuple[str, str]],
    gold: Shaped[np.ndarray, " rows"],
    parts: Sequence[Bool[np.ndarray, " rows"]],
    tested: Sequence[tuple[str, str]],
    seconds: float,
    device: str,
) -> System:
    """Train one candidate on every fold and predict the rows that it did not see."""
    said, test = np.empty(len(rows), dtype=object), list[float]()
    trained, used, parameters = 0.0, 0.0, 0.0
    with tempfile.TemporaryDirectory(prefix="mallang-compare-") as name:
        for number, part in enumerate(parts):
            folder = Path(name) / str(number)
            folder.mkdir()
            write_rows(folder / "train.jsonl", [row for row, out in zip(rows, part, strict=True) if not out])
            given = [f"data.train={folder / 'train.jsonl'}", *candidate.overrides, *budget(candidate, seconds, parts)]
            began = time.monotonic()
            recipe = recipes.read(candidate.model, given).build()
            run = train(recipe, Options(folder=folder / "run", device=device, quiet=True))
            trained += time.monotonic() - began
            parameters = float(run.info["parameters"])
            model = load(run.folder, device)
            texts = [text for (text, _), out in zip(rows, part, strict=True) if out]
            began = time.monotonic()
            said[part] = [str(each) for each in model.classify(texts)]
            used += time.monotonic() - began
            if tested:
                test.append(share_right([str(each) for each in model.classify([text for text, _ in tested])], tested))
    asked = np.any(parts, axis=0)
    return System(
        name=candidate.name, scores=scores_of(said[asked], gold[asked]), seconds=trained, parameters=parameters,
        milliseconds=1000 * used / max(1, int(asked.sum())), right=said[asked] == gold[asked],
        test=float(np.mean(test)) if tested else None,
    )  # fmt: skip


def decide(
    systems: Sequence[System],
    candidates: Sequence[Candidate],
    rows: Sequence[tuple[str, str]],
    gold: Shaped[np.ndarray, " rows"],
    seconds: float,
    device: str,
    say: Callable[[str], None] = lambda text: None,
) -> list[System]:
    """Systems, best first, with those in a new order that the held-out rows cannot tell from the best.

    These finalists predict all other rows too, each fold by a model that was trained on the others. The test texts are
    not asked. Those for which all folds would take more than the time of one keep their places.
    """
    close = [systems[0], *(each for each in systems[1:] if each.right.size and is_close(systems[0], each))]
    finalists = [each for each in close if each.right.size and each.seconds * FOLDS <= seconds]
    if len(finalists) < 2:
        return list(systems)
    known = {candidate.name: candidate for candidate in candidates}
    _, *rest = divide(rows, FOLDS)
    found = []
    for each in finalists:
        say(f"{each.name}: {FOLDS}-fold cross-validation")
        try:
            more = try_candidate(known[each.name], rows, gold, rest, (), seconds, device)
        except UserError as error:
            say(f"{each.name} keeps its place: {error.what}")
            continue
        found.append(replace(each, all_right=np.concatenate([each.right, more.right])))
    if len(found) < 2:
        return list(systems)
    found.sort(key=lambda each: (-float(each.all_right.mean()), each.seconds))
    names, decided = {each.name for each in found}, iter(found)
    return [next(decided) if each.name in names else each for each in systems]


def share_right(said: Sequence[str], rows: Sequence[tuple[str, str]]) -> float:
    """How many of these labels are right, in percent."""
    return 100 * sum(each == label for each, (_, label) in zip(said, rows, strict=True)) / max(1, len(rows))


def budget(candidate: Candidate, seconds: float, parts: Sequence[Any]) -> list[str]:
    """The time of one fold; a model that is fitted takes what it needs."""
    from mallang.find import find
    from mallang.models.contract import is_fitted

    return [] if is_fitted(find("models", candidate.model)) else [f"train.seconds={max(1.0, seconds / len(parts)):g}"]


def write_rows(path: Path, rows: Sequence[tuple[str, str]]) -> None:
    """Labeled texts as JSON lines."""
    lines = (json.dumps({"text": text, "label": label}, ensure_ascii=False) for text, label in rows)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def scores_of(said: Shaped[np.ndarray, " rows"], gold: Shaped[np.ndarray, " rows"]) -> dict[str, Value]:
    """Accuracy with its bootstrap interval, and macro F1."""
    right = (said == gold).astype(float)
    low, high = interval(right)
    parts = []
    for label in sorted(set(gold.tolist())):
        both = int(((said == label) & (gold == label)).sum())
        parts.append(2 * both / max(1, int((said == label).sum() + (gold == label).sum())))
    return {METRIC: Value(100 * float(right.mean()), low, high), "macro F1": Value(100 * float(np.mean(parts)))}


def interval(values: Float[np.ndarray, " rows"]) -> tuple[float, float]:
    """The 95 % interval of a mean, in percent, by bootstrap resampling."""
    random = np.random.default_rng(SEED)
    counts = random.binomial(len(values), values.mean(), RESAMPLES) / len(values)  # resampling 0 and 1
    low, high = np.quantile(100 * counts, [0.025, 0.975])
    return float(low), float(high)


def advice(systems: Sequence[System]) -> str:
    """One sentence: which to use, and why."""
    best, *others = systems
    value = best.scores[METRIC]
    if best.name == "majority":
        return "no model beats the most frequent label: give more rows, or check that the labels follow from the texts"
    others = [each for each in others if each.right.size]
    said = f"use {best.name}: {value.mean:.1f} % is the highest accuracy"
    if best.cross_validated is not None:
        rivals = [each for each in others if each.cross_validated is not None]
        said = f"use {best.name}: the rows held out cannot tell it from {' and '.join(each.name for each in rivals)}"
        told = " against ".join(f"{each.cross_validated:.1f} %" for each in (best, *rivals))
        said += f", and with {FOLDS}-fold cross-validation of all rows it is {told}"
    close = [each for each in others if is_close(best, each)]
    faster = [each for each in close if each.seconds < best.seconds / 2]
    if faster:
        quick = min(faster, key=lambda each: each.seconds)
        shown = quick.scores[METRIC].mean if quick.cross_validated is None else quick.cross_validated
        said += f"; {quick.name} is not reliably worse ({shown:.1f} %)"
        said += f" and trains in {quick.seconds:.0f} s instead of {best.seconds:.0f}"
    elif close:
        names = " and ".join(each.name for each in close[:2])
        said += f", though the lead over {names} is within the noise of these rows"
    return said


def is_close(best: System, other: System) -> bool:
    """Whether a paired bootstrap over the rows that both predicted cannot tell two systems apart at 95 %."""
    have_all = best.all_right.size and other.all_right.size
    mine, theirs = (best.all_right, other.all_right) if have_all else (best.right, other.right)
    shares = [float((mine & ~theirs).mean()), float((theirs & ~mine).mean())]
    drawn = np.random.default_rng(SEED).multinomial(len(mine), [*shares, 1 - sum(shares)], size=RESAMPLES)
    return bool(np.quantile(drawn[:, 0] - drawn[:, 1], 0.025) <= 0)  # resampling -1, 0 and 1
