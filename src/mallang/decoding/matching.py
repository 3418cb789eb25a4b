"""Finite automata that find words in a text generated token by token, however the words are cut into tokens.

A word such as "cat" may be one token, three, or the middle of a longer one ("concatenate"). So words are matched in
the text itself: an automaton reads it character by character, and since every token is a few characters, a transition
table over tokens gives the next state for each state and token. Following a hypothesis costs one lookup per token.

A word matches where no letter or digit touches it; so the match needs the next character, or the end of the output. A
required word must also be separated from the text before it: "book. zebra", not "book.zebra" or "ship'zebra". A hyphen
separates it ("e-mail"), and so does the apostrophe of an elision ("l'eau", "jusqu'ici", "dell'acqua"). "사과*" also
matches the start of a longer word ("사과를"), "*과" the end of one.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from mallang.errors import UserError
from mallang.text.tokenizer import BYTE_UNITS, SPACE_MARK, SPACED_UNITS, Tokenizer
from mallang.text.vocabulary import Vocabulary

FOUND = 0
"""The accepting state, after a word was found; no token leads out of it."""
START = 1
"""The state before the first token of an output."""
NEVER = 1 << 20
"""The distance of an unreachable state, more steps than any output has: the vocabulary cannot spell the word."""
MOST_CELLS = 1 << 28
"""The maximum size of a table, states × tokens."""
EDGE = None
"""In a pattern: any character that is neither letter nor digit, or the start or end of the output."""
GAP, BREAK = "", "\0edge"
"""The edges of a required word: before it a space, an opening mark, a hyphen or the start of the output; after it an
edge that is not `<unk>`, which leaves no text."""
QUOTE, LETTER, APOSTROPHE = "\0quote", "\0letter", "\0apostrophe"
"""In the pattern of a required word: any quotation mark that both opens and closes, any letter, any apostrophe."""
MARKS = {QUOTE: "\"'", APOSTROPHE: "'\u2019"}
ELISIONS = ((LETTER, APOSTROPHE), (LETTER, LETTER, APOSTROPHE))
"""Short elided words between a gap and the word: "l'", "qu'"."""
ELIDED = (("q", "u", APOSTROPHE), ("l", "l", APOSTROPHE))
"""The ends of longer elided words: "lorsqu'", "dell'"."""
NOTHING = "\ufffd"
"""The character that represents `<unk>`, which leaves no text."""
Pattern = tuple[str | None, ...]


@dataclass(frozen=True, eq=False)
class Spelling:
    """The text of every token of a vocabulary."""

    vocabulary: Vocabulary
    texts: tuple[str, ...]
    """The characters of each token, with the space before them; one character per byte for byte-level units."""
    tokenizer: Tokenizer | None = None
    """The tokenizer that normalizes phrases; None: they are not normalized."""

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Spelling:
        """The spelling of a tokenizer's tokens: special tokens and tags have no text, `<unk>` is a gap between words.

        If tokens are split at spaces, `<unk>` is a word.
        """
        unit, vocabulary = tokenizer.config.unit, tokenizer.vocabulary
        hidden = set(vocabulary.specials) | set(tokenizer.backend.get_added_tokens_decoder())
        texts = ["" if number in hidden else token for number, token in enumerate(vocabulary.tokens)]
        if unit in SPACED_UNITS:
            texts = [text.translate(SPACE_MARK) for text in texts]
        elif unit in BYTE_UNITS:
            texts = [text.translate(BYTE_OF) for text in texts]
        elif unit == "space":
            texts = [f" {text}" if text else text for text in texts]
        elif unit == "wordpiece":
            texts = [text.removeprefix("##") if text.startswith("##") or not text else f" {text}" for text in texts]
        texts[vocabulary.unk] = " <unk>" if unit == "space" else NOTHING
        return cls(vocabulary, tuple(texts), tokenizer)

    def pattern(self, phrase: str) -> Pattern:
        """The characters of a phrase as outputs spell them, with its word boundaries."""
        if not isinstance(phrase, str) or not phrase.strip(" *"):
            raise UserError(f"{phrase!r} is not a word to match in an output", todo="give a word or a phrase")
        text = self.normalize(phrase.strip().removeprefix("*").removesuffix("*"))
        first = () if phrase.strip().startswith("*") or not self.is_letter(text[0]) else (EDGE,)
        last = () if phrase.strip().endswith("*") or not self.is_letter(text[-1]) else (EDGE,)
        return (*first, *text, *last)

    def required(self, phrase: str) -> list[Pattern]:
        """The patterns by which an output can contain a required phrase, separated from other words."""
        found = self.pattern(phrase)
        inner = found[found[0] is EDGE : len(found) - (found[-1] is EDGE)]
        last = (BREAK,) if found[-1] is EDGE else ()
        if found[0] is not EDGE:
            return [(*inner, *last)]
        opened = [(GAP, *quote, *elision) for quote in ((), (QUOTE,)) for elision in ((), *ELISIONS)]
        return [(*before, *inner, *last) for before in (*opened, *ELIDED)]

    @cached_property
    def marks(self) -> set[str]:
        """The characters of all tokens that are neither letters nor digits."""
        return {mark for mark in set("".join(self.texts)) if not self.is_letter(mark)}

    def implies(self, phrase: str, other: str) -> bool:
        """Whether every occurrence of `phrase` contains `other`: the pattern of `other` is part of that of `phrase`.

        An edge of `other` also matches a character of `phrase` that is neither letter nor digit.
        """
        whole, part = self.pattern(phrase), self.pattern(other)

        def covers(here: str | None, there: str | None) -> bool:
            return here == there or (there is EDGE and here is not None and not self.is_letter(here))

        starts = range(len(whole) - len(part) + 1)
        return any(all(map(covers, whole[start:], part)) for start in starts)

    def normalize(self, phrase: str) -> str:
        """A phrase in the characters of the tokens."""
        if self.tokenizer is None:
            return phrase
        normalizer, cutter = self.tokenizer.backend.normalizer, self.tokenizer.backend.pre_tokenizer
        text: str = normalizer.normalize_str(phrase).strip() if normalizer is not None else phrase
        if self.tokenizer.config.unit in BYTE_UNITS:
            return text.encode().decode("latin-1")
        if self.tokenizer.config.unit == "wordpiece":  # punctuation stands apart until the text is joined
            return " ".join(piece for piece, _ in cutter.pre_tokenize_str(text))
        return text

    def is_letter(self, character: str) -> bool:
        """Whether a word continues with this character; for bytes this is known of ASCII only."""
        if self.tokenizer is not None and self.tokenizer.config.unit in BYTE_UNITS and not character.isascii():
            return False
        return character.isalnum() or character == "_" or unicodedata.category(character).startswith("M")

    @cached_property
    def continues(self) -> list[bool]:
        """Whether each token, after a word, would extend that word."""
        return [bool(text) and self.is_letter(text[0]) for text in self.texts]

    @cached_property
    def characters(self) -> tuple[np.ndarray, np.ndarray]:
        """The code points of each token, −1 after its end, and which of them are letters or digits."""
        longest = max(map(len, self.texts), default=0)
        points = np.full((len(self.texts), longest), -1, dtype=np.int32)
        for row, text in zip(points, self.texts, strict=True):
            row[: len(text)] = [ord(character) for character in text]
        every = np.unique(points)
        letters = np.array([point >= 0 and self.is_letter(chr(point)) for point in every.tolist()], dtype=bool)
        return points, letters[np.searchsorted(every, points)]


@dataclass(frozen=True, eq=False)
class Matcher:
    """A finite automaton over tokens that finds any of several phrases."""

    table: Int[Tensor, "states vocabulary"]
    """The transition table: the next state for each token, `FOUND` once any of the phrases has occurred."""
    middle: int
    """The start state in the middle of an output, where the text before is unknown."""
    longest: int
    """Characters and edges of the longest phrase: a state depends on no more of them, so on no more tokens."""
    eos: int

    @cached_property
    def steps(self) -> Int[Tensor, " states"]:
        """The minimum number of tokens from each state to `FOUND`, without `</s>`."""
        steps = torch.full((len(self.table),), NEVER)
        steps[FOUND] = 0
        table = torch.cat([self.table[:, : self.eos], self.table[:, self.eos + 1 :]], dim=1).long()
        for distance in range(1, len(table)):
            reaches = (steps[table] == distance - 1).any(dim=1)
            new = reaches & (steps == NEVER)
            if not new.any():
                break
            steps[new] = distance
        return steps

    @cached_property
    def avoiding(self) -> Matcher:
        """The matcher for forbidden phrases: a state from which no output can end without one is `FOUND` already.

        Where every token that could follow a word is an edge, the next character comes too late: the word itself must
        not be generated then.
        """
        words = torch.cat([self.table[:, : self.eos], self.table[:, self.eos + 1 :]], dim=1).long()
        lives = self.table[:, self.eos] != FOUND
        lives[FOUND] = False
        while (grown := lives | lives[words].any(dim=1)).sum() > lives.sum():
            lives = grown
        table = self.table.masked_fill(~lives[self.table.long()], FOUND)
        table[:, self.eos] = self.table[:, self.eos]  # nothing follows the end
        return replace(self, table=table)


@lru_cache(maxsize=64)
def look_for(phrases: tuple[str, ...], spelling: Spelling) -> Matcher:
    """The automaton that finds any of these phrases in the text of tokens."""
    return look_for_patterns([spelling.pattern(phrase) for phrase in phrases], spelling)


@lru_cache(maxsize=64)
def look_for_required(phrase: str, spelling: Spelling) -> Matcher:
    """The automaton that finds a required phrase."""
    return look_for_patterns(spelling.required(phrase), spelling)


def look_for_patterns(patterns: Sequence[Pattern], spelling: Spelling) -> Matcher:
    """The automaton that finds any of these patterns, which have explicit edges."""
    known = sorted({ord(element) for pattern in patterns for element in pattern if element and len(element) == 1})
    if any(GAP in pattern or BREAK in pattern for pattern in patterns):  # these distinguish kinds of marks
        known = sorted({*known, *map(ord, spelling.marks)})
    kinds = [*((chr(point), spelling.is_letter(chr(point))) for point in known), (None, True), (None, False)]
    moves, middle = letter_moves(patterns, kinds)
    points, letters = spelling.characters
    if len(moves) * len(points) > MOST_CELLS:
        raise UserError(
            f"{len(patterns)} phrases of {len(moves)} letters are too many for a vocabulary of {len(points)} tokens",
            todo="give fewer phrases",
        )
    # The class of each character of each token: one of the patterns' own, another letter, another mark, or padding.
    place = np.minimum(np.searchsorted(known, points), len(known) - 1)
    other = np.where(letters, len(known), len(known) + 1)
    kind = np.where(points < 0, len(kinds), np.where(np.array(known)[place] == points, place, other))
    vocabulary = spelling.vocabulary
    state = np.broadcast_to(np.arange(len(moves))[:, None], (len(moves), len(points)))
    for column in kind.T:
        state = moves[state, column[None, :]]
    state = np.array(state)
    state[:, vocabulary.eos] = moves[:, len(known) + 1]  # the end of an output is an edge
    return Matcher(torch.from_numpy(state.astype(np.int32)), middle, max(map(len, patterns)), vocabulary.eos)


def letter_moves(patterns: Sequence[Pattern], kinds: Sequence[tuple[str | None, bool]]) -> tuple[np.ndarray, int]:
    """The transition table over characters, [states, kinds and one for no character]; and the middle state.

    A state is a set of pattern suffixes: what is left of every pattern that the last characters may have begun.
    """
    rests: dict[Pattern, int] = {}
    for pattern in patterns:
        for done in range(len(pattern) + 1):
            rests.setdefault(pattern[done:], len(rests))
    heads = [rest[0] if rest else None for rest in rests]
    tails = [rests[rest[1:]] for rest in rests]
    again = frozenset(rests[pattern] for pattern in patterns)
    first = frozenset(tails[rest] for rest in again if not heads[rest])
    nothing: frozenset[int] = frozenset()
    numbers = {first: START} | ({nothing: START + 1} if first else {})
    waiting, rows = list(numbers), [[FOUND] * (len(kinds) + 1)]
    for begun in waiting:
        row = []
        for kind in kinds:
            after = frozenset(tails[rest] for rest in begun | again if fits(heads[rest], kind))
            if rests[()] in after:
                row.append(FOUND)
                continue
            if after not in numbers:
                numbers[after] = len(numbers) + 1
                waiting.append(after)
            row.append(numbers[after])
        rows.append([*row, numbers[begun]])
    return np.array(rows, dtype=np.int32), numbers[nothing]


def fits(element: str | None, kind: tuple[str | None, bool]) -> bool:
    """Whether an element of a pattern matches a kind of character (itself, if known, and whether it is a letter)."""
    mark, is_letter = kind
    if element == GAP:
        return mark is not None and is_gap(mark)
    if element is EDGE or element == BREAK:
        return not is_letter and not (element == BREAK and mark == NOTHING)
    if element in MARKS:
        return mark is not None and mark in MARKS[element]
    return is_letter if element == LETTER else element == mark


def is_gap(mark: str) -> bool:
    """Whether a word may follow a mark directly: a space, a dash, an opening mark, or a mark of Chinese text."""
    category = unicodedata.category(mark)
    opens = mark.isspace() or category in ("Ps", "Pi", "Pd") or mark in "¿¡"
    chinese = category.startswith("P") and unicodedata.east_asian_width(mark) in ("F", "W")
    return opens or chinese or "\u3000" <= mark <= "\u303f"


def byte_marks() -> dict[int, int]:
    """The byte of each character in GPT-2's byte-to-character table."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in plain]
    return {**{byte: byte for byte in plain}, **{256 + place: byte for place, byte in enumerate(others)}}


BYTE_OF = byte_marks()
