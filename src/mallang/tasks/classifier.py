"""The verbs of a trained classifier: labels with probabilities, vectors of texts, and scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float32, Shaped
from torch import nn

from mallang import notebook
from mallang.data.batch import Batch
from mallang.data.columns import ColumnEncoder
from mallang.decoding.contract import device_of, inference
from mallang.errors import UserError
from mallang.evaluation.label_predictions import (
    Calibration,
    LabelPredictions,
    Thresholds,
    label_scores,
    probability_scores,
)
from mallang.evaluation.score import Score
from mallang.layers.head import Headed
from mallang.models.contract import Encoder
from mallang.tasks.attribution import Method
from mallang.tasks.contract import Evaluated
from mallang.tasks.text_windows import TextWindows, mean_of_windows, mean_vectors

if TYPE_CHECKING:
    from mallang.tasks.classification import Task

BATCH_TOKENS = {"cpu": 1024, "cuda": 16_384}
"""Padded tokens per batch of inference: on a CPU few, so that the hidden vectors of a batch stay in its cache."""


@dataclass(frozen=True)
class Classification:
    """The label of a text, or of a pair of texts, and the probability of every label."""

    input: Any
    """The text; where pairs are classified, both."""
    label: str
    """The predicted label; of several labels those above their thresholds, with `|` between."""
    probability: float
    """The probability of that label; of several, that each decision is right."""
    probabilities: dict[str, float]

    def __str__(self) -> str:
        return self.label

    def _repr_html_(self) -> str:
        """In a notebook: the label, the text, and the probability of every label."""
        ordered = sorted(self.probabilities.items(), key=lambda pair: -pair[1])
        given = self.input if isinstance(self.input, str) else " ↔ ".join(map(str, self.input))
        return notebook.block(self.label, notebook.note(given), notebook.bars(ordered))


def batch_tokens(device: torch.device) -> int:
    """The padded tokens of a batch on a device."""
    return BATCH_TOKENS.get(device.type, BATCH_TOKENS["cpu"])


def predict(task: Task, model: nn.Module, examples: Sequence[Sequence[Any]]) -> Float32[np.ndarray, "examples outputs"]:
    """The logits of every example, in their order, of a long text the mean over its windows."""
    parts, counts = task.in_windows(examples)
    logits = by_batch(task, model, parts, lambda batch: task.logits(model, batch)[0])
    return logits if len(counts) == len(logits) else mean_of_windows(logits, counts)


def by_batch(
    task: Task, model: nn.Module, examples: Sequence[Sequence[Any]], run: Callable[[Batch], Any]
) -> Float32[np.ndarray, "examples outputs"]:
    """The rows that a model gives for examples, in their order; texts of similar length share a batch."""
    device, found = device_of(model), dict[int, np.ndarray]()
    with inference(model):
        for group, batch in task.batches(examples, batch_tokens(device)):
            found.update(zip(group, run(batch.to(device)).float().cpu().numpy(), strict=True))
    return np.stack([found[place] for place in range(len(examples))])


def scores_of(
    task: Task, logits: Float32[np.ndarray, "examples outputs"], gold: Shaped[np.ndarray, examples * classes]
) -> list[Score]:
    """Loss, accuracy and macro F1 of predictions, for validation."""
    found = LabelPredictions(task.config.kind, task.labels.names, logits, gold)
    outputs, shares = found.outputs(), found.probabilities()
    if gold.ndim == 2:
        own, right = np.where(gold > 0, shares, 1 - shares), (outputs == (gold > 0)).all(axis=1)
        counts = [counts_of(outputs[:, k], gold[:, k] > 0) for k in range(len(task.labels))]
    else:
        own, right = shares[np.arange(len(gold)), gold][:, None], outputs == gold
        counts = [counts_of(outputs == k, gold == k) for k in range(len(task.labels))]
    loss = -np.log(np.clip(own, 1e-12, 1.0)).sum(axis=1).mean()
    kind = f"kind:{task.config.kind}|classes:{len(task.labels)}"
    macro = float(np.mean([2 * both / max(1, said + real) for both, said, real in counts]))
    return [
        Score("loss", float(loss), f"nats per text|{kind}", count=len(gold)),
        Score("accuracy", 100 * float(right.mean()), kind, count=len(gold)),
        Score("macro_f1", 100 * macro, kind, count=len(gold)),
    ]


def counts_of(said: Any, real: Any) -> tuple[int, int, int]:
    """True positives, positives said, positives there are."""
    return int((said & real).sum()), int(said.sum()), int(real.sum())


class Verbs:
    """A trained classifier."""

    task_name = "classification"
    verbs: ClassVar[tuple[str, ...]] = ("classify", "embed", "evaluate")
    compared_by = ("accuracy", "micro F1")

    def __init__(self, task: Task, model: Any, config: None, max_length: int) -> None:
        self.task, self.model, self.config, self.max_length = task, model, config, max_length
        self.calibration: Calibration | None = None
        """What was fitted on the dev set, if the run folder has it: `mallang evaluate` does that."""

    def classify(self, texts: str | Iterable[str], *, calibrated: bool = True, fitted_thresholds: bool = False) -> Any:
        """The label of a text, or of each, with probabilities.

        These are calibrated if the run has a temperature; labels are the same without. With `fitted_thresholds` several
        labels are decided on by the thresholds that were fitted with it, and not by 0.5.
        """
        given = [texts] if isinstance(texts, str) else list(texts)
        found = self.classify_given(given, calibrated=calibrated, fitted_thresholds=fitted_thresholds)
        return found[0] if isinstance(texts, str) else found

    def classify_given(
        self, given: Sequence[Any], *, calibrated: bool, fitted_thresholds: bool
    ) -> list[Classification]:
        """The label of each text, with what `evaluate` has fitted where that is asked for."""
        temperature = self.calibration.temperature if calibrated and self.calibration is not None else 1.0
        thresholds = self.thresholds() if fitted_thresholds else None
        return self.classify_all(given, temperature, thresholds) if given else []

    def classify_all(
        self, texts: Sequence[Any], temperature: float = 1.0, thresholds: Thresholds | None = None
    ) -> list[Classification]:
        """The classification of every text."""
        found = self.predictions(texts)
        rows = zip(
            texts,
            found.labels(found.outputs(thresholds)),
            found.confidence(temperature, thresholds).tolist(),
            found.probabilities(temperature).tolist(),
            strict=True,
        )
        return [
            Classification(text, label, sure, dict(zip(found.names, shares, strict=True)))
            for text, label, sure, shares in rows
        ]

    def thresholds(self) -> Thresholds:
        """The fitted thresholds of several labels."""
        if self.task.config.kind != "multi":
            raise UserError("thresholds are for runs with several labels per text", todo="leave them out")
        found = None if self.calibration is None else self.calibration.array()
        if found is None:
            raise UserError(
                "this run has no fitted thresholds",
                todo="`mallang evaluate RUN` fits them on the dev set, for float32 weights",
            )
        return found

    def predictions(self, texts: Sequence[Any], golds: Sequence[str] | None = None) -> LabelPredictions:
        """The logits of texts, beside their gold labels where these are given."""
        examples = self.examples(texts)
        known = None if golds is None else self.gold_labels(golds)
        return LabelPredictions(
            self.task.config.kind, self.task.labels.names, predict(self.task, self.model, examples), known
        )

    def gold_labels(self, golds: Sequence[str]) -> Shaped[np.ndarray, ...]:
        """Labels as numbers; one that is missing or that training did not see is refused with its row."""
        labels, numbers = self.task.labels, []
        for number, gold in enumerate(golds, start=1):
            if labels.kind == "label" and not gold.strip():
                raise UserError("there is no label", where=f"row {number}", todo="label the row, or leave it out")
            try:
                numbers.append(np.array(labels.encode_batch([gold])[0], dtype=np.int64))
            except UserError as error:
                todo = error.todo
                if number == 1 and gold.isidentifier():
                    todo = f"{todo}; if this line is a header, name its columns: --columns TEXT,LABEL"
                raise UserError(error.what, where=f"row {number}", todo=todo) from error
        (field,) = self.task.label_fields(numbers).values()
        return field.long().numpy()

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

    def attribution(
        self, texts: str | Iterable[str], *, method: Method = "integrated", label: str | None = None
    ) -> Any:
        """How much every token of a text, or of each, adds to the logit of a label: of the predicted one by default.

        `method` is "gradient" (gradient × input) or "integrated" (integrated gradients).
        """
        from mallang.tasks.class_attribution import attributions

        given = [texts] if isinstance(texts, str) else list(texts)
        found = attributions(self, given, method, label)
        return found[0] if isinstance(texts, str) else found

    @property
    def encoder(self) -> Any:
        """The model without its head."""
        return self.model.model if isinstance(self.model, Headed) else self.model

    def vectors(self, texts: Sequence[Any]) -> Float32[np.ndarray, "texts dim"]:
        """The vector of each text, read as the classifier reads it: a document in sentences, a long text in windows."""
        parts, counts = self.task.in_windows(self.examples(texts))
        found = by_batch(self.task, self.model, parts, lambda batch: self.task.encoded(self.encoder, batch).pooled)
        return mean_vectors(found, counts)

    @property
    def windows(self) -> TextWindows:
        """How texts are read that are longer than the model's positions."""
        return self.task.windows

    @windows.setter
    def windows(self, windows: TextWindows) -> None:
        self.task.windows = windows

    def note_long(self, texts: Sequence[Any]) -> str:
        """A sentence about the texts that are longer than a window; empty where none is."""
        return self.windows.note([len(each[0]) for each in self.examples(texts)]) if self.windows.most else ""

    def examples(self, texts: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Texts as examples without a known label."""
        encoders = [each.encoder for each in self.task.arrays() if each.place == 0]
        known = [each.encode_batch(list(texts)) for each in encoders if isinstance(each, ColumnEncoder)]
        arrays = [[np.array(ids, dtype=np.int64) for ids in rows] for rows in known]
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
        found = self.predictions([text for text, _ in rows], [label for _, label in rows])
        return [*label_scores(found), *probability_scores(found)], found.labels(found.outputs())
