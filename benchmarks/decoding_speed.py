"""Decoding is as fast as CTranslate2 on a CPU, and several times as fast as Hugging Face's generate anywhere.

On a CPU: 3 + 3 layers of 256, 8,000 words, batches of 32 sentences, 30 tokens each way, float32 and int8, with
CTranslate2 in its two ways of using two cores. On a GPU, if there is one: 6 + 6 layers of 512, 10,000 words, bfloat16,
batches of 128 sentences, 32 tokens. Greedy and beam 5. The weights are random, and no system may end a sentence early.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from benchmarks.contest import Entrant, Outcome, large_matmul, race
from benchmarks.report import Result, show
from benchmarks.shape import BASE, SMALL, Shape

METHODS = {"greedy": 1, "beam5": 5}


def measure(rounds: int = 7, batches: int = 16, only: str = "") -> dict[str, Result]:
    """All systems, with greedy search and with a beam of 5, or with one of the two."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    shape = replace(BASE, sentences=128) if device == "cuda" else SMALL
    results: dict[str, Result] = {}
    for method, beam in ({only: METHODS[only]} if only else METHODS).items():
        began = time.monotonic()
        entrants = [*entrants_of(shape, beam, batches, device), large_matmul(device)]
        outcomes = race(entrants, rounds)
        rate = outcomes.pop(entrants[-1].label).rate
        rows = rows_of(outcomes, shape, beam, rate, per_token=device == "cuda")
        unit = "tokens/s" if device == "cuda" else "sentences/s"
        show(f"decoding on {device}, {method}", [("", unit, "MiB", "share of the matmul"), *rows])
        protocol = protocol_of(shape, method, batches, rounds, entrants[-1].label, rate)
        seconds = round(time.monotonic() - began, 1)
        for label, speed, memory, share in rows:
            results[f"decoding-{device}-{method}-{label.replace(' ', '-')}"] = Result(
                system=label,
                metric=f"decoding on {device}, {method}, {unit}",
                value=round(speed, 1),
                protocol=protocol,
                seed=1,
                seconds=seconds,
                signature=f"{label}: peak {memory:.0f} MiB, {share:.1%} of the matmul|{outcomes[label].signature}",
            )
    return results


def entrants_of(shape: Shape, beam: int, batches: int, device: str) -> list[Entrant]:
    """Ours and the other systems."""
    common: dict[str, Any] = {"shape": shape.options(), "beam": beam, "batches": batches}

    def entrant(label: str, function: str, needs: tuple[str, ...] = (), **options: Any) -> Entrant:
        return Entrant(label, f"benchmarks.decoding_entrants:{function}", common | options, needs)

    if device == "cuda":
        return [
            entrant("mallang bfloat16", "ours", weights="bfloat16", device=device),
            entrant("mallang compiled bfloat16", "ours", weights="bfloat16", device=device, compile=True),
            entrant("marian bfloat16", "marian", ("transformers",), weights="bfloat16", device=device),
        ]
    peers = [
        entrant(
            f"ctranslate2 {weights} {workers}x{threads}", "ctranslate2", ("ctranslate2", "mallang"),
            weights=weights, workers=workers, threads=threads,
        )
        for weights in ("float32", "int8")
        for workers, threads in ((1, 2), (2, 1))
    ]  # fmt: skip
    own = [entrant(f"mallang {weights}", "ours", weights=weights, device=device) for weights in ("float32", "int8")]
    return [*own, *peers, entrant("marian float32", "marian", ("transformers",), weights="float32", device=device)]


def rows_of(
    outcomes: dict[str, Outcome], shape: Shape, beam: int, rate: float, *, per_token: bool
) -> Sequence[tuple[str, float, float, float]]:
    """One row per system: its speed, its peak memory in MiB, and its share of the matmul's operations per second."""
    unit = shape.target if per_token else 1
    each = shape.operations(beam) / shape.sentences
    return [
        (label, outcome.rate * unit, outcome.peak / 2**20, outcome.rate * each / rate)
        for label, outcome in outcomes.items()
    ]


def protocol_of(shape: Shape, method: str, batches: int, rounds: int, matmul: str, rate: float) -> str:
    """How it was measured, in words."""
    return (
        f"{shape.layers}+{shape.layers} layers, {shape.dim}, {shape.hidden_dim}, {shape.words} words, random weights; "
        f"{batches} batches of {shape.sentences} sentences, {shape.source} tokens in, {shape.target} out, {method}; "
        f"each in a process of its own, by turns, median of {rounds}; "
        f"{matmul}: {rate / 1e9:,.0f} GFLOP/s in the same run"
    )
