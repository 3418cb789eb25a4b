"""Scheduled sampling: during training a decoder reads more and more of its own predictions.

Scheduled Sampling for Sequence Prediction with Recurrent Neural Networks. Bengio, Vinyals, Jaitly, Shazeer 2015,
arXiv:1506.03099. With teacher forcing a model reads the true words before each position; at inference it reads its own.
Here each position reads the true word with probability ε, else the model's own prediction of it, drawn independently.
After i updates

    linear            ε = max(floor, k − c·i)
    exponential       ε = max(floor, k^i)               k < 1
    inverse-sigmoid   ε = max(floor, k / (k + e^(i/k)))  k ≥ 1

(the paper has a floor for the first alone). The decoder runs one token at a time, through `start` and `step`, so any
autoregressive model can be trained this way. As in the paper no gradient passes through the choice of a word. All
random numbers for these choices are drawn before the first step, so dropout draws the same numbers for every ε.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mallang.data.batch import Batch
from mallang.decoding.contract import Autoregressive, normalize
from mallang.decoding.sampling import pick
from mallang.kernels.cross_entropy import summed
from mallang.layers.position import check_length
from mallang.models.contract import longest_of
from mallang.tasks.contract import Loss
from mallang.text.vocabulary import Vocabulary

Decay = Literal["none", "linear", "exponential", "inverse-sigmoid"]
Own = Literal["sampled", "best"]


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The decay of the probability of reading the true word, and how the model's own word is chosen."""

    decay: Decay
    k: float | None = None
    c: float | None = None
    floor: float = 0.0
    own: Own = "sampled"

    def __post_init__(self) -> None:
        if not 0.0 <= self.floor < 1.0:
            raise ValueError(f"sampling_floor must be at least 0 and less than 1, but is {self.floor}")
        if self.decay == "none":
            given: dict[str, object] = {
                "sampling_k": self.k,
                "sampling_c": self.c,
                "sampling_floor": self.floor or None,
                "sampling_own": None if self.own == "sampled" else self.own,
            }
            if named := [name for name, value in given.items() if value is not None]:
                raise ValueError(f'{" and ".join(named)} have no effect while scheduled_sampling is "none"')
        elif self.decay == "linear":
            if self.c is None or self.c <= 0:
                raise ValueError(
                    f"linear decay needs sampling_c above 0, what an update takes away, but it is {self.c}"
                )
            if self.k is not None and not 0 < self.k <= 1:
                raise ValueError(f"linear decay needs sampling_k, the first probability, in (0, 1], but it is {self.k}")
        elif self.c is not None:
            raise ValueError(f"sampling_c = {self.c} has no effect on {self.decay} decay")
        elif self.decay == "exponential" and not (self.k is not None and 0 < self.k < 1):
            raise ValueError(
                f"exponential decay needs sampling_k above 0 and below 1, such as 0.999, but it is {self.k}"
            )
        elif self.decay == "inverse-sigmoid" and not (self.k is not None and self.k >= 1):
            raise ValueError(f"inverse-sigmoid decay needs sampling_k of 1 or more, such as 500, but it is {self.k}")

    def probability(self, done: int) -> float:
        """ε, the probability of reading the true word, after `done` updates."""
        if self.decay == "none":
            return 1.0
        if self.decay == "linear":
            assert self.c is not None
            return max(self.floor, (1.0 if self.k is None else self.k) - self.c * done)
        assert self.k is not None
        if self.decay == "exponential":
            return max(self.floor, self.k**done)
        return max(self.floor, self.k / (self.k + math.exp(min(done / self.k, 700.0))))


class ScheduledSampling:
    """The loss of a decoder that reads some of its own words."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.probability = torch.tensor(schedule.probability(0))
        """ε: a tensor that is changed in place, so that a captured CUDA graph reads the new value."""

    def at_step(self, step: int) -> None:
        """Set ε for update `step`, counted from 1."""
        self.probability.fill_(self.schedule.probability(step - 1))

    def loss(self, model: Autoregressive, batch: Batch, smoothing: float) -> Loss:
        """Summed cross-entropy with label smoothing; `nll` is without smoothing, `own` counts the own words read."""
        assert batch.labels is not None
        if (longest := longest_of(model)) is not None:  # a step cannot check its own position
            check_length(batch.tokens.shape[1], longest)
        if self.probability.device != batch.tokens.device:
            self.probability = self.probability.to(batch.tokens.device)
        keeps = torch.rand(batch.tokens.shape, device=batch.tokens.device) < self.probability
        draws = torch.rand(batch.tokens.shape, device=batch.tokens.device)
        sums, read = torch.zeros(2, device=batch.tokens.device), batch.tokens[:, 0]
        state = model.start(batch)
        for place in range(batch.tokens.shape[1]):
            logits, state = model.step(read[:, None], state)
            said = logits[:, -1]
            sums = sums + summed(said.log_softmax(dim=1, dtype=torch.float32), batch.labels[:, place], smoothing)
            if place + 1 < batch.tokens.shape[1]:
                own = self.own_words(said.detach(), draws[:, place], model.vocabulary)
                read = torch.where(keeps[:, place + 1], batch.tokens[:, place + 1], own)
        owned = (~keeps & batch.mask)[:, 1:].sum()  # the first token is <s>, always
        return Loss(sums={"loss": sums[0]}, report={"nll": sums[1].detach(), "own": owned})

    def own_words(
        self, logits: Float[Tensor, "rows words"], draws: Float[Tensor, " rows"], vocabulary: Vocabulary
    ) -> Int[Tensor, " rows"]:
        """The model's next word: sampled, or the most probable one; never `<pad>` or `<s>`."""
        log_probs = normalize(logits, vocabulary)
        return pick(log_probs.exp(), draws) if self.schedule.own == "sampled" else log_probs.argmax(dim=1)
