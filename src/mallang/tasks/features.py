"""Frozen features of another run (`given.features`), joined to the vectors of the model under the head of a task.

    text   → own encoder      → vector of the text, or of each word ┐
    text   → given encoder    → vector of the text, or of each word ┴→ joined → head

With a mix all layers of the given encoder count, in shares that are learned with the head (layers/mix.py); otherwise it
is the last one. The given encoder reads the text with its own tokenizer. Words are tokenized one by one on both sides,
so that a word is the same word whatever its tokens are: its vector is that of its first token. Words that the given
encoder does not know are read from their characters, if it can do that. A backward language model reads the text from
its end. Words beyond the maximum length of the given encoder have zeros. This is the feature-based use of ELMo and
BERT: the gradient stops at the features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mallang.data.batch import Batch, pad_rows, pad_texts
from mallang.data.columns import Column, Kind, Segments, Starts
from mallang.errors import UserError
from mallang.find import find
from mallang.layers.frozen import Frozen
from mallang.layers.mix import LayerMix
from mallang.layers.pooling import first_of_words, masked_mean
from mallang.layers.spelling import KeepsWords
from mallang.models.contract import Encoder, encode_text, longest_of, reads_sentences
from mallang.runs.given import Given
from mallang.tasks.contract import Directed
from mallang.tasks.out_of_vocabulary import UNITS, WithKeptWords, forget_oov, ids_to_read, keep_words
from mallang.text.tokenizer import Tokenizer

RECEIVES = {"features": "Run folder of an encoder; its frozen vectors are joined to those of the model under the head."}
"""What a task with features declares."""


@runtime_checkable
class Mixing(Protocol):
    """The options of a task about its features."""

    @property
    def features_mix(self) -> bool:
        """Whether the layers are mixed in learned shares."""

    @property
    def features_l2(self) -> float:
        """The weight of the penalty on that mix."""


def check_mix(options: Mixing) -> None:
    """Refuse a penalty that has no effect."""
    if options.features_l2 < 0:
        raise ValueError(f"features_l2 must not be negative, but is {options.features_l2}")
    if options.features_l2 and not options.features_mix:
        raise ValueError("features_l2 has no effect without features_mix = true")


def features_of(
    given: Mapping[str, Given] | None, kind: Kind, options: Mixing, tokenizer: Tokenizer
) -> Features | None:
    """The features that a task is given, of a text column of this kind; None if it is given none.

    `tokenizer` is the task's own: its vocabulary tells which words will be read.
    """
    found = given_encoder(given, options)
    return None if found is None else Features(found, kind, options, tokenizer)


def given_encoder(given: Mapping[str, Given] | None, options: Mixing) -> Given | None:
    """The run whose vectors are the features; None if there is none, and then no mix of its layers either."""
    if given and "features" in given:
        return given["features"]
    if options.features_mix:
        raise UserError("task.features_mix has no effect without features", todo="given.features=runs/elmo")
    return None


class Features:
    """The features of texts, or of their words."""

    def __init__(
        self, given: Given, kind: Kind, options: Mixing, own: Tokenizer, *, of_words: bool | None = None
    ) -> None:
        """`of_words`: whether each word, or token, has a vector of its own; by default where a cell holds words."""
        self.given, self.options = given, options
        self.of_words = kind in ("words", "sentences") if of_words is None else of_words
        encoder: Any = given.model
        if not isinstance(encoder, Encoder):
            raise given.unfit(
                f"{type(encoder).__name__} encodes no text",
                todo="give the run of an encoder, such as elmo, rnn_lm or transformer_encoder",
            )
        if reads_sentences(encoder):
            raise given.unfit(
                f"{type(encoder).__name__} reads documents in sentences", todo="give an encoder of plain texts"
            )
        dims = encoder.encoder_dims()
        if self.of_words and dims.token is None:
            raise given.unfit(f"{type(encoder).__name__} has no vector for a single word", todo="give another encoder")
        self.layers = self.count_layers() if options.features_mix else 1
        self.dim = (dims.token or 0) if self.of_words or options.features_mix else dims.pooled
        self.longest = longest_of(encoder)
        task = find("tasks", given.task).Task
        self.backward = isinstance(task, Directed) and task.backward
        words = texts_of(own) if own.config.unit in UNITS else []
        self.tokenizer = WithKeptWords(given.tokenizer, keep_words(encoder, given.tokenizer, words))
        self.segments = Segments(self.tokenizer, kind)
        self.tokens = Column(0, self.tokenizer if kind == "text" else self.segments, is_text=False)

    def count_layers(self) -> int:
        """How many layers the given encoder has; they must be several, all of one size."""
        tokens, lengths = pad_texts([[self.given.tokenizer.vocabulary.unk]], self.given.tokenizer.vocabulary)
        with torch.no_grad():
            layers = encode_text(self.given.model, Batch(tokens=tokens, lengths=lengths)).layers
        if len(layers) < 2 or len({layer.shape[-1] for layer in layers}) > 1:
            raise self.given.unfit(
                f"{type(self.given.model).__name__} does not have several layers of one size to mix",
                todo="task.features_mix=false, or give an encoder that has, such as elmo or bert",
            )
        return len(layers)

    def mix(self) -> LayerMix | None:
        """A new mix of the layers, to be learned with the head."""
        return LayerMix(self.layers, l2=self.options.features_l2) if self.options.features_mix else None

    def module(self) -> Frozen:
        """The given encoder, to be held by the model that uses it."""
        return Frozen(self.given.model)

    def arrays(self) -> list[Column]:
        """The arrays of a corpus that it needs: tokens, and of words their first ones; column 0 holds the text."""
        return [self.tokens, *([Column(0, Starts(self.segments), is_text=False)] if self.of_words else [])]

    def fields(self, rows: Sequence[Sequence[Any]]) -> dict[str, Tensor]:
        """The fields of a batch from those arrays of each example."""
        found = self.fields_of_tokens([row[0] for row in rows])
        if self.of_words:
            starts = [len(row[0]) - 1 - row[1] if self.backward else row[1] for row in rows]
            offset = self.given.tokenizer.vocabulary.frame_length - 1
            found["feature_words"] = pad_rows([each + offset for each in starts], -1)[0]
        return found

    def fields_of_tokens(self, rows: Sequence[Any]) -> dict[str, Tensor]:
        """The tokens of texts as the given encoder reads them."""
        vocabulary = self.given.tokenizer.vocabulary
        most = None if self.longest is None else self.longest - vocabulary.frame_length
        read = [ids[::-1] if self.backward else ids for ids in rows]
        tokens, lengths = pad_texts([ids[:most] for ids in read], vocabulary)
        return {"feature_tokens": tokens, "feature_lengths": lengths}

    def join(
        self,
        vectors: Float[Tensor, "*rows dim"],
        features: Frozen,
        batch: Batch,
        mix: LayerMix | None = None,
    ) -> Float[Tensor, "*rows both"]:
        """The vectors of texts or words with their features; the gradient stops at the encoder, not at the mix."""
        return torch.cat((vectors, self.vectors(features, batch, mix).to(vectors.dtype)), dim=-1)

    def vectors(self, features: Frozen, batch: Batch, mix: LayerMix | None = None) -> Float[Tensor, "*rows dim"]:
        """The features of texts or words."""
        with torch.no_grad():
            parts = self.parts(features, batch, mix)
        return parts[0] if mix is None else mix(parts)

    def parts(self, features: Frozen, batch: Batch, mix: LayerMix | None) -> list[Float[Tensor, "*rows dim"]]:
        """The vectors of texts or words, from each layer that counts: all of them with a mix."""
        encoded = encode_text(features.module, self.read_batch(batch))
        if self.of_words:
            chosen = encoded.layers if mix is not None else encoded.layers[-1:]
            return [self.word_vectors(layer, batch.feature_words) for layer in chosen]
        if mix is not None:
            return [masked_mean(layer, encoded.mask) for layer in encoded.layers]
        return [encoded.pooled]

    def penalties(self, mix: LayerMix | None, examples: int) -> dict[str, Float[Tensor, " examples"]]:
        """What the mix adds to the loss of each example."""
        if mix is None or not self.options.features_l2 or not mix.training:
            return {}
        return {"features_l2": mix.penalty().expand(examples)}

    def ids_of(self, sentences: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        """The ids of the words of sentences; words outside all vocabularies are read from their characters."""
        encoder = self.given.model
        if not isinstance(encoder, KeepsWords):
            return self.segments.ids_of(sentences)
        forget_oov(encoder)
        words = list(dict.fromkeys(word for sentence in sentences for word in sentence))
        read = ids_to_read(encoder, self.given.tokenizer, words, self.segments.ids_of([words])[0])
        known = dict(zip(words, read, strict=True))
        return [[known[word] for word in sentence] for sentence in sentences]

    def forget(self) -> None:
        """Forget the words outside all vocabularies: captured CUDA graphs read the table without them."""
        forget_oov(self.given.model, 0)

    def read_batch(self, batch: Batch) -> Batch:
        """What the given encoder reads of a batch; padding may be wider than it can read, tokens are not."""
        assert batch.feature_tokens is not None and batch.feature_lengths is not None
        return Batch(tokens=batch.feature_tokens[:, : self.longest], lengths=batch.feature_lengths)

    def word_vectors(
        self, layer: Float[Tensor, "examples time dim"], words: Int[Tensor, "examples words"] | None
    ) -> Float[Tensor, "examples words dim"]:
        """The vector of the first token of every word; zeros for words that were cut off."""
        assert words is not None
        is_read = words < (layer.shape[1] if self.longest is None else self.longest - 1)
        return first_of_words(layer, words.clamp(max=layer.shape[1] - 1)) * is_read[:, :, None]


def texts_of(tokenizer: Tokenizer) -> list[str]:
    """The words of a vocabulary as texts."""
    vocabulary = tokenizer.vocabulary
    numbers = [number for number in range(len(vocabulary)) if number not in vocabulary.specials]
    return [tokenizer.decode([number]).strip() for number in numbers]
