"""Word vectors of others become runs, and ours become files that gensim reads to the bit."""

from pathlib import Path

import numpy as np
import pytest

from mallang.errors import UserError
from mallang.interop.word_vectors import export_vectors, import_vectors, read_vectors, write_vectors
from mallang.loading import load

WORDS = ("king", "queen", "naïve", "나라", "</s>", "two words")
VALUES = np.random.default_rng(1).standard_normal((6, 7)).astype(np.float32)
FILES = ["vectors.txt", "vectors.bin", "vectors.txt.gz", "vectors.bin.gz"]


def theirs(path):
    """The file by gensim."""
    gensim = pytest.importorskip("gensim.models")
    return gensim.KeyedVectors.load_word2vec_format(str(path), binary=".bin" in path.name)


@pytest.mark.parametrize("name", FILES)
def test_gensim_reads_what_we_write(name, tmp_path):
    write_vectors(tmp_path / name, WORDS[:5], VALUES[:5])
    found = theirs(tmp_path / name)
    assert tuple(found.index_to_key) == WORDS[:5]
    np.testing.assert_array_equal(found.vectors, VALUES[:5])


@pytest.mark.parametrize("name", FILES)
def test_we_read_what_gensim_writes(name, tmp_path):
    gensim = pytest.importorskip("gensim.models")
    made = gensim.KeyedVectors(7)
    made.add_vectors(WORDS[:5], VALUES[:5])
    made.save_word2vec_format(str(tmp_path / name), binary=".bin" in name)
    found = read_vectors(tmp_path / name)
    assert found.words == WORDS[:5]
    np.testing.assert_array_equal(found.values, VALUES[:5])


def test_the_bytes_are_those_of_word2vec(tmp_path):
    values = np.array([[0.5, -2.0]], np.float32)
    write_vectors(tmp_path / "v.txt", ["나"], values)
    assert (tmp_path / "v.txt").read_bytes() == "1 2\n나 0.5 -2.0\n".encode()
    write_vectors(tmp_path / "v.bin", ["나"], values)
    assert (tmp_path / "v.bin").read_bytes() == "1 2\n나 ".encode() + bytes.fromhex("0000003f000000c0") + b"\n"


def test_a_word_with_white_space_is_not_written(tmp_path):
    with pytest.raises(UserError, match="holds white space"):
        write_vectors(tmp_path / "v.txt", WORDS, VALUES)
    assert not list(tmp_path.iterdir())


def write_npy(folder: Path) -> Path:
    """An array beside its words, which may hold white space."""
    np.save(folder / "v.npy", VALUES)
    (folder / "v.txt").write_text("".join(f"{word}\n" for word in WORDS), "utf-8")
    return folder / "v.npy"


def test_an_imported_file_is_a_run_with_its_vectors(tmp_path):
    run = import_vectors(write_npy(tmp_path), tmp_path / "run")
    assert run.info["status"] == "finished"
    model = load(tmp_path / "run", "cpu")
    for word, row in zip(WORDS[:4], VALUES[:4], strict=True):
        np.testing.assert_array_equal(model.embed(word), row)
    end = model.task.text.vocabulary.eos
    np.testing.assert_array_equal(model.lookup.vectors[end].numpy(), VALUES[4])  # its own row, not that of a word
    assert "two" not in model.lookup.names  # no token can spell it


def test_an_exported_run_is_what_was_imported(tmp_path):
    import_vectors(write_npy(tmp_path), tmp_path / "run")
    export_vectors(load(tmp_path / "run", "cpu"), tmp_path / "again.bin")
    found = read_vectors(tmp_path / "again.bin")
    assert found.words == WORDS[:4]
    np.testing.assert_array_equal(found.values, VALUES[:4])


def test_a_file_without_words_that_can_be_tokens(tmp_path):
    np.save(tmp_path / "v.npy", VALUES[:1])
    (tmp_path / "v.txt").write_text("two words\n", "utf-8")
    with pytest.raises(UserError, match="no word of the file can be a token"):
        import_vectors(tmp_path / "v.npy", tmp_path / "run")
