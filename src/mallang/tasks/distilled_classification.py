"""Distillation of a classifier: a smaller student learns from a fine-tuned teacher that is given, and from the labels.

    [given]
    teacher = "runs/bert-sst2"

    prediction   T² · cross-entropy with the teacher's probabilities at temperature T      1
    label        cross-entropy with the gold label                                         0
    hidden, attention, embedding, cosine     between layers (tasks/distilled_layers.py)    1, 1, 0, 0

This is the second stage of TinyBERT (Jiao et al. 2019, arXiv:1909.10351); its first one, on plain texts, is the task
distillation, from whose run this one starts with --from. The paper learns the layers first and the predictions after
that: task.prediction_weight=0, then --from that run with the other weights 0. The student has the teacher's tokenizer
and classes. Its run is complete without the teacher.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.data.columns import LabelSet
from mallang.errors import UserError
from mallang.layers.bidirectional import GivesLayers
from mallang.layers.frozen import Frozen
from mallang.layers.head import ClassificationHead, Headed
from mallang.runs.given import Given
from mallang.tasks import classification, classifier
from mallang.tasks import distilled_layers as distilled
from mallang.tasks.classification import DEFAULTS, SECTIONS, is_labeled
from mallang.tasks.contract import Loss
from mallang.tasks.distilled_layers import PARTS, RECEIVES, SCAFFOLD, LayerOptions, Layers
from mallang.text.tokenizer import Tokenizer

__all__ = ["DEFAULTS", "SECTIONS", "Config", "Task", "Verbs"]

CLASSIFYING = ("classification", "distilled_classification")
"""The tasks whose runs may be a teacher."""


@dataclass(frozen=True, kw_only=True)
class Config(LayerOptions, classification.Config):
    """The losses and their weights, and the options of classification."""

    prediction_weight: float = 1.0
    """Weight of the cross-entropy with the teacher's probabilities."""
    label_weight: float = 0.0
    """Weight of the cross-entropy with the gold labels."""
    hidden_weight: float = 1.0
    """Weight of the distance between the hidden vectors of mapped layers (TinyBERT)."""
    attention_weight: float = 1.0
    """Weight of the distance between the attention scores of mapped layers (TinyBERT)."""

    def __post_init__(self) -> None:
        LayerOptions.__post_init__(self)
        classification.Config.__post_init__(self)
        if self.kind != "single" or self.documents or self.bag_buckets or self.freeze:
            raise ValueError(
                "a distilled classifier has one class per text and reads plain texts: kind, documents, bag_buckets and "
                "freeze cannot be set"
            )
        for name in ("mix_layers", "r_drop", "lora_rank", "lm_weight", "features_mix"):
            if getattr(self, name):
                raise ValueError(f"{name} has no effect on a distilled classifier, which has the losses of its teacher")
        if (self.class_weights != "none" or self.label_smoothing) and not self.label_weight:
            raise ValueError("class_weights and label_smoothing have no effect without label_weight")


class Task(classification.Task):
    """Learn p(label | text) from a teacher."""

    config: Config

    def __init__(
        self,
        config: Config,
        tokenizers: Mapping[str, Tokenizer],
        labels: Mapping[str, LabelSet],
        given: Mapping[str, Given] | None = None,
    ) -> None:
        super().__init__(config, tokenizers, labels)
        self.teacher = distilled.check_teacher(given, "a distilled classifier") if given else None
        self.parts = distilled.weighted_parts(("prediction", "label", *PARTS), config)

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

    def build(self, model: ModuleType, config: Any) -> nn.Module:
        """The student under a head, in training with its teacher."""
        whole = super().build(model, config)
        if self.teacher is None:
            return whole
        if not isinstance(whole, Headed):
            raise UserError(
                f"{model.__name__.rsplit('.', 1)[-1]} is a classifier as a whole, without layers to distill into",
                todo="model.name=distilbert, bert, albert or electra",
            )
        teacher = self.teacher_head()
        distilled.add_scaffold(whole, whole.model, self.teacher.model, self.config)
        whole.get_submodule(SCAFFOLD).add_module("teacher_head", Frozen(teacher))
        return whole

    def teacher_head(self) -> ClassificationHead:
        """The head of the teacher, which must be one of classes alone, and of the same ones."""
        assert self.teacher is not None
        weights = self.teacher.head
        if set(weights) != {"linear.weight", "linear.bias"} or self.teacher.task not in CLASSIFYING:
            raise self.teacher.unfit(
                "it is no classifier with one class per text and nothing but a linear head",
                todo="give a run of the task classification with task.kind=single",
            )
        theirs = LabelSet.load(self.teacher.folder, "label").names
        if theirs != self.labels.names:
            raise self.teacher.unfit(
                f"its classes are {', '.join(theirs)}, but those of the training texts are "
                f"{', '.join(self.labels.names)}",
                todo="give a teacher of the same classes",
            )
        head = ClassificationHead(weights["linear.weight"].shape[1], len(theirs))
        if not head.linear.weight.is_meta:  # where memory is only counted
            head.load_state_dict(dict(weights))
        return head

    def counts(self, batch: Batch) -> dict[str, int]:
        """Texts for predictions, tokens for the losses between layers."""
        texts, tokens = int(is_labeled(batch).sum()), int(self.real(batch).sum())
        found = {"prediction": texts, "label": texts, **dict.fromkeys(PARTS, tokens)}
        more = {f"mean_{name}": found[name] for name in self.parts}
        parts = {name: found[name] for name in self.parts}
        return {**parts, **more, "accuracy": texts, "agreement": texts, "tokens": tokens}

    def real(self, batch: Batch) -> Tensor:
        """All tokens but padding and the rows that fill up a batch."""
        return batch.mask & is_labeled(batch)[:, None]

    def loss(self, model: Any, batch: Batch, carry: Any) -> Loss:
        """The weighted parts of the loss; unweighted ones are reported, with right texts and those of one opinion."""
        scaffold, config = model.get_submodule(SCAFFOLD), self.config
        with torch.no_grad():
            teacher = distilled.layers_of(scaffold.teacher.module, batch, config)
            theirs = logits_of(scaffold.teacher.module, scaffold.teacher_head.module, teacher, batch)
        student = distilled.layers_of(model.model, batch, config)
        found = distilled.layer_losses(student, teacher, scaffold, config, self.real(batch))
        logits, asked = logits_of(model.model, model.head, student, batch), is_labeled(batch)
        losses, right = self.losses(logits, batch)
        if config.prediction_weight:
            each = config.temperature**2 * distilled.soft_cross_entropy(logits, theirs, config.temperature)
            found["prediction"] = torch.where(asked, each, 0.0).sum()
        if config.label_weight:
            found["label"] = losses.sum()
        report = {f"mean_{name}": value.detach() for name, value in found.items()}
        agreed = (asked & (logits.argmax(dim=1) == theirs.argmax(dim=1))).sum()
        return Loss(
            sums=distilled.weighted(found, config), report={**report, "accuracy": right.sum(), "agreement": agreed}
        )


def logits_of(model: GivesLayers, head: nn.Module, layers: Layers, batch: Batch) -> Float[Tensor, "batch classes"]:
    """The logits of a head over what its model computed."""
    logits: Tensor = head(model.text_vector(layers.vectors[-1], batch.mask))
    return logits.float()


class Verbs(classifier.Verbs):
    """A classifier that was distilled from another one."""

    task_name = "distilled_classification"
