"""Backward language modeling: predict each token from all tokens after it.

It is trained like any language model, on lines whose tokens are reversed, and learns p(token | the tokens after it). It
generates no text. It is one half of a bidirectional encoder: a forward and a backward model are trained separately, and
their hidden states are concatenated for every token and layer, so that they hold both contexts (Schuster and Paliwal
1997, Bidirectional Recurrent Neural Networks; as features: Peters et al. 2018, ELMo, arXiv:1802.05365).

    mallang embed runs/forward --tokens --join runs/backward "나는 학교에 간다." --json
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from mallang.data.batch import Batch
from mallang.data.streams import lines_batch
from mallang.tasks import language_modeling
from mallang.tasks.embedding import text_vectors, word_vectors

__all__ = ["DEFAULTS", "SECTIONS", "Config", "Task", "Verbs"]

SECTIONS = ("decoding",)
"""Sections of a recipe that this task reads besides those of every recipe."""
DEFAULTS: dict[str, dict[str, Any]] = {}
"""Defaults of a recipe of this task."""


@dataclass(frozen=True, kw_only=True)
class Config(language_modeling.Config):
    """How text is laid out in batches: every line by itself."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layout != "sentences" or self.stride is not None:
            raise ValueError("a backward language model reads each line by itself: layout = 'sentences', no stride")


class Task(language_modeling.Task):
    """Learn p(token | all tokens after it) from lines."""

    backward = True

    def prepare(self, rows: list[tuple[Any, ...]], random: np.random.Generator) -> Batch:
        """Inputs are `<s>` and the reversed words; labels are the reversed words and `</s>`."""
        return lines_batch([line[::-1] for ((line,),) in rows])


class Verbs:
    """A trained backward model: it embeds texts."""

    task_name = "backward_language_modeling"
    verbs = ("embed",)
    compared_by = None

    def __init__(self, task: Task, model: nn.Module, config: Any, max_length: int) -> None:
        self.task, self.model, self.config, self.max_length = task, model, config, max_length
        self.tokenizer = task.text

    def embed(self, texts: str | Iterable[str], *, words: bool = False) -> Any:
        """The vector of a text, or one row per text; with `words` the input embeddings of words."""
        given = [texts] if isinstance(texts, str) else list(texts)
        if words:
            found = word_vectors(self.model, self.tokenizer, given)
        else:
            found = text_vectors(self.model, self.tokenizer, given, backward=True)
        return found[0] if isinstance(texts, str) else found
