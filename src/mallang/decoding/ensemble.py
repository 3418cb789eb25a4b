"""Ensembles: several models that write one output together.

At every step each model gives its log-probabilities; their mean, made to sum to one again, is what the ensemble says:

    log p(word) = mean of the models' log p(word) − log of what that adds up to over all words

It is the renormalized geometric mean of the probabilities: a word that one model finds impossible is impossible.
Search, sampling and scoring see one model like any other, so a score is what rescoring the output gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.layers.cache import Nest, State
from mallang.layers.stateful import Stateful, StatefulOutput
from mallang.models.contract import longest_of
from mallang.text.vocabulary import Vocabulary


class Ensemble(nn.Module):
    """Models of one target vocabulary, of any kinds, as one."""

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        if not members:
            raise ValueError("an ensemble needs at least one model")
        if any(self.first.vocabulary != member.vocabulary for member in self.members):
            raise ValueError("the models of an ensemble need one target vocabulary")

    @property
    def first(self) -> Any:
        """The model that is asked where all must agree."""
        return self.members[0]

    @property
    def vocabulary(self) -> Vocabulary:
        """What the output ids mean, to all of them."""
        vocabulary: Vocabulary = self.first.vocabulary
        return vocabulary

    @property
    def source_vocabulary(self) -> Vocabulary:
        """What the source's ids mean."""
        vocabulary: Vocabulary = self.first.source_vocabulary
        return vocabulary

    @property
    def longest(self) -> int | None:
        """The most tokens that all of them can write; none: no end is known."""
        known = [longest for member in self.members if (longest := longest_of(member)) is not None]
        return min(known, default=None)

    def start(self, batch: Batch) -> State:
        """Every model reads the source."""
        states = [member.start(batch) for member in self.parts()]
        return State(fixed=[state.fixed for state in states], moving=[state.moving for state in states])

    def step(
        self, tokens: Int[Tensor, "rows time"], state: State
    ) -> tuple[Float[Tensor, "rows time vocabulary"], State]:
        """Every model reads the tokens; together they say what comes next."""
        logits, moving = [], []
        for member, fixed, own in zip(self.parts(), state.fixed, state.moving, strict=True):
            found, after = member.step(tokens, State(fixed, own))
            logits.append(found)
            moving.append(after.moving)
        return mean_log_probs(logits), State(state.fixed, moving)

    def forward(self, batch: Batch) -> Float[Tensor, "batch time vocabulary"]:
        """What the ensemble says at every position; its members share no hidden vectors that could be given instead."""
        return mean_log_probs([member.output(member(batch)) for member in self.parts()])

    def output(self, hidden: Float[Tensor, "*batch vocabulary"]) -> Float[Tensor, "*batch vocabulary"]:
        """What `forward` gives are logits already."""
        return hidden

    def parts(self) -> list[Any]:
        """The members, with the methods that models have."""
        return list(self.members)


class StatefulEnsemble(Ensemble):
    """Language models that all can continue where their last window ended, as one that can."""

    def forward_stateful(self, batch: Batch, carry: Nest) -> StatefulOutput:
        """Every model reads the window from its own carry; as in `forward`, what they say stands for hidden vectors."""
        own = [None] * len(self.members) if carry is None else carry
        parts = self.parts()
        readings = [member.forward_stateful(batch, before) for member, before in zip(parts, own, strict=True)]
        said = [member.output(reading.hidden) for member, reading in zip(parts, readings, strict=True)]
        return StatefulOutput(mean_log_probs(said), [reading.carry for reading in readings])


def ensemble_of(members: Sequence[nn.Module]) -> Ensemble:
    """Language models as one, which carries a state from window to window where each of them does."""
    return (StatefulEnsemble if all(isinstance(member, Stateful) for member in members) else Ensemble)(members)


def mean_log_probs(logits: Sequence[Float[Tensor, "*batch vocabulary"]]) -> Float[Tensor, "*batch vocabulary"]:
    """The mean of the models' log-probabilities; their softmax is the normalized geometric mean."""
    total = logits[0].float().log_softmax(dim=-1)
    for more in logits[1:]:
        total = total + more.float().log_softmax(dim=-1)
    return (total / len(logits)).log_softmax(dim=-1)
