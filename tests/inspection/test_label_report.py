"""Reports in Python: parts, notes, calibration that is kept, fitted again or left out, and files without matplotlib."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

import mallang
from mallang.data.corpus import Rows
from mallang.errors import UserError
from mallang.evaluation.label_predictions import Calibration, LabelPredictions
from mallang.inspection import label_errors, label_report, reports
from mallang.inspection.labeling import texts_to_label
from mallang.inspection.tag_report import TagReport
from mallang.recipe import read
from mallang.runs.calibration import KeptCalibration, read_calibration, write_calibration
from mallang.runs.folder import Run
from mallang.training.train import Options, train

SPLITS = ("train", "valid")
WORDS = {"좋음": ("great", "훌륭한"), "나쁨": ("awful", "지루한")}


def rows(count: int, seed: int, noise: float = 0.15) -> list[tuple[str, str]]:
    draw, found = random.Random(seed), []
    for number in range(count):
        label = draw.choice(list(WORDS))
        told = label if draw.random() > noise else draw.choice(list(WORDS))
        found.append((f"{draw.choice(WORDS[told])} film {number} {seed}", label))
    return found


def write(path: Path, given: list[tuple[str, str]]) -> str:
    path.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in given), "utf-8")
    return str(path)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    given = [f"data.{name}={write(folder / f'{name}.tsv', rows(count, seed))}"
             for name, count, seed in (("train", 80, 1), ("valid", 40, 2), ("test", 30, 3))]  # fmt: skip
    recipe = read("bag_of_words", [*given, "text.unit=word", "model.classifier=logistic"]).build()
    return train(recipe, Options(folder=folder / "run", fresh=True, quiet=True)).folder


@pytest.fixture
def fresh(run: Path) -> Path:
    """The run without a calibration."""
    (run / "calibration.json").unlink(missing_ok=True)
    return run


def test_the_calibration_is_fitted_once_and_again_for_other_rows(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, test = mallang.load(fresh), rows(30, 3)
    assert model.calibration is None
    first = label_report.label_report(fresh, model, test, "test")
    kept = read_calibration(Run.open(fresh))
    assert kept == first.fitted and kept.texts == 40 and mallang.load(fresh).calibration == kept.calibration
    with monkeypatch.context() as patch:
        patch.setattr(label_report, "fit_calibration", lambda dev: pytest.fail("fitted twice"))
        assert label_report.label_report(fresh, model, test, "test").calibrated == first.calibrated
    write_calibration(Run.open(fresh), KeptCalibration(Calibration(9.0), "valid", 40, "of other rows"))
    assert label_report.label_report(fresh, model, test, "test").fitted == kept
    assert label_report.label_report(fresh, model, test, "test", is_kept=False).fitted == kept


def test_what_is_too_little_or_too_good_is_not_calibrated(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, test = mallang.load(fresh), rows(30, 3)
    monkeypatch.setattr(label_report, "FEWEST", 41)
    found = label_report.label_report(fresh, model, test, "test")
    assert found.fitted is None and "the dev set has 40 texts, and 41 are needed" in found.notes[-1]
    assert found.calibrated == {} and found.to_json()["temperature"] is None and "reliability.svg" in found.figures()
    monkeypatch.setattr(label_report, "FEWEST", 20)
    for temperature in (0.01, 100.0):
        monkeypatch.setattr(label_report, "fit_calibration", lambda dev, value=temperature: Calibration(value))
        found = label_report.label_report(fresh, model, test, "test")
        assert found.fitted is None and "every label is right, or none is" in found.notes[-1]
    assert not (fresh / "calibration.json").exists()


def test_a_read_only_run_keeps_nothing(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(run: Run, kept: KeptCalibration) -> Path:
        raise UserError("cannot write") from PermissionError(13, "no")

    monkeypatch.setattr(label_report, "write_calibration", refuse)
    found = label_report.label_report(fresh, mallang.load(fresh), rows(30, 3), "test")
    assert found.fitted is not None and "read-only" in found.notes[-1]


def test_python_gives_what_the_command_gives(fresh: Path) -> None:
    plain = mallang.load(fresh).classify("great film")
    label_report.label_report(fresh, mallang.load(fresh), rows(30, 3), "test")
    model = mallang.load(fresh)
    found, without = model.classify("great film"), model.classify("great film", calibrated=False)
    assert found.label == without.label == plain.label and without == plain != found
    temperature = model.calibration.temperature
    logits = model.predictions(["great film"]).logits[0].astype(float) / temperature
    assert found.probability == pytest.approx(np.exp(logits.max()) / np.exp(logits).sum())


def test_int8_weights_do_not_take_the_temperature_of_the_float32_ones(tmp_path: Path) -> None:
    given = [f"data.{name}={write(tmp_path / f'{name}.tsv', rows(40, seed))}" for seed, name in enumerate(SPLITS)]
    recipe = read("bag_of_means", [*given, "text.unit=word", "model.dim=8", "train.steps=3"]).build()
    folder = train(recipe, Options(folder=tmp_path / "run", device="cpu", quiet=True)).folder
    write_calibration(Run.open(folder), KeptCalibration(Calibration(3.0), "valid", 40, "rows"))
    plain, small = (mallang.load(folder, device="cpu", weights=weights) for weights in ("float32", "int8"))
    assert plain.classify("great film") != plain.classify("great film", calibrated=False)
    assert small.calibration is None
    assert small.classify("great film") == small.classify("great film", calibrated=False)


def test_files_without_matplotlib(fresh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(module: str, extra: str) -> None:
        raise UserError("matplotlib is not installed", todo="pip install it")

    found = label_report.label_report(fresh, mallang.load(fresh), rows(30, 3), "test")
    monkeypatch.setattr(reports, "require", missing)
    written = reports.write_report(found, tmp_path / "new" / "report")
    assert written[:-1] == ["report.json", "errors.tsv", "report.md"] and written[-1].startswith(
        "no pictures: matplotlib"
    )
    assert sorted(path.name for path in (tmp_path / "new/report").iterdir()) == sorted(written[:-1])
    assert isinstance(found, reports.Report) and "labels of test" in reports.as_plain_text(found)
    with pytest.raises(UserError, match="cannot write"):
        reports.write_report(found, fresh / "run.json" / "report")


def test_a_report_on_one_text_and_no_error(fresh: Path, tmp_path: Path) -> None:
    found = label_report.label_report(fresh, mallang.load(fresh), [("great\tfilm", "좋음")], "one")
    assert reports.write_report(found, tmp_path) and len(found.tables()) == 2
    assert (tmp_path / "errors.tsv").read_text("utf-8") == "\t".join(found.error_columns) + "\n"
    assert json.loads((tmp_path / "report.json").read_text("utf-8"))["scores"][0]["value"] == 100


def test_cells_stay_in_one_line() -> None:
    assert reports.as_tsv(["a", "b"], [(1, "x\ty\n z"), (0.25, "")]) == "a\tb\n1\tx y z\n0.250000\t\n"


def test_confusions_are_sorted() -> None:
    confusion = reports.Confusion(("a", "b", "c"), np.array([[5, 1, 0], [2, 5, 3], [0, 0, 0]]))
    assert reports.confusion_lines(confusion) == [("b", "c", 3), ("b", "a", 2), ("a", "b", 1)]
    many = reports.Confusion(tuple(map(str, range(5))), np.ones((5, 5), dtype=int))
    (table,) = reports.confusion_table(many)
    assert table.title == "the 10 most frequent of 20 confusions" and len(table.lines) == 10


def test_texts_to_label_are_new_and_different(fresh: Path) -> None:
    known = rows(80, 1)[0][0]
    texts = ["great film", "GREAT film", known.upper(), "  ", "awful great", "지루한 이야기"]
    found = texts_to_label(fresh, mallang.load(fresh), texts, 9)
    assert {each.line for each in found.texts} == {1, 5, 6} or {each.line for each in found.texts} == {2, 5, 6}
    assert [each.value for each in found.texts] == sorted(each.value for each in found.texts)
    assert len(found.notes) == 3 and "only 3 of 6" in found.notes[-1]
    again = texts_to_label(fresh, mallang.load(fresh), texts, 2, by="entropy")
    assert [each.value for each in again.texts] == sorted((each.value for each in again.texts), reverse=True)
    assert again.to_json()[0]["entropy"] == again.texts[0].value


def test_label_errors_of_any_model_and_of_rare_classes() -> None:
    given = [*rows(60, 4, noise=0.0), ("something else", "드묾")]
    found = label_errors.find_label_errors(Rows.of(given, ("text", "label")), folds=3, model="words")
    assert (found.rows, found.labels, found.folds) == (61, 3, 3) and found.accuracy > 90
    assert {each.row for each in found.suspects} <= {61}
    small = label_errors.divided([(str(number), "ab"[number % 2]) for number in range(40)], fitted=False)
    assert sorted(small[0] + small[1]) == sorted((str(number), "ab"[number % 2]) for number in range(40)) and small[1]
    everything = [("a", "x")] * 60
    assert label_errors.divided(everything, fitted=True) == (everything, everything[:50])
    with pytest.raises(UserError, match="too few to judge"):
        label_errors.find_label_errors(Rows.of(given[:10], ("text", "label")))


def test_every_fold_has_rows_to_validate_a_network_on() -> None:
    """The folds divide rows by their hash: dev rows by the same hash would all be in the first fold."""
    given = rows(100, 6)
    for part in label_errors.divide(given, 5):
        others = [row for row, out in zip(given, part, strict=True) if not out]
        learned, held_out = label_errors.divided(others, fitted=False)
        assert 0.05 < len(held_out) / len(others) < 0.4 and sorted(learned + held_out) == sorted(others)
    for name in ("lstm_crf", "rnn-lm-miniworld"):
        with pytest.raises(UserError, match=f"{name} is for (tagging|language_modeling)"):
            label_errors.find_label_errors(Rows.of(given, ("text", "label")), model=name)


def test_a_dev_set_with_a_new_label_is_named_as_such(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, dev = mallang.load(fresh), [*rows(40, 2), ("a film", "새로움")]
    monkeypatch.setattr(label_report, "open_rows", lambda *_: (dev, ""))
    found = label_report.label_report(fresh, model, rows(30, 3), "test")
    assert found.fitted is None and "in the dev set, row 41, the label '새로움' does not occur" in found.notes[-1]


def test_many_suspects_are_a_sign_of_a_weak_model() -> None:
    draw = random.Random(1)
    given = [(f"text {number}", draw.choice("abc")) for number in range(60)]
    found = label_errors.find_label_errors(Rows.of(given, ("text", "label")), folds=2, model="words")
    assert "often wrong" in found.notes[-1] and f"{len(found.suspects)} of 60 rows" in str(found)
    assert len(found.table(2)[1]) == 2 and len(found.to_json(0)["suspects"]) == len(found.suspects)


def test_labels_and_tags_have_reports() -> None:
    from mallang.tasks import classifier, tagger
    from mallang.tasks.contract import Calibrated, PredictsLabels, PredictsTags

    one, two = classifier.Verbs.__new__(classifier.Verbs), tagger.Verbs.__new__(tagger.Verbs)
    one.calibration = None
    assert isinstance(one, PredictsLabels) and isinstance(one, Calibrated) and not isinstance(one, PredictsTags)
    assert isinstance(two, PredictsTags) and not isinstance(two, PredictsLabels)
    found = LabelPredictions("single", ("a", "b"), np.zeros((1, 2)), np.array([0]))
    assert label_report.LabelReport(name="x", texts=["t"], found=found).notes == () == TagReport.notes
