"""One's own labeled and tagged files: every format trains and evaluates in one command; several labels, ratings."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path

import numpy as np
import pytest
from sklearn import metrics

from commands.running import as_served, ran

TAGGER = ("model.size=tiny", "train.epochs=8", "train.batch_sentences=8", "optimizer.learning_rate=0.02", "-q")
PEOPLE, PLACES = ("Anna", "Bob", "민수", "유나"), (("Seoul",), ("New", "York"), ("부산",), ("Paris",))


def reviews(draw: random.Random, count: int) -> list[tuple[str, str]]:
    words = {"good": ("great, really", "훌륭한", 'a "fine"'), "bad": ("awful", "지루한", "dull")}
    labels = [draw.choice(list(words)) for _ in range(count)]
    return [(f"{draw.choice(words[label])} film {number}", label) for number, label in enumerate(labels)]


def sentences(draw: random.Random, count: int) -> list[tuple[list[str], list[str]]]:
    found = []
    for _ in range(count):
        place = draw.choice(PLACES)
        tags = ["B-PER", "O", "O", "B-LOC", *["I-LOC"] * (len(place) - 1), "O"]
        found.append(([draw.choice(PEOPLE), draw.choice(("went", "ran")), "to", *place, "."], tags))
    return found


def write_table(path: Path, rows: list[tuple[str, str]]) -> None:
    """Rows of texts and labels, in the format of the name."""
    if path.suffix == ".tsv":
        path.write_text("".join(f"{text}\t{label}\n" for text, label in [("text", "label"), *rows]), "utf-8")
    elif path.suffix == ".csv":
        with path.open("w", encoding="utf-8", newline="") as stream:
            csv.writer(stream).writerows([("text", "label"), *rows])
    elif path.suffix == ".jsonl":
        lines = (json.dumps({"text": text, "label": label}, ensure_ascii=False) for text, label in rows)
        path.write_text("\n".join(lines), "utf-8")
    else:
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        table = {"text": [text for text, _ in rows], "label": [label for _, label in rows]}
        parquet.write_table(arrow.table(table), path)


@pytest.mark.parametrize("suffix", ["tsv", "csv", "jsonl", "parquet"])
def test_labeled_files_train_and_evaluate(suffix: str, tmp_path: Path) -> None:
    draw = random.Random(1)
    rows = {"train": reviews(draw, 60), "test": reviews(draw, 20)}
    for name, each in rows.items():
        write_table(tmp_path / f"{name}.{suffix}", each)
    files = (f"data.train=train.{suffix}", f"data.test=test.{suffix}")
    ran("train", "bag-of-words", *files, "--name", "bag", "-q", cwd=tmp_path)
    report = json.loads(ran("evaluate", "runs/bag", "--json", cwd=tmp_path).out)
    assert report["scores"][0]["value"] == 100 and report["texts"] == 20
    assert {name: row["support"] for name, row in report["classes"].items()} == {
        name: sum(label == name for _, label in rows["test"]) for name in ("bad", "good")
    }
    line = json.loads(ran("classify", "runs/bag", "dull film", "--json", cwd=tmp_path).out)
    assert line["output"] == "bad" and [line] == as_served(tmp_path / "runs/bag", "classify", ["dull film"])
    check_empty(tmp_path)
    again = json.loads(ran("evaluate", "runs/bag", "--data", f"test.{suffix}", "--json", cwd=tmp_path).out)
    assert again["scores"] == report["scores"]


def check_empty(folder: Path) -> None:
    """An empty text has a label as any other, but it is noted: once on the screen, and in each line of JSON."""
    texts = ("dull film", " \t", "great, really", "")
    done = ran("classify", "runs/bag", *texts, cwd=folder)
    assert len(done.out.splitlines()) == 4
    notes = [line for line in done.err.splitlines() if "empty" in line]
    assert notes == ["note: 2 of 4 inputs are empty, first number 2: the label of an empty text means nothing"]
    assert "the input is empty" in ran("classify", "runs/bag", "", cwd=folder).err
    assert "empty" not in ran("classify", "runs/bag", *texts[:1], cwd=folder).err
    assert not ran("classify", "runs/bag", *texts, "-q", cwd=folder).err
    done = ran("classify", "runs/bag", *texts, "--json", cwd=folder)
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert "empty" not in done.err and ["empty" in line.get("note", "") for line in lines] == [False, True, False, True]
    assert lines == as_served(folder / "runs/bag", "classify", texts)


@pytest.mark.parametrize("suffix", ["conll", "jsonl", "tsv"])
def test_tagged_files_train_and_evaluate(suffix: str, tmp_path: Path) -> None:
    draw = random.Random(2)
    for name, rows in (("train", sentences(draw, 60)), ("test", sentences(draw, 20))):
        path = tmp_path / f"{name}.{suffix}"
        if suffix == "conll":
            blocks = ["".join(f"{word} X {tag}\n" for word, tag in zip(*row, strict=True)) for row in rows]
            path.write_text("\n".join(blocks), "utf-8")
        elif suffix == "jsonl":
            path.write_text("\n".join(json.dumps({"words": words, "tags": tags}) for words, tags in rows), "utf-8")
        else:
            lines = ["words\ttags", *(f"{' '.join(words)}\t{' '.join(tags)}" for words, tags in rows)]
            path.write_text("\n".join(lines) + "\n", "utf-8")
    files = (f"data.train=train.{suffix}", f"data.test=test.{suffix}")
    ran("train", "rnn-tagger", *files, *TAGGER, "--name", "tagger", cwd=tmp_path)
    report = json.loads(ran("evaluate", "runs/tagger", "--json", cwd=tmp_path).out)
    assert report["sentences"] == 20 and report["types"]["PER"]["support"] == 20
    assert report["scores"][2]["name"] == "span F1" and report["scores"][2]["value"] > 80


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts with any number of topics, and with a rating from 1 to 4 stars; a run for each."""
    home, draw = tmp_path_factory.mktemp("topics"), random.Random(5)
    known = {"sport": "goal", "정치": "vote", "money": "bank", "war": "tank"}
    names = list(known)
    for name, count in (("train", 200), ("valid", 80), ("test", 60)):
        topics, stars = [], []
        for number in range(count):
            own = [topic for topic in names if draw.random() < 0.35]
            said = [known[topic] for topic in names if (topic in own) != (draw.random() < 0.1)]
            topics.append(f"news {' '.join(said)} {number}\t{'|'.join(own)}")
            rating = draw.randint(1, 4)
            seen = min(4, max(1, rating + draw.choice((0, 0, 0, 1, -1))))
            word = ("poor", "weak", "fine", "great")[seen - 1]
            stars.append(f"film {word} {number}\t{rating}")
        for kind, lines in (("topics", topics), ("stars", stars)):
            (home / f"{kind}-{name}.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n", "utf-8")
    means = ("text.unit=word", "train.epochs=10", "train.batch_tokens=512", "optimizer.learning_rate=0.05", "-q")
    for kind, task in (("topics", "multi"), ("stars", "ordinal")):
        files = [f"data.{split}={kind}-{split}.tsv" for split in ("train", "valid", "test")]
        ran("train", "bag-of-means", *files, f"task.kind={task}", *means, "--name", kind, cwd=home)
    return home


