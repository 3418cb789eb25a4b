"""Exhaustive search: scores every output up to the length limit, so it finds the best; for tiny vocabularies only."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from mallang.data.batch import Batch
from mallang.decoding.contract import (
    Autoregressive,
    Config,
    Hypothesis,
    Rules,
    State,
    advance,
    begin,
    inference,
    limits,
)
from mallang.decoding.ranking import hypothesis
from mallang.errors import UserError

MOST_OUTPUTS = 100_000
"""The maximum number of outputs per sentence; more are refused."""


def search(model: Autoregressive, batch: Batch, config: Config, rules: Rules | None = None) -> list[list[Hypothesis]]:
    """The `nbest` best of all outputs that the rules allow; ties go to the shorter output, then to the lower ids."""
    most = limits(batch, config, model)
    if not most:
        return []
    vocabulary = model.vocabulary
    words = [word for word in range(len(vocabulary)) if word not in (vocabulary.pad, vocabulary.bos, vocabulary.eos)]
    _refuse_too_many(len(words), max(most))
    with inference(model):
        log_probs, state = begin(model, batch)
        sentences = torch.arange(len(most), device=batch.tokens.device)[:, None]
        return [
            _every_output(model, log_probs[one], state.keep(one, one), words, limit, config, rules and rules.keep(one))
            for one, limit in zip(sentences, most, strict=True)
        ]


def _every_output(
    model: Autoregressive,
    log_probs: Float[Tensor, "1 vocabulary"],
    state: State,
    words: list[int],
    limit: int,
    config: Config,
    rules: Rules | None,
) -> list[Hypothesis]:
    """Extend all hypotheses of one sentence by every word; those that end with `</s>` are the outputs."""
    eos, ended = model.vocabulary.eos, []
    labels = torch.empty(1, 0, dtype=torch.long, device=log_probs.device)
    token_scores = torch.empty(1, 0, device=log_probs.device)
    for step in range(1, limit + 1):
        if rules is not None:
            buffer = torch.nn.functional.pad(labels, (0, 1), value=model.vocabulary.pad)
            log_probs = rules.apply(log_probs, buffer, torch.tensor(step - 1, device=labels.device))
        final = torch.cat([token_scores, log_probs[:, [eos]]], dim=1)
        ended += [
            ([*said, eos], scores)
            for said, scores in zip(labels.tolist(), final.tolist(), strict=True)
            if scores[-1] > -math.inf and step >= config.min_length
        ]
        # Each hypothesis continues with every word; its copies are adjacent, as in the widened state.
        chosen = torch.tensor(words, device=labels.device).repeat(len(labels))[:, None]
        labels = torch.cat([labels.repeat_interleave(len(words), dim=0), chosen], dim=1)
        token_scores = torch.cat(
            [token_scores.repeat_interleave(len(words), dim=0), log_probs[:, words].reshape(-1, 1)], dim=1
        )
        possible = (token_scores[:, -1] > -torch.inf).nonzero()[:, 0]
        labels, token_scores = labels[possible], token_scores[possible]
        if step < limit and len(possible):
            state = state.widen(len(words)).select(possible)
            log_probs, state = advance(model, labels[:, -1:], state)
        elif step < limit:
            break
    outputs = ended or list(zip(labels.tolist(), token_scores.tolist(), strict=True)) or [([], [])]
    every = [hypothesis(said, scores, model.vocabulary, config) for said, scores in outputs]
    return sorted(every, key=lambda one: (-one.normalized, len(one.tokens), one.tokens))[: config.nbest]


def _refuse_too_many(words: int, limit: int) -> None:
    """Refuse a search of too many outputs: there are words^0 + … + words^(limit − 1) of up to `limit` tokens."""
    digits = (limit - 1) * math.log10(words)
    outputs = sum(words**length for length in range(limit)) if digits < 9 else None
    if outputs is None or outputs > MOST_OUTPUTS:
        number = f"10^{digits:.0f}" if outputs is None else f"{outputs:,}"
        raise UserError(
            f"exhaustive search would try {number} outputs ({words:,} words, up to {limit:,} tokens), "
            f"more than the {MOST_OUTPUTS:,} it can",
            todo='lower decoding.max_length, or use method = "beam"',
        )
