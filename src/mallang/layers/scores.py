"""Score functions: how well what a decoder is looking for fits what stands in the source. And attention by them.

    dot             sᵀ h                      Luong et al. 2015, arXiv:1508.04025; s and h have one size
    scaled dot      sᵀ h / √dim               Vaswani et al. 2017, arXiv:1706.03762
    general         sᵀ W h                    Luong et al. 2015
    multiplicative  ⟨W1 s, W2 h⟩              the same as general with W = W1ᵀ W2, of rank hidden_dim at most
    additive        vᵀ tanh(W1 s + W2 h)      Bahdanau et al. 2014, arXiv:1409.0473
    concat          vᵀ tanh(W [s; h])         Luong et al. 2015; the same as additive with W = [W1 W2]

s is the state that asks, h one position of the memory. What is said of h alone is computed once per sentence by
`remember`, of s alone by `ask`; `compare` puts the two together:

    weights = softmax(compare(ask(s), remember(h)) − ∞ where nothing may be seen)      context = Σ weights · h

Multi-head attention, which Transformers use, is in attention.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from mallang.kernels.repeated_matmul import RepeatedMatmul, repeated
from mallang.layers.attention import Observer


class Score(nn.Module):
    """The product of query and key, which all but the additive ones end with."""

    query: nn.Module
    """The map of `ask`, in those that have one: a loop may put it together with other maps of the state."""

    def ask(self, states: Float[Tensor, "*rows query_dim"]) -> Float[Tensor, "*rows hidden_dim"]:
        """The part that depends on the state alone."""
        return states

    def asking(self) -> Callable[[Tensor], Tensor]:
        """The same for states that come one after the other."""
        return self.ask

    def remember(self, memory: Float[Tensor, "sentences source memory_dim"]) -> Float[Tensor, "sentences source key"]:
        """The part that depends on the memory alone: once per sentence, however many steps look at it."""
        return memory

    def compare(
        self, queries: Float[Tensor, "sentences asking key"], keys: Float[Tensor, "sentences source key"]
    ) -> Float[Tensor, "sentences asking source"]:
        """Every query against every key of its sentence."""
        return queries @ keys.mT

    def against(self, keys: Float[Tensor, "sentences source key"]) -> Callable[[Tensor], Tensor]:
        """The same for keys that many steps are compared with."""
        return RepeatedMatmul(keys.mT)

    def forward(
        self,
        states: Float[Tensor, "sentences asking query_dim"],
        memory: Float[Tensor, "sentences source memory_dim"],
    ) -> Float[Tensor, "sentences asking source"]:
        """The score of every state and every position of the memory."""
        return self.compare(self.ask(states), self.remember(memory))


class DotScore(Score):
    """sᵀ h."""

    def __init__(self, query_dim: int, memory_dim: int) -> None:
        super().__init__()
        if query_dim != memory_dim:
            raise ValueError(f"a dot product needs sizes that are alike, but they are {query_dim} and {memory_dim}")


class ScaledDotScore(DotScore):
    """sᵀ h / √dim: of variance one if the parts of s and h are, whatever the size."""

    def ask(self, states: Float[Tensor, "*rows query_dim"]) -> Float[Tensor, "*rows query_dim"]:
        """s / √dim."""
        return states / math.sqrt(states.shape[-1])


class GeneralScore(Score):
    """sᵀ W h."""

    def __init__(self, query_dim: int, memory_dim: int) -> None:
        super().__init__()
        self.key = nn.Linear(memory_dim, query_dim, bias=False)

    def remember(self, memory: Float[Tensor, "sentences source memory_dim"]) -> Float[Tensor, "sentences source key"]:
        """W h."""
        keys: Tensor = self.key(memory)
        return keys


class MultiplicativeScore(Score):
    """⟨W1 s, W2 h⟩, in hidden_dim dimensions."""

    def __init__(self, query_dim: int, memory_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.query = nn.Linear(query_dim, hidden_dim, bias=False)
        self.key = nn.Linear(memory_dim, hidden_dim, bias=False)

    def ask(self, states: Float[Tensor, "*rows query_dim"]) -> Float[Tensor, "*rows hidden_dim"]:
        """W1 s."""
        queries: Tensor = self.query(states)
        return queries

    def asking(self) -> Callable[[Tensor], Tensor]:
        """The same for states that come one after the other."""
        product = repeated(self.query)
        return lambda states: product(states)[0]

    def remember(self, memory: Float[Tensor, "sentences source memory_dim"]) -> Float[Tensor, "sentences source key"]:
        """W2 h."""
        keys: Tensor = self.key(memory)
        return keys


class TanhScore(Score):
    """vᵀ tanh(query + key): one hidden layer over both, whatever makes the two parts of it."""

    v: nn.Parameter

    def compare(
        self, queries: Float[Tensor, "sentences asking key"], keys: Float[Tensor, "sentences source key"]
    ) -> Float[Tensor, "sentences asking source"]:
        """vᵀ tanh of every sum."""
        return (queries[:, :, None] + keys[:, None]).tanh_() @ self.v

    def against(self, keys: Float[Tensor, "sentences source key"]) -> Callable[[Tensor], Tensor]:
        """The same for keys that many steps are compared with."""
        return lambda queries: self.compare(queries, keys)


class AdditiveScore(TanhScore, MultiplicativeScore):
    """vᵀ tanh(W1 s + W2 h)."""

    def __init__(self, query_dim: int, memory_dim: int, hidden_dim: int) -> None:
        super().__init__(query_dim, memory_dim, hidden_dim)
        self.v = make_v(hidden_dim)


class ConcatScore(TanhScore):
    """vᵀ tanh(W [s; h]), never joined: the left part of W meets s, the right part h."""

    def __init__(self, query_dim: int, memory_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.query_dim = query_dim
        self.v = make_v(hidden_dim)
        self.joined = nn.Parameter(torch.empty(hidden_dim, query_dim + memory_dim))
        nn.init.xavier_uniform_(self.joined)

    def ask(self, states: Float[Tensor, "*rows query_dim"]) -> Float[Tensor, "*rows hidden_dim"]:
        """The left part of W times s."""
        return F.linear(states, self.joined[:, : self.query_dim])

    def asking(self) -> Callable[[Tensor], Tensor]:
        """The same for states that come one after the other."""
        return RepeatedMatmul(self.joined[:, : self.query_dim].t())

    def remember(self, memory: Float[Tensor, "sentences source memory_dim"]) -> Float[Tensor, "sentences source key"]:
        """The right part of W times h."""
        return F.linear(memory, self.joined[:, self.query_dim :])


def make_v(hidden_dim: int) -> nn.Parameter:
    """A vector with the spread that `nn.Linear` gives a row."""
    return nn.Parameter(torch.empty(hidden_dim).uniform_(-1, 1) / math.sqrt(hidden_dim))


class ScoredAttention(nn.Module):
    """Attention of one head with any score function; its weights can be recorded."""

    def __init__(self, score: Score) -> None:
        super().__init__()
        self.score = score
        self.recorders: list[Observer] = []

    def forward(
        self,
        states: Float[Tensor, "rows time query_dim"],
        keys: Float[Tensor, "sentences source key"],
        values: Float[Tensor, "sentences source value_dim"],
        mask: Float[Tensor, "sentences source"],
    ) -> Float[Tensor, "rows time value_dim"]:
        """What all states see at once. Rows may be sentences × width: the width folds into the query axis."""
        queries = self.score.ask(states)
        scores = self.score.compare(queries.reshape(len(keys), -1, queries.shape[-1]), keys)
        weights = (scores + mask[:, None]).softmax(dim=-1)
        self.tell(scores, weights)
        return (weights.to(values.dtype) @ values).view(*states.shape[:2], -1)

    def tell(
        self, scores: Float[Tensor, "sentences asking source"], weights: Float[Tensor, "sentences asking source"]
    ) -> None:
        """Let the recorders know, as attention of one head."""
        for recorder in self.recorders:
            recorder(scores[:, None], weights[:, None])

    def steps(
        self,
        keys: Float[Tensor, "sentences source key"],
        values: Float[Tensor, "sentences source value_dim"],
        mask: Float[Tensor, "sentences source"],
    ) -> Looks:
        """The same for states that come one after the other."""
        return Looks(self, keys, values, mask)


class Looks:
    """Looks at one memory, step after step; the recorders are told once, at the end."""

    def __init__(self, attention: ScoredAttention, keys: Tensor, values: Tensor, mask: Tensor) -> None:
        self.attention, self.mask = attention, mask[:, None]
        self.compare, self.weigh = attention.score.against(keys), RepeatedMatmul(values)
        self.kept: list[tuple[Tensor, Tensor]] = []

    def __call__(self, queries: Float[Tensor, "rows key"]) -> Float[Tensor, "rows value_dim"]:
        """What one state of every row sees, asked already."""
        scores = self.compare(queries.reshape(len(self.mask), -1, queries.shape[-1]))
        weights = (scores + self.mask).softmax(dim=-1)
        if self.attention.recorders:
            self.kept.append((scores, weights))
        return self.weigh(weights).flatten(0, 1)

    def end(self) -> None:
        """Tell the recorders of all steps."""
        if self.kept:
            scores, weights = (torch.stack(side, dim=2).flatten(1, 2) for side in zip(*self.kept, strict=True))
            self.attention.tell(scores, weights)
