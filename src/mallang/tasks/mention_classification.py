"""Classification of mentions: a text with a marked mention in, its types out; or with two, the relation between them.

    entity      <cls> … <entity> Paris <entity> …  <sep>                            types of Paris (entity typing)
    relation    <cls> … <head> Paris <head> … <tail> France <tail> … <sep>          capital of (relation classification)

    mallang classify runs/ernie-miniworld "[[Paris|Q90]] is large."

The encoder reads the marks as tokens, and its vector of the text goes to the head (Zhang et al. 2019, section 3.4). One
that reads entities gets those of the links, with the vectors of `given.entities`; `task.read` makes the controls. The
head, the kinds of labels and the loss are those of classification. Long texts are read in a window around the mentions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import ModuleType
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool
from torch import nn

from mallang.data.batch import Batch, pad_texts
from mallang.data.columns import Column, Kind, LabelSet
from mallang.data.linked_text import LINK, Links, Mentions, as_cells, with_marks
from mallang.data.prepared import Prepared
from mallang.data.sampler import Buckets, Rows, by_length
from mallang.errors import UserError
from mallang.evaluation.label_predictions import LabelPredictions, label_scores, probability_scores
from mallang.evaluation.score import Score
from mallang.models.contract import Classifier, reads_sentences
from mallang.runs.given import Given
from mallang.tasks import classification, classifier
from mallang.tasks.classification_options import LabelOptions
from mallang.tasks.contract import Better
from mallang.tasks.entity_links import RECEIVES, GivenEntities, Read, overlaps
from mallang.tasks.text_windows import TextWindows
from mallang.text.tokenizer import Tokenizer

__all__ = ["DEFAULTS", "SECTIONS", "Config", "Task", "Verbs"]

SECTIONS: tuple[str, ...] = ()
"""Sections of a recipe that this task reads besides those of every recipe."""
DEFAULTS: dict[str, dict[str, Any]] = {
    "data": {"max_length": 0},  # a window of a long text is read
    "train": {"metric": "micro_f1"},
    "schedule": {"name": "linear", "warmup": 0},
}
"""Defaults of a recipe of this task."""
MARKS: dict[str, tuple[str, ...]] = {"entity": ("entity",), "relation": ("head", "tail")}
"""The names of the special tokens around the mentions."""
TEXT, LABEL, MENTIONS, LINKS = 0, 1, 2, 3
"""The arrays of an example."""


@dataclass(frozen=True, kw_only=True)
class Config(LabelOptions):
    """The marks, the entities, the kind of labels, the loss, and the head."""

    marks: Literal["entity", "relation"] = "entity"
    """entity: one mention, whose types are asked for; relation: the head and the tail of a relation."""
    read: Read = "both"
    """What the encoder reads: tokens and entities; the text or the entities alone; or shuffled entities (controls)."""
    confidence: float = 0.3
    """The least confidence of a link that is read."""
    max_tokens: int = 0
    """Maximum number of tokens of a text, special tokens included, around its mentions; 0: all that the model reads."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.confidence <= 1.0:
            raise ValueError(f"confidence must lie between 0 and 1, but is {self.confidence}")
        if self.max_tokens < 0:
            raise ValueError(f"max_tokens must be 0 or more, but is {self.max_tokens}")
        if self.kind == "ordinal":
            raise ValueError("kind = 'ordinal' is for ratings of texts: types and relations have no order")


