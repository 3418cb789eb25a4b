"""Link prediction: a knowledge graph in; the missing end of a triple out.

    Minsu likes ?   →  query  →  a score for every entity        head and tail, both are asked for

A triple counts twice, once for its tail and once for its head. The right answer competes with `negatives` random
entities, the same for all triples of a batch, or with all entities (0):

    softmax            −log softmax of the right answer; random entities count for all that were not drawn (log N/n), or
                       for themselves alone (`correction = false`, Ruffinelli et al. 2020)
    margin             Σ max(0, margin − score of the right + score of a random one) / n       (Bordes et al. 2013)
    self-adversarial   −log σ(margin + right) − Σ p log σ(−margin − random), p the softmax of their scores times
                       `temperature`                                                             (Sun et al. 2019)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Int64
from torch import Tensor, nn

from mallang.data.batch import IGNORE, Batch
from mallang.data.columns import Column, Kind, LabelSet
from mallang.data.knowledge import Known, Names
from mallang.data.prepared import Prepared
from mallang.data.sampler import Buckets, Rows
from mallang.errors import UserError
from mallang.evaluation.score import Score
from mallang.models.contract import TripleScorer
from mallang.tasks.completer import Verbs, ranks_of
from mallang.tasks.contract import Better, Group, Loss
from mallang.text.tokenizer import Tokenizer

__all__ = ["DEFAULTS", "SECTIONS", "Config", "Task", "Verbs"]

SECTIONS: tuple[str, ...] = ()
"""Sections of a recipe that this task reads besides those of every recipe."""
DEFAULTS: dict[str, dict[str, Any]] = {
    "text": {"unit": "space", "vocabulary": 1_000_000},
    "train": {"metric": "MRR", "batch_tokens": 1024},
    "schedule": {"name": "linear", "warmup": 0},
}
"""Defaults of a recipe of this task: every name is a token."""
ENDS = 2
"""Entities of a triple, which are the tokens of a row."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """The loss, and what the right answer competes with."""

    loss: Literal["softmax", "margin", "self-adversarial"] = "softmax"
    """What is minimized."""
    negatives: int = 1024
    """Random entities that all triples of a batch share; 0: all entities."""
    correction: bool = True
    """softmax: whether random entities count for all that were not drawn; LibKGE's loss has the drawn ones alone."""
    margin: float | None = None
    """margin and self-adversarial: the margin; default: 1 and 9."""
    temperature: float | None = None
    """self-adversarial: the factor of the scores in the weights of the random entities; default: 1."""

    def __post_init__(self) -> None:
        if self.negatives < 0:
            raise ValueError(f"negatives must not be negative, but is {self.negatives}")
        if not self.correction and (self.loss != "softmax" or not self.negatives):
            raise ValueError("correction = false has no effect: it is for loss = 'softmax' with negatives")
        if self.margin is not None and (self.loss == "softmax" or self.margin <= 0):
            raise ValueError("margin is above 0 and belongs to loss = 'margin' or 'self-adversarial'")
        if self.temperature is not None and (self.loss != "self-adversarial" or self.temperature < 0):
            raise ValueError("temperature is at least 0 and belongs to loss = 'self-adversarial'")


