"""Reports on labels by the real commands: against scikit-learn and explicit loops, from the printed probabilities."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from sklearn import metrics

from commands.running import mallang, ran

WORDS = {
    "긍정": ("재미있는", "훌륭한", "wonderful", "great", "warm"),
    "부정": ("지루한", "최악의", "boring", "awful", "cold"),
    "보통": ("그저 그런", "무난한", "average", "plain", "usual"),
}
OTHERS = ("영화", "이야기", "film", "story", "배우", "plot", "음악")
FILES = ("data.train=train.tsv", "data.valid=valid.tsv", "data.test=test.tsv")


def texts(draw: random.Random, count: int) -> list[tuple[str, str]]:
    """Reviews; a tenth of them has the words of another label."""
    rows = []
    for number in range(count):
        label = draw.choice(list(WORDS))
        told = draw.choice(list(WORDS)) if draw.random() < 0.2 else label
        rows.append((f"{draw.choice(WORDS[told])} {draw.choice(OTHERS)} {draw.choice(OTHERS)} {number}", label))
    return rows


def write(path: Path, rows: list[tuple[str, ...]], head: str = "text\tlabel") -> None:
    path.write_text("\n".join([head, *("\t".join(row) for row in rows), ""]), "utf-8")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train.tsv, valid.tsv, test.tsv, of which 10 rows are in training too, and runs/bag."""
    folder, draw = tmp_path_factory.mktemp("reports"), random.Random(3)
    train = texts(draw, 150)
    write(folder / "train.tsv", train)
    write(folder / "valid.tsv", texts(draw, 60))
    copies = [(f"  {text.upper().replace(' ', '  ')}", label) for text, label in train[:10]]
    write(folder / "test.tsv", [*texts(draw, 70), *copies])
    ran("train", "bag-of-words", *FILES, "text.unit=word", "--name", "bag", "-q", cwd=folder)
    return folder


@pytest.fixture(scope="module")
def report(home: Path) -> dict:
    """What `evaluate --json` says, after which the run is calibrated."""
    return json.loads(ran("evaluate", "runs/bag", "--json", cwd=home).out)


def rows_of(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text("utf-8").splitlines()[1:]]


def predicted(home: Path, file: str, *options: str) -> tuple[list[str], np.ndarray]:
    """The label and the probabilities that `classify` gives to every text of a file."""
    (home / "in.txt").write_text("".join(f"{row[0]}\n" for row in rows_of(home / file)), "utf-8")
    lines = ran("classify", "runs/bag", "--file", "in.txt", "--json", *options, cwd=home).out.splitlines()
    found = [json.loads(line) for line in lines]
    return [each["output"] for each in found], np.array([list(each["probabilities"].values()) for each in found])


def value(scores: list[dict], name: str) -> float:
    return next(score["value"] for score in scores if score["name"] == name)


def equal_mass_error(shares: np.ndarray, right: list[bool], bins: int = 15) -> float:
    """ECE by a loop over bins of equally many texts."""
    pairs = sorted(zip(shares.max(axis=1).tolist(), right, strict=True), key=lambda pair: pair[0])
    size, larger = divmod(len(pairs), bins)
    error, start = 0.0, 0
    for number in range(bins):
        part = pairs[start : start + size + (number < larger)]
        start += len(part)
        error += abs(sum(confidence for confidence, _ in part) - sum(is_right for _, is_right in part))
    return 100 * error / len(pairs)


def test_scores_are_those_of_scikit_learn_on_what_is_printed(home: Path, report: dict) -> None:
    names, golds = sorted(WORDS), [row[1] for row in rows_of(home / "test.tsv")]
    for scores, option in ((report["scores"], "--uncalibrated"), (report["calibrated"], "--scores")):
        outputs, shares = predicted(home, "test.tsv", option)
        ids = [names.index(gold) for gold in golds]
        assert value(scores, "NLL") == pytest.approx(metrics.log_loss(golds, shares, labels=names))
        assert value(scores, "Brier") == pytest.approx(((shares - np.eye(3)[ids]) ** 2).sum(axis=1).mean())
        right = [output == gold for output, gold in zip(outputs, golds, strict=True)]
        assert value(scores, "ECE") == pytest.approx(equal_mass_error(shares, right))
    assert outputs == (home / "runs/bag/outputs/test.txt").read_text("utf-8").splitlines()
    theirs = metrics.classification_report(golds, outputs, output_dict=True)
    assert value(report["scores"], "accuracy") == pytest.approx(100 * theirs["accuracy"])
    assert value(report["scores"], "macro F1") == pytest.approx(100 * theirs["macro avg"]["f1-score"])
    for name, row in report["classes"].items():
        assert row["precision"] == pytest.approx(100 * theirs[name]["precision"])
        assert (
            row["recall"] == pytest.approx(100 * theirs[name]["recall"]) and row["support"] == theirs[name]["support"]
        )
    assert report["confusion"]["classes"] == names
    assert report["confusion"]["table"] == metrics.confusion_matrix(golds, outputs, labels=names).tolist()
    kept = json.loads((home / "runs/bag/scores/test.json").read_text("utf-8"))
    assert kept["scores"] == report["scores"] and kept["report"] == report


