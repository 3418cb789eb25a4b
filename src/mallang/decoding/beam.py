"""Beam search: follow the `beam` best hypotheses of every sentence at once, for any model that has `start` and `step`.

At every step the 2 × beam best continuations are drawn up. A continuation with `</s>` that lies among the first
`beam` of them is complete: it leaves the beam at once and takes no slot. The `beam` best others go on; since each
hypothesis has one way to end, 2 × beam candidates always leave enough of them. A hypothesis that reaches its
sentence's length limit without `</s>` is returned, as unfinished, only when none was completed.

Two rules say when a sentence is done. "complete": `beam` hypotheses are complete. "optimal": no open hypothesis can
still enter the n-best list. Every further log-probability is at most 0, so an open hypothesis with the sum s ≤ 0 can
end with no more than s; and since no length penalty falls with the length, its normalised score is at most
s / penalty(limit). The best open hypothesis has the highest bound; once the worst of the n-best reaches it, the rest
of the search could change nothing. A beam of 1 follows a single path, which ends with its first `</s>` under either
rule: it is greedy search.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor
from torch.nn.functional import pad

from mallang.data.batch import Batch
from mallang.decoding.contract import (
    Autoregressive,
    Config,
    Hypothesis,
    advance,
    begin,
    inference,
    limits,
    look_every,
)
from mallang.decoding.greedy import places
from mallang.decoding.ranking import best, hypothesis, penalty, ranked
from mallang.text.vocabulary import Vocabulary


def search(model: Autoregressive, batch: Batch, config: Config) -> list[list[Hypothesis]]:
    """The `nbest` best outputs that a beam finds for each sentence."""
    most = limits(batch, config)
    if not most:
        return []
    found: list[list[Hypothesis]] = [[] for _ in most]
    beams = _start(most, config, batch.tokens.device)
    with inference(model):
        log_probs, state = begin(model, batch)
        log_probs, state = log_probs.repeat_interleave(config.beam, dim=0), state.widen(config.beam)
        for step in range(1, max(most) + 1):
            beams, rows = _grow(beams, log_probs, step, model.vocabulary, config)
            due = step % look_every(rows.device) == 0 or step == max(most)
            if due and bool(beams.stopped.any()):
                _collect(beams.keep(places(beams.stopped)), found, model.vocabulary, config)
                staying = places(~beams.stopped)
                if not len(staying):
                    break
                beams = beams.keep(staying)
                state = state.keep(staying, rows.view(-1, config.beam)[staying].flatten())
            else:
                state = state.select(rows)
            log_probs, state = advance(model, beams.open.labels[:, :, -1].reshape(-1, 1), state)
    return found


@dataclass(frozen=True)
class Paths:
    """Some hypotheses of every sentence, best first."""

    labels: Int[Tensor, "sentences width time"]
    """What was said; `<pad>`, which is never said, after the end."""
    token_scores: Float[Tensor, "sentences width time"]
    scores: Float64[Tensor, "sentences width"]
    """What they are ranked by: the sum while they are open, the normalised score after; −∞ where there is none.

    In double precision, where adding up to 2^29 single numbers of like size rounds nothing: ties stay ties."""

    def take(self, chosen: Int[Tensor, "sentences chosen"]) -> Paths:
        """For every sentence these of its hypotheses, in this order."""
        index = chosen[:, :, None].expand(-1, -1, self.labels.shape[2])
        return Paths(self.labels.gather(1, index), self.token_scores.gather(1, index), self.scores.gather(1, chosen))

    def keep(self, sentences: Int[Tensor, " kept"]) -> Paths:
        """These sentences only."""
        return Paths(self.labels[sentences], self.token_scores[sentences], self.scores[sentences])


@dataclass(frozen=True)
class Beams:
    """The search of the sentences that are still in the batch."""

    numbers: Int[Tensor, " sentences"]
    """Each sentence's number in the whole batch."""
    limit: Int[Tensor, " sentences"]
    highest: Float64[Tensor, " sentences"]
    """The length penalty at the limit."""
    open: Paths
    done: Paths
    completed: Int[Tensor, " sentences"]
    """How many hypotheses were completed."""
    stopped: Bool[Tensor, " sentences"]

    def keep(self, sentences: Int[Tensor, " kept"]) -> Beams:
        """These sentences only."""
        return Beams(
            self.numbers[sentences],
            self.limit[sentences],
            self.highest[sentences],
            self.open.keep(sentences),
            self.done.keep(sentences),
            self.completed[sentences],
            self.stopped[sentences],
        )


