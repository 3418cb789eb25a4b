"""Answers in their contexts: every way to write them, their places letter by letter, and the tokens that hold them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.data.answers import NOWHERE, Answer, Spans, locate, offsets_of, read_answers, token_span
from mallang.data.columns import Column
from mallang.data.corpus import Rows
from mallang.data.filters import Filters
from mallang.data.prepared import prepare
from mallang.errors import UserError
from mallang.text.tokenizer import Config, Tokenizer

CONTEXT = "민수는 빵을 먹었다. 그 빵은 맛있었다."
FORMS = {
    '[{"text": "빵", "answer_start": 4}]': [Answer("빵", 4)],
    '{"text": ["빵", "그 빵"], "answer_start": [4, 12]}': [Answer("빵", 4), Answer("그 빵", 12)],
    '{"text": "빵", "answer_start": 14}': [Answer("빵", 14)],
    '["빵", "맛"]': [Answer("빵"), Answer("맛")],
    "빵": [Answer("빵")],
    "[1]": [Answer("[1]")],
    "[see": [Answer("[see")],
    "": [],
    "[]": [],
    '{"text": [], "answer_start": []}': [],
}


@pytest.mark.parametrize("cell", FORMS)
def test_every_form_is_read(cell: str) -> None:
    assert read_answers(cell) == FORMS[cell]


def test_an_answer_without_a_place_is_the_first_one() -> None:
    assert locate([Answer("빵"), Answer("빵", 14)], CONTEXT) == [Answer("빵", 4), Answer("빵", 14)]


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("떡", "'떡' is not in its context"),
        ('[{"text": "빵", "answer_start": 5}]', "does not stand at character 5 of its context: there is '을'"),
        ('[{"text": "빵", "answer_start": -1}]', "does not stand at character -1"),
        ('[{"text": "빵", "answer_start": "4"}]', "an answer is a text and the number of its first character"),
        ('{"text": ["빵"], "answer_start": []}', "differ in length"),
        ('[""]', "an answer is empty"),
    ],
)
def test_wrong_answers_are_refused_with_their_row(cell: str, message: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    tokenizer = Tokenizer.train([CONTEXT], Config(unit="char"))
    rows = Rows.of([(CONTEXT, "빵"), (CONTEXT, cell)], ("context", "answers"), "mine.tsv")
    spans = Column(1, Spans(tokenizer), is_text=False, beside=(0,), may_be_empty=True)
    with pytest.raises(UserError, match=message) as caught:
        prepare(rows, [Column(0, tokenizer), spans], Filters(max_ratio=0.0), tmp_path)
    assert caught.value.where == "mine.tsv, row 2" and caught.value.todo


def test_rows_become_first_and_last_tokens(tmp_path) -> None:  # type: ignore[no-untyped-def]
    tokenizer = Tokenizer.train([CONTEXT], Config(unit="char"))
    cells = ["빵을", "", json.dumps(["빵", "그 빵"])]
    rows = Rows.of([(CONTEXT, cell) for cell in cells], ("context", "answers"))
    spans = Column(1, Spans(tokenizer), is_text=False, beside=(0,), may_be_empty=True)
    made = prepare(rows, [Column(0, tokenizer), spans], Filters(max_ratio=0.0), tmp_path)
    assert [made[place][1].tolist() for place in range(3)] == [[4, 5], [], [4, 4, 12, 14]]


UNITS = ("word", "bpe", "wordpiece", "unigram", "char", "syllable", "jamo", "byte-bpe", "space")
texts = st.text(st.sampled_from("가힣각 ab,.é👨‍👩‍👧\n1"), min_size=1, max_size=30)


@pytest.mark.parametrize("unit", UNITS)
@settings(deadline=None, max_examples=40)
@given(text=texts, data=st.data())
def test_tokens_of_a_span_hold_all_of_it(unit: str, text: str, data: st.DataObject) -> None:
    """Whatever the unit: the part that is cut out by the offsets holds the answer, and no token more than it needs."""
    tokenizer = TOKENIZERS[unit]
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    ids, offsets = offsets_of(tokenizer, text)
    assert len(ids) == len(offsets) and (offsets[:, 0] <= offsets[:, 1]).all()
    first, last = token_span(offsets, start, end)
    if first == NOWHERE:
        assert not any(a < end and b > start and b > a for a, b in offsets.tolist())
        return
    begin, stop = int(offsets[first, 0]), int(offsets[last, 1])
    assert text[begin:stop] == text[begin:stop].strip()
    covered = {place for a, b in offsets.tolist() for place in range(a, b)}
    wanted = {place for place in range(start, end) if place in covered}
    assert wanted <= set(range(begin, stop))
    for edge in (first, last):
        assert offsets[edge, 0] < end and offsets[edge, 1] > start


TOKENIZERS = {
    unit: Tokenizer.train(["가힣각 ab, 가힣 a1.", "é 👨‍👩‍👧 ab ab"], Config(unit=unit, vocabulary=300))  # type: ignore[arg-type]
    for unit in UNITS
}


def test_a_span_without_a_token_is_nowhere() -> None:
    offsets = np.array([[0, 1], [3, 3], [4, 6]])
    assert token_span(offsets, 1, 4) == (NOWHERE, NOWHERE)
    assert token_span(offsets, 0, 5) == (0, 2)
