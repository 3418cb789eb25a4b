"""What bags of words are measured against: scikit-learn's linear models, and fastText; each a program of its own.

python -m benchmarks.bag_entrants svm train.tsv valid.tsv         # logistic, sgd: from files to a score, as JSON
python -m benchmarks.bag_entrants fasttext-train train.tsv valid.tsv model.bin words
python -m benchmarks.bag_entrants fasttext-predict model.bin texts.txt

A file holds texts and labels with a tab between. Features are TF-IDF of the characters 1 to 5, as ours are. The
settings of scikit-learn are those in `SETTINGS` that are fastest within 0.2 points of the best on the valid split.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.contest import Turn

ORDERS = (1, 2, 3, 4, 5)
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "svm": [{"C": 0.3}, {"C": 1.0}],
    "logistic": [{"C": 3.0}, {"C": 10.0}],
    "sgd": [{"alpha": 1e-5}, {"alpha": 1e-6}, {"alpha": 3e-6}, {"alpha": 3e-5}],
}
"""The first is taken unless the command names another by its number."""
FASTTEXT: dict[str, dict[str, Any]] = {
    "words": {"wordNgrams": 2, "lr": 0.5, "epoch": 5, "dim": 10, "bucket": 2_000_000},
    "characters": {"wordNgrams": 2, "minn": 1, "maxn": 5, "lr": 0.25, "epoch": 5, "dim": 10, "bucket": 2_000_000},
}
"""Options of fastText by name; dim, bigrams, learning rates and epochs as in its own examples of classification."""


def read_rows(path: Path) -> tuple[list[str], list[str]]:
    """Texts and labels."""
    rows = [line.split("\t") for line in path.read_text("utf-8").split("\n") if line]
    return [text for text, _ in rows], [label for _, label in rows]


def scikit_learn(name: str, train: Path, valid: Path, number: int = 0) -> dict[str, Any]:
    """Train one of its classifiers; the time of each part, and the accuracy."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression, SGDClassifier
    from sklearn.svm import LinearSVC

    kind = {"svm": LinearSVC, "logistic": LogisticRegression, "sgd": SGDClassifier}[name]
    texts, labels = read_rows(train)
    began = time.monotonic()
    vectorizer = TfidfVectorizer(analyzer="char", ngram_range=(ORDERS[0], ORDERS[-1]), lowercase=False)
    features = vectorizer.fit_transform(texts)
    counted = time.monotonic()
    options = SETTINGS[name][number] | ({"random_state": 0} if name == "sgd" else {})
    model = kind(**options).fit(features, labels)
    trained = time.monotonic()
    held_out, gold = read_rows(valid)
    accuracy = 100 * float((model.predict(vectorizer.transform(held_out)) == gold).mean())
    return {"accuracy": accuracy, "features": counted - began, "training": trained - counted, "options": options}


def ours(texts: int, letters: int, orders: Sequence[int], device: str) -> Turn:
    """A linear SVM on the n-grams of generated texts of two classes; a turn is one fit, in texts."""
    import torch

    from mallang.data.batch import Batch
    from mallang.models.bag_of_words import Config, Model
    from mallang.text.vocabulary import SPECIALS, Vocabulary

    torch.manual_seed(1)
    characters, classes = 1000, torch.arange(texts) % 2
    vocabulary = Vocabulary((*SPECIALS, *(chr(0xAC00 + number) for number in range(characters))))
    shares = 1.0 / torch.arange(1, characters + 1)
    common = torch.multinomial(shares, texts * letters, replacement=True).reshape(texts, letters)
    own = (common + 7 * classes[:, None]) % characters  # the classes prefer other letters, and share most
    tokens = torch.where(torch.rand(texts, letters) < 0.2, own, common) + len(SPECIALS)
    batch = Batch(tokens=tokens, lengths=torch.full((texts,), letters), classes=classes).to(device)

    def turn() -> float:
        model = Model(Config(orders=tuple(orders)), vocabulary, 2).to(device)
        for _ in model.fit([batch]):
            pass
        return float(texts)

    return turn


def fasttext_train(train: Path, valid: Path, model: Path, options: str) -> dict[str, Any]:
    """Train and save a classifier of fastText."""
    import fasttext  # type: ignore[import-not-found]

    labeled = model.with_suffix(".txt")
    texts, labels = read_rows(train)
    labeled.write_text(
        "".join(f"__label__{label} {text}\n" for text, label in zip(texts, labels, strict=True)), "utf-8"
    )
    learned = fasttext.train_supervised(str(labeled), thread=1, verbose=0, **FASTTEXT[options])
    learned.save_model(str(model))
    held_out, gold = read_rows(valid)
    found = [labels[0].removeprefix("__label__") for labels in learned.predict(held_out)[0]]
    return {"accuracy": 100 * sum(a == b for a, b in zip(found, gold, strict=True)) / len(gold)}


def fasttext_predict(model: Path, texts: Path, chunk: int = 4096) -> None:
    """Print the label of every line of a file, read in chunks, so that its memory does not grow either."""
    import fasttext

    learned = fasttext.load_model(str(model))
    for lines in chunks(texts, chunk):
        print("\n".join(labels[0].removeprefix("__label__") for labels in learned.predict(lines)[0]))


def chunks(path: Path, size: int) -> Iterator[list[str]]:
    """The lines of a file, some at a time."""
    found: list[str] = []
    with path.open(encoding="utf-8", newline="\n") as stream:
        for line in stream:
            found.append(line.rstrip("\n"))
            if len(found) == size:
                yield found
                found = []
    if found:
        yield found


def main(name: str, *given: str) -> None:
    """The command."""
    if name == "fasttext-predict":
        fasttext_predict(*map(Path, given))
    elif name == "fasttext-train":
        *paths, options = given
        print(json.dumps(fasttext_train(*map(Path, paths), options)))
    else:
        train, valid, *number = given
        print(json.dumps(scikit_learn(name, Path(train), Path(valid), *map(int, number))))


if __name__ == "__main__":
    main(*sys.argv[1:])
