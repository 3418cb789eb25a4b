"""Frozen features of another run (`given.features`), joined to the vectors of the model under the head of a task.

    text   → own encoder      → vector of the text, or of each word ┐
    text   → given encoder    → vector of the text, or of each word ┴→ joined → head

The given encoder reads the text with its own tokenizer. Words are tokenized one by one on both sides, so that a word is
the same word whatever its tokens are: its vector is that of its first token. A backward language model reads the text
from its end. Words beyond the maximum length of the given encoder have zeros. This is the feature-based use of ELMo and
BERT: the gradient stops at the features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mallang.data.batch import Batch, pad_rows, pad_texts
from mallang.data.columns import Column, Kind, Segments, Starts
from mallang.find import find
from mallang.layers.encoded import Encoded
from mallang.layers.frozen import Frozen
from mallang.layers.pooling import first_of_words
from mallang.models.contract import Encoder, encode_text, longest_of, reads_sentences
from mallang.runs.given import Given
from mallang.tasks.contract import Directed

RECEIVES = {"features": "Run folder of an encoder; its frozen vectors are joined to those of the model under the head."}
"""What a task with features declares."""


def features_of(given: Mapping[str, Given] | None, kind: Kind) -> Features | None:
    """The features that a task is given, of a text column of this kind; None if it is given none."""
    return Features(given["features"], kind) if given and "features" in given else None


class Features:
    """The features of texts, or of their words."""

    def __init__(self, given: Given, kind: Kind) -> None:
        self.given, self.of_words = given, kind == "words"
        encoder: Any = given.model
        if not isinstance(encoder, Encoder):
            raise given.unfit(
                f"{type(encoder).__name__} encodes no text",
                todo="give the run of an encoder, such as rnn_lm, rnn_classifier or transformer_encoder",
            )
        if reads_sentences(encoder):
            raise given.unfit(
                f"{type(encoder).__name__} reads documents in sentences", todo="give an encoder of plain texts"
            )
        dims = encoder.encoder_dims()
        if self.of_words and dims.token is None:
            raise given.unfit(f"{type(encoder).__name__} has no vector for a single word", todo="give another encoder")
        self.dim = (dims.token or 0) if self.of_words else dims.pooled
        self.longest = longest_of(encoder)
        task = find("tasks", given.task).Task
        self.backward = isinstance(task, Directed) and task.backward
        self.segments = Segments(given.tokenizer, kind)
        self.tokens = Column(0, given.tokenizer if kind == "text" else self.segments, is_text=False)

    def module(self) -> Frozen:
        """The given encoder, to be held by the model that uses it."""
        return Frozen(self.given.model)

    def arrays(self) -> list[Column]:
        """The arrays of a corpus that it needs: tokens, and of words their first ones; column 0 holds the text."""
        return [self.tokens, *([Column(0, Starts(self.segments), is_text=False)] if self.of_words else [])]

    def fields(self, rows: Sequence[Sequence[Any]]) -> dict[str, Tensor]:
        """The fields of a batch from those arrays of each example."""
        vocabulary = self.given.tokenizer.vocabulary
        most = None if self.longest is None else self.longest - vocabulary.frame_length
        read = [row[0][::-1] if self.backward else row[0] for row in rows]
        tokens, lengths = pad_texts([ids[:most] for ids in read], vocabulary)
        found = {"feature_tokens": tokens, "feature_lengths": lengths}
        if self.of_words:
            starts = [len(row[0]) - 1 - row[1] if self.backward else row[1] for row in rows]
            found["feature_words"] = pad_rows([each + vocabulary.frame_length - 1 for each in starts], -1)[0]
        return found

    def join(self, vectors: Float[Tensor, "*rows dim"], features: Frozen, batch: Batch) -> Float[Tensor, "*rows both"]:
        """The vectors of texts or words with their features."""
        with torch.no_grad():
            encoded = encode_text(features.module, self.read_batch(batch))
            found = self.word_vectors(encoded, batch.feature_words) if self.of_words else encoded.pooled
        return torch.cat((vectors, found.to(vectors.dtype)), dim=-1)

    def read_batch(self, batch: Batch) -> Batch:
        """What the given encoder reads of a batch; padding may be wider than it can read, tokens are not."""
        assert batch.feature_tokens is not None and batch.feature_lengths is not None
        return Batch(tokens=batch.feature_tokens[:, : self.longest], lengths=batch.feature_lengths)

    def word_vectors(
        self, encoded: Encoded, words: Int[Tensor, "examples words"] | None
    ) -> Float[Tensor, "examples words dim"]:
        """The vector of the first token of every word; zeros for words that were cut off."""
        assert words is not None
        layer = encoded.layers[-1]
        is_read = words < (layer.shape[1] if self.longest is None else self.longest - 1)
        return first_of_words(layer, words.clamp(max=layer.shape[1] - 1)) * is_read[:, :, None]
