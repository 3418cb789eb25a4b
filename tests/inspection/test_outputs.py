"""Outputs in a run folder are used again only while they are what the run would write."""

from __future__ import annotations

import json

import pytest

from mallang.decoding.contract import Config
from mallang.evaluation.score import Score
from mallang.inspection.outputs import keep, kept, stamp_of
from mallang.runs.folder import Run

ROWS = [("하나", "one"), ("둘", "two")]
SCORES = [Score("BLEU", 12.5, "sig", 1.0, float("inf"), 2)]


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path, {"status": "finished", "task": "translation", "weights": "abc"})


def test_what_was_kept_comes_back(run):
    stamp = stamp_of(run, ROWS, Config(), {})
    assert kept(run.folder, "test", stamp, 2) is None
    keep(run.folder, "test", ["one", ""], SCORES, {"beam": 5}, stamp)
    assert kept(run.folder, "test", stamp, 2) == (["one", ""], SCORES)
    assert (run.folder / "outputs" / "test.txt").read_text("utf-8") == "one\n\n"
    about = json.loads((run.folder / "scores" / "test.json").read_text("utf-8"))
    assert about["search"] == {"beam": 5} and about["split"] == "test"


def test_anything_else_is_not_the_same(run):
    stamp = stamp_of(run, ROWS, Config(), {"domain": None, "int8": False})
    keep(run.folder, "test", ["one", "two"], SCORES, {}, stamp)
    same = stamp_of(run, ROWS, Config(), {})
    assert kept(run.folder, "test", same, 2) is not None  # what was not asked for is not asked for
    for other in (
        stamp_of(Run(run.folder, {**run.info, "weights": "abd"}), ROWS, Config(), {}),
        stamp_of(run, ROWS[::-1], Config(), {}),
        stamp_of(run, [("하나", "one"), ("둘", "Two")], Config(), {}),
        stamp_of(run, ROWS, Config(beam=4), {}),
        stamp_of(run, ROWS, Config(), {"domain": "news"}),
        stamp_of(run, ROWS, Config(), {"int8": True}),
    ):
        assert kept(run.folder, "test", other, 2) is None
    assert kept(run.folder, "valid", same, 2) is None


@pytest.mark.parametrize("written", ["", "{", "[]", '{"scores": []}', '{"made_of": 1, "scores": [1]}'])
def test_a_damaged_or_older_file_is_passed_over(run, written):
    stamp = stamp_of(run, ROWS, Config(), {})
    keep(run.folder, "test", ["one", "two"], SCORES, {}, stamp)
    (run.folder / "scores" / "test.json").write_text(written, "utf-8")
    assert kept(run.folder, "test", stamp, 2) is None


def test_outputs_that_someone_changed_are_not_the_runs(run):
    stamp = stamp_of(run, ROWS, Config(), {})
    keep(run.folder, "test", ["one", "two"], SCORES, {}, stamp)
    (run.folder / "outputs" / "test.txt").write_text("one\nthree\n", "utf-8")
    assert kept(run.folder, "test", stamp, 2) is None


def test_without_a_stamp_nothing_is_used_again(run):
    keep(run.folder, "test", ["one", "two"], SCORES, {})
    assert kept(run.folder, "test", stamp_of(run, ROWS, Config(), {}), 2) is None


BROKEN = ["one\nand a half", "two\n", "\r", "a\u2028b"]


def test_outputs_of_several_lines_come_back_and_stand_on_one_line_each(run):
    rows = [*ROWS, *ROWS]
    stamp = stamp_of(run, rows, Config(), {})
    keep(run.folder, "test", BROKEN, SCORES, {}, stamp)
    assert kept(run.folder, "test", stamp, 4) == (BROKEN, SCORES)
    assert (run.folder / "outputs" / "test.txt").read_text("utf-8") == "one and a half\ntwo\n\na b\n"


def test_a_file_with_another_number_of_lines_is_passed_over(run):
    stamp = stamp_of(run, ROWS, Config(), {})
    keep(run.folder, "test", ["one", "and a half", "two"], SCORES, {}, stamp)  # as a line end in an output once did
    assert kept(run.folder, "test", stamp, 2) is None
