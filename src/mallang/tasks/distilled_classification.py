"""Distillation of a classifier: a smaller student learns from a fine-tuned teacher that is given, and from the labels.

    [given]
    teacher = "runs/bert-sst2"

The losses and their weights are those of tasks/distilled_labels.py.

This is the second stage of TinyBERT (Jiao et al. 2019, arXiv:1909.10351); its first one, on plain texts, is the task
distillation, from whose run this one starts with --from. The paper learns the layers first and the predictions after
that: task.prediction_weight=0, then --from that run with the other weights 0. The student has the teacher's tokenizer
and classes. Its run is complete without the teacher.
"""

from __future__ import annotations

from dataclasses import dataclass

from mallang.tasks import classification, classifier
from mallang.tasks.classification import DEFAULTS, SECTIONS
from mallang.tasks.distilled_labels import NO_EFFECT, Distilled, LabelLayerOptions

__all__ = ["DEFAULTS", "SECTIONS", "Config", "Task", "Verbs"]


@dataclass(frozen=True, kw_only=True)
class Config(LabelLayerOptions, classification.Config):
    """The losses and their weights, and the options of classification."""

    def __post_init__(self) -> None:
        classification.Config.__post_init__(self)
        if self.kind != "single" or self.documents or self.bag_buckets or self.freeze:
            raise ValueError(
                "a distilled classifier has one class per text and reads plain texts: kind, documents, bag_buckets and "
                "freeze cannot be set"
            )
        self.check_student(self, "a distilled classifier", (*NO_EFFECT, "lm_weight"))


class Task(Distilled):
    """Learn p(label | text) from a teacher."""

    config: Config
    teachers = ("classification", "distilled_classification")


class Verbs(classifier.Verbs):
    """A classifier that was distilled from another one."""

    task_name = "distilled_classification"
