"""`mallang gradients`: runs side by side, as a table, numbers and a figure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands.running import TINY, mallang, write_corpus


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("gradients")
    write_corpus(place)
    quick = (*TINY, "train.steps=2", "train.workers=0")
    ended = mallang("train", "transformer", *quick, "--name", "plain", cwd=place)
    assert ended.code == 0, ended.err
    text = [line.split("\t")[0] for line in (place / "train.tsv").read_text("utf-8").splitlines()]
    for name in ("lines.txt", "held-out.txt"):
        (place / name).write_text("\n".join(text) + "\n", "utf-8")
    files = ("data.train=lines.txt", "data.valid=held-out.txt", "text.vocabulary=160", "train.steps=2")
    for name, changes in (
        ("gpt", ("gpt", "model.size=tiny")),
        ("lstm", ("rnn_lm", "model.size=tiny", "task.layout=stream", "task.context=16")),
    ):
        ended = mallang("train", *changes, *files, "train.workers=0", "--name", name, cwd=place)
        assert ended.code == 0, ended.err
    quick = (*files, "model.size=tiny", "train.workers=0")
    for name, changes in (
        ("backward", ("rnn_lm", "task.name=backward_language_modeling")),
        ("autoencoder", ("sutskever", "task.name=autoencoding")),
    ):
        ended = mallang("train", *changes, *quick, "--name", name, cwd=place)
        assert ended.code == 0, ended.err
    ended = mallang("train", "ngram", *files[:2], "--name", "counts", cwd=place)
    assert ended.code == 0, ended.err
    return place


@pytest.mark.parametrize("runs", [("plain",), ("gpt", "lstm"), ("backward",)])
def test_runs_side_by_side(home: Path, runs: tuple[str, ...]) -> None:
    folders = [f"runs/{run}" for run in runs]
    ended = mallang("gradients", *folders, "--rows", "3", "--out", "curve.svg", cwd=home)
    head, first, second, *_ = ended.out.splitlines()
    assert ended.code == 0 and head.split() == ["distance", *runs] and first.split() == ["0", *"1" * len(runs)], (
        ended.err
    )
    assert all(0 < float(share) < 1000 for share in second.split()[1:])
    assert "<svg" in (home / "curve.svg").read_text("utf-8")
    numbers = json.loads(mallang("gradients", *folders, "--rows", "3", "--json", cwd=home).out)
    assert set(numbers) == set(runs) and numbers[runs[0]]["relative"][0] == 1.0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("runs/counts",), "learns without gradients"),
        (("runs/autoencoder",), "not measured of a run for autoencoding"),
        (("runs/gtp",), "gtp"),
        (("runs/gpt", "--split", "valid", "--data", "lines.txt"), "--split and --data were both given"),
        (("runs/gpt", "--data", "nothing.txt"), "nothing.txt"),
        (("runs/gpt", "--out", "a.gif"), "cannot be written as a.gif"),
        (("runs/gpt", "--data", "blank.txt"), "no text to differentiate"),
    ],
)
def test_bad_input(home: Path, given: tuple[str, ...], message: str) -> None:
    (home / "blank.txt").write_text(" \n\n", "utf-8")
    ended = mallang("gradients", *given, cwd=home)
    assert ended.code == 2 and message in ended.err and "Traceback" not in ended.err, ended.err
