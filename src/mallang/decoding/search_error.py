"""Search error: how often, and by how much, a search misses the best output that its model knows.

It is not the model's fault. Where best-first search proves which output is best, what greedy or beam search found is
held against it; where it does not, nothing is known and nothing is counted. All search in float32, and numbers within
the tolerance count as equal, since each search adds in its own order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from mallang.decoding.contract import Config, Hypothesis
from mallang.errors import UserError

TOLERANCE = 1e-4
"""Of a normalized score, the least that counts as a loss."""
Searcher = Callable[[Config], list[list[Hypothesis]]]
"""Finds the outputs of all sentences by a configuration."""


@dataclass(frozen=True)
class Row:
    """The search error of one beam."""

    beam: int
    """1 is greedy search."""
    errors: int
    """Sentences for which it found a worse output than the best, or none that ends."""
    cut: int
    """Those for which it found none that ends within the longest length, though there is one."""
    share: float | None
    """The same as a share of those whose best output is known; none if it is known of none."""
    loss: float | None
    """What the normalized score lacks, the mean over those that are known and not cut."""


@dataclass(frozen=True)
class SearchError:
    """What searches miss."""

    sentences: int
    solved: int
    """Sentences whose best output is known."""
    empty: int
    """Those among them whose best output says nothing."""
    rows: tuple[Row, ...]
    length_penalty: str
    max_expansions: int

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    def __str__(self) -> str:
        share = f"{self.solved / self.sentences:.1%}" if self.sentences else "none"
        lines = [
            f"best output known of {self.solved} of {self.sentences} sentences ({share}), "
            f"within {self.max_expansions:,} expansions each, length penalty {self.length_penalty}"
        ]
        if self.empty:
            lines.append(f"the best output is empty for {self.empty} of them")
        lines.append("beam   worse     share   mean loss")
        for row in self.rows:
            share = "–" if row.share is None else f"{row.share:.1%}"
            loss = "–" if row.loss is None else f"{row.loss:.5f}"
            more = f"   {row.cut} without an end" if row.cut else ""
            lines.append(f"{row.beam:4d}   {row.errors:5d}   {share:>7}   {loss:>9}{more}")
        return "\n".join(lines)


def search_error(
    search: Searcher, config: Config, beams: Sequence[int], max_expansions: int = Config.max_expansions
) -> SearchError:
    """Search with each beam, and best-first from the widest of them; `config` has all other options."""
    if not beams or min(beams) < 1 or len(set(beams)) < len(beams):
        told = ", ".join(map(str, beams)) or "none"
        raise UserError(f"these are no beams to compare: {told}", todo="give different widths, such as 1,2,4,8,16")
    if config.coverage:
        raise UserError("with coverage there is no best output to prove: it ranks outputs after the search")
    plain = replace(config.with_method("beam"), beam=max(beams), nbest=1, precision="fp32")
    exact = [found[0] for found in search(replace(plain.with_method("best-first"), max_expansions=max_expansions))]
    known = [place for place, best in enumerate(exact) if best.proven]
    rows = []
    for width in beams:
        found = search(replace(plain, beam=width))
        rows.append(compare(width, [(exact[place], found[place][0]) for place in known]))
    return SearchError(
        sentences=len(exact),
        solved=len(known),
        empty=sum(not exact[place].tokens for place in known),
        rows=tuple(rows),
        length_penalty=config.length_penalty,
        max_expansions=max_expansions,
    )


def compare(beam: int, pairs: Sequence[tuple[Hypothesis, Hypothesis]]) -> Row:
    """The best outputs against those that a beam found."""
    whole = [(best, one) for best, one in pairs if one.finished or not best.finished]
    losses = [best.normalized - one.normalized for best, one in whole]
    losses = [loss for loss in losses if loss > TOLERANCE]  # the rest is rounding: nothing lies above the best
    cut = len(pairs) - len(whole)
    return Row(
        beam=beam,
        errors=len(losses) + cut,
        cut=cut,
        share=(len(losses) + cut) / len(pairs) if pairs else None,
        loss=sum(losses) / len(whole) if whole else None,
    )
