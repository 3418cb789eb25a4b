"""Word similarity against scipy's rank correlation, analogies against a ranking word by word."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.evaluation import word_similarity
from mallang.evaluation.word_similarity import analogies, ranks, similarity, solve_analogies, spearman

stats = pytest.importorskip("scipy.stats")  # scikit-learn brings it
pairs = st.lists(st.tuples(st.integers(0, 5), st.integers(-3, 3)), min_size=2, max_size=30)


@given(pairs)
@settings(deadline=None)
def test_the_correlation_is_that_of_scipy(pairs):
    x, y = np.array(pairs, dtype=float).T
    np.testing.assert_array_equal(ranks(x), stats.rankdata(x))
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        assert spearman(x, y) == 0
    else:
        assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic)


def test_pairs_that_are_unknown_are_left_out_and_counted():
    cosines, scores = [0.1, None, 0.5, 0.3, 0.9], [1.0, 9.0, 2.0, 3.0, 4.0]
    score = similarity("ws", cosines, scores)
    known = [(cosine, gold) for cosine, gold in zip(cosines, scores, strict=True) if cosine is not None]
    assert score.value == pytest.approx(100 * stats.spearmanr(*np.array(known).T).statistic)
    assert score.count == 4 and "known:4/5" in score.signature
    assert score.low <= score.value <= score.high


def test_nothing_known():
    score = similarity("ws", [None, None], [1.0, 2.0])
    assert score.value == 0 and score.count == 0 and score.low is None


def by_ranking(vectors, question, exclude):
    """The best answer of 3CosAdd, trying every word."""
    a, b, c = (vectors[word] for word in question)
    target = b - a + c
    best, answer = -np.inf, None
    for word, vector in enumerate(vectors):
        if word in question or word in exclude:
            continue
        cosine = float(target @ vector) / np.linalg.norm(target)
        if cosine > best:
            best, answer = cosine, word
    return answer


@pytest.mark.parametrize("chunk", [1, 7, 512])
def test_analogies_are_those_of_a_ranking(chunk, monkeypatch):
    monkeypatch.setattr(word_similarity, "CHUNK", chunk)
    random = np.random.default_rng(1)
    vectors = random.standard_normal((30, 6))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    questions = np.array([random.choice(30, 3, replace=False) for _ in range(40)])
    found = solve_analogies(torch.tensor(vectors), torch.tensor(questions), exclude=(0, 1))
    assert found.tolist() == [by_ranking(vectors, tuple(question), (0, 1)) for question in questions]
    assert len(solve_analogies(torch.tensor(vectors), torch.empty(0, 3, dtype=torch.long))) == 0


def test_the_share_of_solved_analogies():
    score = analogies("google", np.array([True, False, True, True]), 9)
    assert score.value == 75 and score.count == 4 and "known:4/9" in score.signature
    assert 0 <= score.low <= 75 <= score.high <= 100
    assert analogies("google", np.array([], dtype=bool), 9).value == 0
