"""Words that are added to a vocabulary: known from then on, with all other ids as they were."""

import pytest

from mallang.errors import UserError
from mallang.text.added_words import with_words
from mallang.text.tokenizer import Config, Tokenizer

TEXT = ["the cat sat on the mat.", "한국 사람"]


def tokenizer(unit, domains=(), **options):
    return Tokenizer.train(TEXT, Config(unit=unit, vocabulary=100, **options), domains)


@pytest.mark.parametrize("unit", ["word", "space"])
def test_added_words_are_known_and_others_keep_their_ids(unit, tmp_path):
    before = tokenizer(unit)
    after = with_words(before, ["dog", "cat", "서울", "dog"])
    assert after.vocabulary.tokens[: len(before.vocabulary)] == before.vocabulary.tokens
    assert len(after.vocabulary) == len(before.vocabulary) + 2
    assert before.unknown_in("the dog 서울") == ["dog", "서울"] and after.unknown_in("the dog 서울 x") == ["x"]
    assert after.decode(after.encode("the dog 서울").ids) == "the dog 서울"
    assert before.encode("the cat sat").ids == after.encode("the cat sat").ids
    after.save(tmp_path)
    assert Tokenizer.load(tmp_path).fingerprint == after.fingerprint


def test_what_is_not_read_as_one_word_is_left_out():
    before = tokenizer("word")
    assert with_words(before, ["New York", "o'clock", "", " "]).vocabulary == before.vocabulary


def test_words_are_added_as_text_is_read():
    assert with_words(tokenizer("space", lowercase=True), ["Dog"]).unknown_in("DOG") == []


def test_domains_keep_their_tags():
    before = tokenizer("word", domains=("news", "talk"))
    after = with_words(before, ["dog"])
    assert list(after.domains) == ["news", "talk"]
    assert [after.vocabulary.tokens[number] for number in after.domains.values()] == ["<news>", "<talk>"]
    assert after.unknown_in("dog") == [] and before.unknown_in("dog") == ["dog"]


def test_pieces_of_words_cannot_be_added():
    with pytest.raises(UserError, match="unit bpe") as caught:
        with_words(tokenizer("bpe"), ["dog"])
    assert "text.unit=word" in caught.value.todo
