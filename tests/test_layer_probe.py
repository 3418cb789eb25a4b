"""The probe of layers: a linear classifier beside scikit-learn's, and the script from its arguments to its table."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from benchmarks import layer_probe

from runs.small_runs import run_of, write_lines, write_names


def test_a_probe_is_a_linear_classifier() -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    random = torch.Generator().manual_seed(1)
    train, test = torch.randn(60, 4, generator=random) * 3 + 1, torch.randn(40, 4, generator=random)
    labels, golds = (train[:, 0] > 1).long() + (train[:, 1] > 1).long(), (test[:, 0] > 1).long()
    mean, deviation = train.mean(dim=0), train.std(dim=0)
    theirs = linear.LogisticRegression(max_iter=2000).fit(((train - mean) / deviation).numpy(), labels.numpy())
    expected = 100 * theirs.score(((test - mean) / deviation).numpy(), golds.numpy())
    assert layer_probe.probe(train, labels, test, golds, 3) == pytest.approx(expected)


def test_the_most_frequent_tag_of_a_word() -> None:
    train = layer_probe.Words(["a", "a", "a", "b"], [], ["X", "X", "Y", "Z"])
    assert layer_probe.frequent(train, layer_probe.Words(["a", "b", "new", "a"], [], ["X", "Z", "X", "Y"])) == 75.0


def test_every_layer_of_a_run_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_of(tmp_path / "elmo", "elmo", write_lines(tmp_path), "text.unit=space", "text.vocabulary=60")
    names = write_names(tmp_path)
    given = ["layer_probe", str(tmp_path / "elmo"), "lstm_crf", f"data.train={names}", f"data.test={names}", "--json"]
    monkeypatch.setattr(sys, "argv", given)
    layer_probe.main()
    found = json.loads(capsys.readouterr().out)
    assert found["train"] == found["test"] == 24 * 5
    scores = found["accuracy"]
    assert list(scores) == ["most frequent tag", "layer 0", "layer 1", "layer 2", "mean of layers"]
    assert scores["layer 2"] == 100.0  # every word is a name or none by itself
