"""Word vectors: learn one vector per word, so that words of like contexts have like vectors.

The models of this task are fitted without gradients (models/word2vec.py, glove.py, fasttext.py). A trained one embeds
words, finds the nearest neighbors of a word, and solves analogies: king − man + woman is near queen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from types import ModuleType
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32
from torch import nn

from mallang.data.batch import Batch, Shapes
from mallang.data.corpus import Config as Data
from mallang.data.filters import Filters
from mallang.data.prepared import Prepared
from mallang.data.sampler import Buckets, Rows
from mallang.data.streams import lines_batch
from mallang.decoding import contract as decoding
from mallang.decoding.contract import device_of, inference
from mallang.errors import UserError
from mallang.evaluation.score import Score
from mallang.evaluation.word_similarity import analogies, similarity, solve_analogies
from mallang.models.contract import WordVectors, signature_of
from mallang.tasks.contract import Better, Evaluated, Group, Loss
from mallang.tasks.word_lists import analogy_lists, is_known, similarity_lists
from mallang.tasks.word_lookup import Neighbors, WordLookup
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import PAD

__all__ = ["DEFAULTS", "SECTIONS", "Config", "Task", "Verbs"]

SECTIONS: tuple[str, ...] = ()
"""Sections of a recipe that this task reads besides those of every recipe."""
DEFAULTS: dict[str, dict[str, Any]] = {"text": {"unit": "word", "vocabulary": 100_000, "min_count": 5}}
"""Defaults of a recipe of this task: whole words, and those that occur five times, as in word2vec."""
BATCH_LINES = 256
"""Lines of held-out text that are read at once."""
NEAREST = 10
"""Neighbors that are shown."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Word vectors have no options besides those of their model."""


class Task:
    """Learn a vector of every word from the words around it."""

    columns = ("text",)
    parts = ("loss",)
    unread: tuple[str, ...] = tuple(field.name for field in fields(decoding.Config))
    """All options of a search: nothing is searched."""
    open_ended = False
    can_compile = False
    metrics: Mapping[str, Better] = {"loss": "lower"}
    carries = False
    width: int | None = None
    one_shape = False

    def __init__(self, config: Config, tokenizers: Mapping[str, Tokenizer]) -> None:
        self.config, self.tokenizers, self.text = config, tokenizers, tokenizers["text"]
        if self.text.domains:
            raise UserError("domains are marked by tags before a source, and word vectors have no source")

    def build(self, model: ModuleType, config: Any) -> nn.Module:
        """The model for this vocabulary."""
        if not issubclass(model.Model, WordVectors):
            raise UserError(
                f"{model.__name__.rsplit('.', 1)[-1]} learns no vectors of words alone",
                todo=f"task.name={model.TASK}, or a model such as model.name=word2vec",
            )
        built: nn.Module = model.Model(config, self.text.vocabulary)
        return built

    def filters(self, data: Data) -> tuple[Filters, Filters]:
        """Lines of any length are read."""
        usual = Data()
        for name in ("min_length", "max_length"):
            if (value := getattr(data, name)) != getattr(usual, name):
                raise UserError(
                    f"data.{name} = {value} has no effect on word vectors: no line is left out", todo="leave it out"
                )
        everything = Filters(min_length=0, max_length=0, max_ratio=0.0, drop_empty=False)
        return replace(everything, drop_duplicates=data.drop_duplicates), everything

    def shapes(self, tokens: int, sentences: int | None) -> Shapes | None:
        """Batches are read once: no padding is needed."""
        return None

    def examples(self, corpus: Prepared, seed: int, epoch: int) -> Any:
        """The lines of the text."""
        return corpus.epoch(seed, epoch)

    def plan(
        self, corpus: Prepared, *, tokens: int, sentences: int | None = None, multiple: int = 1, seed: int, epoch: int
    ) -> Sequence[Rows]:
        """Batches of lines of similar length."""
        lengths = corpus.epoch(seed, epoch).lengths + 1
        return Buckets(lengths, tokens=tokens, sentences=sentences, multiple=multiple, seed=seed, epoch=epoch)

    def prepare(self, rows: list[tuple[Any, ...]], random: np.random.Generator) -> Batch:
        """Lines of words, each after `<s>`."""
        return lines_batch([line for ((line,),) in rows])

    def counts(self, batch: Batch) -> dict[str, int]:
        """The number of words, and of the ends of lines."""
        assert batch.labels is not None
        return {"loss": int((batch.labels != PAD).sum())}

    def loss(self, model: Any, batch: Batch, carry: Any) -> Loss:
        """Nothing is trained by this loss: the models of this task are fitted."""
        raise UserError("word vectors are fitted, not trained by gradients of a batch", todo="model.name=word2vec")

    def updates(self, model: nn.Module) -> list[Group]:
        """One parameter group with all parameters."""
        return [Group(list(model.named_parameters()))]

    def validate(self, model: nn.Module, corpus: Prepared, rows: Sequence[tuple[str, ...]], metric: str) -> list[Score]:
        """The mean loss on held-out text."""
        return [self.held_out(model, [corpus[place][0] for place in range(len(corpus))])]

    def held_out(self, model: Any, lines: Sequence[Any]) -> Score:
        """The mean loss per prediction on lines of ids."""
        device = device_of(model)
        batches = (lines_batch(lines[i : i + BATCH_LINES]).to(device) for i in range(0, len(lines), BATCH_LINES))
        total, count = model.held_out_loss(batches)
        return Score("loss", total / max(1, count), f"per:prediction|{signature_of(model)}", count=count)


