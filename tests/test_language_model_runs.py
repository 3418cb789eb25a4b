"""Lists of language models, how they are measured, and what is written of them."""

import json
import math
import sys
from itertools import product
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the benchmarks are not installed
from benchmarks import language_models, report, translation_runs  # noqa: E402
from benchmarks.language_models import Experiment, collect, reading_of  # noqa: E402
from benchmarks.translation import read_experiments  # noqa: E402
from benchmarks.translation_runs import Options, run_all  # noqa: E402

from mallang.errors import UserError  # noqa: E402

ALL = ROOT / "benchmarks" / "language-models.toml"
LIST = """
[defaults]
splits = ["test"]
[[experiments]]
name = "lstm-medium-ptb"
recipe = "lstm-medium-ptb"
seeds = [1, 2]
[[experiments]]
name = "gpt-shakespeare"
recipe = "gpt-shakespeare"
splits = ["valid"]
searches.stride-32 = ["stride=32"]
"""


def test_the_list_of_all_systems_can_be_trained():
    found = {each.name: each.about() for each in read_experiments(ALL, Experiment)}
    systems = "katz5 kneser-ney5 nplm elman lstm-medium lstm-large char-aware-small char-aware-large awd-lstm conv gpt "
    systems += "modern-gpt"
    assert {about["system"] for name, about in found.items() if name.endswith("-ptb")} == set(systems.split())
    for corpus in ("wikitext-2", "nsmc/text"):
        mine = {about["system"] for about in found.values() if about["corpus"] == corpus}
        assert mine == {"kneser-ney5", "lstm", "awd-lstm", "conv", "gpt"}
    assert found["gpt-shakespeare"]["system"] == "gpt"


def fake(module, words, name, place):
    """Does what the command would, at once; a stride makes it a little better."""
    if module == "mallang":
        folder = place.folder / words[words.index("--name") + 1]
        (folder / "outputs").mkdir(parents=True, exist_ok=True)
        info = {
            "status": "finished",
            "steps": 2,
            "parameters": 7,
            "tokens": 9,
            "seconds": 1.5,
            "best": {"loss": 1.0, "step": 2},
        }
        (folder / "run.json").write_text(json.dumps(info), "utf-8")
        (folder / "metrics.jsonl").write_text(json.dumps({"kind": "valid", "step": 2, "loss": 4.5}) + "\n", "utf-8")
        return ""
    asked, records = json.loads(words[1]), []
    for split, (search, given) in product(asked["splits"], asked["searches"].items()):
        value = 80.0 + 2 * words[0].endswith("seed2") - 5 * ("--stride" in given["words"])
        is_cut = "--stride" in given["words"]
        how = "layout:stream|context:256|stride:32" if is_cut else "layout:stream|context:carried|rows:1"
        names = {"perplexity per token": value, "perplexity per word": value, "bits per byte": 1.23456}
        shared = {"signature": f"unit:x|{how}", "low": None, "high": None, "count": 9}
        scores = [{"name": name, "value": number, **shared} for name, number in names.items()]
        records.append(
            {"corpus": "", "split": split, "search": search, "options": given["options"], "scores": scores,
             "hypotheses": ["-1.0"]}
        )  # fmt: skip
    return json.dumps(records)


def test_values_are_written_with_their_reading_and_what_was_published(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(translation_runs, "run", fake)
    monkeypatch.setattr(translation_runs, "ask_gpu", lambda *_: "")
    path = tmp_path / "list.toml"
    path.write_text(LIST, "utf-8")
    options = Options(out=tmp_path / "out", work=tmp_path / "work", commit="0123456789ab")
    ran = run_all(read_experiments(path, Experiment), options)
    assert "lstm-medium-ptb seed 2: finished  2 steps in 0 s  test 82.00" in capsys.readouterr().out
    collect([ran], tmp_path / "results")
    found = {each.stem: json.loads(each.read_text("utf-8")) for each in (tmp_path / "results").glob("*.json")}
    one = found["lstm-medium-ptb-test-word-seed1"]
    assert one == {
        **one, "system": "lstm-medium", "recipe": "lstm-medium-ptb", "corpus": "ptb", "direction": None,
        "split": "test", "metric": "perplexity per word", "value": 80.0, "published": 82.7, "seed": 1,
        "protocol": "whole text, as one stream, the state carried", "commit": "0123456789ab", "seconds": 1.5,
    }  # fmt: skip
    assert found["lstm-medium-ptb-test-word-seed2"]["value"] == 82.0
    assert found["lstm-medium-ptb-test-token-seed1"]["published"] is None
    assert found["lstm-medium-ptb-test-byte-seed1"]["value"] == 1.2346
    strided = found["gpt-shakespeare-valid-stride-32-nats-seed1"]
    assert strided["value"] == round(math.log(75), 4) and strided["published"] == 1.4697
    assert strided["protocol"] == "whole text, as one stream, windows of 256, stride 32"
    assert report.read_results(tmp_path / "results")
    assert "ptb test" in capsys.readouterr().out


def test_readings_in_words():
    assert reading_of("unit:word|layout:lines|context:line|stride:none") == "line by line"
    assert reading_of("unit:word|layout:lines|context:64|stride:32") == "line by line, windows of 64"
    assert (
        reading_of("layout:stream|context:carried|stride:none|rows:8") == "as one stream in 8 rows, the state carried"
    )


def test_some_of_a_list_can_be_chosen(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["language_models", "plan", str(ALL), "--only", "elman", "nplm"])
    with pytest.raises(SystemExit) as left:
        language_models.main()
    assert left.value.code == 0 and capsys.readouterr().out == "nplm-ptb-seed1\nelman-ptb-seed1\n"
    monkeypatch.setattr(sys, "argv", ["language_models", "plan", str(ALL), "--only", "xyzzy"])
    with pytest.raises(SystemExit) as left:
        language_models.main()
    assert "has xyzzy in its name" in str(left.value.code)


def test_outputs_of_a_translation_are_no_texts(tmp_path):
    path = tmp_path / "runs.json"
    path.write_text("{}", "utf-8")
    with pytest.raises(UserError, match="was not written by"):
        collect([path], tmp_path / "results")
