"""Replacement of unknown words: each `<unk>` of an output becomes the source word with the highest attention weight.

Luong et al. 2015, arXiv:1410.8206, found the source word by an alignment; here it is found by the attention of the
search itself (decoding/coverage.py documents which layer). A lexicon may translate the source word; a word without an
entry is copied, which is right for names and numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mallang.data.lexicon import read_lexicon as read_pairs
from mallang.decoding.contract import Hypothesis
from mallang.decoding.coverage import cross_attention
from mallang.errors import UserError
from mallang.text.tokenizer import Tokenizer

UNITS = ("word", "wordpiece")
"""Units in which `<unk>` stands for a word; in others it stands for a character, or does not occur."""
WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class UnknownWords:
    """Replaces `<unk>` in outputs by source words."""

    task: Any
    model: Any
    device: Any
    lexicon: Mapping[str, str]

    def __post_init__(self) -> None:
        unit = self.target.config.unit
        if unit not in UNITS:
            raise UserError(
                f"replace_unknown has no effect on the unit {unit}, whose tokens are not whole words",
                todo="leave it out, or train with text.unit=word",
            )

    @property
    def target(self) -> Tokenizer:
        """The tokenizer of the outputs."""
        tokenizer: Tokenizer = self.task.target
        return tokenizer

    def spell(self, text: str, tag: Sequence[int], output: Hypothesis) -> str:
        """The text of an output; `tag` are the ids that were put before those of its source."""
        unk = self.target.vocabulary.unk
        places = [place for place, token in enumerate(output.tokens) if token == unk]
        if not places:
            return self.target.decode(output.tokens)
        encoded = self.task.source.encode(text)
        batch = self.task.prepare([(([*tag, *encoded.ids], list(output.tokens)),)], np.random.default_rng(0))
        weights = cross_attention(self.model, batch.to(self.device))[0]
        words = []
        for place in places:
            looked = weights[place, len(tag) : len(tag) + len(encoded.ids)]
            words.append(self.translate(word_at(text, encoded.offsets[int(looked.argmax())])) if len(looked) else "")
        return self.fill(output.tokens, words)

    def translate(self, word: str) -> str:
        """The lexicon's entry for a word, as it is or in lower case; without an entry the word itself."""
        return self.lexicon.get(word, self.lexicon.get(word.lower(), word))

    def fill(self, tokens: Sequence[int], words: Sequence[str]) -> str:
        """The text of tokens, with a word in place of each `<unk>`."""
        parts: list[list[int]] = [[]]
        for token in tokens:
            if token == self.target.vocabulary.unk:
                parts.append([])
            else:
                parts[-1].append(token)
        # Each part is decoded after an anchor word that is then removed: so a leading space, or none, is kept.
        anchor = next([token] for token in range(len(self.target.vocabulary)) if self.target.decode([token]).isalnum())
        before = len(self.target.decode(anchor))
        text = self.target.decode(parts[0])
        for word, part in zip(words, parts[1:], strict=True):
            text += (" " if text and word else "") + word + self.target.decode([*anchor, *part])[before:]
        return text


def word_at(text: str, span: tuple[int, int]) -> str:
    """The word or punctuation mark that contains a token."""
    begin, end = span
    for found in WORD.finditer(text):
        if found.end() > begin and found.start() < max(end, begin + 1):
            return found[0]
    return text[begin:end].strip()


def read_lexicon(given: Mapping[str, str] | Path | str | None) -> Mapping[str, str]:
    """A given lexicon, or one read from a file by data/lexicon.py; the last of several lines for a word counts."""
    if given is None or isinstance(given, Mapping):
        return given or {}
    return dict(read_pairs(given))