class Task(classification.Task):
    """Learn p(label | text, mentions, entities) from labeled mentions."""

    columns = ("text", "mentions", "links", "label")
    metrics: Mapping[str, Better] = {"loss": "lower", "accuracy": "higher", "macro_f1": "higher", "micro_f1": "higher"}

    def __init__(
        self,
        config: Config,
        tokenizers: Mapping[str, Tokenizer],
        labels: Mapping[str, LabelSet],
        given: Mapping[str, Given] | None = None,
    ) -> None:
        shared = {each.name: getattr(config, each.name) for each in fields(LabelOptions)}
        super().__init__(classification.Config(**shared), tokenizers, labels)
        self.mention_config, self.entities = config, GivenEntities(given, config.read)
        self.marks = [self.text.vocabulary.special(name) for name in MARKS[config.marks]]
        self.most = config.max_tokens

    @classmethod
    def kinds(cls, config: Any) -> Mapping[str, Kind]:
        """The kind of each column that is not plain text."""
        return {"mentions": "mentions", "links": "links", "label": "labels" if config.kind == "multi" else "label"}

    @classmethod
    def receives(cls) -> Mapping[str, str]:
        """The names of [given] that it accepts."""
        return RECEIVES

    @classmethod
    def special_tokens(cls, config: Config) -> tuple[str, ...]:
        """The marks around mentions."""
        return MARKS[config.marks]

    def arrays(self) -> Sequence[Column]:
        """The tokens, the label, first and last token of each mention; and those of each link with its entity."""
        mentions = Mentions(self.text, len(self.marks))
        links = Links(self.text, self.entities.tokenizer, self.mention_config.confidence)
        return [
            Column(0, self.text),
            Column(3, self.labels, is_text=False),
            Column(1, mentions, is_text=False, beside=(0,)),
            Column(2, links, is_text=False, beside=(0,), may_be_empty=True),
        ]

    def build(self, model: ModuleType, config: Any) -> nn.Module:
        """The encoder with a head for these labels, and with the given entities."""
        name = model.__name__.rsplit(".", 1)[-1]
        if issubclass(model.Model, Classifier):
            raise UserError(
                f"{name} encodes no text, so it reads no mention in one",
                todo="take an encoder, such as model.name=ernie",
            )
        if reads_sentences(model.Model):
            raise UserError(
                f"{name} reads documents in sentences, and no mention in one",
                todo="take an encoder, such as model.name=ernie",
            )
        built: Any = super().build(model, config)
        self.windows = TextWindows()
        self.entities.give_to(built.model)
        longest = self.longest(built)
        self.most = min(self.most, longest or self.most) if self.most else longest or 0
        if self.most and self.room < 1:
            raise UserError(
                f"texts of {self.most} tokens have no room for a mention and {self.frame} special tokens",
                todo="raise task.max_tokens, or model.max_length",
            )
        return built  # type: ignore[no-any-return]

    @property
    def frame(self) -> int:
        """The number of special tokens of a text, marks included."""
        return self.text.vocabulary.frame_length + 2 * len(self.marks)

    @property
    def room(self) -> int:
        """The number of tokens of a text that are read, without special ones."""
        return self.most - self.frame

    def widths(self, lengths: Any) -> Any:
        """The tokens that are read of texts of so many tokens, special ones included."""
        whole = np.asarray(lengths) + self.frame
        return np.minimum(whole, self.most) if self.most else whole

    def plan(
        self, corpus: Prepared, *, tokens: int, sentences: int | None = None, multiple: int = 1, seed: int, epoch: int
    ) -> Sequence[Rows]:
        """Batches of texts of similar length."""
        widths = self.widths(corpus.epoch(seed, epoch).lengths[:, [TEXT]])
        return Buckets(
            widths, tokens=tokens, sentences=sentences, multiple=multiple, long_alone=True, seed=seed, epoch=epoch
        )

    def batches(self, examples: Sequence[Sequence[Any]], tokens: int) -> Iterator[tuple[list[int], Batch]]:
        """All examples in batches for inference, each with their numbers; those of similar length share a batch."""
        for group in by_length(self.widths([len(each[TEXT]) for each in examples]).tolist(), tokens):
            yield group, self.collate([examples[place] for place in group])

    def collate(self, examples: Sequence[Sequence[Any]]) -> Batch:
        """A padded batch of examples: marks stand around the mentions, and entities where their names begin."""
        vocabulary, rows, links = self.text.vocabulary, [], []
        before = int(vocabulary.frame[0] is not None)
        for ids, _, mentions, linked in map(self.window, examples):
            if self.mention_config.read == "entities":
                ids = np.full_like(ids, vocabulary.unk)
            marked, places = with_marks(ids, mentions, self.marks)
            rows.append(marked)
            moved = np.reshape(linked, (-1, LINK)).copy()
            moved[:, 0] = places[moved[:, 0]] + before
            links.append(moved)
        tokens, lengths = pad_texts(rows, vocabulary)
        labels = self.label_fields([each[LABEL] for each in examples])
        return Batch(tokens=tokens, lengths=lengths, **labels, **self.entities.fields(links))

    def window(self, example: Sequence[Any]) -> Sequence[Any]:
        """The part of a text that is read: around its mentions, whose far ends are cut where they do not fit."""
        ids, label, mentions, links = example
        if not self.most or len(ids) <= self.room:
            return example
        first, last = int(mentions.min()), int(mentions.max())
        begin = max(0, min(first, (first + last + 1 - self.room) // 2, len(ids) - self.room))
        table = np.reshape(links, (-1, LINK)) - np.array([begin, begin, 0])
        kept = (table[:, 0] >= 0) & (table[:, 0] < self.room)
        inside = np.clip(mentions - begin, 0, self.room - 1)
        return ids[begin : begin + self.room], label, inside, table[kept].reshape(-1)

    def note_cut(self, corpus: Prepared) -> str:
        """A sentence about the texts of a prepared corpus that lose tokens; empty where none does."""
        cut = int((corpus.lengths[:, TEXT] > self.room).sum()) if self.most else 0
        told = f"{cut:,} of {len(corpus):,} texts are longer than {self.most} tokens"
        return f"{told}: a window around their mentions is read" if cut else ""

    def validate(self, model: nn.Module, corpus: Prepared, rows: Sequence[tuple[str, ...]], metric: str) -> list[Score]:
        """The mean loss, accuracy, macro and micro F1 on held-out texts."""
        examples = [corpus[place] for place in range(len(corpus))]
        logits, gold = classifier.predict(self, model, examples), self.collate_labels(examples)
        scores = classifier.scores_of(self, logits, gold)
        found = LabelPredictions(self.config.kind, self.labels.names, logits, gold)
        of_labels = {score.name: score for score in label_scores(found)}
        micro = of_labels.get("micro F1") or of_labels["accuracy"]  # the same where every text has one label
        return [*scores, replace(micro, name="micro_f1", low=None, high=None)]


class Verbs(classifier.Verbs):
    """A trained classifier of mentions."""

    task_name = "mention_classification"
    verbs = ("classify", "embed", "evaluate")
    task: Task

    def classify(self, texts: Any, *, calibrated: bool = True, fitted_thresholds: bool = False) -> Any:
        """The label of a text with marked mentions, or of each, with probabilities.

        A text is written as `[[Paris|Q90]] is large.`, or given as a row of text, mentions and links.
        """
        alone = isinstance(texts, str)
        given = [texts] if alone else list(texts)
        found = self.classify_given(given, calibrated=calibrated, fitted_thresholds=fitted_thresholds)
        return found[0] if alone else found

    def examples(self, texts: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Texts with marked mentions, or rows of text, mentions and links, as examples without a known label."""
        rows = [as_cells(each) if isinstance(each, str) else tuple(each[:3]) for each in texts]
        nothing = np.zeros(0 if self.task.config.kind == "multi" else 1, dtype=np.int64)
        tokens = self.task.text.encode_batch([text for text, _, _ in rows])
        _, _, mentions, links = (column.encoder for column in self.task.arrays())
        marked = mentions.encode_rows([(cell, text) for text, cell, _ in rows])  # type: ignore[union-attr]
        linked = links.encode_rows([(cell, text) for text, _, cell in rows])  # type: ignore[union-attr]
        arrays = ([np.array(row, dtype=np.int64) for row in each] for each in (tokens, marked, linked))
        return [(ids, nothing, *others) for ids, *others in zip(*arrays, strict=True)]

    def evaluate(self, rows: Sequence[tuple[str, ...]], **options: Any) -> tuple[list[Score], list[str]]:
        """All scores, those of texts whose mentions have an entity apart, and the label of every row."""
        if options := {name: value for name, value in options.items() if value is not None}:
            raise UserError(f"{next(iter(options))} has no effect on a classifier", todo="leave it out")
        found = self.predictions([row[:3] for row in rows], [row[3] for row in rows])
        scores = [*label_scores(found), *probability_scores(found)]
        return [*scores, *self.covered_scores(rows, found)], found.labels(found.outputs())

    def covered_scores(self, rows: Sequence[tuple[str, ...]], found: LabelPredictions) -> list[Score]:
        """The share of texts with an entity that a mention names, and the scores of these texts."""
        covered = self.covered(rows)
        if covered is None:
            return []
        told = f"mentions with an entity|confidence:{self.task.mention_config.confidence:g}"
        share = Score("coverage", 100 * float(covered.mean()), told, count=len(covered))
        some = label_scores(found.take(covered)) if covered.any() else []
        return [share, *(replace(score, name=f"{score.name} (covered)") for score in some)]

    def covered(self, rows: Sequence[tuple[str, ...]]) -> Bool[np.ndarray, " texts"] | None:
        """Which rows have a mention whose entity the graph has; None where there is no graph."""
        if self.task.entities.given is None:
            return None
        return np.array([overlaps(each[LINKS], each[MENTIONS]) for each in self.examples([row[:3] for row in rows])])
