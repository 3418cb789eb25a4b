"""A padded batch of examples. Batch first everywhere, mask True = may be seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.functional import pad

from mallang.text.vocabulary import PAD


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Padded token tensors; every field but `tokens` and `lengths` is present only where the task needs it."""

    tokens: Int[Tensor, "batch time"]
    """The input ids; in a decoder `<s>` and the words, so that position t predicts `labels[t]`."""
    lengths: Int[Tensor, " batch"]
    labels: Int[Tensor, "batch ..."] | None = None
    """The labels: for a decoder the words and `</s>`; `<pad>` where there is no label."""
    source: Int[Tensor, "batch source"] | None = None
    """The sentence to translate, ended by `</s>`."""
    source_lengths: Int[Tensor, " batch"] | None = None
    segments: Int[Tensor, "batch time"] | None = None
    """Where several texts are packed into one row: the index of each token's text, from 1; padding has 0."""

    @property
    def mask(self) -> Bool[Tensor, "batch time"]:
        """True where `tokens` is not padding."""
        return lengths_to_mask(self.lengths, self.tokens.shape[1])

    @property
    def source_mask(self) -> Bool[Tensor, "batch source"]:
        """True where `source` is not padding."""
        if self.source is None or self.source_lengths is None:
            raise ValueError("this batch has no source")
        return lengths_to_mask(self.source_lengths, self.source.shape[1])

    def __len__(self) -> int:
        return self.tokens.shape[0]

    def map(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """A batch with a function applied to every tensor."""
        changed: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Tensor):
                changed[field.name] = change(value)
        return replace(self, **changed)

    def to(self, device: torch.device | str) -> Batch:
        """A copy of the batch on another device."""
        return self.map(lambda tensor: tensor.to(device, non_blocking=True))

    def pin_memory(self) -> Batch:
        """A copy in pinned memory, for asynchronous transfers to a GPU; the loader calls this."""
        return self.map(Tensor.pin_memory)

    def __reduce__(self) -> tuple[Any, ...]:
        # Sent between processes as plain bytes: torch would open a file for every tensor, which takes 2 ms per batch.
        arrays = {field.name: getattr(self, field.name) for field in fields(self)}
        return from_arrays, ({name: value.cpu().numpy() for name, value in arrays.items() if value is not None},)


def from_arrays(arrays: dict[str, Any]) -> Batch:
    """The batch whose tensors these were."""
    return Batch(**{name: torch.from_numpy(array) for name, array in arrays.items()})


@dataclass(frozen=True)
class Shapes:
    """A short list of batch shapes, for engines that compile or capture every shape.

    Widths are rounded up to a multiple, and every batch of one width has the same number of rows.
    """

    tokens: int
    """Padded tokens per batch, counted on its longer side."""
    sentences: int | None = None
    """Maximum number of rows."""
    multiple: int = 8

    def fill(self, batch: Batch) -> Batch:
        """The batch padded to the next of these shapes; added positions are masked and have no labels."""
        longest = max(self.padded_width(value) for name, value in rectangles(batch))
        rows = min(self.tokens // longest, self.sentences or self.tokens)
        more = max(0, rows - len(batch))
        changed = {
            name: pad(value, (0, self.padded_width(value) - value.shape[1], 0, more), value=PAD)
            for name, value in rectangles(batch)
        }
        for name in ("lengths", "source_lengths"):
            if (lengths := getattr(batch, name)) is not None:
                changed[name] = pad(lengths, (0, more), value=1)  # attention needs at least one position per row
        return replace(batch, **changed)

    def padded_width(self, rectangle: Tensor) -> int:
        """The padded width of a tensor."""
        return -(-rectangle.shape[1] // self.multiple) * self.multiple


def rectangles(batch: Batch) -> list[tuple[str, Tensor]]:
    """The tensors of a batch that have a time axis."""
    named = ((name, getattr(batch, name)) for name in ("tokens", "labels", "source", "segments"))
    return [(name, value) for name, value in named if value is not None and value.dim() == 2]


def lengths_to_mask(lengths: Int[Tensor, " batch"], width: int) -> Bool[Tensor, "batch width"]:
    """True in the first `lengths[i]` positions of row i."""
    return torch.arange(width, device=lengths.device)[None, :] < lengths[:, None]


def pad_rows(
    rows: Sequence[Any], value: int = PAD, *, begin: int | None = None, end: int | None = None
) -> tuple[Int[Tensor, "rows width"], Int[Tensor, " rows"]]:
    """Pad rows of unequal length to one tensor, with their lengths; `begin` goes before each row, `end` after it."""
    bodies = np.array([len(row) for row in rows], dtype=np.int64)
    first, extra = int(begin is not None), (begin is not None) + (end is not None)
    rectangle = np.full((len(rows), bodies.max(initial=0) + (extra if len(rows) else 0)), value, dtype=np.int64)
    if rectangle.size:
        places = np.arange(rectangle.shape[1] - first)
        rectangle[:, first:][places < bodies[:, None]] = np.concatenate(rows)
        if begin is not None:
            rectangle[:, 0] = begin
        if end is not None:
            rectangle[np.arange(len(rows)), bodies + first] = end
    return torch.from_numpy(rectangle), torch.from_numpy(bodies + extra)
