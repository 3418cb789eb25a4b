"""What is told to have been measured: whole files in results/, and a page that says the same."""

import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the benchmarks are not installed
from benchmarks import report  # noqa: E402
from benchmarks.results_page import without_ages  # noqa: E402

KEYS = [
    "system", "recipe", "overrides", "corpus", "direction", "split", "protocol", "metric", "value", "published", "seed",
    "commit", "hardware", "seconds", "signature",
]  # fmt: skip
FILES = sorted((ROOT / "results").glob("*.json"))


def test_a_result_has_the_keys_that_files_must_have():
    assert [field.name for field in fields(report.Result)] == KEYS


def wrong_with(result):
    """What a result lacks or has too much of, one phrase each."""
    if list(result) != KEYS:
        yield "its keys are not the ones of a result"
        return
    if not isinstance(result["value"], int | float) or isinstance(result["value"], bool):
        yield "its value is no number"
    yield from (f"no {key}" for key in ("system", "metric", "protocol", "commit", "hardware") if not result[key])
    kinds = str | int | float | list
    yield from (f"{key} is no plain value" for key in KEYS if not isinstance(result[key], kinds | None))


def test_every_result_is_whole():
    wrong = [f"{path.name}: {told}" for path in FILES for told in wrong_with(json.loads(path.read_text("utf-8")))]
    assert FILES and not wrong, "\n".join(wrong)


def test_what_is_wrong_with_a_result_is_told():
    whole = dict.fromkeys(KEYS, "x") | {"value": 1.5}
    assert list(wrong_with(whole)) == []
    assert list(wrong_with(whole | {"value": True, "commit": ""})) == ["its value is no number", "no commit"]
    assert list(wrong_with(whole | {"seed": {}})) == ["seed is no plain value"]
    assert len(list(wrong_with({"value": 1}))) == 1


def test_what_is_written_from_the_results_is_up_to_date():
    for path, text in report.written().items():
        stands = path.read_text("utf-8") if path.exists() else ""
        assert without_ages(stands) == without_ages(text), f"{path}: python -m benchmarks.report writes it again"
    assert set(report.TABLES.glob("*")) <= set(report.written())


def test_a_result_comes_back_as_it_was_written(tmp_path):
    one = report.Result(system="a|b", metric="speed, MB/s", value=1.5, overrides=["train.steps=2"], corpus="미니월드")
    path = report.write_result("one", one, tmp_path / "results")
    assert path == tmp_path / "results" / "one.json"
    (found,) = report.read_results(path.parent)
    assert found["hardware"] and {key: found[key] for key in ("system", "value", "corpus", "seed")} == {
        "system": "a|b", "value": 1.5, "corpus": "미니월드", "seed": None,
    }  # fmt: skip


def test_results_elsewhere_leave_the_tables_alone(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(report, "write_tables", lambda: written.append("tables"))
    named = [(name, report.Result(system=name, metric="BLEU", value=1.0, corpus="miniworld")) for name in ("a", "b")]
    report.write_results(iter(named), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "b.json"] and not written
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    report.write_results(iter(named), tmp_path)
    assert written == ["tables"]


def test_the_benchmarks_are_listed():
    command = [sys.executable, "-m", "benchmarks", "--list"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert shown.stderr == ""
    names = [line.split()[0] for line in shown.stdout.splitlines()]
    assert names == sorted(names) and {"loader", "memory_5m", "startup", "tokenizer"} <= set(names)
    assert all(len(line.split(maxsplit=1)[1]) > 20 for line in shown.stdout.splitlines())


def test_the_page_about_gradients_says_what_was_measured():
    page = (ROOT / "docs" / "explanation" / "gradients.md").read_text("utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line[:1] == "|"]
    systems = [name.lower() for name in rows[0][1:]]
    told = {row[0]: row[1:] for row in rows[2:] if row[0][0] in "123456789"}
    assert len(told) == 5
    for distance, shares in told.items():
        low, _, high = distance.partition("-")
        for system, share in zip(systems, shares, strict=True):
            path = ROOT / "results" / f"gradients-{system}-{low}-{high or low}.json"
            measured = json.loads(path.read_text("utf-8"))["value"]
            assert abs(float(share) / measured - 1) < 0.03, (system, distance, share, measured)


def test_the_page_about_time_says_what_was_measured():
    page = (
        (ROOT / "docs" / "explanation" / "where-time-goes.md").read_text("utf-8").partition("## Decoding on a CPU")[2]
    )
    rows = [[cell.strip().replace(",", "") for cell in line.strip("|").split("|")] for line in page.splitlines()]
    found = {len(row): [each for each in rows if len(each) == len(row)][2:] for row in rows if len(row) > 2}
    files = {
        "greedy float32": "greedy-{}",
        "greedy int8": "greedy-{}",
        "beam 5 float32": "beam5-{}",
        "beam 5 int8": "beam5-{}",
    }
    results = {value["file"]: value for value in report.read_results()}
    for name, ours, peer, ratio in found[4]:
        base, weights = files[name].format("{}"), name.split()[-1]
        mine = results[f"decoding-cpu-{base.format('mallang')}-{weights}"]["value"]
        theirs = results[f"decoding-cpu-{base.format('ctranslate2')}-{weights}-2x1"]["value"]
        assert (ours, peer, ratio) == (f"{mine:.0f}", f"{theirs:.0f}", f"{mine / theirs:.2f}"), name
    for (
        name,
        before,
        after,
        *_,
    ) in found[6]:
        about = results[f"revision-cpu-{files[name].split('-')[0]}-{name.split()[-1]}"]["protocol"]
        assert f"this code {after}, the older commit {before}," in about, name
    assert len(found[4]) == len(found[6]) == 4
