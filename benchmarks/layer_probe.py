"""What the layers of an encoder know: a linear classifier of words on each layer of a frozen run.

python -m benchmarks.layer_probe runs/elmo-wikitext-2 rnn-tagger-pos-conll2003 --sentences 2000
python -m benchmarks.layer_probe runs/elmo-wikitext-2 lstm-crf-conll2003 --json data.columns='["word", "chunk"]'

The corpus is that of a tagger's recipe. On every layer a softmax regression is fitted to the tags of single words, to
its optimum, on vectors scaled to mean 0 and deviation 1. Beside them stands the most frequent tag of each word, and of
all words where it is new: what is known without any context. Peters et al. (2018, tables 5 and 6) find syntax in the
first layer of ELMo and meaning in the second.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mallang import recipe as recipes
from mallang.data.columns import split_cell
from mallang.data.corpus import open_corpus
from mallang.layers.softmax_regression import fit_softmax_regression
from mallang.loading import load
from mallang.tasks.occurrences import Contexts
from mallang.text.words import joined

STRENGTH = 1.0
"""The inverse weight of the regularization, as in scikit-learn."""


@dataclass(frozen=True)
class Words:
    """The words of some sentences: their vectors in every layer, and their tags."""

    names: list[str]
    layers: list[Tensor]
    tags: list[str]


def read_words(contexts: Contexts, rows: Sequence[tuple[str, ...]]) -> Words:
    """The words of tagged sentences that the encoder can read."""
    cells = [(split_cell(words, "words"), split_cell(tags, "tags")) for words, tags in rows]
    places = [joined(words) for words, _ in cells]
    found = contexts.occurrences([" ".join(words) for words, _ in cells], places)
    names, tags, vectors = list[str](), list[str](), list[tuple[np.ndarray, ...]]()
    for (_, own), at, read in zip(cells, places, found, strict=True):
        numbers = {word.start: number for number, word in enumerate(at)}
        for each in read:
            names.append(each.word.text)
            tags.append(own[numbers[each.word.start]])
            vectors.append(each.layers)
    stacked = [torch.from_numpy(np.stack(layer)) for layer in zip(*vectors, strict=True)]
    return Words(names, stacked, tags)


def probe(train: Tensor, labels: Tensor, test: Tensor, golds: Tensor, classes: int) -> float:
    """The accuracy of a softmax regression on vectors; a gold label of −1 is one that training did not see."""
    mean, deviation = train.mean(dim=0), train.std(dim=0).clamp(min=1e-6)
    weight, bias, _ = fit_softmax_regression((train - mean) / deviation, labels, classes, STRENGTH)
    predicted = ((test - mean) / deviation @ weight.T + bias).argmax(dim=1)
    return 100 * float((predicted == golds).float().mean())


def frequent(train: Words, test: Words) -> float:
    """The accuracy of the most frequent tag of each word."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for name, tag in zip(train.names, train.tags, strict=True):
        counts[name][tag] += 1
    usual = Counter(train.tags).most_common(1)[0][0]
    right = [
        (counts[name].most_common(1)[0][0] if name in counts else usual) == tag
        for name, tag in zip(test.names, test.tags, strict=True)
    ]
    return 100 * sum(right) / len(right)


def measure(train: Words, test: Words) -> dict[str, float]:
    """The accuracy of every layer, of their mean, and without context."""
    ids = {tag: number for number, tag in enumerate(sorted(set(train.tags)))}
    labels = torch.tensor([ids[tag] for tag in train.tags])
    golds = torch.tensor([ids.get(tag, -1) for tag in test.tags])
    found = {"most frequent tag": frequent(train, test)}
    pairs = {f"layer {number}": pair for number, pair in enumerate(zip(train.layers, test.layers, strict=True))}
    if len({layer.shape[1] for layer in train.layers}) == 1 and len(train.layers) > 1:
        pairs["mean of layers"] = torch.stack(train.layers).mean(dim=0), torch.stack(test.layers).mean(dim=0)
    for name, (one, other) in pairs.items():
        found[name] = probe(one, labels, other, golds, len(ids))
    return found


def main() -> None:
    """Measure one run on one corpus."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("recipe", help="the recipe of a tagger, which names the corpus and its columns")
    parser.add_argument("overrides", nargs="*", help="changes to it, such as data.columns=…")
    parser.add_argument("--sentences", type=int, default=2000, help="training sentences that are read")
    parser.add_argument("--split", default="test")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    data = recipes.read(given.recipe, given.overrides).build().data
    corpus, contexts = open_corpus(data, ("words", "tags")), Contexts(load(given.run, given.device))
    splits = (list(itertools.islice(corpus.split(name), given.sentences)) for name in ("train", given.split))
    train, test = (read_words(contexts, rows) for rows in splits)
    found = measure(train, test)
    if given.json:
        print(json.dumps({"train": len(train.tags), given.split: len(test.tags), "accuracy": found}))
        return
    print(f"{len(train.tags):,} words to train on, {len(test.tags):,} of {given.split}")
    for name, value in found.items():
        print(f"{name:<18} {value:6.2f}")


if __name__ == "__main__":
    main()
