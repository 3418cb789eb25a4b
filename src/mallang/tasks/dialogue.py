"""Dialogue: what is said goes in, an answer comes out. Learned from pairs, as translation is; each answer by itself.

A Neural Conversational Model. Vinyals, Le 2015, arXiv:1506.05869. The model reads one utterance and no more: what was
said before it is not known to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mallang.tasks import translation, translator
from mallang.tasks.translator import Text

__all__ = ["DEFAULTS", "VARIED", "Config", "Task", "Verbs"]

DEFAULTS = translation.DEFAULTS

VARIED = {"method": "sampling", "temperature": 0.5, "top_p": 0.9}
"""A search that gives another answer each time, and seldom an odd one."""


@dataclass(frozen=True, kw_only=True)
class Config(translation.Config):
    """What the loss asks for."""


class Task(translation.Task):
    """Learn p(answer | utterance): the source is what is said, the target what is answered."""


class Verbs(translator.Verbs):
    """A trained model that answers."""

    task_name = "dialogue"
    verbs = (*translator.Verbs.verbs, "reply")

    def reply(self, texts: Text | Iterable[Text], **options: Any) -> Any:
        """Answer one text or many; `**VARIED` draws answers at random, `seed=2` draws others.

        All options of `translate` have their meaning here.
        """
        return self.translate(texts, **options)
