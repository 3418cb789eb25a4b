"""Bidirectional language modeling: predict each word from all words before it, and again from all words after it.

    read       <s>  w1   w2   </s>
    forward    w1   w2   </s>  ·         p(word | the words before it)
    backward   ·    <s>  w1   w2         p(word | the words after it)

The two losses are parts of their own, and no direction sees the word that it predicts. Lines are read one by one, each
from a zero state. The trained model writes nothing: it is an encoder, whose layers are the vectors of words in their
context (Peters et al. 2018, ELMo, arXiv:1802.05365).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Float32, Int
from torch import Tensor, nn

from mallang.data.batch import Batch, Shapes, pad_rows
from mallang.data.corpus import Config as Data
from mallang.data.filters import Filters
from mallang.data.prepared import Prepared
from mallang.data.sampler import Buckets, Rows, by_length
from mallang.decoding import contract as decoding
from mallang.decoding.contract import device_of, inference
from mallang.errors import UserError
from mallang.evaluation.perplexity import perplexities
from mallang.evaluation.score import Score
from mallang.layers.head import Projection, projected_cross_entropy
from mallang.tasks import language_modeling
from mallang.tasks.contract import Better, Evaluated, Group, Loss
from mallang.tasks.embedding import text_vectors, word_vectors
from mallang.tasks.out_of_vocabulary import forget_oov, ids_to_read, validation_lines
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import BOS, EOS, PAD, Vocabulary

__all__ = ["DEFAULTS", "SECTIONS", "Config", "Task", "Verbs"]

SECTIONS: tuple[str, ...] = ()
"""Sections of a recipe that this task reads besides those of every recipe."""
DEFAULTS: dict[str, dict[str, Any]] = {"text": {"unit": "word", "vocabulary": 50_000}}
"""Defaults of a recipe of this task: tokens are words, which the model reads from their characters."""
DIRECTIONS = ("forward", "backward")
BATCH_TOKENS = {"cpu": 4096, "cuda": 32768}
"""Tokens per batch of evaluation."""


@runtime_checkable
class Bidirectional(Protocol):
    """Two language models in one, a forward and a backward one, which share their output."""

    def directions(self, batch: Batch) -> tuple[Float[Tensor, "batch time dim"], Float[Tensor, "batch time dim"]]:
        """The hidden vectors of both at every position: of the next token, and of the one before."""

    def shared_projection(self) -> Projection:
        """The linear layer from the hidden vectors of either to one logit per word."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """There is nothing to set: every line is read by itself, in both directions."""


class Task:
    """Learn p(word | all words before it) and p(word | all words after it) from lines."""

    columns = ("text",)
    unread: tuple[str, ...] = tuple(field.name for field in fields(decoding.Config))
    """All options of a search: nothing is searched."""
    open_ended = False
    can_compile = True
    parts = DIRECTIONS
    metrics: Mapping[str, Better] = {"loss": "lower", "forward": "lower", "backward": "lower"}
    carries = False
    width: int | None = None
    one_shape = False

    def __init__(self, config: Config, tokenizers: Mapping[str, Tokenizer]) -> None:
        self.config, self.tokenizers, self.text = config, tokenizers, tokenizers["text"]
        self.lines = language_modeling.Task(language_modeling.Config(), tokenizers)
        """The task of a forward language model on the same lines."""

    def build(self, model: ModuleType, config: Any) -> nn.Module:
        """The model for this vocabulary."""
        if not issubclass(model.Model, Bidirectional):
            raise UserError(
                f"{model.__name__.rsplit('.', 1)[-1]} has no language models of both directions",
                todo="model.name=elmo, or task.name=language_modeling",
            )
        built: nn.Module = model.Model(config, self.text.vocabulary)
        return built

    def filters(self, data: Data) -> tuple[Filters, Filters]:
        """The length filters of training and evaluation: held-out text is never filtered."""
        return self.lines.filters(data)

    def shapes(self, tokens: int, sentences: int | None) -> Shapes | None:
        """The shapes that batches are padded to where an engine needs few shapes."""
        return Shapes(tokens, sentences)

    def examples(self, corpus: Prepared, seed: int, epoch: int) -> Any:
        """The lines of an epoch."""
        return corpus.epoch(seed, epoch)

    def plan(
        self, corpus: Prepared, *, tokens: int, sentences: int | None = None, multiple: int = 1, seed: int, epoch: int
    ) -> Sequence[Rows]:
        """Batches of lines of similar length, with `<s>` and `</s>`."""
        lengths = corpus.epoch(seed, epoch).lengths + 2
        return Buckets(lengths, tokens=tokens, sentences=sentences, multiple=multiple, seed=seed, epoch=epoch)

    def prepare(self, rows: list[tuple[Any, ...]], random: np.random.Generator) -> Batch:
        """Lines between `<s>` and `</s>`: what is read and what is predicted."""
        return framed([line for ((line,),) in rows])

    def counts(self, batch: Batch) -> dict[str, int]:
        """The predictions of each direction, one fewer than tokens in every line."""
        count = int((batch.lengths - 1).sum())
        return {"forward": count, "backward": count, "tokens": int(batch.lengths.sum())}

    def loss(self, model: Any, batch: Batch, carry: Any) -> Loss:
        """The summed cross-entropy of each direction."""
        sums = {}
        for name, hidden, labels in self.predictions(model, batch):
            flat, asked = hidden.flatten(0, 1), labels.flatten()
            if not flat.is_cuda:  # on a GPU, selecting the labels would synchronize with the host
                places = asked != PAD
                flat, asked = flat[places], asked[places]
            sums[name] = projected_cross_entropy(model.shared_projection(), flat, asked)[0]
        return Loss(sums=sums)

    def predictions(self, model: Any, batch: Batch) -> list[tuple[str, Tensor, Int[Tensor, "batch time"]]]:
        """Each direction with its hidden vectors and its labels, `<pad>` where there is none."""
        return list(zip(DIRECTIONS, model.directions(batch), labels_of(batch, self.text.vocabulary), strict=True))

    def updates(self, model: nn.Module) -> list[Group]:
        """One parameter group with all parameters."""
        return [Group(list(model.named_parameters()))]

    def validate(self, model: nn.Module, corpus: Prepared, rows: Sequence[tuple[str, ...]], metric: str) -> list[Score]:
        """The mean loss per word of each direction, `</s>` or `<s>` included, and the sum of both."""
        with validation_lines(model, self.text, corpus, rows) as lines:
            sums = self.line_losses(model, [lines[place][0] for place in range(len(lines))])
        count = sum(len(corpus[place][0]) + 1 for place in range(len(corpus)))
        means = {name: float(numbers.sum()) / count for name, numbers in sums.items()}
        found = {"loss": sum(means.values()), **means}
        about = {"loss": "nats per word, both directions together|end counted"}
        return [Score(name, value, about.get(name, "nats per word|end counted"), count=count) for name, value in
                found.items()]  # fmt: skip

    def line_losses(self, model: Any, lines: Sequence[Any]) -> dict[str, Float32[np.ndarray, " lines"]]:
        """The summed negative log-probability of every line of ids in each direction."""
        device, found = device_of(model), {name: np.zeros(len(lines), np.float32) for name in DIRECTIONS}
        with inference(model):
            for group in by_length([len(line) + 2 for line in lines], BATCH_TOKENS.get(device.type, 4096)):
                batch = framed([lines[place] for place in group]).to(device)
                for name, hidden, labels in self.predictions(model, batch):
                    logits = model.shared_projection()(hidden).float()
                    losses = F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=PAD, reduction="none")
                    found[name][group] = losses.sum(dim=1).cpu().numpy()
        return found


def framed(lines: Sequence[Any]) -> Batch:
    """Lines of ids between `<s>` and `</s>`."""
    tokens, lengths = pad_rows(lines, begin=BOS, end=EOS)
    return Batch(tokens=tokens, lengths=lengths)


def labels_of(batch: Batch, vocabulary: Vocabulary) -> tuple[Int[Tensor, "batch time"], Int[Tensor, "batch time"]]:
    """The next token of every position, and the one before; `<pad>` where there is none.

    Padding has none, whatever its ids are. A word outside the vocabulary, which can be read, is predicted as `<unk>`.
    """
    tokens = batch.tokens.masked_fill(batch.tokens >= len(vocabulary), vocabulary.unk)
    places = torch.arange(batch.tokens.shape[1], device=batch.tokens.device)
    following, before = tokens.roll(-1, dims=1), tokens.roll(1, dims=1)
    ends = batch.lengths[:, None]
    is_first = places == 0
    return (
        following.masked_fill(places >= ends - 1, PAD),
        before.masked_fill(is_first | (places >= ends), PAD),
    )


class Verbs:
    """A trained bidirectional language model: it embeds texts, and finds out how probable each word is."""

    task_name = "bidirectional_language_modeling"
    verbs = ("embed", "evaluate")
    compared_by = ("forward perplexity per word",)

    def __init__(self, task: Task, model: nn.Module, config: None, max_length: int) -> None:
        self.task, self.model, self.config, self.max_length = task, model, config, max_length

    def embed(self, texts: str | Iterable[str], *, words: bool = False) -> Any:
        """The vector of a text, the mean of its words' in the last layer, or one row per text; with `words` those of
        words without context, from their characters."""
        given = [texts] if isinstance(texts, str) else list(texts)
        found = (word_vectors if words else text_vectors)(self.model, self.task.text, given)
        return found[0] if isinstance(texts, str) else found

    @property
    def evaluated(self) -> Evaluated:
        """What `evaluate` gives for each row."""
        return "log-probabilities"

    def evaluate(
        self, rows: Sequence[tuple[str, ...]], *, domain: str | None = None, **options: Any
    ) -> tuple[list[Score], list[str]]:
        """Perplexity of each direction; and the log-probability of every line, the mean of both directions."""
        if unread := [*options, *(["domain"] if domain is not None else [])]:
            raise UserError(f"{unread[0]} has no effect on the perplexity of a given text", todo="leave it out")
        texts = [text for (text,) in rows]
        forget_oov(self.model)
        lines = ids_to_read(self.model, self.task.text, texts, self.task.text.encode_batch(texts))
        sums = self.task.line_losses(self.model, lines)
        scores: list[Score] = []
        for name, losses in sums.items():
            each = perplexities(
                [-float(loss) for loss in losses],
                tokens=[len(line) for line in lines],
                words=[len(text.split()) for text in texts],
                bytes=[len(text.encode()) for text in texts],
                tokenizer=self.task.text.config.unit,
                context_mode=f"layout:lines|direction:{name}",
            )
            scores += [replace(score, name=f"{name} {score.name}") for score in each.values()]
        total = sum(sums.values())
        return scores, [f"{-number / 2:.6f}" for number in np.asarray(total).tolist()]
