"""calibration.json: read as it was written, and only for the weights that it was fitted for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.data.columns import LabelSet
from mallang.evaluation.label_predictions import Calibration
from mallang.runs.calibration import FILE, KeptCalibration, read_calibration, write_calibration
from mallang.runs.folder import Run

share = st.floats(0.0, 1.0)


def save_labels(folder: Path, count: int, several: bool) -> None:
    LabelSet(tuple(f"label {number}" for number in range(count)), "labels" if several else "label").save(
        folder, "label"
    )


@given(st.floats(0.011, 99.0), st.none() | st.lists(share, min_size=1, max_size=4).map(tuple))
@settings(deadline=None, max_examples=20)
def test_what_was_written_is_read(tmp_path_factory: pytest.TempPathFactory, temperature: float, thresholds) -> None:
    run = Run(tmp_path_factory.mktemp("run"), {"weights": "a" * 64})
    save_labels(run.folder, 2 if thresholds is None else len(thresholds), thresholds is not None)
    assert read_calibration(run) is None
    kept = KeptCalibration(Calibration(temperature, thresholds), "valid", 40, "b" * 64)
    write_calibration(run, kept)
    assert read_calibration(run) == kept
    assert read_calibration(Run(run.folder, {"weights": "c" * 64})) is None
    assert {path.name for path in run.folder.iterdir()} == {FILE, "labels.label.json"}


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2}, {"weights": None}, {"temperature": 0}, {"temperature": -1.0}, {"temperature": True},
        {"temperature": "1"}, {"temperature": None}, {"thresholds": [0.5, "x"]}, {"thresholds": 3}, {"texts": "many"},
        {"temperature": 10**400}, {"thresholds": []}, {"thresholds": [0.5, 0.5]}, {"thresholds": None},
        {"thresholds": [1.5]}, {"thresholds": [-0.1]},
    ],
)  # fmt: skip
def test_what_is_damaged_is_no_calibration(tmp_path: Path, change: dict) -> None:
    run = Run(tmp_path, {"weights": change.get("weights", "a" * 64)})
    save_labels(tmp_path, 1, several=True)
    write_calibration(run, KeptCalibration(Calibration(2.0, (0.5,)), "valid", 40, "rows"))
    assert change.get("weights", "a") is None or read_calibration(run) is not None
    path = tmp_path / FILE
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **change}), "utf-8")
    assert read_calibration(run) is None


def test_thresholds_for_single_labels_or_without_a_file_of_labels_are_no_calibration(tmp_path: Path) -> None:
    run = Run(tmp_path, {"weights": "a" * 64})
    write_calibration(run, KeptCalibration(Calibration(2.0, (0.5, 0.5)), "valid", 40, "rows"))
    assert read_calibration(run) is None
    save_labels(tmp_path, 2, several=False)
    assert read_calibration(run) is None
    save_labels(tmp_path, 2, several=True)
    assert read_calibration(run) is not None


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"format": 1}', "\udcff"])
def test_what_is_no_json_object_is_no_calibration(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_bytes(content.encode("utf-8", "surrogateescape"))
    assert read_calibration(Run(tmp_path, {"weights": "a" * 64})) is None
