"""Selection by quality against counts by hand, and a classifier against what it was made to tell apart."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from mallang.data.miniworld import text
from mallang.data.selection import Classifier, Rule, features_of, learned, records, select, write_lines
from mallang.errors import UserError

GOOD = text("train", "en")[:150]
BAD = [" ".join(reversed(line.split())).replace("a", "zq") + " BUY NOW!!!" for line in text("train", "en")[200:350]]


def test_a_minimum_keeps_what_has_enough(tmp_path):
    path = tmp_path / "pages.jsonl"
    values = [3, 2, "5", None, "many", 2.99, 100]
    rows = [{"text": f"page {place}", "karma": value} for place, value in enumerate(values)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"text": "page 7"}\n', "utf-8")
    lines, account = select(path, None, {"karma": 3.0}, None, None)
    assert [json.loads(line)["text"] for line in lines] == ["page 0", "page 2", "page 6"]
    assert account.dropped == {"with karma below 3": 2, "without a number in karma": 3}
    assert account.first == {"with karma below 3": 2, "without a number in karma": 4}
    assert str(account).splitlines()[0] == "8 read, 3 kept (37.5%)"


def test_lines_of_json_are_kept_as_they_are_with_lone_surrogates_too(tmp_path):
    path, out = tmp_path / "pages.jsonl", tmp_path / "kept.jsonl"
    lines = ['{"text":"caf\\u00e9",  "karma": 3.50}\n', '{"text": "a \\ud800 b", "karma": 4}\n']
    path.write_text("".join([*lines, '{"text": "c", "karma": 1}\n']), "utf-8")
    classifier = Classifier()
    classifier.fit(GOOD[:5], BAD[:5])
    kept, _ = select(path, None, {"karma": 3.0}, classifier, Rule(threshold=0.0))
    write_lines(out, kept)
    assert out.read_text("utf-8") == "".join(lines)


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path):
    with pytest.raises(UserError, match="cannot be written"):
        write_lines(tmp_path / "out.txt", ["good\n", "\ud800\n"])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["tsv", "csv"])
def test_a_table_keeps_its_first_line_and_its_rows_as_they_are(tmp_path, kind):
    between, path = {"tsv": "\t", "csv": ","}[kind], tmp_path / f"pages.{kind}"
    quoted = '"a, b"' if kind == "csv" else "a, b"
    rows = [("up", "text", "down"), ("4", quoted, "1"), ("1", "c", "0"), ("9", "d", "8")]
    path.write_text("".join(between.join(row) + "\n" for row in rows), "utf-8")
    lines, account = select(path, "text", {"up": 3.0}, None, None)
    assert "".join(lines) == "".join(between.join(rows[place]) + "\n" for place in (0, 1, 3))
    lines, _ = select(path, "text", {"up": 3.0, "down": 2.0}, None, None)
    assert len(lines) == 2 and account.read == 3


def test_the_classifier_tells_good_text_from_bad_text():
    classifier = Classifier()
    classifier.fit(GOOD[:100], BAD[:100])
    right = [classifier.score(line) > 0.5 for line in GOOD[100:]] + [classifier.score(line) < 0.5 for line in BAD[100:]]
    assert sum(right) >= 0.95 * len(right)
    again = Classifier()
    again.fit(GOOD[:100], BAD[:100])
    assert np.array_equal(again.weights, classifier.weights) and again.bias == classifier.bias


def test_the_probability_is_the_logistic_function_of_the_features():
    classifier, found = Classifier(), features_of("a b")
    assert len(found) == 5  # a, b, "a b", and two pieces of characters
    classifier.weights[found], classifier.bias = [1, 2, 3, 4, 5], 0.5
    assert classifier.probability(found) == pytest.approx(1 / (1 + math.exp(-(15 / math.sqrt(5) + 0.5))))
    assert classifier.score("") == pytest.approx(1 / (1 + math.exp(-0.5)))


def test_curated_text_is_told_from_the_raw_text_that_holds_some_of_it(tmp_path):
    """As in GPT-3: the negative examples are the raw text itself, good parts and all."""
    raw, good = tmp_path / "raw.txt", tmp_path / "good.txt"
    raw.write_text("\n".join([*BAD[:100], *GOOD[100:150]]) + "\n", "utf-8")
    good.write_text("\n".join(GOOD[:100]) + "\n", "utf-8")
    lines, account = select(raw, None, {}, learned(good, raw, None), Rule(share=1 / 3))
    assert len(lines) == 50 == account.kept and account.dropped == {"not among the best 33%": 100}
    assert sum(line.strip() in GOOD for line in lines) >= 45


def test_rules():
    scores = np.array([0.1, 0.9, 0.5, 0.9])
    assert Rule(threshold=0.5).keeps(scores).tolist() == [False, True, True, True]
    assert Rule(share=0.25).keeps(scores).tolist() == [False, True, False, False]  # the first of equals
    many = np.repeat([0.05, 0.95], 4000)
    kept = Rule(alpha=9.0, seed=3).keeps(many)
    # P(pareto > 1 - s) = (2 - s)^-alpha for numpy's Lomax variates
    assert kept[:4000].mean() == pytest.approx(1.95**-9, abs=0.005)
    assert kept[4000:].mean() == pytest.approx(1.05**-9, abs=0.03)


@pytest.mark.parametrize(
    ("given", "message"),
    [({}, "keeps nothing"), ({"threshold": 0.5, "share": 0.5}, "keeps nothing"), ({"share": 1.5}, "between 0 and 1"),
     ({"threshold": -0.1}, "between 0 and 1"), ({"alpha": 0.0}, "not above 0")],
)  # fmt: skip
def test_impossible_rules_are_refused(given, message):
    with pytest.raises(UserError, match=message):
        Rule(**given)


@pytest.mark.parametrize(
    ("name", "content", "column", "wanted", "message"),
    [
        ("a.txt", "x\n", None, {"karma": 3.0}, "plain text, without a column 'karma'"),
        ("a.tsv", "text\tups\nx\t3\n", None, {"up": 3.0}, "no column 'up'"),
        ("a.tsv", "text\tups\nx\n", None, {"ups": 3.0}, "a row has 1 cell, but there are 2 columns"),
        ("a.jsonl", '{"text": "x"}\n', None, {"karma": 3.0}, "no column 'karma'"),
        ("a.jsonl", "{oops\n", None, {"karma": 3.0}, "a.jsonl"),
        ("a.conll", "x\tN\n", None, {}, "cannot be filtered"),
        ("a.txt", "", None, {}, "no documents"),
        ("a.tsv", "", None, {}, "empty"),
    ],
)
def test_what_cannot_be_filtered_is_refused(tmp_path: Path, name, content, column, wanted, message):
    path = tmp_path / name
    path.write_text(content, "utf-8")
    with pytest.raises(UserError) as caught:
        select(path, column, wanted, None, None)
    assert message in f"{caught.value} {caught.value.where}"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", "likes\ttext\tyear\n7\tgood words\t2019\n"),
        ("a.jsonl", '{"likes": 7, "text": "good words", "year": 2019}\n'),
    ],
)
def test_the_text_and_the_numbers_of_a_row_are_told_apart(tmp_path: Path, name, content):
    path = tmp_path / name
    path.write_text(content, "utf-8")
    [record] = records(path, "text", ("year", "likes"))
    assert record.text == "good words" and record.numbers == {"year": 2019.0, "likes": 7.0}


def test_the_only_column_of_a_table_is_its_text(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("review\ngood words\n", "utf-8")
    assert [record.text for record in records(tmp_path / "a.tsv", None, ())] == ["good words"]
