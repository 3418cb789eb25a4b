"""Objectives of pre-training on miniworld give an encoder that serves a task better than random weights do.

The encoder is frozen, so what counts is what it has learned from plain text: a linear layer over it tells the part of
speech of every word, from 50 labeled sentences, which hold few of the words. Beside it stands the same model with the
same tokenizer and random weights. Margins are about half of what one seed gave, or less.

Two are fine-tuned as a whole, as their papers do. Replaced tokens leave a last layer that says what was replaced and
little else: frozen it tells the part of speech worse than random weights (47 against 57), trained on it tells it better
(by 2.9, 0.6 and 1.7 points with three seeds). TinyBERT copies the layers of a teacher of twice as many (4.2, 2.5, 1.8).

Not among them: the sequence autoencoder of Dai and Le (2015), whose LSTM gave a classifier of sentiments nothing here
(65.0 against 64.8 with 300 labels, 76.4 against 77.4 with 1,000).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pytest

import mallang
from mallang import recipe as recipes
from mallang.data.corpus import Config, open_corpus
from mallang.training.train import Options, train

TEXT = (
    "data.corpus=miniworld-documents", 'data.columns=["en"]', "text.unit=word", "text.vocabulary=2000",
    "train.batch_tokens=1024", "train.workers=0", "train.threads=1", "train.epochs=none", "optimizer.max_grad_norm=1",
    "schedule.name=linear",
)  # fmt: skip
SMALL = (
    "model.layers=2", "model.dim=64", "model.heads=4", "model.max_length=128", "model.dropout=0",
    "model.attention_dropout=0",
)  # fmt: skip
LABELS = (
    "task.name=tagging", "task.freeze=true", "data.corpus=none", "data.max_length=0", "train.batch_tokens=512",
    "train.steps=200", "train.epochs=none", "train.validate_every=200", "train.final=last", "train.workers=0",
    "train.threads=1", "optimizer.learning_rate=0.01", "schedule.warmup=20", "schedule.name=linear",
)  # fmt: skip
COLUMNS, ROLES = ("en-tokens", "en-pos"), ("words", "tags")
ROWS = {"train": 50, "valid": 100, "test": 500}
MASKED = ("task.name=masked_lm", "task.length=64", "model.pretraining_heads=masked-lm")
POOLED = ("model.pretraining_heads=none", "model.pooling=mean", "model.pooler=false")
STUDENT = ("model.layers=1", "task.length=64", "model.pretraining_heads=masked-lm", "given.teacher=TEACHER")
WHOLE = ("task.freeze=false", "optimizer.learning_rate=0.001")
ELECTRA = (*SMALL, "model.embedding_dim=32")
NO_UPDATE = "optimizer.learning_rate=1e-30"


@dataclass(frozen=True)
class Objective:
    """What is learned from plain text, by which model, and how much better its tags have to be."""

    model: str
    pretraining: tuple[str, ...]
    fine_tuning: tuple[str, ...]
    margin: float
    """By how many points of accuracy."""
    steps: int = 300
    rate: float = 0.003


OBJECTIVES = {
    "causal": Objective("gpt", (*SMALL, "task.layout=packed", "task.context=64"), SMALL, 10.0),
    "MLM": Objective("bert", (*SMALL, *MASKED), (*SMALL, *POOLED), 2.0, steps=500),
    "MLM+NSP": Objective(
        "bert", (*SMALL, *MASKED, "task.pairs=next", "model.pretraining_heads=both"), (*SMALL, *POOLED), 2.0, steps=800
    ),
    "MLM+SOP": Objective(
        "bert", (*SMALL, *MASKED, "task.pairs=order", "model.pretraining_heads=both"), (*SMALL, *POOLED), 2.0, steps=800
    ),
    "biLM": Objective("elmo", ("model.size=tiny", "data.max_length=0"), ("model.size=tiny",), 15.0, rate=0.01),
    "DistilBERT": Objective(
        "distilbert", (*SMALL, "task.name=distillation", *STUDENT), (*SMALL, "model.layers=1", *POOLED[:2]), 2.0,
        steps=200,
    ),
    "RTD": Objective(
        "electra",
        (*ELECTRA, "task.name=replaced_token", "task.length=64", "model.generator_width=0.5",
         "model.pretraining_heads=both"),
        (*ELECTRA, "model.pretraining_heads=none", *WHOLE), 1.0, steps=2000, rate=0.001,
    ),
    "TinyBERT": Objective(
        "bert",
        (*SMALL, "task.name=distillation", *STUDENT, "task.initialize=random", "task.prediction_weight=0",
         "task.masked_lm_weight=0", "task.cosine_weight=0", "task.embedding_weight=1", "task.hidden_weight=1",
         "task.attention_weight=1"),
        (*SMALL, "model.layers=1", *POOLED, *WHOLE), 0.8, steps=400,
    ),
}  # fmt: skip


def pretrained(name: str, folder: Path, seed: int, *, learns: bool = True) -> Path:
    """The run of an objective, with its teacher if it has one; without learning it keeps its random weights."""
    objective = OBJECTIVES[name]
    values = [*TEXT, *objective.pretraining, f"seed={seed}"]
    if "given.teacher=TEACHER" in values:
        teacher = pretrained("MLM", folder / "teacher", seed)
        values[values.index("given.teacher=TEACHER")] = f"given.teacher={teacher}"
    steps = objective.steps if learns else 1
    values += [f"train.steps={steps}", f"train.validate_every={steps}", f"schedule.warmup={steps // 10}"]
    values += [f"optimizer.learning_rate={objective.rate}" if learns else NO_UPDATE]
    if not learns and any(value.startswith("given.teacher") for value in values):
        values.append("task.initialize=random")
    path = folder / ("learned" if learns else "random")
    if (path / "model.safetensors").exists():  # a teacher that was trained for the other student
        return path
    train(recipes.read(objective.model, values).build(), Options(folder=path, device="cpu", quiet=True))
    return path


def labeled(folder: Path) -> list[str]:
    """The first rows of miniworld with parts of speech, as files."""
    corpus, given = open_corpus(Config(corpus="miniworld", columns=list(COLUMNS)), ROLES), []
    for split, most in ROWS.items():
        rows = (dict(zip(ROLES, row, strict=True)) for row in islice(corpus.split(split), most))
        path = folder / f"{split}.jsonl"
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
        given.append(f"data.{split}={path}")
    return [*given, f"data.columns={json.dumps(list(ROLES))}"]


def accuracy(name: str, start: Path, folder: Path, seed: int) -> float:
    """The accuracy of tags with the encoder of a run."""
    folder.mkdir(parents=True)
    values = [*LABELS, *labeled(folder), *(value for value in TEXT if value.startswith("text."))]
    resolved = recipes.read(OBJECTIVES[name].model, [*values, *OBJECTIVES[name].fine_tuning, f"seed={seed}"])
    run = train(resolved.build(), Options(folder=folder / "run", device="cpu", quiet=True, start=start))
    rows = list(open_corpus(run.recipe().data, ROLES).split("test"))
    scores = {each.name: each.value for each in mallang.load(run.folder, device="cpu").evaluate(rows)[0]}
    return float(scores["tag accuracy"])


def gain(name: str, folder: Path, seed: int) -> tuple[float, float]:
    """The accuracy after pre-training, and with random weights."""
    found = [
        accuracy(name, pretrained(name, folder, seed, learns=learns), folder / f"tuned-{learns}", seed)
        for learns in (True, False)
    ]
    return found[0], found[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", OBJECTIVES)
def test_an_objective_improves_its_downstream_task(name: str, tmp_path: Path) -> None:
    learned, random = gain(name, tmp_path, seed=1)
    assert learned >= random + OBJECTIVES[name].margin, f"{learned:.1f} after pre-training, {random:.1f} without"