def test_several_labels_are_reported_with_fitted_thresholds(topics: Path) -> None:
    report = json.loads(ran("evaluate", "runs/topics", "--report", "report", "--json", cwd=topics).out)
    assert report["confusion"] is None and not (topics / "report/confusion.svg").exists()
    assert set(report["thresholds"]) == {"sport", "정치", "money", "war"}
    rows = [line.split("\t") for line in (topics / "topics-test.tsv").read_text("utf-8").splitlines()[1:]]
    (topics / "in.txt").write_text("".join(f"{text}\n" for text, _ in rows), "utf-8")
    gold = np.array([[name in label.split("|") for name in sorted(report["thresholds"])] for _, label in rows])

    def chosen(*options: str) -> tuple[np.ndarray, np.ndarray]:
        lines = ran("classify", "runs/topics", "--file", "in.txt", "--json", *options, cwd=topics).out.splitlines()
        found = [json.loads(line) for line in lines]
        labels = [[name in each["output"].split("|") for name in sorted(report["thresholds"])] for each in found]
        shares = [[each["probabilities"][name] for name in sorted(report["thresholds"])] for each in found]
        return np.array(labels), np.array(shares)

    plain, shares = chosen("--uncalibrated")
    calibrated, after = chosen()
    fitted, _ = chosen("--fitted-thresholds")
    assert (plain == (shares > 0.5)).all() and (plain == calibrated).all() and not np.allclose(shares, after)
    bounds = np.array([report["thresholds"][name] for name in sorted(report["thresholds"])])
    assert (fitted == (shares >= bounds)).all() and (fitted != plain).any()
    for scores, decided in ((report["scores"], plain), (report["calibrated"], fitted)):
        by_name = {score["name"]: score["value"] for score in scores}
        for average in ("micro", "macro", "samples"):
            theirs = metrics.f1_score(gold, decided, average=average, zero_division=0)
            assert by_name[f"{average} F1"] == pytest.approx(100 * theirs), average
        assert by_name["exact match"] == pytest.approx(100 * metrics.accuracy_score(gold, decided))
    assert "|" in (topics / "report/errors.tsv").read_text("utf-8")


