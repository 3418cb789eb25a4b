"""Masked language modeling: some tokens of a text are hidden, and predicted from both sides (BERT).

    mlm    the loss at the masked positions alone; the head runs there and nowhere else
    nsp    with pairs = "next": does the second segment follow the first, or is it from another document?
    sop    with pairs = "order": are two neighboring segments in order, or swapped?

A row of the corpus is a document. It is read in passages of whole sentences that are as long as `length` allows; with
layout = "packed" several of them share a row, and do not attend to each other. Masks and pairs are drawn again in every
epoch. Held-out text is masked by a fixed seed at 15 %, whatever the rate of training, so that losses can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from mallang.data.batch import IGNORE, Batch, Shapes, pad_rows
from mallang.data.columns import Column, Kind, Segments, Starts
from mallang.data.corpus import Config as Data
from mallang.data.filters import Filters
from mallang.data.masking import Masker, Rates, Unit
from mallang.data.passages import Documents, Pairing, Passages
from mallang.data.prepared import Prepared
from mallang.data.sampler import Buckets, Packed, Rows
from mallang.errors import UserError
from mallang.evaluation.score import Score
from mallang.layers.head import masked_rows
from mallang.models.contract import Segmented, TokenModel, longest_of
from mallang.tasks.contract import Better, Group, Loss
from mallang.tasks.filler import Verbs
from mallang.tasks.masked_scores import held_out_scores
from mallang.tasks.masked_view import shown_examples
from mallang.text.tokenizer import Tokenizer

__all__ = ["DEFAULTS", "SECTIONS", "Config", "Task", "Verbs"]

SECTIONS: tuple[str, ...] = ()
"""Sections of a recipe that this task reads besides those of every recipe."""
DEFAULTS: dict[str, dict[str, Any]] = {
    "data": {"max_length": 0},  # a long text is read in passages
    "schedule": {"name": "linear"},
}
"""Defaults of a recipe of this task."""
MARKS = "mask", "cls", "sep"
"""The special tokens of masked texts and of pairs."""
PART: dict[Pairing, str] = {"next": "nsp", "order": "sop"}
"""The part of the loss that pairs of each kind have."""


@runtime_checkable
class MaskedLM(TokenModel, Protocol):
    """An encoder whose `output` says what a masked token was, if it was built with that head."""

    @property
    def objectives(self) -> tuple[str, ...]:
        """What its heads were built for: "masked-lm", "sentence-pairs"."""


@runtime_checkable
class SentencePairs(MaskedLM, Protocol):
    """One that also tells whether the second of two segments follows the first, if it was built with that head."""

    def next_sentence_logits(self, hidden: Float[Tensor, "batch time dim"]) -> Float[Tensor, "batch 2"]:
        """Two logits per pair: the second follows the first, it does not; of ALBERT: in order, swapped."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Passages, masks and pairs."""

    length: int = 128
    """Maximum length of a passage in tokens, the special ones included."""
    short_length: int = 0
    """Maximum length of a passage in the first `short_epochs` epochs, such as 128 before 512; 0: always `length`."""
    short_epochs: int = 0
    """The epochs that read passages of `short_length`; nine of ten in the paper, for attention is quadratic in it."""
    layout: Literal["texts", "packed"] = "texts"
    """A passage in each row, those of similar length in a batch; or several passages packed into rows of `length`."""
    pairs: Pairing = "none"
    """Pairs of segments and their loss: next (NSP), order (SOP), or none."""
    rate: float = 0.15
    """Share of the tokens that is masked in training."""
    unit: Unit = "token"
    """What is masked together: a token, a word, an eojeol (what stands between spaces), or an n-gram of words."""
    random: float = 0.1
    """Share of the masked tokens that become a random token instead."""
    kept: float = 0.1
    """Share of the masked tokens that stay as they are."""
    exact: bool = False
    """Mask exactly round(rate · tokens) of every batch, and not about the rate of every text; for unit = "token"."""

    def __post_init__(self) -> None:
        if self.length < 8:
            raise ValueError(f"length = {self.length} leaves no room for a text; 8 is the least")
        if not 0.0 < self.rate < 1.0:
            raise ValueError(f"rate = {self.rate} must lie between 0 and 1")
        if min(self.random, self.kept) < 0.0 or self.random + self.kept > 1.0:
            raise ValueError(f"random = {self.random} and kept = {self.kept} must be shares of at most 1 together")
        if self.exact and self.unit != "token":
            raise ValueError(f"exact = true counts single tokens, and unit = {self.unit!r} masks several together")
        if bool(self.short_length) != bool(self.short_epochs) or self.short_epochs < 0:
            raise ValueError(f"short_length = {self.short_length} and short_epochs = {self.short_epochs} go together")
        if self.short_length and not 8 <= self.short_length < self.length:
            raise ValueError(f"short_length = {self.short_length} must be from 8 to below length = {self.length}")
        if self.layout == "packed" and self.short_length and self.length % self.short_length:
            raise ValueError(
                f"packed rows are of {self.short_length} tokens, then of {self.length}, which must be a multiple of it"
            )
        if self.layout == "packed" and self.pairs != "none":
            raise ValueError("pairs fill a row by themselves: layout = 'packed' is for pairs = 'none'")

    @property
    def rates(self) -> Rates:
        """How much is masked in training."""
        return Rates(self.rate, self.random, self.kept, self.exact)

    def length_at(self, epoch: int) -> int:
        """Maximum length of a passage in an epoch, from 0."""
        return self.short_length if epoch < self.short_epochs else self.length


