"""Character n-grams of words and their hashes, against fastText's own numbers."""

import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.text.character_ngrams import character_ngrams, hashed, jamo_letters, ngram_hashes

KNOWN = {
    "a": 0xE40C292C, "foobar": 0xBF9CF968,  # the published vectors of FNV-1a
    "<wh": 1048167652, "where": 90969176, "é": 1023043777, "국": 3503561647, "국어": 631677611, "<재밌": 3895280976,
    "😀": 604031496,
}  # fmt: skip
"""Hashes by gensim's `ft_hash_bytes`, which reads fastText's models."""


@pytest.mark.parametrize(("text", "value"), KNOWN.items())
def test_the_hash_is_that_of_fasttext(text, value):
    assert hashed(text.encode()) == value


def c_hash(data):
    """fastText's loop, h = h ^ uint32_t(int8_t(str[i])); h = h * 16777619, by numpy's types."""
    value = np.uint32(2166136261)
    for byte in np.frombuffer(data, np.int8):
        value = np.uint32((int(value ^ byte.astype(np.int32).astype(np.uint32)) * 16777619) % 2**32)
    return int(value)


@given(st.binary(max_size=30))
@settings(deadline=None)
def test_bytes_from_128_on_count_as_negative(data):
    assert hashed(data) == c_hash(data)


def test_the_sign_matters_beyond_ascii_alone():
    value = 2166136261
    for byte in "é".encode():
        value = ((value ^ byte) * 16777619) % 2**32
    assert value != hashed("é".encode()) == KNOWN["é"]


def by_definition(word, shortest, longest):
    """All substrings of the marked word of these lengths, other than a mark alone."""
    text = f"<{word}>"
    found = [text[i:j] for i in range(len(text)) for j in range(i + 1, len(text) + 1) if shortest <= j - i <= longest]
    return [each for each in found if each not in ("<", ">") or each in word]


@given(st.text(alphabet="abc가나é", max_size=8), st.integers(1, 4), st.integers(0, 5))
@settings(deadline=None)
def test_ngrams_are_all_substrings_of_these_lengths(word, shortest, more):
    found = character_ngrams(word, shortest, shortest + more)
    assert found == by_definition(word, shortest, shortest + more)
    assert list(ngram_hashes(word, shortest, shortest + more)) == [hashed(each.encode()) for each in found]


def test_no_ngrams():
    assert character_ngrams("where", 3, 0) == [] and list(ngram_hashes("where", 3, 0)) == []


@pytest.mark.parametrize("word", ["where", "a", "국어사전", "naïve", "😀b", ""])
def test_hashes_are_those_of_gensim(word):
    fasttext = pytest.importorskip("gensim.models.fasttext")
    theirs = sorted(fasttext.ft_ngram_hashes(word, 3, 6, 2_000_000))
    assert sorted(value % 2_000_000 for value in ngram_hashes(word, 3, 6)) == theirs


def test_syllables_have_three_letters_each():
    assert jamo_letters("국어 a") == unicodedata.normalize("NFD", "국어") + "∅ a"
    assert len(jamo_letters("가나다")) == 9
