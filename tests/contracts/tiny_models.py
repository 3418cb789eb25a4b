"""Every model in its tiny size; the tasks and labeled texts that encoders and classifiers are tested on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn

from mallang.data.batch import Batch
from mallang.data.columns import LabelSet
from mallang.find import find, names
from mallang.models.contract import Classifier, Encoder, TripleScorer, is_fitted
from mallang.tasks import classification
from mallang.text.tokenizer import Config as TextConfig
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import SPECIALS, Vocabulary

NAMES = names("models")
FITTED = [name for name in NAMES if is_fitted(find("models", name))]
ENCODERS = [name for name in NAMES if issubclass(find("models", name).Model, Encoder)]
CLASSIFIERS = [name for name in NAMES if issubclass(find("models", name).Model, Classifier)]
CLASSES = ("bad", "fine", "good")
WORDS = 20
"""Words of the texts with labels, special tokens apart."""
Example = tuple[np.ndarray, ...]


def pictures(rows: Sequence[Sequence[int]]) -> torch.Tensor:
    """A tiny image for each row of ids, which follows from them alone."""
    random = (np.random.default_rng([len(row), *row]) for row in rows)
    return torch.from_numpy(np.stack([each.integers(0, 256, (12, 12, 3), np.uint8) for each in random]))


def vocabularies_of(module: ModuleType, vocabulary: Vocabulary) -> tuple[Any, ...]:
    """What the constructor of a model takes after its configuration."""
    if issubclass(module.Model, Classifier | TripleScorer):
        return vocabulary, len(CLASSES)
    return (vocabulary, vocabulary) if module.Model.reads_source else (vocabulary,)


def build(name: str, words: int, seed: int = 1) -> Any:
    """The tiny model of that name, ready to be asked."""
    module = find("models", name)
    vocabulary = Vocabulary((*SPECIALS, *(f"w{i}" for i in range(4, words))))
    torch.manual_seed(seed)
    return module.Model(module.Config(**module.SIZES["tiny"]), *vocabularies_of(module, vocabulary)).eval()


def reads_documents(name: str) -> bool:
    """Whether a model reads documents of sentences."""
    return bool(getattr(find("models", name).Model, "reads_sentences", False))


def task_of(name: str, **config: Any) -> classification.Task:
    """Classification as this model does it, with three classes."""
    text = " ".join(f"w{number}" for number in range(WORDS))
    tokenizer = Tokenizer.train([text], TextConfig(unit="space", vocabulary=len(SPECIALS) + WORDS))
    assert len(tokenizer.vocabulary) == len(SPECIALS) + WORDS
    given = classification.Config(documents=reads_documents(name), **config)
    return classification.Task(given, {"text": tokenizer}, {"label": LabelSet(CLASSES)})


def make(task: classification.Task, name: str, seed: int = 1) -> nn.Module:
    """The tiny model under the head that the task puts on it."""
    module = find("models", name)
    torch.manual_seed(seed)
    return task.build(module, module.Config(**module.SIZES["tiny"])).eval()


def examples_of(name: str, count: int, seed: int = 5) -> list[Example]:
    """Different texts of unequal length, one after the other of each class, the first of class 0."""
    random = np.random.default_rng(seed)
    found: dict[tuple[int, ...], Example] = {}
    while len(found) < count:
        ids = random.integers(len(SPECIALS), len(SPECIALS) + WORDS, random.integers(2, 9))
        label = np.array([len(found) % len(CLASSES)])
        starts = (np.arange(0, len(ids), 3),) if reads_documents(name) else ()
        found.setdefault(tuple(ids.tolist()), (ids, label, *starts))
    return list(found.values())


def with_padding(batch: Batch, filler: int) -> Batch:
    """The batch with another token in place of every padding token."""
    return replace(batch, tokens=batch.tokens.masked_fill(~batch.mask, filler))
