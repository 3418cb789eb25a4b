"""Word vectors of two parts: rows that words share, hidden words, unknown words; the character LSTM word by word."""

import pytest
import torch
from torch import nn

from mallang.layers.characters import Characters
from mallang.layers.words import CharacterLSTM, HidesWords, WordVectors
from mallang.text.vocabulary import SPECIALS, UNK, Vocabulary

WORDS = Vocabulary((*SPECIALS, "the", "The", "cat", "1996", "2024", "한국", "CATS"))
THE, CAPITAL, CAT, YEAR, OTHER, KOREA, CATS = range(4, 11)
KINDS = ["cnn", "lstm", "none"]


def made(kind="cnn", folds="case-and-digits"):
    torch.manual_seed(1)
    spelling = None
    if kind == "cnn":
        spelling = Characters(WORDS, 4, (0, 2, 3))
        spelling.init_weights(0.5)
    elif kind == "lstm":
        spelling = CharacterLSTM(WORDS, 4, 6)
    return WordVectors(WORDS, 5, spelling, folds=folds)


def read(vectors, *ids):
    with torch.no_grad():
        return vectors(torch.tensor([ids]))[0]


@pytest.mark.parametrize("kind", KINDS)
def test_words_that_differ_in_case_or_digits_share_a_row_and_no_characters(kind):
    found = read(made(kind), THE, CAPITAL, YEAR, OTHER, CAT)
    own, spelled = found[:, :5], found[:, 5:]
    assert torch.equal(own[0], own[1]) and torch.equal(own[2], own[3]) and not torch.equal(own[0], own[4])
    if kind != "none":
        assert not torch.equal(spelled[0], spelled[1]) and not torch.equal(spelled[2], spelled[3])
    exact = made(kind, folds="nothing")
    assert len(exact.embedding.weight) == len(WORDS)
    assert not torch.equal(read(exact, THE)[0, :5], read(exact, CAPITAL)[0, :5])


def test_case_alone_may_be_folded():
    vectors = made("none", folds="case")
    assert torch.equal(*read(vectors, THE, CAPITAL)) and not torch.equal(*read(vectors, YEAR, OTHER))


def test_every_row_has_the_spellings_of_its_words_the_folded_form_first():
    expected = [("the", "The"), ("cat",), ("0000", "1996", "2024"), ("한국",), ("cats", "CATS")]
    assert made().spellings() == [*[()] * len(SPECIALS), *expected]
    assert made(folds="nothing").spellings() == [*[()] * len(SPECIALS), *((word,) for word in WORDS.tokens[4:])]


@pytest.mark.parametrize("kind", KINDS)
def test_a_hidden_word_is_unknown_but_for_its_characters(kind):
    vectors = made(kind)
    assert isinstance(vectors, HidesWords) and vectors.hidden_from == len(WORDS)
    hidden, known, unknown = read(vectors, CAT + len(WORDS), CAT, UNK)
    assert torch.equal(hidden[:5], unknown[:5]) and not torch.equal(hidden[:5], known[:5])
    assert torch.equal(hidden[5:], known[5:])


def test_unknown_words_are_read_from_their_characters():
    vectors = made()
    tac, upper, new = vectors.ids_of_oov(["tac", "CAT", "1997"])
    assert min(tac, upper, new) >= 2 * len(WORDS)
    found = read(vectors, tac, UNK, upper, CAT, new, YEAR)
    assert torch.equal(found[0, :5], found[1, :5]) and not torch.equal(found[0, 5:], found[1, 5:])
    assert torch.equal(found[2, :5], found[3, :5]) and not torch.equal(found[2, 5:], found[3, 5:])
    assert torch.equal(found[4, :5], found[5, :5])
    assert vectors.ids_of_oov(["tac", "x"]) == [tac, UNK]  # x is no character of the vocabulary
    (partly,) = vectors.ids_of_oov(["txaxc"])
    assert torch.equal(read(vectors, partly), read(vectors, tac))  # unknown characters are left out


def test_without_characters_an_unknown_word_is_known_by_its_form_alone():
    vectors = made("none")
    assert vectors.ids_of_oov(["THE", "1850", "dog"]) == [THE, YEAR, UNK]
    vectors.forget_oov(0)
    assert made("none", folds="nothing").ids_of_oov(["THE", "the"]) == [UNK, THE]


def test_forgetting_unknown_words_puts_the_same_tables_back():
    vectors = made()
    before = vectors.rows, vectors.spelling.spelling, vectors.spelling.lengths
    again = read(vectors, CAT)
    vectors.ids_of_oov(["tac"])
    vectors.ids_of_oov(["taca"])
    assert len(vectors.rows) == len(vectors.spelling.spelling) == 2 * len(WORDS) + 2
    vectors.forget_oov()  # two are few
    assert len(vectors.rows) == 2 * len(WORDS) + 2
    vectors.forget_oov(0)
    # The same memory: a captured CUDA graph reads it wherever the tables are now.
    after = vectors.rows, vectors.spelling.spelling, vectors.spelling.lengths
    assert all(one.data_ptr() == two.data_ptr() for one, two in zip(before, after, strict=True))
    assert torch.equal(read(vectors, CAT), again)
    assert vectors.ids_of_oov(["taca"]) == [2 * len(WORDS)]


def test_the_character_lstm_is_torchs_over_each_word():
    torch.manual_seed(2)
    spelling = CharacterLSTM(WORDS, 4, 6)
    other = nn.LSTM(4, 3, bidirectional=True)
    theirs = dict(other.named_parameters())
    for direction, suffix in ((spelling.lstm.forwards[0], ""), (spelling.lstm.backwards[0], "_reverse")):
        for name, weight in direction.named_parameters():
            theirs[name + suffix].data.copy_(weight)
    with torch.no_grad():
        for word in range(len(WORDS)):
            letters = spelling.spelling[word, : spelling.lengths[word]]
            _, (last, _) = other(spelling.letters(letters))
            torch.testing.assert_close(spelling(torch.tensor([[word]]))[0, 0], last.flatten(), atol=1e-6, rtol=1e-5)
