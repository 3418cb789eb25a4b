"""Attention score functions of a decoder state and a source position, and single-head attention with any of them.

    dot             sᵀ h                      Luong et al. 2015, arXiv:1508.04025; s and h have one size
    scaled dot      sᵀ h / √dim               Vaswani et al. 2017, arXiv:1706.03762
    general         sᵀ W h                    Luong et al. 2015
    multiplicative  ⟨W1 s, W2 h⟩              equal to general with W = W1ᵀ W2, of rank hidden_dim at most
    additive        vᵀ tanh(W1 s + W2 h)      Bahdanau et al. 2014, arXiv:1409.0473
    concat          vᵀ tanh(W [s; h])         Luong et al. 2015; equal to additive with W = [W1 W2]

s is the decoder state (query), h one position of the memory. `remember` computes the part that depends on h alone, once
per sentence; `ask` the part that depends on s alone; `compare` combines the two:

    weights = softmax(compare(ask(s), remember(h)) + mask)      mask: 0 or −∞      context = Σ weights · h

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
    """The base of all scores: queryᵀ · key, which all but the tanh scores end with."""

    query: nn.Module
    """The linear layer of `ask`, where there is one: a loop may fuse it with other linear layers of the state."""

    def ask(self, states: Float[Tensor, "*rows query_dim"]) -> Float[Tensor, "*rows hidden_dim"]:
        """The query: the part that depends on the state alone."""
        return states

    def asking(self) -> Callable[[Tensor], Tensor]:
        """`ask` as a function for states that come step by step."""
        return self.ask

    def remember(self, memory: Float[Tensor, "sentences source memory_dim"]) -> Float[Tensor, "sentences source key"]:
        """The keys: the part that depends on the memory alone, computed once per sentence for all steps."""
        return memory

    def compare(
        self, queries: Float[Tensor, "sentences asking key"], keys: Float[Tensor, "sentences source key"]
    ) -> Float[Tensor, "sentences asking source"]:
        """The score of every query with every key of its sentence."""
        return queries @ keys.mT

    def against(self, keys: Float[Tensor, "sentences source key"]) -> Callable[[Tensor], Tensor]:
        """`compare` as a function of the queries, for keys that many steps are compared with."""
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
            raise ValueError(f"the dot score needs equal sizes, but they are {query_dim} and {memory_dim}")


class ScaledDotScore(DotScore):
    """sᵀ h / √dim: variance one for any dim, if the components of s and h have variance one."""

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
        """`ask` as a function for states that come step by step."""
        matmul = repeated(self.query)
        return lambda states: matmul(states)[0]

    def remember(self, memory: Float[Tensor, "sentences source memory_dim"]) -> Float[Tensor, "sentences source key"]:
        """W2 h."""
        keys: Tensor = self.key(memory)
        return keys


class TanhScore(Score):
    """vᵀ tanh(query + key): one hidden layer over both."""

    v: nn.Parameter

    def compare(
        self, queries: Float[Tensor, "sentences asking key"], keys: Float[Tensor, "sentences source key"]
    ) -> Float[Tensor, "sentences asking source"]:
        """vᵀ tanh(query + key) for every query and every key of its sentence."""
        return (queries[:, :, None] + keys[:, None]).tanh_() @ self.v

    def against(self, keys: Float[Tensor, "sentences source key"]) -> Callable[[Tensor], Tensor]:
        """`compare` as a function of the queries, for keys that many steps are compared with."""
        return lambda queries: self.compare(queries, keys)


class AdditiveScore(TanhScore, MultiplicativeScore):
    """vᵀ tanh(W1 s + W2 h)."""

    def __init__(self, query_dim: int, memory_dim: int, hidden_dim: int) -> None:
        super().__init__(query_dim, memory_dim, hidden_dim)
        self.v = make_v(hidden_dim)


class ConcatScore(TanhScore):
    """vᵀ tanh(W [s; h]), without the concatenation: the left part of W multiplies s, the right part h."""

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
        """`ask` as a function for states that come step by step."""
        return RepeatedMatmul(self.joined[:, : self.query_dim].t())

    def remember(self, memory: Float[Tensor, "sentences source memory_dim"]) -> Float[Tensor, "sentences source key"]:
        """The right part of W times h."""
        return F.linear(memory, self.joined[:, self.query_dim :])


def make_v(hidden_dim: int) -> nn.Parameter:
    """A vector initialized as `nn.Linear` initializes a row."""
    return nn.Parameter(torch.empty(hidden_dim).uniform_(-1, 1) / math.sqrt(hidden_dim))


class ScoredAttention(nn.Module):
    """Single-head attention with any score function; its weights can be recorded."""

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
        """The context vectors of all states. Rows may be sentences × width: the width folds into the query axis."""
        queries = self.score.ask(states)
        scores = self.score.compare(queries.reshape(len(keys), -1, queries.shape[-1]), keys)
        weights = (scores + mask[:, None]).softmax(dim=-1)
        self.record(scores, weights)
        return (weights.to(values.dtype) @ values).view(*states.shape[:2], -1)

    def record(
        self, scores: Float[Tensor, "sentences asking source"], weights: Float[Tensor, "sentences asking source"]
    ) -> None:
        """Pass scores and weights to the recorders, as attention with one head."""
        for recorder in self.recorders:
            recorder(scores[:, None], weights[:, None])

    def steps(
        self,
        keys: Float[Tensor, "sentences source key"],
        values: Float[Tensor, "sentences source value_dim"],
        mask: Float[Tensor, "sentences source"],
    ) -> StepwiseAttention:
        """Attention to this memory for queries that come step by step."""
        return StepwiseAttention(self, keys, values, mask)


class StepwiseAttention:
    """Attention to one memory, step by step; the weights of all steps are recorded once, at the end."""

    def __init__(self, attention: ScoredAttention, keys: Tensor, values: Tensor, mask: Tensor) -> None:
        self.attention, self.mask = attention, mask[:, None]
        self.compare, self.weigh = attention.score.against(keys), RepeatedMatmul(values)
        self.kept: list[tuple[Tensor, Tensor]] = []

    def __call__(self, queries: Float[Tensor, "rows key"]) -> Float[Tensor, "rows value_dim"]:
        """The context vectors of one query per row; the queries are the output of `ask`."""
        scores = self.compare(queries.reshape(len(self.mask), -1, queries.shape[-1]))
        weights = (scores + self.mask).softmax(dim=-1)
        if self.attention.recorders:
            self.kept.append((scores, weights))
        return self.weigh(weights).flatten(0, 1)

    def end(self) -> None:
        """Pass the scores and weights of all steps to the recorders."""
        if self.kept:
            scores, weights = (torch.stack(side, dim=2).flatten(1, 2) for side in zip(*self.kept, strict=True))
            self.attention.record(scores, weights)
