"""Embeddings: a vector for every text, every token, or every word."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32
from torch import nn

from mallang.data.batch import Batch, pad_texts
from mallang.data.sampler import by_length
from mallang.decoding.contract import device_of, inference
from mallang.errors import UserError
from mallang.layers.spelling import ReadsSpelling
from mallang.models.contract import Encoder, HiddenStates, InputEmbedding, SourceReader, longest_of
from mallang.tasks.contract import Directed, Verbs
from mallang.tasks.out_of_vocabulary import forget_oov, ids_to_read
from mallang.tasks.text_windows import TextWindows, mean_vectors
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import BOS, Vocabulary

BATCH_TOKENS = 4096
"""Padded tokens per batch."""


def text_vectors(
    model: object,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    backward: bool = False,
    windows: TextWindows | None = None,
) -> Float32[np.ndarray, "texts dim"]:
    """The fixed-size vector into which the model encodes each text; a backward model reads it from its end.

    A text that is longer than its positions is read in windows; `windows` are smaller ones, or cut it.
    """
    if not isinstance(model, Encoder):
        raise UserError(
            f"{type(model).__name__} keeps no single vector of a text",
            todo="take a model that does, such as sutskever, cho or autoencoder; word vectors: --words",
        )
    if not texts:
        return text_vectors(model, tokenizer, [""])[:0]  # only the model knows the size of its vectors
    rows = [row[::-1] if backward else row for row in tokenizer.encode_batch(list(texts))]
    return vectors_of(model, tokenizer.vocabulary, rows, windows)


def vectors_of(
    model: Encoder, vocabulary: Vocabulary, rows: Sequence[Any], windows: TextWindows | None = None
) -> Float32[np.ndarray, "texts dim"]:
    """The vector of each text, given as tokens."""
    windows = windows or TextWindows.of(longest_of(model), vocabulary.frame_length)
    parts = [windows.parts(row) for row in rows]
    ids = [part for each in parts for part in each]
    device, found = device_of(model), dict[int, np.ndarray]()
    with inference(model):
        for group in by_length([len(row) + vocabulary.frame_length for row in ids], BATCH_TOKENS):
            source, lengths = pad_texts([ids[place] for place in group], vocabulary)
            batch = Batch(tokens=source, lengths=lengths)
            if isinstance(model, SourceReader) and model.reads_source:
                start = torch.full((len(group), 1), vocabulary.bos)
                batch = Batch(tokens=start, lengths=torch.ones_like(lengths), source=source, source_lengths=lengths)
            pooled = model.encode(batch.to(device)).pooled.float().cpu().numpy()
            found.update(zip(group, pooled, strict=True))
    return mean_vectors(np.stack([found[place] for place in range(len(ids))]), [len(each) for each in parts])


@dataclass(frozen=True)
class TokenVectors:
    """The tokens of a text, and their vectors after every layer; layer 0 is the input embedding."""

    tokens: tuple[str, ...]
    layers: tuple[Float32[np.ndarray, "tokens _"], ...]

    def join(self, other: TokenVectors) -> TokenVectors:
        """Concatenate the vectors of two models, layer by layer, such as a forward and a backward model."""
        if self.tokens != other.tokens:
            raise UserError(
                "the two runs tokenize the text differently",
                todo="train both on the same text, unit and vocabulary",
            )
        if len(self.layers) != len(other.layers):
            raise UserError(
                f"the runs have {len(self.layers) - 1} and {len(other.layers) - 1} layers: they do not match"
            )
        pairs = zip(self.layers, other.layers, strict=True)
        return TokenVectors(self.tokens, tuple(np.concatenate(pair, axis=1) for pair in pairs))


def token_vectors(verbs: Verbs, texts: Sequence[str]) -> list[TokenVectors]:
    """The vectors of every token after each layer, in the order of the text, also for a backward model."""
    model, backward = verbs.model, isinstance(verbs.task, Directed) and verbs.task.backward
    if not isinstance(model, HiddenStates):
        raise UserError(f"{type(model).__name__} has no states per layer to show", todo="give a run of rnn_lm")
    found = []
    with inference(model):
        for text in texts:
            encoded = verbs.task.text.encode(text)
            read = torch.tensor([[BOS, *(encoded.ids[::-1] if backward else encoded.ids)]], device=device_of(model))
            states = [state[0, 1:].float().cpu().numpy() for state in model.hidden_states(read)]
            ordered = [np.ascontiguousarray(state[::-1]) if backward else state for state in states]
            found.append(TokenVectors(tuple(encoded.tokens), tuple(ordered)))
    return found


def word_vectors(model: object, tokenizer: Tokenizer, words: Sequence[str]) -> Float32[np.ndarray, "words dim"]:
    """The input embedding of each word, learned or computed from its characters; for several tokens, the mean."""
    read = input_vectors(model)
    forget_oov(model)
    found = []
    rows = ids_to_read(model, tokenizer, words, tokenizer.encode_batch(list(words)))
    for word, ids in zip(words, rows, strict=True):
        known = [token for token in ids if token not in tokenizer.vocabulary.specials]
        if not known:
            raise UserError(
                f"the model knows nothing of {word!r}", todo="leave it out, or give words of its vocabulary"
            )
        found.append(read(known).mean(axis=0))
    return np.stack(found) if found else read([tokenizer.vocabulary.unk])[:0]


def input_vectors(model: object) -> Callable[[list[int]], Float32[np.ndarray, "tokens dim"]]:
    """A function that gives the input embeddings of tokens, before positions are added."""
    if not isinstance(model, ReadsSpelling):
        weight = table_of(model).weight.detach().float().cpu().numpy()
        return lambda ids: weight[ids]

    def spelled(ids: list[int]) -> Float32[np.ndarray, "tokens dim"]:
        with inference(model):
            vectors = model.word_vectors(torch.tensor([ids], device=device_of(model)))
        found: np.ndarray = vectors[0].float().cpu().numpy()
        return found

    return spelled


def table_of(model: object) -> nn.Embedding:
    """The input embedding table of a model."""
    if isinstance(model, InputEmbedding):
        return model.input_embedding()
    todo = "take a model that learns them, such as rnn_lm, gpt, nplm or word vectors of a translator"
    if isinstance(model, Encoder):
        todo = "leave --words out: vectors of whole texts"
    raise UserError(f"{type(model).__name__} has no word vectors", todo=todo)
