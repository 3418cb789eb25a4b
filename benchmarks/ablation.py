"""What each kernel is worth: its end-to-end benchmark with all kernels, and with that one left out.

A kernel stays only if leaving it out costs at least 5 %. Each variant runs in a process of its own and takes turns with
the others. `MALLANG_KERNELS=-NAME` is how one is left out, here and by hand.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.contest import Entrant, race
from benchmarks.gpt_models import GPT2
from benchmarks.report import Result, show
from benchmarks.shape import BASE, SMALL

GPT2_WORDS = replace(GPT2, words=50257)


@dataclass(frozen=True)
class Line:
    """An end-to-end benchmark, and the kernels that it measures."""

    place: str
    options: dict[str, Any]
    kernels: tuple[str, ...]
    unit: str


def generation(rows: int, device: str, weights: str, kernels: tuple[str, ...]) -> Line:
    """GPT-2 generates greedily."""
    options: dict[str, Any] = {"shape": GPT2_WORDS.options(), "rows": rows, "prompt": 8, "weights": weights}
    options |= {"device": device, "new": 256 if device == "cuda" else 64, "compile": device == "cuda"}
    return Line("benchmarks.generation_entrants:ours", options, kernels, "tokens/s")


def decoding(beam: int, device: str, weights: str, kernels: tuple[str, ...]) -> Line:
    """A Transformer translates."""
    shape, batches = (replace(BASE, sentences=128), 16) if device == "cuda" else (SMALL, 4)
    options = {"shape": shape.options(), "beam": beam, "batches": batches, "weights": weights, "device": device}
    return Line("benchmarks.decoding_entrants:ours", options, kernels, "sentences/s")


def training(device: str, kernels: tuple[str, ...]) -> Line:
    """A Transformer learns to translate."""
    shape, updates, engine = (BASE, 30, "auto") if device == "cuda" else (SMALL, 2, "eager")
    options = {"shape": shape.options(), "updates": updates, "device": device, "engine": engine}
    return Line("benchmarks.training_entrants:ours", options, kernels, "target tokens/s")


def gpt_training(precision: str, kernels: tuple[str, ...]) -> Line:
    """GPT-2 trains, compiled."""
    options: dict[str, Any] = {"system": "mallang", "shape": GPT2.options(), "rows": 16, "updates": 10}
    options |= {"device": "cuda", "engine": "compile", "precision": precision}
    return Line("benchmarks.gpt_entrants:turn", options, kernels, "tokens/s")


def recurrent(model: str, config: dict[str, Any], device: str, kernels: tuple[str, ...]) -> Line:
    """A recurrent model learns to translate."""
    shape, updates = (BASE, 10) if device == "cuda" else (SMALL, 1)
    options: dict[str, Any] = {"model": model, "config": config, "shape": shape.options(), "updates": updates}
    options |= {"device": device, "engine": "auto"}
    return Line("benchmarks.recurrent_entrants:ours", options, kernels, "target tokens/s")


def word_vectors(device: str, kernels: tuple[str, ...]) -> Line:
    """Skip-gram with negative sampling learns word vectors."""
    tokens = 2_000_000 if device == "cuda" else 200_000
    options: dict[str, Any] = {"words": 20_000, "dim": 100, "tokens": tokens, "device": device}
    return Line("benchmarks.word_vectors_entrants:ours", options, kernels, "words/s")


def glove(device: str, kernels: tuple[str, ...]) -> Line:
    """GloVe learns word vectors from co-occurrence counts."""
    options: dict[str, Any] = {"words": 5_000, "dim": 100, "tokens": 200_000, "device": device}
    return Line("benchmarks.word_vectors_entrants:our_glove", options, kernels, "words/s")


def bag(device: str, kernels: tuple[str, ...]) -> Line:
    """A linear classifier on n-grams of characters is fitted."""
    options: dict[str, Any] = {"texts": 5_000, "letters": 60, "orders": [1, 2, 3, 4], "device": device}
    return Line("benchmarks.bag_entrants:ours", options, kernels, "texts/s")


def encoding(weights: str, kernels: tuple[str, ...]) -> Line:
    """BERT-base reads batches of short texts of unequal lengths."""
    options: dict[str, Any] = {"texts": 4096, "batch": 128, "longest": 128, "weights": weights, "device": "cuda"}
    return Line("benchmarks.encoder_entrants:ours", options, kernels, "texts/s")


DECODE_CPU = ("c-prepacked-matmul", "c-decode-attention", "c-cache-write", "c-log-softmax")
LUONG = {"layers": 2, "dim": 512, "embedding_dim": 512, "dropout": 0.1, "input_feeding": True}
BAHDANAU = {"dim": 512, "embedding_dim": 512, "dropout": 0.1, "score_dim": 512, "readout_dim": 512}
LINES = {
    "gpu-gpt-training-fp8": gpt_training("fp8", ("cross-entropy", "fp8-feed-forward")),
    "gpu-gpt-training-bf16": gpt_training("bf16-weights", ("cross-entropy",)),
    "gpu-training": training("cuda", ("cross-entropy", "sdpa-backend")),
    "gpu-generation-1": generation(
        1, "cuda", "bfloat16",
        ("decode-attention", "cache-write-attention", "argmax", "norm-linear"),
    ),
    "gpu-generation-64": generation(
        64, "cuda", "bfloat16",
        ("decode-attention", "cache-write-attention", "argmax", "transposed-projection"),
    ),
    "gpu-greedy": decoding(
        1, "cuda", "bfloat16", ("decode-attention", "cache-write-attention", "argmax")
    ),
    "gpu-beam5": decoding(
        5, "cuda", "bfloat16", ("decode-attention", "cache-write-attention", "top-k")
    ),
    "gpu-luong-feeding": recurrent("luong", LUONG, "cuda", ("fused-cell", "deferred-gradients")),
    "gpu-bahdanau": recurrent("bahdanau", BAHDANAU, "cuda", ("fused-cell", "deferred-gradients")),
    "gpu-word-vectors": word_vectors("cuda", ("word-vectors",)),
    "gpu-encoding": encoding("bfloat16", ("varlen-attention",)),
    "cpu-training": training(
        "cpu",
        ("c-training-matmul", "c-training-attention", "c-cross-entropy", "cpu-dropout",
         "allocator"),
    ),
    "cpu-luong-feeding": recurrent("luong", LUONG, "cpu", ("deferred-gradients",)),
    "cpu-word-vectors": word_vectors("cpu", ("c-word-vectors",)),
    "cpu-glove": glove("cpu", ("c-glove",)),
    "cpu-bag": bag("cpu", ("c-bag",)),
    "cpu-greedy": decoding(1, "cpu", "float32", (*DECODE_CPU, "allocator")),
    "cpu-beam5": decoding(5, "cpu", "float32", (*DECODE_CPU, "allocator")),
    "cpu-beam5-int8": decoding(5, "cpu", "int8", ("c-int8-matmul",)),
    "cpu-generation-1": generation(1, "cpu", "float32", DECODE_CPU),
    "cpu-generation-1-int8": generation(1, "cpu", "int8", ("c-int8-matmul",)),
}  # fmt: skip


def measure(only: str = "", kernels: str = "", rounds: int = 7) -> dict[str, Result]:
    """Every line of this machine, a GPU's where there is one; or those of `--only a,b`, or of some kernels."""
    import torch

    device = "gpu" if torch.cuda.is_available() else "cpu"
    wanted = only.split(",") if only else [name for name in LINES if name.startswith(device)]
    results: dict[str, Result] = {}
    for name in wanted:
        chosen = tuple(each for each in LINES[name].kernels if not kernels or each in kernels.split(","))
        if chosen:
            results |= ablate(name, replace(LINES[name], kernels=chosen), rounds)
    return results


