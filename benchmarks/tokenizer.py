"""Turning text into ids costs no more than the `tokenizers` library itself.

Our `encode_batch` and the bare library with the same model encode the same lines, in turn, in pieces of the size that
preparation uses. The library has two ways: with offsets (`encode_batch`) and without (`encode_batch_fast`).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import tokenizers

from benchmarks.report import Result, show, versions
from mallang.data import miniworld
from mallang.data.prepared import CHUNK
from mallang.text.tokenizer import Config, Tokenizer

Encode = Callable[[list[str]], list[list[int]]]


def measure(rounds: int = 9) -> dict[str, Result]:
    """Median speed of some rounds over the training text of miniworld, both languages."""
    began = time.monotonic()
    lines = [line for pair in miniworld.rows("train") for line in pair]
    ours = Tokenizer.train(lines, Config())
    bare = tokenizers.Tokenizer.from_str(ours.files[0])
    systems: dict[str, Encode] = {
        "mallang encode_batch": ours.encode_batch,
        "tokenizers encode_batch_fast": lambda texts: ids(bare.encode_batch_fast(texts, add_special_tokens=False)),
        "tokenizers encode_batch": lambda texts: ids(bare.encode_batch(texts, add_special_tokens=False)),
    }
    first, *others = (encoded(encode, lines) for encode in systems.values())
    assert all(other == first for other in others), "the two do not cut alike"
    taken: dict[str, list[float]] = {name: [] for name in systems}
    for _ in range(rounds):
        for name, encode in systems.items():
            start = time.perf_counter()
            encoded(encode, lines)
            taken[name].append(time.perf_counter() - start)
    size = sum(len(line.encode()) for line in lines) / 1e6
    speeds = {name: size / statistics.median(values) for name, values in taken.items()}
    fastest = statistics.median(taken["tokenizers encode_batch_fast"])
    rows = [(name, speeds[name], statistics.median(values) / fastest) for name, values in taken.items()]
    show(f"{len(lines):,} lines, {size:.1f} MB, {rounds} rounds", [("", "MB/s", "time against the library"), *rows])
    protocol = f"miniworld train, both languages, lists of {CHUNK} lines, median of {rounds} rounds in turn, warm"
    return {
        f"tokenizer-{name.replace(' ', '-')}": Result(
            system=name, corpus="miniworld", split="train",
            metric="tokenising, MB/s",  # words: ok, a key of stored results
            value=round(speed, 2),
            protocol=protocol, seconds=round(time.monotonic() - began, 1),
            signature=f"unit:bpe|vocabulary:{len(ours.vocabulary)}|{versions('mallang', 'tokenizers')}",
        )
        for name, speed in speeds.items()
    }  # fmt: skip


def encoded(encode: Encode, lines: list[str]) -> list[list[int]]:
    """All lines, piece by piece."""
    return [row for start in range(0, len(lines), CHUNK) for row in encode(lines[start : start + CHUNK])]


def ids(encodings: list[tokenizers.Encoding]) -> list[list[int]]:
    """What a model needs of the library's answer."""
    return [encoding.ids for encoding in encodings]