def test_ratings_have_an_error_and_a_kappa(topics: Path) -> None:
    report = json.loads(ran("evaluate", "runs/stars", "--json", cwd=topics).out)
    scores = {score["name"]: score["value"] for score in report["scores"]}
    golds = [int(line.split("\t")[1]) for line in (topics / "stars-test.tsv").read_text("utf-8").splitlines()[1:]]
    outputs = [int(line) for line in (topics / "runs/stars/outputs/test.txt").read_text("utf-8").splitlines()]
    assert scores["MAE"] == pytest.approx(metrics.mean_absolute_error(golds, outputs))
    kappa = metrics.cohen_kappa_score(golds, outputs, labels=[1, 2, 3, 4], weights="quadratic")
    assert scores["quadratic kappa"] == pytest.approx(100 * kappa) and kappa > 0.5
    calibrated = {score["name"]: score["value"] for score in report["calibrated"]}
    lines = ran("classify", "runs/stars", *(f"film {word}" for word in ("poor", "great")), "--json", cwd=topics).out
    for line in map(json.loads, lines.splitlines()):
        assert (
            sum(line["probabilities"].values()) == pytest.approx(1)
            and line["score"] == line["probabilities"][line["output"]]
        )
    assert report["temperature"] > 0 and set(calibrated) == {"NLL", "Brier", "ECE"}


def test_labels_that_were_changed_at_random_are_found(tmp_path: Path) -> None:
    """Seeded noise on miniworld: what is shown first is wrong several times more often than chance."""
    from mallang.inspection.labeled_rows import labeled_rows

    draw = random.Random(7)
    rows = draw.sample(list(labeled_rows("miniworld", "valid", ["en", "sentiment"])), 400)
    names = sorted({label for _, label in rows})
    noisy = set(draw.sample(range(len(rows)), 24))
    changed = [
        (text, draw.choice([name for name in names if name != label]) if place in noisy else label)
        for place, (text, label) in enumerate(rows)
    ]
    write_table(tmp_path / "noisy.jsonl", changed)
    ended = ran("data", "label-errors", "noisy.jsonl", "--model", "words", "--rows", "12", "--json", cwd=tmp_path)
    found = json.loads(ended.out)
    assert found["folds"] == 5 and "words and word pairs" in found["model"] and found["rows"] == 400
    right = [each["row"] - 1 in noisy for each in found["suspects"]]
    assert len(right) == 12 and sum(right) / 12 > 5 * 24 / 400, right
    for each in found["suspects"]:
        assert (each["text"], each["label"]) == changed[each["row"] - 1]
        assert each["suggested"] != each["label"] and each["suggested_probability"] > each["probability"]
    margins = [each["suggested_probability"] - each["probability"] for each in found["suspects"]]
    assert margins == sorted(margins, reverse=True)
    assert "5-fold cross-validation of logistic regression on words" in ended.err
    table = ran("data", "label-errors", "noisy.jsonl", "--folds", "2", "-n", "2", "-q", cwd=tmp_path)
    assert table.err == "" and table.out.startswith("row\tlabel\t") and len(table.out.splitlines()) == 3
