"""The regret of `compare --data`: what is written of a line, and that the test split has no say in the advice."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the benchmarks are not installed
from benchmarks import regret  # noqa: E402

LINE = {
    "corpus": "sst2", "recommended": "bag of words", "advice": "use bag of words",
    "held out": {"bag of words": 78.15, "bag of characters": 78.07, "CNN": 70.0},
    "cross-validated": {"bag of words": 78.5, "bag of characters": 78.25},
    "test": {"bag of words": 77.41, "bag of characters": 78.44, "CNN": 77.98}, "rows": 1384, "folds": 1,
    "budget": 60.0, "device": "cpu", "seconds": 250.0, "commit": "0123456789ab", "hardware": "a machine",
    "training": {},
}  # fmt: skip


def test_regret_is_the_best_on_test_minus_the_recommended():
    (found,) = regret.results_of([LINE]).items()
    name, result = found
    assert name == "regret-sst2" and result.system == "bag of words" and result.corpus == "sst-sentence/sst2"
    assert result.value == pytest.approx(78.44 - 77.41)
    assert "on the rows held out: bag of words 78.15, bag of characters 78.07" in result.protocol
    assert result.protocol.endswith("by 5-fold cross-validation: bag of words 78.50, bag of characters 78.25")


def test_without_regret_no_rival_is_named():
    right = {**LINE, "recommended": "bag of characters", "cross-validated": {}}
    result = regret.results_of([right])["regret-sst2"]
    assert result.value == 0.0 and result.protocol.endswith("on the rows held out: bag of characters 78.07")


def test_a_line_is_measured_on_training_rows_and_scored_on_test_rows(tmp_path, monkeypatch):
    """The labels of the test rows are turned around: the advice stays, and its accuracy on test is low."""
    texts = [(f"{('good', 'bad')[n % 2]} film {n}", ("yes", "no")[n % 2]) for n in range(200)]
    turned = [(text, {"yes": "no", "no": "yes"}[label]) for text, label in texts[:40]]

    def write_split(name, split, folder):
        path = folder / f"{split}.jsonl"
        lines = [json.dumps({"text": text, "label": label}) for text, label in (texts, turned)[split == "test"]]
        path.write_text("\n".join(lines) + "\n", "utf-8")
        return path

    from mallang.inspection import label_comparison
    from mallang.inspection.label_comparison import Candidate

    words = Candidate("bag of words", "bag_of_words", ("text.unit=word",))
    whole = label_comparison.compare_on
    monkeypatch.setattr(regret, "write_split", write_split)
    monkeypatch.setattr(label_comparison, "compare_on", lambda data, **how: whole(data, **how, candidates=[words]))
    line = regret.measure_one("sst2", 10.0, "cpu")
    assert line["recommended"] == "bag of words" and line["held out"]["bag of words"] > 90
    assert line["test"]["bag of words"] < 10 and line["folds"] == 5 and line["cross-validated"] == {}
    best = max(line["test"].values())
    assert regret.results_of([line])["regret-sst2"].value == pytest.approx(
        best - line["test"]["bag of words"], abs=0.01
    )
