"""The verbs of a trained model that chooses: the right choice with the probability of each, and accuracy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from torch import nn

from mallang import notebook
from mallang.data.choices import Choices, check, read_choices
from mallang.decoding.contract import device_of, inference
from mallang.errors import UserError
from mallang.evaluation.calibration import log_softmax
from mallang.evaluation.classification import accuracy_statistics
from mallang.evaluation.score import Score
from mallang.tasks.attribution import Method
from mallang.tasks.contract import Evaluated

if TYPE_CHECKING:
    from mallang.tasks.multiple_choice import Example, Task

BATCH_TOKENS = 16_384
"""Padded tokens per batch of inference."""


@dataclass(frozen=True)
class Chosen:
    """The answer to a question with choices."""

    question: str
    choice: str
    """The text of the most probable choice."""
    name: str
    """Its label, or its letter."""
    number: int
    """Its place, from 0."""
    probability: float
    nbest: tuple[tuple[str, float], ...]
    """Every choice with its probability, the most probable first."""

    def __str__(self) -> str:
        return self.choice

    def _repr_html_(self) -> str:
        """In a notebook: the choice, the question, and the probability of every choice."""
        return notebook.block(self.choice, notebook.note(self.question), notebook.bars(self.nbest))


def choice_log_probs(task: Task, model: nn.Module, examples: Sequence[Example]) -> list[Float[np.ndarray, " choices"]]:
    """The log-probability of every choice of every question."""
    device, found = device_of(model), dict[int, np.ndarray]()
    with inference(model):
        for group, batch in task.batches(examples, BATCH_TOKENS):
            scores, _ = task.scores(model, batch.to(device))
            for place, own in zip(group, scores.cpu().numpy(), strict=True):
                found[place] = log_softmax(own[None, : len(examples[place][2])].astype(np.float64))[0]
    return [found[place] for place in range(len(examples))]


class Verbs:
    """A trained model that chooses."""

    task_name = "multiple_choice"
    verbs = ("choose", "evaluate")
    compared_by = ("accuracy",)

    def __init__(self, task: Task, model: Any, config: None, max_length: int) -> None:
        self.task, self.model, self.config, self.max_length = task, model, config, max_length

    @property
    def control(self) -> tuple[str, ...]:
        """The recipe values that make the control of this run, the same without the question; none: it is one."""
        return ("task.read=choices",) if self.task.config.read == "both" else ()

    def choose(self, question: str | Iterable[str], choices: Sequence[str] | Sequence[Sequence[str]]) -> Any:
        """The right one of the choices of a question; of several questions, each with its own choices."""
        if isinstance(question, str):
            return self.choose_all([question], [as_choices(choices)])[0]
        questions = list(question)
        if len(questions) != len(choices):
            raise UserError(
                f"there are {len(questions)} questions, but choices for {len(choices)}", todo="a list of each"
            )
        return self.choose_all(questions, [as_choices(each) for each in choices])

    def choose_all(self, questions: Sequence[str], choices: Sequence[Choices]) -> list[Chosen]:
        """The right choice of every question."""
        examples = self.examples(questions, choices)
        shares = choice_log_probs(self.task, self.model, examples) if examples else []
        return [chosen(*each) for each in zip(questions, choices, shares, strict=True)]

    def examples(self, questions: Sequence[str], choices: Sequence[Choices]) -> Sequence[Example]:
        """Questions without known answers."""
        return [self.example(*pair) for pair in zip(questions, choices, strict=True)]

    def example(self, question: str, choices: Choices) -> Example:
        """A question without a known answer."""
        if self.task.config.read == "both" and not question.strip():
            raise UserError("the question is empty", todo="give a question")
        (parts,) = self.task.choices.ids_of([choices.texts])
        starts = np.cumsum([0, *map(len, parts)])[:-1]
        ids = np.array([token for part in parts for token in part], dtype=np.int64)
        read = np.array(self.task.question.encode_batch([question])[0], dtype=np.int64)
        return read, ids, starts, np.zeros(0, dtype=np.int64)

    def attribution(self, texts: Any, *, method: Method = "integrated", label: str | None = None) -> Any:
        """How much every token of a (question, choice, choice, …), or of each in a list, adds to the score of a choice.

        It is the choice that the model takes, or the one that `label` names.
        """
        from mallang.tasks.choice_attribution import choice_attributions

        given = [(each[0], as_choices(each[1:])) for each in ([texts] if isinstance(texts, tuple) else texts)]
        found = choice_attributions(self, given, method, label)
        return found[0] if isinstance(texts, tuple) else found

    @property
    def evaluated(self) -> Evaluated:
        """What `evaluate` gives for each row."""
        return "choices"

    def evaluate(self, rows: Sequence[tuple[str, ...]], **options: Any) -> tuple[list[Score], list[str]]:
        """Accuracy with its interval, the NLL of the right choice, and what was chosen for every question."""
        if options := {name: value for name, value in options.items() if value is not None}:
            raise UserError(f"{next(iter(options))} has no effect on choices", todo="leave it out")
        choices, golds = [], []
        for number, (_, cell, answer) in enumerate(rows, start=1):
            try:
                choices.append(read_choices(cell))
                golds.append(choices[-1].number(answer))
            except UserError as error:
                raise UserError(error.what, where=f"row {number}", todo=error.todo) from error
        examples = self.examples([row[0] for row in rows], choices)
        shares = choice_log_probs(self.task, self.model, examples)
        found = [int(each.argmax()) for each in shares]
        accuracy = accuracy_statistics(found, golds)
        counts = sorted({len(each.texts) for each in choices})
        how = f"choices:{'-'.join(map(str, dict.fromkeys((counts[0], counts[-1]))))}|read:{self.task.config.read}"
        score = accuracy.score()
        nll = -float(np.mean([own[gold] for own, gold in zip(shares, golds, strict=True)]))
        named = [each.names[number] for each, number in zip(choices, found, strict=True)]
        whole = Score("accuracy", score.value, f"{how}|{score.signature}", score.low, score.high, score.count)
        return [whole, Score("NLL", nll, f"nats per question|{how}", count=len(rows))], named


def as_choices(given: Any) -> Choices:
    """Choices that were given in Python."""
    if isinstance(given, str):
        raise UserError("choices are a list of texts, not one text", todo='model.choose("…", ["bread", "a letter"])')
    found = Choices(tuple(given))
    check(found)
    return found


def chosen(question: str, choices: Choices, log_probs: Float[np.ndarray, " choices"]) -> Chosen:
    """The most probable choice, and all of them in order."""
    order = np.argsort(-log_probs, kind="stable").tolist()
    shares = np.exp(log_probs)
    nbest = tuple((choices.texts[place], float(shares[place])) for place in order)
    best = order[0]
    return Chosen(question, choices.texts[best], choices.names[best], best, float(shares[best]), nbest)


def validation_scores(task: Task, model: nn.Module, examples: Sequence[Example]) -> list[Score]:
    """The mean loss and the accuracy."""
    shares = choice_log_probs(task, model, examples)
    rights = [int(example[3][0]) for example in examples]
    loss = -float(np.mean([own[right] for own, right in zip(shares, rights, strict=True)]))
    accuracy = float(np.mean([own.argmax() == right for own, right in zip(shares, rights, strict=True)]))
    how = f"read:{task.config.read}"
    return [
        Score("loss", loss, f"nats per question|{how}", count=len(examples)),
        Score("accuracy", 100 * accuracy, how, count=len(examples)),
    ]
