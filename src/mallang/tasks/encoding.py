"""Encoding: a pre-trained encoder without a head, as it was imported; its one verb gives the vectors of texts.

It has no loss of its own: `mallang train bert --from RUN task.name=classification` puts a head on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Float32
from torch import nn

from mallang.errors import UserError
from mallang.models.contract import Encoder, longest_of
from mallang.tasks.contract import Better
from mallang.tasks.embedding import text_vectors, word_vectors
from mallang.tasks.text_windows import LongTexts, TextWindows
from mallang.text.tokenizer import Tokenizer

__all__ = ["DEFAULTS", "SECTIONS", "Config", "Task", "Verbs"]

SECTIONS: tuple[str, ...] = ()
"""Sections of a recipe that this task reads besides those of every recipe."""
DEFAULTS: dict[str, dict[str, Any]] = {}
"""Defaults of a recipe of this task."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """How long texts are read; the model says how it pools."""

    max_tokens: int = 0
    """Maximum number of tokens that are read at once, special tokens included; 0: as many as the model reads."""
    long_texts: LongTexts = "windows"
    """A longer text: the mean over overlapping windows, or its beginning alone (cut)."""

    def __post_init__(self) -> None:
        if self.max_tokens < 0:
            raise ValueError(f"max_tokens must be 0 or more, but is {self.max_tokens}")


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
        self.windows = TextWindows()

    def build(self, model: ModuleType, config: Any) -> nn.Module:
        """The encoder itself."""
        name, kind = model.__name__.rsplit(".", 1)[-1], model.Model
        if not issubclass(kind, Encoder) or kind.reads_source:
            raise UserError(f"{name} is no encoder of plain texts", todo="take an encoder, such as model.name=bert")
        encoder: nn.Module = kind(config, self.text.vocabulary)
        most = min(filter(None, (self.config.max_tokens, longest_of(encoder))), default=None)
        self.windows = TextWindows.of(most, self.text.vocabulary.frame_length, self.config.long_texts)
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
        self.windows: TextWindows = task.windows

    def note_long(self, texts: Sequence[str]) -> str:
        """A sentence about the texts that are longer than a window; empty where none is."""
        return self.windows.note(list(map(len, self.task.text.encode_batch(list(texts))))) if self.windows.most else ""

    def embed(self, texts: str | Iterable[str], *, words: bool = False) -> Float32[np.ndarray, "*texts dim"]:
        """The vector of a text, or one row per text; with `words` the embeddings of words."""
        given = [texts] if isinstance(texts, str) else list(texts)
        if words:
            found = word_vectors(self.model, self.task.text, given)
        else:
            found = text_vectors(self.model, self.task.text, given, windows=self.windows)
        return found[0] if isinstance(texts, str) else found
