"""Best-first search: exact search for the best output, with a proof, for any model that has `start` and `step`.

A prefix with the sum s can be continued in many ways, but every further log-probability is at most 0, so none of its
outputs has a sum above s. Sums are at most 0 and no length penalty falls with the length, so after the penalty

    normalized ≤ s / penalty(limit)                 average: s / limit    gnmt: s / ((5 + limit) / 6)^α    none: s

A known output, the incumbent, prunes all prefixes whose bound is lower. The search starts with the outputs of a beam
search. It expands the prefix with the highest bound: its continuations become open prefixes, and its completion with
`</s>` becomes the incumbent if it is better. When no bound reaches the incumbent any more, that is proven the best. No
search of an arbitrary model can prove it with fewer expansions, since a prefix that was not expanded might continue
with probability 1 to the end; only the order in which better incumbents are found may differ. (Stahlberg and Byrne
2019, arXiv:1908.10090, search depth-first with the same bound, without a penalty.)

The number of expansions depends on the penalty: at each length, at most exp(−v · penalty(limit)) prefixes have a bound
above the incumbent v, as their probabilities sum to one at most. Without a penalty that is one over the incumbent's
probability. With the average it is that to the power of limit / length: so a lower `max_ratio` or `max_length` helps.

Memory: the only model state kept is that of `start`, so no KV cache. Every expansion reads the whole prefix again, many
in one step, shorter ones padded on the right. No more open prefixes are kept than may still be expanded, each as two
numbers and a pointer; together with the expanded ones that is less than `max_expansions` times the longest output.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

from mallang.data.batch import Batch, pad_rows
from mallang.data.sampler import by_length
from mallang.decoding import beam
from mallang.decoding.contract import (
    Autoregressive,
    Config,
    Hypothesis,
    NoOutputError,
    Rules,
    State,
    inference,
    limits,
    normalize,
)
from mallang.decoding.ranking import hypothesis, penalty
from mallang.text.vocabulary import Vocabulary

TOGETHER = 64
"""Prefixes of one sentence that are expanded in one step, before the results of the better ones are known."""
ROWS = {"cuda": 1024}
"""Prefixes of all sentences that are expanded in one step, by device; 64 on others."""
NUMBERS = {"cuda": 2**28}
"""The maximum number of logits in memory: rows × time × vocabulary, by device; 2^24 on others."""
SLACK = 1e-12
"""Relative tolerance for ties: the rounding error of one multiplication and one division."""
Watch = Callable[[tuple[int, ...], Float[Tensor, " vocabulary"]], None]
"""Called with every expanded prefix and the log-probabilities of its next token."""


@dataclass(frozen=True)
class Solution:
    """The result of the search for one sentence."""

    nbest: list[Hypothesis]
    proven: bool
    """Whether these are proven to be the best."""
    expansions: int
    """The number of expanded prefixes, without those of the beam search."""
    bound: float
    """No output has a normalized score above this."""


def search(model: Autoregressive, batch: Batch, config: Config, rules: Rules | None = None) -> list[list[Hypothesis]]:
    """The `nbest` best of all outputs that the rules allow; ties go to the shorter output, then to the lower ids.

    Where `max_expansions` did not suffice for a proof, they are the best that were found, marked as not proven.
    """
    return [solution.nbest for solution in solve(model, batch, config, rules)]


def solve(
    model: Autoregressive, batch: Batch, config: Config, rules: Rules | None = None, watch: Watch | None = None
) -> list[Solution]:
    """Search every sentence of a batch: its best outputs, whether they are proven, and the number of expansions."""
    most = limits(batch, config, model)
    if not most:
        return []
    known = incumbents(model, batch, config, rules)
    hunts = [Hunt(limit, config, model.vocabulary) for limit in most]
    for hunt, found in zip(hunts, known, strict=True):
        for one in found:
            hunt.found(one)
    device = batch.tokens.device
    with inference(model):
        reader = Reader(model, model.start(batch), config, rules, device)
        while going := [number for number, hunt in enumerate(hunts) if hunt.goes_on]:
            share = max(1, min(TOGETHER, ROWS.get(device.type, 64) // len(going)))
            taken = [
                (number, pick) for number in going[: ROWS.get(device.type, 64)] for pick in hunts[number].take(share)
            ]
            for pairs, log_probs in reader.read(taken):
                if watch is not None:
                    for (_, pick), row in zip(pairs, log_probs, strict=True):
                        watch(pick.said, row)
                absorb(hunts, pairs, log_probs)
    return [hunt.solution() for hunt in hunts]


def incumbents(model: Autoregressive, batch: Batch, config: Config, rules: Rules | None) -> list[list[Hypothesis]]:
    """The beam search outputs of each sentence, to start from; none where every path is a dead end."""
    width = max(config.beam, config.nbest)
    wide = replace(replace(config, nbest=1).with_method("beam"), beam=width, nbest=width)
    try:
        return beam.search(model, batch, wide, rules)
    except NoOutputError:
        return [[] for _ in range(len(batch))]


@dataclass(frozen=True)
class Pick:
    """A prefix to expand."""

    said: tuple[int, ...]
    scores: tuple[float, ...]
    total: float


OPEN = np.dtype([("total", np.float64), ("score", np.float32), ("parent", np.int32), ("token", np.int32)])
"""An open prefix: its sum, the log-probability of its last token, the index of its parent, and that token."""
Frontier = npt.NDArray[np.void]


@dataclass
class Hunt:
    """The search of one sentence."""

    limit: int
    config: Config
    vocabulary: Vocabulary
    read: list[Pick] = field(default_factory=list)
    """The expanded prefixes: each open prefix continues one of them."""
    open: Frontier = field(default_factory=lambda: np.array([(0.0, 0.0, -1, -1)], OPEN))
    """The open prefixes, best first; at the start the empty one, which has no parent."""
    left_out: float = -math.inf
    """The highest sum of a prefix that was discarded."""
    done: list[Hypothesis] = field(default_factory=list)
    """The best outputs so far, best first."""
    unfinished: list[Hypothesis] = field(default_factory=list)
    """The best outputs that do not end within the limit, used only where no output ends."""

    @property
    def remaining(self) -> int:
        """The number of expansions left in the budget."""
        return self.config.max_expansions - len(self.read)

    @property
    def lowest(self) -> float:
        """The sum below which no continuation of a prefix can enter the n-best list."""
        return lowest_sum(self.done, self.limit, self.config)

    @property
    def goes_on(self) -> bool:
        """Whether an open prefix could still win and the budget allows to expand it."""
        return self.remaining > 0 and len(self.open) > 0 and bool(self.open["total"][0] >= self.lowest)

    def take(self, count: int) -> list[Pick]:
        """Remove the best open prefixes, to expand them."""
        count = min(count, self.remaining, int((self.open["total"] >= self.lowest).sum()))
        picks = [self.prefix(*one) for one in self.open[:count].tolist()]
        self.open = self.open[count:]
        return picks

    def prefix(self, total: float, score: float, parent: int, token: int) -> Pick:
        """An open prefix with all its tokens and scores."""
        if parent < 0:
            return Pick((), (), 0.0)
        before = self.read[parent]
        return Pick((*before.said, token), (*before.scores, score), total)

    def floor(self, pick: Pick) -> float:
        """The sum below which a continuation is useless: it cannot win, or enough better prefixes are open."""
        if 0 < self.remaining <= len(self.open) and not self.is_last(pick):
            return max(self.lowest, float(self.open["total"][self.remaining - 1]))
        return self.lowest

    def is_last(self, pick: Pick) -> bool:
        """Whether the length limit allows only one more token."""
        return len(pick.said) + 1 == self.limit

    def add(self, pick: Pick, ending: float, tokens: Any, scores: Any, left_out: float) -> None:
        """Add the results of an expansion: the completion with `</s>`, and other continuations by ascending ids."""
        self.read.append(pick)
        if ending > -math.inf:
            self.found(self.output(pick, self.vocabulary.eos, ending))
        if self.is_last(pick):
            best = np.argsort(-scores, kind="stable")[: self.config.nbest]
            for place in best if not self.done else ():
                self.found(self.output(pick, int(tokens[place]), float(scores[place])))
            return
        self.left_out = max(self.left_out, left_out)
        more = np.empty(len(tokens), OPEN)
        more["total"] = pick.total + scores.astype(np.float64)
        more["score"], more["parent"], more["token"] = scores, len(self.read) - 1, tokens
        self.open = np.concatenate([self.open, more])

    def tidy(self) -> None:
        """Sort the open prefixes, best first, and drop those beyond the budget."""
        order = np.argsort(-self.open["total"], kind="stable")
        if len(order) > self.remaining:
            self.left_out = max(self.left_out, float(self.open["total"][order[self.remaining]]))
        self.open = self.open[order[: self.remaining]]

    def output(self, pick: Pick, token: int, score: float) -> Hypothesis:
        """The prefix with one more token, as an output."""
        return hypothesis([*pick.said, token], [*pick.scores, score], self.vocabulary, self.config)

    def found(self, one: Hypothesis) -> None:
        """Insert an output into the n-best list, unless it is known or too bad."""
        listed = self.done if one.finished else self.unfinished
        if all(one.tokens != other.tokens for other in listed):
            bisect.insort(listed, one, key=rank)
            del listed[self.config.nbest :]

    def solution(self) -> Solution:
        """The best outputs found, whether they are proven, and an upper bound of all scores."""
        left = max([self.left_out, *self.open["total"][:1].tolist()])
        proven = left == -math.inf or left < self.lowest
        outputs = self.done or self.unfinished or [hypothesis([], [], self.vocabulary, self.config)]
        bound = outputs[0].normalized if proven else left / float(penalty(self.limit, self.config))
        return Solution(
            nbest=[replace(one, proven=proven) for one in outputs],
            proven=proven,
            expansions=len(self.read),
            bound=max(bound, outputs[0].normalized),
        )


def lowest_sum(done: Sequence[Hypothesis], limit: int, config: Config) -> float:
    """The lowest sum with which a prefix can lead into the n-best list; −∞ while the list is not full."""
    if len(done) < config.nbest or not done[-1].finished:
        return -math.inf
    return done[-1].normalized * float(penalty(limit, config)) * (1 + SLACK)


def rank(one: Hypothesis) -> tuple[float, int, tuple[int, ...]]:
    """The sort key of outputs: best first, then the shorter, then the lower ids."""
    return -one.normalized, len(one.tokens), one.tokens


@dataclass(frozen=True)
class Reader:
    """Computes the next-token log-probabilities of any prefix of any sentence."""

    model: Autoregressive
    state: State
    """The state after `start`, one row per sentence."""
    config: Config
    rules: Rules | None
    device: torch.device

    def read(
        self, taken: Sequence[tuple[int, Pick]]
    ) -> Iterator[tuple[list[tuple[int, Pick]], Float[Tensor, "rows vocabulary"]]]:
        """The next-token log-probabilities of each prefix, in batches of similar length that fit into memory."""
        vocabulary, most = self.model.vocabulary, NUMBERS.get(self.device.type, 2**24)
        for group in by_length([1 + len(pick.said) for _, pick in taken], most // len(vocabulary)):
            portion = [taken[place] for place in group]
            yield portion, self.read_together(portion)

    def read_together(self, portion: Sequence[tuple[int, Pick]]) -> Float[Tensor, "rows vocabulary"]:
        """One row per prefix; the padding of a shorter one is on its right, so causal attention does not see it."""
        vocabulary = self.model.vocabulary
        tokens, lengths = pad_rows([[vocabulary.bos, *pick.said] for _, pick in portion], vocabulary.pad)
        tokens, lengths = tokens.to(self.device), lengths.to(self.device)
        rows = torch.tensor([number for number, _ in portion], device=self.device)
        logits, _ = self.model.step(tokens, self.state.keep(rows, rows))
        log_probs = normalize(logits[torch.arange(len(rows), device=self.device), lengths - 1], vocabulary)
        too_short = lengths < self.config.min_length  # `<s>` stands for the `</s>` that would follow
        log_probs[:, vocabulary.eos].masked_fill_(too_short, -torch.inf)
        if self.rules is not None:
            for length in lengths.unique():  # type: ignore[no-untyped-call]
                here = (lengths == length).nonzero()[:, 0]
                said = torch.nn.functional.pad(tokens[here, 1:], (0, 1), value=vocabulary.pad)
                log_probs[here] = self.rules.keep(rows[here]).apply(log_probs[here], said, length - 1)
        return log_probs.nan_to_num_(nan=-torch.inf, neginf=-torch.inf)


def absorb(
    hunts: Sequence[Hunt], portion: Sequence[tuple[int, Pick]], log_probs: Float[Tensor, "rows vocabulary"]
) -> None:
    """Add the useful continuations of the expanded prefixes to the searches of their sentences."""
    eos = hunts[0].vocabulary.eos
    before = [[pick.total, max(hunts[number].floor(pick), -1e300)] for number, pick in portion]
    total, floor = torch.tensor(before, dtype=torch.float64, device=log_probs.device)[:, :, None].unbind(dim=1)
    totals = total + log_probs  # in double precision
    endings = log_probs[:, eos].tolist()
    totals[:, eos].fill_(-torch.inf)
    useful = totals >= floor
    left_out = totals.masked_fill_(useful, -torch.inf).amax(dim=1).tolist()
    counts = useful.sum(dim=1).cumsum(dim=0)[:-1].tolist()
    tokens = np.split(useful.nonzero()[:, 1].cpu().numpy(), counts)
    scores = np.split(log_probs[useful].cpu().numpy(), counts)
    for (number, pick), *rest in zip(portion, endings, tokens, scores, left_out, strict=True):
        hunts[number].add(pick, *rest)
    for number in {number for number, _ in portion}:
        hunts[number].tidy()
