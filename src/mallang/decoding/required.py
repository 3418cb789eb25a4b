"""Lexically constrained beam search: outputs contain required phrases, wherever they fit best.

Dynamic beam allocation (Post and Vilar 2018, arXiv:1804.06609) over words instead of tokens. Every hypothesis knows the
minimum number of tokens that complete its missing phrases, one after the other; hypotheses with the same number form a
bank. The beam is divided among the banks in turns: the best of each, then the second best … (Hu et al. 2019). The
candidates of a hypothesis are its most probable tokens and, for each missing phrase, the most probable token that
brings the phrase nearer to completion. So the bank that needs least always makes progress and is never dropped: if the
length limit leaves room for the phrases and no constraint forbids them, they are in the output. `</s>` is generated
only if no phrase is missing.

The host reads the results of every step, so this search does not use the runners.
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
    """The `nbest` best outputs that contain every required phrase; an empty list for a sentence without any.

    If the length limit is too short for the phrases, the unfinished outputs nearest to containing them are returned.
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
"""The candidate tokens of a hypothesis, each with its log-probability and the matcher states of the phrases after
it."""


@dataclass(frozen=True)
class Path:
    """A hypothesis, and how far it is from containing its phrases."""

    labels: tuple[int, ...]
    token_scores: tuple[float, ...]
    score: float
    states: tuple[int, ...]
    """The matcher state of each phrase; `FOUND` once the phrase has occurred."""
    needs: int
    """The minimum number of tokens that complete the missing phrases, one after the other."""


@dataclass
class Beam:
    """The beam of one sentence."""

    number: int
    limit: int
    open: list[Path]
    done: list[Hypothesis] = field(default_factory=list)
    completed: int = 0
    stopped: bool = False

    def filled(self, width: int) -> list[Path]:
        """The open hypotheses, padded to `width` rows with copies of the first."""
        return [*self.open, *[self.open[0]] * (width - len(self.open))]

    def grow(
        self, offers: Sequence[Offers], step: int, wanted: Wanted, vocabulary: Vocabulary, config: Config
    ) -> list[int]:
        """Extend by one token; returns the places in the beam that the new hypotheses continue."""
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
        """Whether the search is over by the stopping criterion; the bound is explained in beam.py."""
        if config.stop == "complete":
            return self.completed >= config.beam
        highest = max(path.score for path in self.open) / penalty(self.limit, config)
        return len(self.done) == config.nbest and self.done[-1].normalized >= highest

    def results(self, vocabulary: Vocabulary, config: Config) -> list[Hypothesis]:
        """The finished outputs; else the unfinished ones at the length limit, sorted by what they still need."""
        at_limit = [path for path in self.open if len(path.labels) == self.limit]
        if self.done or not at_limit:
            return self.done
        nearest = sorted(at_limit, key=lambda path: (path.needs, -path.score))[: config.nbest]
        return [hypothesis(path.labels, path.token_scores, vocabulary, config) for path in nearest]


def in_turns(paths: Sequence[tuple[int, Path]]) -> list[tuple[int, Path]]:
    """The best of each bank, banks that need fewest tokens first, then the second best of each, and so on."""
    banks: dict[int, list[tuple[int, Path]]] = {}
    for place, path in sorted(paths, key=lambda pair: (-pair[1].score, pair[0], pair[1].labels[-1])):
        banks.setdefault(path.needs, []).append((place, path))
    ranks = [(rank, needs, pair) for needs, bank in banks.items() for rank, pair in enumerate(bank)]
    return [pair for _, _, pair in sorted(ranks, key=lambda one: one[:2])]


@dataclass(frozen=True)
class Wanted:
    """The required phrases of all sentences."""

    table: Int[Tensor, "states vocabulary"]
    """The joined transition table of the matchers of all phrases."""
    steps: Int[Tensor, " states"]
    """The minimum number of tokens from each state to the end of the phrase."""
    starts: tuple[tuple[int, ...], ...]
    """The start state of each phrase of each sentence, padded with `FOUND`."""
    whole: tuple[tuple[int, ...], ...]
    """The minimum number of tokens of each whole phrase."""

    @cached_property
    def distances(self) -> list[int]:
        """`steps` on the host."""
        distances: list[int] = self.steps.tolist()
        return distances

    @classmethod
    def of(cls, required: Sequence[Sequence[Matcher]], words: int, device: torch.device) -> Wanted:
        """The required phrases of some sentences, from one matcher per phrase."""
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
        """The empty hypothesis of a sentence."""
        return Path((), (), 0.0, self.starts[sentence], self.needs(sentence, self.starts[sentence]))

    def needs(self, sentence: int, states: Sequence[int]) -> int:
        """The minimum number of tokens that finish the phrase nearest to its end and then all other missing phrases."""
        missing = [(self.distances[state], whole) for state, whole in zip(states, self.whole[sentence], strict=True)]
        missing = [(steps, whole) for steps, whole in missing if steps]
        if not missing:
            return 0
        return sum(whole for _, whole in missing) + min(steps - whole for steps, whole in missing)

    def offers(
        self, log_probs: Float[Tensor, "rows vocabulary"], paths: Sequence[Path], eos: int, config: Config
    ) -> list[Offers]:
        """The candidates of each hypothesis: its most probable tokens, those that bring a phrase nearer to completion,
        and `</s>`."""
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
    """The log-probabilities under the other constraints: minimum length, forced prefix, forbidden phrases."""
    if step < config.min_length:
        log_probs = log_probs.clone()
        log_probs[:, vocabulary.eos] = -torch.inf
    if rules is None:
        return log_probs
    labels = torch.tensor([path.labels for path in paths], dtype=torch.long, device=log_probs.device)
    labels = torch.nn.functional.pad(labels, (0, 1), value=vocabulary.pad)
    return rules.apply(log_probs, labels, torch.tensor(step - 1, device=log_probs.device))
