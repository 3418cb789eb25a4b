"""Distillation of what labels texts: the losses that a student of texts and a student of pairs of texts share.

    prediction   T² · cross-entropy with the teacher's probabilities at temperature T      1
    label        cross-entropy with the gold label                                         0
    hidden, attention, embedding, cosine     between layers (tasks/distilled_layers.py)    1, 1, 0, 0

The numbers are the default weights. The teacher reads the batch of the student, so a pair is joined as the student's
task joins it. The student has the teacher's tokenizer and classes, and its run is complete without the teacher.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.data.columns import LabelSet
from mallang.data.prepared import Prepared
from mallang.data.sampler import Rows
from mallang.errors import UserError
from mallang.layers.bidirectional import GivesLayers
from mallang.layers.frozen import Frozen
from mallang.layers.head import ClassificationHead, Headed
from mallang.models.contract import longest_of
from mallang.runs.given import Given
from mallang.tasks import classification
from mallang.tasks import distilled_layers as distilled
from mallang.tasks.classification import is_labeled
from mallang.tasks.classification_options import LabelOptions
from mallang.tasks.contract import Loss
from mallang.tasks.distilled_layers import PARTS, RECEIVES, SCAFFOLD, LayerOptions, Layers
from mallang.text.tokenizer import Tokenizer

NO_EFFECT = ("mix_layers", "r_drop", "lora_rank", "features_mix")
"""Options of tasks of labels about what a student does not have."""


@dataclass(frozen=True, kw_only=True)
class LabelLayerOptions(LayerOptions):
    """The losses of a student that labels, and their weights."""

    prediction_weight: float = 1.0
    """Weight of the cross-entropy with the teacher's probabilities."""
    label_weight: float = 0.0
    """Weight of the cross-entropy with the gold labels."""
    hidden_weight: float = 1.0
    """Weight of the distance between the hidden vectors of mapped layers (TinyBERT)."""
    attention_weight: float = 1.0
    """Weight of the distance between the attention scores of mapped layers (TinyBERT)."""

    def check_student(self, whole: LabelOptions, what: str, names: Sequence[str] = NO_EFFECT) -> None:
        """Refuse the options of these names, of the whole configuration, that a student does not have."""
        LayerOptions.__post_init__(self)
        for name in names:
            if getattr(whole, name):
                raise ValueError(f"{name} has no effect on {what}, which has the losses of its teacher")
        if not self.label_weight and (whole.label_smoothing or whole.class_weights != "none"):
            raise ValueError("class_weights and label_smoothing have no effect without label_weight")


class Distilled(classification.Task):
    """A task of labels whose model learns from a teacher; it stands before the task itself among the bases."""

    student = "a distilled classifier"
    """What a student is called in messages."""
    teachers: tuple[str, ...]
    """The tasks whose runs may be a teacher; the first one is named in messages."""

    def __init__(
        self,
        config: Any,
        tokenizers: Mapping[str, Tokenizer],
        labels: Mapping[str, LabelSet],
        given: Mapping[str, Given] | None = None,
    ) -> None:
        super().__init__(config, tokenizers, labels)
        self.distillation: LabelLayerOptions = config
        self.teacher = distilled.check_teacher(given, self.student) if given else None
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
        distilled.add_scaffold(whole, whole.model, self.teacher.model, self.distillation)
        whole.get_submodule(SCAFFOLD).add_module("teacher_head", Frozen(teacher))
        return whole

    def teacher_head(self) -> ClassificationHead:
        """The head of the teacher, which must be one of classes alone, and of the same ones."""
        assert self.teacher is not None
        weights = self.teacher.head
        if set(weights) != {"linear.weight", "linear.bias"} or self.teacher.task not in self.teachers:
            raise self.teacher.unfit(
                "it is no classifier with one class per text and nothing but a linear head",
                todo=f"give a run of the task {self.teachers[0]} with task.kind=single",
            )
        theirs = LabelSet.load(self.teacher.folder, "label").names
        if theirs != self.labels.names:
            raise self.teacher.unfit(
                f"its classes are {', '.join(theirs)}, but those of the training rows are "
                f"{', '.join(self.labels.names)}",
                todo="give a teacher of the same classes",
            )
        head = ClassificationHead(weights["linear.weight"].shape[1], len(theirs))
        if not head.linear.weight.is_meta:  # where memory is only counted
            head.load_state_dict(dict(weights))
        return head

    def plan(self, corpus: Prepared, **options: Any) -> Sequence[Rows]:
        """The batches of an epoch, after a look at whether the teacher can read all of them."""
        if self.teacher is not None and len(corpus):
            most = longest_of(self.teacher.model) or 0
            distilled.check_length(self.teacher, self.widest(corpus), f"task.max_tokens={self.body_of(most)}")
        return super().plan(corpus, **options)

    def widest(self, corpus: Prepared) -> int:
        """The tokens of the longest row that training reads."""
        return int(self.windows.widths(corpus.lengths[:, 0]).max()) + self.text.vocabulary.frame_length

    def body_of(self, row: int) -> int:
        """The value of task.max_tokens for rows of so many tokens."""
        return row - self.text.vocabulary.frame_length

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
        scaffold, config = model.get_submodule(SCAFFOLD), self.distillation
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
