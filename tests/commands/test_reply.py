"""`mallang reply`: arguments, lines of standard input, a talk at a terminal; runs of other tasks are refused."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from commands.running import TINY, environment, mallang
from mallang.commands import reply
from mallang.tasks import translator
from mallang.tasks.dialogue import Verbs

TALK = [
    ("안녕", "안녕하세요."),
    ("배고파", "뭐 좀 챙겨 드세요."),
    ("피곤해", "푹 쉬세요."),
    ("심심해", "같이 놀아요."),
]


@pytest.fixture(scope="module")
def chatbot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that knows four answers."""
    home = tmp_path_factory.mktemp("chatbot")
    lines = "".join(f"{said}\t{answer}\n" for said, answer in TALK)
    (home / "train.tsv").write_text(f"question\tanswer\n{lines * 8}", "utf-8")
    (home / "valid.tsv").write_text(f"question\tanswer\n{lines}", "utf-8")
    columns = ("task.name=dialogue", "data.source=question", "data.target=answer", "train.steps=60")
    ended = mallang("train", "transformer", *TINY, *columns, "--name", "chat", cwd=home)
    assert ended.code == 0, ended.err
    return home / "runs" / "chat"


def test_it_answers(chatbot: Path) -> None:
    ended = mallang("reply", chatbot, *(said for said, _ in TALK), cwd=chatbot)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == [answer for _, answer in TALK]


def test_lines_of_standard_input_are_answered_one_by_one(chatbot: Path) -> None:
    ended = mallang("reply", chatbot, "--json", cwd=chatbot, text="배고파\n\n안녕\n")
    assert ended.code == 0, ended.err
    told = [json.loads(line) for line in ended.out.splitlines()]
    assert [one["output"] for one in told] == ["뭐 좀 챙겨 드세요.", "", "안녕하세요."]
    assert told[0]["input"] == "배고파" and told[0]["score"] < 0


def test_an_empty_pipe_has_no_answers(chatbot: Path) -> None:
    ended = mallang("reply", chatbot, cwd=chatbot)
    assert (ended.code, ended.out, ended.err) == (0, "", "note: there was nothing to answer\n")


def test_lines_of_standard_input_are_answered_together(
    chatbot: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    groups: list[int] = []

    def search(self: Verbs, texts: Sequence[Any], *given: Any, **named: Any) -> Any:
        groups.append(len(texts))
        return translator.Verbs.search(self, texts, *given, **named)

    monkeypatch.setattr(Verbs, "search", search)
    monkeypatch.setattr("mallang.commands.reply.read_texts", lambda texts, file: iter(said for said, _ in TALK))
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: False))
    reply.command(chatbot)
    assert groups == [len(TALK)]
    assert capsys.readouterr().out.splitlines() == [answer for _, answer in TALK]
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    reply.command(chatbot, json=True)  # someone at the keyboard waits for every answer
    assert groups == [len(TALK), 1, 1, 1, 1]


def test_varied_answers_differ_from_turn_to_turn_and_come_again_with_their_seed(chatbot: Path) -> None:
    options = ("--varied", "--search", "temperature=5.0", "--search", "top_p=1.0", "--search", "max_length=8")
    first, again, other = (
        mallang("reply", chatbot, *options, "--search", f"seed={seed}", cwd=chatbot, text="배고파\n" * 5)
        for seed in (1, 1, 100)
    )
    assert first.code == 0 and first.out == again.out != other.out
    assert len(set(first.out.splitlines())) > 1
    three = mallang("reply", chatbot, "배고파", *options, "--nbest", "3", "-q", cwd=chatbot)
    assert len(three.out.splitlines()) == 3


def test_a_talk_ends_with_an_empty_line_or_the_end_of_the_input(chatbot: Path) -> None:
    for last in ("\n", "\x04"):
        ours, theirs = pty.openpty()
        env = environment(chatbot, {"TERM": "dumb"})
        talk = subprocess.Popen(
            [sys.executable, "-m", "mallang", "reply", str(chatbot)],
            stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, cwd=chatbot,
        )  # fmt: skip
        os.close(theirs)
        os.write(ours, f"배고파\n안녕\n{last}".encode())
        out, err = talk.communicate(timeout=300)
        os.close(ours)
        assert talk.returncode == 0, err
        assert "  뭐 좀 챙겨 드세요.\n" in out and "  안녕하세요.\n" in out
        assert "an empty line or Ctrl-D ends" in err


def test_a_chatbot_is_no_translator_and_the_other_way_round(chatbot: Path, trained: Path) -> None:
    ended = mallang("reply", trained, "안녕", cwd=trained)
    assert ended.code == 2 and "was trained for translation, but `mallang reply` needs a run for dialogue" in ended.err
    ended = mallang("translate", chatbot, "안녕", cwd=chatbot)
    assert ended.code == 2 and "was trained for dialogue, but `mallang translate` needs" in ended.err


def test_it_is_scored_and_evaluated_as_other_runs_are(chatbot: Path) -> None:
    home = chatbot.parent.parent
    good, bad = (
        float(mallang("score", chatbot, "안녕", answer, cwd=home).out) for answer in ("안녕하세요.", "푹 쉬세요.")
    )
    assert good > bad
    ended = mallang("evaluate", chatbot, "--split", "valid", "--json", cwd=home)
    assert ended.code == 0, ended.err
    assert {score["name"]: score["value"] for score in json.loads(ended.out)}["exact match"] == 100.0


def test_mistakes_are_told(chatbot: Path) -> None:
    ended = mallang("reply", chatbot, "안녕", "--search", "temprature=1", cwd=chatbot)
    assert ended.code == 2 and "temprature" in ended.err and "Traceback" not in ended.err
    ended = mallang("reply", chatbot, "안녕", "--varied", "--search", "method=greedy", cwd=chatbot)
    assert ended.code == 2 and "temperature" in ended.err  # it would be read by nothing
