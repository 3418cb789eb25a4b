"""Classification of pairs: does the second text follow from the first, does it say the same, does it answer it?

    mallang train bert task.name=pairs data.train=nli.tsv          # columns: first, second, label
    model.classify([("민수는 빵을 먹었다.", "민수는 먹었다.")])

An encoder reads both texts in one row with a segment for each (tasks/pair_layout.py); one with a level of sentences
reads them as the two sentences of a document. The head, the kinds of labels and the loss are those of classification.

Labels of pairs may follow from one text alone: writers of contradictions like "not" (Gururangan et al. 2018,
arXiv:1803.02324). So every score has a control: the same training run with `task.read=second`, which never sees the
first text. `mallang evaluate` shows its score beside the run's own, or says how to train it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from types import ModuleType
from typing import Any, Literal

import numpy as np
from jaxtyping import Float32
from torch import nn

from mallang.data.batch import Batch
from mallang.data.columns import Column, Kind, LabelSet
from mallang.data.prepared import Prepared
from mallang.data.sampler import Rows
from mallang.errors import UserError
from mallang.evaluation.label_predictions import label_scores, probability_scores
from mallang.evaluation.score import Score
from mallang.layers.encoded import Encoded
from mallang.models.contract import Encoder, reads_sentences
from mallang.runs.given import Given
from mallang.tasks import classification, classifier
from mallang.tasks.attribution import Method
from mallang.tasks.classification_options import LabelOptions
from mallang.tasks.features import check_mix, given_encoder
from mallang.tasks.pair_features import PairFeatures
from mallang.tasks.pair_layout import (
    Layout,
    PairLayout,
    as_pairs,
    check_orders,
    check_shared,
    encode_orders,
    is_pair,
    lengths_of,
)
from mallang.tasks.text_windows import TextWindows
from mallang.text.tokenizer import Tokenizer

__all__ = ["DEFAULTS", "SECTIONS", "Config", "Task", "Verbs"]

SECTIONS: tuple[str, ...] = ()
"""Sections of a recipe that this task reads besides those of every recipe."""
DEFAULTS: dict[str, dict[str, Any]] = {
    "data": {"max_length": 0, "max_ratio": 0.0},  # a long pair is an example too, and texts may differ in length
    "train": {"metric": "accuracy"},
    "schedule": {"name": "linear", "warmup": 0},
}
"""Defaults of a recipe of this task."""
FIRST, LABEL, SECOND = 0, 1, 2
"""The arrays of an example; those of the features of both texts come after them."""
SHARED = (*(each.name for each in fields(LabelOptions)), "features_mix", "features_l2")
"""The options that are those of classification."""


@dataclass(frozen=True, kw_only=True)
class Config(LabelOptions):
    """The kind of labels, the loss, the head, and how a pair is read."""

    read: Literal["both", "first", "second"] = "both"
    """second: the control without the first text, such as the premise; first: without the second one."""
    symmetric: bool = False
    """Whether both orders of a pair mean the same: training then reads each pair in a random order."""
    both_orders: bool = False
    """Whether each pair is read in both orders and the two vectors are added, as GPT-1 does where neither is first."""
    max_tokens: int = 0
    """Maximum number of tokens of a pair, special tokens included, cut from the longer text; 0: all that are read."""
    features_mix: bool = False
    """given.features: mix all layers of the other encoder in learned shares; otherwise its last layer is read."""
    features_l2: float = 0.0
    """Weight of an L2 penalty on that mix, which pulls it towards the mean of the layers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_mix(self)
        if self.max_tokens < 0:
            raise ValueError(f"max_tokens must be 0 or more, but is {self.max_tokens}")
        if self.symmetric and self.read != "both":
            raise ValueError(f"symmetric has no effect on read = {self.read!r}")
        if self.both_orders:
            check_orders(self, symmetric=self.symmetric)
            if self.read != "both":
                raise ValueError(f"both_orders has no effect on read = {self.read!r}")


