"""What no one means to type but machines do: odd names, closed streams, full memory, damaged files.

Every command that there is gets these checks: what it takes is read off its arguments and options.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from commands.running import TINY, Ended, environment, mallang, write_corpus
from mallang.commands.main import make_app

ODD = os.fsdecode("한글".encode("cp949"))
"""A name that is not UTF-8, as Python has it."""
LONG = "x" * 300
ESCAPE = "\x1b[31m물\x9b2J\x07"
"""A text that would recolor, clear and ring a terminal."""
NEEDED = {"export": ("--to", "onnx"), "prompt": ("--text", "물"), "answer": ("물", "--context", "물 water")}
"""What a command asks for besides a run."""


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command, and what it is called."""
    for name, below in getattr(command, "commands", {}).items():
        yield from leaves(below, (*path, name))
    if not hasattr(command, "commands"):
        yield path, command


def is_run(parameter: Any) -> bool:
    """Whether this is where a command is given a run."""
    return parameter.name == "run" or (parameter.name == "runs" and parameter.param_type_name == "argument")


COMMANDS = dict(leaves(get_command(make_app())))
OF_RUNS = [path for path, found in COMMANDS.items() if any(is_run(each) for each in found.params)]
OF_TEXTS = [path for path in OF_RUNS if {"texts", "prompts", "text"} & {each.name for each in COMMANDS[path].params}]
SEEDED = [path for path, found in COMMANDS.items() if "--seed" in [name for each in found.params for name in each.opts]]


def called(path: tuple[str, ...], run: str | Path, *more: str) -> list[str]:
    """The arguments of a command on a run, whatever else it asks for."""
    arguments = [each for each in COMMANDS[path].params if each.param_type_name == "argument"]
    given = [str(run) if is_run(each) else each.name for each in arguments if each.required]
    if path in OF_RUNS and str(run) not in given:
        given += [str(run)] if any(map(is_run, arguments)) else ["--run", str(run)]
    return [*path, *given, *NEEDED.get(path[-1], ()), *more]


def refused(ended: Ended, *words: str) -> None:
    """The command ended with one message that has all these words."""
    assert "Traceback" not in ended.err and "this is a bug" not in ended.err, ended.err
    assert ended.code == 2, ended
    for word in words:
        assert word in ended.err, f"{word!r} is not in:\n{ended.err}"


def named(path: tuple[str, ...]) -> str:
    return "-".join(path)


# Streams


@pytest.mark.parametrize("path", COMMANDS, ids=named)
def test_closed_streams_are_as_dev_null(path: tuple[str, ...], tmp_path: Path) -> None:
    helped = mallang(*path, "--help", cwd=tmp_path, closed=("stdin", "stdout"))
    assert (helped.code, helped.out, helped.err) == (0, "", "")
    wrong = mallang(*path, "--no-such-option", cwd=tmp_path, closed=("stdout", "stderr"))
    assert (wrong.code, wrong.out, wrong.err) == (2, "", "")


def test_what_is_printed_to_a_closed_stream_lands_in_no_file(tmp_path: Path) -> None:
    """The next file that is opened would take the number of the closed one."""
    write_corpus(tmp_path, rows=40)
    train = ("train", "transformer", *TINY, "train.steps=2")
    ended = mallang(*train, cwd=tmp_path, closed=("stdin", "stdout", "stderr"))
    assert (ended.code, ended.out, ended.err) == (0, "", "")
    run = tmp_path / "runs" / "transformer"
    assert json.loads((run / "run.json").read_text("utf-8"))["status"] == "finished"
    for line in (run / "metrics.jsonl").read_text("utf-8").splitlines():
        json.loads(line)
    shell = f'"{sys.executable}" -m mallang recipes <&- >&- 2>&-'
    assert subprocess.run(["bash", "-c", shell], cwd=tmp_path).returncode == 0, "a new Python says the same"


def test_without_standard_input_there_are_no_texts(trained: Path, writer: Path) -> None:
    ended = mallang("translate", trained, cwd=trained, closed=("stdin",))
    assert (ended.code, ended.out) == (0, "")
    assert "there was nothing to translate" in ended.err
    assert mallang("generate", writer, "--max-tokens", "3", cwd=writer, closed=("stdin",)).code == 0


