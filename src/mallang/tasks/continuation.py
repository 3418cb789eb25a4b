"""A text that a language model writes: the prompt, what was said after it, what the model reads of it, where it ends.

A text is written in pieces. A piece ends with its line, at a stop string, or where the model's context is full; then
the text so far is the prompt of the next one, cut from the left to what the model can read:

    prompt  "The dog"       reads  <s> The dog              says  barks . </s>
    next line               reads  <s> The dog barks . <s>  says  It is late . </s>
    full context            reads            barks . <s> It is late

Between two lines stands one boundary, said as `</s>` and read as `<s>`, as models that learn from streams know it.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mallang.decoding.contract import Config, Hypothesis
from mallang.decoding.streaming import WALKS
from mallang.errors import UserError, some_of
from mallang.tasks.out_of_vocabulary import ids_to_read
from mallang.text.tokenizer import BYTE_UNITS, SPACED_UNITS, Encoding, Tokenizer
from mallang.text.vocabulary import BOS, EOS

REREAD = 1024
"""Tokens that are read again for the next line, where a model has no longest context."""


@dataclass(frozen=True)
class GenerationOptions:
    """What is asked of outputs, besides how they are searched for."""

    config: Config
    lines: int = 1
    """Lines to write."""
    stop: tuple[str, ...] = ()
    """Texts that end an output; they do not belong to it."""


@dataclass(frozen=True)
class Reader:
    """How a model reads texts."""

    tokenizer: Tokenizer
    context: int | None
    """The most tokens that it reads at once; none: no end is known."""
    is_stream: bool
    """Whether it has learned from lines that follow each other."""
    model: Any = None
    """The model, which may read words that are not in its vocabulary."""

    def prompt(self, text: str) -> Prompt:
        """A text as a prompt; the lines of one that is a stream are told apart."""
        return self.prompts([text])[0]

    def prompts(self, texts: Sequence[str]) -> list[Prompt]:
        """Many texts as prompts."""
        for text in texts:
            if not isinstance(text, str):
                raise UserError(f"a prompt must be a text, but is {text!r}")
        parts = [text.split("\n") if self.is_stream else [text] for text in texts]
        flat = [part for several in parts for part in several]
        encoded = [self.tokenizer.encode(part) for part in flat]
        read = ids_to_read(self.model, self.tokenizer, flat, [line.ids for line in encoded])
        ends = list(itertools.accumulate(map(len, parts), initial=0))
        return [
            self.prompt_of(text, several, encoded[begin:end], read[begin:end])
            for text, several, (begin, end) in zip(texts, parts, itertools.pairwise(ends), strict=True)
        ]

    def prompt_of(
        self, text: str, parts: Sequence[str], encoded: Sequence[Encoding], read: Sequence[list[int]]
    ) -> Prompt:
        """A text as a prompt: its lines, their tokens, and the ids under which they are read."""
        unknown = [
            piece
            for part, line, ids in zip(parts, encoded, read, strict=True)
            for piece in replace(line, ids=ids).unknown_in(part)
        ]
        lines = tuple(tuple(line.ids) for line in encoded)
        return Prompt(text, lines, tuple(dict.fromkeys(unknown)), tuple(map(tuple, read)))

    def window(self, ids: Sequence[int], wanted: int, *, again: bool) -> tuple[list[int], int]:
        """What the model reads of a text so far, and how many tokens it can say then; `wanted` are asked for.

        A text that fits is read whole. One that does not is cut from the left, so that half of the context is free.
        """
        limit = self.context or (REREAD if again else None)
        if limit is None:
            return list(ids), wanted
        if len(ids) > limit:
            keep = limit - min(wanted, max(1, limit // 2)) + 1
            # A model that has only ever begun with `<s>` goes on doing so.
            ids = ids[-keep:] if self.is_stream or keep == 1 else [BOS, *ids[len(ids) - keep + 1 :]]
        return list(ids), wanted if self.context is None else min(wanted, limit - len(ids) + 1)


@dataclass(frozen=True)
class Prompt:
    """What a text begins with."""

    text: str
    lines: tuple[tuple[int, ...], ...]
    unknown: tuple[str, ...] = ()
    """What of it the model can only read as `<unk>`."""
    read: tuple[tuple[int, ...], ...] = ()
    """The lines as the model reads them, where it has ids for words that it cannot say."""

    @property
    def ids(self) -> list[int]:
        """As the model reads it: `<s>` before every line."""
        return [token for line in self.read or self.lines for token in (BOS, *line)]

    def notes(self, reader: Reader) -> list[str]:
        """What its writer should know."""
        notes = []
        if self.unknown:
            notes.append(f"unknown to the model, and read as <unk>: {some_of(self.unknown)}")
        if reader.context is not None and len(self.ids) > reader.context:
            length = len(self.ids)
            notes.append(
                f"the prompt has {length} tokens and the model reads {reader.context}: its beginning was cut off"
            )
        if self.text.endswith(" ") and reader.tokenizer.config.unit in SPACED_UNITS:
            notes.append("the prompt ends with a space, but words bring the space before them along: leave it out")
        return notes


@dataclass
class Continuation:
    """One text under way."""

    prompt: Prompt
    number: int
    """The prompt's place in the caller's whole list."""
    sample: int = 0
    """Which of its outputs."""
    pieces: int = 0
    """How often the model was asked so far."""
    lines: list[list[int]] = field(default_factory=lambda: [[]])
    """The tokens said, line by line; the first continues with the last line of the prompt."""
    scores: list[float] = field(default_factory=list)
    """The log-probability of each, and of each `</s>`."""
    is_done: bool = False
    is_cut: bool = False
    """Whether it ended because there was no room for more."""
    proven: bool | None = None
    stopped: str | None = None
    """The text, once it was cut at a stop string."""

    @property
    def key(self) -> int:
        """A number of its own for every piece of every output, so that each has random numbers of its own."""
        return self.number if not self.pieces else (((self.pieces << 24) + self.sample) << 40) + self.number

    @property
    def first_sample(self) -> int:
        """The number of the sample to draw for its key: later pieces have the sample in the key."""
        return 0 if self.pieces else self.sample

    @property
    def ids(self) -> list[int]:
        """The text so far, as the model reads it: boundaries are read as `<s>`."""
        first, *others = self.lines
        return [*self.prompt.ids, *first, *(token for line in others for token in (BOS, *line))]

    def take(self, found: Hypothesis, generation: GenerationOptions, tokenizer: Tokenizer) -> None:
        """What the model said this time."""
        self.lines[-1] += found.tokens
        self.scores += found.token_scores
        self.proven = found.proven
        self.close(found.finished, generation, tokenizer)

    def close(self, finished: bool, generation: GenerationOptions, tokenizer: Tokenizer) -> None:
        """The end of a piece, with `</s>` if it is finished: whether there is more to come."""
        self.pieces += 1
        if self.stop(generation.stop, tokenizer):
            return
        if finished and len(self.lines) < generation.lines:
            self.lines.append([])
        elif finished:
            self.is_done = True
        elif len(self.lines[-1]) >= generation.config.max_length or generation.config.method not in WALKS:
            self.is_done = self.is_cut = True

    def stop(self, stops: Sequence[str], tokenizer: Tokenizer, *, growing: bool = False) -> bool:
        """End where the text holds a stop string: before it, and with the token that completes it.

        While a text is growing, its end does not count that may still change.
        """
        text = self.output(tokenizer) if stops else ""
        text = text[: settled(text, tokenizer)] if growing else text
        found = [(place, stop) for stop in stops if (place := text.find(stop)) >= 0]
        if not found:
            return False
        place, stop = min(found)
        # Tokens after the stop string: few, for the search ends there as well, but for what it could not be sure of.
        while self.lines[-1]:
            last = self.lines[-1].pop()
            if self.output(tokenizer).find(stop) != place:
                self.lines[-1].append(last)
                break
        said = sum(map(len, self.lines)) + len(self.lines) - 1
        del self.scores[said:]
        self.is_done, self.stopped = True, text[:place]
        return True

    def output(self, tokenizer: Tokenizer) -> str:
        """What was written, without the prompt; where the first letters changed its last, those as well."""
        if self.stopped is not None:
            return self.stopped
        first, *others = self.lines
        given = self.prompt.lines[-1]
        before, whole = tokenizer.decode(given), tokenizer.decode((*given, *first))
        return "\n".join([whole[shared(before, whole) :], *map(tokenizer.decode, others)])

    def text(self, tokenizer: Tokenizer) -> str:
        """The prompt and what was written after it."""
        *head, last = self.prompt.text.split("\n", len(self.prompt.lines) - 1)
        before, whole = (tokenizer.decode((*self.prompt.lines[-1], *said)) for said in ((), self.lines[0]))
        common = shared(before, whole)
        return "\n".join([*head, (last if common == len(before) else whole[:common]) + self.output(tokenizer)])

    def tokens(self, tokenizer: Tokenizer) -> tuple[str, ...]:
        """The names of the tokens said; `</s>` stands between lines."""
        first, *others = self.lines
        flat = [*first, *(token for line in others for token in (EOS, *line))]
        return tuple(tokenizer.vocabulary.tokens[token] for token in flat)


def settled(text: str, tokenizer: Tokenizer, stops: Sequence[str] = ()) -> int:
    """How much of a text that grows can no longer change: the rest is told when it is sure.

    Of jamo the last syllable may grow, of bytes the last character may be half there, and what may become a stop
    string does not belong to the text.
    """
    sure = len(text)
    if tokenizer.config.unit == "jamo":
        sure -= 1
        while sure > 0 and is_joined(text[sure]):
            sure -= 1
    elif tokenizer.config.unit in BYTE_UNITS:
        sure = len(text.rstrip("\ufffd"))
    for stop in stops:
        overlaps = (size for size in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:size]))
        sure = min(sure, len(text) - next(overlaps, 0))
    return max(0, sure)


def shared(one: str, other: str) -> int:
    """With how many characters both begin."""
    pairs = zip(one, other, strict=False)
    return next((place for place, (here, there) in enumerate(pairs) if here != there), min(len(one), len(other)))


def is_joined(character: str) -> bool:
    """Whether a character joins the one before it: a vowel or final jamo, or a combining mark."""
    return "\u1160" <= character <= "\u11ff" or unicodedata.combining(character) > 0


def halved(text: str) -> tuple[str, str]:
    """The first half of a text and the rest: of its words, or of its characters where it has one word."""
    words = text.split()
    if len(words) > 1:
        return " ".join(words[: len(words) // 2]), " ".join(words[len(words) // 2 :])
    return text[: len(text) // 2], text[len(text) // 2 :]
