"""Coverage: an output that leaves source words unlooked at is ranked lower (Wu et al. 2016, arXiv:1609.08144, eq. 14).

    normalized = score / penalty(length) + β · Σ_j log min(Σ_i p_ij, 1)

p_ij is how much output token i (`</s>` counted) looks at source token j: a source token that was looked at once in all
costs nothing. The paper adds the term while it searches; here nothing is recorded during search, so the hypotheses that
a beam ends with are read once more with their attention seen, and ranked again. Weights are those of the last
layer that looks at the source, the mean over its heads, and over the models of an ensemble.
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
"""What a source token is looked at in all at least: one that is not seen at all costs β · log of this, not ∞."""


def covered(
    model: Any, batch: Batch, config: Config, search: Callable[[Config], list[list[Hypothesis]]]
) -> list[list[Hypothesis]]:
    """What a beam search finds, ranked with the coverage penalty where the options ask for one."""
    if not config.coverage:
        return search(config)
    found = search(replace(config, nbest=config.beam, coverage=0.0))
    return [nbest[: config.nbest] for nbest in rerank(model, batch, found, config.coverage)]


def rerank(model: Any, batch: Batch, found: Sequence[Sequence[Hypothesis]], beta: float) -> list[list[Hypothesis]]:
    """The hypotheses of every sentence, best first, with the coverage penalty in what they are ranked by."""
    every: list[list[Hypothesis]] = [[] for _ in found]
    for rank in range(max(map(len, found), default=0)):  # the best of each sentence, then the second …
        places = [place for place, nbest in enumerate(found) if len(nbest) > rank]
        chosen = [found[place][rank] for place in places]
        penalties = coverage(model, pick(batch, places), chosen)
        for place, one, penalty in zip(places, chosen, penalties, strict=True):
            every[place].append(replace(one, normalized=one.normalized + beta * penalty))
    return [ranked(nbest) for nbest in every]


def coverage(model: Any, batch: Batch, hypotheses: Sequence[Hypothesis]) -> list[float]:
    """Σ_j log min(Σ_i p_ij, 1) of one output for each sentence: 0 where all was looked at, else below."""
    labels = [one.labels(model.vocabulary.eos) for one in hypotheses]
    said = with_labels(batch, labels, model.vocabulary)
    looked = cross_attention(model, said).masked_fill(~said.mask[:, :, None], 0.0).sum(dim=1)
    logs = looked.clamp(LEAST, 1.0).log().masked_fill(~said.source_mask, 0.0)
    sums: list[float] = logs.sum(dim=1).tolist()
    return sums


def cross_attention(model: Any, batch: Batch) -> Float[Tensor, "batch time source"]:
    """How much each output token attends to each source token: the last layer that does, the mean of its heads."""
    found = []
    for member in model.members if isinstance(model, Ensemble) else [model]:
        with inference(member), record_attention(member) as maps:
            member(batch)
        looks = [weights for name, weights in maps.items() if name.endswith("cross")]
        if not looks or batch.source is None:
            raise UserError(
                f"{type(member).__name__} has no attention from output words to source words, which this needs",
                todo="leave out coverage and replace_unknown, or use a model that has, such as transformer",
            )
        found.append(looks[-1].float().mean(dim=1))
    return torch.stack(found).mean(dim=0)


def pick(batch: Batch, places: Sequence[int]) -> Batch:
    """These sentences of a batch."""
    rows: Int[Tensor, " picked"] = torch.tensor(places, device=batch.tokens.device)
    return batch.map(lambda tensor: tensor[rows])
