"""Where words occur in a text that is written token by token, however they are cut into tokens.

A word such as "cat" may be one token, three, or the middle of a longer one ("concatenate"). So words are looked for in
the text itself: an automaton reads it letter by letter, and since every token is a few letters, a table says to which
state each token leads from each state. To follow a hypothesis is then to look up one number per token.

A word is found where no letter or digit touches it; the letter after it has to be seen, or the end of the output. A
word that is required must also be set off from what stands before it: "book. zebra", not "book.zebra" or "ship'zebra".
A hyphen sets it off ("e-mail"), and so does the apostrophe of an elision ("l'eau", "jusqu'ici", "dell'acqua").
"사과*" is found also where the word goes on ("사과를"), "*과" where it has begun before.
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
"""The state after a word was found; no token leads out of it."""
START = 1
"""The state of an empty output."""
NEVER = 1 << 20
"""A number of steps that no output has: a word that the vocabulary cannot spell."""
MOST_CELLS = 1 << 28
"""The largest table, states × tokens."""
EDGE = None
"""In a pattern: any character that is neither letter nor digit, or the beginning or end of the output."""
GAP, BREAK = "", "\0edge"
"""The edges of a required word: before it a space, an opening mark, a hyphen or the beginning of the output; after it
an edge that is no unknown token, which leaves nothing in the text."""
QUOTE, LETTER, APOSTROPHE = "\0quote", "\0letter", "\0apostrophe"
"""In the pattern of a required word: any mark that opens as well as closes, any letter, any apostrophe."""
MARKS = {QUOTE: "\"'", APOSTROPHE: "'\u2019"}
ELISIONS = ((LETTER, APOSTROPHE), (LETTER, LETTER, APOSTROPHE))
"""What may stand between a gap and a word that it is elided before: "l'", "qu'"."""
ELIDED = (("q", "u", APOSTROPHE), ("l", "l", APOSTROPHE))
"""How longer words end that are elided: "lorsqu'", "dell'"."""
NOTHING = "\ufffd"
"""What `<unk>` puts into the text, where it is left out of it."""
Pattern = tuple[str | None, ...]


@dataclass(frozen=True, eq=False)
class Spelling:
    """What every token of a vocabulary puts into the text."""

    vocabulary: Vocabulary
    texts: tuple[str, ...]
    """The characters of each token, with the space before them; of a byte unit a character stands for a byte."""
    tokenizer: Tokenizer | None = None
    """How phrases are normalized; none: they are taken as they are."""

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Spelling:
        """The spelling of a tokenizer's tokens; special ones and tags leave no text, `<unk>` a gap between words.

        Where words are what stands between spaces, `<unk>` is one of them.
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
        """The characters of a phrase as outputs spell them, with the edges that it must have."""
        if not isinstance(phrase, str) or not phrase.strip(" *"):
            raise UserError(f"{phrase!r} is no word to look for in an output", todo="give a word or a phrase")
        text = self.normalize(phrase.strip().removeprefix("*").removesuffix("*"))
        first = () if phrase.strip().startswith("*") or not self.is_letter(text[0]) else (EDGE,)
        last = () if phrase.strip().endswith("*") or not self.is_letter(text[-1]) else (EDGE,)
        return (*first, *text, *last)

    def required(self, phrase: str) -> list[Pattern]:
        """The ways in which an output can hold a required phrase: as a word that is set off from others."""
        found = self.pattern(phrase)
        inner = found[found[0] is EDGE : len(found) - (found[-1] is EDGE)]
        last = (BREAK,) if found[-1] is EDGE else ()
        if found[0] is not EDGE:
            return [(*inner, *last)]
        opened = [(GAP, *quote, *elision) for quote in ((), (QUOTE,)) for elision in ((), *ELISIONS)]
        return [(*before, *inner, *last) for before in (*opened, *ELIDED)]

    @cached_property
    def marks(self) -> set[str]:
        """The characters of all tokens that are no letters."""
        return {mark for mark in set("".join(self.texts)) if not self.is_letter(mark)}

    def implies(self, phrase: str, other: str) -> bool:
        """Whether wherever a phrase occurs another occurs, too: its letters and edges are among those of the phrase.

        An edge of the other is also where the phrase itself has a mark that is no letter.
        """
        whole, part = self.pattern(phrase), self.pattern(other)

        def covers(here: str | None, there: str | None) -> bool:
            return here == there or (there is EDGE and here is not None and not self.is_letter(here))

        starts = range(len(whole) - len(part) + 1)
        return any(all(map(covers, whole[start:], part)) for start in starts)

    def normalize(self, phrase: str) -> str:
        """A phrase in the characters that tokens are made of."""
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
        """Whether a word continues with this character; of bytes only ASCII can be told."""
        if self.tokenizer is not None and self.tokenizer.config.unit in BYTE_UNITS and not character.isascii():
            return False
        return character.isalnum() or character == "_" or unicodedata.category(character).startswith("M")

    @cached_property
    def continues(self) -> list[bool]:
        """Whether each token, after a word, would make that word longer."""
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
    """An automaton over tokens that looks for some phrases at once."""

    table: Int[Tensor, "states vocabulary"]
    """The state that each token leads to: `FOUND` once any of the phrases has occurred."""
    middle: int
    """The state of one who has read nothing yet and does not know what came before."""
    longest: int
    """Letters and edges of the longest phrase: the state depends on no more of them, so on no more tokens."""
    eos: int

    @cached_property
    def steps(self) -> Int[Tensor, " states"]:
        """How many tokens it takes at least to come from each state to `FOUND`, the end of the output left out."""
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
        """The same for outputs that must not hold the phrases: what cannot end without one has found it already.

        The letter after a word is seen too late where every token that could follow is an edge: the word itself must
        not be said then.
        """
        words = torch.cat([self.table[:, : self.eos], self.table[:, self.eos + 1 :]], dim=1).long()
        lives = self.table[:, self.eos] != FOUND
        lives[FOUND] = False
        while (grown := lives | lives[words].any(dim=1)).sum() > lives.sum():
            lives = grown
        table = self.table.masked_fill(~lives[self.table.long()], FOUND)
        table[:, self.eos] = self.table[:, self.eos]  # after the end nothing has to follow
        return replace(self, table=table)


