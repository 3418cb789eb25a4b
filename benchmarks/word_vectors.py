"""How well word vectors agree with people: word2vec, GloVe and FastText on the same text beside gensim's.

python -m benchmarks.word_vectors english                   # trains what is not in out/word-vectors yet, prints a table
python -m benchmarks.word_vectors english korean --write    # writes results/similarity-….json as well
python -m benchmarks.word_vectors korean --lines 2000 --epochs 1 --systems word2vec    # tries the command, in a minute

English is WikiText-2, lower-cased, without `<unk>`. Korean is eleven corpora, NSMC first, cut at spaces, without
punctuation. Settings are those of the papers' code, equal for both libraries. The number of epochs is chosen for each
system on one half of MEN, by hash, with seed 1; Korean takes the epochs that were chosen for English, since it has one
list alone. All lists are scored on the pairs whose words are in the vocabulary, which is the same for all systems. The
rare words of RW are scored with words outside it as well, by the systems that compute their vectors from n-grams.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.contest import ROOT, python_with
from benchmarks.report import Result, show, versions, write_result, write_tables
from benchmarks.word_vectors_entrants import MIN_COUNT, Job

DIM, WINDOW, NEGATIVES = 100, 5, 5
SEEDS = (1, 2, 3)
EPOCHS = {"glove": (25, 50)}
OTHERS = (5, 15)
"""Numbers of epochs that are tried."""
KOREAN = {
    "nsmc": "document", "klue/ynat": "title", "klue/nli": "premise hypothesis", "klue/sts": "sentence1 sentence2",
    "kornlu/korsts": "sentence1 sentence2", "korean-english/bible": "ko", "libreoffice-help-koen": "ko",
    "korean-small/chatbot": "question answer", "korean-small/3i4k": "sentence",
    "korean-small/question_pair": "question1 question2", "tatoeba-kor-eng": "ko",
}  # fmt: skip
"""Corpora and their columns."""
LISTS = {
    "english": ("ws-353-all", "men-test", "mturk-771", "rw-stanford", "analogies en"),
    "korean": ("ws353-korean", "analogies ko"),
}
SPELLED = "rw-stanford, unseen words too"
DEV = "men-dev"
Pair = tuple[str, str, float]


@dataclass(frozen=True)
class System:
    """A kind of vectors: what trains them, with which options."""

    label: str
    english: Mapping[str, Any]
    korean: Mapping[str, Any]
    needs: tuple[str, ...] = ()


def systems() -> dict[str, System]:
    """All systems by the name of their job."""
    skip = {"window": WINDOW, "negatives": NEGATIVES}
    ngrams = {**skip, "dim": DIM, "buckets": 200_000}
    gensim = {"vector_size": DIM, "window": WINDOW, "negative": NEGATIVES}
    fast = {**gensim, "alpha": 0.05, "sample": 1e-4, "ns_exponent": 0.5, "bucket": 200_000}
    return {
        "word2vec": System("word2vec", {**skip, "dim": DIM}, {**skip, "dim": DIM}),
        "glove": System("GloVe", {"dim": DIM, "x_max": 10.0}, {"dim": DIM, "x_max": 10.0}),
        "fasttext": System("FastText", ngrams, {**ngrams, "min_ngram": 1, "max_ngram": 4, "max_jamo": 5}),
        "gensim-word2vec": System("gensim word2vec", gensim, gensim, ("gensim",)),
        "gensim-fasttext": System("gensim FastText", fast, {**fast, "min_n": 1, "max_n": 4}, ("gensim",)),
    }


# ---- texts and lists ----


def text_lines(language: str) -> Iterator[list[str]]:
    """The words of every line of a text."""
    from mallang.data.corpus import Config, open_corpus

    if language == "english":
        for (line,) in open_corpus(Config(corpus="wikitext-2"), ("text",)).split("train"):
            yield [word for word in line.lower().split() if word != "<unk>"]
        return
    for corpus, columns in KOREAN.items():
        for row in open_corpus(Config(corpus=corpus), tuple(columns.split())).split("train"):
            for text in row:
                yield re.findall(r"\w+", text.lower())


def write_text(language: str, path: Path, most: int | None = None) -> None:
    """Write the text of a language once, or its first lines; a line that comes again is left out."""
    if not path.exists():
        lines = dict.fromkeys(" ".join(line) for line in itertools.islice(text_lines(language), most))
        path.write_text("".join(f"{line}\n" for line in lines if line), "utf-8")


def is_dev(pair: Pair) -> bool:
    """Whether a pair is in the half that settings are chosen on."""
    return hashlib.sha256(f"{pair[0]} {pair[1]}".encode()).digest()[0] < 128


def pair_lists() -> dict[str, list[Pair]]:
    """Lists of word pairs in lower case, MEN in two halves."""
    from mallang.tasks.word_lists import similarity_lists

    found = {name: [(a.lower(), b.lower(), score) for a, b, score in rows] for name, rows in similarity_lists()}
    men = found.pop("men-tr-3k")
    return {**found, DEV: [pair for pair in men if is_dev(pair)], "men-test": [p for p in men if not is_dev(p)]}


class Scorer:
    """Scores of one file of vectors."""

    def __init__(self, path: Path, unseen: Sequence[str]) -> None:
        import numpy as np

        with np.load(path) as found:
            self.words, vectors = [str(word) for word in found["words"]], found["vectors"]
            spelled = dict(zip(unseen, found["unseen"], strict=True)) if "unseen" in found else {}
        self.vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        self.ids = {word: number for number, word in enumerate(self.words)}
        self.spelled = {word: row / max(1e-12, np.linalg.norm(row)) for word, row in spelled.items() if row.any()}

    def cosine(self, one: str, other: str, spell: bool) -> float | None:
        """The cosine of two words; None where one of them is unknown."""
        found = [self.vectors[self.ids[word]] if word in self.ids else None for word in (one, other)]
        if spell:
            pairs = zip((one, other), found, strict=True)
            found = [self.spelled.get(word) if row is None else row for word, row in pairs]
        return None if found[0] is None or found[1] is None else float(found[0] @ found[1])

    def similarity(self, name: str, pairs: Sequence[Pair], spell: bool = False) -> Any:
        """The rank correlation with a list."""
        from mallang.evaluation.word_similarity import similarity

        return similarity(name, [self.cosine(a, b, spell) for a, b, _ in pairs], [score for *_, score in pairs])

    def analogies(self, name: str, rows: Sequence[Sequence[str]]) -> Any:
        """The share of solved analogies."""
        import torch

        from mallang.evaluation.word_similarity import analogies, solve_analogies

        ids = [[self.ids.get(word.lower(), -1) for word in row] for row in rows]
        known = torch.tensor([row for row in ids if min(row) >= 0], dtype=torch.long).view(-1, 4)
        specials = [number for number, word in enumerate(self.words) if word.startswith("<")]
        answers = solve_analogies(torch.tensor(self.vectors), known[:, :3], specials)
        return analogies(name, (answers == known[:, 3]).numpy(), len(rows))


# ---- training ----


@dataclass(frozen=True)
class Place:
    """Where texts and vectors are, and what trains them."""

    folder: Path
    device: str
    lines: int | None = None
    """How many lines of a text are read; None: all."""
    epochs: int | None = None
    """The number of epochs; None: it is chosen on the dev half."""

    def vectors(self, name: str, language: str, epochs: int, seed: int) -> Path:
        """The vectors of a training run, which runs now unless they are there."""
        out = self.folder / f"{language}-{name}-{epochs}-{seed}.npz"
        if out.exists():
            return out
        system, text = systems()[name], self.folder / f"{language}.txt"
        write_text(language, text, self.lines)
        self.unseen(language)
        options = dict(system.english if language == "english" else system.korean)
        device = self.device if name in ("word2vec", "fasttext") else "cpu"
        job = Job(name, str(text), str(out), seed, epochs, options, str(self.folder / f"{language}.unseen"), device)
        if (python := python_with(system.needs)) is None:
            raise SystemExit(f"{system.label} needs gensim; python -m benchmarks.peers installs it")
        began = time.monotonic()
        subprocess.run(
            [python, "-m", "benchmarks.word_vectors_entrants", json.dumps(asdict(job))], cwd=ROOT, check=True
        )
        print(f"{time.monotonic() - began:6.0f} s  {language} {name}, {epochs} epochs, seed {seed}", flush=True)
        return out

    def unseen(self, language: str) -> list[str]:
        """The words of lists whose vectors may be spelled; written beside the text."""
        pairs = pair_lists()["rw-stanford" if language == "english" else "ws353-korean"]
        words = sorted({word for pair in pairs for word in pair[:2] if word.split() == [word]})
        (self.folder / f"{language}.unseen").write_text("".join(f"{word}\n" for word in words), "utf-8")
        return words

    def scorer(self, name: str, language: str, epochs: int, seed: int) -> Scorer:
        """Scores of a training run."""
        return Scorer(self.vectors(name, language, epochs, seed), self.unseen(language))


def chosen_epochs(place: Place, name: str) -> tuple[int, str]:
    """The epochs that are best on the dev half with seed 1, and what each scored there."""
    if place.epochs is not None:
        return place.epochs, "given"
    pairs = pair_lists()[DEV]
    tried = {
        epochs: place.scorer(name, "english", epochs, SEEDS[0]).similarity(DEV, pairs).value
        for epochs in EPOCHS.get(name, OTHERS)
    }
    best = max(tried, key=lambda epochs: tried[epochs])
    return best, ", ".join(f"{epochs} epochs {value:.1f}" for epochs, value in tried.items())


def measured(place: Place, name: str, language: str) -> dict[str, Result]:
    """Every score of a system, by the name of its file."""
    from mallang.tasks.word_lists import analogy_lists

    epochs, tried = chosen_epochs(place, name)
    pairs, questions, found = pair_lists(), dict(analogy_lists()), dict[str, Result]()
    for seed in SEEDS:
        scorer = place.scorer(name, language, epochs, seed)
        scores = [
            scorer.analogies(each, questions[each]) if each in questions else scorer.similarity(each, pairs[each])
            for each in LISTS[language]
        ]
        if scorer.spelled and language == "english":
            scores.append(scorer.similarity(SPELLED, pairs["rw-stanford"], spell=True))
        for score in scores:
            file = re.sub("[^a-z0-9]+", "-", f"similarity-{language}-{name}-{score.name}")
            found[f"{file}-seed{seed}"] = Result(
                system=systems()[name].label,
                corpus="wikitext-2" if language == "english" else ", ".join(KOREAN),
                metric=score.name,
                value=round(score.value, 2),
                seed=seed,
                protocol=f"dim {DIM}, min_count {MIN_COUNT}, {epochs} epochs chosen on half of MEN ({tried})",
                signature=f"{score.signature}|{versions('numpy')}",
            )
    return found


def table(results: Mapping[str, Result], language: str) -> list[list[object]]:
    """A row per system with the mean over seeds of every list."""
    names = list(dict.fromkeys(one.metric for one in results.values()))
    rows: list[list[object]] = [["", *names]]
    for label in dict.fromkeys(one.system for one in results.values()):
        row: list[object] = [label]
        for name in names:
            values = [one.value for one in results.values() if one.system == label and one.metric == name]
            row.append(round(sum(values) / len(values), 1) if values else "")
        rows.append(row)
    return rows


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.word_vectors", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("languages", nargs="+", choices=tuple(LISTS))
    parser.add_argument("--systems", default=",".join(systems()), help="all if not given")
    parser.add_argument("--out", type=Path, default=Path("out/word-vectors"), help="where texts and vectors are kept")
    parser.add_argument("--device", default="cpu", help="of word2vec and FastText: cpu or cuda")
    parser.add_argument("--write", action="store_true", help="write the values into results/")
    parser.add_argument("--lines", type=int, metavar="N", help="the first lines of each text; all if not given")
    parser.add_argument("--epochs", type=int, metavar="N", help="if not given, chosen on half of MEN")
    arguments = parser.parse_args()
    if arguments.write and (arguments.lines or arguments.epochs):
        parser.error("--lines and --epochs try the command: their values are not written into results/")
    folder = arguments.out if arguments.lines is None else arguments.out / f"{arguments.lines}-lines"
    folder.mkdir(parents=True, exist_ok=True)
    place = Place(folder.resolve(), arguments.device, arguments.lines, arguments.epochs)
    for language in arguments.languages:
        results: dict[str, Result] = {}
        for name in arguments.systems.split(","):
            results |= measured(place, name, language)
        show(f"{language}: rank correlation with people, and share of analogies, × 100", table(results, language))
        for file, result in results.items() if arguments.write else ():
            write_result(file, result)
    if arguments.write:
        write_tables()


if __name__ == "__main__":
    main()
