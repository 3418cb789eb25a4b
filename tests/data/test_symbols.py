"""Texts as symbols: code points and words, normalized, without a vocabulary."""

from __future__ import annotations

import unicodedata
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mallang.data.symbols import MOST, Symbols
from mallang.text.tokenizer import Config


@given(text=st.text(max_size=30) | st.text("한글éé👨‍👩‍👧 A①", max_size=20))
def test_characters_are_the_code_points_of_the_normalized_text(text):
    found = Symbols("char", Config(unit="jamo")).encode_batch([text])
    assert found == [[ord(character) for character in unicodedata.normalize("NFC", text)]]
    folded = Symbols("char", Config(normalization="NFKC", lowercase=True)).encode(text)
    assert "".join(map(chr, folded)) == unicodedata.normalize("NFKC", text).lower()


def test_words_are_hashes_of_words_and_marks():
    found = Symbols("word", Config()).encode("영화가 재밌다!! don't")
    assert found == [zlib.crc32(word.encode()) & MOST for word in ("영화가", "재밌다", "!", "!", "don't")]
    assert Symbols("word", Config()).encode("  ") == []


@pytest.mark.parametrize("cell", ["One. Two", '["One.", "Two"]', "One.\nTwo"])
def test_the_sentences_of_a_document_follow_each_other(cell):
    spelled = "".join(map(chr, Symbols("char", Config(), "document").encode(cell)))
    assert spelled.split() == ["One.", "Two"]


def test_what_decides_the_symbols_is_in_the_fingerprint():
    configs = [
        Symbols("char", Config()), Symbols("word", Config()), Symbols("char", Config(lowercase=True)),
        Symbols("char", Config(normalization="NFKC")), Symbols("char", Config(), "document"),
    ]  # fmt: skip
    assert len({each.fingerprint for each in configs}) == 5
