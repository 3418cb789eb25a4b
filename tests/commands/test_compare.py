"""`mallang compare`: runs in one table and one figure, in every form."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import pytest

from commands.running import TINY, Ended, mallang
from mallang.runs.folder import Run


@pytest.fixture(scope="module")
def compared(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trained run, one that has learned little, and an unfinished one."""
    home = tmp_path_factory.mktemp("compared") / "home"
    shutil.copytree(trained.parent.parent, home)
    ended = mallang("train", "transformer", *TINY, "train.steps=2", "--name", "little", cwd=home)
    assert ended.code == 0, ended.err
    shutil.copytree(home / "runs/little", home / "runs/unfinished")
    Run.open(home / "runs/unfinished").update(status="training")
    first = compare(home)
    assert first.code == 0 and "runs/little: translating 20 rows" in first.err, first.err
    assert first.out.splitlines()[0] == "20 rows of valid.tsv, ko → en"
    return home


RUNS = ("runs/little", "runs/transformer", "runs/unfinished")


def compare(home: Path, *arguments: str, runs: tuple[str, ...] = RUNS) -> Ended:
    return mallang("compare", *runs, "--speed", "2", *arguments, cwd=home)


def test_a_plain_table_in_a_pipe_and_a_figure(compared: Path) -> None:
    ended = compare(compared, "--figure", "runs.svg", "--lengths", "5")
    assert ended.code == 0, ended.err
    assert "translating" not in ended.err  # the outputs are there
    assert "\x1b" not in ended.out
    quality = ended.out.split("\n\n")[0].splitlines()
    assert [line.split()[0] for line in quality[1:]] == ["system", "little", "transformer"]
    assert "baseline" in quality[2] and "BLEU by words of the source (rows)" in ended.out
    assert "note: the baseline is little, the lowest BLEU" in ended.out
    assert "note: runs/unfinished was left out: it is not finished" in ended.out
    assert (compared / "runs.svg").read_text("utf-8").count("<path") > 50
    assert "note:" not in compare(compared, "--quiet").out


def test_json_csv_and_markdown_tell_the_same(compared: Path) -> None:
    told = json.loads(compare(compared, "--json").out)
    lines = list(csv.DictReader(io.StringIO(compare(compared, "--csv").out)))
    pages = compare(compared, "--markdown").out
    assert (
        [system["name"] for system in told["systems"]]
        == [line["system"] for line in lines]
        == ["little", "transformer"]
    )
    for system, line in zip(told["systems"], lines, strict=True):
        assert float(line["BLEU"]) == system["scores"]["BLEU"]["mean"]
        assert f"| {system['name']} | {system['scores']['BLEU']['mean']:.2f} " in pages
        assert system["sentences_per_second"] > 0 and system["flops"] > 0
    scored = json.loads((compared / "runs/transformer/scores/test.json").read_text("utf-8"))["scores"]
    assert told["systems"][1]["scores"]["BLEU"]["mean"] == scored[0]["value"]


def test_evaluate_leaves_what_compare_uses(compared: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(compared, home)
    greedy = ("--search", "method=greedy")
    for run in RUNS[:2]:
        assert mallang("evaluate", run, *greedy, cwd=home).code == 0
    assert "translating" not in compare(home, *greedy).err
    assert "translating" in compare(home).err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--json", "--csv"), "exclude each other"),
        (("--split", "valid", "--data", "valid.tsv"), "--split and --data were both given"),
        (("--figure", "runs.jpeg"), "cannot be written as runs.jpeg"),
        (("--figure", "nowhere/runs.png"), "there is no folder nowhere"),
        (("--lengths", "5,x"), "not a list of whole numbers"),
        (("--lengths", "9,5"), "do not rise"),
        (("--metric", "blue"), "no metric 'blue'"),
        (("--metric", "byte"), "translations are not compared by bits per byte"),
        (("--samples", "3"), "samples has no effect on translations"),
        (("--prompt", "나는"), "prompts has no effect on translations"),
        (("--context", "9"), "context has no effect on translations"),
        (("--baseline", "runs/unfinished"), "the baseline runs/unfinished is no finished run"),
        (("--search", "beam"), "has no value"),
        (("--split", "test2016"), "no split 'test2016'"),
    ],
)
def test_bad_options(compared: Path, arguments: tuple[str, ...], message: str) -> None:
    ended = compare(compared, *arguments)
    assert ended.code == 2 and message in ended.err and "Traceback" not in ended.err
    assert ended.out == ""


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        (("runs/transformer", "runs/nothing"), "there is no run folder runs/nothing"),
        (("runs/transformer", "runs/unfinished"), "1 run to compare"),
        (("runs/transformer", "valid.tsv"), "valid.tsv was left out: it is no run folder"),
    ],
)
def test_bad_runs(compared: Path, runs: tuple[str, ...], message: str) -> None:
    ended = compare(compared, runs=runs)
    assert ended.code == 2 and message in ended.err and "Traceback" not in ended.err