@lru_cache(maxsize=64)
def look_for(phrases: tuple[str, ...], spelling: Spelling) -> Matcher:
    """The automaton that finds any of these phrases in what tokens spell."""
    return look_for_patterns([spelling.pattern(phrase) for phrase in phrases], spelling)


@lru_cache(maxsize=64)
def look_for_required(phrase: str, spelling: Spelling) -> Matcher:
    """The automaton that finds a phrase that must be in the output."""
    return look_for_patterns(spelling.required(phrase), spelling)


def look_for_patterns(patterns: Sequence[Pattern], spelling: Spelling) -> Matcher:
    """The same for patterns, whose edges are as they are given."""
    known = sorted({ord(element) for pattern in patterns for element in pattern if element and len(element) == 1})
    if any(GAP in pattern or BREAK in pattern for pattern in patterns):  # not all marks are the same to these
        known = sorted({*known, *map(ord, spelling.marks)})
    kinds = [*((chr(point), spelling.is_letter(chr(point))) for point in known), (None, True), (None, False)]
    moves, middle = letter_moves(patterns, kinds)
    points, letters = spelling.characters
    if len(moves) * len(points) > MOST_CELLS:
        raise UserError(
            f"{len(patterns)} phrases of {len(moves)} letters are too many for a vocabulary of {len(points)} tokens",
            todo="look for fewer at once",
        )
    # What each letter of each token is to the patterns: one of theirs, another letter, another mark, or past the end.
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
    """The state after each kind of letter: [states, kinds and one more for no letter]; and the state of the middle.

    A state is a set of what is left of patterns: all that the last letters may be the beginning of.
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
    """Whether a kind of letter, the letter itself if it is known and whether it is one, is what a pattern asks for."""
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
    """The byte behind each character by which byte units write it (GPT-2's list)."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in plain]
    return {**{byte: byte for byte in plain}, **{256 + place: byte for place, byte in enumerate(others)}}


BYTE_OF = byte_marks()
