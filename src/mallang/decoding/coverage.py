"""Coverage penalty: outputs that leave source words unattended rank lower (Wu et al. 2016, arXiv:1609.08144, eq. 14).

    normalized = score / penalty(length) + β · Σ_j log min(Σ_i p_ij, 1)

p_ij is the attention weight from output token i (`</s>` counted) to source token j: a source token whose weights sum
to at least 1 costs nothing. The paper adds the term during the search; here attention is not recorded during the
search, so the final hypotheses of a beam are scored once more with recorded attention, and reranked. The weights are
those of the last layer with cross-attention, averaged over its heads and over the models of an ensemble.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mallang.data.batch import Batch
from mallang.decoding.contract import Config, Hypothesis, inference
from mallang.decoding.ensemble import Ensemble
from mallang.decoding.ranking import ranked
from mallang.decoding.scoring import with_labels
from mallang.errors import UserError
from mallang.layers.attention import record_attention

LEAST = 1e-6
"""The minimum attention sum of a source token: one without any attention costs β · log of this, not ∞."""


def covered(
    model: Any, batch: Batch, config: Config, search: Callable[[Config], list[list[Hypothesis]]]
) -> list[list[Hypothesis]]:
    """The outputs of a beam search, reranked with the coverage penalty if the options have one."""
    if not config.coverage:
        return search(config)
    found = search(replace(config, nbest=config.beam, coverage=0.0))
    return [nbest[: config.nbest] for nbest in rerank(model, batch, found, config.coverage)]


def rerank(model: Any, batch: Batch, found: Sequence[Sequence[Hypothesis]], beta: float) -> list[list[Hypothesis]]:
    """The hypotheses of every sentence, best first, with the coverage penalty added to their normalized scores."""
    every: list[list[Hypothesis]] = [[] for _ in found]
    for rank in range(max(map(len, found), default=0)):  # the best of each sentence, then the second …
        places = [place for place, nbest in enumerate(found) if len(nbest) > rank]
        chosen = [found[place][rank] for place in places]
        penalties = coverage(model, pick(batch, places), chosen)
        for place, one, penalty in zip(places, chosen, penalties, strict=True):
            every[place].append(replace(one, normalized=one.normalized + beta * penalty))
    return [ranked(nbest) for nbest in every]


def coverage(model: Any, batch: Batch, hypotheses: Sequence[Hypothesis]) -> list[float]:
    """Σ_j log min(Σ_i p_ij, 1) of one output for each sentence: 0 if every source token is covered, else negative."""
    labels = [one.labels(model.vocabulary.eos) for one in hypotheses]
    said = with_labels(batch, labels, model.vocabulary)
    attended = cross_attention(model, said).masked_fill(~said.mask[:, :, None], 0.0).sum(dim=1)
    logs = attended.clamp(LEAST, 1.0).log().masked_fill(~said.source_mask, 0.0)
    sums: list[float] = logs.sum(dim=1).tolist()
    return sums


def cross_attention(model: Any, batch: Batch) -> Float[Tensor, "batch time source"]:
    """Cross-attention weights of the last layer that has any, averaged over its heads and over an ensemble."""
    found = []
    for member in model.members if isinstance(model, Ensemble) else [model]:
        with inference(member), record_attention(member) as maps:
            member(batch)
        cross = [weights for name, weights in maps.items() if name.endswith("cross")]
        if not cross or batch.source is None:
            raise UserError(
                f"{type(member).__name__} has no attention from output words to source words, which this needs",
                todo="leave out coverage and replace_unknown, or use a model that has, such as transformer",
            )
        found.append(cross[-1].float().mean(dim=1))
    return torch.stack(found).mean(dim=0)


def pick(batch: Batch, places: Sequence[int]) -> Batch:
    """These sentences of a batch."""
    rows: Int[Tensor, " picked"] = torch.tensor(places, device=batch.tokens.device)
    return batch.map(lambda tensor: tensor[rows])