def test_scores_without_the_texts_that_are_in_training(home: Path, report: dict) -> None:
    golds = [row[1] for row in rows_of(home / "test.tsv")][:70]
    outputs = (home / "runs/bag/outputs/test.txt").read_text("utf-8").splitlines()[:70]
    assert (report["texts"], report["seen"], report["unseen"]["texts"]) == (80, 10, 70)
    assert value(report["unseen"]["scores"], "accuracy") == pytest.approx(100 * metrics.accuracy_score(golds, outputs))
    assert value(report["unseen"]["scores"], "accuracy") < value(report["scores"], "accuracy")
    assert all(score["signature"].endswith("|texts:unseen") for score in report["unseen"]["scores"])
    assert "10 of 80 texts are in the training data" in report["notes"][0]


def test_the_temperature_is_fitted_on_the_dev_set_and_changes_no_label(home: Path, report: dict) -> None:
    assert report["fitted_on"] == {"split": "valid", "texts": 60}
    kept = json.loads((home / "runs/bag/calibration.json").read_text("utf-8"))
    assert kept["temperature"] == report["temperature"] != 1
    golds = [row[1] for row in rows_of(home / "valid.tsv")]
    labels, shares = predicted(home, "valid.tsv", "--uncalibrated")
    calibrated, after = predicted(home, "valid.tsv")
    assert labels == calibrated and not np.allclose(shares, after)

    def loss(temperature: float) -> float:
        sharper = shares ** (1 / temperature)
        return metrics.log_loss(golds, sharper / sharper.sum(axis=1, keepdims=True), labels=sorted(WORDS))

    best = loss(report["temperature"])
    assert best == pytest.approx(metrics.log_loss(golds, after, labels=sorted(WORDS)))
    assert all(best < loss(report["temperature"] * factor) for factor in (0.9, 0.98, 1.02, 1.1))
    assert value(report["calibrated"], "NLL") < value(report["scores"], "NLL")


def test_classify_says_that_it_is_calibrated_and_ignores_what_is_not_for_its_weights(home: Path, report: dict) -> None:
    copy = shutil.copytree(home / "runs/bag", home / "runs/copy")
    note = f"calibrated with the temperature {report['temperature']:.3g}"
    assert note in ran("classify", copy, "great film", "--scores", cwd=home).err
    for options in (("--uncalibrated", "--scores"), ("--scores", "--quiet"), ()):
        assert ran("classify", copy, "great film", *options, cwd=home).err == ""
    plain = ran("classify", copy, "great film", "--scores", "--uncalibrated", cwd=home).out
    path = copy / "calibration.json"
    about = json.loads(path.read_text("utf-8"))
    for changed in ({**about, "weights": "0" * 64}, {**about, "temperature": -1}, {**about, "temperature": "x"}, []):
        path.write_text(json.dumps(changed), "utf-8")
        ended = ran("classify", copy, "great film", "--scores", cwd=home)
        assert (ended.out, ended.err) == (plain, ""), changed
    path.write_text("{", "utf-8")
    assert ran("classify", copy, "great film", "--scores", cwd=home).out == plain
    ran("evaluate", copy, "-q", cwd=home)
    assert json.loads(path.read_text("utf-8")) == about
    assert ran("train", "bag-of-words", *FILES, "--name", "copy", "--fresh", "-q", cwd=home).err == ""
    assert not path.exists()


def test_uncalibrated_is_refused_where_it_has_no_effect(home: Path, report: dict) -> None:
    bare = shutil.copytree(home / "runs/bag", home / "runs/bare")
    ended = mallang("classify", bare, "great film", "--uncalibrated", cwd=home)
    assert ended.code == 2 and "labels are the same" in ended.err
    (bare / "calibration.json").unlink()
    for option in ("--scores", "--json"):
        ended = mallang("classify", bare, "great film", option, "--uncalibrated", cwd=home)
        assert ended.code == 2 and "has no temperature" in ended.err and not ended.out


