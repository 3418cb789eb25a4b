"""`mallang search-error`: a table for people, JSON for programs, mistakes in one message."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands.running import mallang


def test_a_table_and_the_same_as_json(trained: Path) -> None:
    options = ("--beams", "1,3", "--shortest", "4", "--expansions", "300", "--search", "length_penalty=none")
    shown = mallang("search-error", trained, *options, cwd=trained.parent.parent)
    assert shown.code == 0, shown.err
    assert "4 of 20 texts of test" in shown.err
    lines = shown.out.splitlines()
    assert lines[0].startswith("best output known of") and "length penalty none" in lines[0]
    assert [line.split()[0] for line in lines[-2:]] == ["1", "3"]
    plain = mallang("search-error", trained, *options, "--json", cwd=trained.parent.parent)
    found = json.loads(plain.out)
    assert plain.err == "" and found["sentences"] == 4 and found["max_expansions"] == 300
    assert 0 < found["solved"] <= 4 and [row["beam"] for row in found["rows"]] == [1, 3]
    assert found["rows"][0]["loss"] >= found["rows"][1]["loss"] >= 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--beams", "1,two"], ["--beams 1,two", "--beams 1,2,4,8,16"]),
        (["--beams", "2,2"], ["no beams to compare: 2, 2"]),
        (["--expansions", "0"], ["--expansions 0"]),
        (["--shortest", "-1"], ["--shortest -1"]),
        (["--search", "method=greedy"], ["method has no effect here"]),
        (["--search", "coverage=0.2"], ["coverage"]),
        (["--split", "valid", "--data", "valid.tsv"], ["--split and --data were both given"]),
    ],
)
def test_mistakes_get_one_message(trained: Path, options: list[str], words: list[str]) -> None:
    ended = mallang("search-error", trained, *options, cwd=trained.parent.parent)
    assert ended.code == 2 and "Traceback" not in ended.err
    for word in words:
        assert word in ended.err
