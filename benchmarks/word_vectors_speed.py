"""Skip-gram trains at half the speed of gensim or more on two cores, and ten times as fast as that on an H200.

Both read the same lower-cased words of WikiText-2 with the same dimension, window, negative samples, subsampling,
epochs and vocabulary; a turn is one training run, in words of the text, and each has its own seed. gensim has its
vocabulary and gets words, mallang gets ids; reading the file and counting words is timed for neither. The vectors of
all turns are scored by word similarity: a faster training run counts only if its vectors are as good.

On a GPU machine gensim runs on two cores, and with one worker per core on all of them. What cannot run there ends the
benchmark at once.

python -m benchmarks word_vectors_speed --write
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.contest import Entrant, Outcome, peak_memory, race
from benchmarks.report import Result, show
from benchmarks.word_vectors_entrants import MIN_COUNT, Lines, batches, counted, fitted, read_lines, vocabulary_of

DIM, WINDOW, NEGATIVES, SAMPLE = 100, 5, 5, 1e-3
PEER, FILE = "gensim, {} cores", "gensim, {} cores, corpus_file"
OURS = {"cpu": "mallang, 2 cores", "cuda": "mallang, GPU"}
METRIC = "skip-gram training, words/s"
LISTS = ("ws-353-all", "men-tr-3k")
"""Word similarity that all vectors are scored by; the first is in the claim."""
WARM_UPS = 2
"""Turns that `contest` runs before the first timed one; here they read a tenth of the text."""


def measure(rounds: int = 3, epochs: int = 5, corpus: str = "wikitext-2") -> dict[str, Result]:
    """All systems; the seeds of the timed turns are 1, 2, …"""
    import torch

    device, began = "cuda" if torch.cuda.is_available() else "cpu", time.monotonic()
    if device == "cuda":
        check_kernels()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        words = write_text(corpus, folder / "text.txt")
        outcomes = race(entrants_of(folder, device, rounds, epochs), rounds)
        scores = {label: scores_of(folder, label, rounds) for label in outcomes}
    rows = rows_of(outcomes)
    table = [(*row, *(round(scores[row[0]][name], 1) for name in LISTS)) for row in rows]
    show(f"{METRIC}, {corpus}", [("", "words/s", "MiB", "times gensim on 2 cores", *LISTS), *table])
    return {
        f"word-vectors-{device}-{file_name(label)}": Result(
            system=label,
            corpus=corpus,
            metric=METRIC,
            value=round(speed),
            protocol=f"{words:,} words, {epochs} epochs, dim {DIM}, window {WINDOW}, {NEGATIVES} negative samples, "
            f"min_count {MIN_COUNT}, sample {SAMPLE:g}; in processes of their own, by turns, median of {rounds} seeds",
            seconds=round(time.monotonic() - began, 1),
            signature=f"{label}: peak {memory:.0f} MiB, {ratio} times gensim on 2 cores; "
            + ", ".join(f"{name} {scores[label][name]:.1f}" for name in LISTS)
            + f"|{outcomes[label].signature}",
        )
        for label, speed, memory, ratio in rows
    }


def entrants_of(folder: Path, device: str, rounds: int, epochs: int) -> list[Entrant]:
    """Ours and gensim on two cores; on a GPU machine gensim on all cores as well, in two forms."""
    common = {"folder": str(folder), "rounds": rounds, "epochs": epochs}
    ours = {**common, "label": OURS[device], "device": device}
    quiet = {"OMP_WAIT_POLICY": "PASSIVE"}  # threads that wait leave their core to others
    found = [Entrant(OURS[device], "benchmarks.word_vectors_speed:Ours", ours, environment=quiet)]
    peers = [(PEER, 2), (FILE, 2)] if device == "cpu" else [(PEER, 2), (PEER, cpus()), (FILE, cpus())]
    for form, cores in dict.fromkeys(peers):
        options = {**common, "label": form.format(cores), "cores": cores, "from_file": form == FILE}
        found.append(Entrant(form.format(cores), "benchmarks.word_vectors_speed:Theirs", options, ("gensim",)))
    return found


def cpus() -> int:
    """The cores of this machine."""
    return os.cpu_count() or 2


def check_kernels() -> None:
    """Fail now, with the reason, if the kernels do not run on this GPU."""
    import torch

    from mallang.kernels.gpu_word_vectors import gpu_logistic_updates_
    from mallang.kernels.word_vectors import Groups, gpu_kernels_work

    tables = [torch.zeros(9, DIM, device="cuda") for _ in range(2)]
    rows = torch.ones(3, 4, dtype=torch.int32, device="cuda")
    groups, rates = Groups(rows, rows, torch.ones(3, 4, device="cuda")), torch.ones(2, device="cuda")
    gpu_logistic_updates_(*tables, groups, rates, 2, "none")
    if not gpu_kernels_work():
        raise RuntimeError("the kernels of word vectors do not agree with the plain version on this GPU")


def rows_of(outcomes: Mapping[str, Outcome]) -> list[tuple[str, float, float, Any]]:
    """Each with its speed, its memory, and its speed over that of the faster form of gensim on two cores."""
    peers = [outcomes[form.format(2)].rate for form in (PEER, FILE) if form.format(2) in outcomes]
    return [
        (label, one.rate, one.peak / 2**20, round(one.rate / max(peers), 2) if peers else "?")
        for label, one in outcomes.items()
    ]


def file_name(label: str) -> str:
    """A label as part of a file name."""
    return label.lower().replace(",", "").replace(" ", "-").replace("_", "-")


# ---- text and scores ----


def write_text(corpus: str, path: Path) -> int:
    """Write the words of a corpus, lower-cased, without `<unk>`, a line each; returns how many there are."""
    from mallang.data.corpus import Config, open_corpus

    lines = (line.lower().split() for (line,) in open_corpus(Config(corpus=corpus), ("text",)).split("train"))
    kept = [[word for word in line if word != "<unk>"] for line in lines]
    path.write_text("".join(f"{' '.join(line)}\n" for line in kept if line), "utf-8")
    return sum(map(len, kept))


def scores_of(folder: Path, label: str, rounds: int) -> dict[str, float]:
    """The mean score of a system's vectors by each list."""
    import numpy as np

    from mallang.evaluation.word_similarity import similarity
    from mallang.tasks.word_lists import similarity_lists

    words = (folder / f"{file_name(label)}.words").read_text("utf-8").splitlines()
    ids = {word: number for number, word in enumerate(words)}
    found: dict[str, float] = dict.fromkeys(LISTS, 0.0)
    for seed in range(1, rounds + 1):
        vectors = np.load(folder / f"{file_name(label)}-{seed}.npy")
        vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        for name, rows in similarity_lists():
            if name in found:
                known = [[ids.get(word.lower(), -1) for word in row[:2]] for row in rows]
                cosines = [None if min(pair) < 0 else float(vectors[pair[0]] @ vectors[pair[1]]) for pair in known]
                found[name] += similarity(name, cosines, [row[2] for row in rows]).value / rounds
    return found


