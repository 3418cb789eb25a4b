"""Constrained decoding: forced prefixes and forbidden phrases, as rules that every search obeys.

The scores stay the model's own: a forced token keeps its log-probability, a forbidden one gets −∞, and nothing is
renormalized. All of it is tensor code of fixed shapes without host synchronization, so that a step can be captured as
a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mallang.data.batch import pad_rows
from mallang.decoding.matching import FOUND, START, Matcher, Spelling, look_for

ANY = -1
"""In a prefix: any token may follow."""
NEW_WORD = -2
"""In a prefix: any token may follow that does not extend the word before it."""
FREE = 1
"""In the joined table: the state of a sentence without forbidden phrases."""


PLACES = 16
"""Prefixes are padded to a multiple of this, tables to a power of two, so that few CUDA graphs are captured."""


@dataclass(frozen=True)
class Constraints:
    """The forced prefix and the forbidden phrases of every sentence."""

    prefix: Int[Tensor, "sentences places"]
    """The forced token at each position; `ANY` or `NEW_WORD` where none is forced."""
    continues: Bool[Tensor, " vocabulary"]
    """Whether a token extends the word before it."""
    start: Int[Tensor, " sentences"]
    """The state of each sentence's matcher before the first token."""
    middle: Int[Tensor, " sentences"]
    """The state of each sentence's matcher when it starts in the middle of an output."""
    table: Int[Tensor, "states vocabulary"]
    """The transition table of all matchers: the next state for each state and token."""
    window: int
    """How many tokens a state depends on; 0 without forbidden phrases."""

    def apply(
        self,
        log_probs: Float[Tensor, "rows vocabulary"],
        labels: Int[Tensor, "rows limit"],
        said: Int[Tensor, ""],
    ) -> Float[Tensor, "rows vocabulary"]:
        """The log-probabilities, with −∞ for tokens that must not follow."""
        width = len(log_probs) // len(self.prefix)
        place = said.clamp(max=self.prefix.shape[1] - 1)
        asked = widened(self.prefix.index_select(1, place.view(1))[:, 0], width)[:, None]
        token = torch.arange(log_probs.shape[1], device=log_probs.device)
        allowed = (asked == ANY) | (asked == token) | ((asked == NEW_WORD) & ~self.continues)
        if self.window:
            allowed = allowed & (self.table[self.states(labels, said, width)] != FOUND)
        return log_probs.masked_fill(~allowed, -torch.inf)

    def states(self, labels: Int[Tensor, "rows limit"], said: Int[Tensor, ""], width: int) -> Int[Tensor, " rows"]:
        """The matcher states after the last `window` tokens, which are all that a state depends on."""
        begin = said - self.window
        state = widened(torch.where(begin > 0, self.middle, self.start), width)
        for place in range(self.window):
            at = begin + place
            token = labels.index_select(1, at.clamp(min=0).view(1))[:, 0]
            state = torch.where(at >= 0, self.table[state, token].long(), state)
        return state

    def keep(self, sentences: Int[Tensor, " kept"]) -> Constraints:
        """The constraints of these sentences."""
        return replace(self, prefix=self.prefix[sentences], start=self.start[sentences], middle=self.middle[sentences])


def widened(values: Int[Tensor, " sentences"], width: int) -> Int[Tensor, " rows"]:
    """Repeat one value per sentence for each of its hypotheses."""
    return values[:, None].expand(-1, width).reshape(-1)


def constrain(
    spelling: Spelling,
    prefixes: Sequence[Sequence[int]],
    forbidden: Sequence[Sequence[str]],
    device: torch.device | None = None,
) -> Constraints:
    """The constraints of some sentences: the forced prefix of each, as ids, and the phrases forbidden in it.

    A new word begins after a prefix: "Ein Hund" is not continued as "Ein Hunderennen".
    """
    rows = [[*prefix, NEW_WORD, ANY] if prefix else [ANY] for prefix in prefixes]
    places = -(-max(map(len, rows)) // PLACES) * PLACES
    rows[0] += [ANY] * (places - len(rows[0]))
    lists = [tuple(dict.fromkeys(phrases)) for phrases in forbidden]
    matchers = {phrases: look_for(phrases, spelling).avoiding for phrases in lists if phrases}
    table, offsets = join(list(matchers.values()), len(spelling.texts))
    place = dict(zip(matchers, offsets, strict=True))
    start = [place[phrases] + START if phrases else FREE for phrases in lists]
    middle = [place[phrases] + matchers[phrases].middle if phrases else FREE for phrases in lists]
    return Constraints(
        prefix=pad_rows(rows, ANY)[0].to(device),
        continues=torch.tensor(spelling.continues, device=device),
        start=torch.tensor(start, device=device),
        middle=torch.tensor(middle, device=device),
        table=table.to(device),
        window=max((matcher.longest for matcher in matchers.values()), default=0),
    )


def join(matchers: Sequence[Matcher], words: int) -> tuple[Int[Tensor, "states vocabulary"], list[int]]:
    """One transition table for several matchers, which share `FOUND` and `FREE`; and the state offset of each."""
    rows = [torch.full((1, words), FOUND, dtype=torch.int32), torch.full((1, words), FREE, dtype=torch.int32)]
    offsets, size = [], 2
    for matcher in matchers:
        own = matcher.table[1:]
        offsets.append(size - 1)
        rows.append(torch.where(own == FOUND, FOUND, own + offsets[-1]).to(torch.int32))
        size += len(own)
    spare = (1 << (size - 1).bit_length()) - size
    return torch.cat([*rows, rows[1].expand(spare, -1)]), offsets
