"""The verbs of a trained classifier: labels with probabilities, vectors of texts, and scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float32, Shaped
from torch import nn

from mallang.decoding.contract import device_of, inference
from mallang.errors import UserError
from mallang.evaluation.score import Score
from mallang.layers.head import Headed
from mallang.models.contract import Encoder
from mallang.tasks.contract import Evaluated

if TYPE_CHECKING:
    from mallang.tasks.classification import Task

BATCH_TOKENS = 16_384
"""Padded tokens per batch of inference."""


@dataclass(frozen=True)
class Classification:
    """The label of a text, and the probability of every label."""

    input: str
    label: str
    """The predicted label; of several labels those above their thresholds, with `|` between."""
    probability: float
    """The probability of that label; of several, that each decision is right."""
    probabilities: dict[str, float]

    def __str__(self) -> str:
        return self.label


def predict(task: Task, model: nn.Module, examples: Sequence[Sequence[Any]]) -> Float32[np.ndarray, "examples outputs"]:
    """The logits of every example, in their order; texts of similar length share a batch."""
    device, found = device_of(model), dict[int, np.ndarray]()
    with inference(model):
        for group, batch in task.batches(examples, BATCH_TOKENS):
            logits, _ = task.logits(model, batch.to(device))
            found.update(zip(group, logits.float().cpu().numpy(), strict=True))
    return np.stack([found[place] for place in range(len(examples))])


def scores_of(
    task: Task, logits: Float32[np.ndarray, "examples outputs"], gold: Shaped[np.ndarray, examples * classes]
) -> list[Score]:
    """Loss, accuracy and macro F1 of predictions."""
    probabilities = task.probabilities(torch.from_numpy(logits)).numpy()
    if gold.ndim == 2:
        chosen = probabilities > 0.5
        own = np.where(gold > 0, probabilities, 1 - probabilities)
        loss = -np.log(np.clip(own, 1e-12, 1.0)).sum(axis=1).mean()
        right, counts = (
            (chosen == (gold > 0)).all(axis=1),
            [counts_of(chosen[:, k], gold[:, k] > 0) for k in cells(gold)],
        )
    else:
        best = task.decide(logits)
        loss = -np.log(np.clip(probabilities[np.arange(len(gold)), gold], 1e-12, 1.0)).mean()
        right, counts = best == gold, [counts_of(best == k, gold == k) for k in range(len(task.labels))]
    kind = f"kind:{task.config.kind}|classes:{len(task.labels)}"
    macro = float(np.mean([2 * both / max(1, said + real) for both, said, real in counts]))
    return [
        Score("loss", float(loss), f"nats per text|{kind}", count=len(gold)),
        Score("accuracy", 100 * float(right.mean()), kind, count=len(gold)),
        Score("macro_f1", 100 * macro, kind, count=len(gold)),
    ]


def cells(gold: Shaped[np.ndarray, "examples classes"]) -> range:
    """The numbers of the classes."""
    return range(gold.shape[1])


def counts_of(said: Any, real: Any) -> tuple[int, int, int]:
    """True positives, positives said, positives there are."""
    return int((said & real).sum()), int(said.sum()), int(real.sum())


class Verbs:
    """A trained classifier."""

    task_name = "classification"
    verbs = ("classify", "embed", "evaluate")
    compared_by = None

    def __init__(self, task: Task, model: Any, config: None, max_length: int) -> None:
        self.task, self.model, self.config, self.max_length = task, model, config, max_length

    def classify(self, texts: str | Iterable[str]) -> Any:
        """The label of a text, or of each, with probabilities."""
        alone = isinstance(texts, str)
        given = [texts] if isinstance(texts, str) else list(texts)
        found = self.classify_all(given) if given else []
        return found[0] if alone else found

    def classify_all(self, texts: Sequence[str]) -> list[Classification]:
        """The classification of every text."""
        logits = predict(self.task, self.model, self.examples(texts))
        probabilities = self.task.probabilities(torch.from_numpy(logits)).numpy()
        names, found = self.task.labels.names, []
        for text, row, scores in zip(texts, probabilities, logits, strict=True):
            if self.task.config.kind == "multi":
                label = "|".join(name for name, share in zip(names, row, strict=True) if share > 0.5)
                sure = float(np.prod(np.maximum(row, 1 - row)))
            else:
                best = int(self.task.decide(scores[None])[0])
                label, sure = names[best], float(row[best])
            found.append(Classification(text, label, sure, dict(zip(names, row.tolist(), strict=True))))
        return found

    def embed(self, texts: str | Iterable[str], *, words: bool = False) -> Float32[np.ndarray, "*texts dim"]:
        """The vector of a text before the head, or one row per text; with `words` the embeddings of words."""
        from mallang.tasks.embedding import text_vectors, word_vectors

        alone = isinstance(texts, str)
        given = [texts] if isinstance(texts, str) else list(texts)
        if words or not given or not isinstance(self.encoder, Encoder):
            found = (word_vectors if words else text_vectors)(self.encoder, self.task.text, given)
        else:
            found = self.vectors(given)
        return found[0] if alone else found

    @property
    def encoder(self) -> Any:
        """The model without its head."""
        return self.model.model if isinstance(self.model, Headed) else self.model

    def vectors(self, texts: Sequence[str]) -> Float32[np.ndarray, "texts dim"]:
        """The vector of each text, read as the classifier reads it: a document in sentences."""
        device, found = device_of(self.model), dict[int, np.ndarray]()
        with inference(self.model):
            for group, batch in self.task.batches(self.examples(texts), BATCH_TOKENS):
                pooled = self.task.encoded(self.encoder, batch.to(device)).pooled
                found.update(zip(group, pooled.float().cpu().numpy(), strict=True))
        return np.stack([found[place] for place in range(len(texts))])

    def examples(self, texts: Sequence[str]) -> list[tuple[Any, ...]]:
        """Texts as examples without a known label."""
        columns = [each for each in self.task.arrays() if each.place == 0]
        arrays = [[np.array(ids, dtype=np.int64) for ids in each.encoder.encode_batch(list(texts))] for each in columns]
        nothing = np.zeros(0 if self.task.config.kind == "multi" else 1, dtype=np.int64)
        return [(first, nothing, *others) for first, *others in zip(*arrays, strict=True)]

    @property
    def evaluated(self) -> Evaluated:
        """What `evaluate` gives for each row."""
        return "labels"

    def evaluate(self, rows: Sequence[tuple[str, ...]], **options: Any) -> tuple[list[Score], list[str]]:
        """All scores, and the label of every row."""
        if options := {name: value for name, value in options.items() if value is not None}:
            raise UserError(f"{next(iter(options))} has no effect on a classifier", todo="leave it out")
        examples = self.examples([text for text, _ in rows])
        gold = self.task.labels.encode_batch([label for _, label in rows])
        labeled = [(ids, np.array(label), *others) for (ids, _, *others), label in zip(examples, gold, strict=True)]
        scores = scores_of(self.task, predict(self.task, self.model, labeled), self.task.collate_labels(labeled))
        return scores, [each.label for each in self.classify_all([text for text, _ in rows])]
