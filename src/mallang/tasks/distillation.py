"""Distillation of a pre-trained encoder: a smaller student learns from a teacher that is given, on masked texts.

    [given]
    teacher = "runs/bert"

    prediction   T² · KL(teacher ‖ student) at temperature T      5   DistilBERT (arXiv:1910.01108)
    masked_lm    cross-entropy with the masked token              2
    cosine       1 − cos of the last hidden vectors               1
    embedding, hidden, attention                                  0   TinyBERT's first stage (arXiv:1909.10351): 1, 1, 1

The numbers are the default weights. Predictions are compared at the masked positions alone, where the paper compares
those of all tokens: it needs no logits of the vocabulary elsewhere. The teacher reads what the student reads.

The student has the teacher's tokenizer. Its run is complete without the teacher.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import nn

from mallang.data.batch import Batch
from mallang.data.masking import Masker
from mallang.data.passages import Documents
from mallang.data.prepared import Prepared
from mallang.data.sampler import by_length
from mallang.decoding.contract import device_of
from mallang.errors import UserError
from mallang.evaluation.score import Score
from mallang.layers.bidirectional import GivesLayers
from mallang.layers.head import masked_rows
from mallang.models.contract import TokenModel, longest_of
from mallang.runs.given import Given
from mallang.tasks import distilled_layers as distilled
from mallang.tasks import encoding, masked_lm
from mallang.tasks.contract import Better, Loss
from mallang.tasks.distilled_layers import PARTS, RECEIVES, SCAFFOLD, LayerOptions
from mallang.tasks.masked_scores import BATCH_TOKENS, SIGNATURE, masked_batch
from mallang.tasks.replaced_token import real_tokens
from mallang.text.tokenizer import Tokenizer

__all__ = ["DEFAULTS", "SECTIONS", "Config", "Task", "Verbs"]

SECTIONS = masked_lm.SECTIONS
"""Sections of a recipe that this task reads besides those of every recipe."""
DEFAULTS = masked_lm.DEFAULTS
"""Defaults of a recipe of this task."""


@dataclass(frozen=True, kw_only=True)
class Config(LayerOptions, masked_lm.Config):
    """The losses and their weights, and how texts are read and masked."""

    prediction_weight: float = 5.0
    """Weight of the divergence between the predictions of teacher and student for masked tokens."""
    masked_lm_weight: float = 2.0
    """Weight of the cross-entropy of the student with the masked tokens."""
    cosine_weight: float = 1.0
    """Weight of 1 − the cosine between the hidden vectors of the last layers."""
    temperature: float = 2.0
    """Temperature of the predictions that are compared."""
    initialize: Literal["random", "teacher"] = "teacher"
    """teacher: start from the teacher's embedding and from layers of it, evenly spaced from the first to the last."""

    def __post_init__(self) -> None:
        LayerOptions.__post_init__(self)
        masked_lm.Config.__post_init__(self)
        if self.pairs != "none":
            raise ValueError("pairs have no loss here: pairs = 'next' and 'order' are for the task masked_lm")


