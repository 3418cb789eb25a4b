"""Out-of-vocabulary (OOV) words as inputs of character-aware models: read from their characters, not as `<unk>`.

The output vocabulary is closed: as a label such a word is `<unk>`, and perplexity counts it as `<unk>`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from mallang.layers.spelling import KeepsWords, ReadsSpelling
from mallang.tasks.surprisal import Lines
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import SPECIALS, Vocabulary

UNITS = ("word", "space")
"""Units in which `<unk>` stands for a word; in others it stands for a character that was not in the training text."""


def reads_oov(model: object, tokenizer: Tokenizer) -> bool:
    """Whether a model reads words outside its vocabulary."""
    return isinstance(model, ReadsSpelling) and tokenizer.config.unit in UNITS


def ids_to_read(model: object, tokenizer: Tokenizer, texts: Sequence[str], ids: Sequence[list[int]]) -> list[list[int]]:
    """The input ids of texts; `ids` are those of the vocabulary, with `<unk>` for words that the model cannot predict.

    A literal `<unk>` in a text, as in the Penn Treebank, stays `<unk>`.
    """
    if not isinstance(model, ReadsSpelling) or not reads_oov(model, tokenizer):
        return list(ids)
    unk, read, words = tokenizer.vocabulary.unk, [list(line) for line in ids], dict[tuple[int, int], str]()
    for row, (text, line) in enumerate(zip(texts, ids, strict=True)):
        for place, word in enumerate(tokenizer.words(text) if unk in line else []):
            if line[place] == unk and word not in SPECIALS:
                words[row, place] = word
    for (row, place), number in zip(words, model.ids_of_oov(list(words.values())), strict=True):
        read[row][place] = number
    return read


def forget_oov(model: object, most: int | None = None) -> None:
    """Forget the ids of words outside the vocabulary if there are many; call it before new texts are read."""
    if isinstance(model, ReadsSpelling):
        model.forget_oov(most)


@contextmanager
def validation_lines(
    model: object, tokenizer: Tokenizer, corpus: Any, rows: Sequence[tuple[str, ...]]
) -> Iterator[Any]:
    """The held-out lines as `evaluate` reads them: the corpus, or `Lines` with the ids of unseen words.

    `rows` are the texts of the corpus. A model in training is left as it was: the ids are forgotten.
    """
    if not reads_oov(model, tokenizer):
        yield corpus
        return
    ids = [corpus[place][0].tolist() for place in range(len(corpus))]
    forget_oov(model, 0)
    try:
        yield Lines(ids_to_read(model, tokenizer, [text for (text,) in rows], ids))
    finally:
        forget_oov(model, 0)


class WithKeptWords:
    """A tokenizer for a model that has more words than its vocabulary: it gives their ids in place of `<unk>`."""

    def __init__(self, tokenizer: Tokenizer, kept: Mapping[str, int]) -> None:
        self.tokenizer, self.kept = tokenizer, kept

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary, without the other words."""
        return self.tokenizer.vocabulary

    @property
    def fingerprint(self) -> str:
        """A sum over the tokenizer and the other words."""
        facts = [self.tokenizer.fingerprint, sorted(self.kept.items())]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of texts."""
        rows = self.tokenizer.encode_batch(texts)
        for text, row in zip(texts, rows, strict=True):
            for place, word in unknown_words(self.tokenizer, text, row):
                row[place] = self.kept.get(word, row[place])
        return rows


def unknown_words(tokenizer: Tokenizer, text: str, ids: Sequence[int]) -> Iterator[tuple[int, str]]:
    """The places and words of a text that have no token, where the unit is words."""
    unk = tokenizer.vocabulary.unk
    if unk in ids and tokenizer.config.unit in UNITS:
        yield from (
            (place, word)
            for place, word in enumerate(tokenizer.words(text))
            if ids[place] == unk and word not in SPECIALS
        )


def keep_words(model: object, tokenizer: Tokenizer, texts: Sequence[str]) -> dict[str, int]:
    """The input ids of all words of texts that are outside the vocabulary of a model, which keeps them for good.

    Empty for a model that cannot read them.
    """
    if not isinstance(model, KeepsWords):
        return {}
    rows = zip(texts, tokenizer.encode_batch(texts), strict=True)
    words = list(dict.fromkeys(word for text, ids in rows for _, word in unknown_words(tokenizer, text, ids)))
    return dict(zip(words, model.keep_words(words), strict=True)) if words else {}
