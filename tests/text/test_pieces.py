from collections import Counter

import pytest
from tokenizers import normalizers, pre_tokenizers

from mallang.errors import UserError
from mallang.text import pieces
from mallang.text.vocabulary import SPECIALS


def test_counting_takes_pieces_or_code_points() -> None:
    spaces = pre_tokenizers.Split(" ", "merged_with_next")
    assert pieces.count(["a b", "b"], normalizers.Prepend(" "), spaces) == {" a": 1, " b": 2}
    assert pieces.count(["한a", "한"], normalizers.NFD(), None) == Counter("한한a".replace("한", "\u1112\u1161\u11ab"))


def test_half_a_character_is_refused_with_its_place() -> None:
    with pytest.raises(UserError, match=r"character 3 .* U\+D800") as caught:
        pieces.count(["fine", "no\ud800"], normalizers.NFC(), None)
    assert caught.value.where is not None and "line 2" in caught.value.where


def test_all_characters_are_kept_while_they_take_at_most_half() -> None:
    words = {"abc": 100_000, "xyz": 1}
    assert pieces.choose_alphabet("bpe", words, size=16, min_count=1) == list("abcxyz")
    assert pieces.choose_alphabet("bpe", words, size=16, min_count=2) == list("abc")


def test_the_rarest_characters_leave_when_they_would_crowd_out_pieces() -> None:
    assert pieces.choose_alphabet("bpe", {"abc": 100_000, "xyz": 1}, size=9, min_count=1) == list("abc")
    assert pieces.choose_alphabet("bpe", {"abc": 100_000, "xyz": 99_999}, size=10, min_count=1) == list("abcxyz")


@pytest.mark.parametrize(("unit", "needed"), [("bpe", 10), ("unigram", 10), ("wordpiece", 16)])
def test_too_small_a_vocabulary_is_refused_with_both_numbers(unit: str, needed: int) -> None:
    with pytest.raises(UserError, match=rf"vocabulary of {needed - 1} .* need {needed}"):
        pieces.choose_alphabet(unit, {"abcdef": 1}, size=needed - 1, min_count=1)  # type: ignore[arg-type]
    assert len(pieces.choose_alphabet(unit, {"abcdef": 1}, size=needed, min_count=1)) == 6  # type: ignore[arg-type]


def test_words_are_repeated_as_often_as_they_occur() -> None:
    repeated = list(pieces.repeated({"a": 2500, "b": 1}))
    assert Counter(word for batch in repeated for word in batch) == {"a": 2500, "b": 1}
    assert max(map(len, repeated)) <= 1000


def test_equal_counts_are_ranked_by_code_point() -> None:
    counts = {"나": 2, "b": 1, "가": 2, "a": 3}
    assert pieces.ranked(counts, 1) == ["a", "가", "나", "b"]
    assert pieces.ranked(counts, 2) == ["a", "가", "나"]
    assert list(pieces.numbered(["a"])) == [*SPECIALS, "a"]
