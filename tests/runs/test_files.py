"""Files of a run folder are replaced whole."""

import json

from mallang.runs.files import replace_file, to_json


def test_files_are_replaced_at_once(tmp_path):
    path = tmp_path / "run.json"
    replace_file(path, b"old")
    replace_file(path, to_json({"한글": 0.1}))
    assert json.loads(path.read_text("utf-8")) == {"한글": 0.1}
    assert [each.name for each in tmp_path.iterdir()] == ["run.json"]
