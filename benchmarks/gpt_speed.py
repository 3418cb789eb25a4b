"""GPT-2 with 124M parameters trains faster than nanoGPT's compiled one and than Hugging Face's, to the same loss.

On a GPU: 32 × 1,024 tokens, bfloat16 over float32 weights, AdamW, clipping, no dropout, the same weights at the start
and the same random text for all. Ours also with FP8 matmuls (fp8), and both at larger batches. On a CPU, where
124M parameters train too slowly to be timed: 6 layers of 384 over 256 tokens, float32. `--nanogpt` is the path of
nanoGPT's model.py, which is not ours.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

from benchmarks.contest import ROOT, Entrant, Outcome, beside_others, large_matmul, python_with, race
from benchmarks.gpt_entrants import RATE
from benchmarks.gpt_models import GPT2, Shape
from benchmarks.report import Result, show

SMALL = Shape(layers=6, dim=384, heads=6, words=512, context=256)
"""For a CPU: the character GPT of nanoGPT's Shakespeare, with a vocabulary that is easily divided."""
LAST = 50
"""Updates whose mean loss is compared."""
WARMUP = 100
"""Warm-up updates. Without them the loss first diverges, by how much depends on every rounding."""
PRECISIONS = {"mallang compiled": "bf16-weights", "mallang compiled fp8": "fp8"}
"""Our systems on a GPU, by label, and their train.precision."""


def measure(
    nanogpt: str = "", rounds: int = 5, updates: int = 0, rows: int = 0, larger: str = "64,96", compared: int = 500
) -> dict[str, Result]:
    """All systems with so many updates per turn and rows per batch (0: what suits the device), ours with larger
    batches, and the losses of ours and nanoGPT after so many updates (0: not compared)."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    shape = GPT2 if device == "cuda" else SMALL
    rows, updates = rows or (32 if device == "cuda" else 8), updates or (20 if device == "cuda" else 2)
    results = speeds(shape, entrants_of(shape, rows, updates, device, nanogpt), rounds, rows, device)
    for many in [int(each) for each in larger.split(",") if each] if device == "cuda" else []:
        entrants = entrants_of(shape, many, max(1, updates // 2), device, "", peers=False)
        results |= speeds(shape, entrants, rounds, many, device)
    if compared and nanogpt:
        results |= compare_losses(shape, min(rows, 16), compared, device, nanogpt)
    return results


def speeds(shape: Shape, entrants: list[Entrant], rounds: int, rows: int, device: str) -> dict[str, Result]:
    """Tokens per second of each system."""
    began = time.monotonic()
    matmul = large_matmul(device)
    outcomes = race([*entrants, matmul], rounds)
    rate = outcomes.pop(matmul.label).rate
    table = rows_of(outcomes, shape, rate)
    size = f"{rows}x{shape.context}"
    show(f"training GPT on {device}, {size}", [("", "tokens/s", "MiB", "share of the matmul"), *table])
    protocol = (
        f"{shape.layers} layers, {shape.dim}, {shape.heads} heads, {shape.words} words, {rows} x {shape.context} "
        f"tokens, AdamW with float32 weights, clipping, no dropout; each in a process of its own, by turns, median of "
        f"{rounds}; operations: 6 a weight and token, and causal attention; {matmul.label}: {rate / 1e9:,.0f} "
        f"GFLOP/s in the same run"
    )
    seconds = round(time.monotonic() - began, 1)
    return {
        f"gpt-training-{device}-{size}-{label.replace(' ', '-')}": Result(
            system=label,
            metric=f"training GPT on {device}, {size}, tokens/s",
            value=round(speed, 1),
            protocol=protocol,
            seed=1,
            seconds=seconds,
            signature=f"{label}: peak {memory:.0f} MiB, {share:.1%} of the matmul|{outcomes[label].signature}",
        )
        for label, speed, memory, share in table
    }


def entrants_of(shape: Shape, rows: int, updates: int, device: str, nanogpt: str, peers: bool = True) -> list[Entrant]:
    """Ours and the other systems."""
    common: dict[str, Any] = {"shape": shape.options(), "rows": rows, "updates": updates, "device": device}

    def entrant(label: str, system: str, needs: tuple[str, ...] = (), **options: Any) -> Entrant:
        return Entrant(label, "benchmarks.gpt_entrants:turn", common | {"system": system} | options, needs)

    if device == "cpu":
        own = [entrant("mallang", "mallang", engine="eager")]
    else:
        own = [
            entrant(label, "mallang", engine="compile", precision=precision)
            for label, precision in precisions().items()
        ]
    others = []
    engine, suffix = ("compile", " compiled") if device == "cuda" else ("eager", "")
    if nanogpt:
        others.append(entrant(f"nanogpt{suffix}", "nanogpt", path=nanogpt, engine=engine))
    others.append(entrant(f"hugging face{suffix}", "hugging face", ("transformers", "mallang"), engine=engine))
    return [*own, *others] if peers else own


def precisions() -> dict[str, str]:
    """Our systems that this GPU supports."""
    import torch

    from mallang.kernels import fp8

    has_fp8 = fp8.is_supported(torch.device("cuda"))
    return {label: precision for label, precision in PRECISIONS.items() if has_fp8 or precision != "fp8"}


def rows_of(outcomes: dict[str, Outcome], shape: Shape, rate: float) -> list[tuple[str, float, float, float]]:
    """One row per system: its speed, its peak memory in MiB, and its share of the matmul's operations per second."""
    each = 3 * shape.operations((shape.context + 1) / 2)  # backward computes twice as much as forward
    return [
        (label, outcome.rate, outcome.peak / 2**20, outcome.rate * each / rate) for label, outcome in outcomes.items()
    ]


