"""Denoising entity auto-encoder (dEA) with masked tokens: the pre-training of ERNIE on texts with entity links.

    dea    which entity does a token name? Of the links 5 % get another entity, 15 % lose theirs, the rest is kept,
           and all of them are predicted, among the entities of the batch (equation 6), or of the text
    mlm    masked tokens, as in masked_lm
    nsp    with pairs = "next": does the second segment follow the first?

    text     Paris is the capital of France          <mask> is the capital of France
    links    Q90                     Q142       →    (none)                    Q142        predicted: Q90, Q142

Zhang, Han, Liu, Jiang, Sun, Liu 2019, arXiv:1905.07129, section 3.4. Documents are read in passages as in masked_lm; a
link that does not lie in one sentence is left out. Held-out links are corrupted by fixed random numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Int64
from torch import Tensor, nn

from mallang.data.batch import IGNORE, Batch
from mallang.data.columns import Column, Kind, split_cell
from mallang.data.linked_text import LinkedTokens, Links
from mallang.data.passages import Documents, Passages
from mallang.data.prepared import Prepared
from mallang.data.sampler import by_length, generator
from mallang.decoding.contract import device_of, inference
from mallang.errors import UserError
from mallang.evaluation.score import Score
from mallang.models.contract import TripleScorer
from mallang.runs.given import Given
from mallang.tasks import encoding, masked_lm
from mallang.tasks.contract import Better, Loss
from mallang.tasks.entity_links import RECEIVES, GivenEntities
from mallang.tasks.masked_scores import BATCH_TOKENS, SEED, masked_batch
from mallang.text.tokenizer import Tokenizer

__all__ = ["DEFAULTS", "SECTIONS", "Config", "Task", "Verbs"]

SECTIONS = masked_lm.SECTIONS
"""Sections of a recipe that this task reads besides those of every recipe."""
DEFAULTS = masked_lm.DEFAULTS
"""Defaults of a recipe of this task."""
CORRUPTED = 19
"""Sets the random numbers of held-out links apart from all others."""


@runtime_checkable
class PredictsEntities(Protocol):
    """An encoder that tells which entity a token names, if it was built with that head."""

    @property
    def objectives(self) -> tuple[str, ...]:
        """What its heads were built for: "entities" among them."""

    def entity_logits(
        self, hidden: Float[Tensor, "*batch dim"], candidates: Int[Tensor, " distinct"]
    ) -> Float[Tensor, "*batch distinct"]:
        """One logit per candidate, for the entity that a token names."""


@dataclass(frozen=True, kw_only=True)
class Config(masked_lm.Config):
    """The corruption of links, and how texts are read and masked."""

    replaced_links: float = 0.05
    """Share of the links that get another, random entity of the graph."""
    hidden_links: float = 0.15
    """Share of the links that are hidden, so that the entity must follow from the text."""
    candidates: Literal["batch", "text"] = "batch"
    """What the entity of a token is chosen from: the entities of all texts of the batch, or of its own text."""
    confidence: float = 0.0
    """The least confidence of a link that is read."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.replaced_links, self.hidden_links) < 0 or self.replaced_links + self.hidden_links > 1:
            raise ValueError("replaced_links and hidden_links must be shares of at most 1 together")
        if not 0.0 <= self.confidence <= 1.0:
            raise ValueError(f"confidence must lie between 0 and 1, but is {self.confidence}")
        if self.layout == "packed":
            raise ValueError("layout = 'packed' puts several texts into a row, and their entities would see each other")