def _start(most: list[int], config: Config, device: torch.device) -> Beams:
    """Nothing said, nothing completed; of the equal copies of the first step one counts, the others score −∞."""
    numbers = torch.arange(len(most), device=device)
    none = torch.full((len(most), config.beam), -torch.inf, dtype=torch.float64, device=device)
    one = none.clone()
    one[:, 0] = 0.0
    labels = numbers.new_empty(len(most), config.beam, 0)
    token_scores = torch.empty(labels.shape, device=device)
    return Beams(
        numbers=numbers,
        limit=torch.tensor(most, device=device),
        highest=torch.tensor([penalty(length, config) for length in most], dtype=torch.float64, device=device),
        open=Paths(labels, token_scores, one),
        done=Paths(labels[:, : config.nbest], token_scores[:, : config.nbest], none[:, : config.nbest]),
        completed=torch.zeros_like(numbers),
        stopped=torch.zeros_like(numbers, dtype=torch.bool),
    )


def _grow(
    beams: Beams, log_probs: Float[Tensor, "rows vocabulary"], step: int, vocabulary: Vocabulary, config: Config
) -> tuple[Beams, Int[Tensor, " rows"]]:
    """One token further: the beams after it, and which row of the state each open hypothesis goes on from."""
    sentences, width = beams.open.scores.shape
    # No hypothesis can give more than 2 × width of the 2 × width best, so each row is shortened first.
    row_scores, row_tokens = best(log_probs, min(2 * width, log_probs.shape[1]))
    # Where nothing at all may follow, the softmax gives no numbers: a dead end, as in a table of counts.
    table = row_scores.masked_fill(row_scores.isnan(), -torch.inf).view(sentences, width, -1)
    scores, cells = best((beams.open.scores[:, :, None] + table).flatten(1), 2 * width)
    parents, tokens = cells // table.shape[2], row_tokens.view(sentences, -1).gather(1, cells)
    before = beams.open.take(parents)
    candidates = Paths(
        labels=torch.cat([before.labels, tokens[:, :, None]], dim=2),
        token_scores=torch.cat([before.token_scores, table.flatten(1).gather(1, cells)[:, :, None]], dim=2),
        scores=scores,
    )
    ends = tokens == vocabulary.eos
    done, completed = _complete(beams, candidates, ends, step, vocabulary, config)
    # A stable sort of "is it an ending": the others first, in their order.
    going = ends.int().sort(dim=1, stable=True).indices[:, :width]
    open_paths = candidates.take(going)
    stopped = beams.stopped | (beams.limit <= step) | _settled(open_paths, done, completed, beams.highest, config)
    # Until the host looks, sentences that are done go on; their hypotheses can no longer enter any list.
    open_paths = replace(open_paths, scores=open_paths.scores.masked_fill(stopped[:, None], -torch.inf))
    first_row = torch.arange(0, sentences * width, width, device=tokens.device)
    rows = (first_row[:, None] + parents.gather(1, going)).flatten()
    return replace(beams, open=open_paths, done=done, completed=completed, stopped=stopped), rows


def _complete(
    beams: Beams,
    candidates: Paths,
    ends: Bool[Tensor, "sentences candidates"],
    step: int,
    vocabulary: Vocabulary,
    config: Config,
) -> tuple[Paths, Int[Tensor, " sentences"]]:
    """The n-best list with what ended at this step, and how many have ended so far."""
    ended = ends & (candidates.scores > -torch.inf)
    ended[:, config.beam :] = False
    completed = beams.completed + ended.sum(dim=1)
    last_chance = (beams.limit == step) & (completed == 0)
    entering = ended | (last_chance[:, None] & ~ends)
    normalized = (candidates.scores / penalty(step, config)).masked_fill(~entering, -torch.inf)
    everything = Paths(
        labels=torch.cat([pad(beams.done.labels, (0, 1), value=vocabulary.pad), candidates.labels], dim=1),
        token_scores=torch.cat([pad(beams.done.token_scores, (0, 1)), candidates.token_scores], dim=1),
        scores=torch.cat([beams.done.scores, normalized], dim=1),
    )
    return everything.take(best(everything.scores, config.nbest)[1]), completed


def _settled(
    open_paths: Paths,
    done: Paths,
    completed: Int[Tensor, " sentences"],
    highest: Float64[Tensor, " sentences"],
    config: Config,
) -> Bool[Tensor, " sentences"]:
    """Where the stopping rule says that the search is over; the bound is explained at the top of this file."""
    if config.stop == "complete" or config.beam == 1:
        return completed >= config.beam
    return done.scores[:, -1] >= open_paths.scores[:, 0] / highest


def _collect(beams: Beams, found: list[list[Hypothesis]], vocabulary: Vocabulary, config: Config) -> None:
    """Write the n-best list of every sentence to its place."""
    for place, number in enumerate(beams.numbers.tolist()):
        paths = zip(
            beams.done.labels[place].tolist(),
            beams.done.token_scores[place].tolist(),
            beams.done.scores[place].tolist(),
            strict=True,
        )
        # Where fewer were found than asked for, the rest of the list scores −∞; the first must be there.
        listed = [path for rank, path in enumerate(paths) if rank == 0 or path[2] > -torch.inf]
        found[number] = ranked(hypothesis(labels, scores, vocabulary, config) for labels, scores, _ in listed)
