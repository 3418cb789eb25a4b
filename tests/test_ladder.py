"""The ladder's table and figure, made from hypotheses of miniworld."""

from __future__ import annotations

import importlib
import json
import lzma
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def ladder(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    monkeypatch.setattr("mallang.evaluation.score.RESAMPLES", 40)
    return importlib.import_module("benchmarks.ladder")


def store(folder, base, seed, hypotheses, **about):
    """What `benchmarks.translation collect` writes."""
    (folder / "hypotheses").mkdir(exist_ok=True)
    with lzma.open(folder / "hypotheses" / f"{base}-seed{seed}.txt.xz", "wt", encoding="utf-8") as stream:
        stream.writelines(f"{line}\n" for line in hypotheses)
    told = {"corpus": "miniworld", "split": "test", "direction": "ko-en", **about}
    (folder / f"{base}-bleu-seed{seed}.json").write_text(json.dumps(told), "utf-8")


@pytest.fixture
def results(tmp_path, ladder):
    """A system that is always right, one that forgets what comes after four words, and one of another split."""
    right = ladder.read_reference("miniworld", "test", "en").texts
    forgetful = [" ".join(text.split()[:4]) for text in right]
    for seed in (1, 2):
        store(tmp_path, "perfect-test", seed, right)
    store(tmp_path, "forgetful-test", 1, forgetful)
    store(tmp_path, "forgetful-test-greedy", 1, forgetful)
    store(tmp_path, "elsewhere-valid", 1, right, split="valid")
    return tmp_path


def arguments(ladder, tmp_path, *more):
    given = ["--corpus", "miniworld", "--split", "test", "--lengths", "3,5", "--out", str(tmp_path / "out"), *more]
    return ladder.parser().parse_args(given)


def test_a_search_can_be_left_out(ladder, results, tmp_path, capsys):
    ladder.make(arguments(ladder, tmp_path, "--without", "greedy"), results)
    assert "greedy" not in (shown := capsys.readouterr().out) and "forgetful" in shown


def test_what_forgets_falls_with_length(ladder, results, tmp_path, capsys):
    written = ladder.make(arguments(ladder, tmp_path), results)
    assert [path.name for path in written] == ["miniworld-ko-en-test.svg", "miniworld-ko-en-test.md"]
    assert all(path.stat().st_size > 500 for path in written)
    table = [line.split("|")[1:-1] for line in written[1].read_text("utf-8").splitlines() if line.startswith("|")]
    lines = {line[0].strip(): [cell.strip() for cell in line[1:]] for line in table}
    assert [name for name in lines if name not in ("system", "---")] == ["forgetful", "forgetful-greedy", "perfect"]
    assert lines["perfect"] == ["2", "100.0 ± 0.0", *["100.0 ± 0.0"] * 3]
    short, middle, long = map(float, lines["forgetful"][2:])
    assert short > middle > long
    assert "forgetful" in capsys.readouterr().out


def test_only_some_systems(ladder, results, tmp_path, capsys):
    ladder.make(arguments(ladder, tmp_path, "--only", "perf", "--direction", "ko-en"), results)
    assert "perfect" in capsys.readouterr().out
    assert "<svg" in (tmp_path / "out" / "miniworld-ko-en-test.svg").read_text("utf-8")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--split", "test2016"), "no hypotheses of miniworld test2016"),
        (("--direction", "en-ko"), "no hypotheses of the direction en-ko"),
    ],
)
def test_nothing_to_draw(ladder, results, tmp_path, monkeypatch, more, message):
    monkeypatch.setattr(ladder.make, "__defaults__", (results,))
    monkeypatch.setattr(sys, "argv", ["ladder", "--corpus", "miniworld", "--split", "test", *more])
    with pytest.raises(SystemExit, match=message):
        ladder.main()


def test_hypotheses_of_another_length(ladder, results, tmp_path):
    store(results, "short-test", 1, ["one line"])
    with pytest.raises(ladder.UserError, match="has 1 lines"):
        ladder.make(arguments(ladder, tmp_path), results)
