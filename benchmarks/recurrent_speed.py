"""Recurrent models train about as fast as bare loops of cuDNN, and ConvS2S as fast as the Transformer of its size.

On a CPU: vectors of 256, 8,000 words, float32, batches of 32 × (30 + 30) tokens. On a GPU, if there is one: 512, 10,000
words, bfloat16, 256 × (32 + 32). All tokens are real, none is padding. LSTMs have 2 layers; the GRUs, Bahdanau's
and those of the loop beside it, have one, and read the source both ways.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from benchmarks.contest import Entrant, Outcome, race
from benchmarks.report import Result, show
from benchmarks.shape import BASE, SMALL, Shape

LSTM, GRU, TRANSFORMER = "bare LSTM loop", "bare GRU loop", "transformer"
BESIDE = {
    "sutskever": LSTM,
    "luong": LSTM,
    "luong with input feeding": LSTM,
    "bahdanau": GRU,
    "convs2s": TRANSFORMER,
}
"""The system that each of ours is compared with: the fastest of its forms."""
FORMS = (" compiled", " as a CUDA graph")


def measure(rounds: int = 7, updates: int = 0, dropout: int = 10, layers: int = 2) -> dict[str, Result]:
    """All systems; updates per turn: 0 is 2 on a CPU and 30 on a GPU; dropout in percent."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    shape, updates = (BASE, updates or 30) if device == "cuda" else (SMALL, updates or 2)
    shape = replace(shape, dropout=dropout / 100)
    began = time.monotonic()
    outcomes = race(entrants_of(shape, updates, device, layers), rounds)
    rows = rows_of(outcomes)
    show(f"training on {device}", [("", "target tokens/s", "MiB", "held against", "ratio"), *rows])
    protocol = (
        f"{shape.dim}, {shape.words} words, LSTMs of {layers} layers, dropout {shape.dropout}, {shape.sentences} x "
        f"({shape.source}+{shape.target}) tokens, Adam, plain cross-entropy; {sizes_of(shape)}; each in a process of "
        f"its own, by turns of {updates} updates, median of {rounds}"
    )
    seconds = round(time.monotonic() - began, 1)
    return {
        f"recurrent-{device}-{label.replace(' ', '-')}": Result(
            system=label,
            metric=f"training recurrent and convolutional models on {device}, target tokens/s",
            value=round(speed, 1),
            protocol=protocol,
            seed=1,
            seconds=seconds,
            signature=f"{label}: peak {memory:.0f} MiB"
            + (f", {ratio} times the {beside}" if beside else "")
            + f"|{outcomes[label].signature}",
        )
        for label, speed, memory, beside, ratio in rows
    }


def entrants_of(shape: Shape, updates: int, device: str, layers: int = 2) -> list[Entrant]:
    """Ours and those they are compared with; on a GPU as CUDA graphs, and where it pays compiled as well."""
    common: dict[str, Any] = {"shape": shape.options(), "updates": updates, "device": device}

    def loops(label: str, kind: str, layers: int, both_ways: bool) -> list[Entrant]:
        options = common | {"kind": kind, "layers": layers, "both_ways": both_ways}
        forms = {label: options}
        if device == "cuda":  # ours replays graphs, so the loops do as well
            forms[f"{label} as a CUDA graph"] = options | {"graph": True}
        return [Entrant(name, "benchmarks.recurrent_entrants:bare", each) for name, each in forms.items()]

    def entrant(label: str, engine: str) -> Entrant:
        model, config = models_of(shape, layers)[label]
        options = common | {"model": model, "config": config, "engine": engine}
        name = f"{label} compiled" if engine == "compile" else label
        return Entrant(name, "benchmarks.recurrent_entrants:ours", options)

    entrants = [*loops(LSTM, "lstm", layers, False), *loops(GRU, "gru", 1, True)]
    entrants += [entrant(label, "auto") for label in models_of(shape, layers)]
    if device == "cuda":  # loops over time are unrolled by a compiler, which takes it longer than they gain
        entrants += [entrant(label, "compile") for label in (TRANSFORMER, "convs2s")]
    return entrants


def models_of(shape: Shape, layers: int) -> dict[str, tuple[str, dict[str, Any]]]:
    """The models and their shapes."""
    sizes: dict[str, Any] = {"embedding_dim": shape.dim, "dim": shape.dim, "dropout": shape.dropout}
    deep = sizes | {"layers": layers}
    transformer = {
        "layers": shape.layers, "dim": shape.dim, "heads": shape.heads, "hidden_dim": shape.hidden_dim,
        "dropout": shape.dropout, "norm": "pre",
    }  # fmt: skip
    convs2s = {
        "layers": layers_of_convs2s(shape), "dim": shape.dim, "dropout": shape.dropout, "tie_weights": "all",
        "max_length": max(shape.source, shape.target) + 1,
    }  # fmt: skip
    return {
        "sutskever": ("sutskever", deep),
        "luong": ("luong", deep),
        "luong with input feeding": ("luong", deep | {"input_feeding": True}),
        "bahdanau": ("bahdanau", sizes | {"score_dim": shape.dim, "readout_dim": shape.dim}),
        TRANSFORMER: ("transformer", transformer),
        "convs2s": ("convs2s", convs2s),
    }


def layers_of_convs2s(shape: Shape) -> int:
    """The number of layers that brings ConvS2S nearest to the parameters of the Transformer, embeddings apart.

    A block of the encoder has 4 dim² + 2 dim · hidden_dim, one of the decoder 8 dim² + 2 dim · hidden_dim; a
    convolution of 3 words to twice the channels has 6 dim², and one of the decoder two linear layers around its
    attention.
    """
    transformer = shape.layers * (12 * shape.dim**2 + 4 * shape.dim * shape.hidden_dim)
    return max(1, round((transformer - 4 * shape.dim**2) / (14 * shape.dim**2)))


def sizes_of(shape: Shape) -> str:
    """The parameters of the two that should be alike."""
    from benchmarks.recurrent_entrants import build

    counts = {
        label: sum(each.numel() for each in build(*models_of(shape, 1)[label], shape.words).parameters())
        for label in (TRANSFORMER, "convs2s")
    }
    return ", ".join(f"{label} {count / 1e6:.1f}M parameters" for label, count in counts.items())


def rows_of(outcomes: Mapping[str, Outcome]) -> list[tuple[Any, ...]]:
    """Each with its speed and memory, and for ours the ratio to the best form of the one it is compared with."""
    rows = []
    for label, outcome in outcomes.items():
        beside = BESIDE.get(plain(label), "")
        others = [other.rate for name, other in outcomes.items() if plain(name) == beside]
        ratio = round(outcome.rate / max(others), 3) if others else ""
        rows.append((label, outcome.rate, outcome.peak / 2**20, beside, ratio))
    return rows


def plain(label: str) -> str:
    """Who it is, in whatever form."""
    for form in FORMS:
        label = label.removesuffix(form)
    return label
