"""Translation: a source sentence in, a target sentence out; trained on pairs of sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn

from mallang.data.batch import Batch, pad_rows
from mallang.data.mixture import Drawn
from mallang.data.prepared import Prepared
from mallang.data.resegmented import Resegmented, dropouts_of
from mallang.data.sampler import Buckets, Rows
from mallang.decoding import contract as decoding
from mallang.errors import UserError
from mallang.evaluation.quality import MEASURES
from mallang.evaluation.score import Score
from mallang.kernels.r_drop import agreement, sums_and_gradients
from mallang.layers.dropout import drops
from mallang.layers.head import OutputProjection, cross_entropy_of
from mallang.models.contract import Fitted
from mallang.tasks.contract import Better, Group, Loss
from mallang.tasks.scheduled_sampling import Decay, Own, Schedule, ScheduledSampling
from mallang.tasks.translator import BATCH_TOKENS, Verbs
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import BOS, EOS, PAD

__all__ = ["DEFAULTS", "SECTIONS", "Config", "Task", "Verbs"]

SECTIONS = ("decoding",)
"""Sections of a recipe that this task reads besides those of every recipe."""
DEFAULTS: dict[str, dict[str, Any]] = {}
"""Defaults of a recipe of this task."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """The loss and its regularizers."""

    label_smoothing: float = 0.1
    """Share of the probability that is spread evenly over the vocabulary."""
    bpe_dropout: float = 0.0
    """BPE-dropout: probability that a merge is skipped in training; for columns with unit bpe or byte-bpe."""
    r_drop: float = 0.0
    """R-Drop: weight of the KL divergence between two forward passes (Liang et al. 2021); twice the work."""
    scheduled_sampling: Decay = "none"
    """Scheduled sampling (Bengio et al. 2015): decay of teacher forcing; none: teacher forcing throughout."""
    sampling_k: float | None = None
    """Linear: the first probability of reading the true word, 1 if not given; exponential, inverse-sigmoid: their k."""
    sampling_c: float | None = None
    """Decrease of that probability per update, for linear decay."""
    sampling_floor: float = 0.0
    """The minimum probability of reading the true word."""
    sampling_own: Own = "sampled"
    """Own words are sampled from the model's distribution, or are its most probable ones."""

    @property
    def sampling(self) -> Schedule:
        """The schedule of scheduled sampling."""
        return Schedule(
            decay=self.scheduled_sampling,
            k=self.sampling_k,
            c=self.sampling_c,
            floor=self.sampling_floor,
            own=self.sampling_own,
        )

    def __post_init__(self) -> None:
        if self.r_drop < 0:
            raise ValueError(f"r_drop must not be negative, but is {self.r_drop}")
        for name in ("label_smoothing", "bpe_dropout"):
            if not 0.0 <= (share := getattr(self, name)) < 1.0:
                raise ValueError(f"{name} must lie between 0 and 1, but is {share}")
        if self.sampling.decay != "none" and self.r_drop:
            raise ValueError(
                f"r_drop = {self.r_drop} compares two readings of the true words; leave it or sampling out"
            )


