"""Lemmas by rules, a table and the words that are known."""

import pytest

from mallang.text.lemmas import IRREGULAR, STOP_WORDS, lemma, words_of

KNOWN = {
    "lake",
    "run",
    "teach",
    "city",
    "leaf",
    "knife",
    "make",
    "bake",
    "box",
    "church",
    "hop",
    "hope",
    "stop",
    "바다",
}
KNOWN |= {"glass", "die", "be", "person", "학교", "나"}


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("lakes", "lake"), ("running", "run"), ("taught", "teach"), ("cities", "city"), ("leaves", "leaf"),
        ("knives", "knife"), ("making", "make"), ("baked", "bake"), ("boxes", "box"), ("churches", "church"),
        ("hoping", "hope"), ("hopping", "hop"), ("stopped", "stop"), ("glass", "glass"), ("dying", "die"),
        ("is", "be"), ("zebras", "zebras"), ("lake's", "lake"),
        ("people", "person"), ("바다에서", "바다"), ("학교는", "학교"), ("나", "나"),
    ],
)  # fmt: skip
def test_a_word_has_the_lemma_that_is_known(word: str, expected: str) -> None:
    assert lemma(word, KNOWN) == expected


def test_what_is_not_known_is_no_lemma() -> None:
    assert lemma("lakes", set()) == "lakes" and lemma("running", {"runn"}) == "runn"


def test_the_table_has_no_form_twice_and_stop_words_are_lower_case() -> None:
    assert IRREGULAR["went"] == "go" and all(word == word.lower() for word in (*IRREGULAR, *STOP_WORDS))


def test_words_are_split_from_punctuation() -> None:
    assert words_of("Don’t use the check-out, OK?  바다에서!") == ["don't", "use", "the", "check-out", "ok", "바다에서"]
