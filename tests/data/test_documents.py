"""Documents: sentences as rows, long ones split, and the sizes that batches are planned by."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mallang.data.columns import Column, Segments, Starts
from mallang.data.corpus import Rows
from mallang.data.documents import document_sizes, sentence_rows
from mallang.data.filters import Filters
from mallang.data.mixture import Mixture, Part
from mallang.data.prepared import Prepared, prepare
from mallang.data.sampler import Buckets, by_length, cut
from mallang.text.sentences import split_sentences
from mallang.text.tokenizer import Config as TextConfig
from mallang.text.tokenizer import Tokenizer

WORDS = ["물", "밥", "집", "책", "길"]
TOKENIZER = Tokenizer.train([" ".join(WORDS)], TextConfig(unit="word", vocabulary=20))
SEGMENTS = Segments(TOKENIZER, "document")
COLUMNS = [Column(0, SEGMENTS), Column(0, Starts(SEGMENTS), is_text=False)]
documents = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=6), min_size=1, max_size=8)
"""The number of words of each sentence."""


def text_of(sentences: list[int]) -> str:
    return "\n".join(" ".join(WORDS[place % len(WORDS)] for place in range(count)) for count in sentences)


def prepared(given: list[list[int]], folder: Path) -> Prepared:
    return prepare(Rows.of([(text_of(each),) for each in given], ("text",)), COLUMNS, Filters(max_length=0), folder)


@given(lengths=st.lists(st.integers(1, 30), min_size=1, max_size=12), most=st.integers(1, 12), kept=st.integers(1, 9))
def test_long_sentences_are_split_and_no_token_is_lost_before_the_limit(
    lengths: list[int], most: int, kept: int
) -> None:
    ids, starts = np.arange(sum(lengths)), np.cumsum([0, *lengths])[:-1]
    whole = sentence_rows(ids, starts, most, 10_000)
    assert np.concatenate(whole).tolist() == ids.tolist()
    assert all(1 <= len(row) <= most for row in whole)
    begins = {int(row[0]) for row in whole}
    assert set(starts.tolist()) <= begins, "no row crosses the border of a sentence"
    for begin, length in zip(starts, lengths, strict=True):
        own = [len(row) for row in whole if begin <= row[0] < begin + length]
        assert len(own) == -(-length // most) and max(own) - min(own) <= 1
    cut_off = sentence_rows(ids, starts, most, kept)
    assert [row.tolist() for row in cut_off] == [row.tolist() for row in whole[:kept]]


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(given=documents, most=st.integers(1, 9), kept=st.integers(1, 6))
def test_sizes_are_those_of_the_rows(tmp_path: Path, given: list[list[int]], most: int, kept: int) -> None:
    corpus = prepared(given, tmp_path)
    found = [sentence_rows(*corpus[place], most, kept) for place in range(len(corpus))]
    rows, widths = document_sizes(corpus, 1, most, kept)
    assert rows.tolist() == [len(each) for each in found]
    assert widths.tolist() == [max(map(len, each)) for each in found]


def test_sizes_of_a_mixture_follow_what_an_epoch_draws(tmp_path: Path) -> None:
    parts = [prepared(given, tmp_path) for given in ([[1, 2], [3]], [[4, 4, 4], [5], [1]])]
    mixture = Mixture([Part(parts[0], 2.0), Part(parts[1], 0.4)])
    drawn = mixture.epoch(1, 0)
    rows, widths = document_sizes(drawn, 1, 3, 9)
    found = [sentence_rows(*drawn[place], 3, 9) for place in range(len(drawn))]
    assert len(rows) == 5 and rows.tolist() == [len(each) for each in found]
    assert widths.tolist() == [max(map(len, each)) for each in found]


@settings(deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 12), st.integers(1, 20)), min_size=1, max_size=60),
    tokens=st.integers(20, 300),
    sentences=st.none() | st.integers(1, 30),
    multiple=st.sampled_from((1, 8)),
)
def test_batches_of_documents_stay_within_the_budget(
    sizes: list[tuple[int, int]], tokens: int, sentences: int | None, multiple: int
) -> None:
    rows, widths = np.array(sizes).T
    tokens = max(tokens, int(widths.max()))
    plan = Buckets(widths[:, None], tokens=tokens, sentences=sentences, rows=rows, multiple=multiple, seed=1, epoch=0)
    batches = [[place for (place,) in plan[number]] for number in range(len(plan))]
    assert sorted(place for batch in batches for place in batch) == list(range(len(sizes)))
    for batch in batches:
        assert len(batch) == 1 or rows[batch].sum() * widths[batch].max() <= tokens
        assert len(batch) == 1 or sentences is None or rows[batch].sum() <= sentences


@given(
    widths=st.lists(st.integers(0, 30), min_size=1, max_size=60).map(sorted),
    tokens=st.integers(30, 200),
    sentences=st.none() | st.integers(1, 9),
)
def test_examples_of_one_row_are_cut_as_before(widths: list[int], tokens: int, sentences: int | None) -> None:
    """As the loop did that knew no documents: the batches of every other task depend on it."""
    bounds, start = [0], 0
    while start < len(widths):
        stop = min(start + tokens // max(1, widths[start]), len(widths), start + (sentences or len(widths)))
        while (stop - start) * widths[stop - 1] > tokens:
            stop = start + max(1, tokens // widths[stop - 1])
        bounds.append(stop)
        start = stop
    plain = cut(np.array(widths), tokens, sentences)
    assert plain.tolist() == bounds
    assert cut(np.array(widths), tokens, sentences, np.ones(len(widths), int)).tolist() == bounds


@given(
    sizes=st.lists(st.tuples(st.integers(1, 12), st.integers(1, 20)), min_size=1, max_size=40),
    tokens=st.integers(20, 200),
)
def test_groups_of_documents_stay_within_the_budget(sizes: list[tuple[int, int]], tokens: int) -> None:
    rows, widths = np.array(sizes).T
    groups = by_length(widths.tolist(), tokens, rows=rows.tolist())
    assert sorted(place for group in groups for place in group) == list(range(len(sizes)))
    assert all(len(group) == 1 or rows[group].sum() * widths[group].max() <= tokens for group in groups)
    everything = int(rows.sum() * widths.max())
    assert len(by_length(widths.tolist(), everything, rows=rows.tolist())) == 1


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("No end<br /><br />here <br>and", ["No end", "here", "and"]),
        ("a <p> b", ["a", "b"]),
        ('He said "no." Then left.', ['He said "no."', "Then left."]),
        ("3.5 점 만점", ["3.5 점 만점"]),
        ("   ", [""]),
    ],
)
def test_sentences_end_at_marks_and_line_breaks(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences
