"""Captioning: an image in, a sentence about it out; trained on images with captions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mallang.data.batch import Batch, pad_rows
from mallang.data.columns import Column, Kind, LabelSet
from mallang.data.images import Images, Regions
from mallang.data.prepared import Prepared
from mallang.data.sampler import Buckets, Rows
from mallang.decoding import contract as decoding
from mallang.errors import UserError
from mallang.evaluation.captions import MEASURES
from mallang.evaluation.score import Score
from mallang.layers.head import cross_entropy_of
from mallang.layers.regions import Attended
from mallang.models.contract import ReadsRegions
from mallang.tasks.captioner import BATCH_TOKENS, Verbs
from mallang.tasks.contract import Better, Group, Loss
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import BOS, EOS, PAD

__all__ = ["DEFAULTS", "SECTIONS", "Config", "Task", "Verbs"]

SECTIONS = ("decoding",)
"""Sections of a recipe that this task reads besides those of every recipe."""
DEFAULTS: dict[str, dict[str, Any]] = {}
"""Defaults of a recipe of this task."""
DECAY = 0.9
"""The share of the old baseline in the new one."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """The images, the loss, and the terms that attention adds to it."""

    picture: Literal["images", "regions"] = "images"
    """What the column of images holds: images, or files with the features of their regions."""
    size: int = 32
    """Pixels of a side of the square that every image is fitted into."""
    label_smoothing: float = 0.0
    """Share of the probability that is spread evenly over the vocabulary."""
    penalty: float = 0.0
    """Weight λ of the doubly stochastic penalty Σ_i (1 − Σ_t α_ti)²: attend to every region over the whole caption."""
    reinforce: float = 1.0
    """Hard attention: weight of REINFORCE, the reward times the log-probability of the regions that were drawn."""
    entropy: float = 0.01
    """Hard attention: weight of the entropy of attention, which keeps it from settling too soon."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.label_smoothing < 1.0:
            raise ValueError(f"label_smoothing must lie between 0 and 1, but is {self.label_smoothing}")
        for name in ("penalty", "reinforce", "entropy"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, but is {getattr(self, name)}")
        if not 4 <= self.size <= 1024:
            raise ValueError(f"size must lie between 4 and 1024 pixels, but is {self.size}")


@runtime_checkable
class AttendsToRegions(Protocol):
    """A captioner that shows which regions of the image each of its words attended to."""

    def attended(self, batch: Batch) -> Attended:
        """The hidden vector of every position, and the attention that led to it."""


class Task:
    """Learn p(caption | image) from images with captions."""

    columns = ("image", "caption")
    unread: tuple[str, ...] = ()
    open_ended = False
    can_compile = False  # its loop over steps would be compiled again for every width
    parts = ("loss",)
    metrics: Mapping[str, Better] = {"loss": "lower", **dict.fromkeys(MEASURES, "higher")}

    def __init__(
        self, config: Config, tokenizers: Mapping[str, Tokenizer], labels: Mapping[str, LabelSet] | None = None
    ) -> None:
        self.config, self.tokenizers, self.caption = config, tokenizers, tokenizers["caption"]
        self.picture = Images(config.size) if config.picture == "images" else Regions()

    @classmethod
    def kinds(cls, config: Config) -> Mapping[str, Kind]:
        """The column that is no text."""
        return {"image": "image" if config.picture == "images" else "regions"}

    def arrays(self) -> Sequence[Column]:
        """The image, whose size does not count as a length, and the caption."""
        return [Column(0, self.picture, is_text=False), Column(1, self.caption)]

    def build(self, model: ModuleType, config: Any) -> nn.Module:
        """The model for the vocabulary of the captions."""
        if model.TASK != "captioning":
            raise UserError(
                f"{model.__name__.rsplit('.', 1)[-1]} reads no image, so it cannot write captions",
                todo=f"task.name={model.TASK}, or model.name=show_attend_tell",
            )
        built: nn.Module = model.Model(config, self.caption.vocabulary)
        is_given = self.config.picture == "regions"
        if isinstance(built, ReadsRegions) and built.reads_regions != is_given:
            raise UserError(
                f"task.picture is {self.config.picture}, but the model reads "
                f"{'region features' if built.reads_regions else 'images'}",
                todo="task.picture=regions belongs to model.encoder=given, and images to convolutions",
            )
        return built

    def examples(self, corpus: Prepared, seed: int, epoch: int) -> Any:
        """The images and captions of an epoch."""
        return corpus.epoch(seed, epoch)

    def plan(
        self, corpus: Prepared, *, tokens: int, sentences: int | None = None, multiple: int = 1, seed: int, epoch: int
    ) -> Sequence[Rows]:
        """Batches of captions of similar length."""
        lengths = corpus.epoch(seed, epoch).lengths[:, 1:] + 1
        return Buckets(lengths, tokens=tokens, sentences=sentences, multiple=multiple, seed=seed, epoch=epoch)

    def prepare(self, rows: list[tuple[Any, ...]], random: np.random.Generator) -> Batch:
        """Inputs are `<s>` and the words, labels the words and `</s>`."""
        packed, captions = zip(*(pair for (pair,) in rows), strict=True)
        tokens, lengths = pad_rows(captions, begin=BOS)
        labels, _ = pad_rows(captions, end=EOS)
        return Batch(tokens=tokens, lengths=lengths, labels=labels, **self.pictures(list(packed)))

    def pictures(self, packed: list[np.ndarray]) -> dict[str, Tensor]:
        """Packed images, or region features, as a field of a batch."""
        name = "images" if isinstance(self.picture, Images) else "regions"
        return {name: torch.from_numpy(self.picture.decode(packed))}

    def counts(self, batch: Batch) -> dict[str, int]:
        """The number of labels."""
        assert batch.labels is not None
        return {"loss": int((batch.labels != PAD).sum())}

    def loss(self, model: Any, batch: Batch, carry: Any) -> Loss:
        """Cross-entropy, with the penalty of attention, and in training of hard attention the terms of REINFORCE."""
        assert batch.labels is not None
        labels = batch.labels.flatten()
        if not isinstance(model, AttendsToRegions):
            loss, nll = cross_entropy_of(model, model(batch).flatten(0, 1), labels, self.config.label_smoothing)
            return Loss(sums={"loss": loss}, report={"nll": nll.detach()})
        attended, asked = model.attended(batch), batch.labels != PAD
        loss, nll = cross_entropy_of(model, attended.hidden.flatten(0, 1), labels, self.config.label_smoothing)
        report = {"nll": nll.detach()}
        if self.config.penalty:
            penalty = doubly_stochastic(attended.weights, asked)
            loss, report["penalty"] = loss + self.config.penalty * penalty, penalty.detach()
        if attended.drawn is None:
            return Loss(sums={"loss": loss}, report=report)
        reinforced, baseline, entropy = self.reinforced(model, batch.labels, attended, carry)
        loss = loss - self.config.reinforce * reinforced - self.config.entropy * entropy
        return Loss(sums={"loss": loss}, report=report | {"entropy": entropy.detach()}, carry=baseline)

    def reinforced(
        self, model: Any, labels: Int[Tensor, "batch time"], attended: Attended, baseline: Float[Tensor, ""] | None
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""], Float[Tensor, ""]]:
        """Σ (log p(y | s) − b) log p(s), the next baseline b, and the entropy of attention (section 4.1).

        The baseline is a moving average of log p(y | s) over the batches of a stream, from the first of an epoch on. So
        it is saved with a checkpoint, and does not depend on the number of processes.
        """
        assert attended.drawn is not None and attended.is_drawn is not None
        asked = labels != PAD
        with torch.no_grad():
            log_probs = model.output(attended.hidden.detach()).float().log_softmax(dim=-1)
            reward = (log_probs.gather(-1, labels[:, :, None])[:, :, 0] * asked).sum(dim=1)
            captions = asked.any(dim=1)  # rows of padding alone do not count
            mean = (reward * captions).sum() / captions.sum().clamp(min=1)
            known = mean if baseline is None else baseline
        drawn = (attended.drawn * asked).sum(dim=1)
        entropy = -(attended.weights * attended.weights.clamp(min=1e-9).log()).sum(dim=-1)
        total = ((reward - known) * drawn).sum()
        return total, DECAY * known + (1 - DECAY) * mean, (entropy * asked).sum()

    def carry_like(self) -> Float[Tensor, ""]:
        """An example of what a stream carries: the baseline of REINFORCE."""
        return torch.zeros(())

    def updates(self, model: nn.Module) -> list[Group]:
        """One parameter group with all parameters."""
        return [Group(list(model.named_parameters()))]

    def validate(self, model: nn.Module, corpus: Prepared, rows: Sequence[tuple[str, ...]], metric: str) -> list[Score]:
        """The mean loss per token; for another `metric` the held-out images also get captions, greedily."""
        total, count, nll, device = 0.0, 0, 0.0, next(model.parameters()).device
        longest = int(corpus.lengths[:, 1].max()) + 1
        for batch_rows in self.plan(corpus, tokens=max(BATCH_TOKENS, longest), seed=0, epoch=0):
            batch = self.prepare([tuple(corpus[i] for i in row) for row in batch_rows], np.random.default_rng(0))
            loss = self.loss(model, batch.to(device), None)
            total, nll = total + float(loss.sums["loss"]), nll + float(loss.report["nll"])
            count += self.counts(batch)["loss"]
        added = f"smoothing:{self.config.label_smoothing}|penalty:{self.config.penalty}"
        scores = [
            Score("loss", total / count, f"nats per token|{added}", count=count),
            Score("nll", nll / count, "nats per token|</s> counted", count=count),
        ]
        if metric != "loss":
            verbs = Verbs(self, model, decoding.Config(method="greedy", max_length=longest + 1), max_length=longest)
            written = [each.output for each in verbs.caption_rows(rows)]
            found = MEASURES[metric](written, [row[1] for row in rows]).score()
            scores.append(replace(found, name=metric))
        return scores


def doubly_stochastic(
    weights: Float[Tensor, "batch time regions"], asked: Bool[Tensor, "batch time"]
) -> Float[Tensor, ""]:
    """Σ_i (1 − Σ_t α_ti)² over all images: how far every region is from getting a whole word's attention."""
    given = (weights * asked[:, :, None]).sum(dim=1)
    return ((1 - given).square().sum(dim=1) * asked.any(dim=1)).sum()
