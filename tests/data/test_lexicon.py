"""Lexicons from files: pairs of words, and messages that name the line."""

import gzip

import pytest

from mallang.data.lexicon import read_lexicon
from mallang.errors import UserError

PAIRS = [("dog", "Hund"), ("dog", "Köter"), ("New York", "New York")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.txt", "dog Hund\ndog\tKöter\nNew York\tNew York\n"),
        ("a.lex", "dog   Hund\ndog Köter\r\nNew York\tNew York"),
        ("a.tsv", "dog\tHund\ndog\tKöter\nNew York\tNew York\n"),
        ("a.tsv", "category\ttarget\tsource\nnoun\tHund\tdog\nnoun\tKöter\tdog\nname\tNew York\tNew York\n"),
        ("a.csv", "source,target\ndog,Hund\ndog,Köter\nNew York,New York\n"),
    ],
)
def test_pairs_are_read(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text, "utf-8", newline="")
    assert read_lexicon(path) == PAIRS


def test_packed_files_are_read(tmp_path):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"dog Hund\n"))
    assert read_lexicon(str(path)) == PAIRS[:1]


@pytest.mark.parametrize("line", ["dog", "a b c", "dog\t", "\tHund", "a\tb\tc", ""])
def test_a_bad_line_is_named(tmp_path, line):
    path = tmp_path / "a.txt"
    path.write_text(f"dog Hund\n{line}\ncat Katze\n", "utf-8")
    with pytest.raises(UserError, match="a line must hold a source word") as refused:
        read_lexicon(path)
    assert refused.value.where == f"{path}, line 2"


@pytest.mark.parametrize("line", ["cat\t", "\tKatze", " \t "])
def test_a_row_of_a_table_without_a_word_is_named(tmp_path, line):
    path = tmp_path / "a.tsv"
    path.write_text(f"dog\tHund\n{line}\n", "utf-8")
    with pytest.raises(UserError, match="a row must hold a source word and a target word") as refused:
        read_lexicon(path)
    assert refused.value.where == f"{path}, row 2"


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(UserError, match="there is no lexicon"):
        read_lexicon(tmp_path / "none.txt")
