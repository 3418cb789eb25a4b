"""Distillation of a classifier of pairs: a smaller student of NLI or paraphrases learns from a fine-tuned teacher.

    [given]
    teacher = "runs/bert-nli"

The losses and their weights are those of tasks/distilled_labels.py: predictions and labels of a pair, layers of its
tokens (TinyBERT, arXiv:1909.10351; DistilBERT, arXiv:1910.01108). The pair is read as one row, as the task pairs reads
it, by the student and by the teacher. The first stage, on plain texts, is the task distillation, from whose run this
one starts with --from.
"""

from __future__ import annotations

from dataclasses import dataclass

from mallang.data.prepared import Prepared
from mallang.tasks import pairs
from mallang.tasks.distilled_labels import Distilled, LabelLayerOptions
from mallang.tasks.pairs import DEFAULTS, FIRST, SECOND, SECTIONS

__all__ = ["DEFAULTS", "SECTIONS", "Config", "Task", "Verbs"]

STUDENT = "a distilled classifier of pairs"
"""What a student is called in messages."""


@dataclass(frozen=True, kw_only=True)
class Config(LabelLayerOptions, pairs.Config):
    """The losses and their weights, and the options of pairs."""

    def __post_init__(self) -> None:
        pairs.Config.__post_init__(self)
        if self.kind != "single" or self.both_orders or self.freeze:
            raise ValueError(
                f"{STUDENT} has one class per pair and reads it in one row: kind, both_orders and freeze cannot be set"
            )
        self.check_student(self, STUDENT)


class Task(Distilled, pairs.Task):
    """Learn p(label | first text, second text) from a teacher."""

    student = STUDENT
    teachers = ("pairs", "distilled_pairs")

    def widest(self, corpus: Prepared) -> int:
        """The tokens of the longest row that training reads."""
        return int(self.layout.widths(corpus.lengths[:, [FIRST, SECOND]]).max())

    def body_of(self, row: int) -> int:
        """The value of task.max_tokens for rows of so many tokens: it counts the special ones, too."""
        return row


class Verbs(pairs.Verbs):
    """A classifier of pairs that was distilled from another one."""

    task_name = "distilled_pairs"