class Task(masked_lm.Task):
    """Learn which entities a text names, and its masked tokens."""

    config: Config
    columns = ("text", "links")
    metrics: Mapping[str, Better] = {**masked_lm.Task.metrics, "dea": "lower", "dea_accuracy": "higher"}

    def __init__(
        self,
        config: Config,
        tokenizers: Mapping[str, Tokenizer],
        labels: Mapping[str, Any] | None = None,
        given: Mapping[str, Given] | None = None,
    ) -> None:
        super().__init__(config, tokenizers)
        if not given:
            raise UserError(
                "entities are predicted by their vectors, and no run has them",
                todo="given.entities=runs/transe-miniworld, or task.name=masked_lm for the text alone",
            )
        self.entities = GivenEntities(given, "both")
        assert self.entities.given is not None and isinstance(self.entities.given.model, TripleScorer)
        self.graph: Int64[np.ndarray, " entities"] = self.entities.given.model.candidate_ids().cpu().numpy()
        """The ids of all entities."""
        self.parts = (*self.parts, "dea")

    @classmethod
    def kinds(cls, config: Any) -> Mapping[str, Kind]:
        """The kind of each column that is not plain text."""
        return {"text": "document", "links": "links"}

    @classmethod
    def receives(cls) -> Mapping[str, str]:
        """The names of [given] that it accepts."""
        return RECEIVES

    def arrays(self) -> Sequence[Column]:
        """The tokens, the starts of the sentences, and for every token the entity that begins there."""
        links = Links(self.text, self.entities.tokenizer, self.config.confidence)
        per_token = LinkedTokens(links, partial(split_cell, kind="document"))
        linked = Column(1, per_token, is_text=False, like=0, beside=(0,), may_be_empty=True)
        return [*super().arrays(), linked]

    def build(self, model: ModuleType, config: Any) -> nn.Module:
        """The encoder with the heads of its pre-training, and with the given entities."""
        built = super().build(model, config)
        if not isinstance(built, PredictsEntities) or "entities" not in built.objectives:
            name = model.__name__.rsplit(".", 1)[-1]
            is_able = isinstance(built, PredictsEntities)
            todo = "model.predict_entities=true" if is_able else "model.name=ernie"
            raise UserError(f"this {name} has no head that predicts entities", todo=todo)
        self.entities.give_to(built)
        return built

    def examples(self, corpus: Prepared, seed: int, epoch: int) -> Passages:
        """The passages of an epoch; every token carries the entity that begins there."""
        key = corpus.fingerprint, seed, epoch
        if self.kept is None or self.kept[0] != key:
            length = self.config.length_at(epoch)
            self.kept = key, self.passages(self.documents(corpus), self.config.pairs, seed, epoch, length)
        return self.kept[1]

    def documents(self, corpus: Prepared) -> Documents:
        """Documents whose tokens carry their entities: token + words · entity, so that passages cut both at once."""
        plain = Documents.of(corpus)
        entities, _ = corpus.column(2)
        return replace(plain, tokens=np.asarray(plain.tokens, dtype=np.int64) + self.words * entities)

    @property
    def words(self) -> int:
        """The size of the vocabulary of the text."""
        return len(self.text.vocabulary)

    def collate(self, rows: Sequence[tuple[Any, ...]]) -> Batch:
        """A padded batch before masking, with all links and what they name."""
        batch = super().collate(rows)
        coded = batch.tokens.numpy()
        entities = coded // self.words - 1
        rows_of, places = np.nonzero(entities >= 0)
        links = np.stack((places, places, entities[rows_of, places]), axis=1)
        fields = self.entities.fields(np.split(links, np.searchsorted(rows_of, np.arange(1, len(coded)))))
        named = fields["entities"].numpy()
        distinct = np.unique(named[named >= 0])
        labels = np.where(named >= 0, np.searchsorted(distinct, named), IGNORE)
        return replace(
            batch, tokens=torch.from_numpy(coded % self.words), entity_labels=torch.from_numpy(labels),
            distinct_entities=torch.from_numpy(distinct if len(distinct) else np.full(1, -1)), **fields,
        )  # fmt: skip

    def prepare(self, rows: list[tuple[Any, ...]], random: np.random.Generator) -> Batch:
        """A padded batch with masked tokens and corrupted links."""
        batch = super().prepare(rows, random)
        assert batch.entities is not None
        return replace(batch, entities=torch.from_numpy(self.corrupted(batch.entities.numpy(), random)))

    def corrupted(
        self, entities: Int64[np.ndarray, "batch entities"], random: np.random.Generator
    ) -> Int64[np.ndarray, "batch entities"]:
        """The entities that are read: some are others, some are hidden, the rest is kept."""
        fate = random.random(entities.shape)
        others = self.graph[random.integers(0, max(1, len(self.graph) - 1), entities.shape)]
        others = np.where(others == entities, self.graph[-1], others)  # never the same: the last takes its turn
        share = self.config.replaced_links
        found = np.where(fate < share, others, np.where(fate < share + self.config.hidden_links, -1, entities))
        return np.where(entities >= 0, found, -1)

    def counts(self, batch: Batch) -> dict[str, int]:
        """The number of masked tokens, of pairs, of links, and of all tokens."""
        assert batch.entity_labels is not None
        links = int((batch.entity_labels != IGNORE).sum())
        return {**super().counts(batch), "dea": links, "dea_accuracy": links}

    def loss(self, model: Any, batch: Batch, carry: Any) -> Loss:
        """The summed losses of masked tokens, of pairs and of links; those that are right are reported."""
        hidden = model(batch)
        found = self.loss_of(model, hidden, batch)
        logits = self.logits_of(model, hidden, batch)
        assert batch.entity_labels is not None
        labels = batch.entity_labels.flatten()
        dea = F.cross_entropy(logits.flatten(0, 1), labels, ignore_index=IGNORE, reduction="sum")
        right = (logits.argmax(dim=-1).flatten() == labels).sum()
        return Loss(sums={**found.sums, "dea": dea}, report={**found.report, "dea_accuracy": right})

    def logits_of(
        self, model: Any, hidden: Float[Tensor, "batch time dim"], batch: Batch
    ) -> Float[Tensor, "batch entities distinct"]:
        """The logits of all candidates at every link."""
        assert batch.entity_places is not None and batch.distinct_entities is not None
        places = batch.entity_places.clamp(min=0)[:, :, None].expand(-1, -1, hidden.shape[-1])
        logits: Tensor = model.entity_logits(hidden.gather(1, places), batch.distinct_entities)
        return logits.masked_fill(~self.allowed(batch), torch.finfo(logits.dtype).min)

    def allowed(self, batch: Batch) -> Bool[Tensor, "rows links distinct"]:
        """Which candidates count: those of the batch, or those of the text."""
        assert batch.distinct_entities is not None and batch.entity_labels is not None
        real = (batch.distinct_entities >= 0)[None, None, :]
        if self.config.candidates == "batch":
            return real
        numbers = torch.arange(len(batch.distinct_entities), device=real.device)
        return real & (batch.entity_labels[:, :, None] == numbers).any(dim=1, keepdim=True)

    def validate(self, model: nn.Module, corpus: Prepared, rows: Sequence[tuple[str, ...]], metric: str) -> list[Score]:
        """The losses and accuracies on held-out text with fixed masks and fixed corruption of links."""
        passages = self.passages(self.documents(corpus), self.config.pairs)
        sums, counts = dict.fromkeys(self.parts, 0.0), dict.fromkeys(self.parts, 0)
        report, device = {f"{part}_accuracy": 0.0 for part in self.parts}, device_of(model)
        with inference(model):
            for group in by_length(self.lengths(passages).tolist(), BATCH_TOKENS):
                batch = self.held_out(passages, group)
                found, here = self.loss(model, batch.to(device), None), self.counts(batch)
                for part in self.parts:
                    sums[part] += float(found.sums[part])
                    counts[part] += here[part]
                    report[f"{part}_accuracy"] += float(found.report[f"{part}_accuracy"])
        return self.held_out_scores(sums, counts, report, metric)

    def held_out(self, passages: Passages, group: Sequence[int]) -> Batch:
        """A batch of passages, each with its own fixed masks and links."""
        batch = masked_batch(self.masker, self.collate_texts([passages[number] for number in group]), group)
        assert batch.entities is not None
        links = [
            self.corrupted(row[None], generator(SEED, int(number), 0, CORRUPTED))
            for row, number in zip(batch.entities.numpy(), group, strict=True)
        ]
        return replace(batch, entities=torch.from_numpy(np.concatenate(links)))

    def held_out_scores(
        self, sums: Mapping[str, float], counts: Mapping[str, int], report: Mapping[str, float], metric: str
    ) -> list[Score]:
        """The mean of every part, their sum, and accuracies."""
        means = {part: sums[part] / max(1, counts[part]) for part in self.parts}
        if metric not in ("loss", *means, *report):
            raise UserError(f"train.metric = {metric} needs pairs of that kind", todo="train.metric=loss")
        how = f"hidden:{self.config.hidden_links:g}|replaced:{self.config.replaced_links:g}|seed:{SEED}"
        told = {part: f"{'of the ' + self.config.candidates + '|' if part == 'dea' else ''}{how}" for part in means}
        scores = [Score("loss", sum(means.values()), f"{'+'.join(means)}|{how}", count=max(counts.values()))]
        for part in self.parts:
            share = 100 * report[f"{part}_accuracy"] / max(1, counts[part])
            scores += [
                Score(part, means[part], f"nats|{told[part]}", count=counts[part]),
                Score(f"{part}_accuracy", share, told[part], count=counts[part]),
            ]
        return scores


class Verbs(encoding.Verbs):
    """An encoder that was pre-trained with entities."""

    task_name = "entity_denoising"