def test_the_folder_of_a_report(home: Path, report: dict) -> None:
    ended = ran("evaluate", "runs/bag", "--report", "report", cwd=home)
    assert "the report is in report: report.json, errors.tsv, report.md, confusion.svg, reliability.svg" in ended.err
    assert json.loads((home / "report/report.json").read_text("utf-8")) == report
    page = (home / "report/report.md").read_text("utf-8")
    assert "| NLL, calibrated |" in page and "| 긍정 |" in page and "| accuracy |" in page
    rows, errors = rows_of(home / "test.tsv"), rows_of(home / "report/errors.tsv")
    outputs = (home / "runs/bag/outputs/test.txt").read_text("utf-8").splitlines()
    wrong = [number for number, row in enumerate(rows) if row[1] != outputs[number]]
    assert sorted(int(error[0]) - 1 for error in errors) == wrong and len(wrong) > 5
    sure = [float(error[3]) for error in errors]
    assert sure == sorted(sure, reverse=True)
    _, shares = predicted(home, "test.tsv")
    for number, gold, output, confidence, own, seen, text in errors:
        row = shares[int(number) - 1]
        assert (gold, output) == (rows[int(number) - 1][1], outputs[int(number) - 1])
        assert float(confidence) == pytest.approx(row.max(), abs=1e-5)
        assert float(own) == pytest.approx(row[sorted(WORDS).index(gold)], abs=1e-5)
        assert seen == ("yes" if int(number) > 70 else "no")
        assert text == " ".join(rows[int(number) - 1][0].split())
    assert "긍정" in (home / "report/confusion.svg").read_text("utf-8")
    assert (home / "report/reliability.svg").stat().st_size > 5000


def test_tables_are_printed_and_the_dev_set_itself_is_named(home: Path) -> None:
    out = ran("evaluate", "runs/bag", "--split", "valid", cwd=home).out
    assert "fitted on these very texts" in out and "60 texts" in out and "most frequent" not in out
    assert out.count("\nclass ") == 1 and "\nconfusions\ngold" in out
    quiet = ran("evaluate", "runs/bag", "-q", cwd=home)
    assert quiet.err == "" and "note:" not in quiet.out and "70 unseen" in quiet.out
    (home / "moved").mkdir()
    shutil.copytree(home / "runs/bag", home / "moved/bag")
    (home / "moved/mine.tsv").write_text("text\tlabel\ngreat film\t긍정\n", "utf-8")
    info = json.loads((home / "moved/bag/run.json").read_text("utf-8"))
    info["trained_in"] = {"folder": "/nowhere", "from_run": "../nowhere"}
    (home / "moved/bag/run.json").write_text(json.dumps(info), "utf-8")
    alone = ran("evaluate", "bag", "--data", "mine.tsv", cwd=home / "moved").out
    assert "are not counted: there is no file" in alone and "not calibrated: there is no file" in alone


