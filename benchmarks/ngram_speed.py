"""Trigrams are estimated at 0.7 times the speed of KenLM's lmplz or more, and scored as fast as by its Python module.

Estimation: from a text file to an ARPA file, modified Kneser-Ney; words are separated by spaces. Scoring: the
held-out text of the same corpus; `kenlm` is given each sentence as a string, mallang the numbers of all words, on two
threads, and once more the strings, which its tokenizer cuts first. lmplz is taken by its path, and never part of us.
Estimation is timed in process, and as users run it: `mallang train` and `mallang export` beside the lmplz command, each
from the start of its process to its end.

python -m benchmarks ngram_speed --lmplz ~/kenlm/build/bin/lmplz
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.contest import Entrant, Outcome, Turn, high_water, race
from benchmarks.report import Result, show

ORDER = 3
ESTIMATION, SCORING = "estimating trigrams to an ARPA file, words/s", "scoring by trigrams, tokens/s"
LMPLZ, KENLM = "KenLM lmplz", "kenlm score"
PEERS = {ESTIMATION: LMPLZ, SCORING: KENLM}
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
"""Our commands run elsewhere, with the same packages."""
UNKNOWN = "unknown-word"
"""What `<unk>` is called: lmplz refuses a text that holds it."""


def measure(rounds: int = 7, lmplz: str = "lmplz", corpus: str = "ptb", times: int = 20) -> dict[str, Result]:
    """All systems; `times` is how often a turn scores the text."""
    began = time.monotonic()
    found: dict[str, Result] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for split in ("train", "test"):
            write_text(corpus, split, folder / f"{split}.txt")
        ids, places, words = read_text(folder / "train.txt")
        write_arpa(ids, places, words, folder / "model.arpa")
        for metric, entrants in entrants_of(folder, lmplz, times).items():
            rows = rows_of(race(entrants, rounds), PEERS[metric])
            show(f"{metric}, {corpus}", [("", "a second", "MiB", f"times {PEERS[metric]}"), *(row[:4] for row in rows)])
            for label, speed, memory, ratio, signature in rows:
                found[f"ngram-{label.replace(' ', '-').replace(',', '').lower()}"] = Result(
                    system=label, corpus=corpus, split="train" if metric == ESTIMATION else "test", metric=metric,
                    value=round(speed), seconds=round(time.monotonic() - began, 1),
                    protocol=f"order {ORDER}, modified Kneser-Ney, {len(words):,} words; in processes of their own, "
                    f"by turns, median of {rounds}",
                    signature=f"{label}: peak {memory:.0f} MiB, {ratio} times {PEERS[metric]}|{signature}",
                )  # fmt: skip
    return found


def entrants_of(folder: Path, lmplz: str, times: int) -> dict[str, list[Entrant]]:
    """The systems that estimate and that score; lmplz only where it is installed."""
    common = {"folder": str(folder)}
    estimating = [
        Entrant("mallang", "benchmarks.ngram_speed:ours", common),
        Entrant("mallang train and export", "benchmarks.ngram_speed:our_commands", common),
    ]
    if (found := shutil.which(lmplz)) is None:
        print(f"{LMPLZ} is not measured: there is no {lmplz!r}; give its path with --lmplz")
    else:
        estimating.append(Entrant(LMPLZ, "benchmarks.ngram_speed:theirs", {**common, "lmplz": found}))
    again = {**common, "times": times}
    scoring = [
        Entrant("mallang from ids", "benchmarks.ngram_speed:score_ids", again),
        Entrant("mallang from strings", "benchmarks.ngram_speed:score_strings", again),
        Entrant(KENLM, "benchmarks.ngram_speed:score_kenlm", again, needs=("kenlm",)),
    ]
    return {ESTIMATION: estimating, SCORING: scoring}


def rows_of(outcomes: Mapping[str, Outcome], peer: str) -> list[tuple[str, float, float, float | str, str]]:
    """Each with its speed, its memory, and its speed over the peer's where that is measured."""
    base = outcomes[peer].rate if peer in outcomes else None
    return [
        (label, one.rate, one.peak / 2**20, round(one.rate / base, 3) if base else "?", one.signature)
        for label, one in outcomes.items()
    ]


def ours(folder: str) -> Turn:
    """Text to ARPA, in this process."""
    text, model = Path(folder) / "train.txt", Path(folder) / "ours.arpa"

    def run() -> float:
        ids, places, words = read_text(text)
        write_arpa(ids, places, words, model)
        return float(len(ids) - 2 * int((places == 0).sum()))  # without <s> and </s>, as lmplz counts

    return run


def our_commands(folder: str) -> Turn:
    """Our estimation as users run it: two whole commands, training on the file and writing ARPA."""
    text, model = Path(folder) / "train.txt", Path(folder) / "commands.arpa"
    mallang, name = [sys.executable, "-m", "mallang"], "ngram-speed"
    files = [f"data.train={text}", f"data.valid={Path(folder) / 'test.txt'}"]
    options = [f"model.order={ORDER}", *files, "text.unit=space", "text.vocabulary=1000000"]
    train = [*mallang, "train", "ngram", *options, "--name", name, "--fresh", "--quiet"]
    export = [*mallang, "export", f"runs/{name}", "--to", "arpa", "--output", str(model), "--quiet"]
    return Commands(words_of(text), [train, export], model)