def ablate(name: str, line: Line, rounds: int) -> dict[str, Result]:
    """The ratio of speeds, with a kernel to without it, for each kernel of a line."""
    began = time.monotonic()
    without = {kernel: {"MALLANG_KERNELS": f"-{kernel}"} for kernel in line.kernels}
    variants = {"all": {"MALLANG_KERNELS": "on"}} | without
    entrants = [Entrant(label, line.place, line.options, environment=each) for label, each in variants.items()]
    outcomes = race(entrants, rounds)
    base = outcomes["all"]
    seconds = round(time.monotonic() - began, 1)
    table = [(kernel, outcomes[kernel].rate, base.rate / outcomes[kernel].rate) for kernel in line.kernels]
    show(f"{name}: {base.rate:,.0f} {line.unit}", [("without", line.unit, "gain"), *table])
    return {
        f"ablation-{name}-{kernel}": Result(
            system=kernel,
            metric=f"speed with the kernel / without it, {name}",
            value=round(ratio, 3),
            protocol=f"{line.place} {line.options}; with all kernels {base.rate:,.1f} {line.unit}, without this one "
            f"{rate:,.1f}; each variant in a process of its own, by turns, median of {rounds}",
            seed=1,
            seconds=seconds,
            signature=base.signature,
        )
        for kernel, rate, ratio in table
    }