class Task(classification.Task):
    """Learn p(label | first text, second text) from labeled pairs."""

    columns = ("first", "second", "label")

    def __init__(
        self,
        config: Config,
        tokenizers: Mapping[str, Tokenizer],
        labels: Mapping[str, LabelSet],
        given: Mapping[str, Given] | None = None,
    ) -> None:
        text = check_shared(tokenizers["first"], tokenizers["second"])
        shared = {name: getattr(config, name) for name in SHARED}
        self.pair_config = config
        super().__init__(classification.Config(**shared), {"text": text}, labels, given)
        self.tokenizers = tokenizers
        joined: Layout = "orders" if config.both_orders else "joined"
        self.layout = PairLayout(text.vocabulary, joined if config.read == "both" else config.read, config.max_tokens)

    @classmethod
    def kinds(cls, config: Any) -> Mapping[str, Kind]:
        """The kind of each column that is not plain text."""
        return {"label": "labels" if config.kind == "multi" else "label"}

    def read_features(self, given: Mapping[str, Given] | None) -> PairFeatures | None:
        """The features of the texts that are read, if they are given."""
        found = given_encoder(given, self.config)
        return None if found is None else PairFeatures(found, self.config, self.text, self.pair_config.read)

    def arrays(self) -> Sequence[Column]:
        """The tokens of the first text, the label, the tokens of the second text; both again for the features."""
        features = [] if self.features is None else self.features.arrays()
        return [Column(0, self.text), Column(2, self.labels, is_text=False), Column(1, self.text), *features]

    def build(self, model: ModuleType, config: Any) -> nn.Module:
        """The encoder with a head for these labels, or a model that is a classifier itself."""
        if reads_sentences(model.Model):
            if self.pair_config.both_orders:
                raise UserError(
                    "a model that reads a pair as two sentences does not read it in both orders",
                    todo="task.symmetric=true",
                )
            self.layout.as_documents = True
            self.layout.layout = "apart" if self.pair_config.read == "both" else self.pair_config.read
        built = super().build(model, config)
        self.layout.limit(self.longest(built))
        self.windows = TextWindows()
        return built

    def encoded(self, encoder: Any, batch: Batch) -> Encoded:
        """What an encoder makes of a batch."""
        return encode_orders(encoder, batch) if self.pair_config.both_orders else super().encoded(encoder, batch)

    def plan(
        self, corpus: Prepared, *, tokens: int, sentences: int | None = None, multiple: int = 1, seed: int, epoch: int
    ) -> Sequence[Rows]:
        """Batches of pairs of similar length."""
        lengths = corpus.epoch(seed, epoch).lengths[:, [FIRST, SECOND]]
        return self.layout.plan(lengths, tokens, sentences, multiple=multiple, seed=seed, epoch=epoch)

    def batches(self, examples: Sequence[Sequence[Any]], tokens: int) -> Iterator[tuple[list[int], Batch]]:
        """All pairs in batches for inference, each with their numbers; those of similar length share a batch."""
        for group in self.layout.groups(self.lengths(examples), tokens):
            yield group, self.collate([examples[place] for place in group])

    def prepare(self, rows: list[tuple[Any, ...]], random: np.random.Generator) -> Batch:
        """A padded batch; with word dropout some tokens are `<unk>`, and symmetric pairs are in a random order."""
        examples = [example for (example,) in rows]
        if self.pair_config.symmetric:
            swapped = random.random(len(examples)) < 0.5
            examples = [
                (*each[:3][::-1], *each[3:][::-1]) if swap else each
                for each, swap in zip(examples, swapped, strict=True)
            ]
        if share := self.config.word_dropout:
            unk = self.text.vocabulary.unk
            examples = [
                (*(np.where(random.random(len(ids)) < share, unk, ids) if place in (FIRST, SECOND) else ids
                   for place, ids in enumerate(each)),)
                for each in examples
            ]  # fmt: skip
        return self.collate(examples)

    def collate(self, examples: Sequence[Sequence[Any]]) -> Batch:
        """A padded batch of examples, each with the arrays that `arrays` names."""
        fields = self.layout.fields([(each[FIRST], each[SECOND]) for each in examples])
        if self.features is not None:
            fields |= self.features.fields([each[3:] for each in examples])
        return Batch(**fields, **self.label_fields([each[LABEL] for each in examples]))

    def lengths(self, examples: Sequence[Sequence[Any]]) -> Any:
        """The lengths of both texts of every example."""
        return lengths_of([(each[FIRST], each[SECOND]) for each in examples])

    def note_cut(self, corpus: Prepared) -> str:
        """A sentence about the pairs of a prepared corpus that lose tokens; empty where none does."""
        return self.layout.note_cut(corpus.lengths[:, [FIRST, SECOND]])


