"""The folds of LitBank: pooled counts, and the difference of two systems on the same documents."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks import coreference_folds as folds
from benchmarks.kinds import kind_of

from mallang.errors import UserError
from mallang.evaluation.coreference import conll_f1, counts


def line(fold, documents):
    tables = [counts(output, gold).tolist() for output, gold in documents]
    return json.dumps({"fold": fold, "documents": [f"{fold}-{n}" for n in range(len(documents))],
                       "singletons": tables, "without singletons": tables})  # fmt: skip


def test_folds_are_pooled_and_compared(tmp_path: Path, capsys, monkeypatch):
    gold = [["a", "b", "c"], ["d"]]
    worse, better = [["a", "b"], ["c", "d"]], [["a", "b", "c"], ["x"]]
    for name, output in (("plain", worse), ("features", better)):
        (tmp_path / f"{name}.jsonl").write_text(
            f"{line(2, [(output, gold)])}\n{line(1, [(output, gold)] * 2)}\n", "utf-8"
        )
    assert [each["fold"] for each in folds.read(tmp_path / "plain.jsonl")] == [1, 2]
    folds.show_files([tmp_path / "plain.jsonl", tmp_path / "features.jsonl"])
    told = capsys.readouterr().out
    values = [conll_f1(counts(output, gold)) for output in (worse, better)]
    assert f"{values[0]:.2f} [{values[0]:.2f}, {values[0]:.2f}]" in told
    assert f"features − plain: {values[1] - values[0]:.2f} [" in told
    sums = np.concatenate([counts(worse, gold), counts(better, gold)])
    assert folds.gain_of(sums) == pytest.approx(values[1] - values[0])


def test_folds_that_a_file_has_are_not_trained_again(tmp_path: Path, capsys, monkeypatch):
    path = tmp_path / "x.jsonl"
    path.write_text(line(1, [([["a", "b"]], [["a", "b"]])]) + "\n", "utf-8")
    asked = []

    def measured(fold, overrides, folder):
        asked.append((fold, overrides, folder))
        return json.loads(line(fold, [([["a", "b"]], [["a", "b"]])]))

    monkeypatch.setattr(folds, "measured", measured)
    monkeypatch.setattr(
        "sys.argv", ["x", "run", str(path), "train.epochs=1", "--folds", "1,3", "--runs", str(tmp_path)]
    )
    folds.main()
    assert asked == [(3, ["train.epochs=1"], tmp_path / "x")] and len(folds.read(path)) == 2
    assert "100.00" in capsys.readouterr().out


def test_pooled_values_and_gains_are_written(tmp_path: Path, capsys, monkeypatch):
    gold = [["a", "b", "c"], ["d"]]
    worse, better = [["a", "b"], ["c", "d"]], [["a", "b", "c"], ["x"]]
    paths = [tmp_path / "plain.jsonl", tmp_path / "features.jsonl"]
    about = {
        "overrides": ["train.epochs=1", "given.features=/runs/elmo"],
        "seconds": 2.0,
        "commit": "0" * 12,
        "hardware": "m",
    }
    for path, output in zip(paths, (worse, better), strict=True):
        lines = [json.dumps(json.loads(line(fold, [(output, gold)])) | about) for fold in range(1, 11)]
        path.write_text("\n".join(lines) + "\n", "utf-8")
    folds.collect(paths, tmp_path / "results")
    found = {each.stem: json.loads(each.read_text("utf-8")) for each in (tmp_path / "results").glob("*.json")}
    assert len(found) == 2 * 2 * 5 + 2 and {kind_of(name).table for name in found} == {"understanding"}
    values = [conll_f1(counts(output, gold)) for output in (worse, better)]
    one = found["coreference-features-without-singletons-conll"]
    assert one["value"] == pytest.approx(values[1], abs=0.006) and one["overrides"] == ["train.epochs=1"]
    assert one["seconds"] == 20 and "10 documents pooled" in one["protocol"]
    gain = found["coreference-features-gain-singletons"]
    assert gain["value"] == pytest.approx(values[1] - values[0], abs=0.006) and "over plain" in gain["protocol"]
    paths[1].write_text(line(1, [(better, gold)]) + "\n", "utf-8")
    with pytest.raises(UserError, match="1 of 10 folds"):
        folds.collect(paths, tmp_path / "results")


def test_the_number_of_the_fold_is_put_into_overrides(tmp_path: Path, capsys, monkeypatch):
    asked = []

    def measured(fold, overrides, folder):
        asked.append(overrides)
        return json.loads(line(fold, [([["a", "b"]], [["a", "b"]])]))

    monkeypatch.setattr(folds, "measured", measured)
    words = ["x", "run", str(tmp_path / "y.jsonl"), "given.features=runs/elmo-fold{fold}", "--folds", "2,3"]
    monkeypatch.setattr("sys.argv", words)
    folds.main()
    assert asked == [["given.features=runs/elmo-fold2"], ["given.features=runs/elmo-fold3"]]
