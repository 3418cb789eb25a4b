"""Statements: the vectors that a frozen encoder gives to questions with their choices, computed once and kept.

As a column they are the bits of 32-bit floats, kept with the prepared corpus (data/prepared.py): training reads them
from the disk, and the encoder runs only for texts that are new.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float

from mallang.data.choices import read_choices
from mallang.data.sampler import by_length
from mallang.models.contract import encode_text
from mallang.runs.given import Given

if TYPE_CHECKING:
    from mallang.tasks.graph_choice import Task

BATCH_TOKENS = 8192
"""Padded tokens that the encoder reads at once."""


class Statements:
    """Encodes a question and its choices as a vector for each choice."""

    def __init__(self, task: Task, given: Given) -> None:
        self.task, self.given = task, given

    @property
    def fingerprint(self) -> str:
        """A sum over the encoder and what it reads."""
        return hashlib.sha256(f"statements 1 {self.given.fingerprint} {self.task.config.read}".encode()).hexdigest()

    def encode_rows(self, rows: Sequence[tuple[str, ...]]) -> list[list[int]]:
        """The number of values of a vector, then the bits of those of all choices, for every row."""
        examples = [self.example(question, choices) for question, choices in rows]
        sizes = [self.task.text_size(example) for example in examples]
        found: list[list[int]] = [[] for _ in rows]
        for group in by_length([width for _, width in sizes], BATCH_TOKENS, rows=[count for count, _ in sizes]):
            batch = self.task.collate_text([examples[place] for place in group])
            with torch.no_grad():
                read = batch.to(next(self.given.model.parameters()).device)
                vectors = encode_text(self.given.model, read).pooled.float().cpu().numpy()
            ends = np.cumsum([sizes[place][0] for place in group])
            for place, own in zip(group, np.split(vectors, ends[:-1]), strict=True):
                found[place] = [own.shape[1], *own.astype("<f4").reshape(-1).view("<i4").tolist()]
        return found

    def example(self, question: str, cell: str) -> tuple[Any, ...]:
        """A row as an example without an answer."""
        (parts,) = self.task.choices.ids_of([read_choices(cell).texts])
        ids = np.array([token for part in parts for token in part], dtype=np.int64)
        starts = np.cumsum([0, *map(len, parts)])[:-1]
        asked = np.array(self.task.question.encode_batch([question])[0], dtype=np.int64)
        return asked, ids, starts, np.zeros(0, dtype=np.int64)


def vectors_of(examples: Sequence[Sequence[Any]]) -> Float[np.ndarray, "rows dim"]:
    """The kept vectors of all choices of some examples."""
    rows = [example[5] for example in examples]
    return np.concatenate([row[1:].astype("<i4").view("<f4").reshape(-1, int(row[0])) for row in rows])