class Verbs(classifier.Verbs):
    """A trained classifier of pairs."""

    task_name = "pairs"
    verbs = ("classify", "embed", "evaluate")
    task: Task
    reads_pairs = True
    embeds_pairs = True

    def classify(self, texts: Any, *, calibrated: bool = True, fitted_thresholds: bool = False) -> Any:
        """The label of a pair of texts, or of each, with probabilities.

        These are calibrated if the run has a temperature; labels are the same without. With `fitted_thresholds` several
        labels are decided on by the thresholds that were fitted with it, and not by 0.5.
        """
        found = self.classify_given(as_pairs(texts), calibrated=calibrated, fitted_thresholds=fitted_thresholds)
        return found[0] if is_pair(texts) else found

    def examples(self, texts: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Pairs as examples without a known label."""
        pairs = as_pairs(texts)
        sides = [self.task.text.encode_batch([pair[place] for pair in pairs]) for place in (0, 1)]
        arrays = [[np.array(ids, dtype=np.int64) for ids in side] for side in sides]
        nothing = np.zeros(0 if self.task.config.kind == "multi" else 1, dtype=np.int64)
        features: Any = [()] * len(pairs)
        if isinstance(self.task.features, PairFeatures):
            features = self.task.features.examples([pair[0] for pair in pairs], [pair[1] for pair in pairs])
        return [(*row[:1], nothing, *row[1:2], *more) for *row, more in zip(*arrays, features, strict=True)]

    def note_cut(self, pairs: Sequence[Any]) -> str:
        """A sentence about the pairs that the model cannot read to their ends; empty where it can."""
        return self.task.layout.note_cut(self.task.lengths(self.examples(pairs))) if pairs else ""

    def embed(self, texts: Any, *, words: bool = False) -> Float32[np.ndarray, "*texts dim"]:
        """The vector of a pair before the head, or one row per pair; with `words` the embeddings of words."""
        if words:
            return super().embed(texts, words=True)
        if not isinstance(self.encoder, Encoder):
            raise UserError(f"{type(self.encoder).__name__} has no vector of a pair", todo="take an encoder")
        found = self.vectors(as_pairs(texts))
        return found[0] if is_pair(texts) else found

    def attribution(self, texts: Any, *, method: Method = "integrated", label: str | None = None) -> Any:
        """How much every token of both texts adds to the logit of a label: of the predicted one by default."""
        from mallang.tasks.class_attribution import attributions

        found = attributions(self, as_pairs(texts), method, label)
        return found[0] if is_pair(texts) else found

    @property
    def control(self) -> tuple[str, ...]:
        """The recipe values that make the control of this run, the same without the first text; none: it is one."""
        config = self.task.pair_config
        if config.read != "both":
            return ()
        orders = [f"task.{name}=false" for name in ("symmetric", "both_orders") if getattr(config, name)]
        return ("task.read=second", *orders)

    def evaluate(self, rows: Sequence[tuple[str, ...]], **options: Any) -> tuple[list[Score], list[str]]:
        """All scores, and the label of every row."""
        if options := {name: value for name, value in options.items() if value is not None}:
            raise UserError(f"{next(iter(options))} has no effect on a classifier", todo="leave it out")
        found = self.predictions([row[:2] for row in rows], [row[2] for row in rows])
        return [*label_scores(found), *probability_scores(found)], found.labels(found.outputs())
