"""Where the time of a training step goes: matmuls, attention, norms and other passes over memory, the loss.

The shapes are those of `training_speed`. On a CPU the time of each operation counts, on a GPU that of each kernel.
"""

from __future__ import annotations

import re
import time
from typing import Any

from benchmarks import recurrent_entrants
from benchmarks.recurrent_speed import models_of
from benchmarks.report import Result, show, versions
from benchmarks.shape import BASE, SMALL
from benchmarks.training_entrants import ours

KINDS = (
    ("attention", r"scaled_dot_product|flash|fmha|sdpa|attention"),
    ("optimiser", r"adam|multi_tensor|foreach"),  # words: ok, a key of stored results
    ("loss over the vocabulary", r"log_softmax|softmax|::exp_?\b|exp_kernel|logsumexp|gather|scatter|^Chunked"),
    (
        "matrix products",  # words: ok, a key of stored results
        r"::(add|b)?mm_?\b|::baddbmm|::linear|nvjet|gemm|cutlass|splitK|^TrainingLinear",
    ),
    ("convolutions", r"conv|winograd|xmma_(fprop|dgrad|wgrad)|weight_norm"),
    ("norms", r"layer_norm|GammaBeta"),
    ("random numbers", r"random_|bernoulli|dropout|philox"),
)
"""The first that matches decides; all else is "other passes over memory". A compiler's kernels are named after all
that it fused into them. A C kernel counts for the autograd function that calls it: the loss on a CPU, `Chunked`, has
the matmuls of the output layer in it."""


def measure(updates: int = 5, convs2s: int = 0) -> dict[str, Result]:
    """Profile some updates of the Transformer, or of a ConvS2S with as many parameters."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    shape, engine = (BASE, "compile") if device == "cuda" else (SMALL, "eager")
    began = time.monotonic()
    system = "convs2s" if convs2s else "mallang"
    if convs2s:
        model, config = models_of(shape, 1)["convs2s"]
        turn = recurrent_entrants.ours(model, config, shape.options(), updates, device, engine)
    else:
        turn = ours(shape.options(), updates, device, engine)
    for _ in range(2):
        turn()
    with torch.profiler.profile() as profile:
        turn()
    times: dict[str, float] = {}
    for event in profile.key_averages():
        spent = event.self_device_time_total if device == "cuda" else event.self_cpu_time_total
        times[kind_of(event.key)] = times.get(kind_of(event.key), 0.0) + spent
    whole = sum(times.values())
    shares = {name: times[name] / whole for name in sorted(times, key=lambda name: -times[name])}
    show(f"a step of {whole / updates / 1000:.1f} ms on {device}", [("", "share"), *shares.items()])
    about: dict[str, Any] = {
        "system": system, "overrides": [f"train.engine={engine}"], "metric": "share of a training step",
        "protocol": f"{'as large as ' if convs2s else ''}{shape.layers}+{shape.layers} layers of {shape.dim}, "
        f"{shape.sentences} x "
        f"({shape.source}+{shape.target}) tokens, {shape.words} words, torch.profiler, {updates} updates",
        "seconds": round(time.monotonic() - began, 1), "signature": versions("mallang", "torch"),
    }  # fmt: skip
    start = f"profile-{'convs2s-' if convs2s else ''}{device}"
    return {
        f"{start}-{name.replace(' ', '-')}": Result(**about, split=name, value=round(share, 4))
        for name, share in shares.items()
    }


def kind_of(event: str) -> str:
    """What an operation or kernel is for."""
    for kind, pattern in KINDS:
        if re.search(pattern, event, re.IGNORECASE):
            return kind
    return "other passes over memory"
