"""A model that has learned some of miniworld, and models of every shape with random weights."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mallang.data import miniworld
from mallang.decoding.contract import Config as Search
from mallang.models.transformer import Config, Transformer
from mallang.tasks.translation import Config as TaskConfig
from mallang.tasks.translation import Task, Verbs
from mallang.text.tokenizer import Config as TextConfig
from mallang.text.tokenizer import Tokenizer

SHAPES: dict[str, dict[str, Any]] = {
    "as-in-the-paper": {},
    "pre-gelu": {"norm": "pre", "activation": "gelu", "decoder_layers": 1},
    "learned-own": {"positions": "learned", "max_length": 40, "tie_weights": "none"},
    "target-shared": {"tie_weights": "target", "norm": "pre"},
    "wide-heads": {"key_dim": 6, "value_dim": 6},
}
"""What both exports must be able to say."""
TEXTS = [
    "민수는 사과를 먹었다.",
    "",
    "a",
    "물",
    "<s> </s>",
    "지영은  물을 마셨다.",
    "<unk>漢🙂",
    "고양이가 물을 마신다.",
]


@pytest.fixture(scope="session")
def learned() -> Verbs:
    """A small Transformer after a few seconds of miniworld: it is often wrong, but says something of its own."""
    rows = list(miniworld.generate(1, 2000))
    tokenizer = Tokenizer.train((text for row in rows for text in row), TextConfig(unit="bpe", vocabulary=400))
    task = Task(TaskConfig(), {"source": tokenizer, "target": tokenizer})
    sources, targets = (tokenizer.encode_batch([row[side] for row in rows]) for side in (0, 1))
    order = sorted(range(len(rows)), key=lambda place: len(sources[place]))
    torch.manual_seed(1)
    shape = Config(layers=1, dim=64, heads=4, hidden_dim=128, dropout=0.0)
    model = Transformer(shape, tokenizer.vocabulary, tokenizer.vocabulary)
    optimizer, random = torch.optim.Adam(model.parameters(), 3e-3), np.random.default_rng(1)
    for _ in range(80):
        first = int(random.integers(0, len(order) - 32))
        chosen = [((sources[place], targets[place]),) for place in order[first : first + 32]]
        batch = task.prepare(chosen, random)
        (task.loss(model, batch, None).sums["loss"] / task.counts(batch)["loss"]).backward()
        optimizer.step()
        optimizer.zero_grad()
    return Verbs(task, model.eval(), Search(method="greedy", max_length=60), 256)


@pytest.fixture(scope="session")
def make() -> Callable[..., Verbs]:
    """A model of some shape with random weights, norms and biases too."""

    def made(units: tuple[str, str] = ("char", "char"), domains: tuple[str, ...] = (), **shape: Any) -> Verbs:
        tokenizers = [
            Tokenizer.train(TEXTS, TextConfig(unit=unit, vocabulary=size), domains)  # type: ignore[arg-type]
            for unit, size in zip(units, (300, 290), strict=True)
        ]
        source, target = (tokenizers[0], tokenizers[0]) if units == ("char", "char") else tokenizers
        torch.manual_seed(3)
        config = Config(**{"layers": 2, "dim": 16, "heads": 4, "hidden_dim": 24, **shape})
        model = Transformer(config, target.vocabulary, source.vocabulary)
        with torch.no_grad():
            for name, weight in model.named_parameters():  # strong blocks, or it would only repeat its own input
                is_matrix = weight.dim() == 2 and "embedding" not in name
                weight.add_(torch.randn_like(weight) * (0.6 if is_matrix else 0.1))
        task = Task(TaskConfig(), {"source": source, "target": target})
        return Verbs(task, model.eval(), Search(method="greedy", max_length=12, max_ratio=0.5), 0)

    return made


@pytest.fixture(scope="session")
def script() -> Callable[[Path], Any]:
    """The translator in an exported folder, as its own script makes it."""

    def opened(folder: Path, **options: Any) -> Any:
        return runpy.run_path(str(folder / "translate.py"))["Translator"](folder, **options)

    return opened
