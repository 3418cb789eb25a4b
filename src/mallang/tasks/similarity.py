"""Similarity: a number for how alike two texts are.

    cross    both texts in one row: encoder → linear → sigmoid = p. Each pair has to be encoded by itself.
    bi       each text by itself: p = cos(vector of the first, vector of the second). Vectors can be kept and searched.
             Siamese encoders: Reimers and Gurevych 2019 (Sentence-BERT), arXiv:1908.10084. It adds no weights.

    t = (number − lowest) / (highest − lowest)                 the number of a pair on a scale from 0 to 1
    activation = "identity"          kind = "cross": the logit is the score, p = (logit − lowest) / (highest − lowest);
                                     a linear regression, as BERT's is on STS-B
    mse       Σ (p − t)²
    bce       −Σ t log p + (1 − t) log(1 − p)                  kind = "cross" alone: a cosine is no probability
    cosent    log(1 + Σ exp(20 (p_i − p_j))), over all pairs i, j of a batch with t_i < t_j (Su 2022, CoSENT): it asks
              for the right order only. It is weighted by the number of examples in the batch

A score is lowest + (highest − lowest) · p. The order of scores is what Spearman's correlation measures, so a bi-encoder
has scores below `lowest` where its cosines are negative.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Float32
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.data.columns import Column, Kind, LabelSet, Numbers, bits_to_number
from mallang.data.prepared import Prepared
from mallang.data.sampler import Rows
from mallang.decoding.contract import device_of, inference
from mallang.errors import UserError
from mallang.evaluation.correlation import correlations
from mallang.evaluation.score import Score
from mallang.layers.head import ClassificationHead
from mallang.models.contract import Encoder, encode_text, longest_of, reads_sentences
from mallang.tasks.classification_options import check_share
from mallang.tasks.comparer import Verbs
from mallang.tasks.contract import Better, Loss
from mallang.tasks.embedding import vectors_of
from mallang.tasks.finetuning import (
    FineTuned,
    FineTuning,
    changed_options,
    head_dims,
    put_head,
    read_layers,
    summed,
    symmetric_divergence,
    with_penalties,
    with_r_drop,
)
from mallang.tasks.pair_layout import Layout, PairLayout, check_orders, check_shared, encode_orders, lengths_of
from mallang.tasks.text_windows import LongTexts, TextWindows
from mallang.text.tokenizer import Tokenizer

__all__ = ["DEFAULTS", "SECTIONS", "Config", "Task", "Verbs"]

SECTIONS: tuple[str, ...] = ()
"""Sections of a recipe that this task reads besides those of every recipe."""
DEFAULTS: dict[str, dict[str, Any]] = {
    "data": {"max_length": 0, "max_ratio": 0.0},  # a long pair is an example too, and texts may differ in length
    "train": {"metric": "spearman"},
    "schedule": {"name": "linear", "warmup": 0},
}
"""Defaults of a recipe of this task."""
BATCH_TOKENS = 16_384
"""Padded tokens per batch of inference."""


@dataclass(frozen=True, kw_only=True)
class Config(FineTuning):
    """How both texts are read, the scale of the numbers, and the loss; fine-tuning has options for kind = "cross"."""

    kind: Literal["cross", "bi"] = "cross"
    """cross: both texts in one row, the more exact; bi: each text has a vector of its own, the faster."""
    loss: Literal["mse", "bce", "cosent"] = "mse"
    """Squared error, binary cross-entropy (kind = "cross"), or the order of the pairs of a batch."""
    activation: Literal["sigmoid", "identity"] = "sigmoid"
    """kind = "cross": the sigmoid of the logit, between lowest and highest, or the logit itself as the score."""
    lowest: float = 0.0
    """The number of texts that have nothing in common."""
    highest: float = 5.0
    """The number of texts that say the same."""
    read: Literal["both", "first", "second"] = "both"
    """kind = "cross": what is read; second: the control without the first text, first: without the second one."""
    symmetric: bool = False
    """kind = "cross": whether training reads each pair in a random order; a cosine has none."""
    both_orders: bool = False
    """kind = "cross": whether each pair is read in both orders and the two vectors are added, as in GPT-1."""
    head_dropout: float = 0.0
    """kind = "cross": dropout on the vector of a pair before the head."""
    word_dropout: float = 0.0
    """Probability that a token is read as `<unk>` in training."""
    max_tokens: int = 0
    """Maximum number of tokens of a row, special tokens included; 0: as many as the model reads."""
    long_texts: LongTexts = "windows"
    """kind = "bi", in use: the vector of a longer text is the mean over its windows, or that of its beginning (cut)."""

    def __post_init__(self) -> None:
        for name in ("head_dropout", "word_dropout"):
            check_share(name, getattr(self, name))
        if not self.lowest < self.highest:
            raise ValueError(f"lowest {self.lowest} must be below highest {self.highest}")
        if self.max_tokens < 0:
            raise ValueError(f"max_tokens must be 0 or more, but is {self.max_tokens}")
        if self.kind == "bi":
            unread = [name for name in ("symmetric", "both_orders", "head_dropout") if getattr(self, name)]
            unread += ["read"] if self.read != "both" else []
            unread += ["activation"] if self.activation != "sigmoid" else []
            for name in (*unread, *changed_options(self)):
                raise ValueError(f"{name} has no effect on kind = 'bi', which has no head")
            if self.loss == "bce":
                raise ValueError("loss = 'bce' needs probabilities, and kind = 'bi' has cosines: mse or cosent")
        elif self.activation == "identity" and (self.loss == "bce" or self.r_drop):
            option = "loss = 'bce'" if self.loss == "bce" else "r_drop"
            raise ValueError(
                f"{option} needs probabilities, and activation = 'identity' gives none: activation=sigmoid"
            )
        elif self.long_texts != "windows":
            raise ValueError("long_texts has no effect on kind = 'cross', which cuts the longer text of a pair")
        for name in ("symmetric", "both_orders"):
            if self.read != "both" and getattr(self, name):
                raise ValueError(f"{name} has no effect on read = {self.read!r}")
        if self.both_orders:
            check_orders(self, symmetric=self.symmetric)
        self.check_tuning()


class Task(FineTuned):
    """Learn the number of a pair of texts."""

    config: Config
    columns = ("first", "second", "score")
    unread: tuple[str, ...] = ()
    open_ended = False
    can_compile = True
    parts = ("loss",)
    metrics: Mapping[str, Better] = {"loss": "lower", "spearman": "higher", "pearson": "higher"}

    def __init__(self, config: Config, tokenizers: Mapping[str, Tokenizer], labels: Mapping[str, LabelSet]) -> None:
        self.config, self.tokenizers = config, tokenizers
        self.text = check_shared(tokenizers["first"], tokenizers["second"])
        whole: Layout = "orders" if config.both_orders else "joined"
        joined = whole if config.read == "both" else config.read
        layout: Layout = joined if config.kind == "cross" else "apart"
        self.layout = PairLayout(self.text.vocabulary, layout, config.max_tokens)
        self.windows = TextWindows()

    @classmethod
    def kinds(cls, config: Config) -> Mapping[str, Kind]:
        """The kind of each column that is not plain text."""
        return {"score": "number"}

    @classmethod
    def puts_head(cls, config: Any) -> bool:
        """Whether there is a head: a bi-encoder has none."""
        return bool(config.kind == "cross")

    def arrays(self) -> Sequence[Column]:
        """The tokens of both texts, and the number."""
        numbers = Numbers(self.config.lowest, self.config.highest)
        return [Column(0, self.text), Column(1, self.text), Column(2, numbers, is_text=False)]

    def build(self, model: ModuleType, config: Any) -> nn.Module:
        """The encoder, of kind = "cross" with a head of one output."""
        name, kind = model.__name__.rsplit(".", 1)[-1], model.Model
        if not issubclass(kind, Encoder):
            raise UserError(
                f"{name} encodes no text, so it cannot compare two",
                todo="take an encoder, such as model.name=bert or model.name=rnn_classifier",
            )
        if reads_sentences(kind) and self.config.kind == "bi":
            raise UserError(
                f"{name} reads documents in sentences, so a text alone has no vector of its own",
                todo="task.kind=cross, or an encoder of plain texts",
            )
        if reads_sentences(kind) and self.config.both_orders:
            raise UserError(f"{name} reads a pair as two sentences, and not in both orders", todo="task.symmetric=true")
        if reads_sentences(kind):
            self.layout.as_documents = True
            self.layout.layout = "apart" if self.config.read == "both" else self.config.read
        encoder: nn.Module = kind(config, *[self.text.vocabulary] * (2 if kind.reads_source else 1))
        self.layout.limit(longest_of(encoder))
        if self.config.kind == "bi":
            self.windows = TextWindows.of(self.layout.most or None, self.layout.frame, self.config.long_texts)
            return encoder
        assert isinstance(encoder, Encoder)
        head = ClassificationHead(head_dims(encoder, self.config).pooled, 1, self.config.head_dropout)
        return put_head(encoder, head, self.config)

    def examples(self, corpus: Prepared, seed: int, epoch: int) -> Any:
        """The pairs that an epoch reads."""
        return corpus.epoch(seed, epoch)

    def plan(
        self, corpus: Prepared, *, tokens: int, sentences: int | None = None, multiple: int = 1, seed: int, epoch: int
    ) -> Sequence[Rows]:
        """Batches of pairs of similar length."""
        lengths = corpus.epoch(seed, epoch).lengths[:, :2]
        return self.layout.plan(lengths, tokens, sentences, multiple=multiple, seed=seed, epoch=epoch)

    def batches(self, examples: Sequence[Sequence[Any]], tokens: int) -> Iterator[tuple[list[int], Batch]]:
        """All pairs in batches for inference, each with their numbers; those of similar length share a batch."""
        for group in self.layout.groups(lengths_of([(each[0], each[1]) for each in examples]), tokens):
            yield group, self.collate([examples[place] for place in group])

    def prepare(self, rows: list[tuple[Any, ...]], random: np.random.Generator) -> Batch:
        """A padded batch; with word dropout some tokens are `<unk>`, and symmetric pairs are in a random order."""
        examples = [example for (example,) in rows]
        if self.config.symmetric:
            swapped = random.random(len(examples)) < 0.5
            examples = [(b, a, c) if swap else (a, b, c) for (a, b, c), swap in zip(examples, swapped, strict=True)]
        if share := self.config.word_dropout:
            unk = self.text.vocabulary.unk
            examples = [
                (*(np.where(random.random(len(ids)) < share, unk, ids) for ids in each[:2]), each[2])
                for each in examples
            ]
        return self.collate(examples)

    def collate(self, examples: Sequence[Sequence[Any]]) -> Batch:
        """A padded batch of pairs with their numbers."""
        numbers = torch.tensor([bits_to_number(each[2]) for each in examples])
        return Batch(**self.layout.fields([(each[0], each[1]) for each in examples]), numbers=numbers)

    def counts(self, batch: Batch) -> dict[str, int]:
        """The number of pairs with a number, and of tokens."""
        assert batch.numbers is not None
        return {"loss": int((~batch.numbers.isnan()).sum()), "tokens": int(batch.lengths.sum())}

    def loss(self, model: Any, batch: Batch, carry: Any) -> Loss:
        """The summed loss of the pairs; with R-Drop that of two passes, which should agree."""
        assert batch.numbers is not None
        known = ~batch.numbers.isnan()

        def divergence(first: Tensor, second: Tensor) -> Tensor:
            return summed(symmetric_divergence(first[:, None], second[:, None], independent=True), known)

        return with_r_drop(self.config.r_drop, model, lambda: self.one_pass(model, batch), divergence)

    def one_pass(self, model: Any, batch: Batch) -> tuple[Loss, Float[Tensor, " pairs"]]:
        """The summed loss of the pairs, with the penalties of the model; the outputs. The squared error is reported."""
        assert batch.numbers is not None
        known = ~batch.numbers.isnan()
        found, penalties = self.outputs(model, batch)
        target = (batch.numbers.nan_to_num() - self.config.lowest) / (self.config.highest - self.config.lowest)
        shares = self.shares(found)
        squares = torch.where(known, (shares - target) ** 2, 0.0).sum()
        if self.config.loss == "cosent":
            loss = order_loss(shares, target, known)
        elif self.config.loss == "bce":
            each = F.binary_cross_entropy_with_logits(found, target, reduction="none")
            loss = torch.where(known, each, 0.0).sum()
        else:
            loss = squares
        report = {"squared_error": squares.detach()}
        loss = with_penalties(loss, report, penalties, known)
        return Loss(sums={"loss": loss}, report=report), found

    def outputs(self, model: Any, batch: Batch) -> tuple[Float[Tensor, " pairs"], Mapping[str, Tensor]]:
        """A logit for every pair, of kind = "bi" the cosine of both vectors; the penalties of the encoder."""
        if self.config.kind == "cross":
            is_twice = self.config.both_orders
            encoded = encode_orders(model.model, batch) if is_twice else read_layers(model, batch)
            logits: Tensor = model.head(encoded.pooled)
            return logits[:, 0].float(), encoded.penalties
        assert batch.sentences is not None
        encoded = encode_text(model, Batch(tokens=batch.tokens, lengths=batch.lengths))
        places = batch.sentences[:, :2].clamp(min=0)  # a batch that was filled up has more columns
        first, second = (encoded.pooled.float()[places[:, place]] for place in (0, 1))
        penalties = {name: each[places].sum(dim=1) for name, each in encoded.penalties.items()}
        return F.cosine_similarity(first, second, dim=1), penalties

    def shares(self, outputs: Float[Tensor, " pairs"]) -> Float[Tensor, " pairs"]:
        """The outputs as numbers on the scale from 0 to 1."""
        if self.config.kind == "bi":
            return outputs
        if self.config.activation == "sigmoid":
            return outputs.sigmoid()
        return (outputs - self.config.lowest) / (self.config.highest - self.config.lowest)

    def predict(self, model: nn.Module, examples: Sequence[Sequence[Any]]) -> Float32[np.ndarray, " pairs"]:
        """The score of every pair, in their order; pairs of similar length share a batch."""
        if self.config.kind == "bi" and any(len(ids) > self.windows.most > 0 for each in examples for ids in each[:2]):
            return self.predict_long(model, examples)
        device, found = device_of(model), dict[int, float]()
        with inference(model):
            for group, batch in self.batches(examples, BATCH_TOKENS):
                outputs, _ = self.outputs(model, batch.to(device))
                found.update(zip(group, self.shares(outputs).tolist(), strict=True))
        shares_found = np.array([found[place] for place in range(len(examples))], dtype=np.float32)
        return self.config.lowest + (self.config.highest - self.config.lowest) * shares_found

    def predict_long(self, model: Any, examples: Sequence[Sequence[Any]]) -> Float32[np.ndarray, " pairs"]:
        """The score of every pair of texts of which some are read in windows."""
        sides = [[each[place] for each in examples] for place in (0, 1)]
        first, second = (
            torch.from_numpy(vectors_of(model, self.text.vocabulary, side, self.windows)) for side in sides
        )
        return self.config.lowest + (self.config.highest - self.config.lowest) * (
            F.cosine_similarity(first, second, dim=1).numpy()
        )

    def validate(self, model: nn.Module, corpus: Prepared, rows: Sequence[tuple[str, ...]], metric: str) -> list[Score]:
        """The squared error on the scale from 0 to 1, and the correlations, on held-out pairs."""
        examples = [corpus[place] for place in range(len(corpus))]
        golds = np.array([bits_to_number(each[2]) for each in examples])
        found, width = self.predict(model, examples), self.config.highest - self.config.lowest
        loss = float((((found - golds) / width) ** 2).mean())
        values = {"loss": loss, **{name: 100 * value for name, value in correlations(found, golds).items()}}
        return [Score(name, value, f"kind:{self.config.kind}", count=len(golds)) for name, value in values.items()]

    def longest(self, model: nn.Module) -> int | None:
        """The maximum number of tokens that the model reads."""
        return longest_of(model)

    def note_cut(self, corpus: Prepared) -> str:
        """A sentence about the pairs of a prepared corpus that lose tokens; empty where none does."""
        return self.layout.note_cut(corpus.lengths[:, :2])


def order_loss(shares: Float[Tensor, " pairs"], target: Float[Tensor, " pairs"], known: Tensor) -> Float[Tensor, ""]:
    """log(1 + Σ exp(20 (p_i − p_j))) over all i, j whose targets are t_i < t_j, times the number of examples."""
    is_wrong_way = (target[:, None] < target[None, :]) & known[:, None] & known[None, :]
    differences = 20.0 * (shares[:, None] - shares[None, :])
    asked = differences.masked_fill(~is_wrong_way, -torch.inf).flatten()
    return torch.cat((asked.new_zeros(1), asked)).logsumexp(dim=0) * known.sum()
