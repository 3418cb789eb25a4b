"""Dialogue: an utterance in, a reply out; trained on pairs as translation is, without a dialogue history.

A Neural Conversational Model. Vinyals, Le 2015, arXiv:1506.05869. The model reads one utterance and no earlier turns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mallang.tasks import translation, translator
from mallang.tasks.translator import Text

__all__ = ["DEFAULTS", "SECTIONS", "VARIED", "Config", "Task", "Verbs"]

SECTIONS = ("decoding",)
"""Sections of a recipe that this task reads besides those of every recipe."""
DEFAULTS = translation.DEFAULTS

VARIED = {"method": "sampling", "temperature": 0.5, "top_p": 0.9}
"""Sampling options for varied replies, with few odd ones."""


@dataclass(frozen=True, kw_only=True)
class Config(translation.Config):
    """The loss."""


class Task(translation.Task):
    """Learn p(reply | utterance): the source is the utterance, the target the reply."""


class Verbs(translator.Verbs):
    """A trained model that replies."""

    task_name = "dialogue"
    verbs = ("reply", *(verb for verb in translator.Verbs.verbs if verb != "translate"))

    def reply(self, texts: Text | Iterable[Text], **options: Any) -> Any:
        """Reply to one text or many; `**VARIED` samples the replies, `seed=2` samples others.

        All options of `translate` apply.
        """
        return self.translate(texts, **options)
