"""Lexical constraints on a translation: a forced prefix, required words, forbidden words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

from mallang.data.batch import Batch
from mallang.decoding import contract, required
from mallang.decoding.constraints import constrain
from mallang.decoding.contract import Autoregressive, Config, Hypothesis
from mallang.decoding.coverage import covered, pick
from mallang.decoding.matching import FOUND, NEVER, START, Matcher, Spelling, look_for, look_for_required
from mallang.decoding.precision import at_precision
from mallang.decoding.search import search
from mallang.errors import UserError, nearest
from mallang.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Request:
    """A text to translate, and the constraints on its translation."""

    text: str
    prefix: str = ""
    """Forced prefix: whole words that the translation must begin with."""
    require: tuple[str, ...] = ()
    """Words or phrases that the translation must contain."""
    forbid: tuple[str, ...] = ()
    """Words or phrases that the translation must not contain."""

    @classmethod
    def of(cls, given: str | Mapping[str, Any] | Request) -> Request:
        """A request from a text, or from a text with constraints, such as `{"text": …, "require": […]}`."""
        if isinstance(given, Request):
            return given
        if isinstance(given, str):
            return cls(given)
        known = {field.name for field in fields(cls)}
        if not isinstance(given, Mapping) or "text" not in given:
            raise UserError(f"{str(given)[:60]!r} is no text to translate", todo='give a text, or {"text": …}')
        for name in given:
            if name not in known:
                raise UserError(f"nothing called {name!r} can be asked of a translation", todo=nearest(name, known))
        for name in ("text", "prefix"):
            if not isinstance(given.get(name, ""), str):
                raise UserError(f"{name} must be a text, but is {given[name]!r}")
        lists = {name: phrases(given.get(name, ()), name) for name in ("require", "forbid")}
        return cls(text=given["text"], prefix=given.get("prefix", "").strip(), **lists)

    @property
    def is_plain(self) -> bool:
        """Whether it has no constraints."""
        return not (self.prefix or self.require or self.forbid)

    def split(self, pieces: Sequence[str]) -> list[Request]:
        """The pieces of a long text: only the first has the prefix; none requires words, as their piece is unknown."""
        if len(pieces) == 1:
            return [replace(self, text=pieces[0])]
        return [Request(piece, "" if number else self.prefix, (), self.forbid) for number, piece in enumerate(pieces)]


def phrases(given: Any, name: str) -> tuple[str, ...]:
    """One phrase or several, as a tuple."""
    listed = [given] if isinstance(given, str) else given
    if not isinstance(listed, Iterable) or not all(isinstance(phrase, str) and phrase.strip() for phrase in listed):
        raise UserError(f"{name} must be a list of words or phrases, but is {given!r}")
    return tuple(dict.fromkeys(phrase.strip() for phrase in listed))


def requests(
    texts: Iterable[str | Mapping[str, Any] | Request],
    prefix: str = "",
    require: str | Iterable[str] = (),
    forbid: str | Iterable[str] = (),
) -> Iterator[Request]:
    """Requests for texts: the constraints of all texts, and those of each text added to them."""
    everywhere = Request.of({"text": "", "prefix": prefix, "require": require, "forbid": forbid})
    for text in texts:
        own = Request.of(text)
        yield Request(
            own.text,
            own.prefix or everywhere.prefix,
            tuple(dict.fromkeys((*own.require, *everywhere.require))),
            tuple(dict.fromkeys((*own.forbid, *everywhere.forbid))),
        )


class LexicalConstraints:
    """Lexical constraints for outputs of one tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    @cached_property
    def spelling(self) -> Spelling:
        """The characters of each token."""
        return Spelling.of(self.tokenizer)

    def check(self, request: Request, config: Config) -> None:
        """Refuse constraints that contradict each other or that the search cannot enforce."""
        if request.require and config.method != "beam":
            raise UserError(
                f"required words need beam search, but the method is {config.method}",
                todo="leave out require, or choose method=beam",
            )
        for name in ("runner", "compile") if request.require else ():
            if getattr(config, name) != contract.DEFAULTS[name]:
                raise UserError(
                    f"decoding.{name} = {getattr(config, name)} has no effect on required words",
                    todo=f"leave out require or {name}",
                )
        for phrase in (*request.require, *request.forbid):
            self.spelling.pattern(phrase)
        for phrase in request.forbid:
            if request.prefix and self.holds(self.tokenizer.encode(request.prefix).ids, phrase):
                raise UserError(f"the prefix {request.prefix!r} holds {phrase!r}, which is forbidden")
            for wanted in request.require:
                if self.spelling.implies(wanted, phrase):
                    raise UserError(
                        f"the required {wanted!r} holds {phrase!r}, which is forbidden", todo="leave out one of them"
                    )

    def search(
        self, model: Autoregressive, batch: Batch, config: Config, numbers: Sequence[int], asked: Sequence[Request]
    ) -> list[list[Hypothesis]]:
        """Constrained search for every sentence of a batch."""
        if all(request.is_plain for request in asked):
            return search(model, batch, config, numbers)
        prefixes = self.tokenizer.encode_batch([request.prefix for request in asked])
        rules = constrain(self.spelling, prefixes, [request.forbid for request in asked], batch.tokens.device)
        if not any(request.require for request in asked):
            return search(model, batch, config, numbers, rules)
        model = at_precision(model, config)
        matchers = [list(filter(self.can_spell, map(self.wanted, request.require))) for request in asked]
        found = covered(model, batch, config, lambda wide: required.search(model, batch, wide, matchers, rules))
        if missing := [place for place, nbest in enumerate(found) if not nbest]:
            rows = batch.tokens.new_tensor(missing)
            others, theirs = pick(batch, missing), [numbers[place] for place in missing]
            again = search(model, others, config, theirs, rules.keep(rows))
            for place, nbest in zip(missing, again, strict=True):
                found[place] = nbest
        return found

    def notes(self, request: Request, outputs: Sequence[Hypothesis], *, replaced: bool = False) -> list[str]:
        """Notes on constraints that the outputs for the pieces of a text do not meet, and on unknown words."""
        said = [output.tokens for output in outputs]
        unk = self.tokenizer.vocabulary.unk
        unknown = sum(tokens.count(unk) for tokens in said)
        notes = [f"unknown tokens {'replaced' if replaced else 'left out'}: {unknown}"] if unknown else []
        for phrase in request.require:
            if not any(self.holds(tokens, phrase, self.wanted(phrase)) for tokens in said):
                why = "there was no room for it" if len(said) == 1 else "the text was split"
                if not self.can_spell(self.wanted(phrase)):
                    why = "the vocabulary cannot spell it"
                notes.append(f"the required {phrase!r} is missing: {why}")
        for phrase in request.forbid:
            if any(self.holds(tokens, phrase) for tokens in said):
                notes.append(f"the forbidden {phrase!r} is where the output was cut off")
        if request.prefix and unk in self.tokenizer.encode(request.prefix).ids:
            notes.append("the vocabulary cannot spell all of the prefix")
        return notes

    def matcher(self, phrase: str) -> Matcher:
        """A matcher for a phrase."""
        return look_for((phrase,), self.spelling)

    def wanted(self, phrase: str) -> Matcher:
        """A matcher for a required phrase, which must begin at a word boundary."""
        return look_for_required(phrase, self.spelling)

    def can_spell(self, matcher: Matcher) -> bool:
        """Whether any sequence of tokens spells the phrase."""
        return int(matcher.steps[matcher.middle]) < NEVER

    def holds(self, tokens: Iterable[int], phrase: str, matcher: Matcher | None = None) -> bool:
        """Whether a phrase occurs in the text of tokens; a matcher may be stricter than the phrase."""
        matcher, state = matcher or self.matcher(phrase), START
        for token in (*tokens, self.tokenizer.vocabulary.eos):
            state = int(matcher.table[state, token])
        return state == FOUND