class Verbs:
    """Trained word vectors: vectors, neighbors and analogies of words."""

    task_name = "word_vectors"
    verbs = ("embed", "neighbors", "evaluate")
    compared_by = ("loss",)

    def __init__(self, task: Task, model: Any, config: decoding.Config | None, max_length: int) -> None:
        self.task, self.model, self.config = task, model, config

    @cached_property
    def lookup(self) -> WordLookup:
        """The words and their vectors."""
        return WordLookup(self.model, self.task.text)

    def embed(self, texts: str | Iterable[str], *, words: bool = True) -> Float32[np.ndarray, "*texts dim"]:
        """The vector of a word, or one row per word; several words have the mean of their vectors."""
        if isinstance(texts, str):
            found: np.ndarray = self.lookup.vector(texts).numpy()
            return found
        rows = [self.lookup.vector(text) for text in texts]
        stacked: np.ndarray = torch.stack(rows).numpy() if rows else self.lookup.vectors[:0].numpy()
        return stacked

    def neighbors(self, words: str | Iterable[str], count: int = NEAREST) -> Any:
        """The words nearest to a word, or to each of several, by cosine."""
        if isinstance(words, str):
            return self.lookup.neighbors(words, count)
        return [self.lookup.neighbors(word, count) for word in words]

    def analogy(self, first: str, second: str, third: str, count: int = NEAREST) -> Neighbors:
        """The words nearest to first − second + third."""
        return self.lookup.analogy((first, second, third), count)

    def similarity(self, name: str, rows: Sequence[tuple[str, str, float]]) -> tuple[Score, list[float | None]]:
        """The rank correlation of cosines with scores of people; and the cosine of each pair, None if unknown."""
        found = [self.cosine(one, other) for one, other, _ in rows]
        return similarity(name, found, [score for _, _, score in rows], "case:folded"), found

    def cosine(self, one: str, other: str) -> float | None:
        """The cosine of the vectors of two words; None where one of them is unknown."""
        vectors = [self.lookup.find(word, fold=True) for word in (one, other)]
        if vectors[0] is None or vectors[1] is None:
            return None
        return float(torch.cosine_similarity(vectors[0], vectors[1], dim=0))

    def analogies(self, name: str, rows: Sequence[tuple[str, str, str, str]]) -> Score:
        """The share of analogies that are solved; an answer is one word of the vocabulary, in any case."""
        ids = [[self.lookup.folded.get(word.casefold(), -1) for word in row] for row in rows]
        known = torch.tensor([row for row in ids if min(row) >= 0], dtype=torch.long).view(-1, 4)
        answers = solve_analogies(self.lookup.directions, known[:, :3], sorted(self.lookup.specials))
        return analogies(name, (answers == known[:, 3]).numpy(), len(rows), "case:folded")

    @property
    def evaluated(self) -> Evaluated:
        """What `evaluate` gives beside the scores."""
        return "word pairs"

    def evaluate(
        self, rows: Sequence[tuple[str, ...]], *, domain: str | None = None, **options: Any
    ) -> tuple[list[Score], list[str]]:
        """The loss on a text, and scores by the lists of words of this machine; each scored pair with its cosine."""
        if options:
            raise UserError(f"{next(iter(options))} has no effect on word vectors", todo="leave it out")
        with inference(self.model):
            scores = [self.task.held_out(self.model, self.task.text.encode_batch([text for (text,) in rows]))]
        pairs: list[str] = []
        for score, lines in self.scored_lists():
            scores.append(score)
            pairs += lines
        return scores, pairs

    def scored_lists(self) -> Iterator[tuple[Score, list[str]]]:
        """The score by every list that the model knows enough words of."""
        for name, rows in similarity_lists():
            score, cosines = self.similarity(name, rows)
            if is_known(score.count or 0, len(rows)):
                found = zip(rows, cosines, strict=True)
                yield score, [f"{name}\t{a}\t{b}\t{gold}\t{cosine}" for (a, b, gold), cosine in found]
        for name, questions in analogy_lists():
            solved = self.analogies(name, questions)
            if is_known(solved.count or 0, len(questions)):
                yield solved, []
