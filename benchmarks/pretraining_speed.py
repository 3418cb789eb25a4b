"""Pre-training a BERT by masked tokens is at least 1.4 times as fast as with compiled modules of transformers.

On a GPU, in one run: BERT-base on 128 × 128 tokens, 15 % masked, also against transformers with its head on the masked
tokens alone; BERT-base on texts with the lengths of film reviews, against batches of transformers grouped by length and
random ones; a step of ELECTRA-small. bfloat16 over float32 weights, clipping and AdamW included. On a CPU: BERT-mini on
16 × 128 tokens in float32. No corpus and no network are needed.

    python -m benchmarks pretraining_speed --write            # everything that suits the device
    python -m benchmarks pretraining_speed --what reviews     # one part: fixed, reviews or electra
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.contest import Entrant, Outcome, race
from benchmarks.pretraining_entrants import SEED
from benchmarks.report import Result, show


@dataclass(frozen=True)
class System:
    """A system of one part: its label, where it is found, and what it computes on which batches."""

    label: str
    function: str
    computes: str
    """An objective of ours, or a loss of theirs."""
    how: str = ""
    """How texts of unequal lengths become batches."""


PARTS: dict[str, tuple[str, str, tuple[System, ...]]] = {
    "fixed": (
        "BERT-base, 128 x 128 tokens", "base", (
            System("mallang", "ours", "masked_lm"),
            System("transformers", "theirs", "whole"),
            System("transformers, head on masked tokens", "theirs", "masked"),
        ),
    ),
    "reviews": (
        "BERT-base, lengths of reviews", "base", (
            System("mallang, buckets", "ours", "masked_lm", "buckets"),
            System("mallang, packed", "ours", "masked_lm", "packed"),
            System("transformers, grouped by length", "theirs", "whole", "grouped"),
            System("transformers, random batches", "theirs", "whole", "random"),
        ),
    ),
    "electra": (
        "ELECTRA-small, 128 x 128 tokens", "electra-small", (
            System("mallang", "ours", "replaced_token"),
            System("transformers", "theirs", "electra"),
        ),
    ),
}  # fmt: skip
"""By part: what it is, the shape, and the systems; the first of transformers is the peer that ratios are to."""
MINI = ("BERT-mini, 16 x 128 tokens", "mini", PARTS["fixed"][2])
"""What a CPU measures."""


def measure(
    what: str = "all", rounds: int = 5, updates: int = 0, rows: int = 0, length: int = 128, threads: int = 2
) -> dict[str, Result]:
    """All parts that suit the device in one run (`what`: one of them), with so many updates in a turn and rows in a
    batch (0: what suits the device)."""
    import torch

    device, began = "cuda" if torch.cuda.is_available() else "cpu", time.monotonic()
    parts = parts_of(what, device)
    entrants = {
        (name, system.label): entrant_of(name, part[1], system, device, updates, rows, length, threads)
        for name, part in parts.items()
        for system in part[2]
    }
    outcomes = race(list(entrants.values()), rounds)
    found: dict[str, Result] = {}
    for name, part in parts.items():
        mine = {
            system.label: outcomes[entrants[name, system.label].label]
            for system in part[2]
            if entrants[name, system.label].label in outcomes
        }
        found |= results_of(name, part[0], mine, device, rounds, round(time.monotonic() - began, 1), threads)
    return found


def parts_of(what: str, device: str) -> dict[str, tuple[str, str, tuple[System, ...]]]:
    """The parts that are measured."""
    if device == "cpu":
        return {"fixed": MINI}
    if what not in ("all", *PARTS):
        raise ValueError(f"what = {what!r} is one of all, {', '.join(PARTS)}")
    return PARTS if what == "all" else {what: PARTS[what]}


def entrant_of(
    name: str, shape: str, system: System, device: str, updates: int, rows: int, length: int, threads: int
) -> Entrant:
    """A system as a process of its own."""
    options: dict[str, Any] = {
        "objective" if system.function == "ours" else "loss": system.computes, "shape": shape,
        "kind": "reviews" if system.how else "fixed", "how": system.how,
        "rows": rows or (128 if device == "cuda" else 16),
        "length": length, "count": updates or (20 if device == "cuda" else 2), "device": device,
        "threads": threads if device == "cpu" else 0,
    }  # fmt: skip
    needs = () if system.function == "ours" else ("transformers", "mallang")
    here = {"OMP_NUM_THREADS": str(threads)} if device == "cpu" else {}
    return Entrant(
        f"{name}: {system.label}", f"benchmarks.pretraining_entrants:{system.function}", options, needs, here
    )


def results_of(
    name: str, title: str, outcomes: Mapping[str, Outcome], device: str, rounds: int, seconds: float, threads: int
) -> dict[str, Result]:
    """The table of a part, and its values by file name."""
    rows = rows_of(outcomes)
    show(f"pre-training on {device}, {title}", [("", "tokens/s", "MiB", "times the peer"), *rows])
    engine = "compiled, bfloat16 over float32 weights" if device == "cuda" else f"float32, {threads} threads"
    return {
        f"pretraining-{device}-{name}-{label.replace(', ', '-').replace(' ', '-')}": Result(
            system=label,
            metric=f"pre-training on {device}: {title}, tokens/s without padding",
            value=round(rate),
            protocol=f"15 % masked, dropout 0.1, random words, batches masked beforehand; with clipping and AdamW; "
            f"{engine}; all parts in one run, in processes of their own, by turns, median of {rounds}",
            seed=SEED,
            seconds=seconds,
            signature=f"{label}: peak {memory:.0f} MiB, {ratio} times {peer_of(outcomes)}|{outcomes[label].signature}",
        )
        for label, rate, memory, ratio in rows
    }


def peer_of(outcomes: Mapping[str, Outcome]) -> str:
    """The system that speeds are compared with: the first one of transformers."""
    return next((label for label in outcomes if label.startswith("transformers")), "")


def rows_of(outcomes: Mapping[str, Outcome]) -> list[tuple[str, float, float, Any]]:
    """Each with its speed, its memory, and its speed over that of the peer."""
    peer = outcomes.get(peer_of(outcomes))
    return [
        (label, one.rate, one.peak / 2**20, "?" if peer is None else round(one.rate / peer.rate, 2))
        for label, one in outcomes.items()
    ]
