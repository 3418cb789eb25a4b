"""Fine-tuning a BERT is at least as fast as with Trainer of transformers, on batches of like lengths.

A BERT of 6 layers of 384 on the reviews of NSMC, 32 a batch. `--batches 32,128,512` measures other sizes too, and names
results by them: the fastest batch of each system counts as well. transformers groups texts by length, pads each batch
to its longest, uses SDPA, and has a fused AdamW, as Trainer has with group_by_length; on a GPU both compute in
bfloat16 and compiled. Speed is counted in tokens without padding.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.contest import Entrant, Outcome, race
from benchmarks.crf_speed import rows_of as ratios
from benchmarks.encoder_entrants import SEED, make_folder, nsmc
from benchmarks.report import Result, show

PEER = "transformers Trainer"


def measure(
    rounds: int = 5, sentences: int = 20_000, batches: str = "32", updates: int = 30, threads: int = 2
) -> dict[str, Result]:
    """Mallang and transformers; `updates` is how many a turn makes, with a batch of each size."""
    import torch

    device, found = "cuda" if torch.cuda.is_available() else "cpu", dict[str, Result]()
    with tempfile.TemporaryDirectory() as folder:
        make_folder(Path(folder), "ForSequenceClassification", nsmc("train", 20_000)[0])
        for batch in map(int, batches.split(",")):
            began = time.monotonic()
            outcomes = race(entrants_of(folder, sentences, batch, updates, device, threads), rounds)
            how = f"{batch} reviews a batch, tokens without padding, {threads} threads; in processes of their own, by "
            found |= results_of(outcomes, device, batch, f"{how}turns of {updates} updates, median of {rounds}", began)
    return found


def results_of(
    outcomes: Mapping[str, Outcome], device: str, batch: int, protocol: str, began: float
) -> dict[str, Result]:
    """The results of one batch size, with their ratio to the peer."""
    rows = [
        (label, rate, memory, "?" if PEER not in outcomes else round(rate / outcomes[PEER].rate, 2))
        for label, rate, memory, _ in ratios(outcomes)
    ]
    show(f"fine-tuning a BERT on NSMC, {device}, batches of {batch}", [("", "tokens/s", "MiB", f"times {PEER}"), *rows])
    return {
        f"finetuning-{device}-{batch}-{label.replace(' ', '-')}": Result(
            system=label,
            metric=f"fine-tuning a BERT on {device}, tokens/s",
            value=round(rate),
            corpus="nsmc",
            split="train",
            protocol=f"6 layers of 384, {protocol}",
            seed=SEED,
            seconds=round(time.monotonic() - began, 1),
            signature=f"{label}: peak {memory:.0f} MiB, {ratio} times {PEER}|{outcomes[label].signature}",
        )
        for label, rate, memory, ratio in rows
    }


def entrants_of(folder: str, sentences: int, batch: int, updates: int, device: str, threads: int) -> list[Entrant]:
    """Ours and the peer."""
    options = {
        "folder": folder, "sentences": sentences, "batch": batch, "updates": updates, "device": device,
        "threads": threads,
    }  # fmt: skip
    here = {"OMP_NUM_THREADS": str(threads)}
    return [
        Entrant(PEER, "benchmarks.encoder_entrants:their_training", options, ("transformers",), here),
        Entrant("mallang", "benchmarks.encoder_entrants:our_training", options, environment=here),
    ]
