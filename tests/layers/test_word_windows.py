"""What word vectors learn from: text, windows, subsampling and negative samples against loops and statistics."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.data.batch import Batch
from mallang.errors import UserError
from mallang.layers import word_windows
from mallang.layers.word_windows import (
    AliasTable,
    WordText,
    epoch_report,
    keep_probability,
    learning_rates,
    padded,
    text_of,
    windows,
)  # fmt: skip
from mallang.text.vocabulary import SPECIALS, Vocabulary

VOCABULARY = Vocabulary((*SPECIALS, *"abcdefgh"))
FIRST = len(SPECIALS)
lines_of_words = st.lists(st.lists(st.integers(FIRST, FIRST + 7), max_size=9), max_size=7)


def text_from(lines):
    words = torch.tensor([word for line in lines for word in line], dtype=torch.int32)
    numbers = torch.tensor([number for number, line in enumerate(lines) for _ in line], dtype=torch.int32)
    return WordText(words, numbers)


def context_by_loops(lines, window):
    """The words around every position, at most `window` to each side."""
    return [
        [line[other] for other in range(max(0, at - window), min(len(line), at + window + 1)) if other != at]
        for line in lines
        for at in range(len(line))
    ]


def context_of(positions):
    return [[word for word in row if word >= 0] for row in positions.context.tolist()]


def test_text_is_read_without_special_tokens_and_padding():
    rows = [[1, FIRST, 3, FIRST + 1, 0], [1, FIRST + 2, 0, 0, 0]]  # 3 is <unk>
    batch = Batch(tokens=torch.tensor(rows), lengths=torch.tensor([4, 2]))
    found = text_of([batch, batch], VOCABULARY)
    assert found.words.tolist() == [FIRST, FIRST + 1, FIRST + 2] * 2
    assert found.lines.tolist() == [0, 0, 1, 2, 2, 3]
    assert found.counts(VOCABULARY).tolist() == [0] * FIRST + [2, 2, 2, 0, 0, 0, 0, 0]


@given(lines_of_words, st.integers(1, 4))
@settings(deadline=None, max_examples=50)
def test_full_windows_are_those_of_a_loop(lines, window):
    text = text_from(lines)
    found = [positions for positions, _ in windows(text, window)]
    assert [word for each in found for word in each.words.tolist()] == [word for line in lines for word in line]
    assert [row for each in found for row in context_of(each)] == context_by_loops(lines, window)
    assert sum(int(each.pairs) for each in found) == sum(map(len, context_by_loops(lines, window)))


def test_window_sizes_are_drawn_evenly():
    text, window = text_from([[FIRST] * 40_000]), 5
    ((positions, _),) = windows(text, window, key=(3, 0))
    left = (positions.context[window:-window, :window] >= 0).sum(1)
    right = (positions.context[window:-window, window:] >= 0).sum(1)
    assert torch.equal(left, right)  # one size per position, for both sides
    counts = torch.bincount(left, minlength=window + 1)
    assert counts[0] == 0
    expected = len(left) / window
    chi_square = ((counts[1:] - expected) ** 2 / expected).sum()
    assert chi_square < 18.5  # 4 degrees of freedom, p = 0.001


def test_shrunken_windows_hold_the_nearest_words():
    lines = [[FIRST + at % 8 for at in range(200)]]
    ((positions, _),) = windows(text_from(lines), 3, key=(1, 0))
    by_size = [context_by_loops(lines, size) for size in (1, 2, 3)]
    for at, row in enumerate(context_of(positions)):
        assert row in [each[at] for each in by_size]


def test_random_numbers_depend_on_the_key_alone():
    text = text_from([[FIRST, FIRST + 1] * 50])
    keep = torch.full((len(VOCABULARY),), 0.5)

    def draw(key):
        ((positions, random),) = windows(text, 4, keep, key)
        return positions.words.tolist(), positions.context.tolist(), float(torch.rand((), generator=random))

    first = draw((1, 0))
    torch.manual_seed(99)
    assert draw((1, 0)) == first
    assert draw((1, 1)) != first != draw((2, 0))


def test_chunks_cover_the_text(monkeypatch):
    monkeypatch.setattr(word_windows, "words_at_once", lambda device: 7)
    lines = [[FIRST + at % 8 for at in range(20)]]
    found = [positions for positions, _ in windows(text_from(lines), 2)]
    assert [(each.begin, each.end) for each in found] == [(0, 7), (7, 14), (14, 20)]
    assert [word for each in found for word in each.words.tolist()] == lines[0]


# ---- subsampling ----


def test_words_are_kept_with_the_probability_of_word2vec():
    counts = torch.tensor([0, 900_000, 90_000, 10_000])
    found = keep_probability(counts, 1e-3)
    for count, probability in zip(counts.tolist()[1:], found.tolist()[1:], strict=True):
        # word2vec.c: (sqrt(cn / (sample * train_words)) + 1) * (sample * train_words) / cn
        ran = (np.sqrt(count / (1e-3 * 1e6)) + 1) * (1e-3 * 1e6) / count
        assert probability == pytest.approx(min(1.0, ran), rel=1e-6)
    assert keep_probability(counts, 0.0) is None


def test_subsampling_keeps_words_as_often_as_it_should():
    words = [FIRST] * 50_000 + [FIRST + 1] * 3_000
    random = np.random.default_rng(1)
    random.shuffle(words)
    text = text_from([words[at : at + 20] for at in range(0, len(words), 20)])
    counts = text.counts(VOCABULARY)
    keep = keep_probability(counts, 0.02)
    kept = sum(torch.bincount(each.words, minlength=len(VOCABULARY)) for each, _ in windows(text, 2, keep, (5, 0)))
    for word in (FIRST, FIRST + 1):
        count, probability = int(counts[word]), float(keep[word])
        assert 0.05 < probability < 0.95
        spread = (count * probability * (1 - probability)) ** 0.5
        assert abs(int(kept[word]) - count * probability) < 4 * spread


def test_a_chunk_of_which_nothing_is_kept_is_left_out(monkeypatch):
    monkeypatch.setattr(word_windows, "words_at_once", lambda device: 5)
    text = text_from([[FIRST] * 5 + [FIRST + 1] * 5])
    keep = torch.ones(len(VOCABULARY))
    keep[FIRST] = 0.0
    assert [each.words.tolist() for each, _ in windows(text, 2, keep, (1, 0))] == [[FIRST + 1] * 5]


# ---- negative samples ----


@given(st.lists(st.floats(0, 100), min_size=1, max_size=30).filter(lambda weights: sum(weights) > 1e-3))
@settings(deadline=None, max_examples=100)
def test_an_alias_table_has_the_distribution_that_it_was_made_of(weights):
    given_weights = torch.tensor(weights, dtype=torch.float64)
    found = AliasTable.of(given_weights).probabilities()
    torch.testing.assert_close(found, given_weights / given_weights.sum(), atol=1e-12, rtol=1e-9)


def test_draws_follow_the_distribution():
    weights = torch.tensor([0.0, 5.0, 1.0, 0.0, 30.0, 2.5], dtype=torch.float64)
    drawn = AliasTable.of(weights).draw(20_000, 3, torch.Generator().manual_seed(1))
    counts = torch.bincount(drawn.reshape(-1), minlength=len(weights))
    expected = weights / weights.sum() * drawn.numel()
    assert counts[0] == counts[3] == 0
    there = weights > 0
    assert ((counts - expected)[there] ** 2 / expected[there]).sum() < 16.3  # 3 degrees of freedom, p = 0.001


# ---- the rest ----


def test_the_learning_rate_falls_with_the_words_read():
    text = text_from([[FIRST] * 100])
    ((positions, _),) = windows(text, 2)
    found = [learning_rates(positions, 25, epoch, 2, 100, (0.2, 0.1)) for epoch in range(2)]
    assert torch.cat(found).tolist() == pytest.approx([0.2 - 0.1 * read / 200 for read in range(0, 200, 25)])


def test_entries_of_rows_are_padded():
    table, ends = torch.tensor([10, 11, 12, 13]), torch.tensor([2, 2, 3, 4])
    found = padded(torch.tensor([2, 0, 1]), table, ends)
    assert found.tolist() == [[12, -1], [10, 11], [-1, -1]]


def test_vectors_that_diverge_are_an_error():
    assert epoch_report(torch.tensor(6.0).double(), torch.tensor(3.0).double()) == {"loss": 2.0, "predictions": 3}
    with pytest.raises(UserError, match="(?s)diverged.*learning_rate"):
        epoch_report(torch.tensor(torch.nan).double(), torch.tensor(3.0).double())
