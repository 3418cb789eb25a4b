"""Continuations of prompts: the tokens generated so far, the context window that is read next, and where a text ends.

A text is generated in pieces. A piece ends with its line, at a stop string, or where the context is full; then the text
so far is the prompt of the next piece, truncated from the left to the model's context:

    prompt  "The dog"       reads  <s> The dog              writes  barks . </s>
    next line               reads  <s> The dog barks . <s>  writes  It is late . </s>
    full context            reads            barks . <s> It is late

One boundary separates two lines: `</s>` as an output, `<s>` as an input, as in the streams that models train on.
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
"""Tokens that are read again for the next line, where a model has no maximum context."""


@dataclass(frozen=True)
class GenerationOptions:
    """Generation options besides the search: number of lines, stop strings."""

    config: Config
    lines: int = 1
    """Number of lines to generate."""
    stop: tuple[str, ...] = ()
    """Stop strings: each ends an output and is not part of it."""


@dataclass(frozen=True)
class Reader:
    """Turns texts into prompts for one model: tokenizer, context and line boundaries."""

    tokenizer: Tokenizer
    context: int | None
    """The maximum context in tokens; none: no limit is known."""
    is_stream: bool
    """Whether the model was trained on a stream of consecutive lines."""
    model: Any = None
    """The model, which may read words outside its vocabulary."""

    def prompt(self, text: str) -> Prompt:
        """A text as a prompt; for a model trained on streams, the text is split into lines."""
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
        """The part of a text that the model reads, and how many tokens it can generate after it, at most `wanted`.

        A text that fits is read whole. A longer one is truncated from the left, so that half of the context is free.
        """
        limit = self.context or (REREAD if again else None)
        if limit is None:
            return list(ids), wanted
        if len(ids) > limit:
            keep = limit - min(wanted, max(1, limit // 2)) + 1
            # A model that was trained only on texts that begin with `<s>` gets `<s>` here as well.
            ids = ids[-keep:] if self.is_stream or keep == 1 else [BOS, *ids[len(ids) - keep + 1 :]]
        return list(ids), wanted if self.context is None else min(wanted, limit - len(ids) + 1)


@dataclass(frozen=True)
class Prompt:
    """A prompt: the lines of a text and their tokens."""

    text: str
    lines: tuple[tuple[int, ...], ...]
    unknown: tuple[str, ...] = ()
    """Its words or characters that the model can only read as `<unk>`."""
    read: tuple[tuple[int, ...], ...] = ()
    """The input ids of the lines, where the model has ids for words that it can read but not generate."""

    @property
    def ids(self) -> list[int]:
        """The input ids: `<s>` before every line."""
        return [token for line in self.read or self.lines for token in (BOS, *line)]

    def notes(self, reader: Reader) -> list[str]:
        """Notes for the user: unknown words, truncation, a trailing space."""
        notes = []
        if self.unknown:
            notes.append(f"unknown to the model, and read as <unk>: {some_of(self.unknown)}")
        if reader.context is not None and len(self.ids) > reader.context:
            length = len(self.ids)
            notes.append(
                f"the prompt has {length} tokens, but the context of the model is {reader.context}: its first tokens "
                "were cut off"
            )
        if self.text.endswith(" ") and reader.tokenizer.config.unit in SPACED_UNITS:
            notes.append("the prompt ends with a space, but words bring the space before them along: leave it out")
        return notes


@dataclass
class Continuation:
    """A continuation being generated: its prompt, tokens and scores so far."""

    prompt: Prompt
    number: int
    """The index of the prompt in the caller's list."""
    sample: int = 0
    """The index of this output among those of the prompt."""
    pieces: int = 0
    """How many pieces were generated so far."""
    lines: list[list[int]] = field(default_factory=lambda: [[]])
    """The generated tokens, line by line; the first line continues the last line of the prompt."""
    scores: list[float] = field(default_factory=list)
    """The log-probability of each generated token, each `</s>` included."""
    is_done: bool = False
    is_cut: bool = False
    """Whether it ended at the length limit."""
    proven: bool | None = None
    stopped: str | None = None
    """The text, once it was cut at a stop string."""

    @property
    def key(self) -> int:
        """A random key that is unique for every piece of every output."""
        return self.number if not self.pieces else (((self.pieces << 24) + self.sample) << 40) + self.number

    @property
    def first_sample(self) -> int:
        """The index of the sample to draw for its key: later pieces have the sample in the key."""
        return 0 if self.pieces else self.sample

    @property
    def ids(self) -> list[int]:
        """The input ids of the text so far: line boundaries are `<s>`."""
        first, *others = self.lines
        return [*self.prompt.ids, *first, *(token for line in others for token in (BOS, *line))]

    def take(self, found: Hypothesis, generation: GenerationOptions, tokenizer: Tokenizer) -> None:
        """Append the hypothesis that the search found for this piece."""
        self.lines[-1] += found.tokens
        self.scores += found.token_scores
        self.proven = found.proven
        self.close(found.finished, generation, tokenizer)

    def close(self, finished: bool, generation: GenerationOptions, tokenizer: Tokenizer) -> None:
        """End a piece, with `</s>` if it is finished, and decide whether more is to be generated."""
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
        """End the text before a stop string; the tokens end with the one that completes the stop string.

        While a text is growing, the part at its end that may still change is not searched.
        """
        text = self.output(tokenizer) if stops else ""
        text = text[: settled(text, tokenizer)] if growing else text
        found = [(place, stop) for stop in stops if (place := text.find(stop)) >= 0]
        if not found:
            return False
        place, stop = min(found)
        # Remove tokens after the stop string. They are few: the search ends there too, unless it could not be sure.
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
        """The generated text without the prompt; if its first letters changed the prompt's last ones, those too."""
        if self.stopped is not None:
            return self.stopped
        first, *others = self.lines
        given = self.prompt.lines[-1]
        before, whole = tokenizer.decode(given), tokenizer.decode((*given, *first))
        return "\n".join([whole[shared(before, whole) :], *map(tokenizer.decode, others)])

    def text(self, tokenizer: Tokenizer) -> str:
        """The prompt and the generated text."""
        *head, last = self.prompt.text.split("\n", len(self.prompt.lines) - 1)
        before, whole = (tokenizer.decode((*self.prompt.lines[-1], *said)) for said in ((), self.lines[0]))
        common = shared(before, whole)
        return "\n".join([*head, (last if common == len(before) else whole[:common]) + self.output(tokenizer)])

    def tokens(self, tokenizer: Tokenizer) -> tuple[str, ...]:
        """The generated tokens as strings, with `</s>` between lines."""
        first, *others = self.lines
        flat = [*first, *(token for line in others for token in (EOS, *line))]
        return tuple(tokenizer.vocabulary.tokens[token] for token in flat)


def settled(text: str, tokenizer: Tokenizer, stops: Sequence[str] = ()) -> int:
    """The length of the stable part of a streamed text: the rest may still change.

    With jamo the last syllable may grow, with bytes the last character may be incomplete, and the end of the text may
    turn out to be part of a stop string.
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
    """The length of the common prefix of two texts."""
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
