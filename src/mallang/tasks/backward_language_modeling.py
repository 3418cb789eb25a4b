"""A language model that reads every line from its end: what came before, given all that follows.

It is trained like any language model, on lines whose tokens are reversed, and learns p(token | the tokens after it). It
writes nothing. It is one half of a bidirectional encoder: the states of a forward and of a backward model, trained
apart and joined token by token and layer by layer, know both sides of every token (Schuster and Paliwal 1997,
Bidirectional Recurrent Neural Networks; as features from language models: Peters et al. 2018, arXiv:1802.05365).

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

__all__ = ["DEFAULTS", "Config", "Task", "Verbs"]

DEFAULTS: dict[str, dict[str, Any]] = {}
"""What a recipe says unless it says something else."""


@dataclass(frozen=True, kw_only=True)
class Config(language_modeling.Config):
    """How text is laid out in batches: lines by themselves."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layout != "sentences" or self.stride is not None:
            raise ValueError("a backward language model reads each line by itself: layout = 'sentences', no stride")


class Task(language_modeling.Task):
    """Learn p(token | all tokens after it) from lines."""

    backward = True

    def prepare(self, rows: list[tuple[Any, ...]], random: np.random.Generator) -> Batch:
        """`<s>` and the words from the last to the first predict these words and `</s>`."""
        return lines_batch([line[::-1] for ((line,),) in rows])


class Verbs:
    """What a trained backward model can do: give vectors."""

    task_name = "backward_language_modeling"
    verbs = ("embed",)
    compared_by = None

    def __init__(self, task: Task, model: nn.Module, config: Any, max_length: int) -> None:
        self.task, self.model, self.config, self.max_length = task, model, config, max_length
        self.tokenizer = task.text

    def embed(self, texts: str | Iterable[str], *, words: bool = False) -> Any:
        """The vector of a text, or one row per text; with `words` the vectors of words as the model reads them."""
        given = [texts] if isinstance(texts, str) else list(texts)
        found = (word_vectors if words else text_vectors)(self.model, self.tokenizer, given)
        return found[0] if isinstance(texts, str) else found
