"""BPE-dropout in every epoch keeps up with training: at least 100,000 words per second and loader process.

The training text of Multi30k, English and German, is segmented again as a loader process does it: a batch at a time,
from random numbers of (seed, epoch, example). The first epoch fills the cache of known segmentations. The `tokenizers`
library, whose own dropout cannot be seeded, encodes the raw text for comparison; one thread each, in turn.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import tokenizers

from benchmarks.report import Result, show, versions
from mallang.data.corpus import Config as Data
from mallang.data.corpus import open_corpus
from mallang.data.filters import Filters
from mallang.data.prepared import prepare
from mallang.data.resegmented import Resegmented, dropouts_of
from mallang.text.tokenizer import Config, Tokenizer

CORPUS = "multi30k"
BATCH = 256
"""Pairs of a batch."""


def measure(rounds: int = 3, percent: int = 10, vocabulary: int = 10_000) -> dict[str, Result]:
    """Words a second in the first epoch and in the ones after it; percent of the merges are dropped."""
    began = time.monotonic()
    rows = open_corpus(Data(corpus=CORPUS, source="en", target="de"), ("source", "target")).split("train")
    texts = [text for row in rows for text in row]
    words = sum(len(text.split()) for text in texts)
    tokenizer = Tokenizer.train(texts, Config(vocabulary=vocabulary))
    library = tokenizers.Tokenizer.from_str(tokenizer.files[0])
    library.model.dropout = percent / 100
    with tempfile.TemporaryDirectory() as folder:
        prepared = prepare(rows, [tokenizer, tokenizer], Filters(max_length=0), cache=Path(folder))
        dropouts = dropouts_of([tokenizer, tokenizer], percent / 100)
        taken: dict[str, list[float]] = {"first epoch": [], "later epochs": [], "tokenizers": []}
        tokens = 0
        for epoch in range(rounds + 1):
            examples = Resegmented(prepared, dropouts, longest=100_000, seed=1, epoch=epoch)
            seconds, tokens = timed(lambda examples=examples: counted(examples))
            taken["later epochs" if epoch else "first epoch"].append(seconds)
            if epoch:
                taken["tokenizers"].append(timed(lambda: [len(library.encode(text).ids) for text in texts])[0])
        growth = tokens / int(prepared.lengths.sum())
    speeds = {name: words / statistics.median(values) for name, values in taken.items()}
    show(
        f"{words:,} words, {percent} % of the merges dropped: {growth:.2f} times the tokens",
        [("", "words/s"), *speeds.items()],
    )
    names = {"first epoch": "mallang, first epoch", "later epochs": "mallang, later epochs", "tokenizers": "tokenizers"}
    return {
        f"bpe-dropout-{name.replace(' ', '-')}": Result(
            system=names[name], corpus=CORPUS, split="train", metric="BPE-dropout, words/s", value=round(speed),
            protocol=f"{percent} % of merges dropped, en and de, one process, one thread, median of {rounds} epochs",
            seconds=round(time.monotonic() - began, 1),
            signature=f"unit:bpe|vocabulary:{len(tokenizer.vocabulary)}|{versions('mallang', 'tokenizers')}",
        )
        for name, speed in speeds.items()
    }  # fmt: skip


def counted(examples: Resegmented) -> int:
    """Fetch every example; how many tokens they have."""
    batches = (range(start, min(start + BATCH, len(examples))) for start in range(0, len(examples), BATCH))
    return sum(len(ids) for batch in batches for example in examples.many(batch) for ids in example)


def timed(work: Callable[[], object]) -> tuple[float, int]:
    """The seconds that some work takes, and what it counted."""
    start = time.perf_counter()
    found = work()
    return time.perf_counter() - start, found if isinstance(found, int) else 0
