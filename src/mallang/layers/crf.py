"""Linear-chain conditional random field over tags (Lafferty et al. 2001; on an LSTM: arXiv:1508.01991, 1603.01360).

    score(y) = start(y_1) + Σ_t f_t(y_t) + Σ_t A(y_t, y_t+1) + end(y_n)          −log p(y) = log Z − score(y)

Emissions f come from a network; transitions A are added to them. The algorithms are in lattice.py.

    crf = CRF(len(names), allowed_transitions(names, "iob2"))
    loss = crf(emissions, labels, mask).sum()                 # one −log p per row
    tags, scores = crf.decode(emissions, mask)

A mask is True where there is a word. Rows are padded at their end; an empty row has log Z = 0 and no gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mallang.layers.lattice import IGNORE_INDEX, Lattice, Scores, log_partition, n_best, path_score, viterbi
from mallang.text import tag_scheme
from mallang.text.tag_scheme import Scheme

__all__ = ["CRF", "FORBIDDEN", "IGNORE_INDEX", "Constraints", "allowed_transitions", "continuations"]

FORBIDDEN = -300.0
"""What is added to the score of a transition that is not allowed: e^−300 is no probability, but has a logarithm."""


class Constraints(NamedTuple):
    """What a tag scheme allows: transitions from tag i to tag j, tags at the start, tags at the end."""

    transitions: Bool[Tensor, "tags tags"]
    starts: Bool[Tensor, " tags"]
    ends: Bool[Tensor, " tags"]


def allowed_transitions(names: Sequence[str], scheme: Scheme) -> Constraints:
    """The constraints of a scheme for tags of these names."""
    pairs = [[tag_scheme.may_follow(before, after, scheme) for after in names] for before in names]
    starts = [tag_scheme.may_start(name, scheme) for name in names]
    ends = [tag_scheme.may_end(name, scheme) for name in names]
    return Constraints(torch.tensor(pairs), torch.tensor(starts), torch.tensor(ends))


def continuations(names: Sequence[str]) -> Bool[Tensor, "tags tags"]:
    """Whether tag j after tag i is in the same span."""
    return torch.tensor([[tag_scheme.continues(before, after) for after in names] for before in names])


class CRF(nn.Module):
    """Transition scores between tags, with the loss, search and probabilities of whole tag sequences."""

    def __init__(self, tags: int, constraints: Constraints | None = None) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(tags, tags))
        """The score of tag j after tag i."""
        self.start = nn.Parameter(torch.zeros(tags))
        self.end = nn.Parameter(torch.zeros(tags))
        if constraints is None:
            constraints = Constraints(*(torch.ones_like(each, dtype=torch.bool) for each in self.parameters()))
        # They follow from the names of the tags, so they are not saved.
        for name, allowed in constraints._asdict().items():
            self.register_buffer(f"allowed_{name}", allowed, persistent=False)

    def forward(
        self,
        emissions: Float[Tensor, "batch time tags"],
        tags: Int[Tensor, "batch time"],
        mask: Bool[Tensor, "batch time"],
    ) -> Float[Tensor, " batch"]:
        """The loss of every row: `negative_log_likelihood`."""
        return self.negative_log_likelihood(emissions, tags, mask)

    def negative_log_likelihood(
        self,
        emissions: Float[Tensor, "batch time tags"],
        tags: Int[Tensor, "batch time"],
        mask: Bool[Tensor, "batch time"],
    ) -> Float[Tensor, " batch"]:
        """−log p(tags) of every row."""
        scores = self.scores(FORBIDDEN)
        # The difference of two large numbers: taken before they are rounded to float32.
        return (log_partition(emissions, scores, mask) - path_score(emissions, scores, tags, mask)).float()

    def log_partition(
        self, emissions: Float[Tensor, "batch time tags"], mask: Bool[Tensor, "batch time"]
    ) -> Float[Tensor, " batch"]:
        """log Z of every row: the logarithm of the summed e^score of all tag sequences."""
        return log_partition(emissions, self.scores(FORBIDDEN), mask).float()

    def score(
        self,
        emissions: Float[Tensor, "batch time tags"],
        tags: Int[Tensor, "batch time"],
        mask: Bool[Tensor, "batch time"],
    ) -> Float[Tensor, " batch"]:
        """The score of one tag sequence per row."""
        return path_score(emissions, self.scores(FORBIDDEN), tags, mask).float()

    @torch.no_grad()
    def decode(
        self, emissions: Float[Tensor, "batch time tags"], mask: Bool[Tensor, "batch time"]
    ) -> tuple[Int[Tensor, "batch time"], Float[Tensor, " batch"]]:
        """The best tag sequence of every row (−100 at padding), and its score; no forbidden transition is taken."""
        return viterbi(emissions, self.scores(-torch.inf), mask)

    @torch.no_grad()
    def decode_n_best(
        self, emissions: Float[Tensor, "batch time tags"], mask: Bool[Tensor, "batch time"], count: int
    ) -> tuple[Int[Tensor, "batch count time"], Float[Tensor, "batch count"]]:
        """The `count` best tag sequences of every row (−100 at padding), best first, and their scores.

        Where a row has fewer allowed sequences than that, the score of the others is −∞.
        """
        return n_best(emissions, self.scores(-torch.inf), mask, count)

    @torch.no_grad()
    def marginals(
        self, emissions: Float[Tensor, "batch time tags"], mask: Bool[Tensor, "batch time"]
    ) -> Float[Tensor, "batch time tags"]:
        """The probability of every tag at every word; zeros at padding."""
        lattice = Lattice(emissions, self.scores(FORBIDDEN), mask)
        return lattice.expectations(lattice.scan()[0]).marginals.permute(2, 0, 1).float()

    @torch.no_grad()
    def constrained_probability(
        self,
        emissions: Float[Tensor, "batch time tags"],
        mask: Bool[Tensor, "batch time"],
        allowed: Bool[Tensor, "batch time tags"],
    ) -> Float[Tensor, " batch"]:
        """The probability of every row that all of its words have one of their allowed tags."""
        scores, inside = self.scores(FORBIDDEN), emissions.float() + FORBIDDEN * ~allowed
        return (log_partition(inside, scores, mask) - log_partition(emissions, scores, mask)).exp().float()

    @torch.no_grad()
    def span_probability(
        self,
        emissions: Float[Tensor, "batch time tags"],
        mask: Bool[Tensor, "batch time"],
        tags: Int[Tensor, "batch time"],
        spans: Int[Tensor, "spans 3"],
        continuing: Bool[Tensor, "tags tags"] | None = None,
    ) -> Float[Tensor, " spans"]:
        """The probability of every span (row, first word, first word after it) that its words have these tags.

        With `continuing`, from `continuations`, the span must also end where it does: the probability that the words
        beside it belong to it is left out.
        """
        allowed = spans_alone(tags, spans, emissions.shape[2], continuing)
        rows = spans[:, 0]
        return self.constrained_probability(emissions[rows], mask[rows], allowed)

    def scores(self, forbidden: float) -> Scores:
        """All scores, with `forbidden` added to those of what is not allowed."""
        parts = []
        for name, allowed in (("transitions", "transitions"), ("start", "starts"), ("end", "ends")):
            part, is_allowed = getattr(self, name).float(), getattr(self, f"allowed_{allowed}")
            parts.append(torch.where(is_allowed, part, part + forbidden))
        return Scores(*parts)


def spans_alone(
    tags: Int[Tensor, "batch time"],
    spans: Int[Tensor, "spans 3"],
    count: int,
    continuing: Bool[Tensor, "tags tags"] | None,
) -> Bool[Tensor, "spans time tags"]:
    """The tags that every word may have if a span has its own and its neighbors do not continue it."""
    rows, first, after = spans[:, :, None].unbind(dim=1)  # (spans, 1) each
    own, places = tags[rows[:, 0]].clamp(min=0), torch.arange(tags.shape[1], device=tags.device)
    inside = (places >= first) & (places < after)
    allowed = ~inside[:, :, None] | (own[:, :, None] == torch.arange(count, device=tags.device))
    if continuing is not None:
        before, behind = (places == first - 1)[:, :, None], (places == after)[:, :, None]
        allowed = allowed & ~(before & continuing.T[own.gather(1, first)])
        allowed = allowed & ~(behind & continuing[own.gather(1, after - 1)])
    return allowed
