"""A run.json that is not what it should be is refused by name, whatever is wrong in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mallang.errors import UserError
from mallang.runs.folder import KINDS, Run

RIGHT: dict[str, Any] = {"format": 1, "status": "finished", "task": "translation", "from": None, "seconds": 1}


@pytest.mark.parametrize("key", dict.fromkeys([*KINDS, "budget"]))
@pytest.mark.parametrize("value", [[1], True])
def test_values_of_another_kind(tmp_path: Path, key: str, value: object) -> None:
    (tmp_path / "run.json").write_text(json.dumps({**RIGHT, key: value}), "utf-8")
    with pytest.raises(UserError, match=f"run.json is damaged: its {key} is"):
        Run.open(tmp_path)


@pytest.mark.parametrize("content", ["[1]", "3", "null", "{}", "[" * 100_000, '{"status": "finished"}', "{"])
def test_what_is_no_run_json_at_all(tmp_path: Path, content: str) -> None:
    (tmp_path / "run.json").write_text(content, "utf-8")
    with pytest.raises(UserError, match=r"run.json is damaged"):
        Run.open(tmp_path)


def test_a_right_one_opens_and_may_say_more(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps({**RIGHT, "mine": [1]}), "utf-8")
    assert Run.open(tmp_path).is_finished
    (tmp_path / "run.json").write_text(json.dumps({**RIGHT, "format": 2, "seconds": {}}), "utf-8")
    with pytest.raises(UserError, match="newer mallang"):
        Run.open(tmp_path)
