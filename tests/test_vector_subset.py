"""The small file of vectors: those of the words of a corpus, as the whole file has them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # the benchmarks are not installed
from benchmarks import vector_subset

from gpu import stand_ins
from mallang.data.corpus import Config, open_corpus
from mallang.data.word_vectors import read_vectors
from mallang.interop.word_vectors import write_vectors


def test_words_are_what_tokenizers_may_read() -> None:
    assert vector_subset.words_of(["It's\tU.S. 10%"]) == {
        "It's",
        "It",
        "'",
        "s",
        "U.S.",
        "U",
        ".",
        "S",
        "10%",
        "10",
        "%",
    }


def test_every_word_of_all_splits_keeps_its_vector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLANG_CACHE", str(tmp_path))
    monkeypatch.delenv("MALLANG_DATA", raising=False)
    with stand_ins.in_registry(stand_ins.write(["conll2003"], stand_ins.SMALL)):
        corpus = open_corpus(Config(corpus="conll2003"), ("text",))
        last = list(corpus.split("valid"))[-1][0].split()[-1]
        words, values = ("zzz", last.upper(), "yyy"), np.random.default_rng(1).standard_normal((3, 4), dtype=np.float32)
        write_vectors(tmp_path / "all.txt", words, values)
        monkeypatch.setattr(
            sys, "argv", ["", str(tmp_path / "all.txt"), "conll2003", "--out", str(tmp_path / "a.bin.gz")]
        )
        vector_subset.main()
    found = read_vectors(tmp_path / "a.bin.gz")
    assert found.words == (last.upper(),) and np.array_equal(found.values, values[1:2])
