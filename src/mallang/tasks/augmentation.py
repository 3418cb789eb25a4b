"""Data augmentation by word replacement, for distillation with few labels (Jiao et al. 2019, arXiv:1909.10351).

    candidates   of a word that is one token: the words that a masked language model finds most probable in its place;
                 of a word of several tokens: its nearest words by word vectors, such as GloVe
    a copy       every word is replaced with a probability of `share`, by one of its candidates

That is algorithm 1 of TinyBERT, whose numbers are 15 candidates, a share of 0.4 and 20 copies. As in its published
code, candidates are computed once for a text and not again for every copy. A copy that equals the text or another copy
is left out, so short texts have fewer. Numbers and punctuation stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool

from mallang.data.masking import MARKS
from mallang.data.sampler import generator
from mallang.errors import UserError
from mallang.models.contract import longest_of
from mallang.tasks import filler, word_vectors
from mallang.text.tokenizer import Tokenizer
from mallang.text.words import Word, split_words

AUGMENTED = 8
"""Sets the random numbers of replacements apart from all others."""
ROWS = 64
"""Masked copies of a text in a batch."""
EXTRA = 4
"""So many times the candidates are looked at: some are no words, or the word itself."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """How much is replaced, and by what."""

    copies: int = 20
    """Copies of each text."""
    share: float = 0.4
    """The probability that a word with candidates is replaced."""
    candidates: int = 15
    """Candidates of a word."""
    seed: int = 1
    """Sets the random numbers."""

    def __post_init__(self) -> None:
        for name in ("copies", "candidates"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} = {getattr(self, name)} must be at least 1")
        if not 0.0 < self.share <= 1.0:
            raise UserError(f"share = {self.share} must be above 0 and at most 1")


class Augmenter:
    """A masked language model, and word vectors where they are given, that replace words of texts."""

    def __init__(self, model: filler.Verbs, vectors: word_vectors.Verbs | None, options: Options) -> None:
        self.model, self.vectors, self.options = model, vectors, options
        self.tokenizer = model.tokenizer
        self.begins = begins_word(self.tokenizer)
        self.near: dict[str, tuple[str, ...]] = {}
        """The nearest words of each word that was looked up."""

    def copies(self, texts: Sequence[str], row: int) -> list[tuple[str, ...]]:
        """The copies of one row of texts, such as both texts of a pair; other rows have other random numbers."""
        random, found = generator(self.options.seed, row, AUGMENTED), dict[tuple[str, ...], None]()
        choices = [self.candidates(text) for text in texts]
        for _ in range(self.options.copies):
            copy = tuple(self.replaced(text, each, random) for text, each in zip(texts, choices, strict=True))
            if copy != tuple(texts):
                found[copy] = None
        return list(found)

    def replaced(self, text: str, choices: Sequence[tuple[Word, Sequence[str]]], random: np.random.Generator) -> str:
        """A text in which some words are others."""
        parts, end = list[str](), 0
        for word, others in choices:
            if random.random() < self.options.share:
                parts += [text[end : word.start], others[int(random.integers(len(others)))]]
                end = word.end
        return "".join([*parts, text[end:]])

    def candidates(self, text: str) -> list[tuple[Word, tuple[str, ...]]]:
        """The words of a text that can be replaced, each with its candidates."""
        encoded = self.tokenizer.encode(text)
        places = {trimmed(text, *span): place for place, span in enumerate(encoded.offsets)}
        words = [word for word in split_words(text, "words") if is_word(word.text)]
        single = {word: places[word.start, word.end] for word in words if (word.start, word.end) in places}
        filled = dict(zip(single, self.probable(text, encoded.ids, list(single.values())), strict=True))
        found = []
        for word in words:
            names = filled[word] if word in filled else self.nearest(word.text)
            others = tuple(name for name in names if name.casefold() != word.text.casefold())
            if others:
                found.append((word, others[: self.options.candidates]))
        return found

    def probable(self, text: str, ids: Sequence[int], places: Sequence[int]) -> list[list[str]]:
        """For every place the most probable words if it is masked by itself."""
        whole, vocabulary = filler.framed(self.tokenizer, ids), self.tokenizer.vocabulary
        longest = longest_of(self.model.model)
        if longest is not None and len(whole) > longest:
            raise UserError(
                f"{text[:40]!r} … has {len(whole)} tokens, and the model reads {longest}",
                todo="leave long texts out, or give a model that reads more",
            )
        first = 0 if vocabulary.frame[0] is None else 1
        count = min(EXTRA * self.options.candidates, len(vocabulary) - len(vocabulary.specials))
        found: list[list[str]] = []
        for begin in range(0, len(places), ROWS):
            some = [first + place for place in places[begin : begin + ROWS]]
            rows = [[*whole[:place], vocabulary.mask, *whole[place + 1 :]] for place in some]
            scores = self.model.log_probs(rows, some).diagonal().T
            scores[:, ~self.begins] = -np.inf
            for numbers in scores.topk(count, dim=1).indices.tolist():
                names = [self.tokenizer.decode([number]).strip() for number in numbers if self.begins[number]]
                found.append([name for name in names if is_word(name)])
        return found

    def nearest(self, word: str) -> tuple[str, ...]:
        """The words nearest to a word by its vector; none where there are no vectors, or none of it."""
        if self.vectors is None:
            return ()
        if word not in self.near:
            vector = self.vectors.lookup.find(word, fold=True)
            near: Any = () if vector is None else self.vectors.lookup.nearest(vector, self.options.candidates, [word])
            self.near[word] = tuple(name for name, _ in near if is_word(name))
        return self.near[word]


def is_word(text: str) -> bool:
    """Whether a text is one word of letters, and neither a number nor punctuation."""
    return any(each.isalpha() for each in text) and not any(each.isspace() for each in text)


def trimmed(text: str, begin: int, end: int) -> tuple[int, int]:
    """The span of a token without the space before it."""
    return begin + len(text[begin:end]) - len(text[begin:end].lstrip()), end


def begins_word(tokenizer: Tokenizer) -> Bool[np.ndarray, " vocabulary"]:
    """Which tokens begin a word and are no special ones: only these can stand in the place of a word."""
    kind, tokens = tokenizer.config.unit, tokenizer.vocabulary.tokens
    if kind == "space":
        found = np.ones(len(tokens), dtype=bool)
    elif kind == "wordpiece":
        found = np.array([not token.startswith("##") for token in tokens])
    elif kind in MARKS:
        found = np.array([token.startswith(MARKS[kind]) for token in tokens])
    else:
        raise UserError(
            f"tokens of the unit {kind} are no words, so none of them can stand in the place of one",
            todo="give a masked language model with text.unit=word, bpe or wordpiece",
        )
    found[list(tokenizer.vocabulary.specials)] = False
    return found
