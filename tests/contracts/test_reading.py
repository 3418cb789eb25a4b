"""What every encoder gets for nothing: question answering and multiple choice on it, or a refusal that says why.

The two recipes on miniworld learn in seconds: after a part of their training they must be better than rules that look
at no question, by MARGIN points.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from contracts.tiny_models import ENCODERS, NAMES
from mallang import load, recipe
from mallang.data.miniworld_choices import rows as choice_rows
from mallang.data.miniworld_questions import rows as question_rows
from mallang.errors import UserError
from mallang.evaluation.answers import answer_f1
from mallang.find import find
from mallang.models.contract import marks_of
from mallang.tasks import multiple_choice, question_answering
from mallang.text.tokenizer import Config as TextConfig
from mallang.text.tokenizer import Tokenizer
from mallang.training.train import Options, train

MARGIN = 20.0
"""Points above a rule that looks at no question."""
WITHOUT_TOKENS = ("autoencoder", "char_cnn", "kagnet")
"""Encoders without a vector for a single token."""
WORDS = " ".join(f"w{number}" for number in range(20))
TASKS = {"questions": question_answering, "choices": multiple_choice}
CELLS = [(kind, name) for kind in TASKS for name in ENCODERS if not (kind == "questions" and name in WITHOUT_TOKENS)]


def task_of(kind: str, name: str) -> Any:
    marks = marks_of(find("models", name).Model)
    tokenizer = Tokenizer.train([WORDS], TextConfig(unit="space"), special=marks)
    module = TASKS[kind]
    config = module.Config(window=32, stride=8) if kind == "questions" else module.Config()
    return module.Task(config, dict.fromkeys(module.Task.columns, tokenizer))


def model_of(task: Any, name: str) -> Any:
    module = find("models", name)
    torch.manual_seed(1)
    return task.build(module, module.Config(**module.SIZES["tiny"]))


def examples_of(kind: str) -> list[Any]:
    """Two examples of unequal length."""
    short, long, question = np.arange(8, 11), np.arange(8, 18), np.arange(18, 20)
    if kind == "questions":
        return [(question, short, (0, 1)), (question, long, (-1, -1))]
    return [
        (question, short, np.array([0, 1]), np.array([1])),
        (question, long, np.array([0, 3, 5]), np.array([0])),
    ]


def outputs(task: Any, model: Any, batch: Any) -> torch.Tensor:
    found, _ = task.logits(model, batch) if isinstance(task, question_answering.Task) else task.scores(model, batch)
    return found.detach()  # type: ignore[no-any-return]


@pytest.mark.parametrize(("kind", "name"), CELLS)
def test_every_encoder_learns_from_it_and_padding_changes_nothing(kind: str, name: str) -> None:
    task = task_of(kind, name)
    model, (short, long) = model_of(task, name), examples_of(kind)
    batch = task.collate([short, long])
    loss = task.loss(model.train(), batch, None)
    loss.sums["loss"].backward()
    gradients = {name: each.grad for name, each in model.head.named_parameters()}
    assert all(each is not None and each.isfinite().all() and each.any() for each in gradients.values())
    model.eval()
    alone, together = outputs(task, model, task.collate([short])), outputs(task, model, batch)[:1]
    fits = together[..., : alone.shape[-1]]
    assert torch.allclose(fits, alone, atol=1e-4) and (together[..., alone.shape[-1] :] < -1e30).all()


@pytest.mark.parametrize("kind", TASKS)
def test_all_others_are_refused(kind: str) -> None:
    for name in NAMES:
        if (kind, name) not in CELLS:
            with pytest.raises(UserError, match=f"^{name} (encodes no text|has no vector)") as caught:
                model_of(task_of(kind, "cnn"), name)
            assert "model.name=" in (caught.value.todo or "")


def trained(name: str, folder: Path, *changes: str) -> Any:
    values = [*changes, "train.validate_every=9999", "schedule.name=constant", "schedule.warmup=20"]
    built = recipe.read(name, values).build()
    return load(train(built, Options(folder=folder / "run", device="cpu", quiet=True)).folder, device="cpu")


def test_answers_are_better_than_a_statement_of_the_context(tmp_path: Path) -> None:
    rows = question_rows("test", 500)
    contexts, golds = [row[3] for row in rows], [[json.loads(row[5])[0]["text"]] for row in rows]
    rules = [[f"{context.split('. ')[place]}" for context in contexts] for place in range(3)]
    best = max(np.mean([answer_f1(*pair) for pair in zip(rule, golds, strict=True)]) for rule in rules)
    model = trained("bert-miniworld-questions", tmp_path, "train.epochs=none", "train.steps=110")
    scores, _ = model.evaluate([(row[4], row[3], row[5]) for row in rows])
    assert scores[1].name == "F1" and scores[1].value > 100 * best + MARGIN


def test_choices_are_better_than_the_most_probable_words(tmp_path: Path) -> None:
    """The rule knows how often each word is right where it is a choice, and looks at no question."""
    right, shown = Counter[str](), Counter[str]()
    for row in choice_rows("train", 4000):
        choices = json.loads(row[3])
        right[choices["ABCDE".index(row[4])]] += 1
        shown.update(choices)
    rows = choice_rows("test", 500)
    guesses = [max(json.loads(row[3]), key=lambda word: right[word] / max(1, shown[word])) for row in rows]
    golds = [json.loads(row[3])["ABCDE".index(row[4])] for row in rows]
    best = 100 * np.mean([guess == gold for guess, gold in zip(guesses, golds, strict=True)])
    model = trained("bert-miniworld-choices", tmp_path, "train.epochs=none", "train.steps=200")
    scores, _ = model.evaluate([(row[2], row[3], row[4]) for row in rows])
    assert scores[0].name == "accuracy" and scores[0].value > best + MARGIN, best
