from __future__ import annotations

import json
import math

import numpy as np
import pytest

from mallang.errors import UserError
from mallang.evaluation.perplexity import perplexities


def test_by_hand() -> None:
    """Every token, `</s>` too, has probability 1/8: 3 + 1 and 5 + 1 tokens, 2 + 1 and 3 + 1 words, 12 bytes in all."""
    sums = [4 * math.log(1 / 8), 6 * math.log(1 / 8)]
    scores = perplexities(sums, [3, 5], [2, 3], [4, 6])
    assert list(scores) == ["token", "word", "byte"]
    assert scores["token"].value == pytest.approx(8)
    assert scores["word"].value == pytest.approx(8 ** (10 / 7))
    assert scores["byte"].value == pytest.approx(3 * 10 / 12)
    assert [score.name for score in scores.values()] == ["perplexity per token", "perplexity per word", "bits per byte"]
    assert all(score.count == 2 for score in scores.values())


def test_without_ends() -> None:
    sums = [3 * math.log(1 / 8), 5 * math.log(1 / 8)]
    scores = perplexities(sums, [3, 5], [2, 3], [4, 6], ends=False)
    assert scores["token"].value == pytest.approx(8)
    assert scores["word"].value == pytest.approx(8 ** (8 / 5))
    assert scores["byte"].value == pytest.approx(3 * 8 / 10)


def test_signatures_say_what_was_counted() -> None:
    counted = perplexities([-1.0], [1], [1], [3], tokenizer="bpe-8000")
    assert counted["token"].signature == "unit:token|ends:counted|log:e|tok:bpe-8000|bs:1000|seed:12345"
    assert counted["word"].signature == "unit:word|ends:counted|log:e|bs:1000|seed:12345"
    assert counted["byte"].signature == "unit:byte|ends:counted|log:2|bs:1000|seed:12345"
    assert "ends:not-counted" in perplexities([-1.0], [1], [1], [3], ends=False)["word"].signature


def test_the_interval_is_over_sentences() -> None:
    """It holds the value, narrows with more sentences, and is a point where all sentences are alike."""
    random = np.random.default_rng(2)
    lengths = random.integers(3, 30, size=400)
    sums = [-float(random.normal(4, 0.5)) * (length + 1) for length in lengths]
    widths = []
    for count in (25, 400):
        scores = perplexities(sums[:count], lengths[:count].tolist(), lengths[:count].tolist(), [5] * count)
        for score in scores.values():
            assert score.low is not None and score.high is not None
            assert score.low < score.value < score.high
        widths.append(scores["word"].high - scores["word"].low)
    assert widths[1] < widths[0] / 2
    alike = perplexities([-6.0] * 9, [2] * 9, [2] * 9, [2] * 9)["token"]
    assert alike.low == pytest.approx(alike.value) and alike.high == pytest.approx(alike.value)


def test_an_impossible_sentence_makes_it_infinite() -> None:
    scores = perplexities([-1.0, -math.inf], [1, 1], [1, 1], [1, 1])
    for score in scores.values():
        assert score.value == math.inf
        assert score.high == math.inf
    json.dumps([score.to_json() for score in scores.values()], allow_nan=False)
    assert perplexities([-1e6], [1], [1], [1])["word"].value == math.inf  # too large to be written as a number


def test_empty_sentences_count_by_their_end_alone() -> None:
    assert perplexities([math.log(0.5)] * 3, [0] * 3, [0] * 3, [0] * 3)["word"].value == pytest.approx(2)
    scores = perplexities([0.0, math.log(0.25)], [0, 1], [0, 1], [0, 1], ends=False)
    assert scores["word"].value == pytest.approx(4)
    assert scores["word"].low == pytest.approx(1)  # a quarter of the draws holds the empty sentence alone


def test_what_cannot_be_measured_is_named() -> None:
    with pytest.raises(UserError, match="2 sentences but 1 counts of their words"):
        perplexities([-1.0, -1.0], [1, 1], [1], [1, 1])
    with pytest.raises(UserError, match="no word"):
        perplexities([-1.0], [1], [0], [1], ends=False)
    with pytest.raises(UserError, match="no token"):
        perplexities([], [], [], [])
