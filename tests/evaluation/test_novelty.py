"""What of a text stands in a corpus, against searching in strings, in Korean and in English."""

from __future__ import annotations

import json
import re
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.errors import UserError
from mallang.evaluation.novelty import Config, Report, novelty
from mallang.text.tokenizer import Config as TextConfig
from mallang.text.tokenizer import Tokenizer

CORPUS = (
    "유나는 지난주에 배를 탔다.",
    "민수는 사과를 먹었다.",
    "The dog sat on the mat.",
    "민수는 사과를 먹었다.",
    "A cat sat on the red mat.",
)
WORDS = st.sampled_from(["배", "를", "the", "The", "cat", "먹었다", ".", "sat"])
LINES = st.lists(st.lists(WORDS, max_size=7).map(" ".join), min_size=1, max_size=6)


def stands(parts: list[str], rows: list[list[str]]) -> bool:
    """Whether words stand side by side in a row, by searching for them as a string."""
    wanted = " " + " ".join(parts) + " "
    return any(wanted in " " + " ".join(row) + " " for row in rows)


def cut(text: str) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", text)


@settings(max_examples=30, deadline=None)
@given(texts=LINES, corpus=LINES)
def test_ngrams_and_spans_are_those_of_a_search(texts: list[str], corpus: list[str]) -> None:
    rows = [cut(row) for row in corpus]
    if not any(map(cut, texts)) or not any(rows):
        return
    report = novelty(texts, corpus, Config(orders=4, least=2))
    for text, found in zip(texts, report.texts, strict=True):
        words = cut(text)
        for n in range(1, 5):
            grams = [words[place : place + n] for place in range(len(words) - n + 1)]
            assert found.found[n - 1] == sum(stands(gram, rows) for gram in grams)
        assert found.is_row == (bool(words) and words in rows)
        for span in found.spans:
            assert text[span.start : span.end] == span.text
            assert stands(cut(span.text), [rows[span.row]])
            assert not stands(cut(span.text), rows[: span.row]), "the first row is named"
        assert (found.longest.units if found.longest else 0) == longest(words, rows)
        spans = [cut(span.text) for span in found.spans]
        assert spans == whole_spans(words, rows, 2)
        assert found.covered == len(covered(words, rows, 2))


def covered(words: list[str], rows: list[list[str]], least: int) -> set[int]:
    """The places of words that stand side by side with others, `least` or more together, in a row."""
    parts = [range(start, end) for end in range(len(words) + 1) for start in range(end - least + 1)]
    return {place for part in parts if stands([words[i] for i in part], rows) for place in part}


def whole_spans(words: list[str], rows: list[list[str]], least: int) -> list[list[str]]:
    """What stands in a row and is part of nothing longer that does."""
    parts = [(start, end) for start in range(len(words)) for end in range(start + least, len(words) + 1)]
    found = [(start, end) for start, end in parts if stands(words[start:end], rows)]
    return [
        words[start:end]
        for start, end in found
        if not any((a, b) != (start, end) and a <= start and end <= b for a, b in found)
    ]


def longest(words: list[str], rows: list[list[str]]) -> int:
    """The most words that stand side by side in a row."""
    parts = [words[start:end] for end in range(len(words) + 1) for start in range(end)]
    return max((len(part) for part in parts if stands(part, rows)), default=0)


@settings(max_examples=25, deadline=None)
@given(text=st.text("ab가나 ", min_size=1, max_size=30), corpus=st.lists(st.text("ab가나 ", max_size=30), min_size=1))
def test_characters_are_found_as_substrings(text: str, corpus: list[str]) -> None:
    if not any(corpus):
        return
    found = novelty([text], corpus, Config(unit="char", orders=6, least=1)).texts[0]
    for n in range(1, 7):
        parts = [text[place : place + n] for place in range(len(text) - n + 1)]
        assert found.found[n - 1] == sum(any(part in row for row in corpus) for part in parts)
    for span in found.spans:
        assert span.text in corpus[span.row]
        assert span.times == sum(row.startswith(span.text, place) for row in corpus for place in range(len(row)))


def test_a_report_by_hand() -> None:
    report = novelty(["민수는 사과를 먹었다.", "A dog sat on the mat.", ""], CORPUS, Config(orders=4, least=3))
    copied, mixed, empty = report.texts
    assert copied.is_row and copied.longest is not None
    assert (copied.longest.row, copied.longest.times, copied.longest.units) == (1, 2, 4)
    assert not mixed.is_row and mixed.found == (7, 5, 4, 3)  # "A dog" is new
    assert [span.text for span in mixed.spans] == ["dog sat on the mat."]
    assert empty.units == 0 and not empty.spans and empty.longest is None
    assert report.whole.value == 50.0 and report.whole.count == 2  # empty lines do not count
    assert report.found[0].value == 100.0
    assert report.found[1].value == pytest.approx(100 * 8 / 9)
    assert [span.text for span in report.spans] == ["dog sat on the mat.", "민수는 사과를 먹었다."]
    assert "unit:word" in str(report) and "corpus:5 rows" in report.whole.signature


def test_a_span_ends_with_its_row_unless_rows_are_joined() -> None:
    corpus = ["그는 어제", "학교에 갔다"]
    apart = novelty(["그는 어제 학교에 갔다"], corpus)
    joined = novelty(["그는 어제 학교에 갔다"], corpus, Config(across=True))
    assert apart.texts[0].longest is not None and apart.texts[0].longest.units == 2
    assert joined.texts[0].longest is not None and joined.texts[0].longest.units == 4
    assert joined.texts[0].longest.row == 0


def test_capitals_and_composition() -> None:
    assert not novelty(["THE DOG"], CORPUS).texts[0].found[0]
    assert novelty(["THE DOG"], CORPUS, Config(lowercase=True)).texts[0].found[:2] == (2, 1)
    decomposed = "민수는"  # typed in jamo
    assert novelty([decomposed], CORPUS).texts[0].found[0] == 1
    assert novelty(["İ THE"], ["the"], Config(lowercase=True)).texts[0].found[0] == 1


def test_tokens_of_a_tokenizer() -> None:
    report = novelty(["민수는 사과를 먹었다!"], CORPUS, Config(unit="token", least=2), tokenizer())
    assert report.texts[0].longest is not None
    assert report.texts[0].longest.text == "민수는 사과를 먹었다"
    assert "unit:token (bpe)" in report.whole.signature


def test_a_report_is_json() -> None:
    plain = json.loads(json.dumps(report().to_json(lambda row: f"line {row + 1}")))
    assert plain["texts"][0]["longest"]["where"] == "line 2"
    assert plain["texts"][0]["ngrams"][0] == {"n": 1, "found": 4, "of": 4}
    assert plain["corpus_rows"] == 5


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: novelty([], CORPUS), "no text"),
        (lambda: novelty(["물"], ["", " "]), "corpus is empty"),
        (lambda: novelty(["물"], CORPUS, Config(unit="token")), "needs a tokenizer"),
        (lambda: novelty(["물"], CORPUS, Config(), tokenizer()), "no use for a tokenizer"),
        (lambda: Config(orders=0), "at least 1"),
        (lambda: Config(unit="token", lowercase=True), "tokens are"),
    ],
)
def test_what_cannot_be_examined(make, words) -> None:
    with pytest.raises(UserError, match=words):
        make()


def report() -> Report:
    return novelty(["민수는 사과를 먹었다."], CORPUS)


@cache
def tokenizer() -> Tokenizer:
    return Tokenizer.train(CORPUS, TextConfig(vocabulary=120))
