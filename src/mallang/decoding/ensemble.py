"""Ensembles: several models that predict each token together.

At every step the log-probabilities of the models are averaged and renormalized:

    log p(word) = mean of the models' log p(word) − log Σ_w exp(mean of the models' log p(w))

This is the renormalized geometric mean of the probabilities: a word with probability 0 under one model is impossible.
Search, sampling and scoring treat the ensemble like any model, so the score of an output equals that of rescoring it.
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
    """Models of any families with one target vocabulary, as one model."""

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        if not members:
            raise ValueError("an ensemble needs at least one model")
        if any(self.first.vocabulary != member.vocabulary for member in self.members):
            raise ValueError("the models of an ensemble need one target vocabulary")

    @property
    def first(self) -> Any:
        """The first member, for properties in which all must agree."""
        return self.members[0]

    @property
    def vocabulary(self) -> Vocabulary:
        """The target vocabulary of all members."""
        vocabulary: Vocabulary = self.first.vocabulary
        return vocabulary

    @property
    def source_vocabulary(self) -> Vocabulary:
        """The source vocabulary."""
        vocabulary: Vocabulary = self.first.source_vocabulary
        return vocabulary

    @property
    def longest(self) -> int | None:
        """The maximum output length that all members support; None without a limit."""
        known = [longest for member in self.members if (longest := longest_of(member)) is not None]
        return min(known, default=None)

    def start(self, batch: Batch) -> State:
        """Encode the source with every model."""
        states = [member.start(batch) for member in self.parts()]
        return State(fixed=[state.fixed for state in states], moving=[state.moving for state in states])

    def step(
        self, tokens: Int[Tensor, "rows time"], state: State
    ) -> tuple[Float[Tensor, "rows time vocabulary"], State]:
        """Read the tokens with every model; the ensemble's log-probabilities of the next token."""
        logits, moving = [], []
        for member, fixed, own in zip(self.parts(), state.fixed, state.moving, strict=True):
            found, after = member.step(tokens, State(fixed, own))
            logits.append(found)
            moving.append(after.moving)
        return mean_log_probs(logits), State(state.fixed, moving)

    def forward(self, batch: Batch) -> Float[Tensor, "batch time vocabulary"]:
        """The ensemble's log-probabilities at every position; its members share no hidden vectors to return instead."""
        return mean_log_probs([member.output(member(batch)) for member in self.parts()])

    def output(self, hidden: Float[Tensor, "*batch vocabulary"]) -> Float[Tensor, "*batch vocabulary"]:
        """The identity, since `forward` returns log-probabilities."""
        return hidden

    def parts(self) -> list[Any]:
        """The members, typed so that the methods of models can be called."""
        return list(self.members)


class StatefulEnsemble(Ensemble):
    """An ensemble of language models with a stateful forward, which has one too."""

    def forward_stateful(self, batch: Batch, carry: Nest) -> StatefulOutput:
        """Every model reads the window from its own carried state; `hidden` are log-probabilities, as in `forward`."""
        own = [None] * len(self.members) if carry is None else carry
        parts = self.parts()
        readings = [member.forward_stateful(batch, before) for member, before in zip(parts, own, strict=True)]
        said = [member.output(reading.hidden) for member, reading in zip(parts, readings, strict=True)]
        return StatefulOutput(mean_log_probs(said), [reading.carry for reading in readings])


def ensemble_of(members: Sequence[nn.Module]) -> Ensemble:
    """An ensemble of language models, with a stateful forward if every member has one."""
    return (StatefulEnsemble if all(isinstance(member, Stateful) for member in members) else Ensemble)(members)


def mean_log_probs(logits: Sequence[Float[Tensor, "*batch vocabulary"]]) -> Float[Tensor, "*batch vocabulary"]:
    """The renormalized mean of the models' log-probabilities."""
    total = logits[0].float().log_softmax(dim=-1)
    for more in logits[1:]:
        total = total + more.float().log_softmax(dim=-1)
    return (total / len(logits)).log_softmax(dim=-1)
