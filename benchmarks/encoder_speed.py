"""Classification with a BERT is at least 1.5 times as fast as the pipeline of transformers at its best batch size.

A BERT of 6 layers of 384 on the test reviews of NSMC, from texts to labels with probabilities. The pipeline gets the
texts sorted by length, in batches of 8, 32 and 128; the fastest of these is the peer. Mallang is timed in float32 and
with int8 weights. What int8 costs is counted with `--run`, the folder of a trained run: its accuracy in both.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.contest import Entrant, Outcome, race
from benchmarks.encoder_entrants import SEED, make_folder, nsmc
from benchmarks.report import Result, show, versions

BATCHES = (8, 32, 128)
PEERS = tuple(f"transformers pipeline, batches of {batch}" for batch in BATCHES)
OURS = {"mallang": "float32", "mallang int8": "int8"}


def measure(rounds: int = 5, sentences: int = 2000, threads: int = 2, run: str = "") -> dict[str, Result]:
    """Mallang in float32 and int8, and the pipeline; with `run` also the accuracy of a trained run in both."""
    import torch

    device, began = "cuda" if torch.cuda.is_available() else "cpu", time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        make_folder(Path(folder), "ForSequenceClassification", nsmc("train", 20_000)[0])
        outcomes = race(entrants_of(folder, sentences, device, threads), rounds)
    rows = rows_of(outcomes)
    show(f"classification of NSMC with a BERT, {device}", [("", "texts/s", "MiB", "times the pipeline"), *rows])
    found = {
        f"encoder-{device}-{label.replace(', ', '-').replace(' ', '-')}": Result(
            system=label,
            metric=f"classification with a BERT on {device}, texts/s",
            value=round(rate, 1),
            corpus="nsmc",
            split="test",
            protocol=f"6 layers of 384, {sentences} reviews from text to probabilities, {threads} threads; in "
            f"processes of their own, by turns, median of {rounds}",
            seed=SEED,
            seconds=round(time.monotonic() - began, 1),
            signature=f"{label}: peak {memory:.0f} MiB, {ratio} times the pipeline|{outcomes[label].signature}",
        )
        for label, rate, memory, ratio in rows
    }
    return found | (quality(run, sentences) if run else {})


def entrants_of(folder: str, sentences: int, device: str, threads: int) -> list[Entrant]:
    """The pipeline with each batch size, and ours."""
    options = {"folder": folder, "sentences": sentences, "device": device, "threads": threads}
    here, place = {"OMP_NUM_THREADS": str(threads)}, "benchmarks.encoder_entrants"
    peers = [
        Entrant(label, f"{place}:their_classifier", {**options, "batch": batch}, ("transformers",), here)
        for label, batch in zip(PEERS, BATCHES, strict=True)
    ]
    return [
        *peers,
        *(
            Entrant(label, f"{place}:our_classifier", {**options, "weights": weights}, environment=here)
            for label, weights in OURS.items()
            if weights == "float32" or device == "cpu"
        ),
    ]


def rows_of(outcomes: Mapping[str, Outcome]) -> list[tuple[str, float, float, Any]]:
    """Each with its speed, its memory, and its speed over that of the fastest pipeline."""
    best = max((outcomes[label].rate for label in PEERS if label in outcomes), default=None)
    return [
        (label, one.rate, one.peak / 2**20, "?" if best is None else round(one.rate / best, 2))
        for label, one in outcomes.items()
    ]


def quality(run: str, sentences: int) -> dict[str, Result]:
    """The accuracy of a trained run on the test reviews, in float32 and with int8 weights."""
    import mallang

    (texts, labels), began, found = nsmc("test", sentences), time.monotonic(), {}
    for label, weights in OURS.items():
        outputs = mallang.load(run, device="cpu", weights=weights).classify(texts)  # type: ignore[arg-type]
        right = sum(each.label == str(gold) for each, gold in zip(outputs, labels, strict=True))
        found[f"encoder-accuracy-{label.replace(' ', '-')}"] = Result(
            system=label,
            metric="accuracy of a BERT by the precision of its weights",
            value=round(100 * right / len(texts), 2),
            corpus="nsmc",
            split="test",
            protocol=f"{sentences} reviews, run {Path(run).name}",
            seed=SEED,
            seconds=round(time.monotonic() - began, 1),
            signature=versions("mallang", "torch"),
        )
    show("accuracy", [("", "%"), *((each.system, each.value) for each in found.values())])
    return found
