"""The vocabulary of a model: tokens and their ids."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")


@dataclass(frozen=True)
class Vocabulary:
    """Tokens in the order of their ids. The four special tokens are 0-3 unless an imported model has its own."""

    tokens: tuple[str, ...]
    pad: int = PAD
    unk: int = UNK
    bos: int = BOS
    eos: int = EOS

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def ids(self) -> dict[str, int]:
        """The id of every token."""
        return {token: number for number, token in enumerate(self.tokens)}

    def id(self, token: str) -> int:
        """The id of a token, or that of `<unk>`."""
        return self.ids.get(token, self.unk)

    @property
    def specials(self) -> frozenset[int]:
        """The ids of the special tokens."""
        return frozenset((self.pad, self.unk, self.bos, self.eos))