class Task:
    """Learn p(target | source) from pairs of sentences."""

    columns = ("source", "target")
    unread: tuple[str, ...] = ()
    open_ended = False
    parts = ("loss",)
    metrics: Mapping[str, Better] = {"loss": "lower", **dict.fromkeys(MEASURES, "higher")}

    def __init__(self, config: Config, tokenizers: Mapping[str, Tokenizer]) -> None:
        self.config, self.tokenizers = config, tokenizers
        self.source, self.target = tokenizers["source"], tokenizers["target"]
        share = config.bpe_dropout
        self.dropouts = dropouts_of([self.source, self.target], share) if share else []
        is_sampled = config.scheduled_sampling != "none"
        self.sampling = ScheduledSampling(config.sampling) if is_sampled else None
        self.can_compile = self.sampling is None  # its loop over steps would be compiled again for every width

    def build(self, model: ModuleType, config: Any) -> nn.Module:
        """The model for these two vocabularies."""
        if not model.Model.reads_source:
            raise UserError(
                f"{model.__name__.rsplit('.', 1)[-1]} reads no source, so it cannot turn one text into another",
                todo=f"task.name={model.TASK}, or a model that reads a source such as model.name=transformer",
            )
        built: nn.Module = model.Model(config, self.target.vocabulary, self.source.vocabulary)
        if self.config.r_drop and not drops(built):
            raise UserError("task.r_drop compares two dropouts, but the model has none", todo="model.dropout=0.3")
        if self.sampling and (not isinstance(built, decoding.Autoregressive) or isinstance(built, Fitted)):
            raise UserError(
                "task.scheduled_sampling needs an autoregressive model that learns by gradients; this one does not"
            )
        return built

    def examples(self, corpus: Prepared, seed: int, epoch: int) -> Prepared | Drawn | Resegmented:
        """The pairs of an epoch: all, or drawn by the weights of corpora; with BPE-dropout tokenized again."""
        drawn: Prepared | Drawn = corpus.epoch(seed, epoch)
        if not self.dropouts:
            return drawn
        longest = corpus.account.filters.max_length or int(corpus.lengths.max())
        return Resegmented(drawn, self.dropouts, longest=longest, seed=seed, epoch=epoch)

    def plan(
        self, corpus: Prepared, *, tokens: int, sentences: int | None = None, multiple: int = 1, seed: int, epoch: int
    ) -> Sequence[Rows]:
        """Batches of pairs of similar length; each side has one more token than its words."""
        lengths = corpus.epoch(seed, epoch).lengths + 1
        return Buckets(lengths, tokens=tokens, sentences=sentences, multiple=multiple, seed=seed, epoch=epoch)

    def prepare(self, rows: list[tuple[Any, ...]], random: np.random.Generator) -> Batch:
        """Inputs are `<s>` and the words, labels the words and `</s>`; the source ends with `</s>`."""
        sources, targets = zip(*(pair for (pair,) in rows), strict=True)
        source, source_lengths = pad_rows(sources, end=EOS)
        tokens, lengths = pad_rows(targets, begin=BOS)
        labels, _ = pad_rows(targets, end=EOS)
        return Batch(tokens=tokens, lengths=lengths, labels=labels, source=source, source_lengths=source_lengths)

    def counts(self, batch: Batch) -> dict[str, int]:
        """The number of target labels."""
        assert batch.labels is not None
        return {"loss": int((batch.labels != PAD).sum())}

    def loss(self, model: Any, batch: Batch, carry: Any) -> Loss:
        """Summed cross-entropy with label smoothing; without smoothing it is reported as `nll`."""
        if self.config.r_drop and model.training:
            return self.loss_of_two(model, batch.map(lambda tensor: torch.cat((tensor, tensor))))
        if self.sampling and model.training:
            return self.sampling.loss(model, batch, self.config.label_smoothing)
        assert batch.labels is not None
        hidden, labels = model(batch).flatten(0, 1), batch.labels.flatten()
        if not hidden.is_cuda:  # on a GPU, selecting the labels would synchronize with the host
            asked = labels != PAD
            hidden, labels = hidden[asked], labels[asked]
        loss, nll = cross_entropy_of(model, hidden, labels, self.config.label_smoothing)
        return Loss(sums={"loss": loss}, report={"nll": nll.detach()})

    def loss_of_two(self, model: Any, batch: Batch) -> Loss:
        """R-Drop (arXiv:2106.14448): every pair is in the batch twice, with different dropout masks.

        The mean of both losses, plus r_drop times the mean of both KL divergences, halved as the losses are.
        """
        assert batch.labels is not None
        labels = batch.labels.flatten().chunk(2)[0]
        hidden, smoothing, strength = model(batch).flatten(0, 1), self.config.label_smoothing, self.config.r_drop
        head = model.output_projection() if isinstance(model, OutputProjection) else None
        if head is not None and not torch.compiler.is_compiling():
            loss, nll, apart = agreement(hidden, head.weight, head.bias, labels, smoothing, strength)
        else:  # the compiler fuses the plain formula
            first, second = model.output(hidden).chunk(2)
            sums, _, _ = sums_and_gradients(first, second, labels, smoothing, strength)
            loss, nll, apart = sums.unbind()
        return Loss(sums={"loss": loss}, report={"nll": nll.detach(), "divergence": apart.detach()})

    def at_step(self, step: int) -> None:
        """Set scheduled sampling to update `step`, counted from 1."""
        if self.sampling:
            self.sampling.at_step(step)

    def updates(self, model: nn.Module) -> list[Group]:
        """One parameter group with all parameters."""
        return [Group(list(model.named_parameters()))]

    def validate(self, model: nn.Module, corpus: Prepared, rows: Sequence[tuple[str, ...]], metric: str) -> list[Score]:
        """The mean loss per token; for another `metric` the held-out text is also translated greedily."""
        total, count, nll = 0.0, 0, 0.0
        device = next(model.parameters()).device
        plan = self.plan(corpus, tokens=max(BATCH_TOKENS, int(corpus.lengths.max()) + 1), seed=0, epoch=0)
        for batch_rows in plan:
            batch = self.prepare([tuple(corpus[i] for i in row) for row in batch_rows], np.random.default_rng(0))
            loss = self.loss(model, batch.to(device), None)
            total, nll = total + float(loss.sums["loss"]), nll + float(loss.report["nll"])
            count += self.counts(batch)["loss"]
        smoothing = self.config.label_smoothing
        scores = [
            Score("loss", total / count, f"nats per token|smoothing:{smoothing}", count=count),
            Score("nll", nll / count, "nats per token|</s> counted", count=count),
        ]
        if metric != "loss":
            verbs = Verbs(self, model, decoding.Config(method="greedy"), max_length=int(corpus.lengths.max()) + 1)
            outputs = [str(result) for result in verbs.translate([source for source, _ in rows], domain=corpus.domains)]
            found = MEASURES[metric](outputs, [target for _, target in rows]).score()
            scores.append(replace(found, name=metric))
        return scores
