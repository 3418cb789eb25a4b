"""The distribution of the next token at every step of an output, small enough for a page and still exact.

Of every step the most probable tokens are kept, and what the others add up to at each temperature that a slider can
have. So a page can sharpen, flatten and truncate a distribution by itself, as sampling does (decoding/sampling.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mallang.data.batch import Batch
from mallang.decoding.contract import Autoregressive, inference
from mallang.text.vocabulary import Vocabulary

KEPT = 256
"""The number of tokens whose log-probability is kept."""
TEMPERATURES = tuple(round(0.1 + 0.05 * place, 2) for place in range(39))
"""The temperatures that a slider can have: 0.1 to 2."""


@dataclass(frozen=True)
class NextTokens:
    """For every step the most probable tokens, and the sum of all others."""

    ids: Int[Tensor, "steps kept"]
    """Token ids, the most probable first, without `<pad>` and `<s>`, which are never generated."""
    log_probs: Float[Tensor, "steps kept"]
    """Their natural log-probabilities."""
    rest: Float[Tensor, "steps temperatures"]
    """log Σ p^(1/T) of the other tokens, for each T of `TEMPERATURES`; −∞ where there are none."""
    others: int
    """The number of the other tokens."""
    labels: Float[Tensor, " steps"]
    """The log-probability of the token that the output has there."""

    @property
    def surprisal(self) -> Float[Tensor, " steps"]:
        """The surprisal of each token of the output in bits."""
        return -self.labels / torch.log(torch.tensor(2.0))


def next_tokens(model: Autoregressive, batch: Batch, kept: int = KEPT) -> NextTokens:
    """The next tokens of a batch of one text with labels."""
    assert batch.labels is not None
    with inference(model):
        logits, _ = model.step(batch.tokens, model.start(batch))
    log_probs = logits[0].float().log_softmax(dim=-1).cpu()
    labels = log_probs.gather(1, batch.labels[0, :, None].cpu())[:, 0]
    allowed = without_padding(log_probs, model.vocabulary)
    found, ids = allowed.sort(dim=-1, descending=True, stable=True)  # ties to the lower id
    most = min(kept, allowed.shape[1] - 2)
    rest = found[:, most:].double()
    sums = torch.stack([(rest / temperature).logsumexp(dim=-1) for temperature in TEMPERATURES], dim=1)
    return NextTokens(ids[:, :most], found[:, :most], sums.float(), allowed.shape[1] - 2 - most, labels)


def without_padding(
    log_probs: Float[Tensor, "steps vocabulary"], vocabulary: Vocabulary
) -> Float[Tensor, "steps vocabulary"]:
    """Log-probabilities, −∞ for the two tokens that are never generated."""
    allowed = log_probs.clone()
    allowed[:, [vocabulary.pad, vocabulary.bos]] = -torch.inf
    return allowed
