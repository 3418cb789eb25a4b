"""Files of word vectors: every format is read as its bytes say, and what is wrong with one is said."""

import gzip
import json
import lzma

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.data import word_vectors
from mallang.data.word_vectors import read_vectors
from mallang.errors import UserError

WORDS = ("king", "naïve", "나라", "0.5")
VALUES = np.array([[0.5, -0.25, 1.0], [1e-7, 3.0, -2.5], [0.1, 0.2, 0.3], [7.0, 8.0, 9.0]], np.float32)
TEXT = "4 3\nking 0.5 -0.25 1.0\nnaïve 1e-07 3.0 -2.5\n나라 0.1 0.2 0.3\n0.5 7 8 9\n".encode()
WITHOUT_HEADER = TEXT.split(b"\n", 1)[1]


def binary(newline=b"\n"):
    """The binary format of word2vec.c, which ends each vector with a new line; gensim does not."""
    rows = (word.encode() + b" " + row.tobytes() + newline for word, row in zip(WORDS, VALUES, strict=True))
    return b"4 3\n" + b"".join(rows)


def check(found):
    assert found.words == WORDS
    np.testing.assert_array_equal(found.values, VALUES)
    assert found.values.dtype == np.float32 and len(found) == 4


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("v.txt", TEXT),
        ("v.vec", TEXT.replace(b"\n", b" \n")),  # as fastText writes it
        ("glove.txt", WITHOUT_HEADER),
        ("crlf.txt", TEXT.replace(b"\n", b"\r\n")),
        ("v.bin", binary()),
        ("gensim.bin", binary(b"")),
        ("v.txt.gz", gzip.compress(TEXT, mtime=0)),
        ("v.bin.xz", lzma.compress(binary())),
    ],
)
def test_a_file_is_read_as_it_was_written(name, data, tmp_path):
    (tmp_path / name).write_bytes(data)
    check(read_vectors(tmp_path / name))


@pytest.mark.parametrize("size", [3, 7, 64])
def test_reading_in_small_parts_changes_nothing(size, tmp_path, monkeypatch):
    monkeypatch.setattr(word_vectors, "READ", size * 8)
    monkeypatch.setattr(word_vectors, "LINES", size)
    for name, data in (("v.bin", binary()), ("v.txt", TEXT)):
        (tmp_path / name).write_bytes(data)
        check(read_vectors(tmp_path / name))


@pytest.mark.parametrize("words", ["v.txt", "v.json", "v.parquet", "vocabulary.words"])
def test_an_array_has_its_words_beside_it(words, tmp_path):
    np.save(tmp_path / "v.npy", VALUES.astype(np.float64))
    if words.endswith("json"):
        (tmp_path / words).write_text(json.dumps(WORDS), "utf-8")
    elif words.endswith("parquet"):
        arrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.table({"word": WORDS, "rank": range(4)}), tmp_path / words)
    else:
        (tmp_path / words).write_text("".join(f"{word}\n" for word in WORDS), "utf-8")
    check(read_vectors(tmp_path / "v.npy"))
    check(read_vectors(tmp_path))


def test_the_first_of_a_word_that_comes_twice(tmp_path):
    (tmp_path / "v.txt").write_text("a 1 2\nb 3 4\na 5 6\nc 7 8\n", "utf-8")
    found = read_vectors(tmp_path / "v.txt")
    assert found.words == ("a", "b", "c") and found.values.tolist() == [[1, 2], [3, 4], [7, 8]]


letters = st.characters(exclude_categories=["Z", "C"])
words = st.lists(st.text(letters, min_size=1, max_size=8), min_size=1, max_size=6, unique=True)


@given(words=words, dim=st.integers(1, 5), seed=st.integers(0, 2**31), is_binary=st.booleans())
@settings(deadline=None, max_examples=80)
def test_what_is_written_is_read_again(words, dim, seed, is_binary, tmp_path_factory):
    from mallang.interop.word_vectors import write_vectors

    values = np.random.default_rng(seed).standard_normal((len(words), dim)).astype(np.float32)
    path = tmp_path_factory.mktemp("vectors") / ("v.bin" if is_binary else "v.txt")
    write_vectors(path, words, values)
    found = read_vectors(path)
    assert found.words == tuple(words)
    np.testing.assert_array_equal(found.values, values)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "a line must hold a word"),
        (b"king\n", "a line must hold a word"),
        (b"2 3\nking 1 2 3\n", "promises 2 words, but there are 1"),
        (b"1 3\nking 1 2 3\nqueen 1 2 3\n", "promises 1 words, but there are 2"),
        (b"2 3\nking 1 2 3\nqueen 1 2\n", "(?s)this one has 2.*line 3|line 3.*this one has 2"),
        (b"king 1 2 3\nqueen 1 x 3\n", "'x' is no number"),
        (b"king 1 2 nan\n", "'nan' is no number that a vector can have"),
        (b"2 0\n", "promises 2 words of 0 numbers"),
        (b"99999999999999 99999\n", "the header promises"),
        (binary()[:-10], "the file ends in word 4 of the 4"),
        (binary() + b"more words", "more than the 4 words"),
        (b"1 2\nking " + np.array([1, np.inf], "<f4").tobytes(), "word 1, 'king', is not finite"),
        ((793712314).to_bytes(4, "little") + bytes(40), "model of fastText"),
    ],
)
def test_what_is_wrong_is_said(data, message, tmp_path):
    (tmp_path / "v.txt").write_bytes(data)
    with pytest.raises(UserError, match=message):
        read_vectors(tmp_path / "v.txt")


def test_a_packed_file_that_is_cut(tmp_path):
    (tmp_path / "v.txt.gz").write_bytes(gzip.compress(TEXT, mtime=0)[:-12])
    with pytest.raises(UserError, match="damaged"):
        read_vectors(tmp_path / "v.txt.gz")


def test_arrays_that_cannot_be(tmp_path):
    with pytest.raises(UserError, match="there is no file"):
        read_vectors(tmp_path / "none.npy")
    with pytest.raises(UserError, match=r"0 \.npy files"):
        read_vectors(tmp_path)
    np.save(tmp_path / "v.npy", VALUES)
    with pytest.raises(UserError, match="might hold its words"):
        read_vectors(tmp_path / "v.npy")
    (tmp_path / "v.txt").write_text("a\nb\n", "utf-8")
    with pytest.raises(UserError, match="2 words, but 4 vectors"):
        read_vectors(tmp_path / "v.npy")
    np.save(tmp_path / "v.npy", np.arange(4))
    with pytest.raises(UserError, match="is no table of vectors"):
        read_vectors(tmp_path / "v.npy")