def theirs(folder: str, lmplz: str) -> Turn:
    """Estimation by lmplz, with a gigabyte of memory for sorting."""
    text, model = Path(folder) / "train.txt", Path(folder) / "theirs.arpa"
    command = [lmplz, "-o", str(ORDER), "-S", "1G", "-T", folder, "--text", str(text), "--arpa", str(model)]
    return Commands(words_of(text), [command], model)


def words_of(text: Path) -> float:
    """The number of words in a file."""
    return float(len(text.read_bytes().split()))


class Commands:
    """A turn that runs programs one after the other, each to its end, in the folder of what they write."""

    def __init__(self, work: float, commands: Sequence[Sequence[str]], written: Path) -> None:
        self.work, self.commands, self.written = work, commands, written
        self.most = 0

    def __call__(self) -> float:
        """Run all of them."""
        self.written.unlink(missing_ok=True)
        for command in self.commands:
            self.run(command)
        return self.work

    def run(self, command: Sequence[str]) -> None:
        """One of them; what it prints is shown where it fails."""
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(command, cwd=self.written.parent, env=ENVIRONMENT, stdout=said, stderr=said)
            while process.poll() is None:
                self.most = max(self.most, high_water(process.pid))
                time.sleep(0.005)
            if process.returncode:
                said.seek(0)
                raise RuntimeError(f"{command[0]} ended with code {process.returncode}: {said.read().decode()}")

    def peak(self) -> int:
        """The most memory that one of them was seen with."""
        return self.most


def score_ids(folder: str, times: int) -> Turn:
    """Our table, given numbers."""
    import torch

    from mallang.interop import arpa
    from mallang.layers.ngram_table import Table

    torch.set_num_threads(2)
    tokens, ngrams = arpa.read(Path(folder) / "model.arpa")
    table = Table(ngrams)
    ids, places, _ = read_text(Path(folder) / "test.txt", tokens)
    words, positions = (torch.from_numpy(array).long().repeat(times) for array in (ids, places))
    said = int((words != 2).sum())

    def run() -> float:
        table.score(words, positions)
        return float(said)

    return run


def score_strings(folder: str, times: int) -> Turn:
    """Our tokenizer, then our table."""
    import numpy as np
    import torch

    from mallang.interop import arpa
    from mallang.interop.ngram_run import tokenizer_of
    from mallang.layers.ngram_table import Table

    torch.set_num_threads(2)
    tokens, ngrams = arpa.read(Path(folder) / "model.arpa")
    table, tokenizer = Table(ngrams), tokenizer_of(tokens, Path(folder))
    lines = (Path(folder) / "test.txt").read_text("utf-8").splitlines() * times

    def run() -> float:
        rows = [[2, *row, 3] for row in tokenizer.encode_batch(lines)]
        words = np.fromiter((number for row in rows for number in row), np.int64)
        ends = np.cumsum([len(row) for row in rows])
        positions = np.arange(len(words)) - np.repeat(ends - np.diff(ends, prepend=0), np.diff(ends, prepend=0))
        table.score(torch.from_numpy(words), torch.from_numpy(positions))
        return float(len(words) - len(rows))

    return run


def score_kenlm(folder: str, times: int) -> Turn:
    """The module, sentence by sentence."""
    import kenlm  # type: ignore[import-not-found]

    model: Any = kenlm.Model(str(Path(folder) / "model.arpa"))
    lines = (Path(folder) / "test.txt").read_text("utf-8").splitlines() * times
    said = sum(len(line.split()) + 1 for line in lines)

    def run() -> float:
        for line in lines:
            model.score(line)
        return float(said)

    return run


def write_text(corpus: str, split: str, path: Path) -> None:
    """The lines of a corpus as a file, words between spaces."""
    from mallang.data.corpus import Config, open_corpus

    rows = open_corpus(Config(corpus=corpus), ("text",)).split(split)
    path.write_text("".join(f"{text.replace('<unk>', UNKNOWN)}\n" for (text,) in rows), "utf-8")


def read_text(path: Path, tokens: Sequence[str] | None = None) -> tuple[Any, Any, tuple[str, ...]]:
    """The number of every word of a file, its position in its line, and the words, if they are not known."""
    import numpy as np

    from mallang.text.vocabulary import SPECIALS

    lines = path.read_text("utf-8").replace("\n", " </s>\n<s> ").removesuffix("<s> ")
    words = f"<s> {lines}".split()
    known = tuple(dict.fromkeys((*SPECIALS, *words))) if tokens is None else tuple(tokens)
    numbers = {word: number for number, word in enumerate(known)}
    ids = np.fromiter(map(numbers.__getitem__, words), np.int32, len(words))
    starts = np.flatnonzero(ids == numbers["<s>"])
    places = np.arange(len(ids)) - np.repeat(starts, np.diff(starts, append=len(ids)))
    return ids, places.astype(np.int32), known


def write_arpa(ids: Any, places: Any, words: Sequence[str], path: Path) -> None:
    """Estimate and write."""
    from mallang.data.ngram_counts import count
    from mallang.data.ngram_text import Text
    from mallang.interop import arpa
    from mallang.layers import ngram_smoothing
    from mallang.text.vocabulary import Vocabulary

    counts = count(Text(ids, places), ORDER, Vocabulary(tuple(words)))
    kept = ngram_smoothing.keep_counts(counts, [1] * ORDER)
    arpa.write(ngram_smoothing.kneser_ney(counts, kept)[0].table(counts, kept), words, path)
