"""The verbs of a trained model that answers questions: answers with their places and probabilities, and scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from mallang import notebook
from mallang.data.answers import Offsets, locate, read_answers, token_span
from mallang.errors import UserError
from mallang.evaluation.answers import answer_f1, answer_scores, answer_table, best_threshold
from mallang.evaluation.label_predictions import Calibration
from mallang.evaluation.score import Score
from mallang.tasks.attribution import Method
from mallang.tasks.contract import Evaluated
from mallang.tasks.question_reading import Scored, TokenizedQuestion, read, score_spans

if TYPE_CHECKING:
    from mallang.tasks.question_answering import Task


@dataclass(frozen=True)
class Candidate:
    """A part of the context that may be the answer."""

    text: str
    start: int
    end: int
    """The first character in the context, and the first one after it."""
    probability: float
    """Its share of the probability of all spans, and of no answer where there may be none."""


@dataclass(frozen=True)
class Answered:
    """The answer to a question."""

    question: str
    context: str
    answer: str
    """A part of the context, letter by letter; empty where it holds no answer."""
    start: int | None
    end: int | None
    """The first character in the context, and the first one after it; none where there is no answer."""
    probability: float
    no_answer: float | None = None
    """The probability that the context holds no answer; only of runs that know such questions."""
    nbest: tuple[Candidate, ...] = ()
    """The most probable spans, the first first."""

    def __str__(self) -> str:
        return self.answer

    def _repr_html_(self) -> str:
        """In a notebook: the answer, the question, the context, and the most probable spans."""
        spans = notebook.bars([(each.text, each.probability) for each in self.nbest])
        return notebook.block(self.answer or "∅", notebook.note(self.question), notebook.note(self.context), spans)


def candidates(
    task: Task, reading: TokenizedQuestion, context: str, scored: Scored, nbest: int
) -> tuple[list[Candidate], float]:
    """The most probable spans of a question, and the probability of no answer: 0 where there always is one."""
    flat = scored.table.ravel()
    top = np.argsort(-flat, kind="stable")[:nbest]
    whole = np.append(flat, scored.nothing) if task.config.no_answer else flat
    highest = whole.max()
    total = highest + np.log(np.exp(whole - highest).sum())
    found = []
    for place in top[np.isfinite(flat[top])].tolist():
        first, further = divmod(place, scored.table.shape[1])
        start, end = int(reading.offsets[first, 0]), int(reading.offsets[first + further, 1])
        found.append(Candidate(context[start:end], start, end, float(np.exp(flat[place] - total))))
    nothing = float(np.exp(scored.nothing - total)) if task.config.no_answer else 0.0
    return found, nothing


class Verbs:
    """A trained model that answers questions."""

    task_name = "question_answering"
    verbs = ("answer", "evaluate")
    compared_by = ("F1",)

    def __init__(self, task: Task, model: Any, config: None, max_length: int) -> None:
        self.task, self.model, self.config, self.max_length = task, model, config, max_length
        self.calibration: Calibration | None = None
        """The threshold of no answer, if the run folder has one: `mallang evaluate` fits it on the dev set."""

    @property
    def threshold(self) -> float:
        """By how much no answer must be more probable than the best span for a question to have none."""
        fitted = None if self.calibration is None else self.calibration.thresholds
        return fitted[0] if fitted else 0.0

    def answer(self, question: str | Iterable[str], context: str | Iterable[str], *, nbest: int = 1) -> Any:
        """The answer to a question in its context, or to each of several; one context may serve for all."""
        if nbest < 1:
            raise UserError(f"nbest = {nbest} must be at least 1")
        questions = [question] if isinstance(question, str) else list(question)
        contexts = [context] * len(questions) if isinstance(context, str) else list(context)
        if len(questions) != len(contexts):
            raise UserError(
                f"there are {len(questions)} questions, but {len(contexts)} contexts", todo="give one context for each"
            )
        found = self.answer_all(questions, contexts, nbest)
        return found[0] if isinstance(question, str) else found

    def answer_all(self, questions: Sequence[str], contexts: Sequence[str], nbest: int = 1) -> list[Answered]:
        """The answer to every question."""
        known: dict[str, tuple[list[int], Offsets]] = {}
        pairs = list(zip(questions, contexts, strict=True))
        readings = [read(self.task, question, context, known) for question, context in pairs]
        scored = score_spans(self.task, self.model, readings)
        return [
            self.answered(*pair, *candidates(self.task, reading, pair[1], each, nbest), each)
            for pair, reading, each in zip(pairs, readings, scored, strict=True)
        ]

    def answered(
        self, question: str, context: str, found: Sequence[Candidate], nothing: float, scored: Scored
    ) -> Answered:
        """The answer out of the most probable spans."""
        if self.task.config.no_answer and scored.margin > self.threshold:
            return Answered(question, context, "", None, None, nothing, nothing, tuple(found))
        best = found[0]
        told = nothing if self.task.config.no_answer else None
        return Answered(question, context, best.text, best.start, best.end, best.probability, told, tuple(found))

    def attribution(self, texts: Any, *, method: Method = "integrated", label: str | None = None) -> Any:
        """How much every token of a (question, context), or of each in a list, adds to the score of the answer.

        `label` is another part of the context, letter by letter.
        """
        from mallang.tasks.answer_attribution import answer_attributions

        found = answer_attributions(self, [texts] if isinstance(texts, tuple) else list(texts), method, label)
        return found[0] if isinstance(texts, tuple) else found

    @property
    def evaluated(self) -> Evaluated:
        """What `evaluate` gives for each row."""
        return "answers"

    def evaluate(self, rows: Sequence[tuple[str, ...]], **options: Any) -> tuple[list[Score], list[str]]:
        """Exact match and F1 with intervals, and the answer to every question."""
        if options := {name: value for name, value in options.items() if value is not None}:
            raise UserError(f"{next(iter(options))} has no effect on answers", todo="leave it out")
        golds = gold_answers(self.task, rows)
        found = [each.answer for each in self.answer_all([row[0] for row in rows], [row[1] for row in rows])]
        return answer_scores(found, golds, self.task.config.scored_by), found

    def fit_calibration(self, rows: Sequence[tuple[str, ...]]) -> Calibration | None:
        """The threshold of no answer with the highest F1 on a dev set; none where every question has an answer."""
        if not self.task.config.no_answer:
            return None
        rules, golds = self.task.config.scored_by, gold_answers(self.task, rows)
        known: dict[str, tuple[list[int], Offsets]] = {}
        readings = [read(self.task, question, context, known) for question, context, _ in rows]
        scored = score_spans(self.task, self.model, readings)
        best = [
            candidates(self.task, reading, row[1], each, 1)[0][0].text
            for reading, row, each in zip(readings, rows, scored, strict=True)
        ]
        answered = np.array([answer_f1(text, gold, rules) for text, gold in zip(best, golds, strict=True)])
        silent = np.array([answer_f1("", gold, rules) for gold in golds])
        return Calibration(1.0, (best_threshold(np.array([each.margin for each in scored]), answered, silent),))


def gold_answers(task: Task, rows: Sequence[tuple[str, ...]]) -> list[list[str]]:
    """The gold answers of rows; one that is not in its context is refused with its row."""
    found = []
    for number, (_, context, cell) in enumerate(rows, start=1):
        try:
            found.append([answer.text for answer in locate(read_answers(cell), context)])
        except UserError as error:
            raise UserError(error.what, where=f"row {number}", todo=error.todo) from error
    return found


def validation_scores(task: Task, model: nn.Module, rows: Sequence[tuple[str, ...]]) -> list[Score]:
    """The loss per window, exact match and F1, without intervals; no answer is decided on with the threshold 0."""
    known: dict[str, tuple[list[int], Offsets]] = {}
    readings = [read(task, question, context, known) for question, context, _ in rows]
    golds, spans = gold_answers(task, rows), []
    for (_, context, cell), reading in zip(rows, readings, strict=True):
        answers = locate(read_answers(cell), context)
        spans.append([end for answer in answers for end in token_span(reading.offsets, answer.start or 0, answer.end)])
    scored = score_spans(task, model, readings, spans)
    verbs, outputs = Verbs(task, model, None, 0), []
    for (question, context, _), reading, each in zip(rows, readings, scored, strict=True):
        outputs.append(verbs.answered(question, context, *candidates(task, reading, context, each, 1), each).answer)
    windows = sum(each.windows for each in scored)
    signature = f"rules:{task.config.scored_by}|golds:best"
    exact, f1 = 100 * answer_table(outputs, golds, task.config.scored_by).mean(axis=0)
    return [
        Score("loss", sum(each.loss for each in scored) / max(1, windows), "nats per window", count=windows),
        Score("em", float(exact), signature, count=len(rows)),
        Score("f1", float(f1), signature, count=len(rows)),
    ]
