"""Beam search: follow the `beam` best hypotheses of every sentence at once, for any model that has `start` and `step`.

Every step selects the 2 × beam best continuations. A continuation with `</s>` among the first `beam` of them is
complete: it leaves the beam at once and takes no slot. The `beam` best others stay in the beam; since each hypothesis
has one way to end, 2 × beam candidates always leave enough of them. A hypothesis that reaches its sentence's length
limit without `</s>` is returned, as unfinished, only when none was completed.

Two stopping criteria decide when a sentence is done. "complete": `beam` hypotheses are complete. "optimal": no open
hypothesis can still enter the n-best list. Every further log-probability is at most 0, so an open hypothesis with the
sum s ≤ 0 can end with no more than s; and since no length penalty falls with the length, its normalized score is at
most s / penalty(limit). The best open hypothesis has the highest bound; once the worst of the n-best reaches it, the
rest of the search could change nothing. A beam of 1 follows a single path, which ends with its first `</s>` under
either criterion: it is greedy search.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from mallang.data.batch import Batch
from mallang.decoding.contract import Autoregressive, Config, Hypothesis, Rules, limits
from mallang.decoding.progress import Search
from mallang.decoding.ranking import hypothesis, penalty, ranked
from mallang.decoding.runner import run
from mallang.kernels.memory import check_room
from mallang.kernels.top_k import top_k, top_k_sums
from mallang.text.vocabulary import Vocabulary


def search(model: Autoregressive, batch: Batch, config: Config, rules: Rules | None = None) -> list[list[Hypothesis]]:
    """The `nbest` best outputs that a beam finds for each sentence."""
    most = limits(batch, config, model)
    return (
        run(model, batch, Beams.start(most, model.vocabulary, config, batch.tokens.device), config, rules)
        if most
        else []
    )


@dataclass(frozen=True)
class Beams(Search):
    """The beams of some sentences: n-best lists of complete hypotheses, and the open hypotheses, best first."""

    highest: Float64[Tensor, " sentences"]
    """The length penalty at the limit."""
    labels: Int[Tensor, "sentences paths limit"]
    """The generated tokens: first of the n-best list, then of the open hypotheses; `<pad>` after the end."""
    token_scores: Float[Tensor, "sentences paths limit"]
    done: Float64[Tensor, "sentences nbest"]
    """The normalized scores of the n-best list, −∞ for entries that are still empty."""
    totals: Float64[Tensor, "sentences width"]
    """The log-probability sums of the open hypotheses. In double precision, where adding up to 2^29 float32 numbers of
    similar size rounds nothing: ties stay ties."""
    completed: Int[Tensor, " sentences"]
    """How many hypotheses were completed."""

    @staticmethod
    def start(most: list[int], vocabulary: Vocabulary, config: Config, device: torch.device) -> Beams:
        """Empty hypotheses; the first of the equal copies of each sentence has the sum 0, the others have −∞."""
        check_beam(most, vocabulary, config, device)
        numbers = torch.arange(len(most), device=device)
        none = torch.full((len(most), config.nbest + config.beam), -torch.inf, dtype=torch.float64, device=device)
        none[:, config.nbest] = 0.0
        shape = len(most), config.nbest + config.beam, max(most)
        return Beams(
            numbers=numbers,
            limit=torch.tensor(most, device=device),
            highest=torch.tensor([penalty(length, config) for length in most], dtype=torch.float64, device=device),
            labels=torch.full(shape, vocabulary.pad, device=device),
            token_scores=torch.zeros(shape, device=device),
            done=none[:, : config.nbest],
            totals=none[:, config.nbest :],
            completed=torch.zeros_like(numbers),
            stopped=torch.zeros_like(numbers, dtype=torch.bool),
        )

    @property
    def width(self) -> int:
        """The number of open hypotheses per sentence."""
        return self.totals.shape[1]

    @property
    def said(self) -> Int[Tensor, "rows limit"]:
        """The tokens that each open hypothesis has generated."""
        return self.labels[:, -self.width :].flatten(0, 1)

    def grow(
        self, log_probs: Float[Tensor, "rows vocabulary"], said: Int[Tensor, ""], vocabulary: Vocabulary, config: Config
    ) -> tuple[Beams, Int[Tensor, " rows"], Int[Tensor, " rows"]]:
        """Extend by one token: the new beams, the tokens of the open hypotheses, and the rows that they continue."""
        totals, cells = top_k_sums(self.totals, log_probs, 2 * self.width)
        ends = cells % log_probs.shape[1] == vocabulary.eos
        done, listed, completed = self.complete(totals, ends, said + 1, config)
        # A stable sort by "ends with </s>": the open ones first, in their order.
        going = ends.int().sort(dim=1, stable=True).indices[:, : self.width]
        chosen = torch.cat([listed, going + config.nbest], dim=1)
        labels, token_scores, tokens, rows = self.follow(chosen, cells, log_probs, said, vocabulary)
        open_totals = totals.gather(1, going)
        stopped = self.stopped | (self.limit <= said + 1)
        stopped = stopped | _settled(open_totals, done, completed, self.highest, config)
        changed = {"done": done, "totals": open_totals, "completed": completed, "stopped": stopped}
        return replace(self, labels=labels, token_scores=token_scores, **changed), tokens, rows

    def complete(
        self,
        totals: Float64[Tensor, "sentences candidates"],
        ends: Bool[Tensor, "sentences candidates"],
        length: Int[Tensor, ""],
        config: Config,
    ) -> tuple[Float64[Tensor, "sentences nbest"], Int[Tensor, "sentences nbest"], Int[Tensor, " sentences"]]:
        """Update the n-best list with the hypotheses that end in this step.

        Returns its scores, the place that each entry comes from (first the old list, then the candidates), and the
        number of hypotheses completed so far.
        """
        ended = ends & (totals > -torch.inf)
        ended[:, config.beam :].fill_(False)
        completed = self.completed + ended.sum(dim=1)
        last_chance = (self.limit == length) & (completed == 0)
        # Finished sentences run until the host's next check; their hypotheses can no longer enter any list.
        entering = (ended | (last_chance[:, None] & ~ends)) & ~self.stopped[:, None]
        normalized = (totals / penalty(length.double(), config)).masked_fill(~entering, -torch.inf)
        done, listed = top_k(torch.cat([self.done, normalized], dim=1), config.nbest)
        return done, listed, completed

    def follow(
        self,
        chosen: Int[Tensor, "sentences paths"],
        cells: Int[Tensor, "sentences candidates"],
        log_probs: Float[Tensor, "rows vocabulary"],
        said: Int[Tensor, ""],
        vocabulary: Vocabulary,
    ) -> tuple[
        Int[Tensor, "sentences paths limit"],
        Float[Tensor, "sentences paths limit"],
        Int[Tensor, " rows"],
        Int[Tensor, " rows"],
    ]:
        """Labels and scores of the chosen paths, tokens of the open hypotheses, and the rows that these continue.

        `chosen` counts through the n-best list and then the candidates; a candidate is a cell of the table open
        hypotheses × vocabulary.
        """
        (sentences, nbest), words = self.done.shape, log_probs.shape[1]
        listed = torch.arange(nbest, device=cells.device).expand(sentences, -1)
        scores = log_probs.view(sentences, -1).gather(1, cells)
        origin = torch.cat([listed, cells // words + nbest], dim=1).gather(1, chosen)
        token = torch.cat([torch.full_like(listed, vocabulary.pad), cells % words], dim=1).gather(1, chosen)
        score = torch.cat([scores.new_zeros(sentences, nbest), scores], dim=1).gather(1, chosen)
        first_row = torch.arange(0, len(log_probs), self.width, device=cells.device)
        path, now = origin[:, :, None].expand_as(self.labels), said[None]
        return (
            self.labels.gather(1, path).index_copy_(2, now, token[:, :, None]),
            self.token_scores.gather(1, path).index_copy_(2, now, score[:, :, None]),
            token[:, nbest:].flatten(),
            (first_row[:, None] + origin[:, nbest:] - nbest).flatten(),
        )

    def outputs(self, vocabulary: Vocabulary, config: Config) -> dict[int, list[Hypothesis]]:
        """The n-best list of every sentence."""
        found: dict[int, list[Hypothesis]] = {}
        nbest = self.done.shape[1]
        columns = (self.numbers, self.labels[:, :nbest], self.token_scores[:, :nbest], self.done)
        for number, labels, scores, normalized in zip(*(column.tolist() for column in columns), strict=True):
            # If fewer were found than requested, the rest of the list scores −∞; the first must exist.
            listed = [rank for rank, score in enumerate(normalized) if rank == 0 or score > -torch.inf]
            if number >= 0:
                found[number] = ranked(hypothesis(labels[rank], scores[rank], vocabulary, config) for rank in listed)
        return found


def check_beam(most: list[int], vocabulary: Vocabulary, config: Config, device: torch.device) -> None:
    """Refuse a beam that cannot fit into memory, whatever the model."""
    # Every hypothesis has its logits and log-probabilities, and its tokens with their scores twice.
    needed = len(most) * (config.nbest + config.beam) * (8 * len(vocabulary) + 24 * max(most))
    check_room(needed, device, f"a beam of {config.beam:,} for {len(most)} texts at once", "a smaller beam: beam=5")


def _settled(
    totals: Float64[Tensor, "sentences width"],
    done: Float64[Tensor, "sentences nbest"],
    completed: Int[Tensor, " sentences"],
    highest: Float64[Tensor, " sentences"],
    config: Config,
) -> Bool[Tensor, " sentences"]:
    """Which sentences are done by the stopping criterion; the bound is explained at the top of this file."""
    if config.stop == "complete" or config.beam == 1:
        return completed >= config.beam
    return done[:, -1] >= totals[:, 0] / highest
