"""The loss and the decoding of a CRF are at least twice as fast as those of pytorch-crf, on the same emissions.

A batch of 64 sentences of 30 to 60 words, padded to the longest; 9 tags, as CoNLL-2003 has in IOB2, and 17, as it has
in BIOES. The loss is timed with its gradients, for emissions and transitions; decoding to lists of tags.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from benchmarks.contest import Entrant, Outcome, Turn, race
from benchmarks.report import Result, show

SEED = 1
BATCH, SHORTEST, LONGEST = 64, 30, 60
SIZES = (9, 17)
PEER = "pytorch-crf"
WORK = {"loss": "CRF loss and gradients", "decode": "CRF decoding"}


def measure(rounds: int = 7, times: int = 40, threads: int = 1) -> dict[str, Result]:
    """Mallang and pytorch-crf; `times` is how many batches a turn computes. More threads help neither."""
    import torch

    device, began = "cuda" if torch.cuda.is_available() else "cpu", time.monotonic()
    found: dict[str, Result] = {}
    for work, title in WORK.items():
        for tags in SIZES:
            outcomes = race(entrants_of(work, tags, times, device, threads), rounds)
            rows = rows_of(outcomes)
            show(f"{title}, {tags} tags, {device}", [("", "words/s", "MiB", f"times {PEER}"), *rows])
            for label, speed, memory, ratio in rows:
                found[f"crf-{device}-{work}-{tags}-tags-{label}"] = Result(
                    system=label,
                    metric=f"{title} on {device}, words/s",
                    value=round(speed),
                    protocol=f"{tags} tags, {BATCH} sentences of {SHORTEST} to {LONGEST} words, {threads} threads; "
                    f"in processes of their own, by turns of {times} batches, median of {rounds}",
                    seed=SEED,
                    seconds=round(time.monotonic() - began, 1),
                    signature=f"{label}: peak {memory:.0f} MiB, {ratio} times {PEER}|{outcomes[label].signature}",
                )
    return found


def entrants_of(work: str, tags: int, times: int, device: str, threads: int) -> list[Entrant]:
    """Ours and the peer."""
    options = {"work": work, "tags": tags, "times": times, "device": device}
    here = {"OMP_NUM_THREADS": str(threads)}
    return [
        Entrant(PEER, "benchmarks.crf_speed:theirs", options, ("torchcrf",), here),
        Entrant("mallang", "benchmarks.crf_speed:ours", options, environment=here),
    ]


def rows_of(outcomes: Mapping[str, Outcome]) -> list[tuple[str, float, float, Any]]:
    """Each with its speed, its memory, and its speed over that of the peer."""
    peer = outcomes[PEER].rate if PEER in outcomes else None
    return [
        (label, one.rate, one.peak / 2**20, "?" if peer is None else round(one.rate / peer, 2))
        for label, one in outcomes.items()
    ]


def emissions_of(tags: int, device: str) -> tuple[Any, Any, Any, list[int]]:
    """Random emissions, labels, mask and lengths, equal for both systems."""
    import torch

    generator = torch.Generator().manual_seed(SEED)
    lengths = torch.randint(SHORTEST, LONGEST + 1, (BATCH,), generator=generator)
    lengths[0] = LONGEST
    emissions = torch.randn(BATCH, LONGEST, tags, generator=generator).to(device)
    labels = torch.randint(tags, (BATCH, LONGEST), generator=generator).to(device)
    mask = (torch.arange(LONGEST) < lengths[:, None]).to(device)
    return emissions.requires_grad_(), labels, mask, lengths.tolist()


def ours(work: str, tags: int, times: int, device: str) -> Turn:
    """The layer of mallang."""
    from mallang.layers.crf import CRF

    crf = CRF(tags).to(device)
    emissions, labels, mask, lengths = emissions_of(tags, device)

    def loss() -> None:
        crf.zero_grad()
        emissions.grad = None
        crf(emissions, labels, mask).sum().backward()

    def decode() -> list[list[int]]:
        rows = crf.decode(emissions, mask)[0].tolist()
        return [row[:length] for row, length in zip(rows, lengths, strict=True)]

    return repeated(loss if work == "loss" else decode, times, sum(lengths))


def theirs(work: str, tags: int, times: int, device: str) -> Turn:
    """The layer of pytorch-crf."""
    import torch
    import torchcrf

    crf = torchcrf.CRF(tags, batch_first=True).to(device)
    emissions, labels, mask, lengths = emissions_of(tags, device)

    def loss() -> None:
        crf.zero_grad()
        emissions.grad = None
        (-crf(emissions, labels, mask)).backward()

    @torch.no_grad()
    def decode() -> Any:
        return crf.decode(emissions, mask)

    return repeated(loss if work == "loss" else decode, times, sum(lengths))


def repeated(step: Any, times: int, words: int) -> Turn:
    """Some batches; the work is their words."""

    def run() -> float:
        for _ in range(times):
            step()
        return float(times * words)

    return run
