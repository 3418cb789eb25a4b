"""Bag of words: the n-grams of a text without their order, and a linear classifier on them.

Baselines and Bigrams: Simple, Good Sentiment and Topic Classification. Wang and Manning 2012; as features
Text Categorization with Support Vector Machines. Joachims 1998, doi:10.1007/BFb0026683; as the baseline of every
network Zhang, Zhao and LeCun 2015, arXiv:1509.01626.

It is the floor that every other classifier has to pass: nothing is learned but one weight per n-gram and class. The
unit of the tokenizer decides what it is: words (text.unit = "word"), characters ("char"), jamo … Character n-grams
carry parts of words, so they need no morphological analysis.

    tokens → n-grams → counts, presence or TF-IDF → linear SVM or logistic regression, one against the rest

Training is dual coordinate descent, which reaches the optimum of LIBLINEAR's objective
½‖w‖² + C Σ loss(y (w·x + b)); the squared hinge or the logistic loss. Of two classes there is one classifier.

With `naive_bayes` it is the NBSVM of Wang and Manning: every feature is multiplied by its log-count ratio r, which is
the same as the regularization ½ Σ (w/r)² of the weights of the features as they are: informative n-grams may have large
weights, others not. Where this differs from the paper: any values, not presence alone; the weights are not interpolated
with their mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int8
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.errors import UserError
from mallang.kernels.coordinate_descent import Matrix
from mallang.kernels.ngram_rows import NgramIndex, Texts
from mallang.layers.checks import check_sizes
from mallang.layers.linear_classifier import balanced_costs, equal_costs, fit_linear, squared_log_count_ratios
from mallang.layers.tf_idf import Values, smooth_idf, weighted
from mallang.text.vocabulary import Vocabulary

__all__ = ["SIZES", "BagOfWords", "Config", "Model"]

TASK = "classification"


@dataclass(frozen=True, kw_only=True)
class Config:
    """The features and the classifier."""

    orders: tuple[int, ...] = (1, 2)
    """Lengths of the n-grams."""
    values: Values = "tf-idf"
    """The value of an n-gram in a text: its count, 1 where it occurs, or its TF-IDF."""
    sublinear: bool = False
    """1 + ln(count) in place of the count."""
    normalize: bool = True
    """Whether the features of a text are scaled to length 1."""
    boundaries: bool = False
    """Whether n-grams include the start and the end of a text."""
    min_count: int = 1
    """Minimum number of training texts with an n-gram."""
    buckets: int = 0
    """Number of buckets, a power of two, that n-grams are hashed into; 0: every n-gram has its own weight."""
    classifier: Literal["svm", "logistic"] = "svm"
    """A linear SVM with squared hinge loss, or logistic regression."""
    naive_bayes: bool = False
    """NBSVM: scale every feature by its log-count ratio, the weight that naive Bayes gives it for a class."""
    C: float = 1.0
    """Inverse strength of the L2 regularization."""
    class_weights: Literal["none", "balanced"] = "none"
    """balanced: the texts of a class weigh as much as all others together."""
    tolerance: float = 0.01
    """Training ends when no margin changes by more than this in a pass."""
    passes: int = 200
    """Maximum number of passes over the texts."""

    def __post_init__(self) -> None:
        check_sizes(self, "min_count", "passes", dropouts=())
        NgramIndex(1, self.orders, buckets=self.buckets)  # refuses impossible orders and buckets
        for name in ("C", "tolerance"):
            if not (getattr(self, name) > 0 and math.isfinite(getattr(self, name))):
                raise ValueError(f"{name} must be above 0, but is {getattr(self, name)}")
        if self.sublinear and self.values == "binary":
            raise ValueError("sublinear has no effect on values = 'binary'")
        if self.buckets and self.min_count > 1:
            raise ValueError(f"min_count = {self.min_count} has no effect on hashed n-grams; give buckets or min_count")


class BagOfWords(nn.Module):
    """A sparse vector of n-grams, and one linear classifier per class; random until it is fitted."""

    reads_source = False
    keys: Tensor
    """The n-grams that have a weight, most frequent first; none if they are hashed. See kernels/ngram_rows.py."""
    idf: Tensor
    is_exclusive: Tensor
    """Whether a text has exactly one class; otherwise any number."""

    def __init__(self, config: Config, vocabulary: Vocabulary, classes: int) -> None:
        super().__init__()
        self.config, self.vocabulary, self.classes = config, vocabulary, classes
        self.index = self.new_index()
        features = config.buckets or len(vocabulary)
        self.register_buffer("keys", torch.arange(1, 1 if config.buckets else features + 1))
        self.register_buffer("idf", torch.ones(features if config.values == "tf-idf" else 0))
        self.register_buffer("is_exclusive", torch.tensor(True))
        outputs = 1 if classes == 2 else classes
        self.weight = nn.Parameter(torch.randn(features, outputs), requires_grad=False)
        self.bias = nn.Parameter(torch.randn(outputs), requires_grad=False)

    def new_index(self, keys: Any = None) -> NgramIndex:
        """The columns of n-grams of this configuration."""
        try:
            return NgramIndex(len(self.vocabulary), self.config.orders, buckets=self.config.buckets, keys=keys)
        except ValueError as error:
            raise UserError(
                f"model.orders: {error}", todo="model.buckets=4194304, or a lower text.vocabulary"
            ) from None

    def forward(self, batch: Batch) -> Float[Tensor, "examples classes"]:
        """One logit per class for each text."""
        return self.classify(batch)

    def classify(self, batch: Batch) -> Float[Tensor, "examples classes"]:
        """One logit per class for each text.

        Softmax makes the logits of logistic regression the probabilities of one classifier against the rest, scaled to
        sum to 1. Margins of an SVM are used as they are.
        """
        arrays = (each.detach().cpu().float().contiguous().numpy() for each in (self.weight, self.bias))
        scores = torch.from_numpy(self.features(batch).scores(*arrays)).to(batch.tokens.device)
        if not self.is_exclusive:
            return scores
        if self.classes == 2:
            return torch.cat((-scores / 2, scores / 2), dim=1)
        return F.logsigmoid(scores) if self.config.classifier == "logistic" else scores

    def features(self, batch: Batch) -> Matrix:
        """The features of each text that have a weight."""
        keys = self.keys.cpu().numpy()
        if len(self.index.keys) != len(keys) or not np.shares_memory(self.index.keys, keys):
            self.index = self.new_index(keys)  # other weights were loaded
        return self.weighted(self.index.count(self.texts(batch)))

    def weighted(self, counted: Any) -> Matrix:
        """Counts as features."""
        config, idf = self.config, self.idf.cpu().numpy()
        return weighted(counted, config.values, idf=idf, sublinear=config.sublinear, normalize=config.normalize)

    def texts(self, batch: Batch) -> Texts:
        """The tokens of each text, without padding; sentences of a document follow each other."""
        tokens, words = batch.tokens.cpu(), self.vocabulary
        seen = batch.mask.cpu() & (tokens != words.pad) & (tokens != words.bos)
        if self.config.boundaries:
            tokens, seen = F.pad(tokens, (1, 0), value=words.bos), F.pad(seen, (1, 0), value=True)
        else:
            seen &= tokens != words.eos
        lengths = seen.sum(dim=1)
        if batch.sentences is not None:
            sentences = batch.sentences.cpu()
            rows = sentences[sentences >= 0]
            tokens, seen = tokens[rows], seen[rows]
            lengths = torch.where(sentences >= 0, lengths[sentences.clamp(min=0)], 0).sum(dim=1)
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths.numpy(), out=offsets[1:])
        return Texts(tokens[seen].numpy().astype(np.int32), offsets)

    def fit(self, stream: Iterable[Batch]) -> Iterator[Mapping[str, float]]:
        """Count the n-grams, weigh them and train the classifiers; reports the size of the matrix, then each pass."""
        config = self.config
        texts, signs = self.read(stream)
        index = self.new_index()
        counted = index.learn(texts)
        document_counts = counted.document_counts()
        if not config.buckets:
            frequent = np.flatnonzero(document_counts >= config.min_count)
            # The most frequent first: their weights lie together and stay in the cache.
            frequent = frequent[np.argsort(-document_counts[frequent], kind="stable")]
            counted, document_counts = index.keep(frequent, counted), document_counts[frequent]
        if config.values == "tf-idf":
            self.idf = torch.from_numpy(smooth_idf(document_counts, len(texts))).to(self.idf.device)
        yield {"texts": len(texts), "features": counted.features, "entries": len(counted.indices)}
        weights, bias = yield from fit_linear(
            self.weighted(counted),
            signs,
            (balanced_costs if config.class_weights == "balanced" else equal_costs)(signs, config.C),
            "logistic" if config.classifier == "logistic" else "squared-hinge",
            tolerance=config.tolerance,
            passes=config.passes,
            scales=squared_log_count_ratios(counted, signs) if config.naive_bayes else None,
        )
        device = self.weight.device
        self.keys = torch.from_numpy(index.keys).to(device)
        self.weight = nn.Parameter(torch.from_numpy(weights).to(device), requires_grad=False)
        self.bias = nn.Parameter(torch.from_numpy(bias).to(device), requires_grad=False)

    def read(self, stream: Iterable[Batch]) -> tuple[Texts, Int8[np.ndarray, "texts outputs"]]:
        """All texts, and for each class 1 or −1."""
        found: list[Texts] = []
        labels: list[Tensor] = []
        for batch in stream:
            field = batch.classes if batch.classes is not None else batch.class_sets
            if field is None:
                raise UserError(
                    "a bag of words learns classes, but these texts have none", todo="task.name=classification"
                )
            found.append(self.texts(batch))
            labels.append(field.cpu())
        if not found:
            raise UserError("there is no text to learn from", todo="check data.train")
        given = torch.cat(labels)
        self.is_exclusive = torch.tensor(given.dim() == 1, device=self.weight.device)
        if given.dim() == 1:
            given = (given == 1)[:, None] if self.classes == 2 else F.one_hot(given, self.classes)
        return joined(found), np.where(given.numpy() > 0, 1, -1).astype(np.int8)

    def adopt(self, arrays: Mapping[str, Tensor]) -> None:
        """Use the saved arrays of a run without a copy: of any length, and memory-mapped from disk."""
        if set(arrays) != set(self.state_dict()):
            raise ValueError(f"a bag of words has {', '.join(self.state_dict())}, not {', '.join(arrays)}")
        features, outputs = arrays["weight"].shape
        is_whole = len(arrays["keys"]) == (0 if self.config.buckets else features)
        if not is_whole or len(arrays["idf"]) != (features if self.config.values == "tf-idf" else 0):
            raise ValueError(f"{features} weights do not fit {len(arrays['keys'])} n-grams")
        if outputs != (1 if self.classes == 2 and arrays["is_exclusive"] else self.classes):
            raise ValueError(f"{outputs} classifiers do not fit {self.classes} classes")
        for name in ("keys", "idf", "is_exclusive"):
            setattr(self, name, arrays[name])
        self.weight = nn.Parameter(arrays["weight"], requires_grad=False)
        self.bias = nn.Parameter(arrays["bias"], requires_grad=False)


def joined(parts: Sequence[Texts]) -> Texts:
    """Texts of several batches."""
    starts = np.cumsum([0, *(len(part.ids) for part in parts)])
    offsets = [part.offsets[1:] + start for part, start in zip(parts, starts[:-1], strict=True)]
    return Texts(np.concatenate([part.ids for part in parts]), np.concatenate([np.zeros(1, np.int64), *offsets]))


SIZES: dict[str, dict[str, Any]] = {"tiny": {}, "base": {}}
"""Named shapes, as changes to the defaults."""

Model = BagOfWords
