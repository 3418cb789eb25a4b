"""A bag of words is trained faster than by scikit-learn at equal accuracy; lines are classified beside fastText.

Training: from files of NSMC to a validated classifier on TF-IDF of the characters 1 to 5, whole programs: `mallang
train`, which also writes a run folder, and TfidfVectorizer with LinearSVC, LogisticRegression and SGDClassifier, whose
settings were chosen on the same valid split (bag_entrants.py). Classifying: `mallang classify --file` and fastText's
`predict` on the lines of a file, read in chunks by both, for files of several sizes: their memory must not grow.
Programs take turns; the time of each is the median of its turns, its memory the highest peak.

python -m benchmarks bag_speed --rounds 3
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.bag_entrants import FASTTEXT
from benchmarks.contest import ROOT, beside_others, python_with
from benchmarks.report import Result, show, versions

CORPUS = "nsmc"
MALLANG = "mallang"
PEERS = {"svm": "LinearSVC", "logistic": "LogisticRegression", "sgd": "SGDClassifier"}
"""Classifiers of scikit-learn by their names in bag_entrants.py."""
OURS = ("model.orders=[1,2,3,4,5]", "model.C=0.3", "text.unit=char")
"""The features of scikit-learn's TfidfVectorizer, and the C of its LinearSVC."""
LINES = (10_000, 100_000)
"""Sizes of the files to classify, beside the largest."""


@dataclass
class Program:
    """A program that is run several times."""

    label: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    removed: Sequence[Path] = ()
    """Folders that are removed before every turn."""
    seconds: list[float] = field(default_factory=list)
    peak: int = 0
    """The highest peak of its memory in bytes."""
    printed: str = ""
    """What it printed in its last turn."""

    def run(self) -> None:
        """Run it to its end."""
        for folder in self.removed:
            shutil.rmtree(folder, ignore_errors=True)
        with tempfile.TemporaryFile("w+", encoding="utf-8") as out, tempfile.TemporaryFile("w+") as err:
            began = time.monotonic()
            process = subprocess.Popen(
                self.command, cwd=ROOT, env=surroundings() | self.environment, stdout=out, stderr=err
            )
            _, status, used = os.wait4(process.pid, 0)
            self.seconds.append(time.monotonic() - began)
            process.returncode = os.waitstatus_to_exitcode(status)
            self.peak = max(self.peak, used.ru_maxrss * 1024)
            for stream in (out, err):
                stream.seek(0)
            self.printed = out.read()
            if process.returncode:
                raise RuntimeError(f"{self.label} ended with code {process.returncode}: {err.read()[-2000:]}")

    @property
    def median(self) -> float:
        """The median of its seconds."""
        return statistics.median(self.seconds)


def surroundings() -> dict[str, str]:
    """The environment of all programs: our packages, and two threads at most."""
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "2"}


def measure(rounds: int = 3, lines: int = 1_000_000) -> dict[str, Result]:
    """Training and classifying; `lines` is the size of the largest file."""
    with tempfile.TemporaryDirectory() as place, beside_others():
        folder = Path(place)
        texts = write_files(folder)
        programs = training_programs(folder)
        take_turns(programs, rounds)
        found = training_results(programs, accuracies(programs, folder), rounds)
        models = fasttext_models(folder)
        for size in (*LINES, lines):
            write_lines(folder / "lines.txt", texts, size)
            programs = classifying_programs(folder, models)
            take_turns(programs, rounds)
            found |= classifying_results(programs, size, models, rounds)
        return found


def write_files(folder: Path) -> list[str]:
    """The train and valid splits as files, without empty texts; returns the texts of the test split."""
    from mallang.data.corpus import Config, open_corpus

    corpus = open_corpus(Config(corpus=CORPUS), ("text", "label"))
    for split in ("train", "valid"):
        rows = [row for row in corpus.split(split) if row[0]]
        (folder / f"{split}.tsv").write_text("".join(f"{text}\t{label}\n" for text, label in rows), "utf-8")
    return [text for text, _ in corpus.split("test")]


def write_lines(path: Path, texts: Sequence[str], size: int) -> None:
    """A file of so many lines: the texts, again and again."""
    with path.open("w", encoding="utf-8") as stream:
        for number in range(size):
            stream.write(f"{texts[number % len(texts)]}\n")


def take_turns(programs: Sequence[Program], rounds: int) -> None:
    """Run every program once per round, each round beginning with another one."""
    for number in range(rounds):
        first = number % len(programs)
        for program in (*programs[first:], *programs[:first]):
            program.run()


# ---- training ----


