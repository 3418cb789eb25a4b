"""Encoding: a pre-trained encoder without a head, as it was imported; its one verb gives the vectors of texts.

It has no loss of its own: `mallang train bert --from RUN task.name=classification` puts a head on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Float32
from torch import nn

from mallang.errors import UserError
from mallang.models.contract import Encoder
from mallang.tasks.contract import Better
from mallang.tasks.embedding import text_vectors, word_vectors
from mallang.text.tokenizer import Tokenizer

__all__ = ["DEFAULTS", "SECTIONS", "Config", "Task", "Verbs"]

SECTIONS: tuple[str, ...] = ()
"""Sections of a recipe that this task reads besides those of every recipe."""
DEFAULTS: dict[str, dict[str, Any]] = {}
"""Defaults of a recipe of this task."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """There is nothing to set: the model says how it pools."""


class Task:
    """Give the vectors of texts."""

    columns = ("text",)
    unread: tuple[str, ...] = ()
    open_ended = False
    can_compile = True
    parts = ("loss",)
    metrics: Mapping[str, Better] = {"loss": "lower"}

    def __init__(self, config: Config, tokenizers: Mapping[str, Tokenizer]) -> None:
        self.config, self.tokenizers, self.text = config, tokenizers, tokenizers["text"]

    def build(self, model: ModuleType, config: Any) -> nn.Module:
        """The encoder itself."""
        name, kind = model.__name__.rsplit(".", 1)[-1], model.Model
        if not issubclass(kind, Encoder) or kind.reads_source:
            raise UserError(f"{name} is no encoder of plain texts", todo="take an encoder, such as model.name=bert")
        encoder: nn.Module = kind(config, self.text.vocabulary)
        return encoder

    def refused(self, *given: Any, **options: Any) -> Any:
        """Refuse to be trained: an encoder alone has no loss."""
        raise UserError(
            "an encoder without a head has nothing to be trained for",
            todo="name a task: mallang train bert --from RUN task.name=classification data.train=…",
        )

    examples = plan = prepare = counts = loss = updates = validate = refused


class Verbs:
    """A pre-trained encoder."""

    task_name = "encoding"
    verbs = ("embed",)
    compared_by = None

    def __init__(self, task: Any, model: Any, config: None, max_length: int) -> None:
        self.task, self.model, self.config, self.max_length = task, model, config, max_length

    def embed(self, texts: str | Iterable[str], *, words: bool = False) -> Float32[np.ndarray, "*texts dim"]:
        """The vector of a text, or one row per text; with `words` the embeddings of words."""
        given = [texts] if isinstance(texts, str) else list(texts)
        found = (word_vectors if words else text_vectors)(self.model, self.task.text, given)
        return found[0] if isinstance(texts, str) else found
