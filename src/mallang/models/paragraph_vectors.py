"""Paragraph vectors: a vector of every text that predicts its words, and a linear classifier on these vectors.

Distributed Representations of Sentences and Documents. Le and Mikolov 2014, arXiv:1405.4053; as the classifier of
documents that the table of Yang et al. 2016 compares with, doi:10.18653/v1/N16-1174.

New against word2vec.py: a text has a vector, too, which is learned with those of the words.

    dbow    the vector of a text predicts each of its words             dm    its mean with the words around predicts it

    texts → windows → blocks of updates → vectors of words, fixed from here on
    a text → steps of gradient descent on its own vector → linear classifier

Texts of training and new texts get their vectors in the same way, from the fixed vectors of words, so that the
classifier is trained on what it will see. This loss is convex in the vector of a text, so the curvature has a bound
(Böhning and Lindsay 1988, doi:10.1007/BF00049423), by which each step is scaled: few are needed. Negative samples are a
fixed list here: a text has the same vector whatever texts are beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Int32
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.errors import UserError
from mallang.kernels.word_vectors import Groups, logistic_updates_
from mallang.layers.checks import check_sizes
from mallang.layers.softmax_regression import fit_softmax_regression
from mallang.layers.word_windows import (
    AliasTable,
    Positions,
    WordText,
    epoch_report,
    generator,
    keep_probability,
    learning_rates,
    text_of,
    windows,
)  # fmt: skip
from mallang.text.vocabulary import Vocabulary

__all__ = ["SIZES", "Config", "Model", "ParagraphVectors"]

TASK = "classification"
NOISE = 4096
"""Length of the list of negative samples for new texts."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """The vectors, how they are trained, and the classifier."""

    dim: int = 100
    """The size of a vector; of two kinds there are two."""
    kind: Literal["dbow", "dm", "both"] = "dbow"
    """What predicts a word: the text, the text with the words around, or one vector for each, side by side."""
    window: int = 5
    """The most words to each side; the number is drawn for every position, from 1."""
    negatives: int = 5
    """Random words per position."""
    exponent: float = 0.75
    """Random words are drawn with probability count^exponent."""
    subsample: float = 1e-3
    """Words of a higher frequency than this are left out at random in training; 0: never."""
    epochs: int = 20
    """Passes over the texts."""
    learning_rate: float = 0.05
    """The learning rate at the start; it decays linearly to 0."""
    block: int = 256
    """Positions whose updates are computed together, from the same vectors."""
    steps: int = 10
    """Steps of gradient descent on the vector of a text."""
    penalty: float = 0.1
    """L2 penalty on the vector of a text, beside the mean loss of its words."""
    C: float = 1.0
    """Inverse strength of the L2 regularization of the classifier."""

    def __post_init__(self) -> None:
        check_sizes(self, "dim", "window", "negatives", "epochs", "block", "steps", dropouts=())
        if self.subsample < 0:
            raise ValueError(f"subsample must not be negative, but is {self.subsample}")
        for name in ("learning_rate", "penalty", "C"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, but is {getattr(self, name)}")


class ParagraphVectors(nn.Module):
    """Vectors of words that vectors of texts are found by, and a classifier; random until it is fitted."""

    reads_source = False
    noise: Int32[Tensor, " noise"]
    mean: Float[Tensor, " features"]
    scale: Float[Tensor, " features"]

    def __init__(self, config: Config, vocabulary: Vocabulary, classes: int) -> None:
        super().__init__()
        self.config, self.vocabulary, self.classes = config, vocabulary, classes
        kinds = ("dbow", "dm") if config.kind == "both" else (config.kind,)
        self.spaces = nn.ModuleList(Space(config, len(vocabulary), kind == "dm") for kind in kinds)
        features = config.dim * len(kinds)
        self.register_buffer("noise", torch.zeros(NOISE, dtype=torch.int32))
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("scale", torch.ones(features))
        self.classifier = nn.Linear(features, classes).requires_grad_(False)

    def forward(self, batch: Batch) -> Float[Tensor, "examples classes"]:
        """One logit per class for each text."""
        return self.classify(batch)

    def classify(self, batch: Batch) -> Float[Tensor, "examples classes"]:
        """One logit per class for each text."""
        logits: Tensor = self.classifier((self.vectors_of(batch) - self.mean) / self.scale)
        return logits

    def vectors_of(self, batch: Batch) -> Float[Tensor, "examples features"]:
        """The vectors of texts; zeros where no word of a text is known."""
        words = self.known_words(batch)
        return torch.cat([space(words, self.noise) for space in self.spaces], dim=1)

    def known_words(self, batch: Batch) -> Int[Tensor, "examples words"]:
        """The words of each text without special tokens, −1 after its last."""
        specials = torch.tensor(sorted(self.vocabulary.specials), device=batch.tokens.device)
        kept = batch.mask & ~torch.isin(batch.tokens, specials)
        order = (~kept).long().argsort(dim=1, stable=True)
        width = max(1, int(kept.sum(dim=1).max())) if len(kept) else 1
        return torch.where(kept, batch.tokens, -1).gather(1, order)[:, :width]

    def fit(self, stream: Iterable[Batch]) -> Iterator[Mapping[str, float]]:
        """Train the vectors of words, find those of the texts, and train the classifier on them."""
        text, config = text_of(stream, self.vocabulary), self.config
        if not len(text):
            raise UserError("there are no words to learn vectors of", todo="check data.train and text.min_count")
        labels, texts = self.labels(stream)
        counts = text.counts(self.vocabulary)
        table = AliasTable.of(counts.double().pow(config.exponent) * (counts > 0))
        seed = int(torch.randint(2**31, ()))
        self.noise = table.draw(1, NOISE, generator(text.words.device, seed))[0].int()
        for number, space in enumerate(self.spaces):
            assert isinstance(space, Space)
            yield from space.fit(text, texts, table, keep_probability(counts, config.subsample), (seed, number))
        features = torch.cat([self.vectors_of(batch) for batch in stream])
        self.mean, self.scale = features.mean(dim=0), features.std(dim=0, correction=0).clamp_min(1e-6)
        weight, bias, loss = fit_softmax_regression((features - self.mean) / self.scale, labels, self.classes, config.C)
        self.classifier.weight.copy_(weight)
        self.classifier.bias.copy_(bias)
        yield {"texts": texts, "features": features.shape[1], "classifier_loss": loss}

    def labels(self, stream: Iterable[Batch]) -> tuple[Tensor, int]:
        """The class of every text, or its set of classes; and the number of texts."""
        found = [batch.classes if batch.classes is not None else batch.class_sets for batch in stream]
        given = [labels for labels in found if labels is not None]
        if not given or len(given) < len(found):
            raise UserError("paragraph vectors classify, but these texts have no classes",
                            todo="task.name=classification")  # fmt: skip
        return torch.cat(given), sum(map(len, given))


class Space(nn.Module):
    """The vectors of one kind: of words that are predicted, and of those around (dm)."""

    def __init__(self, config: Config, words: int, reads_words: bool) -> None:
        super().__init__()
        self.config, self.reads_words = config, reads_words
        self.output = nn.Parameter(torch.randn(words, config.dim) / config.dim, requires_grad=False)
        inputs = torch.empty(words if reads_words else 0, config.dim).uniform_(-0.5 / config.dim, 0.5 / config.dim)
        self.inputs = nn.Parameter(inputs, requires_grad=False)

    def fit(
        self, text: WordText, texts: int, table: AliasTable, keep: Tensor | None, key: tuple[int, ...]
    ) -> Iterator[Mapping[str, float]]:
        """Learn the vectors of words together with those of the texts, which are then dropped; reports each epoch."""
        config, device, words = self.config, text.words.device, len(self.inputs)
        random, span = generator(device, *key), (config.learning_rate, 0.0)
        rows = (torch.rand(words + texts, config.dim, generator=random, device=device) - 0.5) / config.dim
        self.output.zero_()
        for epoch in range(config.epochs):
            (total, predicted), rates = torch.zeros(2, dtype=torch.float64, device=device), torch.zeros(1)
            for positions, random in windows(text, config.window, keep, (*key, epoch)):
                rates = learning_rates(positions, config.block, epoch, config.epochs, len(text), span)
                groups = self.groups(positions, table, words, random)
                total += logistic_updates_(rows, self.output.data, groups, rates, config.block, "bag").sum()
                predicted += len(groups)
            yield {**epoch_report(total, predicted), "learning_rate": float(rates[-1])}
        self.inputs.copy_(rows[:words])

    def groups(self, positions: Positions, table: AliasTable, words: int, random: torch.Generator) -> Groups:
        """What predicts each word, and its negative samples; positions are shuffled, so that texts are mixed."""
        order = torch.randperm(len(positions), generator=random, device=positions.words.device)
        center, text = positions.words[order][:, None], (words + positions.lines[order])[:, None]
        drawn = table.draw(len(order), self.config.negatives, random).int()
        outputs = torch.cat((center, torch.where(drawn == center, -1, drawn)), dim=1)
        inputs = torch.cat((text, positions.context[order]), dim=1) if self.reads_words else text
        labels = (torch.arange(outputs.shape[1], device=outputs.device) == 0).float().expand(outputs.shape)
        return Groups(inputs.int(), outputs.int(), labels)

    def forward(self, words: Int[Tensor, "texts width"], noise: Int32[Tensor, " noise"]) -> Float[Tensor, "texts dim"]:
        """The vector of each text that predicts its words best, from the fixed vectors of words."""
        width, negatives = words.shape[1], self.config.negatives
        places = torch.arange(width * negatives, device=words.device).view(width, negatives) % len(noise)
        drawn = noise[places].expand(len(words), -1, -1).long()
        outputs = torch.cat((words[:, :, None], torch.where(drawn == words[:, :, None], -1, drawn)), dim=2)
        asked = (outputs >= 0) & (words >= 0)[:, :, None]
        slopes, fixed = self.output[outputs.clamp_min(0)], self.output.new_zeros(1, 1, 1)
        if self.reads_words:
            around = self.around(words)
            there = (around >= 0)[..., None]
            count = 1 + there.sum(dim=2)
            rest = (self.inputs[around.clamp_min(0)] * there).sum(dim=2) / count
            slopes, fixed = slopes / count[:, :, :, None], (slopes @ rest[..., None])[..., 0]
        signs = torch.where(torch.arange(outputs.shape[2], device=words.device) == 0, 1.0, -1.0)
        fixed, signs = fixed.expand(outputs.shape), signs.expand(outputs.shape)
        count = (words >= 0).sum(dim=1).clamp_min(1)
        terms = ((slopes * asked[..., None]).flatten(1, 2), fixed.flatten(1), signs.flatten(1), asked.flatten(1))
        return descend(*terms, count, self.config.penalty, self.config.steps)

    def around(self, words: Int[Tensor, "texts width"]) -> Int[Tensor, "texts width around"]:
        """The words around each, at most `window` to each side."""
        window = self.config.window
        found = F.pad(words, (window, window), value=-1).unfold(1, 2 * window + 1, 1)
        return torch.cat((found[..., :window], found[..., window + 1 :]), dim=2)


def descend(
    slopes: Float[Tensor, "texts terms dim"],
    fixed: Float[Tensor, "texts terms"],
    signs: Float[Tensor, "texts terms"],
    asked: Bool[Tensor, "texts terms"],
    count: Int[Tensor, " texts"],
    penalty: float,
    steps: int,
) -> Float[Tensor, "texts dim"]:
    """Minimize −Σ log σ(sign (slope · x + fixed)) / count + ½ penalty |x|² over x, by steps that never overshoot."""
    divisor = count[:, None, None].to(slopes.dtype)
    eye = penalty * torch.eye(slopes.shape[2], dtype=slopes.dtype, device=slopes.device)
    bound = torch.linalg.cholesky(slopes.mT @ slopes / (4 * divisor) + eye)  # the logistic curvature is at most ¼
    found = slopes.new_zeros(len(slopes), slopes.shape[2], 1)
    for _ in range(steps):
        scores = (slopes @ found)[..., 0] + fixed
        wrong = torch.sigmoid(-signs * scores) * signs * asked
        gradient = slopes.mT @ wrong[..., None] / divisor - penalty * found
        found = found + torch.cholesky_solve(gradient, bound)
    return found[..., 0]


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"dim": 8, "kind": "both", "epochs": 5, "block": 4, "subsample": 0.0, "penalty": 1e-3, "C": 1e4},
    "base": {},
}
"""Named shapes, as changes to the defaults."""

Model = ParagraphVectors