class Task:
    """Learn p(token | the text around it)."""

    columns: tuple[str, ...] = ("text",)
    unread: tuple[str, ...] = ()
    open_ended = False
    can_compile = True
    metrics: Mapping[str, Better] = {
        "loss": "lower", "mlm_accuracy": "higher", "nsp_accuracy": "higher", "sop_accuracy": "higher",
    }  # fmt: skip
    carries = False

    def __init__(self, config: Config, tokenizers: Mapping[str, Tokenizer]) -> None:
        self.config, self.tokenizers, self.text = config, tokenizers, tokenizers["text"]
        self.pair_part = PART.get(config.pairs)
        self.parts: tuple[str, ...] = ("mlm",) if self.pair_part is None else ("mlm", self.pair_part)
        self.width: int | None = config.length
        self.one_shape = config.layout == "packed"
        """Whether nearly all batches have one shape, so that it pays to compile for it."""
        self.masker = Masker(self.text, config.unit)
        self.segments = Segments(self.text, "document")
        self.kept: tuple[Any, Passages] | None = None
        """The passages of the last epoch that was asked for."""

    @classmethod
    def kinds(cls, config: Config) -> Mapping[str, Kind]:
        """A text is a document of sentences."""
        return {"text": "document"}

    @classmethod
    def special_tokens(cls, config: Config) -> tuple[str, ...]:
        """`<mask>`, and what stands around a text and between two."""
        return MARKS

    def arrays(self) -> Sequence[Column]:
        """The tokens of a document, and the starts of its sentences."""
        return [Column(0, self.segments), Column(0, Starts(self.segments), is_text=False)]

    def filters(self, data: Data) -> tuple[Filters, Filters]:
        """The filters of training and evaluation rows."""
        if data.domains:
            raise UserError("data.domains puts a tag before a text, and passages have no place for it")
        some = Filters(
            min_length=data.min_length, max_length=data.max_length, max_ratio=0.0, drop_duplicates=data.drop_duplicates
        )
        return some, Filters(min_length=0, max_length=0, max_ratio=0.0)

    def build(self, model: ModuleType, config: Any) -> nn.Module:
        """The encoder with the heads of its pre-training."""
        name, kind = model.__name__.rsplit(".", 1)[-1], model.Model
        built: Any = None if kind.reads_source else kind(config, self.text.vocabulary)
        if not isinstance(built, MaskedLM):
            raise UserError(f"{name} predicts no masked tokens", todo="take a model that does, such as model.name=bert")
        if "masked-lm" not in built.objectives:
            raise UserError(f"this {name} has no head for masked tokens", todo="model.pretraining_heads=masked-lm")
        if self.pair_part and "sentence-pairs" not in built.objectives:
            raise UserError(
                f"task.pairs = {self.config.pairs!r} needs a head for pairs, and this {name} has none",
                todo="model.pretraining_heads=both, or task.pairs=none",
            )
        if not self.pair_part and "sentence-pairs" in built.objectives:
            raise UserError(
                f"this {name} has a head for pairs of sentences, which task.pairs = 'none' never trains",
                todo="task.pairs=next, or model.pretraining_heads=masked-lm",
            )
        self.check_length(built)
        return built  # type: ignore[return-value]  # it is a module too

    def check_length(self, built: Any) -> None:
        """Refuse passages that are longer than the model can read, and packed ones that it would read as one."""
        if self.one_shape and not (isinstance(built, Segmented) and built.reads_segments):
            raise UserError(
                f"task.layout = 'packed' puts several texts into a row, and {type(built).__name__} would read them as "
                "one",
                todo="task.layout=texts",
            )
        if (longest := longest_of(built)) and self.config.length > longest:
            raise UserError(
                f"task.length = {self.config.length} is more than the {longest} tokens that the model can read",
                todo=f"task.length={longest}",
            )

    @property
    def first_phase(self) -> int:
        """The number of epochs before passages have their full length."""
        return self.config.short_epochs

    def passages(
        self, documents: Documents, pairing: Pairing, seed: int = 0, epoch: int = 0, length: int = 0
    ) -> Passages:
        """The passages of documents that fit into a length: that of the recipe, unless another is given."""
        vocabulary = self.text.vocabulary
        frame = vocabulary.frame_length if pairing == "none" else vocabulary.pair_frame_length
        return Passages.of(documents, (length or self.config.length) - frame, pairing, seed, epoch)

    def examples(self, corpus: Prepared, seed: int, epoch: int) -> Passages:
        """The passages of an epoch."""
        key = corpus.fingerprint, seed, epoch
        if self.kept is None or self.kept[0] != key:
            documents = Documents.of(corpus.epoch(seed, epoch))
            length = self.config.length_at(epoch)
            self.kept = key, self.passages(documents, self.config.pairs, seed, epoch, length)
        return self.kept[1]

    def plan(
        self, corpus: Prepared, *, tokens: int, sentences: int | None = None, multiple: int = 1, seed: int, epoch: int
    ) -> Sequence[Rows]:
        """Batches of passages of similar length, or of packed rows."""
        lengths, width = self.lengths(self.examples(corpus, seed, epoch)), self.config.length_at(epoch)
        if not self.one_shape:
            return Buckets(
                lengths[:, None], tokens=tokens, sentences=sentences, multiple=multiple, seed=seed, epoch=epoch
            )
        rows = min(tokens // width, sentences or tokens)
        if rows < 1:
            raise UserError(
                f"a row of {width} tokens does not fit into a batch of {tokens}",
                todo="raise train.batch_tokens or lower task.length",
            )
        return Packed(lengths, width=width, rows=rows, seed=seed, epoch=epoch)

    def lengths(self, passages: Passages) -> np.ndarray:
        """The length of each passage with its special tokens."""
        vocabulary = self.text.vocabulary
        found: np.ndarray = passages.lengths + vocabulary.frame_length + vocabulary.pair_separators * passages.is_pair
        return found

    def shapes(self, tokens: int, sentences: int | None) -> Shapes | None:
        """The shapes that batches are padded to where an engine needs few shapes."""
        row = self.config.short_length or self.config.length
        return Shapes(tokens, sentences, multiple=row if self.one_shape else 8)

    def prepare(self, rows: list[tuple[Any, ...]], random: np.random.Generator) -> Batch:
        """A padded batch with masked tokens."""
        batch = self.collate(rows)
        found = self.masker(batch.tokens.numpy(), batch.lengths.numpy(), self.config.rates, random)
        return replace(batch, tokens=torch.from_numpy(found.tokens), masked=torch.from_numpy(found.places))

    def collate_texts(self, passages: Sequence[Any]) -> Batch:
        """Passages as a padded batch before masking, one in each row, whatever the layout."""
        return replace(self.collate([(each,) for each in passages]), segments=None)

    def collate(self, rows: Sequence[tuple[Any, ...]]) -> Batch:
        """A padded batch before masking."""
        vocabulary = self.text.vocabulary
        begin, end = vocabulary.frame
        front = [] if begin is None else [begin]
        texts, types, numbers = [], [], []
        for row in rows:
            parts = []
            for first, second, _ in row:
                between = [end] * vocabulary.pair_separators if len(second) else []
                parts.append(np.concatenate((front, first, between, second, [end])).astype(np.int64))
                types.append(np.arange(len(parts[-1])) >= len(front) + len(first) + max(1, len(between)))
            texts.append(np.concatenate(parts))
            numbers.append(np.repeat(np.arange(1, len(parts) + 1), [len(part) for part in parts]))
        tokens, lengths = pad_rows(texts, vocabulary.pad)
        others: dict[str, Tensor] = {}
        if self.one_shape:
            others["segments"] = pad_rows(numbers)[0]
        elif self.pair_part is not None:
            others["token_types"] = pad_rows([each.astype(np.int64) for each in types])[0]
            others["classes"] = torch.tensor([label for ((_, _, label),) in rows])
        return Batch(tokens=tokens, lengths=lengths, **others)

    def counts(self, batch: Batch) -> dict[str, int]:
        """The number of masked tokens, of pairs, and of all tokens."""
        assert batch.masked is not None
        masked = int((batch.masked[:, 0] >= 0).sum())
        found = {"mlm": masked, "mlm_accuracy": masked}
        if self.pair_part is not None:
            assert batch.classes is not None
            found |= dict.fromkeys((self.pair_part, f"{self.pair_part}_accuracy"), int((batch.classes >= 0).sum()))
        return {**found, "tokens": int(batch.lengths.sum())}

    def loss(self, model: Any, batch: Batch, carry: Any) -> Loss:
        """The summed losses of the masked tokens and of the pairs; those that are right are reported."""
        return self.loss_of(model, model(batch), batch)

    def loss_of(self, model: Any, hidden: Float[Tensor, "batch time dim"], batch: Batch) -> Loss:
        """These losses, from the vectors of all tokens."""
        assert batch.masked is not None
        originals = batch.masked[:, 2]
        logits = model.output(masked_rows(hidden, batch.masked))
        sums = {"mlm": F.cross_entropy(logits, originals, ignore_index=-1, reduction="sum")}
        report = {"mlm_accuracy": (logits.argmax(dim=1) == originals).sum()}
        if self.pair_part is not None:
            assert batch.classes is not None
            told = model.next_sentence_logits(hidden)
            sums[self.pair_part] = F.cross_entropy(told, batch.classes, ignore_index=IGNORE, reduction="sum")
            report[f"{self.pair_part}_accuracy"] = (told.argmax(dim=1) == batch.classes).sum()
        return Loss(sums=sums, report=report)

    def updates(self, model: nn.Module) -> list[Group]:
        """One parameter group with all parameters."""
        return [Group(list(model.named_parameters()))]

    def shown(self, given: Prepared | Sequence[str], count: int, seed: int) -> list[dict[str, str]]:
        """The first examples of a corpus, or of texts, with their masks and classes."""
        return shown_examples(self, given, count, seed)

    def validate(self, model: nn.Module, corpus: Prepared, rows: Sequence[tuple[str, ...]], metric: str) -> list[Score]:
        """The loss and the accuracy on held-out text with fixed masks, beside the loss of word frequencies alone."""
        if metric not in ("loss", *(f"{part}_accuracy" for part in self.parts)):
            raise UserError(f"train.metric = {metric} needs pairs of that kind", todo="train.metric=loss")
        return held_out_scores(self, model, self.passages(Documents.of(corpus), self.config.pairs))
