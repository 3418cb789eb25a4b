"""Replaced token detection (RTD): say of every token whether it is the original (ELECTRA, arXiv:2003.10555).

    text        the cat sat on the mat
    masked      the <mask> sat on the <mask>          15 % of the tokens, never a special one
    generator   the dog sat on the mat                sampled from its predictions
    label       0   1   0   0  0   0                  a sample that equals the original is no replacement

The loss is that of the generator at the masked tokens plus `discriminator_weight` times that of the discriminator at
all tokens; no gradient passes through the samples. They come from the generator of random numbers of the device, which
(seed, step, micro-batch) sets, as for dropout: a run that was killed and resumed draws the same ones. Texts are read
and masked as in masked_lm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.data.masking import Masker
from mallang.data.passages import Documents
from mallang.data.prepared import Prepared
from mallang.data.sampler import by_length
from mallang.decoding.contract import device_of
from mallang.errors import UserError
from mallang.evaluation.score import Score
from mallang.layers.head import masked_rows
from mallang.tasks import encoding, masked_lm
from mallang.tasks.contract import Better, Loss
from mallang.tasks.masked_scores import BATCH_TOKENS, RATES, SEED, masked_batch
from mallang.text.tokenizer import Tokenizer

__all__ = ["DEFAULTS", "SECTIONS", "Config", "Task", "Verbs"]

SECTIONS = masked_lm.SECTIONS
"""Sections of a recipe that this task reads besides those of every recipe."""
DEFAULTS = masked_lm.DEFAULTS
"""Defaults of a recipe of this task."""
VALIDATION = replace(RATES, random=0.0, kept=0.0)
"""How held-out text is masked: at 15 %, all of it by `<mask>`."""
SIGNATURE = f"rate:{VALIDATION.rate}|unit:token|seed:{SEED}"


@runtime_checkable
class ReplacedTokens(Protocol):
    """An encoder that finds replaced tokens, and the generator that replaces them."""

    def generator_hidden(self, batch: Batch) -> Float[Tensor, "batch time _"]:
        """The vector of every token after the last layer of the generator."""

    def generator_logits(self, hidden: Float[Tensor, "*batch _"]) -> Float[Tensor, "*batch words"]:
        """One logit per word, for what a masked token was."""

    def replaced_logits(self, hidden: Float[Tensor, "batch time dim"]) -> Float[Tensor, "batch time"]:
        """One logit per token: that it was replaced."""


@dataclass(frozen=True, kw_only=True)
class Config(masked_lm.Config):
    """What is masked, and how the two losses are weighted."""

    random: float = 0.0
    """Share of the masked tokens that become a random token instead."""
    kept: float = 0.0
    """Share of the masked tokens that the generator reads unmasked; 0.15 in the published code."""
    exact: bool = True
    """Mask exactly round(rate · tokens) of every batch, and not about the rate of every text; for unit = "token"."""
    discriminator_weight: float = 50.0
    """Weight of the loss of the discriminator beside that of the generator."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pairs != "none":
            raise ValueError("pairs have no loss here: pairs = 'next' and 'order' are for the task masked_lm")
        if not self.discriminator_weight > 0.0:
            raise ValueError(f"discriminator_weight must be above 0, but is {self.discriminator_weight}")


