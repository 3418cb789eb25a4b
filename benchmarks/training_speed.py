"""Training uses most of what the machine can compute, and is faster than Marian and torch's own Transformer.

On a CPU: 3 + 3 layers of 256, 8,000 words, float32, batches of 32 × (30 + 30) tokens. On a GPU, if there is one:
6 + 6 layers of 512, 10,000 words, bfloat16, 256 × (32 + 32). All tokens are real, none is padding; dropout is 0.1.
Ours trains float32 weights. torch's Transformer does so too, and also plain bfloat16 weights, its fastest setting.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks.contest import Entrant, large_matmul, race
from benchmarks.report import Result, show
from benchmarks.shape import BASE, SMALL, Shape


def measure(rounds: int = 7, updates: int = 0) -> dict[str, Result]:
    """All systems; updates per turn: 0 is 4 on a CPU and 50 on a GPU."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    shape, updates = (BASE, updates or 50) if device == "cuda" else (SMALL, updates or 4)
    began = time.monotonic()
    entrants = [*entrants_of(shape, updates, device), large_matmul(device)]
    outcomes = race(entrants, rounds)
    rate = outcomes.pop(entrants[-1].label).rate
    each = 3 * shape.operations() / (shape.sentences * shape.target)  # backward computes twice as much as forward
    rows = [
        (label, outcome.rate, outcome.peak / 2**20, outcome.rate * each / rate) for label, outcome in outcomes.items()
    ]
    show(f"training on {device}", [("", "target tokens/s", "MiB", "share of the matmul"), *rows])
    protocol = (
        f"{shape.layers}+{shape.layers} layers, {shape.dim}, {shape.hidden_dim}, {shape.words} words, dropout "
        f"{shape.dropout}, {shape.sentences} x ({shape.source}+{shape.target}) tokens, Adam, label smoothing 0.1; each "
        f"in a process of its own, by turns of {updates} updates, median of {rounds}; operations: 6 a weight and "
        f"token, and attention; {entrants[-1].label}: {rate / 1e9:,.0f} GFLOP/s in the same run"
    )
    seconds = round(time.monotonic() - began, 1)
    return {
        f"training-{device}-{label.replace(' ', '-')}": Result(
            system=label,
            metric=f"training on {device}, target tokens/s",
            value=round(speed, 1),
            protocol=protocol,
            seed=1,
            seconds=seconds,
            signature=f"{label}: peak {memory:.0f} MiB, {share:.1%} of the matmul|{outcomes[label].signature}",
        )
        for label, speed, memory, share in rows
    }


def entrants_of(shape: Shape, updates: int, device: str) -> list[Entrant]:
    """Ours and the other systems, on a GPU each in its fastest setting."""
    common: dict[str, Any] = {"shape": shape.options(), "updates": updates, "device": device}

    def entrant(label: str, function: str, engine: str, *needs: str, **more: str) -> Entrant:
        options = common | {"engine": engine} | more
        return Entrant(label, f"benchmarks.training_entrants:{function}", options, needs)

    if device == "cpu":
        return [
            entrant("mallang", "ours", "eager"),
            entrant("torch.nn.Transformer", "torch_transformer", "eager"),
            entrant("marian", "marian", "eager", "transformers"),
        ]
    return [
        entrant("mallang", "ours", "auto"),
        entrant("mallang compiled", "ours", "compile"),
        entrant("torch.nn.Transformer compiled", "torch_transformer", "compile"),
        entrant("torch.nn.Transformer compiled bfloat16", "torch_transformer", "compile", weights="bfloat16"),
        entrant("marian", "marian", "eager", "transformers"),
        entrant("marian compiled", "marian", "compile", "transformers"),
    ]