@pytest.mark.parametrize("streams", ["| true", "2>&1 | true", "2> >(true)"])
def test_a_reader_that_has_gone_is_no_bug(streams: str, tmp_path: Path) -> None:
    (tmp_path / "many.sh").write_text(
        f'sleep 0.3; "{sys.executable}" -m mallang recipes "$1" {streams}\necho "${{PIPESTATUS[0]}}" >> code\n', "utf-8"
    )
    for name in ("transformer-miniworld", "no-such-recipe"):
        ran = subprocess.run(["bash", "many.sh", name], cwd=tmp_path, capture_output=True, text=True)
        assert "Traceback" not in ran.stderr and "BrokenPipe" not in ran.stderr
    codes = {int(line) for line in (tmp_path / "code").read_text("utf-8").split()}
    assert codes <= {0, 2, 141} and 1 not in codes
    if streams != "2> >(true)":
        assert 141 in codes, "the documented code"


@pytest.mark.parametrize("seconds", [0.06, 0.12, 0.25, 0.5, 1.0])
def test_an_early_interrupt_is_one_line(seconds: float, tmp_path: Path) -> None:
    """While Python still imports: the first of these moments lie before torch, the last within it."""
    script = "import time; import mallang; print('ready', flush=True); from mallang.__main__ import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", script, "train", "transformer-miniworld"],
        cwd=tmp_path, env=environment(tmp_path, {}), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err and err.endswith("mallang: stopped\n")


# Names


