"""The vocabulary of a model: tokens and their ids, and the special tokens by name.

pad unk bos eos    every vocabulary has them; ours at 0-3, an imported one where it has them
mask cls sep       a vocabulary has them where a task needs them; asking for one that it lacks is an error
start delimiter extract       around and between texts that a language model such as GPT-1 encodes
entity head tail   around a mention whose types are asked for, and around the two mentions of a relation
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from mallang.errors import UserError

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")
NAMES = ("pad", "unk", "bos", "eos")
"""The names of SPECIALS."""
OPTIONAL = {
    "mask": "<mask>",
    "cls": "<cls>",
    "sep": "<sep>",
    "start": "<start>",
    "delimiter": "<delimiter>",
    "extract": "<extract>",
    "entity": "<entity>",
    "head": "<head>",
    "tail": "<tail>",
}
"""The special tokens that only some vocabularies have, by name."""
FRAMES = (("cls", "sep"), ("start", "extract"))
"""The names of the tokens before and after a text: those of BERT, and those of GPT-1."""


@dataclass(frozen=True)
class Vocabulary:
    """Tokens in the order of their ids. The four special tokens are 0-3 unless an imported model has its own."""

    tokens: tuple[str, ...]
    pad: int = PAD
    unk: int = UNK
    bos: int = BOS
    eos: int = EOS
    optional: tuple[tuple[str, int], ...] = ()
    """The names and ids of the special tokens beyond these four."""
    pair_separators: int = 1
    """How many separators stand between the texts of a pair: 2 in RoBERTa."""

    @classmethod
    def named(cls, tokens: Sequence[str], special: Mapping[str, str]) -> Vocabulary:
        """The vocabulary of these tokens; `special` says which are the special ones that are not as usual."""
        ids = {token: number for number, token in enumerate(tokens)}
        wanted = {**dict(zip(NAMES, SPECIALS, strict=True)), **special}
        for name, token in wanted.items():
            if name not in (*NAMES, *OPTIONAL) or token not in ids:
                raise ValueError(f"there is no special token {token!r} for {name}")
        numbers = {name: ids[token] for name, token in wanted.items()}
        four = {name: numbers.pop(name) for name in NAMES}
        return cls(tuple(tokens), **four, optional=tuple(numbers.items()))

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
    def mask(self) -> int:
        """The id of the token that hides another one, for masked language models."""
        return self.special("mask")

    @property
    def cls(self) -> int:
        """The id of the token whose vector is that of a whole text."""
        return self.special("cls")

    @property
    def sep(self) -> int:
        """The id of the token between two texts."""
        return self.special("sep")

    def special(self, name: str) -> int:
        """The id of a special token by its name; raises a UserError where the vocabulary has none."""
        if name in NAMES:
            return (self.pad, self.unk, self.bos, self.eos)[NAMES.index(name)]
        found = dict(self.optional).get(name)
        if found is None:
            has = ", ".join((*NAMES, *dict(self.optional)))
            raise UserError(
                f"the vocabulary has no special token {name!r}; it has {has}",
                todo="train the tokenizer with a task that needs it",
            )
        return found

    @property
    def frame(self) -> tuple[int | None, int]:
        """What an encoder reads before and after a text: the tokens of FRAMES if there are both, else only `</s>`."""
        found = dict(self.optional)
        for begin, end in FRAMES:
            if {begin, end} <= found.keys():
                return found[begin], found[end]
        return None, self.eos

    @property
    def between(self) -> int:
        """What an encoder reads between the texts of a pair: `<delimiter>` after `<start>`, else what ends a text."""
        begin, end = self.frame
        found = dict(self.optional)
        return found.get("delimiter", end) if begin is not None and begin == found.get("start") else end

    @property
    def frame_length(self) -> int:
        """The number of tokens in `frame`."""
        return 1 if self.frame[0] is None else 2

    @property
    def pair_frame_length(self) -> int:
        """The number of special tokens around and between the texts of a pair."""
        return self.frame_length + self.pair_separators

    @property
    def specials(self) -> frozenset[int]:
        """The ids of the special tokens."""
        return frozenset((self.pad, self.unk, self.bos, self.eos, *dict(self.optional).values()))
