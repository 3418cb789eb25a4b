"""Greedy search: always the most probable next token; of equal ones the lower id."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mallang.data.batch import Batch
from mallang.decoding.contract import Autoregressive, Config, Hypothesis, advance, begin, inference, limits, look_every
from mallang.decoding.ranking import hypothesis
from mallang.text.vocabulary import Vocabulary

Choose = Callable[[Float[Tensor, "rows vocabulary"], Int[Tensor, " rows"], int], Int[Tensor, " rows"]]
"""From log-probabilities, the rows' numbers (sentence × width + place) and the step: the next token of each row."""


def search(model: Autoregressive, batch: Batch, config: Config) -> list[list[Hypothesis]]:
    """The output that takes the most probable token at every step."""
    return follow(model, batch, config, lambda log_probs, rows, step: log_probs.argmax(dim=-1))


def follow(
    model: Autoregressive, batch: Batch, config: Config, choose: Choose, width: int = 1
) -> list[list[Hypothesis]]:
    """One path per row, never looking back: greedy search and sampling differ in `choose` alone."""
    most = limits(batch, config)
    if not most:
        return []
    found: list[list[Hypothesis]] = [[] for _ in most]
    walk = _start(most, width, batch.tokens.device)
    with inference(model):
        log_probs, state = begin(model, batch)
        log_probs, state = log_probs.repeat_interleave(width, dim=0), state.widen(width)
        for step in range(1, max(most) + 1):
            tokens = choose(log_probs, walk.rows, step)
            walk = walk.extend(tokens, log_probs.gather(1, tokens[:, None])[:, 0], model.vocabulary)
            if step % look_every(tokens.device) == 0 or step == max(most):
                done = walk.stopped.view(-1, width).all(dim=1)
                if done.any():
                    walk.keep(places(done, width)).collect(found, width, model.vocabulary, config)
                    if done.all():
                        break
                    staying = places(~done, width)
                    state = state.keep(places(~done), staying)
                    walk, tokens = walk.keep(staying), tokens[staying]
            log_probs, state = advance(model, tokens[:, None], state)
    return found


@dataclass(frozen=True)
class Walk:
    """The paths of the sentences that are still in the batch, one per row."""

    rows: Int[Tensor, " rows"]
    """Each row's number in the whole batch."""
    limit: Int[Tensor, " rows"]
    labels: Int[Tensor, "rows time"]
    """What was said; `<pad>`, which is never said, after the end."""
    token_scores: Float[Tensor, "rows time"]
    stopped: Bool[Tensor, " rows"]

    def extend(self, tokens: Int[Tensor, " rows"], scores: Float[Tensor, " rows"], vocabulary: Vocabulary) -> Walk:
        """Every path one token longer; one that has stopped goes on until the host looks, but is no longer heard."""
        heard = tokens.masked_fill(self.stopped, vocabulary.pad)
        labels = torch.cat([self.labels, heard[:, None]], dim=1)
        token_scores = torch.cat([self.token_scores, scores[:, None]], dim=1)
        stopped = self.stopped | (tokens == vocabulary.eos) | (self.limit <= labels.shape[1])
        return replace(self, labels=labels, token_scores=token_scores, stopped=stopped)

    def keep(self, rows: Int[Tensor, " kept"]) -> Walk:
        """These rows only."""
        kept = (self.rows[rows], self.limit[rows], self.labels[rows], self.token_scores[rows], self.stopped[rows])
        return Walk(*kept)

    def collect(self, found: list[list[Hypothesis]], width: int, vocabulary: Vocabulary, config: Config) -> None:
        """Write every path to its sentence's list, in the order of the rows."""
        for row, labels, scores in zip(
            self.rows.tolist(), self.labels.tolist(), self.token_scores.tolist(), strict=True
        ):
            found[row // width].append(hypothesis(labels, scores, vocabulary, config))


def _start(most: list[int], width: int, device: torch.device) -> Walk:
    rows = torch.arange(len(most) * width, device=device)
    return Walk(
        rows=rows,
        limit=torch.tensor(most, device=device).repeat_interleave(width),
        labels=rows.new_empty(len(rows), 0),
        token_scores=torch.empty(len(rows), 0, device=device),
        stopped=torch.zeros_like(rows, dtype=torch.bool),
    )


def places(chosen: Bool[Tensor, " sentences"], width: int = 1) -> Int[Tensor, " rows"]:
    """The numbers of the rows that belong to the chosen sentences."""
    return chosen.repeat_interleave(width).nonzero()[:, 0]
