"""`--out`: a file that is whole or as it was, whatever happens."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from commands.running import mallang

SENTENCE = "민수는 물을 산다."


def test_results_go_to_the_file_and_messages_do_not(trained: Path, tmp_path: Path) -> None:
    for words in (("translate", trained, SENTENCE, "😀"), ("score", trained, SENTENCE, "Minsu buys water.", "--json")):
        printed = mallang(*words, cwd=tmp_path)
        written = mallang(*words, "--out", "out.txt", cwd=tmp_path)
        assert (written.code, written.out) == (0, "")
        assert (tmp_path / "out.txt").read_text("utf-8") == printed.out
        assert written.err == printed.err + "the results are in out.txt\n"
        assert mallang(*words, "--quiet", "-o", "out.txt", cwd=tmp_path).err == ""
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]


def test_what_fails_leaves_the_file_as_it_was(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "out.txt").write_text("before", "utf-8")
    ended = mallang("translate", trained, SENTENCE, "--search", "beem=3", "--out", "out.txt", cwd=tmp_path)
    assert ended.code == 2 and (tmp_path / "out.txt").read_text("utf-8") == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]
    for out, words in ((".", "is a folder"), ("none/out.txt", "cannot be written"), ("out.txt/x", "cannot be written")):
        ended = mallang("translate", trained, SENTENCE, "--out", out, cwd=tmp_path)
        assert ended.code == 2 and words in ended.err and "Traceback" not in ended.err, ended.err


def test_an_exit_code_comes_after_the_results(tmp_path: Path) -> None:
    (tmp_path / "rows.tsv").write_text("a\tb\na\tb\n", "utf-8")
    printed = mallang("data", "check", "rows.tsv", "--strict", cwd=tmp_path)
    written = mallang("data", "check", "rows.tsv", "--strict", "--out", "found.txt", cwd=tmp_path)
    assert (printed.code, written.code, written.out) == (1, 1, "")
    assert (tmp_path / "found.txt").read_text("utf-8") == printed.out != ""
    assert mallang("data", "list", "--out", "/dev/stdout", cwd=tmp_path).out.startswith("name\t")


def test_a_pipe_gets_the_results(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mallang", "recipes", "--out", "/dev/stdout"]
    piped = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert piped.returncode == 0, piped.stderr
    assert piped.stdout == mallang("recipes", cwd=tmp_path).out != ""


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("real")
    for _ in range(2):  # to a file that is missing, then to one that is there
        assert mallang("recipes", "--out", "link", cwd=tmp_path).code == 0
        assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_text("utf-8")