# ---- one process each ----


class Training:
    """A turn is one training run; its vectors are kept for the end."""

    def __init__(self, folder: str, label: str, epochs: int, cores: int | None) -> None:
        self.folder, self.label, self.epochs = Path(folder), label, epochs
        if cores is not None:
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
        self.lines = read_lines(self.folder / "text.txt")
        self.counts = counted(self.lines)
        self.turns, self.made = 0, list[Any]()

    def __call__(self) -> float:
        """One training run; the first ones, which warm up, are short."""
        self.turns += 1
        if self.turns <= WARM_UPS:
            some = self.lines[: len(self.lines) // 10]
            self.train(0, some, 1)
            return float(sum(map(len, some)))
        self.made.append(self.train(self.turns - WARM_UPS, self.lines, self.epochs))
        return float(self.epochs * self.counts.total())

    def train(self, seed: int, lines: Lines, epochs: int) -> Any:
        """Train; what `vectors` takes."""
        raise NotImplementedError

    def vectors(self, made: Any) -> tuple[Sequence[str], Any]:
        """The words and vectors of a training run."""
        raise NotImplementedError

    def peak(self) -> int:
        """The peak memory; asked at the end, so the vectors are written, too."""
        import numpy as np

        peak = peak_memory()
        for seed, made in enumerate(self.made, start=1):
            words, values = self.vectors(made)
            np.save(self.folder / f"{file_name(self.label)}-{seed}.npy", values)
            (self.folder / f"{file_name(self.label)}.words").write_text("".join(f"{word}\n" for word in words), "utf-8")
        return peak


class Ours(Training):
    """mallang, on two cores or on a GPU."""

    def __init__(self, folder: str, label: str, epochs: int, rounds: int, device: str) -> None:
        import torch

        super().__init__(folder, label, epochs, 2 if device == "cpu" else None)
        if device == "cpu":
            torch.set_num_threads(2)
        self.device, self.vocabulary = device, vocabulary_of(self.counts)
        texts = self.lines, self.lines[: len(self.lines) // 10]
        self.batches = {len(lines): batches(lines, self.vocabulary, device) for lines in texts}

    def train(self, seed: int, lines: Lines, epochs: int) -> Any:
        """The model, trained."""
        options = {"dim": DIM, "window": WINDOW, "negatives": NEGATIVES, "subsample": SAMPLE, "epochs": epochs}
        return fitted("word2vec", options, self.vocabulary, self.batches[len(lines)], seed, self.device)

    def vectors(self, made: Any) -> tuple[Sequence[str], Any]:
        """The table of the model."""
        return self.vocabulary.tokens, made.vectors().cpu().numpy()


class Theirs(Training):
    """gensim, with one worker per core."""

    def __init__(self, folder: str, label: str, epochs: int, rounds: int, cores: int, from_file: bool) -> None:
        from gensim.models import word2vec

        if word2vec.FAST_VERSION < 0:
            raise RuntimeError("this gensim has no compiled training")
        super().__init__(folder, label, epochs, cores)
        self.from_file, self.models = from_file, list[Any]()
        for seed in (*range(WARM_UPS), *range(1, rounds + 1)):
            model = word2vec.Word2Vec(
                vector_size=DIM, window=WINDOW, negative=NEGATIVES, sg=1, min_count=MIN_COUNT, sample=SAMPLE,
                workers=cores, seed=seed,
            )  # fmt: skip
            model.build_vocab_from_freq(dict(self.counts), corpus_count=len(self.lines))
            self.models.append(model)

    def train(self, seed: int, lines: Lines, epochs: int) -> Any:
        """The next of the models, trained."""
        model, whole = self.models.pop(0), len(lines) == len(self.lines)
        if self.from_file and whole:
            path = str(self.folder / "text.txt")
            model.train(corpus_file=path, total_words=self.counts.total(), epochs=epochs)
        else:
            model.train(lines, total_words=sum(map(len, lines)), epochs=epochs)
        return model

    def vectors(self, made: Any) -> tuple[Sequence[str], Any]:
        """The table of the model."""
        return made.wv.index_to_key, made.wv.vectors
