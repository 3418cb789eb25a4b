"""Required words: a beam search whose outputs contain given phrases, wherever they fit best.

Dynamic beam allocation (Post and Vilar 2018, arXiv:1804.06609) over words instead of tokens. Every hypothesis knows how
many tokens it needs at least until all its phrases are there, if it writes one after the other; hypotheses that need
equally many are a bank. The beam is shared out among the banks in turns: the best of each, then the second best …
(Hu et al. 2019). Besides its most probable tokens every hypothesis is offered, for each missing phrase, the most
probable token that brings it nearer. So the bank that needs least always gets one nearer and is never dropped: where
the length limit leaves room for the phrases, and nothing forbidden stands in the way, they are in the output.
`</s>` is said only where nothing is missing.

This search looks at every step on the host, so it runs on the plain path only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mallang.data.batch import Batch
from mallang.decoding.beam import check_beam
from mallang.decoding.constraints import join
from mallang.decoding.contract import Autoregressive, Config, Hypothesis, Rules, advance, begin, inference, limits
from mallang.decoding.matching import FOUND, START, Matcher
from mallang.decoding.ranking import hypothesis, penalty, ranked
from mallang.kernels.top_k import top_k
from mallang.text.vocabulary import Vocabulary


def search(
    model: Autoregressive,
    batch: Batch,
    config: Config,
    required: Sequence[Sequence[Matcher]],
    rules: Rules | None = None,
) -> list[list[Hypothesis]]:
    """The `nbest` best outputs that hold every required phrase; none for a sentence where none was found.

    Where the length limit leaves no room, the unfinished outputs that hold most come instead.
    """
    most, device = limits(batch, config, model), batch.tokens.device
    if not most:
        return []
    check_beam(most, model.vocabulary, config, device)
    wanted = Wanted.of(required, len(model.vocabulary), device)
    beams = [Beam(number, limit, [wanted.nothing_said(number)]) for number, limit in enumerate(most)]
    found: list[list[Hypothesis]] = [[] for _ in most]
    with inference(model):
        log_probs, state = begin(model, batch)
        log_probs, state = log_probs.repeat_interleave(config.beam, dim=0), state.widen(config.beam)
        for step in range(1, max(most) + 1):
            paths = [path for beam in beams for path in beam.filled(config.beam)]
            log_probs = restrict(log_probs, paths, step, rules, model.vocabulary, config)
            offers = wanted.offers(log_probs, paths, model.vocabulary.eos, config)
            parents = []
            for place, beam in enumerate(beams):
                first = place * config.beam
                chosen = beam.grow(offers[first : first + config.beam], step, wanted, model.vocabulary, config)
                parents.append([first + parent for parent in chosen])
            staying = [place for place, beam in enumerate(beams) if not beam.stopped]
            for beam in beams:
                if beam.stopped:
                    found[beam.number] = beam.results(model.vocabulary, config)
            if not staying:
                break
            sentences = torch.tensor(staying, device=device)
            rows = torch.tensor([row for place in staying for row in parents[place]], device=device)
            beams, state = [beams[place] for place in staying], state.keep(sentences, rows)
            rules = rules if rules is None else rules.keep(sentences)
            last = [path.labels[-1] for beam in beams for path in beam.filled(config.beam)]
            log_probs, state = advance(model, torch.tensor(last, device=device)[:, None], state)
    return found


Offers: TypeAlias = dict[int, tuple[float, tuple[int, ...]]]
"""The tokens that a hypothesis may continue with, each with its log-probability and the states of the phrases after
it."""


@dataclass(frozen=True)
class Path:
    """A hypothesis and what it still lacks."""

    labels: tuple[int, ...]
    token_scores: tuple[float, ...]
    score: float
    states: tuple[int, ...]
    """Where the matcher of each phrase is; `FOUND` once the phrase is there."""
    needs: int
    """Tokens that it takes at least to write what is missing, one phrase after the other."""


@dataclass
class Beam:
    """The search of one sentence."""

    number: int
    limit: int
    open: list[Path]
    done: list[Hypothesis] = field(default_factory=list)
    completed: int = 0
    stopped: bool = False

    def filled(self, width: int) -> list[Path]:
        """Always `width` hypotheses, for the rows of a step: copies of the first stand where there are fewer."""
        return [*self.open, *[self.open[0]] * (width - len(self.open))]

    def grow(
        self, offers: Sequence[Offers], step: int, wanted: Wanted, vocabulary: Vocabulary, config: Config
    ) -> list[int]:
        """One token further; gives the places in the beam that its hypotheses continue from."""
        grown: list[tuple[int, Path]] = []
        for place, path in enumerate(self.open):
            for token, (log_prob, states) in offers[place].items():
                after = Path(
                    (*path.labels, token),
                    (*path.token_scores, log_prob),
                    path.score + log_prob,
                    states,
                    wanted.needs(self.number, states),
                )
                grown.append((place, after))
        order = in_turns(grown)
        ends = [turn for turn, (_, path) in enumerate(order) if path.labels[-1] == vocabulary.eos]
        in_beam = [turn for turn in ends if turn < config.beam]
        last_chance = step == self.limit and not self.completed
        for turn in in_beam or (ends if last_chance else []):
            path = order[turn][1]
            self.done.append(hypothesis(path.labels, path.token_scores, vocabulary, config))
            self.completed += 1
        self.done = ranked(self.done)[: config.nbest]
        going = [(place, path) for place, path in order if path.labels[-1] != vocabulary.eos][: config.beam]
        self.open = [path for _, path in going] or self.open
        self.stopped = not going or step >= self.limit or self.settled(config)
        places = [place for place, _ in going]
        return [*places, *places[:1] * (config.beam - len(places))]

    def settled(self, config: Config) -> bool:
        """Whether the stopping rule says that the search is over; the bound is explained in beam.py."""
        if config.stop == "complete":
            return self.completed >= config.beam
        highest = max(path.score for path in self.open) / penalty(self.limit, config)
        return len(self.done) == config.nbest and self.done[-1].normalized >= highest

    def results(self, vocabulary: Vocabulary, config: Config) -> list[Hypothesis]:
        """The finished outputs, else the unfinished ones at the limit, those first that lack least."""
        at_limit = [path for path in self.open if len(path.labels) == self.limit]
        if self.done or not at_limit:
            return self.done
        nearest = sorted(at_limit, key=lambda path: (path.needs, -path.score))[: config.nbest]
        return [hypothesis(path.labels, path.token_scores, vocabulary, config) for path in nearest]


def in_turns(paths: Sequence[tuple[int, Path]]) -> list[tuple[int, Path]]:
    """The best of each bank, those first that need least, then the second best of each, and so on."""
    banks: dict[int, list[tuple[int, Path]]] = {}
    for place, path in sorted(paths, key=lambda pair: (-pair[1].score, pair[0], pair[1].labels[-1])):
        banks.setdefault(path.needs, []).append((place, path))
    ranks = [(rank, needs, pair) for needs, bank in banks.items() for rank, pair in enumerate(bank)]
    return [pair for _, _, pair in sorted(ranks, key=lambda one: one[:2])]


@dataclass(frozen=True)
class Wanted:
    """The required phrases of all sentences."""

    table: Int[Tensor, "states vocabulary"]
    """The matchers of all phrases in one."""
    steps: Int[Tensor, " states"]
    """How many tokens it takes at least from each state to the phrase's end."""
    starts: tuple[tuple[int, ...], ...]
    """The first state of each phrase of each sentence, `FOUND` where a sentence has fewer than another."""
    whole: tuple[tuple[int, ...], ...]
    """How many tokens each phrase takes from a state in which nothing of it is there."""

    @cached_property
    def distances(self) -> list[int]:
        """`steps` on the host."""
        distances: list[int] = self.steps.tolist()
        return distances

    @classmethod
    def of(cls, required: Sequence[Sequence[Matcher]], words: int, device: torch.device) -> Wanted:
        """The phrases of some sentences, each as a matcher of its own."""
        unique = list(dict.fromkeys(matcher for matchers in required for matcher in matchers))
        table, offsets = join(unique, words)
        offset = dict(zip(unique, offsets, strict=True))
        steps = torch.cat([torch.zeros(2, dtype=torch.long), *(matcher.steps[1:] for matcher in unique)])
        steps = torch.nn.functional.pad(steps, (0, len(table) - len(steps)))
        longest = max(map(len, required), default=0)
        starts = [[offset[matcher] + START for matcher in matchers] for matchers in required]
        whole = [[int(matcher.steps[matcher.middle]) for matcher in matchers] for matchers in required]
        return cls(
            table.to(device),
            steps.to(device),
            tuple((*row, *[FOUND] * (longest - len(row))) for row in starts),
            tuple((*row, *[0] * (longest - len(row))) for row in whole),
        )

    def nothing_said(self, sentence: int) -> Path:
        """The hypothesis that a sentence begins with."""
        return Path((), (), 0.0, self.starts[sentence], self.needs(sentence, self.starts[sentence]))

    def needs(self, sentence: int, states: Sequence[int]) -> int:
        """The tokens that finish the phrase that is nearest to its end if the others are written whole after it."""
        missing = [(self.distances[state], whole) for state, whole in zip(states, self.whole[sentence], strict=True)]
        missing = [(steps, whole) for steps, whole in missing if steps]
        if not missing:
            return 0
        return sum(whole for _, whole in missing) + min(steps - whole for steps, whole in missing)

    def offers(
        self, log_probs: Float[Tensor, "rows vocabulary"], paths: Sequence[Path], eos: int, config: Config
    ) -> list[Offers]:
        """What each hypothesis may continue with: its most probable tokens, those that bring a phrase nearer,
        `</s>`."""
        states = torch.tensor([path.states for path in paths], dtype=torch.long, device=log_probs.device)
        ending = (self.table[states, eos] == FOUND).all(dim=1)
        log_probs = log_probs.masked_fill(log_probs.isnan(), -torch.inf)
        log_probs[:, eos] = log_probs[:, eos].masked_fill(~ending, -torch.inf)
        tokens = [top_k(log_probs, min(2 * config.beam, log_probs.shape[1]))[1], states.new_full((len(paths), 1), eos)]
        for state in states.unbind(dim=1):
            nearer = self.steps[self.table[state].long()] < self.steps[state][:, None]
            tokens.append(log_probs.masked_fill(~nearer, -torch.inf).argmax(dim=1, keepdim=True))
        every = torch.cat(tokens, dim=1)
        scores = log_probs.gather(1, every)
        after = self.table[states[:, None, :], every[:, :, None]]
        rows = zip(every.tolist(), scores.double().tolist(), after.tolist(), strict=True)
        return [
            {token: (score, tuple(after)) for token, score, after in zip(*row, strict=True) if score > -torch.inf}
            for row in rows
        ]


def restrict(
    log_probs: Float[Tensor, "rows vocabulary"],
    paths: Sequence[Path],
    step: int,
    rules: Rules | None,
    vocabulary: Vocabulary,
    config: Config,
) -> Float[Tensor, "rows vocabulary"]:
    """The log-probabilities under the other rules: the shortest length, a prefix, what is forbidden."""
    if step < config.min_length:
        log_probs = log_probs.clone()
        log_probs[:, vocabulary.eos] = -torch.inf
    if rules is None:
        return log_probs
    labels = torch.tensor([path.labels for path in paths], dtype=torch.long, device=log_probs.device)
    labels = torch.nn.functional.pad(labels, (0, 1), value=vocabulary.pad)
    return rules.apply(log_probs, labels, torch.tensor(step - 1, device=log_probs.device))
