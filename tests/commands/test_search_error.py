"""`mallang search-error`: a table for people, JSON for programs, mistakes in one message."""

from __future__ import annotations

import argparse
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
        (["--beams", "2,2"], ["beam widths cannot be compared: 2, 2"]),
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


def test_the_benchmark_writes_a_value_for_every_beam(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the command says becomes results; a beam of which nothing is known becomes none."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    from benchmarks import search_error

    def said(arguments: argparse.Namespace, penalty: str) -> dict[str, object]:
        share, loss = (None, None) if penalty == "average" else (0.25, 0.125)
        row = {"beam": 4, "errors": 1, "cut": 0, "share": share, "loss": loss}
        return {"sentences": 10, "solved": 0 if share is None else 4, "empty": 1, "rows": [row]}

    monkeypatch.setattr(search_error, "search_error", said)
    given = argparse.Namespace(run=trained, split="test", shortest=10, expansions=50, device="cpu")
    found = search_error.measured(given)
    assert sorted(found) == [
        "search-error-transformer-average-solved",
        *(
            f"search-error-transformer-{name}-{what}"
            for name in ("gnmt", "none")
            for what in ("beam4", "beam4-loss", "solved")
        ),
    ]
    known, error = (found[f"search-error-transformer-none-{what}"] for what in ("solved", "beam4"))
    assert (known.value, error.value, error.system) == (40.0, 25.0, "transformer, beam 4")
    assert "10 sources" in known.protocol and "known of 4" in error.protocol
