"""A text as symbols for a bag of n-grams: its code points, or a hash of each of its words.

They need no vocabulary, so a bag may have another unit than the model beside it, and no character is unknown.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Literal

from mallang.data.columns import Kind, split_cell
from mallang.text.tokenizer import Config
from mallang.text.unicode import normalize
from mallang.text.words import split_words

SymbolUnit = Literal["char", "word"]
MOST = 0x7FFFFFFF
"""The largest symbol: arrays hold 32-bit integers with a sign."""


@dataclass(frozen=True)
class Symbols:
    """Encodes cells of text or documents as symbols, normalized as the tokenizer of the column normalizes them."""

    unit: SymbolUnit
    text: Config
    kind: Kind = "text"

    @property
    def fingerprint(self) -> str:
        """A sum over all that decides how it encodes."""
        return f"symbols {self.unit} {self.text.normalization} {self.text.lowercase} {self.kind}"

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """The symbols of every cell."""
        return [self.encode(text) for text in texts]

    def encode(self, cell: str) -> list[int]:
        """The symbols of a cell; the sentences of a document follow each other with a space between."""
        text = " ".join(split_cell(cell, "document")) if self.kind == "document" else cell
        text = normalize(text, self.text.normalization)
        if self.text.lowercase:
            text = text.lower()
        if self.unit == "char":
            return [ord(character) for character in text]
        return [zlib.crc32(word.text.encode("utf-8")) & MOST for word in split_words(text, "words")]
