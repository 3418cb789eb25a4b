"""What a score function is worth on miniworld: exact matches, time, and how many source words it attends to.

Luong's model is trained with each of its scores, and all else alike: dot, general (= multiplicative) and concat
(= additive). The time is that of one training step, and of the attention in it alone, the scores taking turns and the
fastest turn counting, in processor time. Sparsity is the entropy of the weights over the test set, as exp(entropy):
the number of words that uniform attention of the same entropy would cover. `epochs` cuts the training short, to see
how fast each learns.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.report import Result, show, versions

RECIPE = "luong-miniworld"
SCORES = ("dot", "general", "concat")
SHAPE = (64, 10, 10)
"""Sentences, target and source tokens of a step that is timed: about what the recipe's batches have."""


def measure(epochs: int = 4, seeds: int = 1, turns: int = 30) -> dict[str, Result]:
    """Train, translate and measure attention; then measure time."""
    began = time.monotonic()
    values: dict[str, dict[str, float]] = {score: {} for score in SCORES}
    for seed in range(1, seeds + 1):
        for score in SCORES:
            for name, value in trained(score, epochs, seed).items():
                values[score][name] = values[score].get(name, 0.0) + value / seeds
    for name, times in timed(turns).items():
        for score, seconds in times.items():
            values[score][name] = seconds / times["dot"]
    names = list(values["dot"])
    show(f"{RECIPE}, {epochs} epochs", [("", *names), *((score, *values[score].values()) for score in SCORES)])
    about: dict[str, Any] = {
        "recipe": RECIPE, "corpus": "miniworld", "direction": "ko-en", "split": "test",
        "protocol": f"{epochs} epochs, greedy, mean of {seeds} seeds; times of {SHAPE} sentences, target and source "
        f"tokens, one thread, the least of {turns} turns", "seconds": round(time.monotonic() - began, 1),
        "signature": versions("mallang", "torch"),
    }  # fmt: skip
    return {
        f"scores-{score}-{name.split(',')[0].replace(' ', '-')}": Result(
            **about, system=f"luong, {score}", overrides=[f"model.score={score}"], metric=name, value=round(value, 4)
        )
        for score, found in values.items()
        for name, value in found.items()
    }


def trained(score: str, epochs: int, seed: int) -> dict[str, float]:
    """Exact matches and the entropy of the attention weights of one run."""
    from mallang import recipe
    from mallang.loading import load
    from mallang.training.train import Options, train

    with tempfile.TemporaryDirectory() as home:
        overrides = [f"model.score={score}", f"train.epochs={epochs}", f"seed={seed}"]
        train(recipe.read(RECIPE, overrides).build(), Options(folder=Path(home) / "run", quiet=True))
        return attention_statistics(load(Path(home) / "run", device="cpu"))


def attention_statistics(run: Any) -> dict[str, float]:
    """How well a run translates miniworld's test set, and how its attention weights are distributed."""
    import numpy as np
    import torch

    from mallang.data.miniworld import rows
    from mallang.decoding.coverage import cross_attention

    pairs = rows("test")
    outputs = [str(each) for each in run.translate([source for source, _ in pairs], method="greedy")]
    exact = sum(output == target for output, (_, target) in zip(outputs, pairs, strict=True)) / len(pairs)
    task = run.task
    entropy, largest, count = 0.0, 0.0, 0
    for begin in range(0, len(pairs), 100):
        some = zip(pairs[begin : begin + 100], outputs[begin : begin + 100], strict=True)
        ids = [((task.source.encode(source).ids, task.target.encode(output).ids),) for (source, _), output in some]
        batch = task.prepare(ids, np.random.default_rng(0))
        weights = cross_attention(run.model, batch)[batch.mask]
        entropy += float(torch.special.entr(weights).sum())
        largest += float(weights.amax(dim=-1).sum())
        count += len(weights)
    return {
        "exact match, %": 100 * exact,
        "words looked at, exp of the entropy": float(np.exp(entropy / count)),
        "largest weight, mean": largest / count,
    }


def timed(turns: int) -> dict[str, dict[str, float]]:
    """Seconds of a training step and of its attention alone, for each score."""
    import torch

    torch.set_num_threads(1)
    whole = {score: whole_step(score) for score in SCORES}
    alone = {score: attention_step(score) for score in SCORES}
    return {"time of a step, dot = 1": least(whole, turns), "time of the attention, dot = 1": least(alone, turns)}


def least(each: dict[str, Callable[[], None]], turns: int) -> dict[str, float]:
    """The fastest turn of each, all taking turns."""
    found = dict.fromkeys(each, float("inf"))
    for _ in range(turns):
        for name, run in each.items():
            began = time.process_time()  # not what others do on this machine
            run()
            found[name] = min(found[name], time.process_time() - began)
    return found


def whole_step(score: str) -> Callable[[], None]:
    """Forward and backward of the recipe's model."""
    import torch

    from mallang import recipe
    from mallang.data.batch import Batch
    from mallang.models.luong import Luong
    from mallang.text.vocabulary import SPECIALS, Vocabulary

    words = Vocabulary((*SPECIALS, *map(str, range(846))))
    model = Luong(recipe.read(RECIPE, [f"model.score={score}"]).build().model, words, words)
    sentences, time_, source = SHAPE
    batch = Batch(
        tokens=torch.randint(4, 850, (sentences, time_)), lengths=torch.full((sentences,), time_),
        source=torch.randint(4, 850, (sentences, source)), source_lengths=torch.full((sentences,), source),
    )  # fmt: skip

    def run() -> None:
        model.output(model(batch)).logsumexp(dim=-1).sum().backward()  # type: ignore[no-untyped-call]

    return run


def attention_step(score: str) -> Callable[[], None]:
    """Forward and backward of the attention alone, keys included."""
    import torch

    from mallang import recipe
    from mallang.layers.scores import ScoredAttention
    from mallang.models.luong import make_score

    config = recipe.read(RECIPE, [f"model.score={score}"]).build().model
    attention = ScoredAttention(make_score(config))
    sentences, time_, source = SHAPE
    states = torch.randn(sentences, time_, config.dim, requires_grad=True)
    memory, mask = torch.randn(sentences, source, config.dim, requires_grad=True), torch.zeros(sentences, source)

    def run() -> None:
        attention(states, attention.score.remember(memory), memory, mask).sum().backward()

    return run
