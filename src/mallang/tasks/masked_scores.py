"""Scores of masked language models on held-out text: loss, accuracy, pseudo-perplexity, and pairs of sentences.

Held-out text is masked at 15 % (80 / 10 / 10), token by token, by random numbers of the number of each passage alone:
neither the batches nor the rate of training change which tokens are asked for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Integer
from torch import nn

from mallang.data.batch import IGNORE, Batch
from mallang.data.masking import Masker, Rates
from mallang.data.passages import Passages
from mallang.data.sampler import by_length, generator
from mallang.decoding.contract import device_of, inference
from mallang.evaluation.score import Score, Statistics
from mallang.layers.head import masked_rows

if TYPE_CHECKING:
    from mallang.tasks.masked_lm import Task

BATCH_TOKENS = 8192
"""Padded tokens per batch of evaluation."""
RATES = Rates()
"""How held-out text is masked."""
SEED = 20181011
MASKED = 6
"""Sets the random numbers of these masks apart from all others."""
SIGNATURE = f"rate:{RATES.rate}|mask:80/10/10|unit:token|seed:{SEED}"


@dataclass(frozen=True)
class Measured:
    """What a model makes of passages; a number per passage in every array."""

    nats: Float[np.ndarray, " passages"]
    """The summed loss of the masked tokens."""
    unigram: Float[np.ndarray, " passages"]
    """Their summed loss by the frequencies of the tokens in this text alone."""
    right: Integer[np.ndarray, " passages"]
    """The masked tokens that are predicted."""
    count: Integer[np.ndarray, " passages"]
    """The masked tokens."""
    pair_nats: Float[np.ndarray, " passages"]
    is_pair: Bool[np.ndarray, " passages"]
    is_right: Bool[np.ndarray, " passages"]
    """Whether the class of a pair is predicted."""


def measure(task: Task, model: nn.Module, passages: Passages) -> Measured:
    """Read all passages, each with its own fixed masks."""
    masker, device = Masker(task.text), device_of(model)
    unigram = unigram_log_probs(passages, len(task.text.vocabulary))
    found = {name: np.zeros(len(passages)) for name in ("nats", "unigram", "right", "count", "pair_nats", "is_right")}
    with inference(model):
        for group in by_length(task.lengths(passages).tolist(), BATCH_TOKENS):
            batch = masked_batch(masker, task.collate_texts([passages[number] for number in group]), group)
            assert batch.masked is not None
            numbers = np.asarray(group)[batch.masked[:, 0].numpy()]
            log_probs, is_right, pair_logits = predict(task, model, batch.to(device))
            np.add.at(found["nats"], numbers, -log_probs)
            np.add.at(found["right"], numbers, is_right)
            np.add.at(found["count"], numbers, 1)
            np.add.at(found["unigram"], numbers, -unigram[batch.masked[:, 2].numpy()])
            if pair_logits is not None:
                labels = passages.spans[group, 4]
                chosen = pair_logits.log_softmax(dim=1).numpy()[np.arange(len(group)), np.maximum(labels, 0)]
                found["pair_nats"][group] = np.where(labels == IGNORE, 0.0, -chosen)
                found["is_right"][group] = pair_logits.argmax(dim=1).numpy() == labels
    whole = {name: found[name].astype(np.int64) for name in ("right", "count")}
    kinds: dict[str, Any] = {**found, **whole, "is_right": found["is_right"] > 0, "is_pair": passages.is_pair}
    return Measured(**kinds)


def predict(
    task: Task, model: Any, batch: Batch
) -> tuple[Float[np.ndarray, " masked"], Bool[np.ndarray, " masked"], torch.Tensor | None]:
    """The log-probability of every masked token, whether it is the first choice, and the logits of the pairs."""
    assert batch.masked is not None
    hidden = model(batch)
    logits = model.output(masked_rows(hidden, batch.masked)).float()
    originals = batch.masked[:, 2]
    log_probs = logits.log_softmax(dim=1).gather(1, originals[:, None])[:, 0]
    pairs = None if task.pair_part is None else model.next_sentence_logits(hidden).float().cpu()
    return log_probs.double().cpu().numpy(), (logits.argmax(dim=1) == originals).cpu().numpy(), pairs


def masked_batch(masker: Masker, batch: Batch, group: Sequence[int], rates: Rates = RATES) -> Batch:
    """A batch with the fixed masks of these passages."""
    tokens, lengths = batch.tokens.numpy(), batch.lengths.numpy()
    corrupted, places = [], []
    for row, number in enumerate(group):
        random = generator(SEED, int(number), 0, MASKED)
        found = masker(tokens[row : row + 1], lengths[row : row + 1], rates, random)
        corrupted.append(found.tokens)
        places.append(found.places + np.array([row, 0, 0]))
    return replace(
        batch, tokens=torch.from_numpy(np.concatenate(corrupted)), masked=torch.from_numpy(np.concatenate(places))
    )


def unigram_log_probs(passages: Passages, words: int) -> Float[np.ndarray, " words"]:
    """The log of the relative frequency of each token in the text; a token that it lacks counts as half a token."""
    counts = np.bincount(passages.tokens, minlength=words).astype(np.float64)
    found: np.ndarray = np.log(np.maximum(counts, 0.5) / max(1.0, counts.sum()))
    return found


def held_out_scores(task: Task, model: nn.Module, passages: Passages) -> list[Score]:
    """The scores of validation: the loss of training and its parts, without intervals."""
    found = measure(task, model, passages)
    count, pairs = max(1, int(found.count.sum())), max(1, int(found.is_pair.sum()))
    mlm = float(found.nats.sum()) / count
    scores = [
        Score("mlm", mlm, f"nats per masked token|{SIGNATURE}", count=count),
        Score("mlm_accuracy", 100 * float(found.right.sum()) / count, SIGNATURE, count=count),
        Score("unigram", float(found.unigram.sum()) / count, f"nats per masked token|{SIGNATURE}", count=count),
    ]
    loss, signature = mlm, f"mlm|{SIGNATURE}"
    if (part := task.pair_part) is not None:
        nats = float(found.pair_nats.sum()) / pairs
        share = 100 * float(found.is_right[found.is_pair].sum()) / pairs
        scores += [
            Score(part, nats, "nats per pair", count=pairs),
            Score(f"{part}_accuracy", share, "per pair", count=pairs),
        ]
        loss, signature = mlm + nats, f"mlm+{part}|{SIGNATURE}"
    return [Score("loss", loss, signature, count=count), *scores]


def masked_scores(found: Measured) -> list[Score]:
    """Loss, pseudo-perplexity and accuracy of masked tokens with their intervals, beside the loss of frequencies."""
    count = found.count.astype(np.float64)
    nats = np.stack((found.nats, count), axis=1)
    unigram = np.stack((found.unigram, count), axis=1)
    right = np.stack((100.0 * found.right, count), axis=1)
    return [
        Statistics("mlm loss", nats, mean, f"nats per masked token|{SIGNATURE}").score(),
        Statistics("pseudo-perplexity", nats, perplexity, SIGNATURE).score(),
        Statistics("mlm accuracy", right, mean, SIGNATURE).score(),
        Statistics("unigram loss", unigram, mean, f"nats per masked token|{SIGNATURE}").score(),
    ]


def pair_scores(name: str, found: Measured) -> list[Score]:
    """Accuracy and loss of pairs; none if there are no pairs."""
    if not found.is_pair.any():
        return []
    right, ones = 100.0 * found.is_right[found.is_pair], np.ones(int(found.is_pair.sum()))
    nats = np.stack((found.pair_nats[found.is_pair], ones), axis=1)
    return [
        Statistics(f"{name} accuracy", np.stack((right, ones), axis=1), mean, "per pair|seed:0").score(),
        Statistics(f"{name} loss", nats, mean, "nats per pair|seed:0").score(),
    ]


def mean(sums: Float[np.ndarray, " 2"]) -> float:
    """A sum divided by its count."""
    return float(sums[0] / max(sums[1], 1.0))


def perplexity(sums: Float[np.ndarray, " 2"]) -> float:
    """The exponential of the mean loss."""
    return math.exp(min(700.0, mean(sums)))
