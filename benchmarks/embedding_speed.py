"""Embeddings of 10,000 sentences are made at least 1.3 times as fast as with sentence-transformers, torch or ONNX.

A BERT of 6 layers of 384 with mean pooling, the shape of all-MiniLM-L6-v2, on the test reviews of NSMC. Both sort texts
by length; sentence-transformers is timed with batches of 32, its default, and of 128. Mallang is timed in float32, and
with int8 weights.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.contest import Entrant, Outcome, race
from benchmarks.encoder_entrants import SEED, make_folder, nsmc
from benchmarks.report import Result, show

BATCHES = (32, 128)
BACKENDS = {"torch": ("sentence_transformers",), "onnx": ("sentence_transformers", "optimum")}
"""The backends of sentence-transformers, and the packages that each needs."""
PEER = "sentence-transformers"
OURS = {"mallang": "float32", "mallang int8": "int8"}


def measure(rounds: int = 5, sentences: int = 10_000, threads: int = 2) -> dict[str, Result]:
    """Mallang in float32 and int8, and sentence-transformers with both backends."""
    import torch

    device, began = "cuda" if torch.cuda.is_available() else "cpu", time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        make_folder(Path(folder), "Model", nsmc("train", 20_000)[0])
        outcomes = race(entrants_of(folder, sentences, device, threads), rounds)
    rows = rows_of(outcomes)
    show(f"embeddings of NSMC, {device}", [("", "texts/s", "MiB", f"times {PEER}"), *rows])
    return {
        f"embedding-{device}-{label.replace(', ', '-').replace(' ', '-')}": Result(
            system=label,
            metric=f"embeddings with a BERT on {device}, texts/s",
            value=round(rate, 1),
            corpus="nsmc",
            split="test",
            protocol=f"6 layers of 384, mean pooling, {sentences} reviews, {threads} threads; in processes of their "
            f"own, by turns, median of {rounds}",
            seed=SEED,
            seconds=round(time.monotonic() - began, 1),
            signature=f"{label}: peak {memory:.0f} MiB, {ratio} times {PEER}|{outcomes[label].signature}",
        )
        for label, rate, memory, ratio in rows
    }


def entrants_of(folder: str, sentences: int, device: str, threads: int) -> list[Entrant]:
    """sentence-transformers with each backend and batch size, and ours."""
    options = {"folder": folder, "sentences": sentences, "device": device, "threads": threads}
    here, place = {"OMP_NUM_THREADS": str(threads)}, "benchmarks.encoder_entrants"
    peers = [
        Entrant(
            f"{PEER}, {backend}, batches of {batch}", f"{place}:their_embedder",
            {**options, "backend": backend, "batch": batch}, needs, here,
        )
        for backend, needs in BACKENDS.items()
        for batch in BATCHES
    ]  # fmt: skip
    return [
        *peers,
        *(
            Entrant(label, f"{place}:our_embedder", {**options, "weights": weights}, environment=here)
            for label, weights in OURS.items()
            if weights == "float32" or device == "cpu"
        ),
    ]


def rows_of(outcomes: Mapping[str, Outcome]) -> list[tuple[str, float, float, Any]]:
    """Each with its speed, its memory, and its speed over that of the fastest sentence-transformers."""
    best = max((one.rate for label, one in outcomes.items() if label.startswith(PEER)), default=None)
    return [
        (label, one.rate, one.peak / 2**20, "?" if best is None else round(one.rate / best, 2))
        for label, one in outcomes.items()
    ]
