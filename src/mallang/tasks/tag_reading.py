"""How a trained tagger reads sentences: words to ids, batches by length, and the tags that the scores mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mallang.data.batch import IGNORE, Batch
from mallang.data.sampler import by_length
from mallang.decoding.contract import device_of, inference
from mallang.errors import UserError
from mallang.evaluation.spans import read_spans
from mallang.layers.crf import CRF, continuations
from mallang.layers.head import Headed
from mallang.tasks.out_of_vocabulary import forget_oov, ids_to_read

if TYPE_CHECKING:
    from mallang.tasks.tagging import Task

BATCH_TOKENS = 16_384
"""Padded tokens per batch of inference."""
Several = tuple[tuple[str, ...], float]
"""A sequence of tags and its probability."""


@dataclass(frozen=True)
class Example:
    """A sentence, or a part of one that the model can read at once."""

    sentence: int
    """The number of the sentence."""
    row: tuple[Any, ...]
    """Ids, tags and the positions of the words; with features also the ids and positions that they read."""

    @property
    def words(self) -> int:
        """The number of words."""
        return len(self.row[2])


@dataclass(frozen=True)
class Read:
    """A batch that the model has read."""

    batch: Batch
    emissions: Float[Tensor, "batch words tags"]
    crf: CRF | None

    @property
    def mask(self) -> Bool[Tensor, "batch words"]:
        """True where there is a word."""
        assert self.batch.words is not None
        return self.batch.words >= 0

    def best(self) -> Int[Tensor, "batch words"]:
        """The predicted tags; any number where there is no word."""
        return self.emissions.argmax(dim=2) if self.crf is None else self.crf.decode(self.emissions, self.mask)[0]

    def loss(self) -> Float[Tensor, ""]:
        """The summed negative log-likelihood of the tags of the batch."""
        tags = self.batch.tags
        assert tags is not None
        if self.crf is not None:
            return self.crf.negative_log_likelihood(self.emissions, tags, self.mask).sum()
        flat = self.emissions.float().flatten(0, 1)
        return F.cross_entropy(flat, tags.flatten(), ignore_index=IGNORE, reduction="sum")

    def probabilities(self) -> Float[Tensor, "batch words tags"]:
        """The probability of every tag of every word: the marginals of the CRF, or the softmax."""
        return self.emissions.float().softmax(2) if self.crf is None else self.crf.marginals(self.emissions, self.mask)

    def n_best(self, count: int) -> tuple[Int[Tensor, "batch count words"], Float[Tensor, "batch count"]]:
        """The most probable tag sequences, and their probabilities: 0 where there are no more."""
        if self.crf is None:
            raise UserError(
                "several taggings of a text need a CRF, and this run has none",
                todo="leave --nbest out, or train with task.head=crf",
            )
        tags, scores = self.crf.decode_n_best(self.emissions, self.mask, count)
        return tags, (scores - self.crf.log_partition(self.emissions, self.mask)[:, None]).exp()

    def confidence(
        self, tags: Int[Tensor, "batch words"], spans: Sequence[tuple[int, int, int]], names: Sequence[str]
    ) -> list[float]:
        """The probability of every span: its row, its first word, the first word after it."""
        if not spans:
            return []
        if self.crf is None:
            chosen = self.probabilities().gather(2, tags[:, :, None])[:, :, 0].tolist()
            return [float(np.prod(chosen[row][first:after])) for row, first, after in spans]
        places, continuing = torch.tensor(spans).to(tags.device), continuations(names).to(tags.device)
        found: list[float] = self.crf.span_probability(self.emissions, self.mask, tags, places, continuing).tolist()
        return found


def examples_of(
    task: Task, model: nn.Module, sentences: Sequence[Sequence[str]], tags: Sequence[Sequence[int]] | None = None
) -> list[Example]:
    """Sentences as the model reads them; one that is too long is read in parts, and one without words not at all.

    Words outside the vocabulary are read from their characters by models that can do that.
    """
    encoder = encoder_of(model)
    forget_oov(encoder)
    words = list(dict.fromkeys(word for sentence in sentences for word in sentence))
    read = ids_to_read(encoder, task.text, words, task.segments.ids_of([words])[0])
    ids_of = dict(zip(words, read, strict=True))
    longest, examples = task.longest(model), list[Example]()
    features = [[]] * len(sentences) if task.features is None else task.features.ids_of(sentences)
    for number, sentence in enumerate(sentences):
        ids = [ids_of[word] for word in sentence]
        labels = [0] * len(ids) if tags is None else tags[number]
        for begin, end in parts([len(word) for word in ids], longest, task.text.vocabulary.frame_length):
            flat, starts = flattened(ids[begin:end])
            more = () if task.features is None else flattened(features[number][begin:end])
            examples.append(Example(number, (flat, np.array(labels[begin:end], dtype=np.int64), starts, *more)))
    return examples


def flattened(words: Sequence[Sequence[int]]) -> tuple[Int[np.ndarray, " tokens"], Int[np.ndarray, " words"]]:
    """The ids of words one after the other, and the position of the first of each."""
    starts = np.cumsum([0, *map(len, words)])[:-1]
    return np.array([token for word in words for token in word], dtype=np.int64), starts


def parts(lengths: Sequence[int], longest: int | None, frame: int = 1) -> list[tuple[int, int]]:
    """Where to cut a sentence of words with so many tokens, so that each part and its special tokens fit."""
    if not lengths:
        return []
    bounds, filled = [0], 0
    for place, length in enumerate(lengths):
        if longest is not None and place > bounds[-1] and filled + length > longest - frame:
            bounds.append(place)
            filled = 0
        filled += length
    return list(zip(bounds, [*bounds[1:], len(lengths)], strict=True))


def batches(task: Task, model: nn.Module, examples: Sequence[Example]) -> Iterator[tuple[list[int], Read]]:
    """Batches of examples of similar length: their places, and what the model has read."""
    device, frame = device_of(model), task.text.vocabulary.frame_length
    with inference(model):
        for group in by_length([len(each.row[0]) + frame for each in examples], BATCH_TOKENS) if examples else ():
            batch = task.collate([examples[place].row for place in group]).to(device)
            emissions, crf, _ = task.emissions(model, batch)
            yield group, Read(batch, emissions, crf)


def predict(
    task: Task, model: nn.Module, sentences: Sequence[Sequence[str]], tags: Sequence[Sequence[int]] | None = None
) -> tuple[list[list[str]], float]:
    """The predicted tags of every sentence, and the summed loss of the given ones."""
    examples = examples_of(task, model, sentences, tags)
    found, loss = dict[int, list[int]](), 0.0
    for group, read in batches(task, model, examples):
        rows = read.best().tolist()
        found |= {place: row[: examples[place].words] for place, row in zip(group, rows, strict=True)}
        loss += float(read.loss()) if tags is not None else 0.0
    ids: list[list[int]] = [[] for _ in sentences]
    for place, example in enumerate(examples):
        ids[example.sentence] += found[place]
    return [task.tags.decode(row) for row in ids], loss


def encoder_of(model: nn.Module) -> nn.Module:
    """The model below the head of a task."""
    return model.model if isinstance(model, Headed) else model


@dataclass(frozen=True)
class Part:
    """The tags of a sentence, or of a part of it, with all that is known of them."""

    tags: list[str]
    probabilities: list[float]
    spans: list[tuple[str, int, int, float]]
    """Type, first word, first word after it, confidence."""
    nbest: list[Several]


def parts_of(task: Task, read: Read, sizes: Sequence[int], nbest: int) -> list[Part]:
    """What is known of the rows of a batch, which have so many words."""
    best = read.best().clamp(min=0)
    sums = read.probabilities() @ task.tags.alike.to(best.device)
    chosen = sums.gather(2, best[:, :, None])[:, :, 0].clamp(max=1.0).tolist()
    tags = [task.tags.decode(row[:size]) for row, size in zip(best.tolist(), sizes, strict=True)]
    spans = [read_spans(row) if task.tags.scheme is not None else [] for row in tags]
    places = [(row, first, after) for row, found in enumerate(spans) for _, first, after in found]
    sure = iter(read.confidence(best, places, task.tags.names))
    several = n_best_of(task, read, sizes, nbest) if nbest > 1 else [[] for _ in sizes]
    return [
        Part(
            row,
            chosen[number][: sizes[number]],
            [(kind, first, after, next(sure)) for kind, first, after in spans[number]],
            several[number],
        )
        for number, row in enumerate(tags)
    ]


def n_best_of(task: Task, read: Read, sizes: Sequence[int], count: int) -> list[list[Several]]:
    """The most probable tag sequences of every row; fewer where there are no more."""
    ids, shares = read.n_best(count)
    return [
        [
            (tuple(task.tags.decode(tags[:size])), share)
            for tags, share in zip(rows, probabilities, strict=True)
            if share > 0
        ]
        for rows, probabilities, size in zip(ids.tolist(), shares.tolist(), sizes, strict=True)
    ]
