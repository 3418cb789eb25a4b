"""Outputs in a run folder are used again only while they are what the run would write."""

from __future__ import annotations

import json

import pytest

from mallang.decoding.contract import Config
from mallang.evaluation.score import Score
from mallang.inspection.outputs import keep, kept, stamp_of
from mallang.training.run import Run

ROWS = [("하나", "one"), ("둘", "two")]
SCORES = [Score("BLEU", 12.5, "sig", 1.0, float("inf"), 2)]


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path, {"status": "finished", "task": "translation", "weights": "abc"})


def test_what_was_kept_comes_back(run):
    stamp = stamp_of(run, ROWS, Config(), {})
    assert kept(run.folder, "test", stamp) is None
    keep(run.folder, "test", ["one", ""], SCORES, {"beam": 5}, stamp)
    assert kept(run.folder, "test", stamp) == (["one", ""], SCORES)
    assert (run.folder / "outputs" / "test.txt").read_text("utf-8") == "one\n\n"
    about = json.loads((run.folder / "scores" / "test.json").read_text("utf-8"))
    assert about["search"] == {"beam": 5} and about["split"] == "test"


def test_anything_else_is_not_the_same(run):
    stamp = stamp_of(run, ROWS, Config(), {"domain": None, "int8": False})
    keep(run.folder, "test", ["one", "two"], SCORES, {}, stamp)
    same = stamp_of(run, ROWS, Config(), {})
    assert kept(run.folder, "test", same) is not None  # what was not asked for is not asked for
    for other in (
        stamp_of(Run(run.folder, {**run.info, "weights": "abd"}), ROWS, Config(), {}),
        stamp_of(run, ROWS[::-1], Config(), {}),
        stamp_of(run, [("하나", "one"), ("둘", "Two")], Config(), {}),
        stamp_of(run, ROWS, Config(beam=4), {}),
        stamp_of(run, ROWS, Config(), {"domain": "news"}),
        stamp_of(run, ROWS, Config(), {"int8": True}),
    ):
        assert kept(run.folder, "test", other) is None
    assert kept(run.folder, "valid", same) is None


@pytest.mark.parametrize("written", ["", "{", "[]", '{"scores": []}', '{"made_of": 1, "scores": [1]}'])
def test_a_damaged_or_older_file_is_passed_over(run, written):
    stamp = stamp_of(run, ROWS, Config(), {})
    keep(run.folder, "test", ["one", "two"], SCORES, {}, stamp)
    (run.folder / "scores" / "test.json").write_text(written, "utf-8")
    assert kept(run.folder, "test", stamp) is None


def test_outputs_that_someone_changed_are_not_the_runs(run):
    stamp = stamp_of(run, ROWS, Config(), {})
    keep(run.folder, "test", ["one", "two"], SCORES, {}, stamp)
    (run.folder / "outputs" / "test.txt").write_text("one\nthree\n", "utf-8")
    assert kept(run.folder, "test", stamp) is None


def test_without_a_stamp_nothing_is_used_again(run):
    keep(run.folder, "test", ["one", "two"], SCORES, {})
    assert kept(run.folder, "test", stamp_of(run, ROWS, Config(), {})) is None
