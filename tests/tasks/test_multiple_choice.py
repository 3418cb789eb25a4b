"""Multiple choice: one head for every choice, any number of them, and the control that hides the question."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mallang.errors import UserError
from mallang.find import find
from mallang.loading import load
from mallang.recipe import read
from mallang.tasks.multiple_choice import Config, Task
from mallang.text.tokenizer import Config as TextConfig
from mallang.text.tokenizer import Tokenizer
from mallang.training.train import Options, train

WORDS = [f"w{number}" for number in range(12)]


def task_of(**config: Any) -> Task:
    tokenizer = Tokenizer.train([" ".join(WORDS)], TextConfig(unit="space"), special=("cls", "sep"))
    return Task(Config(**config), dict.fromkeys(("question", "choices"), tokenizer))


def example(task: Task, question: str, choices: list[str], right: int) -> Any:
    columns = [each.encoder for each in task.arrays()]
    cell = json.dumps(choices)
    rows = [encoder.encode_batch([text])[0] for encoder, text in zip(columns, (question, cell, cell), strict=False)]  # type: ignore[union-attr]
    return (*(np.array(row) for row in rows), np.array([right]))


def model_of(task: Task, name: str = "bert") -> Any:
    module = find("models", name)
    torch.manual_seed(1)
    return task.build(module, module.Config(**module.SIZES["tiny"])).eval()


def test_batches_by_hand() -> None:
    task = task_of()
    rows = [example(task, "w1 w2", ["w3", "w4 w5"], 1), example(task, "w6", ["w7", "w8", "w9"], 0)]
    batch = task.collate(rows)
    vocabulary = task.text.vocabulary
    cls, sep, pad = vocabulary.cls, vocabulary.sep, vocabulary.pad
    w = [vocabulary.ids[word] for word in WORDS]
    assert batch.tokens.tolist() == [
        [cls, w[1], w[2], sep, w[3], sep, pad],
        [cls, w[1], w[2], sep, w[4], w[5], sep],
        *([cls, w[6], sep, w[7 + k], sep, pad, pad] for k in range(3)),
    ]
    assert batch.choices is not None and batch.choices.tolist() == [[0, 1, -1], [2, 3, 4]]
    assert batch.classes is not None and batch.classes.tolist() == [1, 0]
    assert [task.size(row) for row in rows] == [(2, 7), (3, 5)]
    alone = task_of(read="choices").collate(rows)
    assert alone.tokens[:2].tolist() == [[cls, w[3], sep, pad], [cls, w[4], w[5], sep]] and alone.token_types is None


@pytest.mark.parametrize("name", ["bert", "rnn_classifier", "cnn"])
def test_the_loss_against_a_loop(name: str) -> None:
    """Every choice scored by itself; a softmax over the choices of each question, however many they are."""
    task = task_of()
    model = model_of(task, name)
    rows = [example(task, "w1 w2", ["w3", "w4 w5"], 1), example(task, "w6", ["w7", "w8", "w9"], 0)]
    expected = 0.0
    for question, choices, starts, right in rows:
        scores = []
        for part in np.split(choices, starts[1:]):
            single = task.collate([(question, part, np.zeros(1, dtype=np.int64), right[:0])])
            scores.append(float(task.scores(model, single)[0][0, 0].detach()))
        expected -= float(torch.tensor(scores).log_softmax(0)[int(right[0])])
    loss = task.loss(model, task.collate(rows), None)
    assert float(loss.sums["loss"].detach()) == pytest.approx(expected, abs=1e-4)


QUICK = ("task.name=multiple_choice", "text.unit=space", "train.workers=0", "model.size=tiny", "train.threads=1",
         "train.epochs=30", "optimizer.learning_rate=0.02", "schedule.name=constant", "train.precision=fp32",
         "train.batch_tokens=256")  # fmt: skip


def trained(folder: Path, *changes: str) -> Any:
    """A run that learns: the right choice goes with the question, w1 with w7, w2 with w8 …"""
    lines = []
    for number in range(60):
        first = 1 + number % 4
        wrong = [6 + (first + k) % 4 + 1 for k in range(1, 2 + number % 2 + 1)]
        choices = [f"w{first + 6}", *(f"w{each}" for each in wrong if each != first + 6)]
        choices = choices[number % len(choices) :] + choices[: number % len(choices)]
        lines.append({"question": f"w{first} w0", "choices": choices, "answer": f"w{first + 6}"})
    path = folder / "my.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    built = read("rnn_classifier", [*QUICK, f"data.train={path}", f"data.valid={path}", *changes]).build()
    return load(train(built, Options(folder=folder / "run", device="cpu", quiet=True)).folder, device="cpu")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return trained(tmp_path_factory.mktemp("choices"))


def test_it_learns_and_gives_the_probability_of_every_choice(model: Any) -> None:
    found = model.choose("w2 w0", ["w7", "w8", "w9"])
    assert (found.choice, found.name, found.number, str(found)) == ("w8", "B", 1, "w8")
    assert sum(share for _, share in found.nbest) == pytest.approx(1.0) and found.nbest[0] == ("w8", found.probability)
    several = model.choose(["w1 w0", "w4 w0"], [["w7", "w9"], ["w8", "w7", "w10"]])
    assert [each.choice for each in several] == ["w7", "w10"]
    scores, outputs = model.evaluate([("w1 w0", '["w7", "w9"]', "A"), ("w2 w0", '["w7", "w8"]', "w8")])
    assert outputs == ["A", "B"] and [each.name for each in scores] == ["accuracy", "NLL"]
    assert scores[0].value == 100.0 and scores[0].signature.startswith("choices:2|read:both|bs:")


def test_without_the_question_it_can_only_guess(tmp_path: Path) -> None:
    model = trained(tmp_path, "task.read=choices")
    one, other = (model.choose(question, ["w7", "w8"]) for question in ("w1 w0", "w2 w0"))
    assert one.nbest == other.nbest


def test_columns_of_choices_are_joined_by_plus_signs(tmp_path: Path) -> None:
    path = tmp_path / "my.csv"
    rows = [f"w{1 + n % 3},w{4 + n % 3},w{7 + n % 2},{n % 2}" for n in range(20)]
    path.write_text("\n".join(["asked,first,second,label", *rows]), "utf-8")
    columns = 'data.columns=["asked", "first+second", "label"]'
    built = read("rnn_classifier", [*QUICK, f"data.train={path}", f"data.valid={path}", columns, "train.epochs=1"])
    run = train(built.build(), Options(folder=tmp_path / "run", device="cpu", quiet=True))
    assert run.is_finished
    with pytest.raises(UserError, match="third"):
        read("rnn_classifier", [*QUICK, f"data.train={path}", columns.replace("second", "third")]).build()
        train(
            read(
                "rnn_classifier",
                [*QUICK, f"data.train={path}", f"data.valid={path}", columns.replace("second", "third")],
            ).build(),
            Options(folder=tmp_path / "other", device="cpu", quiet=True),
        )


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "w1", "choices": ["w1"], "answer": "A"}, "there are 1 choices"),
        ({"question": "w1", "choices": ["w1", "w2"], "answer": "C"}, "the answer 'C' is none of the 2 choices"),
    ],
)
def test_bad_rows_are_named(row: dict[str, Any], message: str, tmp_path: Path) -> None:
    good = {"question": "w1", "choices": ["w1", "w2"], "answer": "A"}
    path = tmp_path / "bad.jsonl"
    path.write_text("\n".join(map(json.dumps, [good, row])), "utf-8")
    built = read("rnn_classifier", [*QUICK, f"data.train={path}", f"data.valid={path}"]).build()
    with pytest.raises(UserError, match=message) as caught:
        train(built, Options(folder=tmp_path / "run", device="cpu", quiet=True))
    assert str(caught.value.where).endswith("bad.jsonl, row 2")


def test_what_cannot_be_chosen_from_is_refused(model: Any) -> None:
    for choices, message in ((["w1"], "1 choices"), ("w1 w2", "a list of texts"), (["w1", " "], "choice B is empty")):
        with pytest.raises(UserError, match=message):
            model.choose("w1", choices)
    with pytest.raises(UserError, match="the question is empty"):
        model.choose(" ", ["w1", "w2"])
    with pytest.raises(UserError, match="2 questions, but choices for 1"):
        model.choose(["w1", "w2"], [["w1", "w2"]])
    with pytest.raises(UserError, match="modern_gpt encodes no text"):
        model_of(task_of(), "modern_gpt")
