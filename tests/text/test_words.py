"""Texts split into words: every word is where its offsets say, and no character is lost."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mallang.errors import UserError
from mallang.text import morphemes
from mallang.text.words import Word, joined, split_words

TEXTS = st.text(
    st.one_of(
        st.sampled_from(" \t\n.,'-한국어가나다éABCz019👨‍👩‍👧🎉🇰🇷각e\u0301\u3000"),
        st.characters(exclude_categories=["Cs"]),
    ),
    max_size=30,
)


@pytest.mark.parametrize("split", ["words", "spaces", "characters"])
@given(text=TEXTS)
def test_offsets_are_those_of_the_text_and_only_white_space_is_left_out(split, text):
    words = split_words(text, split)
    assert all(text[word.start : word.end] == word.text for word in words)
    assert all(one.end <= two.start for one, two in pairwise(words))
    covered = {place for word in words for place in range(word.start, word.end)}
    left = "".join(character for place, character in enumerate(text) if place not in covered)
    assert not left or left.isspace()
    assert left == "" or split != "characters"
    assert all(word.text for word in words)


def test_what_a_word_is():
    text = "U.N. said on 1996-08-22, don't (3.14)! 민수는 서울에서 👨‍👩‍👧 각."
    wanted = "U.N . said on 1996-08-22 , don't ( 3.14 ) ! 민수는 서울에서 👨‍👩‍👧 각 ."
    assert " ".join(word.text for word in split_words(text, "words")) == wanted
    assert [word.text for word in split_words(text, "spaces")] == text.split()
    assert [word.text for word in split_words("한 👨‍👩‍👧é", "characters")] == ["한", " ", "👨‍👩‍👧", "é"]
    assert split_words("", "words") == split_words(" \t", "words") == []


def test_given_words_have_places_with_spaces_between():
    words = ["New York", "이", "🎉"]
    assert joined(words) == [Word("New York", 0, 8), Word("이", 9, 10), Word("🎉", 11, 12)]
    assert all(" ".join(words)[word.start : word.end] == word.text for word in joined(words))


def test_morphemes_have_the_places_that_they_come_from(monkeypatch):
    pytest.importorskip("kiwipiepy")
    kiwi = morphemes.Kiwi()
    monkeypatch.setattr(morphemes, "analyzer", lambda: kiwi)
    words = split_words("정구호가 갔다.", "morphemes")
    assert [word.text for word in words][:2] == ["정구호", "가"] and words[0][1:] == (0, 3)
    assert words[-1] == Word(".", 7, 8)
    forms = [word.text for word in split_words("갈 사람", "morphemes")]
    assert "ㄹ" in forms  # as people type it, not the jamo of a final consonant


def test_a_lone_surrogate_is_no_text():
    with pytest.raises(UserError, match="lone surrogate"):
        split_words("a\ud800", "words")
