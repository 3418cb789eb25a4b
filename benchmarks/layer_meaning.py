"""What the layers of an encoder know of meaning: similar sentences, and the sense of a word in its context.

python -m benchmarks.layer_meaning runs/elmo-wikitext-2 --corpus glue-small/STS-B
python -m benchmarks.layer_meaning runs/elmo-korean --language ko --write elmo-korean

Sentences: cosine of the mean vectors of both, against the gold similarity (Spearman), on dev. Senses: for a word in a
sentence of benchmarks/homonyms.toml the nearest other occurrence of the same word; how often it has the same sense. The
last value is what chance gives. Nothing is trained. Peters et al. (2018, tables 5 and 6) find syntax, which
benchmarks/layer_probe.py measures, in the first layer of ELMo, and meaning in the second.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import report
from benchmarks.report import Result, versions
from mallang.data.corpus import Config, open_corpus
from mallang.errors import UserError
from mallang.evaluation.correlation import correlations
from mallang.loading import load
from mallang.tasks.occurrences import Contexts
from mallang.text.words import Word

HOMONYMS = Path(__file__).with_name("homonyms.toml")
MARKED = re.compile(r"\[(\w+)\]")


@dataclass(frozen=True)
class Homonym:
    """A word of several senses, and sentences that use it."""

    name: str
    language: str
    sentences: tuple[str, ...]
    places: tuple[Word, ...]
    """Where the word stands in each."""
    senses: tuple[str, ...]


def read_homonyms(path: Path = HOMONYMS) -> list[Homonym]:
    """The words of a file."""
    found = []
    for each in tomllib.loads(path.read_text("utf-8"))["words"]:
        pairs = [(sense, text) for sense, texts in each["senses"].items() for text in texts]
        marked = [MARKED.search(text) for _, text in pairs]
        if None in marked:
            raise UserError(f"a sentence of {each['name']} marks no word", where=str(path), todo="write it as [word]")
        places = tuple(Word(mark[1], mark.start(), mark.start() + len(mark[1])) for mark in marked if mark)
        plain = tuple(text.replace("[", "").replace("]", "") for _, text in pairs)
        found.append(Homonym(each["name"], each["language"], plain, places, tuple(sense for sense, _ in pairs)))
    return found


def retrieval(vectors: np.ndarray, senses: Sequence[str]) -> list[bool]:
    """Whether the nearest other occurrence, by cosine, has the same sense."""
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -np.inf)
    return [senses[near] == sense for near, sense in zip(cosines.argmax(axis=1).tolist(), senses, strict=True)]


def chance(senses: Sequence[str]) -> float:
    """How often another occurrence, drawn evenly, has the same sense."""
    return float(np.mean([(senses.count(sense) - 1) / (len(senses) - 1) for sense in senses]))


def senses_by_layer(contexts: Contexts, words: Sequence[Homonym]) -> dict[str, float]:
    """The share of right senses in every layer, over all occurrences, and that of chance."""
    right: dict[str, list[bool]] = {}
    lucky: list[float] = []
    for word in words:
        found = contexts.occurrences(word.sentences, [[place] for place in word.places])
        if not all(found):
            raise UserError(
                f"the model does not read all sentences of {word.name}", todo="give one with more positions"
            )
        layers = zip(*(each[0].layers for each in found), strict=True)
        for number, vectors in enumerate(layers):
            right.setdefault(f"layer {number}", []).extend(retrieval(np.stack(vectors), word.senses))
        lucky += [chance(word.senses)] * len(word.senses)
    return {name: 100 * float(np.mean(each)) for name, each in right.items()} | {"chance": 100 * float(np.mean(lucky))}


def similarity_by_layer(contexts: Contexts, rows: Sequence[tuple[str, ...]]) -> dict[str, float]:
    """Spearman's correlation of gold similarities with the cosines of mean vectors, in every layer."""
    firsts, seconds, golds = zip(*rows, strict=True)
    found = [contexts.occurrences(list(texts)) for texts in (firsts, seconds)]
    kept = [place for place in range(len(rows)) if found[0][place] and found[1][place]]
    wanted = np.array([float(golds[place]) for place in kept])
    layers = len(found[0][kept[0]][0].layers)
    values = {}
    for number in range(layers):
        one, two = (
            np.stack([np.mean([word.layers[number] for word in side[place]], axis=0) for place in kept])
            for side in found
        )
        cosines = (one * two).sum(axis=1) / np.maximum(np.linalg.norm(one, axis=1) * np.linalg.norm(two, axis=1), 1e-12)
        values[f"layer {number}"] = 100 * correlations(cosines, wanted)["spearman"]
    return values


def results_of(name: str, what: str, found: Mapping[str, float], protocol: str) -> dict[str, Result]:
    """The values of a measurement by file name."""
    return {
        f"layers-{name}-{what}-{layer.replace(' ', '')}": Result(
            system=f"{name}, {layer}", metric=f"{what} by layer", value=round(value, 2), protocol=protocol,
            signature=versions("mallang", "torch"),
        )
        for layer, value in found.items()
    }  # fmt: skip


def main() -> None:
    """Measure one run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--corpus", help="a corpus of pairs with a similarity, such as glue-small/STS-B or klue/sts")
    parser.add_argument("--columns", nargs=3, default=["sentence1", "sentence2", "score"], help="its columns")
    parser.add_argument("--split", default="valid")
    parser.add_argument("--pairs", type=int, default=2000, help="pairs that are read")
    parser.add_argument("--language", help="homonyms of this language alone: en or ko")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--write", metavar="NAME", help="write the values into results/ under this name")
    given = parser.parse_args()
    contexts, found = Contexts(load(given.run, given.device)), dict[str, dict[str, float]]()
    words = [each for each in read_homonyms() if given.language in (None, each.language)]
    found["senses"] = senses_by_layer(contexts, words)
    count = sum(len(each.senses) for each in words)
    protocols = {"senses": f"{count} occurrences of {len(words)} homonyms, nearest other occurrence of the same word"}
    if given.corpus:
        corpus = open_corpus(Config(corpus=given.corpus, columns=given.columns), ("first", "second", "score"))
        rows = list(itertools.islice(corpus.split(given.split), given.pairs))
        found["similarity"] = similarity_by_layer(contexts, rows)
        protocols["similarity"] = (
            f"Spearman on {len(rows)} pairs of {given.corpus} {given.split}, means of word vectors"
        )
    print(json.dumps(found, indent=1))
    for what, values in found.items() if given.write else ():
        for file, result in results_of(given.write, what, values, protocols[what]).items():
            report.write_result(file, result)


if __name__ == "__main__":
    main()