def losses_of(systems: dict[str, dict[str, Any]]) -> dict[str, list[float]]:
    """The losses of all systems, trained at the same time in one process each."""
    python = python_with(()) or sys.executable
    running = {
        label: subprocess.Popen(
            [python, "-m", "benchmarks.gpt_entrants", json.dumps(options)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        for label, options in systems.items()
    }
    printed = {label: process.communicate()[0] for label, process in running.items()}
    for label, process in running.items():
        if process.returncode:
            raise RuntimeError(f"{label} ended with code {process.returncode}; see above")
    return {label: json.loads(each) for label, each in printed.items()}


def compare_losses(shape: Shape, rows: int, updates: int, device: str, nanogpt: str) -> dict[str, Result]:
    """The mean loss of the last updates: ours and nanoGPT's, from the same weights on the same text."""
    began = time.monotonic()
    engine = "compile" if device == "cuda" else "eager"
    common: dict[str, Any] = {
        "shape": shape.options(), "rows": rows, "updates": updates, "device": device, "engine": engine, "path": nanogpt,
        "warmup": WARMUP,
    }  # fmt: skip
    own = precisions() if device == "cuda" else {"mallang": "auto"}
    systems = {label: common | {"system": "mallang", "precision": precision} for label, precision in own.items()}
    systems["nanogpt"] = common | {"system": "nanogpt"}
    with beside_others():
        found = losses_of(systems)
    last = {label: sum(each[-LAST:]) / len(each[-LAST:]) for label, each in found.items()}
    show(f"loss after {updates} updates", [("", "first", f"last {LAST}"), *((k, found[k][0], last[k]) for k in last)])
    for label in own:
        print(f"  {label} − nanogpt: {last[label] - last['nanogpt']:+.5f}")
    about: dict[str, Any] = {
        "metric": f"training GPT on {device}: loss after {updates} updates, "
        "nats a token",  # words: ok, a key of stored results
        "protocol": f"{shape.layers} layers, {shape.dim}, {rows} x {shape.context} tokens of random text, the mean of "
        f"the last {LAST} updates, rate {RATE} after {WARMUP}; the same weights at the start, the same text; nanoGPT "
        f"has the exact GELU, ours the approximation of GPT-2",
        "seed": 1,
        "seconds": round(time.monotonic() - began, 1),
    }
    return {
        f"gpt-training-{device}-loss-{label.replace(' ', '-')}": Result(system=label, value=round(value, 5), **about)
        for label, value in last.items()
    }
