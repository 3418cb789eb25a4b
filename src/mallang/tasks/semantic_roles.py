"""Semantic roles: the words of a sentence and a predicate in; the role of every word for that predicate out.

    Grandma gave that flower to them.   gave  →  Grandma AGENT, that flower PATIENT, to them RECIPIENT

A sentence is read once for each of its predicates, with a flag at the predicate, and once without a flag, to learn
which of its words are predicates. Roles stand on head words or are spans, as the data has them (data/roles.py). Each
word is predicted by itself; what roles must keep together is left to the search (decoding/role_search.py). The vectors
of `given.features` are concatenated to the input of the model, as in ELMo (arXiv:1802.05365).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mallang.data.batch import IGNORE, Batch, pad_rows, pad_texts
from mallang.data.columns import Column, Kind, LabelSet
from mallang.data.prepared import Prepared
from mallang.data.roles import UNKNOWN_LEMMA, Lemmas, Sentence
from mallang.data.sampler import Buckets, Rows
from mallang.errors import UserError
from mallang.evaluation.score import Score
from mallang.layers.flagged_words import RoleLabeler, RoleScores, RoleSizes
from mallang.layers.head import Headed
from mallang.layers.words import HidesWords
from mallang.runs.given import Given
from mallang.tasks.contract import Better, Group, Loss
from mallang.tasks.features import RECEIVES, check_mix, features_of
from mallang.tasks.role_examples import RoleExample, RoleExamples, WholeWords
from mallang.tasks.role_labeler import Verbs, validation_scores
from mallang.tasks.role_set import RoleSet
from mallang.text.tokenizer import Tokenizer
from mallang.text.words import Split

__all__ = ["DEFAULTS", "SECTIONS", "Config", "Task", "Verbs"]

SECTIONS: tuple[str, ...] = ()
"""Sections of a recipe that this task reads besides those of every recipe."""
DEFAULTS: dict[str, dict[str, Any]] = {
    "text": {"unit": "space", "vocabulary": 50_000},
    "train": {"metric": "end_to_end_f1"},
    "optimizer": {"max_grad_norm": 5.0},
    "schedule": {"name": "linear", "warmup": 0},
}
"""Defaults of a recipe of this task: every word is a token; the best checkpoint finds predicates and roles."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """The rules of roles, and the dropout of words."""

    constraints: bool = True
    """Search for roles that keep the rules together; otherwise each word has its own best role."""
    unique_roles: tuple[str, ...] | None = None
    """Roles that occur at most once per predicate; not set: the core roles of PropBank, ARG0 to ARG5 and ARGA."""
    split: Split = "words"
    """How `roles` splits a text into words: as the training data does; words, spaces, characters or morphemes."""
    word_dropout: float = 0.0
    """Probability that a word is read as `<unk>` in training."""
    rare_dropout: float = 0.0
    """Probability that a word, or a lemma, which occurs once is read as unknown in training; characters stay."""
    features_mix: bool = False
    """given.features: mix all layers of the other encoder in learned shares; otherwise its last layer is read."""
    features_l2: float = 0.0
    """Weight of an L2 penalty on that mix, which pulls it towards the mean of the layers."""

    def __post_init__(self) -> None:
        for name in ("word_dropout", "rare_dropout"):
            if not 0.0 <= (share := getattr(self, name)) < 1.0:
                raise ValueError(f"{name} must be at least 0 and less than 1, but is {share}")
        if self.unique_roles is not None and not self.constraints:
            raise ValueError("unique_roles has no effect with constraints = false")
        check_mix(self)


class Task:
    """Learn p(role of a word | sentence, predicate), and which words are predicates."""

    config: Config
    columns = ("words", "predicates", "roles")
    unread: tuple[str, ...] = ()
    open_ended = False
    can_compile = False
    parts = ("roles", "predicates")
    metrics: Mapping[str, Better] = {
        "loss": "lower", "f1": "higher", "predicate_f1": "higher", "end_to_end_f1": "higher",
    }  # fmt: skip

    def __init__(
        self,
        config: Config,
        tokenizers: Mapping[str, Tokenizer],
        labels: Mapping[str, LabelSet],
        given: Mapping[str, Given] | None = None,
    ) -> None:
        self.config, self.tokenizers, self.text = config, tokenizers, tokenizers["words"]
        if self.text.config.unit != "space":
            raise UserError("a word that has a role is one token", todo="text.unit=space")
        self.features = features_of(given, "words", config, self.text)
        self.roles = RoleSet(labels["roles"], config.unique_roles)
        self.lemmas = Lemmas(labels["predicates"])
        self.segments = WholeWords(self.text, "words")
        self.hidden_from: int | None = None
        """What is added to the id of a word to hide it, where the model can do that."""
        self.is_rare: Bool[np.ndarray, " tokens"] | None = None
        rare = [lemma for lemma, count in self.lemmas.counts.items() if count == 1]
        self.rare_lemmas = {self.lemmas.id(lemma) for lemma in rare}

    @classmethod
    def kinds(cls, config: Config) -> Mapping[str, Kind]:
        """The kind of each column."""
        return {"words": "words", "predicates": "predicates", "roles": "roles"}

    @classmethod
    def receives(cls) -> Mapping[str, str]:
        """The names of [given] that it accepts."""
        return RECEIVES

    def arrays(self) -> Sequence[Column]:
        """The token of every word, the lemmas of predicates, the roles for each, and what the features need."""
        features = [] if self.features is None else self.features.arrays()
        roles = Column(2, self.roles, is_text=False, beside=(0, 1), may_be_empty=True)
        return [Column(0, self.segments), Column(1, self.lemmas, is_text=False, like=0), roles, *features]

    def build(self, model: ModuleType, config: Any) -> nn.Module:
        """The model for these roles and lemmas, with the encoder of the features if there is one."""
        if not issubclass(model.Model, RoleLabeler):
            raise UserError(
                f"{model.__name__.rsplit('.', 1)[-1]} does not label semantic roles",
                todo=f"task.name={model.TASK}, or model.name=deep_srl or model.name=dependency_srl",
            )
        features = 0 if self.features is None else self.features.dim
        built = model.Model(config, self.text.vocabulary, RoleSizes(len(self.roles), len(self.lemmas), features))
        self.hidden_from = built.hidden_from if isinstance(built, HidesWords) else None
        if self.features is None:
            return Headed(built, nn.Module())
        return Headed(built, nn.Module(), features=self.features.module(), features_mix=self.features.mix())

    def updates(self, model: nn.Module) -> list[Group]:
        """All weights."""
        return [Group([(name, each) for name, each in model.named_parameters() if each.requires_grad])]

    def examples(self, corpus: Prepared, seed: int, epoch: int) -> RoleExamples:
        """The examples of an epoch."""
        if self.config.rare_dropout and self.is_rare is None:
            self.is_rare = self.rare_words(corpus)
        return RoleExamples(corpus.epoch(seed, epoch))

    def rare_words(self, corpus: Prepared) -> Bool[np.ndarray, " tokens"]:
        """Whether each token occurs once in the training text."""
        ids = np.concatenate([corpus[place][0] for place in range(len(corpus))])
        found: np.ndarray = np.bincount(ids, minlength=len(self.text.vocabulary)) == 1
        found[list(self.text.vocabulary.specials)] = False
        return found

    def plan(
        self, corpus: Prepared, *, tokens: int, sentences: int | None = None, multiple: int = 1, seed: int, epoch: int
    ) -> Sequence[Rows]:
        """Batches of examples of similar length."""
        lengths = RoleExamples(corpus.epoch(seed, epoch)).lengths[:, None] + self.text.vocabulary.frame_length
        return Buckets(lengths, tokens=tokens, sentences=sentences, multiple=multiple, seed=seed, epoch=epoch)

    def prepare(self, rows: list[tuple[Any, ...]], random: np.random.Generator) -> Batch:
        """A padded batch, with some words and lemmas unknown."""
        return self.collate([self.with_unknown(example, random) for (example,) in rows])

    def with_unknown(self, example: RoleExample, random: np.random.Generator) -> RoleExample:
        """An example with some words hidden: rare ones, and any; and with a rare lemma hidden."""
        ids, lemma, unk = example.ids, example.lemma, self.text.vocabulary.unk
        if self.config.rare_dropout and self.is_rare is not None:
            drops = self.is_rare[ids] & (random.random(len(ids)) < self.config.rare_dropout)
            ids = np.where(drops, unk if self.hidden_from is None else ids + self.hidden_from, ids)
            if lemma in self.rare_lemmas and random.random() < self.config.rare_dropout:
                lemma = UNKNOWN_LEMMA
        if self.config.word_dropout:
            ids = np.where(random.random(len(ids)) < self.config.word_dropout, unk, ids)
        return RoleExample(ids, example.asked, lemma, example.roles, example.marks, example.features)

    def collate(self, examples: Sequence[RoleExample]) -> Batch:
        """A padded batch of examples; what is not known of one has no label."""
        vocabulary = self.text.vocabulary
        tokens, lengths = pad_texts([each.ids for each in examples], vocabulary)
        places, _ = pad_rows([np.arange(len(each.ids)) for each in examples], -1)

        def labels(found: Sequence[Any]) -> Tensor:
            rows = [
                np.full(len(each.ids), IGNORE) if own is None else np.where(np.asarray(own) < 0, IGNORE, own)
                for each, own in zip(examples, found, strict=True)
            ]
            return pad_rows(rows, IGNORE)[0]

        features = {} if self.features is None else self.features.fields([each.features for each in examples])
        return Batch(
            tokens=tokens,
            lengths=lengths,
            words=places,
            asked=torch.tensor([each.asked for each in examples]),
            lemmas=torch.tensor([each.lemma for each in examples]),
            tags=labels([each.roles for each in examples]),
            marks=labels([each.marks for each in examples]),
            **features,
        )

    def counts(self, batch: Batch) -> dict[str, int]:
        """The number of words with a role, or without any; of words that may be predicates; and of tokens."""
        assert batch.tags is not None and batch.marks is not None
        roles, marks = int((batch.tags != IGNORE).sum()), int((batch.marks != IGNORE).sum())
        return {"roles": roles, "predicates": marks, "tokens": int(batch.lengths.sum())}

    def scores(self, model: Any, batch: Batch) -> tuple[RoleScores, dict[str, Tensor]]:
        """The scores of the model for a batch, and the penalties of each row."""
        if self.features is None:
            return model.model.label(batch), {}
        mix = model.features_mix
        vectors = self.features.vectors(model.features, batch, mix)
        return model.model.label(batch, vectors), self.features.penalties(mix, len(batch))

    def loss(self, model: nn.Module, batch: Batch, carry: Any) -> Loss:
        """The summed negative log-likelihood of roles, and of being a predicate or not."""
        scores, penalties = self.scores(model, batch)
        roles, predicates = self.losses(scores, batch)
        report = {"nll": roles.detach()}
        assert batch.words is not None
        is_row = (batch.words >= 0).any(dim=1)
        for name, penalty in penalties.items():
            total = torch.where(is_row, penalty, 0.0).sum()
            roles, report[name] = roles + total, total.detach()
        return Loss(sums={"roles": roles, "predicates": predicates}, report=report)

    def losses(self, scores: RoleScores, batch: Batch) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """The summed losses of roles and of predicates."""
        assert batch.tags is not None and batch.marks is not None
        logits = scores.roles.float().flatten(0, 1)
        roles = F.cross_entropy(logits, batch.tags.flatten(), ignore_index=IGNORE, reduction="sum")
        is_asked = batch.marks != IGNORE
        wanted = batch.marks.clamp(min=0).float()
        each = F.binary_cross_entropy_with_logits(scores.predicates.float(), wanted, reduction="none")
        return roles, torch.where(is_asked, each, 0.0).sum()

    def validate(self, model: nn.Module, corpus: Prepared, rows: Sequence[tuple[str, ...]], metric: str) -> list[Score]:
        """The loss, and the F1 of roles with given predicates, of found predicates, and of roles for these."""
        return validation_scores(self, model, [Sentence.of(row) for row in rows])

    def longest(self, model: nn.Module) -> int | None:
        """The maximum number of tokens that the model reads: there is none."""
        return None
