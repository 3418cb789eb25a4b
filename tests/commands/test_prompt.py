"""`mallang prompt`: answers and tables by shots, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from commands.running import Ended, mallang
from mallang import load
from mallang.commands import prompt
from mallang.errors import UserError

ROWS = "text\tlabel\n민수는 물을 산다.\t물\n지호는 책을 본다.\t책\n유나는 물을 본다.\t물\n소라는 책을 산다.\t책\n"
CLASSIFY = ("--examples", "rows.tsv", "--template", "{text} {label}", "--separator", "\\n")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "rows.tsv").write_text(ROWS, "utf-8")
    return tmp_path


def refused(ended: Ended, *words: str) -> None:
    assert ended.code == 2 and "Traceback" not in ended.err, ended
    for word in words:
        assert word in ended.err, ended.err


def test_texts_are_answered(writer: Path, home: Path) -> None:
    ended = mallang("prompt", writer, *CLASSIFY, "--text", "소라는 물을 산다.", "--shots", "2", cwd=home)
    assert ended.code == 0 and ended.out.strip() in ("물", "책"), ended.err
    told = mallang("prompt", writer, *CLASSIFY, "--text", "소라는 물을 산다.", "--shots", "2", "--json", cwd=home)
    found = json.loads(told.out)
    assert found["label"] == ended.out.strip() == max(found["scores"], key=found["scores"].__getitem__)
    assert found["prompt"].endswith("소라는 물을 산다. ") and found["prompt"].count("\n") == 2 and found["shots"] == 2
    zero = mallang("prompt", writer, "--text", "물", "--labels", "물,책", "--template", "{text} {label}", cwd=home)
    assert zero.code == 0 and zero.out.strip() in ("물", "책"), zero.err
    read = mallang("prompt", writer, "--text", "물", *CLASSIFY[:-2], "--json", cwd=home)  # labels are those of the rows
    assert json.loads(read.out)["label"] == zero.out.strip() and json.loads(read.out)["prompt"] == "물 ", read


def test_what_the_model_does_not_know_is_reported(writer: Path, home: Path) -> None:
    asked = ("prompt", writer, "--labels", "물,책", "--template", "{text} {label}")
    ended = mallang(*asked, "--text", "😀 물을", cwd=home)
    assert ended.code == 0 and "note: '😀 물을': unknown to the model, and read as <unk>: '😀'" in ended.err, ended.err
    assert mallang(*asked, "--text", "물을", cwd=home).err == ""
    assert mallang(*asked, "--text", "😀 물을", "--quiet", cwd=home).err == ""
    assert json.loads(mallang(*asked, "--text", "😀 물을", "--json", cwd=home).out)["unknown"] == ["😀"]
    (home / "odd.tsv").write_text("text\tlabel\n😀 물을\t물\n책을\t책\n", "utf-8")
    ended = mallang(*asked, "--data", "odd.tsv", cwd=home)
    assert ended.code == 0 and "tokens are unknown to the model, and read as <unk>: '😀'" in ended.err, ended.err


def test_rows_are_scored_by_runs_and_shots(writer: Path, home: Path) -> None:
    pytest.importorskip("matplotlib")
    arguments = ("prompt", writer, *CLASSIFY, "--data", "rows.tsv", "--shots", "0,2", "--figure", "shots.svg")
    ended = mallang(*arguments, cwd=home)
    assert ended.code == 0, ended.err
    head, row = ended.out.splitlines()
    assert head.split("\t") == ["accuracy", "parameters", "0 shots", "2 shots"]
    assert row.split("\t")[0] == "gpt" and row.count("[") == 2
    assert (home / "shots.svg").stat().st_size > 1000
    found = json.loads(mallang(*arguments[:-2], "--json", "--calibrate", "prior", "--limit", "3", cwd=home).out)
    assert [each["shots"] for each in found] == [0, 2]
    assert found[0]["scores"][0]["count"] == 3 and "calibration:prior" in found[0]["scores"][0]["signature"]


def test_answers_are_written(writer: Path, home: Path) -> None:
    (home / "pairs.tsv").write_text("민수는\t물을 산다.\n지호는\t책을 본다.\n", "utf-8")
    arguments = ("prompt", writer, "--examples", "pairs.tsv", "--template", "translate", "--shots", "1")
    ended = mallang(*arguments, "--text", "유나는", "--search", "max_length=5", cwd=home)
    assert ended.code == 0, ended.err
    written = ended.out.removesuffix("\n")
    assert written and "\n" not in written
    told = json.loads(mallang(*arguments, "--text", "유나는", "--search", "max_length=5", "--json", cwd=home).out)
    assert told["label"] == written and told["scores"] == {} and told["shots"] == 1
    assert told["prompt"] in ("민수는 = 물을 산다.\n유나는 = ", "지호는 = 책을 본다.\n유나는 = ")
    # It is what the model continues with after that prompt.
    alone = load(writer, device="cpu").generate(told["prompt"].rstrip(" "), method="greedy", max_tokens=5)
    assert alone.output.strip() == written
    scored = mallang(*arguments, "--data", "pairs.tsv", "--json", cwd=home)
    (found,) = json.loads(scored.out)
    assert {"exact match", "BLEU"} <= {score["name"] for score in found["scores"]}, found
    assert all(score["count"] == 2 for score in found["scores"]), found


def test_examples_are_written_out_for_fine_tuning(writer: Path, home: Path) -> None:
    ended = mallang("prompt", writer, *CLASSIFY[:-2], "--completed", "lines.txt", cwd=home)
    assert ended.code == 0 and "--from RUN data.train=lines.txt" in ended.err, ended.err
    assert (home / "lines.txt").read_text("utf-8").splitlines()[0] == "민수는 물을 산다. 물"


def test_shots_that_do_not_fit_are_told(writer: Path, home: Path) -> None:
    (home / "many.tsv").write_text(
        ROWS + "".join(f"민수는 물을 산다 {'물을 ' * n}\t물\n" for n in range(1, 20)), "utf-8"
    )
    arguments = ("prompt", writer, "--examples", "many.tsv", "--template", "{text} {label}", "--shots", "20")
    ended = mallang(*arguments, "--text", "유나는 물을 본다.", cwd=home)
    assert ended.code == 0 and "did not fit into the context" in ended.err, ended.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["nothing to answer", "--text TEXT"]),
        (["--text", "물"], ["two labels"]),
        (["--text", "물", "--shots", "2"], ["no examples", "--examples FILE"]),
        (["--text", "물", "--labels", "물,물"], ["different words"]),
        (["--text", "물", "--labels", "물,漢字"], ["no token for the label '漢字'"]),
        (["--text", "물", "--labels", "물,책", "--shots", "few"], ["--shots 'few'", "0,1,2,4,8"]),
        (["--text", "물", "--labels", "물,책", "--calibrate", "lenght"], ["calibration 'lenght'", "length"]),
        (["--text", "물", "--labels", "물,책", "--relabel", "물"], ["2 labels need as many"]),
        (["--text", "물", "--labels", "물,책", "--search", "beam=2"], ["--search has no effect"]),
        (["--text", "물", "--data", "rows.tsv"], ["answered, not scored"]),
        (["--text", "물", "--template", "{text}"], ["{label} once"]),
        (["--text", "물", "--template", "tdlr"], ["no template 'tdlr'", "tldr"]),
        (["--data", "rows.tsv", "--split", "test"], ["--split test has no effect"]),
        (["--data", "rows.tsv", "--corpus", "miniworld-topics"], ["both given"]),
        (["--data", "rows.tsv", "--examples", "rows.tsv", "--shots", "9"], ["9 examples are asked for"]),
        (["--data", "rows.tsv", "--limit", "0"], ["nothing to score"]),
        (["--data", "rows.tsv", "--figure", "shots.gif"], ["shots.gif", ".png"]),
        (["--data", "row.tsv"], ["no file row.tsv", "rows.tsv"]),
        (["--text", "물", "--labels", "물,책", "--template", "translate"], ["--labels has no effect", "written"]),
        (["--text", "물", "--labels", "물,책", "--examples", "rows.tsv"], ["--examples rows.tsv has no effect"]),
        (["--text", "물", "--template", "translate", "--corpus", "miniworld-topics"], ["--corpus", "no effect"]),
        (["--examples", "rows.tsv", "--search", "beam=2"], ["--search has no effect"]),
        (["--corpus", "miniworld-topics", "--columns", "ko,topic"], ["no column 'topic'"]),
    ],
)
def test_what_cannot_be_done(writer: Path, home: Path, arguments: list[str], words: list[str]) -> None:
    refused(mallang("prompt", writer, *arguments, cwd=home), *words)


@pytest.mark.parametrize(
    "option",
    [
        "--text=물", "--data=rows.tsv", "--corpus=miniworld-topics", "--split=test", "--separator=/",
        "--instruction=골라라",
        "--labels=물,책", "--relabel=물,책", "--shots=2", "--calibrate=prior", "--limit=0", "--figure=a.svg",
        "--search=beam=2", "--json",
    ],
)  # fmt: skip
def test_what_has_no_effect_on_examples_written_out(home: Path, option: str) -> None:
    app = typer.Typer()
    app.command()(prompt.command)
    arguments = ["run", "--examples", str(home / "rows.tsv"), "--completed", str(home / "lines.txt"), option]
    ended = CliRunner().invoke(app, arguments).exception
    assert isinstance(ended, UserError) and f"{option.partition('=')[0]} has no effect with" in str(ended), ended
    assert not (home / "lines.txt").exists()


def test_a_run_of_another_task(trained: Path) -> None:
    ended = mallang("prompt", trained, "--text", "물", "--labels", "물,책", cwd=trained)
    refused(ended, "trained for translation", "a run for language modeling")
