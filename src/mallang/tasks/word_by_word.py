"""Translation word by word: the start of unsupervised translation, from a lexicon that needs no pairs of sentences.

    identical, adversarial, similarities    induced from the text itself: word vectors of each language are trained and
                                            mapped into one space, which starts as lexicon induction does
    a file or corpus of word pairs          given

Words change, all else of a text stays: order, spaces, punctuation. A word without a translation is copied. A word in
Hangul that is not in the lexicon is looked up by its longest beginning that is: particles and endings follow a stem.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from torch import nn

from mallang.data.batch import Batch, pad_rows
from mallang.data.corpus import Config, open_corpus
from mallang.data.lexicon import read_lexicon
from mallang.data.miniworld_views import VIEWS
from mallang.data.registry import names
from mallang.data.sampler import by_length
from mallang.data.word_vectors import Vectors
from mallang.errors import UserError
from mallang.evaluation.lexicon_induction import How, Space, induce
from mallang.find import find
from mallang.layers.embedding import load_vectors, spellings_of
from mallang.text.vocabulary import BOS, EOS, SPECIALS, Vocabulary

INDUCED = tuple(each for each in get_args(How) if each != "supervised")
WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
BATCH_TOKENS = 4096
MOST_WORDS = 10_000
"""The most frequent words of each language that are translated."""
RAREST = 3
"""Words that occur less often have no vector that means anything."""


@dataclass(frozen=True)
class Lexicon:
    """The translation of each known word in both directions, in lower case, and the vectors that it was found with."""

    tables: tuple[dict[str, str], dict[str, str]]
    how: str
    space: Space | None = None

    @classmethod
    def of_pairs(cls, pairs: Iterable[tuple[str, str]], how: str) -> Lexicon:
        """A lexicon of given pairs; of several translations of a word the first."""
        tables: tuple[dict[str, str], dict[str, str]] = {}, {}
        for source, target in pairs:
            tables[0].setdefault(source.lower(), target)
            tables[1].setdefault(target.lower(), source)
        for table in tables:
            for word in [word for word in table if is_hangul(word) and word.endswith("다") and len(word) > 1]:
                table.setdefault(word[:-1], table[word])  # the stem of a dictionary form
        return cls(tables, how)

    @classmethod
    def of_space(cls, space: Space) -> Lexicon:
        """The nearest word of every word in a common space."""
        back = Space(space.target_words, space.source_words, space.target, space.source, space.how)
        tables = tuple(
            {word: found[0][0] for word, found in zip(each.source_words, each.translations(), strict=True)}
            for each in (space, back)
        )
        return cls((tables[0], tables[1]), space.how, space)

    def translate(self, text: str, source: int) -> str:
        """A text of a language, 0 or 1, with every word replaced by its translation."""
        return WORD.sub(lambda match: self.word(match[0], self.tables[source]), text)

    def word(self, word: str, table: dict[str, str]) -> str:
        """The translation of one word, or the word itself."""
        known = table.get(word.lower())
        if known is None and is_hangul(word):
            known = longest_prefix(unicodedata.normalize("NFD", word), table)
        return word if known is None else known


def longest_prefix(jamo: str, table: dict[str, str]) -> str | None:
    """The translation of the longest entry, in Hangul, that a word in decomposed form begins with."""
    for end in range(len(jamo) - 1, 1, -1):
        known = table.get(unicodedata.normalize("NFC", jamo[:end]))
        if known is not None:
            return known
    return None


def is_hangul(word: str) -> bool:
    """Whether a word begins with a Hangul syllable."""
    return "가" <= word[:1] <= "힣"


def find_lexicon(how: str, texts: Sequence[Sequence[str]], dim: int, seed: int) -> Lexicon:
    """The lexicon that a recipe names, induced from the texts of both languages or read."""
    if how not in INDUCED:
        pairs = read_pairs(how)
        return Lexicon.of_pairs(pairs, how)
    vectors = [vectors_of(side, dim, seed) for side in texts]
    return Lexicon.of_space(induce(vectors[0], vectors[1], how, words=MOST_WORDS, seed=seed))  # type: ignore[arg-type]


def read_pairs(name: str) -> list[tuple[str, str]]:
    """The pairs of a lexicon: a file, or a corpus of word pairs."""
    if Path(name).expanduser().is_file() or not (name in names() or name in VIEWS):
        return read_lexicon(name)
    corpus = open_corpus(Config(corpus=name, columns=["ko", "en"] if name in VIEWS else ["source", "target"]),
                         ("source", "target"))  # fmt: skip
    return [(source, target) for source, target in corpus.split("train")]


def vectors_of(texts: Sequence[str], dim: int, seed: int) -> Vectors:
    """Skip-gram vectors of the words of a language, the most frequent words first."""
    lines = [WORD.findall(text.lower()) for text in texts]
    counts = Counter(word for line in lines for word in line)
    known = [word for word, count in counts.most_common(MOST_WORDS) if count >= RAREST]
    if len(known) < 2:
        raise UserError(f"only {len(known)} words occur {RAREST} times, too few for a lexicon", todo="give more text")
    vocabulary = Vocabulary((*SPECIALS, *known))
    ids = [[vocabulary.id(word) for word in line] for line in lines if line]
    module = find("models", "word2vec")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: Any = module.Model(module.Config(dim=dim, epochs=10), vocabulary)
        for _ in model.fit([batch_of([ids[i] for i in group]) for group in by_length([*map(len, ids)], BATCH_TOKENS)]):
            pass
    return Vectors(tuple(known), model.vectors().numpy()[len(SPECIALS) :].astype(np.float32))


def batch_of(rows: Sequence[Sequence[int]]) -> Batch:
    """Lines of words as a batch."""
    tokens, lengths = pad_rows(rows, begin=BOS)
    labels, _ = pad_rows(rows, end=EOS)
    return Batch(tokens=tokens, lengths=lengths, labels=labels)


def load_space(table: nn.Embedding, vocabulary: Vocabulary, space: Space, side: int) -> str:
    """Initialize the embedding of a language with its vectors in the common space; how many words have one."""
    words, vectors = ((space.source_words, space.source), (space.target_words, space.target))[side]
    found = load_vectors(table, spellings_of(vocabulary), Vectors(words, vectors.numpy()))
    return str(found)
