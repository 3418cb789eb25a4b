"""A classifier that starts from a language model (Dai and Le 2015): what it gains, and what it is told."""

from __future__ import annotations

import itertools
import statistics
from pathlib import Path

import pytest

from mallang.data.corpus import Config as Data
from mallang.data.corpus import open_corpus
from mallang.recipe import read
from mallang.runs.folder import Run
from mallang.training.defaults import with_defaults
from mallang.training.train import Options, train

GOOD = ("good", "great", "fine", "lovely", "bright", "superb", "warm", "sweet")
BAD = ("bad", "poor", "weak", "dull", "dark", "awful", "cold", "bitter")
TEXT = ("text.unit=word", "text.vocabulary=2000")
QUICK = ("train.workers=0", "train.threads=1", "train.precision=fp32", "schedule.warmup=10")


def run(folder: Path, name: str, *changes: str, start: Path | None = None) -> Run:
    resolved, _ = with_defaults(read(name, [*QUICK, *changes]), start=start)
    return train(resolved.build(), Options(folder=folder, fresh=True, quiet=True, start=start))


def write(path: Path, rows: list[tuple[str, str]]) -> None:
    path.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows), "utf-8")


def test_what_a_language_model_knows_of_words_without_a_label_is_kept(tmp_path: Path) -> None:
    """Plain text tells which words are alike; labels are known of two good and two bad words alone."""
    plain = [
        f"it was {word} {mood} {extra}"
        for words, moods in ((GOOD, ("happy", "glad")), (BAD, ("sad", "angry")))
        for word, mood, extra in itertools.product(words, moods, ("today", "again"))
    ]
    (tmp_path / "plain.txt").write_text("".join(f"{line}\n" for line in plain), "utf-8")
    labeled = [(f"it was {word}", label) for words, label in ((GOOD, "yes"), (BAD, "no")) for word in words]
    write(tmp_path / "few.tsv", [*labeled[:2], *labeled[8:10]])
    write(tmp_path / "held.tsv", [*labeled[2:8], *labeled[10:]])
    lm, data = tmp_path / "lm", [f"data.train={tmp_path / 'few.tsv'}", f"data.valid={tmp_path / 'held.tsv'}"]
    sizes = ["model.layers=1", "model.dim=24", "model.embedding_dim=24", "model.dropout=0.0"]
    of_text = [f"data.{split}={tmp_path / 'plain.txt'}" for split in ("train", "valid")]
    steps = ["train.epochs=none", "train.steps=400", "train.validate_every=none", "optimizer.learning_rate=0.01"]
    run(lm, "rnn_lm", *TEXT, *sizes, *of_text, *steps, "train.batch_tokens=256")
    few = [*data, "train.epochs=none", "train.steps=60", "train.validate_every=60", "optimizer.learning_rate=0.005"]
    started = run(tmp_path / "started", "rnn_classifier", *few, start=lm)
    config = started.recipe().model
    assert (config.cell, config.layers, config.dim, config.bidirectional) == ("lstm", 1, 24, False)
    scratch = [*TEXT, "model.bidirectional=false", "model.pooling=last", *sizes[:3]]
    alone = run(tmp_path / "alone", "rnn_classifier", *few, *scratch)
    assert started.info["best"]["accuracy"] >= 90 and alone.info["best"]["accuracy"] <= 75


@pytest.mark.slow
def test_miniworld_sentiments_with_few_labels_do_not_lose_by_the_start(tmp_path: Path) -> None:
    """Measured: 69.4 after 500 updates of the language model, 68.1 from scratch; the margin is that of seeds."""
    data = Data(corpus="miniworld", columns=("ko", "sentiment"))
    rows = list(itertools.islice(open_corpus(data, ("text", "label")).split("train"), 9000))
    (tmp_path / "plain.txt").write_text("".join(f"{text}\n" for text, _ in rows[:6000]), "utf-8")
    write(tmp_path / "few.tsv", rows[6000:6400])
    write(tmp_path / "held.tsv", rows[8000:])
    sizes = ["model.layers=1", "model.dim=64", "model.embedding_dim=64"]
    of_text = [f"data.{split}={tmp_path / 'plain.txt'}" for split in ("train", "valid")]
    steps = ["train.epochs=none", "train.steps=500", "train.validate_every=none", "optimizer.learning_rate=0.005"]
    lm = tmp_path / "lm"
    run(lm, "rnn_lm", *TEXT, *sizes, *of_text, *steps, "model.dropout=0.1", "train.batch_tokens=1024")
    few = [f"data.train={tmp_path / 'few.tsv'}", f"data.valid={tmp_path / 'held.tsv'}", "train.epochs=none",
           "train.steps=200", "train.validate_every=40", "train.batch_tokens=256", "optimizer.learning_rate=0.003",
           *TEXT, *sizes, "model.bidirectional=false", "model.pooling=last"]  # fmt: skip
    found = {
        start: statistics.mean(
            run(tmp_path / "classifier", "rnn_classifier", *few, f"seed={seed}", start=start).info["best"]["accuracy"]
            for seed in (1, 2, 3)
        )
        for start in (None, lm)
    }
    assert found[lm] > found[None] - 1.0, found
