"""Printing never fails and never lets a text move the cursor, and JSON stays JSON."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import pytest

from mallang import console


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("물\tand\n", "물\tand\n"),
        ("\x1b[31m", r"\u001b[31m"),
        ("\x00\x07\r\x7f\x9b", r"\u0000\u0007\u000d\u007f\u009b"),
        ("\udcc7", r"\udcc7"),
        ("👩‍👩‍👧 é 한", "👩‍👩‍👧 é 한"),
    ],
)
def test_control_characters_are_seen_and_not_obeyed(text: str, shown: str) -> None:
    assert console.visible(text) == shown
    stream = console.Stream(io.StringIO())
    print(text, end="", file=stream)  # type: ignore[call-overload]
    assert stream.getvalue() == shown
    print("\x1b[31m", end="", file=console.own(stream))
    assert stream.getvalue() == f"{shown}\x1b[31m", "our own colors pass"


def test_json_that_is_printed_reads_back_the_same() -> None:
    stream = console.Stream(io.StringIO())
    value = {"text": "\x1b\x7f\x9b\udcc7 물\n"}
    stream.write(json.dumps(value, ensure_ascii=False))
    assert json.loads(stream.getvalue()) == value


def test_names_that_are_utf8() -> None:
    assert console.is_utf8("한글 👩‍👧.tsv") and not console.is_utf8("\udcc7\udcd1.tsv")


def test_a_reader_that_has_gone_ends_the_command() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    with pytest.raises(SystemExit) as left:
        console.Stream(Gone()).write("x")
    assert left.value.code == 141


def test_streams_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    before: Any = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", before)
    with console.safe_streams():
        print("물\x1b")
        sys.stdout.writelines(["a\x07", "b\n"])
        assert sys.stdout is not before
    assert sys.stdout is before
    before.flush()
    assert before.buffer.getvalue().decode() == "물\\u001b\na\\u0007b\n"