def test_what_to_label_next(home: Path, report: dict) -> None:
    train = rows_of(home / "train.tsv")
    lines = ["GREAT  film  film", "그저 그런 배우 음악", "great film film", train[0][0].upper(), "", "plot"]
    (home / "new.txt").write_text("\n".join(lines) + "\n", "utf-8")
    ended = ran("classify", "runs/bag", "--file", "new.txt", "--uncertain", "5", cwd=home)
    head, *found = (line.split("\t") for line in ended.out.splitlines())
    assert head == ["line", "margin", "confidence", "label", "text"] and len(found) == 3
    assert {row[0] for row in found} & {"1", "3"} and {row[0] for row in found} >= {"2", "6"}
    assert [float(row[1]) for row in found] == sorted(float(row[1]) for row in found)
    assert "1 texts are in the training or dev set already" in ended.err and "only 3 of 6 texts remain" in ended.err
    ended = ran("classify", "runs/bag", "--file", "new.txt", "--uncertain", "1", "--by", "entropy", "--json", cwd=home)
    (line,) = map(json.loads, ended.out.splitlines())
    probabilities = json.loads(ran("classify", "runs/bag", line["input"], "--json", cwd=home).out)["probabilities"]
    own = np.array(list(probabilities.values()))
    assert line["entropy"] == pytest.approx(-(own * np.log(own)).sum() / np.log(3), rel=1e-6)
    ended = ran("classify", "runs/bag", "--file", "new.txt", "--uncertain", "2", "--out", "next.tsv", cwd=home)
    assert (ended.out, len((home / "next.tsv").read_text("utf-8").splitlines())) == ("", 3)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("evaluate", "runs/bag", "--data", "unseen.tsv"), ("'meh' does not occur", "unseen.tsv, row 2")),
        (("evaluate", "runs/bag", "--data", "empty.tsv"), ("there is no label", "empty.tsv, row 2")),
        (("evaluate", "runs/bag", "--data", "head.tsv"), ("'stars' does not occur", "--columns TEXT,LABEL")),
        (("evaluate", "runs/bag", "--data", "texts.txt"), ("one column, but 2 are needed", "file with text and label")),
        (("evaluate", "runs/bag", "--data", "texts.tsv"), ("1 column, but 2 are needed: text, label",)),
        (("evaluate", "runs/bag", "--data", "texts.jsonl"), ("no column 'label'", "--columns")),
        (("evaluate", "runs/bag", "--data", "wide.tsv"), ("3 columns where the first line has 2", "wide.tsv, line 3")),
        (("evaluate", "runs/bag", "--data", "head.tsv", "--columns", "review,star"), ("no column 'star'", "stars")),
        (("evaluate", "runs/bag", "--columns", "a,b"), ("--columns has no effect without --data",)),
        (("evaluate", "runs/bag", "--report", "test.tsv"), ("test.tsv is a file",)),
        (("evaluate", "runs/bag", "--domain", "x"), ("domain has no effect",)),
        (("classify", "runs/bag", "great", "--by", "entropy"), ("no effect without --uncertain",)),
        (("classify", "runs/bag", "great", "--uncertain", "3", "--by", "entrpy"), ("entropy",)),
        (("classify", "runs/bag", "great", "--fitted-thresholds"), ("several labels per text",)),
        (("classify", "runs/bag", "great", "--uncertain", "1", "--scores"), ("--scores has no effect",)),
        (
            ("classify", "runs/bag", "great", "--uncertain", "1", "--fitted-thresholds"),
            ("--fitted-thresholds has no effect",),
        ),
        (("train", "bag-of-words", "data.train=one.tsv", "data.valid=one.tsv"), ("holds only '긍정'",)),
        (
            ("train", "bag-of-words", "data.train=head.tsv", "data.valid=head.tsv"),
            ("looks like a header", '["review", "stars"]'),
        ),
        (
            (
                "train",
                "bag-of-words",
                "data.train=bare.tsv",
                "data.valid=bare.tsv",
                "data.header=true",
                "data.columns=[1,2]",
            ),
            ("it is data", "bare.tsv, line 1", "data.header=false"),
        ),
        (("data", "label-errors", "one.tsv"), ("of one class, '긍정', are not enough to judge",)),
        (("data", "label-errors", "none.tsv"), ("no file none.tsv",)),
        (("data", "label-errors", "train.tsv", "--split", "valid"), ("no split 'valid'",)),
        (("data", "label-errors", "train.tsv", "--model", "bag"), ("bag",)),
    ],
)
def test_mistakes_are_reported(home: Path, arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    reviews = [("great film", "긍정"), ("awful film", "부정"), ("fine film", "긍정"), ("bad film", "부정")]
    write(home / "unseen.tsv", [("great film", "긍정"), ("fine film", "meh")])
    write(home / "empty.tsv", [("great film", "긍정"), ("fine film", "")])
    write(home / "head.tsv", reviews, "review\tstars")
    write(home / "bare.tsv", reviews[1:], "great film\t긍정")
    write(home / "one.tsv", [("great film", "긍정"), ("fine film", "긍정")])
    write(home / "wide.tsv", [("great film", "긍정"), ("fine film", "긍정", "more")])
    write(home / "texts.txt", [("great film",)], "fine film")
    write(home / "texts.tsv", [("great film",)], "text")
    (home / "texts.jsonl").write_text('{"text": "great film"}\n', "utf-8")
    ended = mallang(*arguments, *(("--name", "wrong", "--fresh") if arguments[0] == "train" else ()), cwd=home)
    assert ended.code == 2 and "Traceback" not in ended.err, ended.err
    for word in words:
        assert word in ended.err


def test_a_first_line_that_is_said_to_be_data_is_trained_on(home: Path) -> None:
    write(home / "rare.tsv", rows_of(home / "train.tsv")[:40], "unusual\trare")  # type: ignore[arg-type]
    asked = ("train", "bag-of-words", "data.train=rare.tsv", "data.valid=rare.tsv", "--name", "rare", "-q")
    assert mallang(*asked, cwd=home).code == 2
    ran(*asked, "data.header=false", cwd=home)
    assert "rare" in (home / "runs/rare/labels.label.json").read_text("utf-8")


def test_a_table_without_rows_is_drawn_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No suspects, or no text to label: nothing to show is no failure."""
    from mallang.commands.outputs import print_table

    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_table(["row", "label"], [])
    printed = capsys.readouterr().out
    assert "row" in printed and "label" in printed and printed.count("\n") == 1
