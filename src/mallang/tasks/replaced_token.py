"""Replaced token detection (RTD): say of every token whether it is the original (ELECTRA, arXiv:2003.10555).

    text        the cat sat on the mat
    masked      the [MASK] sat on the [MASK]          15 % of the tokens, never a special one
    generator   the dog sat on the mat                sampled from its predictions
    label       0   1   0   0  0   0                  a sample that equals the original is no replacement

The loss is that of the generator at the masked tokens plus `discriminator_weight` times that of the discriminator at
all tokens; no gradient passes through the samples. They come from the generator of random numbers of the device, which
(seed, step, micro-batch) sets, as for dropout: a run that was killed and resumed draws the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from mallang.data.batch import IGNORE, Batch
from mallang.data.prepared import Prepared
from mallang.data.sampler import Buckets, Rows, by_length
from mallang.decoding.contract import device_of
from mallang.errors import UserError
from mallang.evaluation.score import Score
from mallang.models.contract import ReplacedTokens
from mallang.tasks import encoding
from mallang.tasks.contract import Better, Group, Loss
from mallang.tasks.masked_texts import MaskedTexts, asked_tokens, masked_labels, masked_rows
from mallang.text.tokenizer import Tokenizer

__all__ = ["DEFAULTS", "SECTIONS", "Config", "Task", "Verbs"]

SECTIONS: tuple[str, ...] = ()
"""Sections of a recipe that this task reads besides those of every recipe."""
DEFAULTS: dict[str, dict[str, Any]] = {"schedule": {"name": "linear"}}
"""Defaults of a recipe of this task."""
SEED, BATCH_TOKENS = 12345, 16_384
"""What masks and samples of validation are drawn from, and its padded tokens per batch."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """What is masked, and how the two losses are weighted."""

    mask_rate: float = 0.15
    """Share of the tokens of a text that are masked for the generator, at least one."""
    kept_share: float = 0.0
    """Share of the masked tokens that the generator reads unmasked; 0.15 in the published code."""
    discriminator_weight: float = 50.0
    """Weight of the loss of the discriminator beside that of the generator."""

    def __post_init__(self) -> None:
        if not 0.0 < self.mask_rate < 1.0:
            raise ValueError(f"mask_rate must be above 0 and less than 1, but is {self.mask_rate}")
        if not 0.0 <= self.kept_share < 1.0:
            raise ValueError(f"kept_share must be at least 0 and less than 1, but is {self.kept_share}")
        if not self.discriminator_weight > 0.0:
            raise ValueError(f"discriminator_weight must be above 0, but is {self.discriminator_weight}")


class Task:
    """Learn which tokens of a text were replaced, and to replace them."""

    columns = ("text",)
    unread: tuple[str, ...] = ()
    open_ended = False
    can_compile = True
    parts = ("generator", "discriminator")
    metrics: Mapping[str, Better] = {
        "loss": "lower",
        "generator": "lower",
        "discriminator": "lower",
        "rtd_accuracy": "higher",
        "generator_accuracy": "higher",
    }

    def __init__(self, config: Config, tokenizers: Mapping[str, Tokenizer]) -> None:
        self.config, self.tokenizers, self.text = config, tokenizers, tokenizers["text"]
        self.masking = MaskedTexts(self.text.vocabulary, config.mask_rate, 0.0, config.kept_share)

    @classmethod
    def special_tokens(cls, config: Config) -> tuple[str, ...]:
        """The special tokens that it needs."""
        return ("mask",)

    def build(self, model: ModuleType, config: Any) -> nn.Module:
        """The model with both networks."""
        if not issubclass(model.Model, ReplacedTokens):
            raise UserError(
                f"{model.__name__.rsplit('.', 1)[-1]} has no generator and no head for replaced tokens",
                todo="model.name=electra",
            )
        if config.pretraining_heads != "both":
            raise UserError(
                "replaced tokens are sampled from a generator, and this model is built without one",
                todo="model.pretraining_heads=both",
            )
        built: nn.Module = model.Model(config, self.text.vocabulary)
        return built

    def examples(self, corpus: Prepared, seed: int, epoch: int) -> Any:
        """The texts that an epoch reads."""
        return corpus.epoch(seed, epoch)

    def plan(
        self, corpus: Prepared, *, tokens: int, sentences: int | None = None, multiple: int = 1, seed: int, epoch: int
    ) -> Sequence[Rows]:
        """Batches of texts of similar length."""
        lengths = corpus.epoch(seed, epoch).lengths + self.text.vocabulary.frame_length
        return Buckets(
            lengths, tokens=tokens, sentences=sentences, multiple=multiple, long_alone=True, seed=seed, epoch=epoch
        )

    def prepare(self, rows: list[tuple[Any, ...]], random: np.random.Generator) -> Batch:
        """A padded batch in which some tokens are masked."""
        return self.collate([ids for ((ids,),) in rows], random)

    def collate(self, texts: Sequence[np.ndarray], random: np.random.Generator) -> Batch:
        """A padded batch of texts: masked, with the masked positions and what was there."""
        return self.masking.collate(texts, random)

    def counts(self, batch: Batch) -> dict[str, int]:
        """The masked tokens for the generator, all tokens for the discriminator."""
        assert batch.masked is not None
        masked, tokens = int((batch.masked >= 0).sum()), int(asked_tokens(batch).sum())
        return {
            "generator": masked, "discriminator": tokens, "generator_accuracy": masked,
            "rtd_accuracy": tokens, "replaced": tokens, "tokens": tokens,
        }  # fmt: skip

    def loss(self, model: Any, batch: Batch, carry: Any) -> Loss:
        """The summed losses of generator and discriminator, and how often each is right."""
        wanted = masked_labels(batch)
        logits = model.generator_logits(masked_rows(model.generator_hidden(batch), batch)).float()
        losses = F.cross_entropy(logits, wanted, ignore_index=IGNORE, reduction="sum")
        found = sample(logits.detach())
        right = (logits.argmax(dim=1) == wanted).sum()
        corrupted, original = replaced_tokens(batch, found)
        seen = Batch(tokens=corrupted, lengths=batch.lengths, token_types=batch.token_types)
        scores, real = model.replaced_logits(model(seen)).float(), asked_tokens(batch)
        is_replaced = corrupted != original
        each = F.binary_cross_entropy_with_logits(scores, is_replaced.float(), reduction="none")
        detected = torch.where(real, each, 0.0).sum()
        report = {
            "generator_accuracy": right,
            "rtd_accuracy": (real & ((scores > 0) == is_replaced)).sum(),
            "replaced": (real & is_replaced).sum(),
        }
        sums = {"generator": losses, "discriminator": self.config.discriminator_weight * detected}
        return Loss(sums=sums, report=report)

    def updates(self, model: nn.Module) -> list[Group]:
        """One parameter group with all parameters."""
        return [Group(list(model.named_parameters()))]

    def validate(self, model: nn.Module, corpus: Prepared, rows: Sequence[tuple[str, ...]], metric: str) -> list[Score]:
        """The losses, how often each network is right, and how many tokens were replaced, always by the same draws."""
        texts = [corpus[place][0] for place in range(len(corpus))]
        device, random = device_of(model), np.random.default_rng(SEED)
        sums: dict[str, float] = {}
        counts: dict[str, int] = {}
        frame = self.text.vocabulary.frame_length
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(SEED)
            for group in by_length([len(ids) + frame for ids in texts], BATCH_TOKENS):
                batch = self.collate([texts[place] for place in group], random)
                loss = self.loss(model, batch.to(device), None)
                for name, value in {**loss.sums, **loss.report}.items():
                    sums[name] = sums.get(name, 0.0) + float(value)
                    counts[name] = counts.get(name, 0) + self.counts(batch)[name]
        return self.scores(sums, counts)

    def scores(self, sums: Mapping[str, float], counts: Mapping[str, int]) -> list[Score]:
        """The scores of summed losses and right answers."""
        signed = f"mask:{self.config.mask_rate:g}|kept:{self.config.kept_share:g}|seed:{SEED}"
        mean = {name: value / max(1, counts[name]) for name, value in sums.items()}
        weight = self.config.discriminator_weight
        loss = mean["generator"] + mean["discriminator"]
        percent = [
            Score(name, 100 * mean[name], f"percent|{signed}", count=counts[name])
            for name in ("generator_accuracy", "rtd_accuracy", "replaced")
        ]
        return [
            Score("loss", loss, f"generator + {weight:g} discriminator|{signed}", count=counts["discriminator"]),
            Score("generator", mean["generator"], f"nats per masked token|{signed}", count=counts["generator"]),
            Score(
                "discriminator", mean["discriminator"] / weight, f"nats per token|{signed}",
                count=counts["discriminator"],
            ),
            *percent,
        ]  # fmt: skip


def sample(logits: Float[Tensor, "rows words"]) -> Int[Tensor, " rows"]:
    """A word for each row, drawn from its softmax: exponential noise makes the argmax such a draw, without the host."""
    return (logits - torch.empty_like(logits).exponential_().log()).argmax(dim=1)


def replaced_tokens(
    batch: Batch, found: Int[Tensor, " rows"]
) -> tuple[Int[Tensor, "batch time"], Int[Tensor, "batch time"]]:
    """The text with the samples at its masked positions, and the original text."""
    assert batch.masked is not None and batch.originals is not None
    is_masked, time = batch.masked >= 0, batch.tokens.shape[1]
    if batch.masked.is_cuda:
        samples = found.view_as(batch.masked)
    else:
        samples = torch.zeros_like(batch.masked).masked_scatter_(is_masked, found)
    places = torch.where(is_masked, batch.masked, time)  # what is not masked goes to a column that is cut off
    wide = F.pad(batch.tokens, (0, 1))
    return wide.scatter(1, places, samples)[:, :time], wide.scatter(1, places, batch.originals)[:, :time]


class Verbs(encoding.Verbs):
    """An encoder that was trained to find replaced tokens."""

    task_name = "replaced_token"
