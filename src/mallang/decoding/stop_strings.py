"""Stop strings: texts that end an output, wherever they begin and end in its tokens.

The automaton of `matching.py` finds a stop string in the text of the tokens. Once it is complete, only `</s>` may
follow, with log-probability 0: the score of such an output is that of its tokens up to the one that completes the stop
string. So every search stops there, a beam compares the generated tokens alone, and a step stays one function of
tensors that a GPU can replay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mallang.decoding.matching import FOUND, NEVER, START, Pattern, Spelling, look_for_patterns
from mallang.errors import UserError
from mallang.text.tokenizer import BYTE_UNITS, SPACED_UNITS, Tokenizer


@dataclass(frozen=True)
class StopStrings:
    """The rule that ends outputs at stop strings; all sentences share them."""

    table: Int[Tensor, "states vocabulary"]
    """The transition table: the next state for each token, `FOUND` once a stop string is complete."""
    window: int
    """How many tokens a state depends on: a stop string has at most one token per character."""
    eos: int

    def apply(
        self,
        log_probs: Float[Tensor, "rows vocabulary"],
        labels: Int[Tensor, "rows limit"],
        said: Int[Tensor, ""],
    ) -> Float[Tensor, "rows vocabulary"]:
        """Where a stop string is complete: log-probability 0 for `</s>` and −∞ for all other tokens."""
        found = (self.states(labels, said) == FOUND)[:, None]
        token = torch.arange(log_probs.shape[1], device=log_probs.device)
        only_end = torch.where(token == self.eos, 0.0, -torch.inf)
        return torch.where(found, only_end, log_probs)

    def states(self, labels: Int[Tensor, "rows limit"], said: Int[Tensor, ""]) -> Int[Tensor, " rows"]:
        """The automaton's states after the last `window` tokens, which are all that a state depends on."""
        state = torch.full((len(labels),), START, dtype=torch.long, device=labels.device)
        for place in range(self.window):
            at = said - self.window + place
            token = labels.index_select(1, at.clamp(min=0).view(1))[:, 0]
            state = torch.where(at >= 0, self.table[state, token].long(), state)
        return state

    def keep(self, sentences: Int[Tensor, " kept"]) -> StopStrings:
        """This object: all sentences have the same stop strings."""
        return self


def stop_at(stops: Sequence[str], spelling: Spelling, device: torch.device | None = None) -> StopStrings | None:
    """The rule that ends outputs at any of these texts; None if all of them must be found in the detokenized text.

    A stop string that no tokens can spell is refused.
    """
    patterns = [tuple(spelled(stop, spelling.tokenizer)) for stop in stops]
    for stop, pattern in zip(stops, patterns, strict=True):
        if int(look_for_patterns([pattern], spelling).steps[START]) >= NEVER:
            raise UserError(
                f"the stop string {stop!r} has no effect: this model's tokens cannot spell it",
                todo="leave it out; an output ends with its line by itself",
            )
    certain = [pattern for pattern in patterns if not may_grow(pattern, spelling.tokenizer)]
    if not certain:
        return None
    matcher = look_for_patterns(certain, spelling)
    return StopStrings(matcher.table.to(device), matcher.longest, spelling.vocabulary.eos)


def may_grow(pattern: Pattern, tokenizer: Tokenizer | None) -> bool:
    """Whether the next jamo may change the last syllable: 가 into 간."""
    last = pattern[-1] or ""
    return tokenizer is not None and tokenizer.config.unit == "jamo" and ("\u1100" <= last <= "\u11a7")


def spelled(stop: str, tokenizer: Tokenizer | None) -> str:
    """A stop string in the characters of the tokens; white space at its ends is kept."""
    if not isinstance(stop, str) or not stop:
        raise UserError(f"a stop string must be a text, but is {stop!r}")
    if tokenizer is None:
        return stop
    unit, normalizer = tokenizer.config.unit, tokenizer.backend.normalizer
    text: str = stop if normalizer is None else normalizer.normalize_str(stop)
    if unit in SPACED_UNITS and unit != "morpheme":
        text = text[1:]  # the space that the normalizer puts before every text
    if unit in BYTE_UNITS:
        return text.encode().decode("latin-1")
    if unit == "wordpiece":
        pieces = tokenizer.backend.pre_tokenizer.pre_tokenize_str(text)
        text = " ".join(piece for piece, _ in pieces)
    if not text:
        raise UserError(f"the stop string {stop!r} has no effect: this model's tokens contain no white space")
    return text
