"""The shape of a Transformer in a benchmark, the same for all systems, and its number of operations."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Shape:
    """An encoder-decoder with one vocabulary, one table for all embeddings and the output, and norms first."""

    layers: int
    dim: int
    hidden_dim: int
    heads: int
    words: int
    dropout: float
    sentences: int
    """In a batch."""
    source: int
    """Tokens of every source, `</s>` counted."""
    target: int
    """Tokens of every output."""

    def options(self) -> dict[str, Any]:
        """As plain values, for another process."""
        return asdict(self)

    def operations(self, width: int = 1) -> float:
        """Floating-point operations of one forward pass over a batch: two for each weight that a token meets, and
        attention over what may be seen. With a width every output is followed by so many hypotheses; the source is
        read once.
        """
        attention, ffn = self.dim**2, 2 * self.dim * self.hidden_dim
        written = self.target * width
        weights = self.layers * (self.source * (4 * attention + ffn))  # encoder
        weights += self.layers * (self.source * 2 * attention + written * (6 * attention + ffn))  # decoder
        weights += written * self.dim * self.words
        looks = self.layers * (self.source**2 + width * self.target * (self.target + 1) / 2 + written * self.source)
        return self.sentences * 2 * (weights + 2 * self.dim * looks)


SMALL = Shape(
    layers=3, dim=256, hidden_dim=1024, heads=8, words=8000, dropout=0.1, sentences=32, source=30, target=30
)  # fmt: skip
"""For a CPU."""
BASE = Shape(
    layers=6, dim=512, hidden_dim=2048, heads=8, words=10000, dropout=0.1, sentences=256, source=32, target=32
)  # fmt: skip
"""For a GPU."""