@pytest.mark.parametrize("path", OF_RUNS, ids=named)
def test_every_command_refuses_a_run_that_cannot_be(path: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no run", "utf-8")
    for name, said in ((LONG, "too long"), ("file", "run"), (ODD, r"\udcc7"), ("\x1b[31mred", r"\u001b")):
        ended = mallang(*called(path, name), cwd=tmp_path, text="물\twater\n")
        refused(ended, "" if path[-1] == "compare" else said)
        assert "\x1b" not in ended.err


@pytest.fixture(scope="module")
def odd(trained: Path, writer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with names that are not UTF-8: a run for translation, a language model, files of text."""
    home = tmp_path_factory.mktemp("odd")
    shutil.copytree(trained.parent.parent, home, dirs_exist_ok=True)
    shutil.copytree(trained, home / f"{ODD}-pairs")
    shutil.copytree(writer, home / f"{ODD}-text")
    shutil.copy(home / "valid.tsv", home / f"{ODD}.tsv")
    (home / f"{ODD}.txt").write_text("민수는 물을 본다.\n", "utf-8")
    shutil.copy(writer.parent.parent / "train.txt", home / "train.txt")
    return home


def test_names_that_are_not_utf8_are_no_hindrance(odd: Path) -> None:
    pairs, text = f"{ODD}-pairs", f"{ODD}-text"
    plain = mallang("translate", "runs/transformer", "민수는 물을 본다.", cwd=odd)
    assert plain.code == 0
    for same in (("translate", pairs, "민수는 물을 본다."), ("translate", "runs/transformer", "--file", f"{ODD}.txt")):
        assert mallang(*same, cwd=odd).out == plain.out
    for verb in (
        ("generate", text, "--file", f"{ODD}.txt", "--max-tokens", "3"),
        ("score", text, "--file", f"{ODD}.txt"),
        ("evaluate", pairs, "--data", f"{ODD}.tsv"),
        ("novelty", "--file", f"{ODD}.txt", "--corpus", f"{ODD}.txt"),
        ("align", pairs, "--file", f"{ODD}.tsv"),
        ("inspect", pairs, "물", "--out", f"{ODD}.html"),
        ("data", "check", f"{ODD}.tsv"),
        ("doctor", pairs),
        ("compare", pairs, "runs/transformer", "--figure", f"{ODD}.svg"),
    ):
        ended = mallang(*verb, cwd=odd)
        assert ended.code == 0 and "Traceback" not in ended.err, (verb, ended.err)
    assert (odd / f"{ODD}.html").is_file() and (odd / f"{ODD}.svg").is_file()


def test_a_run_may_be_called_anything_and_a_recipe_is_utf8(odd: Path) -> None:
    quick = ("train", "transformer", *TINY, "train.steps=2")
    ended = mallang(*quick, "--name", f"{ODD}-new", cwd=odd)
    assert ended.code == 0, ended.err
    assert mallang("translate", odd / "runs" / f"{ODD}-new", "물", cwd=odd).code == 0
    started = ("train", f"{ODD}-pairs", "--from", f"{ODD}-pairs", "train.steps=2", "--name", "from")
    assert mallang(*started, cwd=odd).code == 0
    refused(mallang(*quick, f"data.train={ODD}.tsv", "--name", "no", cwd=odd), "not UTF-8", "rename")
    assert not (odd / "runs" / "no").exists()


def test_a_recipe_whose_name_is_not_utf8(tmp_path: Path) -> None:
    write_corpus(tmp_path, rows=40)
    (tmp_path / f"{ODD}.toml").write_text('[model]\nname = "transformer"\n', "utf-8")
    ended = mallang("train", f"{ODD}.toml", *TINY, "train.steps=2", cwd=tmp_path)
    assert ended.code == 0, ended.err


# Texts


@pytest.mark.parametrize("path", OF_TEXTS, ids=named)
def test_no_text_moves_the_cursor_of_a_terminal(path: tuple[str, ...], trained: Path, writer: Path) -> None:
    for run in (trained, writer):
        ended = mallang(*called(path, run), cwd=run.parent.parent, text=f"{ESCAPE}\n")
        given = mallang(*called(path, run, ESCAPE), cwd=run.parent.parent)
        for shown in (ended.out, ended.err, given.out, given.err):
            assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown), shown
            assert "Traceback" not in shown


def test_what_a_model_has_learned_is_printed_safely(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("\x1b[31m a b\n" * 50, "utf-8")
    (tmp_path / "valid.txt").write_text("\x1b[31m a b\n", "utf-8")
    train = ("train", "ngram", "text.unit=char", "data.train=train.txt", "data.valid=valid.txt")
    assert mallang(*train, cwd=tmp_path).code == 0
    shown = mallang("generate", "runs/ngram", "--max-tokens", "9", cwd=tmp_path)
    assert shown.code == 0 and "\x1b" not in shown.out and r"\u001b" in shown.out
    line = mallang("generate", "runs/ngram", "--max-tokens", "9", "--json", cwd=tmp_path)
    assert "\x1b" in json.loads(line.out)["text"], "JSON is exact"
    found = mallang("novelty", "\x1b[31m a b", "--corpus", "train.txt", cwd=tmp_path)
    assert found.code == 0 and "\x1b" not in found.out and r"⟦\u001b" in found.out


# Numbers


@pytest.mark.parametrize("path", SEEDED, ids=named)
def test_a_negative_seed_is_refused(path: tuple[str, ...], writer: Path) -> None:
    refused(mallang(*called(path, writer, "--seed", "-1"), cwd=writer.parent.parent), "--seed")


def test_other_seeds_below_zero(trained: Path, writer: Path) -> None:
    home = trained.parent.parent
    for wrong in (("seed=-1",), ("--seeds", "1,-1")):
        quick = ("train", "transformer", *TINY, "train.steps=2", "--name", "seeds")
        refused(mallang(*quick, *wrong, cwd=home), "seed", "negative")
    refused(mallang("generate", writer, "--search", "seed=-1", cwd=home), "decoding.seed is -1")
    assert not list((home / "runs").glob("seeds*")), "not even the first of several seeds was trained with"


def test_beams_are_refused_before_the_work(trained: Path) -> None:
    for beams in ("0", "1,-2"):
        ended = mallang("search-error", trained, "--beams", beams, cwd=trained.parent.parent)
        refused(ended, f"--beams {beams}")
        assert "texts of" not in ended.err, "nothing was searched for before"


def test_more_than_the_memory_holds(trained: Path, tmp_path: Path) -> None:
    """Each of these asks for terabytes; all are refused before anything is computed."""
    write_corpus(tmp_path, rows=40)
    quick = ("train", "transformer", *TINY, "train.steps=2")
    for wrong, said in (
        (("model.dim=400000", "model.hidden_dim=4000000"), "parameters"),
        (("text.vocabulary=9999999999",), "too large"),
    ):
        refused(mallang(*quick, *wrong, cwd=tmp_path), said)
    home = trained.parent.parent
    for beam in ("beam=1000000000", "nbest=1000000000", "beam=100000000000000"):
        more = ("--search", "beam=1000000000") if beam.startswith("nbest") else ()
        refused(mallang("translate", trained, "물", "--search", beam, *more, cwd=home), "GB of memory", "beam=5")


# Files that are not what they should be


@pytest.mark.parametrize("path", OF_RUNS, ids=named)
def test_every_command_refuses_a_damaged_run_json(path: tuple[str, ...], run: Path) -> None:
    right = json.loads((run / "run.json").read_text("utf-8"))
    for content in (json.dumps({**right, "tokens": "many"}), "[" * 100_000):
        (run / "run.json").write_text(content, "utf-8")
        ended = mallang(*called(path, run), cwd=run.parent.parent, text="물\twater\n")
        refused(ended, "run.json is damaged")


def test_what_is_nested_too_deeply(run: Path) -> None:
    home, deep = run.parent.parent, "[" * 100_000
    (home / "deep.toml").write_text(f"a = {deep}", "utf-8")
    (home / "deep.jsonl").write_text(deep + "\n", "utf-8")
    refused(mallang("train", "deep.toml", cwd=home), "deep.toml is not TOML")
    refused(mallang("train", "transformer", f"model.layers={'[' * 10_000}", "--name", "n", cwd=home), "not a value")
    refused(mallang("data", "check", "deep.jsonl", cwd=home), "not JSON", "line 1")
    for name in ("text.json", "tokenizer.json"):
        before = (run / name).read_bytes()
        (run / name).write_text(deep, "utf-8")
        refused(mallang("translate", run, "물", cwd=home), name)
        (run / name).write_bytes(before)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("def (:\n", "line 1"),
        ("x = 1\nraise RuntimeError('no luck')\n", "line 2"),
        ("import no_such_module\n", "No module named"),
        ("import sys\nsys.exit(3)\n", "SystemExit: 3"),
        ("def f(): f()\nf()\n", "RecursionError"),
        ("", "lacks Config and Model"),
        ("Config = 3\nModel = 4\n", "no dataclass"),
        ("class Config: pass\nclass Model: pass\n", "no dataclass"),
        (
            "from dataclasses import dataclass\n@dataclass\nclass Config: pass\nclass Model: pass\n",
            "does not declare whether it reads a source",
        ),
    ],
)
def test_a_plugin_that_is_broken(trained: Path, tmp_path: Path, content: str, said: str) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(content, "utf-8")
    refused(mallang("translate", trained, "물", "--plugin", plugin, cwd=tmp_path), "mine.py", said)
    refused(mallang("train", "mine", "--plugin", "mine.py", cwd=tmp_path), "mine.py", said)


def test_pipes_are_read_once_and_used_again(tmp_path: Path) -> None:
    """`data.train=<(command)` of a shell: rows are read several times, a pipe gives them once."""
    write_corpus(tmp_path, rows=40)
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["bash", "-c", "cat train.tsv > pipe"], cwd=tmp_path):
        ended = mallang("train", "transformer", *TINY, "data.train=pipe", "train.steps=2", cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert "40 read, 40 kept" in ended.err


def test_folders_in_place_of_files(trained: Path) -> None:
    home = trained.parent.parent
    (home / "folder").mkdir(exist_ok=True)
    for wrong in (("--file", "folder"), ("--lexicon", "folder", "--replace-unknown", "물"), ("--plugin", "folder")):
        refused(mallang("translate", trained, *wrong, cwd=home), "folder")
    for wrong in (("--runs", "train.tsv"), ("data.train=folder", "--name", "x")):
        refused(mallang("train", "transformer", *TINY, *wrong, cwd=home))
