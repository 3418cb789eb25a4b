"""One training run of a classifier, a tagger, a rater of pairs or a chooser, in a folder of its own.

It is scored on dev, and on test where asked.

A worker process does one job after the other with one thread, for many share a machine. A score on test is counted
twice: on all texts, and without those that are in the training split too (mallang.data.seen says which are).
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mallang.errors import UserError

if TYPE_CHECKING:
    from mallang.evaluation.score import Score

Stage = Literal["sweep", "final"]
Line = dict[str, Any]
"""What is known of a job that was done: one line of the output file."""
LABELS = {
    "accuracy": "accuracy", "macro F1": "macro-f1", "span F1": "span-f1", "tag accuracy": "tag-accuracy",
    "Spearman": "spearman", "Pearson": "pearson",
    "EM": "exact-match", "F1": "answer-f1",
    "role F1": "role-f1", "predicate F1": "predicate-f1", "end-to-end role F1": "end-to-end-role-f1",
    "derived span F1": "derived-span-f1",
}  # fmt: skip
"""What scores are called in lines and file names."""
SCORED_BY_ROW = "roles", "answers"
"""What is scored with the rows: predicates, or several right answers, which outputs and labels do not have."""
ALL, NEW = "test", "test-new"
"""The test texts, and those of them that are not in the training split."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One setting of a system with one seed."""

    stage: Stage
    system: str
    recipe: str
    overrides: tuple[str, ...]
    seed: int
    cost: float
    """About how many seconds it takes."""
    start: str | None = None
    """A run whose weights training starts from."""

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells it from other jobs."""
        return self.stage, self.system, self.overrides, self.seed

    @property
    def folder(self) -> str:
        """The name of its run folder: the same for a sweep and a final run of one setting and seed."""
        setting = "".join(f"-{override.partition('.')[2] or override}" for override in self.overrides)
        named = "".join(letter if letter.isalnum() or letter in "-._=" else "_" for letter in setting)
        return f"{self.system}{named[:120]}-{hash_of(self.overrides):08x}-seed{self.seed}"


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where jobs are done, and what their lines say of it."""

    folder: Path
    device: str
    about: Mapping[str, Any]
    """Commit and hardware."""


def hash_of(overrides: Sequence[str]) -> int:
    """A number of a setting that is the same in every process."""
    return zlib.crc32("\n".join(overrides).encode())


def alone() -> None:
    """A worker computes with one thread: the others want theirs."""
    import torch

    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.set_num_threads(1)
    # A spawned process would spawn its loader too, which cannot be pickled.
    multiprocessing.set_start_method("fork", force=True)


def do(job: Job, place: Place) -> Line:
    """Train and score one job; where that fails the line says why."""
    began = time.monotonic()
    line = {key: value for key, value in asdict(job).items() if key != "cost"}
    try:
        line |= measured(job, place)
    except Exception as error:  # one job that fails must not end the others, whatever its error
        line |= {"failed": f"{type(error).__name__}: {error}"[:2000]}
    return {**line, "wall": round(time.monotonic() - began, 1), **place.about}


def measured(job: Job, place: Place) -> Line:
    """The scores of a job, after training unless its folder holds the finished run already."""
    import mallang
    from mallang import recipe as recipes
    from mallang.training.train import Options, train

    folder = place.folder / job.folder
    recipe = recipes.read(job.recipe, [*job.overrides, f"seed={job.seed}"]).build()
    info = finished(folder)
    if info is None:
        start = None if job.start is None else Path(job.start)
        info = train(recipe, Options(folder=folder, device=place.device, quiet=True, fresh=True, start=start)).info
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    model = mallang.load(folder, device=place.device)
    splits = opened(recipe)
    line: Line = {"model": recipe.model_name, "corpus": splits.name, "metric": recipe.train.metric}
    line |= {key: info.get(key) for key in ("steps", "parameters", "seconds", "best")}
    line["dev"] = scores_of(model, list(splits.split("valid")))
    if job.stage == "final" and "test" in splits.splits:
        line |= tested(model, splits)
    if job.stage == "final":
        shutil.rmtree(folder)
    return line


def finished(folder: Path) -> Mapping[str, Any] | None:
    """What is known of the run in a folder, if it is finished."""
    from mallang.runs.folder import Run
    from mallang.runs.own_files import INFO

    if not (folder / INFO).exists():
        return None
    run = Run.open(folder)
    return run.info if run.is_finished else None


def opened(recipe: Any) -> Any:
    """The corpus of a recipe."""
    from mallang.data.corpus import open_corpus
    from mallang.find import find

    return open_corpus(recipe.data, find("tasks", recipe.task_name).Task.columns)


