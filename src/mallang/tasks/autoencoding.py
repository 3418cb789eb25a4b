"""Autoencoding: a text in, the same text out, through the bottleneck of the model.

Two kinds of model do it. An autoregressive model (sutskever, cho …) encodes the text and decodes it again: a sequence
autoencoder. The model `autoencoder` encodes the bag of words and predicts for every word of the vocabulary whether the
text has it: a vector autoencoder. With `drop` or `shuffle` the input is corrupted and the model must restore it: a
denoising autoencoder (Vincent et al. 2008; both kinds of noise are those of Lample et al. 2018, arXiv:1711.00043).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Float32, Integer
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.data.prepared import Prepared
from mallang.data.sampler import Rows
from mallang.decoding import contract as decoding
from mallang.decoding.contract import Autoregressive, inference
from mallang.errors import UserError
from mallang.evaluation.bag_of_words import bag_of_words
from mallang.evaluation.score import Score
from mallang.evaluation.translation import bleu, exact_match
from mallang.layers.bag import bag_of
from mallang.tasks import translation, translator
from mallang.tasks.contract import Better, Evaluated, Group, Loss, Written
from mallang.tasks.embedding import text_vectors, word_vectors
from mallang.tasks.translator import BATCH_TOKENS, Translation
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import PAD

__all__ = ["DEFAULTS", "SECTIONS", "Config", "Task", "Verbs"]

SECTIONS = ("decoding",)
"""Sections of a recipe that this task reads besides those of every recipe."""
DEFAULTS: dict[str, dict[str, Any]] = {}
"""Defaults of a recipe of this task."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """The noise on the input, and the loss."""

    drop: float = 0.0
    """Word dropout: probability that an input token is left out."""
    shuffle: int = 0
    """How many positions an input token may move from its own."""
    label_smoothing: float = 0.0
    """Share of the probability that is spread evenly over the vocabulary; for autoregressive models."""

    def __post_init__(self) -> None:
        for name in ("drop", "label_smoothing"):
            if not 0.0 <= (share := getattr(self, name)) < 1.0:
                raise ValueError(f"{name} must be at least 0 and less than 1, but is {share}")
        if self.shuffle < 0:
            raise ValueError(f"shuffle must not be negative, but is {self.shuffle}")


class Task:
    """Learn to reconstruct a text."""

    columns = ("text",)
    unread: tuple[str, ...] = ()
    open_ended = False
    can_compile = True
    parts = ("loss",)
    metrics: Mapping[str, Better] = {"loss": "lower", "exact": "higher"}

    def __init__(self, config: Config, tokenizers: Mapping[str, Tokenizer]) -> None:
        self.config, self.tokenizers, self.text = config, tokenizers, tokenizers["text"]
        self.pairs = translation.Task(
            translation.Config(label_smoothing=config.label_smoothing), {"source": self.text, "target": self.text}
        )
        """The translation task on pairs of a text and itself."""

    def build(self, model: ModuleType, config: Any) -> nn.Module:
        """The model, with one vocabulary for inputs and outputs."""
        built = self.pairs.build(model, config)
        for name in ("shuffle", "label_smoothing"):
            if getattr(self.config, name) and not is_sequential(built):
                raise UserError(
                    f"task.{name} has no effect on a model that sees no order and writes no words", todo="leave it out"
                )
        return built

    def examples(self, corpus: Prepared, seed: int, epoch: int) -> Any:
        """The texts that an epoch reads."""
        return corpus.epoch(seed, epoch)

    def plan(
        self, corpus: Prepared, *, tokens: int, sentences: int | None = None, multiple: int = 1, seed: int, epoch: int
    ) -> Sequence[Rows]:
        """Batches of texts of similar length."""
        return self.pairs.plan(corpus, tokens=tokens, sentences=sentences, multiple=multiple, seed=seed, epoch=epoch)

    def prepare(self, rows: list[tuple[Any, ...]], random: np.random.Generator) -> Batch:
        """The corrupted text is the source, the original text the target."""
        return self.pairs.prepare([((self.damage(text, random), text),) for ((text,),) in rows], random)

    def damage(self, text: Any, random: np.random.Generator) -> Integer[np.ndarray, " left"]:
        """The corrupted text; at least one token remains."""
        tokens = np.asarray(text)
        if self.config.drop and len(tokens):
            kept = random.random(len(tokens)) >= self.config.drop
            kept[random.integers(len(tokens))] |= not kept.any()
            tokens = tokens[kept]
        if self.config.shuffle:
            places = np.arange(len(tokens)) + random.uniform(0, self.config.shuffle + 1, size=len(tokens))
            tokens = tokens[np.argsort(places, kind="stable")]
        return tokens

    def counts(self, batch: Batch) -> dict[str, int]:
        """The tokens of the texts, `</s>` counted."""
        return self.pairs.counts(batch)

    def loss(self, model: Any, batch: Batch, carry: Any) -> Loss:
        """Cross-entropy of every token, or binary cross-entropy of every word of the vocabulary."""
        if is_sequential(model):
            return self.pairs.loss(model, batch, carry)
        assert batch.labels is not None
        losses = F.binary_cross_entropy_with_logits(model(batch).float(), self.present(batch), reduction="none")
        asked = (batch.labels != PAD).any(dim=1)  # rows of padding alone do not count
        loss = losses.sum(dim=1).mul(asked).sum()
        return Loss(sums={"loss": loss}, report={"nll": loss.detach()})

    def present(self, batch: Batch) -> Float[Tensor, "batch words"]:
        """Multi-hot targets: 1 for the words that are in a text."""
        return bag_of(batch.tokens, batch.mask, self.text.vocabulary).clamp(max=1.0)

    def updates(self, model: nn.Module) -> list[Group]:
        """One parameter group with all parameters."""
        return self.pairs.updates(model)

    def validate(self, model: nn.Module, corpus: Prepared, rows: Sequence[tuple[str, ...]], metric: str) -> list[Score]:
        """The mean loss per token on uncorrupted texts; where `exact` decides, also the share of exact matches."""
        total, count, device = 0.0, 0, next(model.parameters()).device
        for batch_rows in self.plan(corpus, tokens=max(BATCH_TOKENS, int(corpus.lengths.max()) + 1), seed=0, epoch=0):
            whole = [corpus[i][0] for (i,) in batch_rows]
            batch = self.pairs.prepare([((text, text),) for text in whole], np.random.default_rng(0))
            total += float(self.loss(model, batch.to(device), None).sums["loss"])
            count += self.counts(batch)["loss"]
        kind = f"smoothing:{self.config.label_smoothing}" if is_sequential(model) else "each word yes or no"
        scores = [Score("loss", total / count, f"nats per token|{kind}", count=count)]
        if metric == "exact":
            verbs = Verbs(self, model, decoding.Config(method="greedy"), max_length=int(corpus.lengths.max()) + 1)
            texts = [text for (text,) in rows]
            outputs = [str(result) for result in verbs.reconstruct(texts)]
            scores.append(replace(exact_match(outputs, verbs.references(texts)), name="exact"))
        return scores


class Verbs:
    """A trained autoencoder: texts to vectors, and vectors back to texts."""

    task_name = "autoencoding"
    verbs = ("embed", "reconstruct", "evaluate")
    compared_by = ("exact match",)

    def __init__(self, task: Task, model: Any, config: decoding.Config, max_length: int) -> None:
        self.task, self.model, self.config, self.max_length = task, model, config, max_length
        self.translator = translator.Verbs(task.pairs, model, config, max_length)

    def embed(self, texts: str | Iterable[str], *, words: bool = False) -> Float32[np.ndarray, "*texts dim"]:
        """The vector of a text, or one row per text; with `words` the embeddings of words."""
        alone = isinstance(texts, str)
        given = [texts] if isinstance(texts, str) else list(texts)
        found = (word_vectors if words else text_vectors)(self.model, self.task.text, given)
        return found[0] if alone else found

    def reconstruct(self, texts: str | Iterable[str], **options: Any) -> Any:
        """The reconstruction of a text, or of each; a vector autoencoder gives words in the vocabulary's order."""
        alone = isinstance(texts, str)
        given = [texts] if isinstance(texts, str) else list(texts)
        if is_sequential(self.model):
            found = self.translator.translate(given, **options)
        elif options:
            raise UserError(f"{next(iter(options))} has no effect on a model that searches for no words")
        else:
            found = self.bags(given)
        return found[0] if alone else found

    def bags(self, texts: Sequence[str]) -> list[Translation]:
        """The words to which a vector autoencoder gives a probability above one half."""
        names, found = self.task.text.vocabulary.tokens, []
        vectors = torch.from_numpy(text_vectors(self.model, self.task.text, texts)).to(self.translator.device)
        with inference(self.model):
            for text, logits in zip(texts, self.model.decoder(vectors).float().cpu(), strict=True):
                ids = [i for i in (logits > 0).nonzero()[:, 0].tolist() if i not in self.task.text.vocabulary.specials]
                score = float(F.logsigmoid(logits.abs()).sum())  # the log-probability of all decisions together
                found.append(Translation(text, self.spell(ids), score, tuple(names[i] for i in ids)))
        return found

    def references(self, texts: Sequence[str]) -> list[str]:
        """The references: the texts themselves, or their words in the vocabulary's order."""
        if is_sequential(self.model):
            return list(texts)
        specials = self.task.text.vocabulary.specials
        return [self.spell(sorted(set(ids) - specials)) for ids in self.task.text.encode_batch(list(texts))]

    def write_rows(self, rows: Sequence[Sequence[str]], domains: Sequence[str | None]) -> Written:
        """The reconstruction of every text."""
        texts = [text for (text,) in rows]
        results = self.reconstruct(texts)
        return Written(texts, [str(each) for each in results], self.references(texts), [e.is_cut for e in results])

    def spell(self, ids: Sequence[int]) -> str:
        """Words as text, each by itself."""
        return " ".join(self.task.text.decode([i]) for i in ids)

    @property
    def evaluated(self) -> Evaluated:
        """What `evaluate` gives for each row: a text, or a bag of words."""
        return "texts" if is_sequential(self.model) else "bags of words"

    def evaluate(
        self, rows: Sequence[tuple[str, ...]], *, domain: str | None = None, **options: Any
    ) -> tuple[list[Score], list[str]]:
        """Exact match and partial overlap of the reconstructions; and the reconstructions."""
        texts = [text for (text,) in rows]
        options |= {"domain": domain} if domain is not None else {}
        outputs = [str(result) for result in self.reconstruct(texts, **options)]
        references = self.references(texts)
        words = bag_of_words(outputs, references, tokenize="none")
        scores = [bleu(outputs, references)] if is_sequential(self.model) else list(words.values())
        return [exact_match(outputs, references), *scores], outputs


def is_sequential(model: object) -> bool:
    """Whether a model is autoregressive; one that is not is a vector autoencoder."""
    return isinstance(model, Autoregressive)
