"""Masking: shares against their definition, special tokens, words, n-grams, exact counts, and equal draws."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.data.masking import Masker, Rates, choose, ngrams_of
from mallang.errors import UserError
from mallang.text.tokenizer import Config, Tokenizer
from mallang.text.vocabulary import Vocabulary

LINES = ["my dog is hairy, and the man went to the store.", "나는 이 노래를 많이 사랑한다. 정말로!"] * 5


def tokenizer(unit="wordpiece", vocabulary=80):
    return Tokenizer.train(LINES, Config(unit=unit, vocabulary=vocabulary), special=("cls", "sep", "mask"))


def padded(rows, pad=0):
    tokens = np.full((len(rows), max(map(len, rows))), pad, dtype=np.int64)
    for place, row in enumerate(rows):
        tokens[place, : len(row)] = row
    return tokens, np.array([len(row) for row in rows])


def some_text(words, rows=40, time=200, seed=0):
    """Ordinary tokens at random, between special ones."""
    random = np.random.default_rng(seed)
    return padded([[5, *random.choice(words, size=random.integers(time // 2, time)), 6] for _ in range(rows)])


def within(found, share, count):
    """Whether a share of `count` draws is within three standard errors of its definition."""
    return abs(found - share) <= 3 * np.sqrt(share * (1 - share) / count)


def test_the_shares_are_those_of_the_definition():
    masker = Masker(tokenizer())
    tokens, lengths = some_text(masker.ordinary)
    found = masker(tokens, lengths, Rates(), np.random.default_rng(1))
    rows, places, originals = found.places.T
    count, ordinary = len(rows), int((~masker.is_special[tokens]).sum())
    assert abs(count - 0.15 * ordinary) <= len(tokens)  # of every text its own 15 %, a fraction by chance
    read = found.tokens[rows, places]
    assert (tokens[rows, places] == originals).all()
    assert within((read == masker.mask).mean(), 0.8, count)
    # A random token is the original one by chance.
    by_chance = 0.1 / len(masker.ordinary)
    assert within((read == originals).mean(), 0.1 + by_chance, count)
    assert within(((read != originals) & (read != masker.mask)).mean(), 0.1 - by_chance, count)


def test_random_tokens_are_drawn_evenly_from_all_but_special_ones():
    masker = Masker(tokenizer())
    tokens, lengths = padded([[masker.ordinary[0]] * 30_000])
    found = masker(tokens, lengths, Rates(rate=0.9, random=1.0, kept=0.0), np.random.default_rng(2))
    drawn = found.tokens[0, found.places[:, 1]]
    assert set(drawn) == set(masker.ordinary)
    assert within((drawn == masker.ordinary[-1]).mean(), 1 / len(masker.ordinary), len(drawn))


@pytest.mark.parametrize("unit", ["token", "word", "eojeol", "ngram"])
@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10_000), rate=st.floats(0.05, 0.95), exact=st.booleans())
def test_special_tokens_and_padding_are_never_masked_and_the_rest_is_left_alone(unit, seed, rate, exact):
    masker = Masker(tokenizer(), unit)
    tokens, lengths = some_text(np.arange(len(masker.is_special)), rows=5, time=30, seed=seed)
    found = masker(tokens, lengths, Rates(rate=rate, is_exact=exact), np.random.default_rng(seed))
    rows, places, originals = found.places.T
    assert not masker.is_special[originals].any() and (places < lengths[rows]).all()
    assert len(set(zip(rows, places, strict=True))) == len(rows), "a token is chosen once"
    untouched = np.ones(tokens.shape, dtype=bool)
    untouched[rows, places] = False
    assert (found.tokens == tokens)[untouched].all()


def test_a_token_with_the_id_0_can_be_masked():
    """Imported vocabularies have ordinary tokens at low ids."""
    made = tokenizer()
    tokens = made.vocabulary.tokens
    specials = {"pad": 4, "unk": 5, "bos": 6, "eos": 7}
    made.vocabulary = Vocabulary(tokens, **specials, optional=(("mask", 8), ("cls", 9), ("sep", 10)))
    found = Masker(made)(np.zeros((1, 100), np.int64), np.array([100]), Rates(), np.random.default_rng(0))
    assert len(found.places) == 15 and (found.places[:, 2] == 0).all()


@given(seed=st.integers(0, 1000), lengths=st.lists(st.integers(0, 40), min_size=1, max_size=9))
def test_an_exact_count_depends_on_the_batch_alone(seed, lengths):
    rows = np.repeat(0, sum(lengths))
    chosen = choose(rows, np.arange(len(rows)), Rates(is_exact=True), np.random.default_rng(seed))
    assert chosen.sum() == round(0.15 * len(rows))


def test_the_count_of_short_texts_is_right_on_average():
    """Three tokens have 0.45 masked ones: 45 of 100 texts have one, and none has two."""
    rows = np.repeat(np.arange(10_000), 3)
    chosen = choose(rows, np.arange(len(rows)), Rates(), np.random.default_rng(3))
    counts = np.bincount(rows[chosen], minlength=10_000)
    assert counts.max() == 1 and within(counts.mean(), 0.45, 10_000)


WORDS = {
    ("wordpiece", "word"): "my dog is hairy , and the man went to the store . 나는 이 노래를 많이 사랑한다 . 정말로 !",
    ("wordpiece", "eojeol"): "my dog is hairy, and the man went to the store. 나는 이 노래를 많이 사랑한다. 정말로!",
    ("bpe", "word"): "my dog is hairy , and the man went to the store . 나는 이 노래를 많이 사랑한다 . 정말로 !",
    ("bpe", "eojeol"): "my dog is hairy, and the man went to the store. 나는 이 노래를 많이 사랑한다. 정말로!",
}


@pytest.mark.parametrize(("kind", "unit"), WORDS)
def test_words_and_eojeols_are_what_a_reader_calls_so(kind, unit):
    made = tokenizer(kind, 70)
    tokens, lengths = padded(made.encode_batch(LINES[:2]))
    rows, columns = np.nonzero(np.arange(tokens.shape[1]) < lengths[:, None])
    units = Masker(made, unit).units(tokens, rows, columns, np.random.default_rng(0))
    pieces = ["" for _ in range(units.max() + 1)]
    for number, row, column in zip(units, rows, columns, strict=True):
        pieces[number] += made.vocabulary.tokens[tokens[row, column]].removeprefix("##").removeprefix("▁")
    assert pieces == WORDS[kind, unit].split()
    assert len(rows) > len(pieces), "some words have several tokens"


@pytest.mark.parametrize("unit", ["word", "eojeol"])
def test_whole_words_are_masked_and_the_share_stays(unit):
    made = tokenizer("bpe", 70)
    tokens, lengths = padded(made.encode_batch(LINES[:2] * 400))
    masker, random = Masker(made, unit), np.random.default_rng(5)
    found = masker(tokens, lengths, Rates(kept=0.0), random)
    rows, columns = np.nonzero(np.arange(tokens.shape[1]) < lengths[:, None])
    units = masker.units(tokens, rows, columns, random)
    is_chosen = np.zeros(tokens.shape, dtype=bool)
    is_chosen[found.places[:, 0], found.places[:, 1]] = True
    chosen = is_chosen[rows, columns]
    shares = np.bincount(units, chosen) / np.bincount(units)
    assert set(shares) == {0.0, 1.0}
    assert abs(chosen.mean() - 0.15) <= 3 * np.sqrt(0.15 * 0.85 * 3 / len(rows))  # up to three tokens go together


@pytest.mark.parametrize("unit", ["word", "eojeol", "ngram"])
def test_whole_words_too_are_read_as_masks_random_tokens_and_themselves(unit):
    """Other libraries mask whole words by `<mask>` alone."""
    made = tokenizer("bpe", 70)
    tokens, lengths = padded(made.encode_batch(LINES[:2] * 400))
    masker = Masker(made, unit)
    found = masker(tokens, lengths, Rates(), np.random.default_rng(6))
    rows, places, originals = found.places.T
    read, by_chance = found.tokens[rows, places], 0.1 / len(masker.ordinary)
    assert within((read == masker.mask).mean(), 0.8, len(rows))
    assert within((read == originals).mean(), 0.1 + by_chance, len(rows))


def test_n_grams_have_a_probability_proportional_to_1_over_n():
    lengths = np.bincount(np.bincount(ngrams_of(60_000, np.random.default_rng(6))[:-3]))[1:]
    shares = lengths / lengths.sum()
    for n, share in enumerate(np.array([6, 3, 2]) / 11):
        assert within(shares[n], share, lengths.sum())


def test_n_grams_are_whole_words_of_one_row_and_keep_the_share():
    made = tokenizer("bpe", 70)
    tokens, lengths = padded(made.encode_batch([" ".join(LINES)] * 60))
    masker = Masker(made, "ngram")
    rows, columns = np.nonzero(np.arange(tokens.shape[1]) < lengths[:, None])
    units = masker.units(tokens, rows, columns, np.random.default_rng(0))
    words = Masker(made, "word").units(tokens, rows, columns, np.random.default_rng(0))
    assert all(len(set(units[words == word])) == 1 for word in range(words.max() + 1)), "no word is cut"
    assert all(len(set(rows[units == unit])) == 1 for unit in range(units.max() + 1)), "no n-gram crosses a row"
    counts = [len(set(words[units == unit])) for unit in range(units.max() + 1)]
    assert set(counts) == {1, 2, 3}
    sizes = np.bincount(units)
    per_row = sizes.max() / np.bincount(rows).min()  # what one unit adds to a text's share is not drawn again
    assert per_row < 0.15
    masked = sum(len(masker(tokens, lengths, Rates(), np.random.default_rng(seed)).places) for seed in range(20))
    count, mean = 20 * len(rows), (sizes**2).sum() / sizes.sum()  # the tokens that go with one of them, itself counted
    assert abs(masked / count - 0.15) <= 3 * np.sqrt(0.15 * 0.85 * mean / count)


def test_equal_random_numbers_give_equal_masks():
    masker = Masker(tokenizer())
    tokens, lengths = some_text(masker.ordinary)
    one, same, other = (masker(tokens, lengths, Rates(), np.random.default_rng(seed)) for seed in (8, 8, 9))
    assert (one.tokens == same.tokens).all() and (one.places == same.places).all()
    assert len(other.places) != len(one.places) or (other.places != one.places).any()


def test_characters_do_not_show_where_words_begin():
    with pytest.raises(UserError, match="do not show where words begin"):
        Masker(tokenizer("char"), "word")
