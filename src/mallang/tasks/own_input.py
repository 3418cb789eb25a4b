"""Tasks whose models make a part of their own training input, and tasks that learn from text without pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from torch import nn

from mallang.data.batch import Batch
from mallang.data.prepared import Prepared


@runtime_checkable
class Completing(Protocol):
    """A task whose batches are completed by the model before the loss is computed, as in back-translation."""

    def complete(self, model: nn.Module, batch: Batch) -> Batch:
        """The batch with what the model makes for it; on the host, and of a shape that depends on that of the batch."""


@runtime_checkable
class Beginning(Protocol):
    """A task that prepares a new model from the training text, before the first update of a run."""

    def begin(self, model: Any, corpus: Prepared, seed: int, say: Callable[[str], None]) -> None:
        """Set initial weights of the model; what is found is reported. It depends on text and seed alone."""


@runtime_checkable
class ReadsUnpaired(Protocol):
    """A task that learns from text without pairs; others refuse `data.unpaired`."""

    @classmethod
    def reads_unpaired(cls) -> bool:
        """Whether rows may have one side each."""
