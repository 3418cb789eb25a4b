"""Scoring: the log-probability of given outputs under a model, all tokens in one forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mallang.data.batch import Batch, pad_rows
from mallang.decoding.contract import inference
from mallang.models.contract import TokenModel, TokenScorer
from mallang.text.vocabulary import Vocabulary

CHUNK = 4096
"""Positions whose logits are computed at once: all of them would be batch × time × vocabulary numbers."""


def score(model: TokenModel | TokenScorer, batch: Batch) -> list[list[float]]:
    """The natural log-probability of every label of every sentence, `</s>` included.

    A model computes them by `forward` and `output`, or directly by `token_log_probs(batch)`, in the labels' shape.
    """
    if batch.labels is None:
        raise ValueError("scoring needs a batch with labels: see with_labels")
    asked = batch.labels != model.vocabulary.pad
    with inference(model):
        if isinstance(model, TokenScorer):
            flat = model.token_log_probs(batch)[asked].float()
        else:
            flat = label_log_probs(model, model(batch)[asked], batch.labels[asked])
    numbers = iter(flat.tolist())
    return [list(islice(numbers, count)) for count in asked.sum(dim=1).tolist()]


def label_log_probs(
    model: TokenModel, hidden: Float[Tensor, "labels dim"], labels: Int[Tensor, " labels"]
) -> Float[Tensor, " labels"]:
    """The natural log-probability of each label, from the hidden vector at its position."""
    parts = [hidden.new_empty(0, dtype=torch.float32)]
    for begin in range(0, len(labels), CHUNK):
        log_probs = model.output(hidden[begin : begin + CHUNK]).float().log_softmax(dim=-1)
        parts.append(log_probs.gather(1, labels[begin : begin + CHUNK, None])[:, 0])
    return torch.cat(parts)


def with_labels(batch: Batch, labels: Sequence[Sequence[int]], vocabulary: Vocabulary) -> Batch:
    """A batch with the same sources and these target labels; the model reads `<s>` and all labels but the last.

    `Hypothesis.labels` gives the labels of an output of a search.
    """
    target, lengths = pad_rows(list(labels), vocabulary.pad)
    tokens, _ = pad_rows([[vocabulary.bos, *row[:-1]] for row in labels], vocabulary.pad)
    device = batch.tokens.device
    return replace(batch, tokens=tokens.to(device), lengths=lengths.to(device), labels=target.to(device))