class Task(masked_lm.Task):
    """Learn which tokens of a text were replaced, and to replace them."""

    metrics: Mapping[str, Better] = {
        "loss": "lower",
        "generator": "lower",
        "discriminator": "lower",
        "rtd_accuracy": "higher",
        "generator_accuracy": "higher",
    }
    config: Config

    def __init__(self, config: Config, tokenizers: Mapping[str, Tokenizer]) -> None:
        super().__init__(config, tokenizers)
        self.parts = ("generator", "discriminator")

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
        self.check_length(built)
        return built

    def counts(self, batch: Batch) -> dict[str, int]:
        """The masked tokens for the generator, all tokens for the discriminator."""
        assert batch.masked is not None
        masked, tokens = int((batch.masked[:, 0] >= 0).sum()), int(real_tokens(batch).sum())
        return {
            "generator": masked, "discriminator": tokens, "generator_accuracy": masked,
            "rtd_accuracy": tokens, "replaced": tokens, "tokens": tokens,
        }  # fmt: skip

    def loss(self, model: Any, batch: Batch, carry: Any) -> Loss:
        """The summed losses of generator and discriminator, and how often each is right."""
        assert batch.masked is not None
        originals = batch.masked[:, 2]
        logits = model.generator_logits(masked_rows(model.generator_hidden(batch), batch.masked)).float()
        losses = F.cross_entropy(logits, originals, ignore_index=-1, reduction="sum")
        corrupted, original = replaced_tokens(batch, sample(logits.detach()))
        scores, real = model.replaced_logits(model(replace(batch, tokens=corrupted))).float(), real_tokens(batch)
        is_replaced = corrupted != original
        each = F.binary_cross_entropy_with_logits(scores, is_replaced.float(), reduction="none")
        detected = torch.where(real, each, 0.0).sum()
        report = {
            "generator_accuracy": (logits.argmax(dim=1) == originals).sum(),
            "rtd_accuracy": (real & ((scores > 0) == is_replaced)).sum(),
            "replaced": (real & is_replaced).sum(),
        }
        sums = {"generator": losses, "discriminator": self.config.discriminator_weight * detected}
        return Loss(sums=sums, report=report)

    def validate(self, model: nn.Module, corpus: Prepared, rows: Sequence[tuple[str, ...]], metric: str) -> list[Score]:
        """The losses, how often each network is right, and how many tokens were replaced, always by the same draws."""
        passages, masker, device = self.passages(Documents.of(corpus), "none"), Masker(self.text), device_of(model)
        sums: dict[str, float] = {}
        counts: dict[str, int] = {}
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(SEED)
            for group in by_length(self.lengths(passages).tolist(), BATCH_TOKENS):
                plain = self.collate_texts([passages[number] for number in group])
                batch = masked_batch(masker, plain, group, VALIDATION)
                loss, here = self.loss(model, batch.to(device), None), self.counts(batch)
                for name, value in {**loss.sums, **loss.report}.items():
                    sums[name] = sums.get(name, 0.0) + float(value)
                    counts[name] = counts.get(name, 0) + here[name]
        return self.scores(sums, counts)

    def scores(self, sums: Mapping[str, float], counts: Mapping[str, int]) -> list[Score]:
        """The scores of summed losses and right answers."""
        mean = {name: value / max(1, counts[name]) for name, value in sums.items()}
        weight = self.config.discriminator_weight
        loss = mean["generator"] + mean["discriminator"]
        percent = [
            Score(name, 100 * mean[name], f"percent|{SIGNATURE}", count=counts[name])
            for name in ("generator_accuracy", "rtd_accuracy", "replaced")
        ]
        tokens = counts["discriminator"]
        return [
            Score("loss", loss, f"generator + {weight:g} discriminator|{SIGNATURE}", count=tokens),
            Score("generator", mean["generator"], f"nats per masked token|{SIGNATURE}", count=counts["generator"]),
            Score("discriminator", mean["discriminator"] / weight, f"nats per token|{SIGNATURE}", count=tokens),
            *percent,
        ]


def real_tokens(batch: Batch) -> Bool[Tensor, "batch time"]:
    """All tokens but padding and rows that fill up a batch: their length is 1, and a text has at least a frame."""
    return batch.mask & (batch.lengths > 1)[:, None]


def sample(logits: Float[Tensor, "rows words"]) -> Int[Tensor, " rows"]:
    """A word for each row, drawn from its softmax: exponential noise makes the argmax such a draw, without the host."""
    return (logits - torch.empty_like(logits).exponential_().log()).argmax(dim=1)


def replaced_tokens(
    batch: Batch, found: Int[Tensor, " masked"]
) -> tuple[Int[Tensor, "batch time"], Int[Tensor, "batch time"]]:
    """The texts with the samples at their masked positions, and the original texts."""
    assert batch.masked is not None
    rows, places, originals = batch.masked.unbind(dim=1)
    flat, size = batch.tokens.flatten(), batch.tokens.numel()
    index = torch.where(rows < 0, size, rows * batch.tokens.shape[1] + places)  # what is none goes to an extra place
    wide = F.pad(flat, (0, 1))
    changed, original = (wide.scatter(0, index, each)[:size].view_as(batch.tokens) for each in (found, originals))
    return changed, original


class Verbs(encoding.Verbs):
    """An encoder that was trained to find replaced tokens."""

    task_name = "replaced_token"