class Task:
    """Learn which entity completes a triple."""

    columns = ("head", "relation", "tail")
    unread: tuple[str, ...] = ()
    open_ended = False
    can_compile = True
    parts = ("loss",)
    metrics: Mapping[str, Better] = {"loss": "lower", "MRR": "higher", "hits@10": "higher"}

    def __init__(self, config: Config, tokenizers: Mapping[str, Tokenizer], labels: Mapping[str, LabelSet]) -> None:
        self.config, self.tokenizers, self.relations = config, tokenizers, labels["relation"]
        self.names = tokenizers["head"]
        if self.names.config.unit != "space":
            raise UserError("the name of an entity is one token", todo="text.unit=space")
        if self.names.vocabulary != tokenizers["tail"].vocabulary:
            raise UserError("heads and tails are entities of one graph", todo="text.shared=true")
        if len(self.names.vocabulary) <= len(self.names.vocabulary.specials):
            raise UserError("the graph has no entities", todo="look at data.train")
        self.trained_on: Prepared | None = None

    @classmethod
    def kinds(cls, config: Config) -> Mapping[str, Kind]:
        """The kind of each column that is not plain text."""
        return {"head": "name", "relation": "label", "tail": "name"}

    def arrays(self) -> Sequence[Column]:
        """The ids of head and tail, and the number of the relation."""
        head, tail = (Names(self.tokenizers[column], column) for column in ("head", "tail"))
        relation = Column(1, self.relations, is_text=False)
        return [Column(0, head, may_be_empty=True), relation, Column(2, tail, may_be_empty=True)]

    def build(self, model: ModuleType, config: Any) -> nn.Module:
        """The model for these entities and relations."""
        if not issubclass(model.Model, TripleScorer):
            raise UserError(
                f"{model.__name__.rsplit('.', 1)[-1]} scores no triples of a graph",
                todo=f"task.name={model.TASK}, or model.name=transe",
            )
        built: nn.Module = model.Model(config, self.names.vocabulary, len(self.relations))
        return built

    def examples(self, corpus: Prepared, seed: int, epoch: int) -> Any:
        """The triples of the graph."""
        self.trained_on = corpus
        return corpus.epoch(seed, epoch)

    def plan(
        self, corpus: Prepared, *, tokens: int, sentences: int | None = None, multiple: int = 1, seed: int, epoch: int
    ) -> Sequence[Rows]:
        """Batches of triples in random order; a triple is two tokens."""
        lengths = np.full((len(corpus.epoch(seed, epoch)), 1), ENDS)
        return Buckets(
            lengths, tokens=max(tokens, ENDS), sentences=sentences, multiple=multiple, long_alone=True,
            seed=seed, epoch=epoch,
        )  # fmt: skip

    def prepare(self, rows: list[tuple[Any, ...]], random: np.random.Generator) -> Batch:
        """A batch of triples."""
        return self.collate(np.array([[int(part[0]) for part in example] for (example,) in rows]))

    def collate(self, triples: Int64[np.ndarray, "triples 3"]) -> Batch:
        """A batch of heads, relations and tails."""
        found = torch.from_numpy(triples.reshape(-1, 3).astype(np.int64))
        return Batch(tokens=found[:, [0, 2]], lengths=torch.full((len(found),), ENDS), classes=found[:, 1])

    def counts(self, batch: Batch) -> dict[str, int]:
        """The number of questions, two for each triple whose ends are known; and of tokens."""
        return {"loss": 2 * int(self.known(batch).sum()), "tokens": batch.tokens.numel()}

    def known(self, batch: Batch) -> Tensor:
        """Which rows are triples of known entities."""
        assert batch.classes is not None
        return (batch.classes != IGNORE) & (batch.tokens != self.names.vocabulary.unk).all(dim=1)

    def loss(self, model: Any, batch: Batch, carry: Any) -> Loss:
        """The summed loss of tails and heads."""
        assert batch.classes is not None
        known, relations = self.known(batch), batch.classes.clamp(min=0)
        others = self.draw(model)
        # One lookup for all: each would make a gradient as large as the table.
        vectors = model.entities(torch.cat((batch.tokens[:, 0], batch.tokens[:, 1], others)))
        heads, tails, random = vectors.split([len(batch), len(batch), len(others)])
        total, right = vectors.new_zeros(()), vectors.new_zeros(())
        for asked, answers, ids, of_heads in (
            (heads, tails, batch.tokens[:, 1], False),
            (tails, heads, batch.tokens[:, 0], True),
        ):
            queries = model.queries(asked, relations, heads=of_heads)
            score, against = model.pair_scores(queries, answers), model.scores(queries, random)
            is_answer = others[None, :] == ids[:, None]
            total = (
                total
                + torch.where(known, self.losses(score, against, is_answer, len(model.candidate_ids())), 0.0).sum()
            )
            right = right + (known & (score > against.masked_fill(is_answer, -math.inf).amax(dim=1))).sum()
        return Loss(sums={"loss": total}, report={"best of batch": right.detach()})

    def draw(self, model: Any) -> Int[Tensor, " candidates"]:
        """The entities that the right answers compete with."""
        candidates: Tensor = model.candidate_ids()
        if not 0 < self.config.negatives < len(candidates):
            return candidates
        drawn = torch.randint(len(candidates), (self.config.negatives,), device=candidates.device)
        return candidates[drawn]

    def losses(
        self,
        right: Float[Tensor, " asked"],
        others: Float[Tensor, "asked candidates"],
        is_answer: Tensor,
        entities: int,
    ) -> Float[Tensor, " asked"]:
        """The loss of every question; a random entity that is its answer does not count against it."""
        config, drawn = self.config, others.shape[1]
        if config.loss == "softmax":
            others = others.masked_fill(is_answer, torch.finfo(others.dtype).min)
            is_sample = config.correction and 0 < config.negatives < entities
            missing = math.log((entities - 1) / drawn) if is_sample else 0.0
            everything = torch.cat((right[:, None], others + missing), dim=1)
            return everything.logsumexp(dim=1) - right
        if config.loss == "margin":
            losses = F.relu((config.margin or 1.0) - right[:, None] + others)
            return losses.masked_fill(is_answer, 0.0).mean(dim=1)
        margin, temperature = config.margin or 9.0, 1.0 if config.temperature is None else config.temperature
        scaled = (others.detach() * temperature).masked_fill(is_answer, torch.finfo(others.dtype).min)
        wrong = (scaled.softmax(dim=1) * F.logsigmoid(-margin - others)).sum(dim=1)
        return -(F.logsigmoid(margin + right) + wrong) / 2

    def updates(self, model: nn.Module) -> list[Group]:
        """All vectors."""
        return [Group(list(model.named_parameters()))]

    def validate(self, model: nn.Module, corpus: Prepared, rows: Sequence[tuple[str, ...]], metric: str) -> list[Score]:
        """The mean loss against the entities of one draw, and filtered MRR and hits; known: train and these triples."""
        held_out = triples_of(corpus)
        seen = [] if self.trained_on is None else [triples_of(self.trained_on)]
        batch = self.collate(held_out).to(next(model.parameters()).device)
        with torch.random.fork_rng(devices=[batch.tokens.device] if batch.tokens.is_cuda else []):
            torch.manual_seed(0)
            mean = float(self.loss(model, batch, None).sums["loss"]) / max(1, self.counts(batch)["loss"])
        scores = ranks_of(self, model, held_out, Known(np.concatenate([*seen, held_out]))).scores("train+these")
        return [Score("loss", mean, "nats per question", count=2 * len(held_out)), *scores]


def triples_of(corpus: Prepared) -> Int64[np.ndarray, "triples 3"]:
    """All triples of a prepared split."""
    return np.stack([corpus.column(number)[0] for number in range(3)], axis=1).astype(np.int64)
