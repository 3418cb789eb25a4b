"""Classification: a text in; one class out, or several, or a rating on an ordered scale.

    single      exactly one class: softmax and cross-entropy
    multi       any number of classes: a sigmoid and binary cross-entropy for each
    ordinal     ordered classes, such as stars: one threshold between each two neighbors on a common scale
                (CORAL, Cao et al. 2020, arXiv:1901.07884)

The head of the task is put on any encoder; a model that is a classifier itself has none. With `documents` a text is
read sentence by sentence, as hierarchical models need it. With `bag_buckets` a hashed bag of n-grams adds its logits to
those of the head (layers/hashed_bag.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mallang.data.batch import IGNORE, Batch, pad_rows, pad_texts
from mallang.data.columns import Column, Kind, LabelSet, Segments, Starts, Truncated
from mallang.data.documents import document_sizes, sentence_rows
from mallang.data.prepared import Prepared
from mallang.data.resegmented import Resegmented, dropouts_of
from mallang.data.sampler import Buckets, Rows, by_length
from mallang.data.symbols import Symbols
from mallang.errors import UserError
from mallang.evaluation.score import Score
from mallang.kernels.ngram_rows import NgramIndex
from mallang.layers.encoded import Encoded
from mallang.layers.hashed_bag import HashedBag, hashed_ngrams
from mallang.layers.head import ClassificationHead, OrdinalHead, mean_of
from mallang.models.contract import Classifier, Encoder, encode_text, longest_of, reads_sentences
from mallang.runs.given import Given
from mallang.tasks.classification_options import Options
from mallang.tasks.classifier import Verbs, predict, scores_of
from mallang.tasks.contract import Better, Group, Loss
from mallang.tasks.features import RECEIVES, Features, features_of
from mallang.tasks.finetuning import (
    FineTuned,
    head_dims,
    mixed,
    put_head,
    refuse_tuning,
    summed,
    symmetric_divergence,
    with_penalties,
    with_r_drop,
)
from mallang.tasks.language_loss import check_language_model, language_loss
from mallang.tasks.text_windows import TextWindows
from mallang.text.tokenizer import Tokenizer

__all__ = ["DEFAULTS", "SECTIONS", "Config", "Task", "Verbs"]

SECTIONS: tuple[str, ...] = ()
"""Sections of a recipe that this task reads besides those of every recipe."""
DEFAULTS: dict[str, dict[str, Any]] = {
    "data": {"max_length": 0},  # a long text is an example too
    "train": {"metric": "accuracy"},
    "schedule": {"name": "linear", "warmup": 0},
}
"""Defaults of a recipe of this task."""
BAG = "head.bag.table.weight"
"""The name of the weights of a bag."""


@dataclass(frozen=True, kw_only=True)
class Config(Options):
    """The kind of labels, the loss, and the head."""


class Task(FineTuned):
    """Learn p(label | text) from labeled texts."""

    config: Config
    columns: tuple[str, ...] = ("text", "label")
    unread: tuple[str, ...] = ()
    open_ended = False
    can_compile = True
    parts: tuple[str, ...] = ("loss",)
    metrics: Mapping[str, Better] = {"loss": "lower", "accuracy": "higher", "macro_f1": "higher"}

    def __init__(
        self,
        config: Config,
        tokenizers: Mapping[str, Tokenizer],
        labels: Mapping[str, LabelSet],
        given: Mapping[str, Given] | None = None,
    ) -> None:
        self.config, self.tokenizers, self.text = config, tokenizers, tokenizers["text"]
        self.features = self.read_features(given)
        self.labels = labels["label"]
        self.parts = ("loss", "lm") if config.lm_weight else ("loss",)
        self.segments, self.windows = Segments(self.text, "document"), TextWindows()
        if config.documents and self.text.domains:
            raise UserError(
                "data.domains puts a tag before a text, and documents have no place for it",
                todo="leave out data.domains, or set task.documents=false",
            )
        self.dropouts = dropouts_of([self.text], config.bpe_dropout) if config.bpe_dropout else []
        """What cuts the text again in every epoch."""
        self.bag = NgramIndex(1, config.bag_orders, buckets=config.bag_buckets) if config.bag_buckets else None
        counts = np.maximum(1, np.array(self.labels.counts or [1] * len(self.labels), dtype=np.float32))
        self.weights = torch.from_numpy(counts.sum() / (len(counts) * counts))
        """Weights of the classes whose mean over the training texts is 1."""

    @classmethod
    def kinds(cls, config: Config) -> Mapping[str, Kind]:
        """The kind of each column that is not plain text."""
        label: Kind = "labels" if config.kind == "multi" else "label"
        return {"label": label, **({"text": "document"} if config.documents else {})}

    @classmethod
    def receives(cls) -> Mapping[str, str]:
        """The names of [given] that it accepts."""
        return RECEIVES

    def read_features(self, given: Mapping[str, Given] | None) -> Features | None:
        """The features of texts, if they are given."""
        return features_of(given, "document" if self.config.documents else "text", self.config, self.text)

    def arrays(self) -> Sequence[Column]:
        """The tokens, the label, of documents the starts of their sentences; what features and a bag need."""
        whole = self.segments if self.config.documents else self.text
        tokens = Truncated(self.text, self.config.max_tokens) if self.config.max_tokens else whole
        found = [Column(0, tokens), Column(1, self.labels, is_text=False)]
        if self.config.documents:
            found.append(Column(0, Starts(self.segments), is_text=False))
        if self.features is not None:
            found += self.features.arrays()
        if self.bag is not None:
            kind: Kind = "document" if self.config.documents else "text"
            found.append(Column(0, Symbols(self.config.bag_unit, self.text.config, kind), is_text=False))
        return found

    def build(self, model: ModuleType, config: Any) -> nn.Module:
        """The encoder with a head for these labels, or a model that is a classifier itself."""
        name, kind = model.__name__.rsplit(".", 1)[-1], model.Model
        if issubclass(kind, Classifier):
            if self.config.kind == "ordinal":
                raise UserError(
                    f"task.kind=ordinal needs a head with ordered thresholds, and {name} has none",
                    todo="task.kind=single, or an encoder, such as model.name=cnn",
                )
            refuse_tuning(self.config, f"{name} has none")
            if self.config.head_dropout or self.bag or self.config.lm_weight:
                raise UserError(f"task.head_dropout, lm_weight and bag_buckets are about a head, and {name} has none")
            if self.features is not None:
                raise UserError(f"given.features are read by a head, and {name} has none", todo="leave them out")
            whole: nn.Module = kind(config, self.text.vocabulary, len(self.labels))
            self.set_windows(whole)
            return whole
        if not issubclass(kind, Encoder):
            raise UserError(
                f"{name} encodes no text, so it cannot classify one",
                todo="take an encoder, such as model.name=cnn or model.name=rnn_classifier",
            )
        if self.config.documents and not reads_sentences(kind):
            raise UserError(
                f"task.documents is for models with a level of sentences, and {name} has none",
                todo="task.documents=false, or model.name=han",
            )
        vocabularies = [self.text.vocabulary] * (2 if kind.reads_source else 1)
        encoder = kind(config, *vocabularies)
        self.set_windows(encoder)
        if self.config.lm_weight:
            check_language_model(encoder)
        dim, features, mix = head_dims(encoder, self.config).pooled, None, None
        if self.features is not None:
            dim, features, mix = dim + self.features.dim, self.features.module(), self.features.mix()
        is_ordinal = self.config.kind == "ordinal"
        make, outputs = (OrdinalHead, 1) if is_ordinal else (ClassificationHead, len(self.labels))
        how = self.config.bag_dropout, self.config.bag_loss
        bag = None if self.bag is None else HashedBag(self.bag.buckets, outputs, *how)
        head = make(dim, len(self.labels), self.config.head_dropout, bag)
        return put_head(encoder, head, self.config, features, mix)

    def set_windows(self, model: nn.Module) -> None:
        """Read a text that is longer than the positions of a model in windows."""
        if not self.config.documents:
            frame = self.text.vocabulary.frame_length
            self.windows = TextWindows.of(longest_of(model), frame, self.config.long_texts)

    def examples(self, corpus: Prepared, seed: int, epoch: int) -> Any:
        """The texts that an epoch reads; with BPE-dropout tokenized again."""
        drawn = corpus.epoch(seed, epoch)
        if not self.dropouts:
            return drawn
        longest = corpus.account.filters.max_length or int(corpus.lengths[:, 0].max())
        others = [None] * (len(self.arrays()) - 1)  # labels stay as they are
        return Resegmented(drawn, [*self.dropouts, *others], longest=longest, seed=seed, epoch=epoch)

    def plan(
        self, corpus: Prepared, *, tokens: int, sentences: int | None = None, multiple: int = 1, seed: int, epoch: int
    ) -> Sequence[Rows]:
        """Batches of texts of similar length; documents by their sentences and their tokens."""
        examples, rows, frame = corpus.epoch(seed, epoch), None, self.text.vocabulary.frame_length
        lengths = self.windows.widths(examples.lengths[:, [0]]) + frame
        if self.config.documents:
            rows, widths = document_sizes(examples, 2, self.config.max_words, self.config.max_sentences)
            lengths = widths[:, None] + frame
        return Buckets(
            lengths, tokens=tokens, sentences=sentences, rows=rows, multiple=multiple, long_alone=True,
            seed=seed, epoch=epoch,
        )  # fmt: skip

    def batches(self, examples: Sequence[Sequence[Any]], tokens: int) -> Iterator[tuple[list[int], Batch]]:
        """All examples in batches for inference, each with their numbers; those of similar length share a batch."""
        rows, frame = None, self.text.vocabulary.frame_length
        lengths = [len(ids) + frame for ids, *_ in examples]
        if self.config.documents:
            found = [self.rows_of(ids, starts) for ids, _, starts, *_ in examples]
            rows, lengths = [len(each) for each in found], [max(map(len, each)) + frame for each in found]
        for group in by_length(lengths, tokens, rows=rows):
            yield group, self.collate([examples[place] for place in group])

    def in_windows(self, examples: Sequence[Sequence[Any]]) -> tuple[Sequence[Sequence[Any]], list[int]]:
        """The windows of examples as examples, with what else these have; and the number of windows of each."""
        if not self.windows.most:
            return examples, [1] * len(examples)
        windows = [self.windows.parts(ids) for ids, *_ in examples]
        parts = [(part, *own[1:]) for own, each in zip(examples, windows, strict=True) for part in each]
        return parts, [len(each) for each in windows]

    def rows_of(self, ids: np.ndarray, starts: np.ndarray) -> list[np.ndarray]:
        """The tokens of each row of a document."""
        return sentence_rows(ids, starts, self.config.max_words, self.config.max_sentences)

    def prepare(self, rows: list[tuple[Any, ...]], random: np.random.Generator) -> Batch:
        """A padded batch, of a long text one window; with word dropout some tokens are `<unk>`."""
        examples = [(self.windows.drawn(ids, random), *others) for ((ids, *others),) in rows]
        if self.config.word_dropout:
            share, unk = self.config.word_dropout, self.text.vocabulary.unk
            examples = [(np.where(random.random(len(ids)) < share, unk, ids), *others) for ids, *others in examples]
        return self.collate(examples)

    def collate(self, examples: Sequence[Sequence[Any]]) -> Batch:
        """A padded batch of examples, each with the arrays that `arrays` names."""
        others, vocabulary = self.label_fields([label for _, label, *_ in examples]), self.text.vocabulary
        if self.features is not None:
            place = 3 if self.config.documents else 2
            others |= self.features.fields([example[place : place + 1] for example in examples])
        if self.bag is not None:
            others["ngrams"] = hashed_ngrams([each[-1] for each in examples], self.bag)
        if not self.config.documents:
            tokens, lengths = pad_texts([ids for ids, *_ in examples], vocabulary)
            return Batch(tokens=tokens, lengths=lengths, **others)
        sentences: list[np.ndarray] = []
        rows: list[np.ndarray] = []
        for ids, _, starts, *_ in examples:
            found = self.rows_of(ids, starts)
            rows.append(np.arange(len(sentences), len(sentences) + len(found)))
            sentences += found
        tokens, lengths = pad_texts(sentences, vocabulary)
        return Batch(tokens=tokens, lengths=lengths, sentences=pad_rows(rows, -1)[0], **others)

    def label_fields(self, labels: Sequence[Any]) -> dict[str, Tensor]:
        """The labels of examples as fields of a batch."""
        if self.config.kind != "multi":
            return {"classes": torch.tensor([int(label[0]) for label in labels])}
        sets = torch.zeros(len(labels), len(self.labels))
        for row, label in zip(sets, labels, strict=True):
            row[list(label)] = 1.0
        return {"class_sets": sets}

    def counts(self, batch: Batch) -> dict[str, int]:
        """The number of texts with a label, and of tokens."""
        found = {"loss": int(is_labeled(batch).sum()), "tokens": int(batch.lengths.sum())}
        if self.config.lm_weight:
            found |= dict.fromkeys(("nll", "accuracy", "divergence"), found["loss"])
            found |= dict.fromkeys(("lm", "lm_nll"), int((batch.lengths - 1).sum()))
        return found

    def loss(self, model: Any, batch: Batch, carry: Any) -> Loss:
        """The summed loss of the texts; with R-Drop that of two passes, which should agree."""
        asked, independent = is_labeled(batch), self.config.kind != "single"

        def divergence(first: Tensor, second: Tensor) -> Tensor:
            return summed(symmetric_divergence(first, second, independent=independent), asked)

        return with_r_drop(self.config.r_drop, model, lambda: self.one_pass(model, batch), divergence)

    def one_pass(self, model: Any, batch: Batch) -> tuple[Loss, Float[Tensor, "examples outputs"]]:
        """The summed loss of the texts, with the penalties of the model, and the logits; correct texts are reported."""
        encoded = None if isinstance(model, Classifier) else self.encoded(model.model, batch)
        experts, penalties = self.experts(model, batch, encoded)
        logits = mean_of(experts)
        losses, right = self.losses(logits, batch)
        if len(experts) > 1:
            losses = torch.stack([self.losses(logits, batch)[0] for logits in experts]).mean(dim=0)
        loss = losses.sum()
        report = {"nll": loss.detach(), "accuracy": right.sum()}
        sums = {"loss": with_penalties(loss, report, penalties, is_labeled(batch))}
        if self.config.lm_weight and encoded is not None:
            of_words, report["lm_nll"] = language_loss(model.model, encoded, batch)
            sums["lm"] = self.config.lm_weight * of_words
        return Loss(sums=sums, report=report), logits

    def logits(self, model: Any, batch: Batch) -> tuple[Float[Tensor, "examples outputs"], Mapping[str, Tensor]]:
        """The logits of a batch, and the penalties that the encoder offers."""
        experts, penalties = self.experts(model, batch)
        return mean_of(experts), penalties

    def experts(
        self, model: Any, batch: Batch, encoded: Encoded | None = None
    ) -> tuple[list[Float[Tensor, "examples outputs"]], Mapping[str, Tensor]]:
        """All logits of a batch that have a loss of their own, and the penalties that the encoder offers."""
        if isinstance(model, Classifier):
            return [model.classify(batch)], {}
        encoded = mixed(model, self.encoded(model.model, batch) if encoded is None else encoded)
        pooled, penalties = encoded.pooled, encoded.penalties
        if self.features is not None:
            pooled = self.features.join(pooled, model.features, batch, model.features_mix)
            penalties = {**penalties, **self.features.penalties(model.features_mix, len(pooled))}
        return model.head.experts(pooled, batch.ngrams), penalties

    def encoded(self, encoder: Any, batch: Batch) -> Encoded:
        """What an encoder makes of a batch."""
        return encode_text(encoder, batch)

    def losses(self, logits: Tensor, batch: Batch) -> tuple[Float[Tensor, " examples"], Tensor]:
        """The loss of each example, 0 where it has no label, and whether the prediction is right."""
        logits, scale = logits.float(), self.loss_weights(logits.device)
        if self.config.kind == "multi":
            asked, target = is_labeled(batch), target_sets(batch).clamp(min=0.0)
            each = F.binary_cross_entropy_with_logits(logits, target, scale, reduction="none").sum(dim=1)
            return torch.where(asked, each, 0.0), asked & ((logits > 0) == (target > 0.5)).all(dim=1)
        assert batch.classes is not None
        classes = batch.classes
        if self.config.kind == "ordinal":
            return ordinal_loss(logits, classes), ((logits > 0).sum(dim=1) == classes)
        smoothing = self.config.label_smoothing
        losses = F.cross_entropy(
            logits, classes, scale, ignore_index=IGNORE, reduction="none", label_smoothing=smoothing
        )
        return losses, logits.argmax(dim=1) == classes

    def loss_weights(self, device: torch.device) -> Tensor | None:
        """The weights of the classes in the loss, if there are any."""
        if self.config.class_weights == "none":
            return None
        self.weights = self.weights.to(device)  # once: a CUDA graph cannot copy from the CPU
        return self.weights

    def updates(self, model: nn.Module) -> list[Group]:
        """All parameters that are trained; those of a bag are a group of their own."""
        groups = super().updates(model)
        if self.bag is None:
            return groups
        bag = [pair for group in groups for pair in group.parameters if pair[0] == BAG]
        network = [Group([pair for pair in each.parameters if pair[0] != BAG], each.scale) for each in groups]
        return [*network, Group(bag, self.config.bag_learning_rate_scale)]

    def validate(self, model: nn.Module, corpus: Prepared, rows: Sequence[tuple[str, ...]], metric: str) -> list[Score]:
        """The mean loss, accuracy and macro F1 on held-out texts."""
        examples = [corpus[place] for place in range(len(corpus))]
        found = predict(self, model, examples)
        return scores_of(self, found, self.collate_labels(examples))

    def collate_labels(self, examples: Sequence[Sequence[Any]]) -> Int[np.ndarray, examples * classes]:
        """The gold labels of examples: a number each, or a row of 0 and 1."""
        (field,) = self.label_fields([label for _, label, *_ in examples]).values()
        return field.long().numpy()

    def note_cut(self, corpus: Prepared) -> str:
        """A sentence about the texts of a prepared corpus that are longer than a window; empty where none is."""
        return self.windows.note(corpus.lengths[:, 0].tolist(), training=True)

    def longest(self, model: nn.Module) -> int | None:
        """The maximum number of tokens that the model reads."""
        return longest_of(model)


def is_labeled(batch: Batch) -> Bool[Tensor, " examples"]:
    """Whether each example has a label; those that fill up a batch have none."""
    return (batch.classes if batch.classes is not None else target_sets(batch)[:, 0]) != IGNORE


def target_sets(batch: Batch) -> Float[Tensor, "examples classes"]:
    """The classes that apply to each example."""
    assert batch.class_sets is not None
    return batch.class_sets


def ordinal_loss(logits: Float[Tensor, "examples thresholds"], classes: Int[Tensor, " examples"]) -> Tensor:
    """The sum over thresholds of the binary cross-entropy of lying above; 0 for examples without a label."""
    places = torch.arange(logits.shape[1], device=logits.device)
    above = (classes[:, None] > places).float()
    losses = F.binary_cross_entropy_with_logits(logits, above, reduction="none").sum(dim=1)
    return torch.where(classes != IGNORE, losses, 0.0)
