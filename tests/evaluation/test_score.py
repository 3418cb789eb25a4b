from __future__ import annotations

import json
import math

import numpy as np
import pytest

from mallang.evaluation.score import Score, interval


def test_a_score_reads_as_one_line() -> None:
    assert str(Score("BLEU", 41.0249, "nrefs:1|case:mixed", 40.1, 42.0)) == (
        "BLEU 41.02 [40.10, 42.00] (nrefs:1|case:mixed)"
    )
    assert str(Score("bits per byte", 1.08349, "unit:byte")) == "bits per byte 1.083 (unit:byte)"


@pytest.mark.parametrize(
    "score",
    [
        Score("BLEU", 41.02, "nrefs:1", 40.1, 42.0, 1000),
        Score("accuracy", 0.5, "n:2"),
        Score("perplexity per word", math.inf, "unit:word", 100.0, math.inf, 3),
    ],
)
def test_a_score_survives_json(score: Score) -> None:
    text = json.dumps(score.to_json(), allow_nan=False)
    assert Score.from_json(json.loads(text)) == score


def test_a_score_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Score("BLEU", 1.0, "").value = 2.0  # type: ignore[misc]


def test_the_interval_of_a_mean_is_the_textbook_one() -> None:
    """Over 400 numbers the mean's 95 % interval is about ±1.96 standard errors."""
    numbers = np.random.default_rng(1).normal(10, 2, size=400)
    low, high = interval(np.stack([numbers, np.ones(400)], axis=1), lambda sums: float(sums[0] / sums[1]))
    error = numbers.std() / 20
    assert low == pytest.approx(numbers.mean() - 1.96 * error, abs=0.15 * error)
    assert high == pytest.approx(numbers.mean() + 1.96 * error, abs=0.15 * error)
    again = interval(np.stack([numbers, np.ones(400)], axis=1), lambda sums: float(sums[0] / sums[1]))
    assert again == (low, high)


def test_the_ends_leave_out_25_draws_of_1000_on_either_side() -> None:
    values = iter(np.random.default_rng(1).permutation(1000).tolist())
    assert interval(np.ones((2, 1), dtype=np.int64), lambda sums: float(next(values))) == (25.0, 974.0)


def test_every_draw_has_as_many_sentences() -> None:
    seen = []

    def measure(sums: np.ndarray) -> float:
        seen.append(sums.tolist())
        return 0.0

    interval(np.ones((7, 2), dtype=np.int64), measure)
    assert seen == [[7.0, 7.0]] * 1000


def test_one_infinite_sentence_does_not_reach_the_draws_without_it() -> None:
    """Of two sentences drawn twice, a quarter of the draws misses the infinite one."""
    values = []

    def measure(sums: np.ndarray) -> float:
        values.append(float(sums[0]))
        return float(sums[0])

    low, high = interval(np.array([[math.inf, 1.0], [2.0, 1.0]]), measure)
    assert (low, high) == (4.0, math.inf)
    assert set(values) == {4.0, math.inf}
    assert 200 < values.count(4.0) < 300