def tested(model: Any, corpus: Any) -> Line:
    """The scores on all test texts, and on those that are not in the training split."""
    from mallang.data.seen import seen, separators

    rows, training = list(corpus.split("test")), corpus.split("train")
    known = seen(texts_of(model, rows), texts_of(model, list(training)), separators(training))
    if model.evaluated in SCORED_BY_ROW:
        new_rows = [row for row, is_known in zip(rows, known, strict=True) if not is_known]
        line: Line = {ALL: scores_of(model, rows), NEW: scores_of(model, new_rows)}
        if model.evaluated == "roles":
            line[ALL] |= derived_spans(model, corpus)
            line["counts"] = role_counts(model, rows)
        return line
    _, outputs = model.evaluate(rows)
    golds = golds_of(model, rows)
    new = [place for place, is_known in enumerate(known) if not is_known]
    line = {ALL: scored(model, outputs, golds)}
    line[NEW] = scored(model, [outputs[place] for place in new], [golds[place] for place in new])
    if model.evaluated in ("labels", "choices"):
        line["right"] = bits([output == gold for output, gold in zip(outputs, golds, strict=True)])
    return line


def role_counts(model: Any, rows: Sequence[tuple[str, ...]]) -> list[list[int]]:
    """For every sentence the right arguments, those of the model and those of the data; predicates are given."""
    from mallang.data.roles import Sentence
    from mallang.evaluation.roles import role_table
    from mallang.tasks.role_labeler import gold_of, with_given

    sentences = [Sentence.of(row) for row in rows]
    outputs = with_given(model.task, model.model, sentences)
    table = role_table(outputs, [gold_of(each) for each in sentences], spans=model.task.roles.are_spans)
    counts: list[list[int]] = table.tolist()
    return counts


def derived_spans(model: Any, corpus: Any) -> dict[str, Any]:
    """The score of the spans that the trees of the test split make of head words, where it has trees."""
    from dataclasses import replace

    from mallang.data.corpus import Config, open_corpus

    if model.task.roles.are_spans:
        return {}
    try:
        columns = ("words", "predicates", "roles", "heads")
        rows = list(open_corpus(Config(corpus=corpus.name, columns=list(columns)), columns).split("test"))
    except UserError:
        return {}  # no corpus by name, or one without trees
    f1 = model.derived_span_scores(rows)[0]
    return by_label([replace(f1, name="derived span F1")])


def scores_of(model: Any, rows: Sequence[tuple[str, ...]]) -> dict[str, Any]:
    """The scores of rows, by label."""
    scores, outputs = model.evaluate(rows)
    if model.evaluated in SCORED_BY_ROW:
        return by_label(scores)
    return scored(model, outputs, golds_of(model, rows))


def golds_of(model: Any, rows: Sequence[tuple[str, ...]]) -> list[str]:
    """What the outputs for rows should be; of a question with choices the name of the right one."""
    from mallang.data.choices import read_choices

    if model.evaluated != "choices":
        return [row[-1] for row in rows]
    choices = [read_choices(cell) for _, cell, _ in rows]
    return [each.names[each.number(row[-1])] for each, row in zip(choices, rows, strict=True)]


def scored(model: Any, outputs: Sequence[str], golds: Sequence[str]) -> dict[str, Any]:
    """The scores of labels or tags with their intervals, by label."""
    from mallang.data.columns import split_cell
    from mallang.evaluation.classification import classification_scores
    from mallang.evaluation.correlation import correlation_scores
    from mallang.tasks.tag_scores import all_scores

    if model.evaluated == "labels":
        found = list(classification_scores(list(outputs), list(golds)).values())
    elif model.evaluated == "choices":
        found = [classification_scores(list(outputs), list(golds))["accuracy"]]
    elif model.evaluated == "numbers":
        found = list(correlation_scores(*([float(each) for each in side] for side in (outputs, golds))).values())
    else:
        cells = [[split_cell(cell, "tags") for cell in column] for column in (outputs, golds)]
        found = all_scores(cells[0], cells[1], model.task.tags.labels.scheme)
    return by_label(found)


def by_label(found: Sequence[Score]) -> dict[str, Any]:
    """The scores that a line has, by label."""
    known: dict[str, Any] = {}
    for score in found:
        if score.name in LABELS:
            known.setdefault(LABELS[score.name], score.to_json())  # those of single types come later
    return known


def texts_of(model: Any, rows: Sequence[tuple[str, ...]]) -> list[str]:
    """The texts of rows, both of a pair; words with spaces between them."""
    from mallang.data.columns import split_cell

    if model.evaluated in ("labels", "numbers", "choices", "answers"):
        return ["\t".join(row[:-1]) for row in rows]
    return [" ".join(split_cell(row[0], "words")) for row in rows]


def bits(values: Sequence[bool]) -> str:
    """Booleans as hexadecimal digits, four in each, the first value in the highest bit."""
    padded = [*values, *[False] * (-len(values) % 4)]
    return "".join(f"{int(''.join('01'[bit] for bit in padded[at : at + 4]), 2):x}" for at in range(0, len(padded), 4))


def is_right(digits: str, count: int) -> list[bool]:
    """The booleans that `bits` wrote."""
    return [bit == "1" for digit in digits for bit in f"{int(digit, 16):04b}"][:count]
