"""`mallang generate`: prompts from everywhere, texts as they grow, and what it refuses."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

import mallang as package
from commands.running import as_served, environment, mallang

PROMPTS = ["민수는", "", "지호는 책을"]


def test_prompts_come_from_arguments_a_file_and_standard_input(writer: Path, tmp_path: Path) -> None:
    text = "".join(f"{prompt}\n" for prompt in PROMPTS)
    (tmp_path / "prompts.txt").write_text(text, encoding="utf-8")
    ways = [
        mallang("generate", writer, *PROMPTS, cwd=tmp_path),
        mallang("generate", writer, "--file", "prompts.txt", cwd=tmp_path),
        mallang("generate", writer, "--file", "-", cwd=tmp_path, text=text),
        mallang("generate", writer, cwd=tmp_path, text=text),
    ]
    assert [way.code for way in ways] == [0] * 4, ways[0].err
    assert len({way.out for way in ways}) == 1
    lines = ways[0].out.splitlines()
    assert len(lines) == 3 and all(line.startswith(prompt) for line, prompt in zip(lines, PROMPTS, strict=True))
    alone = mallang("generate", writer, cwd=tmp_path)
    assert alone.out.strip() and alone.code == 0
    assert alone.out == mallang("generate", writer, "", cwd=tmp_path).out


def test_json_tells_everything(writer: Path) -> None:
    ended = mallang("generate", writer, "민수는", "물漢", "--json", "-n", "3", "--temperature", "0.7", cwd=writer)
    first, second = map(json.loads, ended.out.splitlines())
    assert list(first) == ["input", "output", "score", "tokens", "nbest", "text", "finished"]
    assert first["text"] == first["input"] + first["output"] and len(first["nbest"]) == 3
    (answer,) = as_served(writer, "generate", ["민수는"], nbest=3, temperature=0.7, method="sampling")
    assert set(answer) == {*first, "token_scores"} and answer["text"].startswith("민수는")
    assert first["nbest"][0]["output"] == first["output"] and first["nbest"][0]["score"] == first["score"] < 0
    assert "漢" in second["note"] and not ended.err
    shown = mallang("generate", writer, "민수는", "물漢", "-n", "3", "--temperature", "0.7", "--scores", cwd=writer)
    rows = [line.split("\t") for line in shown.out.splitlines()]
    assert [row[1] for row in rows[:3]] == [f"민수는{each['output']}" for each in first["nbest"]]
    assert float(rows[0][0]) == pytest.approx(first["score"], abs=1e-4)
    assert "note: '물漢': unknown to the model" in shown.err


@pytest.mark.parametrize("method", ["greedy", "beam", "sampling", "best-first"])
def test_every_method_scores_as_the_model_does(writer: Path, method: str) -> None:
    options = ["--search", "max_expansions=50"] if method == "best-first" else []
    (line,) = mallang("generate", writer, "유나는", "--method", method, "--json", *options, cwd=writer).out.splitlines()
    found = json.loads(line)
    assert found["finished"]
    (line,) = mallang("score", writer, found["text"], "--json", cwd=writer).out.splitlines()
    scored = json.loads(line)
    assert scored["tokens"][-1 - len(found["tokens"]) : -1] == found["tokens"]
    assert sum(scored["token_scores"][-1 - len(found["tokens"]) :]) == pytest.approx(found["score"], abs=1e-3)


def test_lines_seeds_and_stop_strings(writer: Path) -> None:
    four = mallang("generate", writer, "--lines", "4", "--seed", "3", cwd=writer)
    assert len(four.out.splitlines()) == 4 and four.out.count(".") == 4
    assert mallang("generate", writer, "--lines", "4", "--seed", "3", cwd=writer).out == four.out
    assert mallang("generate", writer, "--lines", "4", "--seed", "4", cwd=writer).out != four.out
    stopped = mallang("generate", writer, "--lines", "4", "--seed", "3", "--stop", ".\n", cwd=writer)
    assert stopped.out.strip() == four.out.splitlines()[0].rstrip(".")
    short = mallang("generate", writer, "민수는", "--max-tokens", "2", "--json", cwd=writer)
    assert len(json.loads(short.out)["tokens"]) <= 2
    two = mallang("generate", writer, "민수는", "-n", "2", "--lines", "2", "--no-echo", cwd=writer)
    assert len(two.out.split("\n\n")) == 2 and "민수는\n" not in two.out


def test_a_stream_is_the_same_text(writer: Path) -> None:
    options = ["민수는", "--lines", "3", "--seed", "5"]
    whole = mallang("generate", writer, *options, cwd=writer)
    assert mallang("generate", writer, *options, "--stream", cwd=writer).out == whole.out
    bare = mallang("generate", writer, *options, "--stream", "--no-echo", cwd=writer)
    assert f"민수는{bare.out}" == whole.out


def test_a_terminal_shows_the_text_as_it_grows(writer: Path, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "mallang", "generate", str(writer), "--lines", "40", "--seed", "5"]
    env = environment(tmp_path, {"PYTHONUNBUFFERED": None})
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, cwd=tmp_path, env=env)
    os.close(theirs)
    bits = []
    while process.poll() is None or select.select([ours], [], [], 0)[0]:
        if select.select([ours], [], [], 0.05)[0]:
            try:
                bits.append((time.monotonic(), os.read(ours, 4096)))
            except OSError:  # the terminal is closed
                break
    assert process.wait() == 0
    text = b"".join(bit for _, bit in bits).decode().replace("\r\n", "\n")
    assert text == mallang("generate", writer, "--lines", "40", "--seed", "5", cwd=tmp_path).out
    assert len(bits) > 10


def test_from_python(writer: Path) -> None:
    model = package.load(writer)
    one = model.generate("민수는", seed=2)
    assert str(one) == one.text == "".join(model.write("민수는", seed=2))
    many = model.generate(["민수는", "지호는"], method="beam", max_tokens=20)
    assert [each.input for each in many] == ["민수는", "지호는"]
    perplexity = model.perplexity(["민수는 사과를 먹는다.", "지호는 책을 본다."])
    assert 1 < perplexity["token"].value < 10


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["민수는", "--method", "beam", "--temperature", "0.5"], "has no effect on the method beam"),
        (["민수는", "--search", "beam=3"], "has no effect on the method sampling"),
        (["민수는", "--seed", "3", "--search", "seed=2"], "--seed and --search seed say the same"),
        (["민수는", "--max-tokens", "3", "--search", "max_length=2"], "--max-tokens and --search max_length"),
        (["민수는", "--json", "--no-echo"], "--no-echo has no effect"),
        (["민수는", "--json", "--stream"], "--stream prints a text as it grows"),
        (["민수는", "지호는", "--stream"], "one text as it grows, not 2"),
        (["민수는", "--stream", "--method", "beam"], "not 1 of beam"),
        (["민수는", "--stop", "漢"], "cannot spell"),
        (["민수는", "--file", "empty.txt"], "both given"),
        (["--file", "empty.txt"], "there is no prompt"),
        (["--file", "missing.txt"], "missing.txt"),
        (["--lines", "2", "-n", "2", "--method", "beam"], "can be sampled"),
        (["--method", "beem"], "did you mean beam"),
        (["--temperature", "0"], "must be above 0"),
        (["--top-p", "1.5"], "at most 1"),
    ],
)
def test_bad_input(writer: Path, tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "empty.txt").touch()
    ended = mallang("generate", writer, *arguments, cwd=tmp_path)
    assert ended.code == 2 and ended.err.startswith("mallang: ") and "Traceback" not in ended.err
    assert message in ended.err and not ended.out


def test_the_right_verb_is_named(writer: Path, trained: Path) -> None:
    wrong = mallang("generate", trained, "물", cwd=trained)
    assert wrong.code == 2 and "trained for translation" in wrong.err and "`mallang translate`" in wrong.err
    other = mallang("translate", writer, "물", cwd=writer)
    assert other.code == 2 and "`mallang generate`" in other.err


def test_scores_and_json_give_both(writer: Path) -> None:
    asked = ("generate", writer, "민수는", "--method", "greedy", "--json")
    both, alone = (json.loads(mallang(*asked, *more, cwd=writer).out) for more in (["--scores"], []))
    assert sum(both.pop("token_scores")) == pytest.approx(both["score"], abs=1e-5) and both == alone
