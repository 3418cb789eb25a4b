"""Search error: how often, and by how much, a search misses the output that its model scores best.

Search errors are not model errors. Where best-first search proves which output is best, the output of greedy or beam
search is compared with it; other sentences are not counted. All searches use float32, and scores within the tolerance
count as equal, since each search adds in its own order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from mallang.decoding.contract import Config, Hypothesis
from mallang.errors import UserError

TOLERANCE = 1e-4
"""The minimum difference of normalized scores that counts as a search error."""
Searcher = Callable[[Config], list[list[Hypothesis]]]
"""Searches the outputs of all sentences with given options."""


@dataclass(frozen=True)
class Row:
    """The search error of one beam width."""

    beam: int
    """The beam width; 1 is greedy search."""
    errors: int
    """Sentences for which it found a worse output than the best, or none that ends."""
    cut: int
    """Sentences for which it found no output that ends within the maximum length, though there is one."""
    share: float | None
    """The errors as a fraction of the sentences whose best output is known; None if there are none."""
    loss: float | None
    """The mean difference of the normalized score to the best, over the known sentences that are not cut."""


@dataclass(frozen=True)
class SearchError:
    """The search errors of several beam widths."""

    sentences: int
    solved: int
    """Sentences whose best output is known."""
    empty: int
    """Sentences whose best output is known to be empty."""
    rows: tuple[Row, ...]
    length_penalty: str
    max_expansions: int

    def to_json(self) -> dict[str, Any]:
        """Plain values, for JSON."""
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
    """Compare the outputs of each beam width with those of best-first search; `config` has all other options."""
    if not beams or min(beams) < 1 or len(set(beams)) < len(beams):
        given = ", ".join(map(str, beams)) or "none"
        raise UserError(f"these beam widths cannot be compared: {given}", todo="give different ones: 1,2,4,8,16")
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
    """The search error of one beam width, from pairs of the best output and the beam's output."""
    whole = [(best, one) for best, one in pairs if one.finished or not best.finished]
    losses = [best.normalized - one.normalized for best, one in whole]
    losses = [loss for loss in losses if loss > TOLERANCE]  # the rest is rounding: nothing scores above the best
    cut = len(pairs) - len(whole)
    return Row(
        beam=beam,
        errors=len(losses) + cut,
        cut=cut,
        share=(len(losses) + cut) / len(pairs) if pairs else None,
        loss=sum(losses) / len(whole) if whole else None,
    )
