"""Occurrences of words in texts, each with its vectors in every layer of an encoder: what a word is in its context.

A word has the mean of the vectors of its tokens. The text is tokenized as a whole, as in training; words that the model
does not know are read from their characters, if it can do that. Words beyond what the model can read at once are left
out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Float32
from torch import Tensor

from mallang.data.batch import Batch, pad_texts
from mallang.data.sampler import by_length
from mallang.decoding.contract import device_of, inference
from mallang.errors import UserError
from mallang.layers.head import Headed
from mallang.models.contract import Encoder, encode_text, longest_of, reads_sentences
from mallang.tasks.contract import Directed, Verbs
from mallang.tasks.out_of_vocabulary import forget_oov, ids_to_read
from mallang.text.tokenizer import Tokenizer
from mallang.text.words import Word, split_words

BATCH_TOKENS = 4096
"""Padded tokens per batch."""


@dataclass(frozen=True)
class Occurrence:
    """A word in a text."""

    text: str
    word: Word
    line: int
    """The number of the text, from 0."""
    layers: tuple[Float32[np.ndarray, " _"], ...]
    """The vector of the word in every layer of the encoder."""

    def __str__(self) -> str:
        return f"{self.text[: self.word.start]}[{self.word.text}]{self.text[self.word.end :]}"


class Contexts:
    """An encoder that gives the words of texts their vectors in context."""

    def __init__(self, verbs: Verbs) -> None:
        model: Any = verbs.model.model if isinstance(verbs.model, Headed) else verbs.model
        name = type(model).__name__
        if not isinstance(model, Encoder) or model.encoder_dims().token is None:
            raise UserError(
                f"{name} has no vectors of words in their context",
                todo="give the run of an encoder, such as elmo, bert, transformer_encoder or rnn_lm",
            )
        if reads_sentences(model):
            raise UserError(f"{name} reads documents in sentences", todo="give an encoder of plain texts")
        self.model: Any = model
        tokenizers: dict[str, Tokenizer] = dict(verbs.task.tokenizers)
        self.tokenizer = next(iter(tokenizers.values()))  # the source comes first
        self.backward = isinstance(verbs.task, Directed) and verbs.task.backward

    def occurrences(
        self, texts: Sequence[str], words: Sequence[Sequence[Word]] | None = None
    ) -> list[list[Occurrence]]:
        """The words of every text that the model has read; `words` tells where they are, if they are known."""
        split = [split_words(text, "words") for text in texts] if words is None else words
        encoder: Any = self.model
        forget_oov(encoder)
        encoded = [self.tokenizer.encode(text) for text in texts]
        ids = ids_to_read(encoder, self.tokenizer, texts, [each.ids for each in encoded])
        vocabulary, longest = self.tokenizer.vocabulary, longest_of(encoder)
        most = None if longest is None else longest - vocabulary.frame_length
        kept = [row[:most] for row in ids]
        found: list[list[Occurrence]] = [[] for _ in texts]
        for group, layers in self.layers_of([row[::-1] if self.backward else row for row in kept]):
            for row, place in enumerate(group):
                size = len(kept[place])
                begin = vocabulary.frame_length - 1
                vectors = [layer[row, begin : begin + size].float().cpu().numpy() for layer in layers]
                ordered = [each[::-1] if self.backward else each for each in vectors]
                spans = encoded[place].offsets[:size]
                found[place] = list(words_of(texts[place], split[place], place, spans, ordered))
        return found

    def layers_of(self, rows: Sequence[list[int]]) -> Iterator[tuple[list[int], list[Float[Tensor, "rows time _"]]]]:
        """Batches of rows of ids of similar length: their numbers, and the layers of the encoder."""
        device, vocabulary = device_of(self.model), self.tokenizer.vocabulary
        with inference(self.model):
            for group in by_length([len(row) + vocabulary.frame_length for row in rows], BATCH_TOKENS) if rows else ():
                tokens, lengths = pad_texts([rows[place] for place in group], vocabulary)
                yield group, encode_text(self.model, Batch(tokens=tokens, lengths=lengths).to(device)).layers


def words_of(
    text: str,
    words: Sequence[Word],
    line: int,
    spans: Sequence[tuple[int, int]],
    layers: Sequence[Float32[np.ndarray, "tokens _"]],
) -> Iterator[Occurrence]:
    """The words of a text that have tokens, each with the mean of their vectors; `spans` are where the tokens are."""
    bounds = np.array(spans, dtype=np.int64).reshape(-1, 2)
    for word in words:
        places = np.flatnonzero((bounds[:, 0] < word.end) & (bounds[:, 1] > word.start))
        if len(places):
            yield Occurrence(text, word, line, tuple(layer[places].mean(axis=0) for layer in layers))