def training_programs(folder: Path) -> list[Program]:
    """Ours and those of scikit-learn, all from the same files."""
    splits = [str(folder / "train.tsv"), str(folder / "valid.tsv")]
    files = [f"data.train={splits[0]}", f"data.valid={splits[1]}"]
    options = ["--name", "run", "--runs", str(folder), "--quiet"]
    ours = [sys.executable, "-m", "mallang", "train", "bag-of-words", *files, *OURS, *options]
    peers = [sys.executable, "-m", "benchmarks.bag_entrants"]
    cache = folder / "cache"
    return [
        # Its run and its cache are removed, so that every turn prepares the text again.
        Program(MALLANG, ours, {"MALLANG_CACHE": str(cache)}, removed=(cache, folder / "run")),
        *(Program(label, [*peers, name, *splits]) for name, label in PEERS.items()),
    ]


def accuracies(programs: Sequence[Program], folder: Path) -> dict[str, float]:
    """The accuracy on the valid split that each program has found."""
    last = (folder / "run" / "metrics.jsonl").read_text("utf-8").splitlines()[-1]
    said = {program.label: program.printed for program in programs} | {MALLANG: last}
    return {label: float(json.loads(text)["accuracy"]) for label, text in said.items()}


def training_results(programs: Sequence[Program], accuracy: Mapping[str, float], rounds: int) -> dict[str, Result]:
    """The seconds of each, and the speed over the fastest of scikit-learn."""
    fastest = min(program.median for program in programs if program.label != MALLANG)
    rows = [
        (each.label, each.median, accuracy[each.label], each.peak / 2**20, round(fastest / each.median, 2))
        for each in programs
    ]
    heads = ("", "seconds", "accuracy on valid", "MiB", "times the fastest of scikit-learn")
    show("training a bag of characters 1-5 on NSMC", [heads, *rows])
    return {
        f"bag-training-{label.lower()}": Result(
            system=label if label == MALLANG else f"scikit-learn {label}",
            recipe="bag-of-words" if label == MALLANG else None,
            overrides=list(OURS) if label == MALLANG else None,
            corpus=CORPUS,
            split="train",
            metric="training a bag of words with its features, seconds",
            value=round(seconds, 2),
            protocol="whole program from two files to a validated classifier on TF-IDF of the characters 1-5; programs "
            f"by turns, median of {rounds}",
            signature=f"accuracy {found:.2f} on valid, peak {memory:.0f} MiB, {ratio} times the fastest of "
            f"scikit-learn|{versions('mallang', 'scikit-learn', 'numpy')}",
        )
        for label, seconds, found, memory, ratio in rows
    }


# ---- classifying ----


def fasttext_models(folder: Path) -> dict[str, float]:
    """Train the models of fastText; the accuracy of each on the valid split, by name. None where it is missing."""
    if (python := python_with(("fasttext",))) is None:
        print("fastText is not measured: it is not installed; python -m benchmarks.peers installs it", file=sys.stderr)
        return {}
    found = {}
    for name in FASTTEXT:
        files = [str(folder / file) for file in ("train.tsv", "valid.tsv", f"{name}.bin")]
        trained = Program(name, [python, "-m", "benchmarks.bag_entrants", "fasttext-train", *files, name])
        trained.run()
        found[name] = float(json.loads(trained.printed)["accuracy"])
    return found


def classifying_programs(folder: Path, models: Mapping[str, float]) -> list[Program]:
    """Ours, and one program for each model of fastText."""
    lines, python = str(folder / "lines.txt"), python_with(("fasttext",)) or ""
    ours = [sys.executable, "-m", "mallang", "classify", str(folder / "run"), "--file", lines]
    predict = [python, "-m", "benchmarks.bag_entrants", "fasttext-predict"]
    return [
        Program(MALLANG, ours),
        *(Program(f"fastText, {name}", [*predict, str(folder / f"{name}.bin"), lines]) for name in models),
    ]


def classifying_results(
    programs: Sequence[Program], size: int, models: Mapping[str, float], rounds: int
) -> dict[str, Result]:
    """The lines per second of each, its memory, and the speed over the first model of fastText."""
    for program in programs:
        if (count := program.printed.count("\n")) != size:
            raise RuntimeError(f"{program.label} printed {count} labels for {size} lines")
    peer = programs[1].median if len(programs) > 1 else None
    rows = [
        (each.label, size / each.median, each.peak / 2**20, round(peer / each.median, 2) if peer else "?")
        for each in programs
    ]
    show(f"classifying {size:,} lines of a file", [("", "lines/s", "MiB", "times fastText"), *rows])
    known = {f"fastText, {name}": f"accuracy {accuracy:.2f} on valid, " for name, accuracy in models.items()}
    return {
        f"classify-{size}-{label.replace(', ', '-').lower()}": Result(
            system=label,
            corpus=CORPUS,
            split="test",
            metric=f"classifying {size:,} lines of a file, lines/s",
            value=round(speed),
            protocol="whole program from its start to the last label printed; lines are read in chunks; programs by "
            f"turns, median of {rounds}",
            signature=f"{known.get(label, '')}peak {memory:.0f} MiB, {ratio} times fastText on words"
            f"|{versions('mallang', 'torch', 'numpy')}",
        )
        for label, speed, memory, ratio in rows
    }
