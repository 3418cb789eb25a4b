"""Sums and maxima over all tag sequences of a linear chain: log Z, marginals, Viterbi, n-best.

log Z is summed by one scan over time. It multiplies probabilities in float64 and normalizes them at every step: with
the maxima subtracted first that is exact where scores of one position differ by less than 345, and no step computes an
exponential. A second scan from the end gives the marginals, which are also the gradient of log Z: nothing is
back-propagated through time.

Nothing here depends on the values of a tensor on the host, so all of it can be captured in CUDA graphs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from mallang.kernels.top_k import top_k

SMALLEST = 1e-150
"""The floor of e^(score − maximum): two of them multiplied are not zero in float64, so nothing divides by zero."""
IGNORE_INDEX = -100
"""The tag of padding in tag sequences that are found, and one that labels may have there."""


class Scores(NamedTuple):
    """The scores of tag sequences that do not depend on the words."""

    transitions: Float[Tensor, "tags tags"]
    start: Float[Tensor, " tags"]
    end: Float[Tensor, " tags"]


def path_score(
    emissions: Float[Tensor, "batch time tags"],
    scores: Scores,
    tags: Int[Tensor, "batch time"],
    mask: Bool[Tensor, "batch time"],
) -> Float64[Tensor, " batch"]:
    """The score of one tag sequence per row."""
    tags = tags.masked_fill(~mask, 0)  # padding may have any label
    following = word_follows(mask)
    # How often each score is in the sum. Its gradient is these numbers, added in the same order at every run.
    at = (tags[:, :, None] == torch.arange(emissions.shape[2], device=tags.device)).double()
    moves = torch.bmm((at[:, :-1] * following[:, :-1, None]).mT, at[:, 1:])  # (batch, tags, tags)
    starts = at[:, 0] * mask[:, :1]
    ends = (at * (mask & ~following)[:, :, None]).sum(dim=1)
    emitted = emissions.gather(2, tags[:, :, None])[:, :, 0].masked_fill(~mask, 0).double().sum(dim=1)
    return (
        emitted + (moves * scores.transitions).sum(dim=(1, 2)) + (starts * scores.start + ends * scores.end).sum(dim=1)
    )


def word_follows(mask: Bool[Tensor, "batch time"]) -> Bool[Tensor, "batch time"]:
    """Whether a word follows in the row."""
    return torch.nn.functional.pad(mask[:, 1:], (0, 1))


# ---- the sum over all tag sequences ----


def log_partition(
    emissions: Float[Tensor, "batch time tags"], scores: Scores, mask: Bool[Tensor, "batch time"]
) -> Float64[Tensor, " batch"]:
    """log Z of every row."""
    if torch.is_grad_enabled() and any(each.requires_grad for each in (emissions, *scores)):
        total: Tensor = LogPartition.apply(emissions, *scores, mask)  # type: ignore[no-untyped-call]
        return total
    return Lattice(emissions, scores, mask).scan()[1]


class LogPartition(torch.autograd.Function):
    """log Z whose gradient is what is expected of a random tag sequence: marginals and numbers of transitions."""

    @staticmethod
    def forward(
        ctx: Any, emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor, mask: Tensor
    ) -> Float64[Tensor, " batch"]:
        """log Z of every row."""
        lattice = Lattice(emissions, Scores(transitions, start, end), mask)
        messages, log_z = lattice.scan()
        ctx.lattice, ctx.dtype = lattice, emissions.dtype
        ctx.save_for_backward(messages)
        return log_z

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator, unused-ignore]
    def backward(ctx: Any, gradient: Float64[Tensor, " batch"]) -> tuple[Tensor | None, ...]:
        """The expectations of every row, times its gradient."""
        lattice, (messages,) = ctx.lattice, ctx.saved_tensors
        found = lattice.expectations(messages)
        marginals = found.marginals * gradient
        transitions = lattice.pairs * torch.bmm(found.left, (found.right * gradient).mT).sum(dim=0)
        end = (marginals * lattice.is_last).sum(dim=(0, 2))
        own = (each.float() for each in (transitions, marginals[0].sum(dim=1), end))
        return marginals.permute(2, 0, 1).to(ctx.dtype), *own, None


class Expectations(NamedTuple):
    """What is expected of a random tag sequence."""

    marginals: Float64[Tensor, "time tags batch"]
    """The probability of every tag at every word."""
    left: Float64[Tensor, "time tags batch"]
    right: Float64[Tensor, "time tags batch"]
    """left(i) e^A(i, j) right(j) is the probability of tag i at a word and tag j at the next one."""


class Lattice:
    """All tag sequences of a batch: e^score of every part, with the maximum of the scores subtracted.

    Rows are the last axis: tags are few, and a sum over them then adds vectors of rows.
    """

    def __init__(
        self, emissions: Float[Tensor, "batch time tags"], scores: Scores, mask: Bool[Tensor, "batch time"]
    ) -> None:
        self.unary = rows_last(emissions, mask)
        tallest = self.unary.amax(dim=1, keepdim=True)
        self.unary.sub_(tallest).exp_().clamp_(min=SMALLEST)  # in place: fresh memory costs more than the arithmetic
        parts = [each.double() for each in scores]
        highest = [each.max() for each in parts]
        self.pairs, self.start, self.end = (
            (part - most).exp().clamp(min=SMALLEST) for part, most in zip(parts, highest, strict=True)
        )
        self.lengths = mask.sum(dim=1)
        self.subtracted = tallest.sum(dim=(0, 1)) + (self.lengths - 1) * highest[0] + highest[1] + highest[2]
        following = word_follows(mask)
        # (time, 1, batch) each
        self.is_word, self.is_last, self.following = (each.T[:, None] for each in (mask, mask & ~following, following))

    def scan(self) -> tuple[Float64[Tensor, "time tags batch"], Float64[Tensor, " batch"]]:
        """The messages of every word from the start of its row, and log Z."""
        messages, totals = pass_messages(self.unary, self.pairs, self.start)
        scaled = totals.log().masked_fill(~self.is_word, 0).sum(dim=(0, 1))
        last = (messages * self.is_last * self.end[:, None]).sum(dim=(0, 1))
        # An empty row has no last word: whatever these sums are, its log Z is 0.
        log_z = last.clamp(min=SMALLEST**2).log() + scaled + self.subtracted
        return messages, log_z.masked_fill(self.lengths == 0, 0)

    def expectations(self, left: Float64[Tensor, "time tags batch"]) -> Expectations:
        """The forward-backward algorithm; `left` are the messages from the start, those from the end are passed here.

        The second chain reads every row from its last word, so that all rows start at once.
        """
        right, _ = pass_messages(reverse(self.unary, self.lengths), self.pairs.T, self.end)
        right = reverse(right, self.lengths)
        right = torch.cat((right[1:], right[:1])).mul_(self.following)  # those of the next word
        after = torch.bmm(self.pairs.expand(len(right), -1, -1), right)
        joint = torch.where(self.following, after, self.end[:, None]).mul_(left)
        # The messages have scales of their own; the sum over the tags of a word removes them.
        scale = self.is_word / joint.sum(dim=1, keepdim=True)
        return Expectations(joint.mul_(scale), left * scale, right)


def pass_messages(
    unary: Float64[Tensor, "time tags batch"], pairs: Float64[Tensor, "tags tags"], border: Float64[Tensor, " tags"]
) -> tuple[Float64[Tensor, "time tags batch"], Float64[Tensor, "time 1 batch"]]:
    """e^score of all tag sequences up to a word, by its tag: divided by their sum, which is the second result.

    A step multiplies and adds element by element. That is slower than a matmul alone, but small matmuls on several
    threads take a hundred times as long where other processes use the cores.
    """
    first, *others = unary.unbind(0)
    message = first * border[:, None]
    total = message.sum(dim=0, keepdim=True)
    messages, totals = [message / total], [total]
    pairs = pairs[:, :, None].contiguous()
    for each in others:
        message = (pairs * messages[-1][:, None]).sum(dim=0).mul_(each)
        total = message.sum(dim=0, keepdim=True)
        messages.append(message / total)
        totals.append(total)
    return torch.stack(messages), torch.stack(totals)


def rows_last(
    emissions: Float[Tensor, "batch time tags"], mask: Bool[Tensor, "batch time"]
) -> Float64[Tensor, "time tags batch"]:
    """The scores of words in float64, with 0 at padding, whatever was there."""
    rows = emissions.permute(1, 2, 0).to(torch.float64, copy=True, memory_format=torch.contiguous_format)
    return rows.masked_fill_(~mask.T[:, None], 0)


def reverse(
    rows: Float64[Tensor, "time tags batch"], lengths: Int[Tensor, " batch"]
) -> Float64[Tensor, "time tags batch"]:
    """The words of every row from the last to the first; padding stays behind them. Twice, it changes nothing."""
    time = len(rows)
    places = (lengths - 1 - torch.arange(time, device=rows.device)[:, None]) % time
    return rows.gather(0, places[:, None].expand_as(rows))


# ---- the best tag sequences ----


def viterbi(
    emissions: Float[Tensor, "batch time tags"], scores: Scores, mask: Bool[Tensor, "batch time"]
) -> tuple[Int[Tensor, "batch time"], Float[Tensor, " batch"]]:
    """The best tag sequence of every row, and its score; ties go to the lower tag at the latest word that differs.

    Rows are the last axis, so that a maximum over tags reads adjacent rows. Forward, only scores are kept: on the way
    back the best tag before a known one is a maximum over a single column, far fewer than all back-pointers.
    """
    transitions, start, end = (each.double() for each in scores)
    first, *others = rows_last(emissions, mask).unbind(0)
    best = [first + start[:, None]]
    for each in others:
        best.append((best[-1][:, None] + transitions[:, :, None]).amax(dim=0) + each)
    ending = len(end)  # one more column: what follows the last word
    into = torch.cat((transitions, end[:, None]), dim=1)
    tag = torch.full((len(emissions),), ending, device=emissions.device)
    tags = []
    for score, is_word in zip(reversed(best), reversed(mask.unbind(1)), strict=True):
        tag = torch.where(is_word, (score + into.index_select(1, tag)).max(dim=0).indices, ending)
        tags.append(tag)
    found = torch.stack(tags[::-1], dim=1)
    last = (mask.sum(dim=1) - 1).clamp(min=0)
    total = (torch.stack(best) + end[:, None]).amax(dim=1).gather(0, last[None])[0]
    return found.masked_fill(~mask, IGNORE_INDEX), total.masked_fill(~mask[:, 0], 0).float()


def n_best(
    emissions: Float[Tensor, "batch time tags"], scores: Scores, mask: Bool[Tensor, "batch time"], count: int
) -> tuple[Int[Tensor, "batch count time"], Float[Tensor, "batch count"]]:
    """The `count` best tag sequences of every row, and their scores; −∞ where there are no more."""
    batch, _, tags = emissions.shape
    transitions, start, end = (each.double() for each in scores)
    first, *others = emissions.double().masked_fill(~mask[:, :, None], 0).unbind(1)
    # A path is at place rank · tags + tag; at first there is one path for each tag, of rank 0.
    state = torch.nn.functional.pad(first + start, (0, (count - 1) * tags), value=-torch.inf)
    stays = torch.arange(count * tags, device=emissions.device)
    pointers = []
    for each, is_word in zip(others, mask[:, 1:].unbind(1), strict=True):
        reached = state[:, None] + transitions.T.repeat(1, count)  # (batch, next tag, place)
        values, places = (found.view(batch, tags, count).mT for found in top_k(reached.flatten(0, 1), count))
        state = torch.where(is_word[:, None], (values + each[:, None]).flatten(1), state)
        pointers.append(torch.where(is_word[:, None], places.flatten(1), stays))
    totals, last = top_k(state + end.repeat(count), count)
    path = [last]
    for pointer in reversed(pointers):
        path.append(pointer.gather(1, path[-1]))
    found = torch.stack(path[::-1], dim=2) % tags
    # An empty row has one path, without a tag, whose score is 0.
    nothing = torch.zeros_like(totals).masked_fill(torch.arange(count, device=mask.device) > 0, -torch.inf)
    totals = torch.where(mask[:, :1], totals, nothing)
    return found.masked_fill(~mask[:, None], IGNORE_INDEX), totals.float()