class Task(masked_lm.Task):
    """Learn to predict, and to encode, as the teacher does."""

    metrics: Mapping[str, Better] = {"loss": "lower"}
    config: Config

    def __init__(
        self, config: Config, tokenizers: Mapping[str, Tokenizer], given: Mapping[str, Given] | None = None
    ) -> None:
        super().__init__(config, tokenizers)
        self.teacher = distilled.check_teacher(given, "distillation") if given else None
        self.parts = distilled.weighted_parts(("prediction", "masked_lm", *PARTS), config)

    @classmethod
    def receives(cls) -> Mapping[str, str]:
        """The names of [given] that it accepts."""
        return RECEIVES

    @classmethod
    def learns_from(cls) -> str:
        """The given run that has the tokenizer, and serves training alone."""
        return "teacher"

    @classmethod
    def left_out(cls) -> str:
        """What the names of the weights begin with that a finished run leaves out."""
        return f"{SCAFFOLD}."

    @property
    def predicts(self) -> bool:
        """Whether logits are needed."""
        return bool(self.config.prediction_weight or self.config.masked_lm_weight)

    def build(self, model: ModuleType, config: Any) -> nn.Module:
        """The student, in training with its teacher."""
        name = model.__name__.rsplit(".", 1)[-1]
        if model.Model.reads_source or not issubclass(model.Model, GivesLayers):
            raise UserError(f"{name} gives no vectors between its layers", todo="model.name=distilbert, bert or albert")
        student: nn.Module = model.Model(config, self.text.vocabulary)
        if self.predicts and not isinstance(student, TokenModel):
            raise UserError(
                f"{name} predicts no masked tokens, so it cannot learn the teacher's predictions",
                todo="model.name=distilbert, or task.prediction_weight=0 task.masked_lm_weight=0",
            )
        if self.teacher is None:
            return student
        self.check_length(student)
        teacher = self.teacher.model
        distilled.check_length(self.teacher, self.config.length, f"task.length={longest_of(teacher)}")
        if self.config.prediction_weight and not isinstance(teacher, TokenModel):
            raise self.teacher.unfit(
                f"{type(teacher).__name__} predicts no masked tokens", todo="give the run of a bert"
            )
        if self.predicts:
            check_predictions(student)
        if self.config.prediction_weight:
            check_predictions(teacher)
        distilled.add_scaffold(student, student, teacher, self.config)
        return student

    def counts(self, batch: Batch) -> dict[str, int]:
        """Masked tokens for predictions, tokens for the losses between layers."""
        assert batch.masked is not None
        masked, tokens = int((batch.masked[:, 0] >= 0).sum()), int(real_tokens(batch).sum())
        found = {"prediction": masked, "masked_lm": masked, **dict.fromkeys(PARTS, tokens)}
        more = {f"mean_{name}": found[name] for name in self.parts}
        return {**{name: found[name] for name in self.parts}, **more, "tokens": tokens}

    def loss(self, model: Any, batch: Batch, carry: Any) -> Loss:
        """The weighted parts of the loss; unweighted ones are reported."""
        assert batch.masked is not None
        scaffold, config = model.get_submodule(SCAFFOLD), self.config
        with torch.no_grad():
            teacher = distilled.layers_of(scaffold.teacher.module, batch, config)
        student = distilled.layers_of(model, batch, config)
        found = distilled.layer_losses(student, teacher, scaffold, config, real_tokens(batch))
        if self.predicts:
            wanted = batch.masked[:, 2]
            logits = model.output(masked_rows(student.vectors[-1], batch.masked)).float()
            if config.masked_lm_weight:
                found["masked_lm"] = F.cross_entropy(logits, wanted, ignore_index=-1, reduction="sum")
            if config.prediction_weight:
                with torch.no_grad():
                    theirs = scaffold.teacher.module.output(masked_rows(teacher.vectors[-1], batch.masked))
                each = distilled.divergence(logits, theirs, config.temperature)
                found["prediction"] = torch.where(wanted >= 0, each, 0.0).sum()
        report = {f"mean_{name}": value.detach() for name, value in found.items()}
        return Loss(sums=distilled.weighted(found, config), report=report)

    def validate(self, model: nn.Module, corpus: Prepared, rows: Sequence[tuple[str, ...]], metric: str) -> list[Score]:
        """The mean of every part on held-out texts, always with the same masks, and their weighted sum."""
        passages, masker, device = self.passages(Documents.of(corpus), "none"), Masker(self.text), device_of(model)
        sums, counts = dict.fromkeys(self.parts, 0.0), dict.fromkeys(self.parts, 0)
        for group in by_length(self.lengths(passages).tolist(), BATCH_TOKENS):
            batch = masked_batch(masker, self.collate_texts([passages[number] for number in group]), group)
            found, here = self.loss(model, batch.to(device), None).sums, self.counts(batch)
            for name in self.parts:
                sums[name] += float(found[name])
                counts[name] += here[name]
        means = {name: sums[name] / max(1, counts[name]) for name in self.parts}
        signed = f"T:{self.config.temperature:g}|{SIGNATURE}"
        weights = {name: getattr(self.config, f"{name}_weight") for name in self.parts}
        loss = " + ".join(f"{weights[name]:g} {name}" for name in self.parts)
        parts = [Score(name, means[name] / weights[name], signed, count=counts[name]) for name in self.parts]
        return [Score("loss", sum(means.values()), f"{loss}|{signed}", count=max(counts.values())), *parts]


def check_predictions(model: Any) -> None:
    """Refuse a model that was built without the head that predicts masked tokens, before any work is done."""
    model.output(torch.zeros(1, model.encoder_dims().token, device=next(model.parameters()).device))


class Verbs(encoding.Verbs):
    """An encoder that was distilled from another one."""

    task_name = "distillation"
