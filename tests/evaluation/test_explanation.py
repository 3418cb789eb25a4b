from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.errors import UserError
from mallang.evaluation.bag_of_words import count_words, harmonic, precision_and_recall
from mallang.evaluation.explanation import explain, explain_corpus
from mallang.evaluation.translation import bleu

TEXT = st.lists(st.sampled_from(["a", "b", "c", "d.", "e,"]), max_size=9).map(" ".join)
LONG = st.lists(st.sampled_from(["a", "b", "c", "d."]), min_size=1, max_size=9).map(" ".join)


@given(hypothesis=TEXT, references=st.lists(LONG, min_size=1, max_size=3), smooth=st.sampled_from(["exp", "none"]))
@settings(deadline=None, max_examples=80)
def test_a_sentence_has_the_numbers_of_sacrebleu(hypothesis: str, references: list[str], smooth: str) -> None:
    metric = sacrebleu.BLEU(smooth_method=smooth, effective_order=True)
    theirs = metric.sentence_score(hypothesis, references)
    ours = explain(hypothesis, references, smooth=smooth)
    assert ours.bleu == pytest.approx(theirs.score, abs=1e-9)
    assert ours.brevity_penalty == pytest.approx(theirs.bp)
    assert [order.matched for order in ours.orders] == theirs.counts
    assert [order.total for order in ours.orders] == theirs.totals
    assert [100 * (order.precision or 0) for order in ours.orders] == pytest.approx(theirs.precisions)
    assert (ours.length, ours.reference_length) == (theirs.sys_len, theirs.ref_len)
    assert ours.signature == str(metric.get_signature())
    ((right, words, reference),) = count_words([hypothesis], [references]).tolist()
    assert (ours.right, ours.length) == (right, words)
    assert ours.f == pytest.approx(100 * harmonic(*precision_and_recall(right, words, reference)))


@given(pairs=st.lists(st.tuples(TEXT, LONG), min_size=1, max_size=6), smooth=st.sampled_from(["exp", "none"]))
@settings(deadline=None, max_examples=40)
def test_a_corpus_has_the_numbers_of_sacrebleu(pairs: list[tuple[str, str]], smooth: str) -> None:
    hypotheses, references = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    metric = sacrebleu.BLEU(smooth_method=smooth)
    theirs = metric.corpus_score(hypotheses, [references])
    ours = explain_corpus(hypotheses, references, smooth=smooth)
    assert ours.bleu == pytest.approx(theirs.score, abs=1e-9)
    assert ours.brevity_penalty == pytest.approx(theirs.bp)
    assert [order.precision for order in ours.orders] == pytest.approx([each / 100 for each in theirs.precisions])
    assert ours.signature == str(metric.get_signature())
    assert ours.sentences == len(pairs)


def test_a_corpus_is_explained_as_it_is_scored() -> None:
    hypotheses, references = ["a b c d e", "x y"], [["a b c d f", "a b c"], ["x z"]]
    ours = explain_corpus(hypotheses, references)
    assert ours.bleu == pytest.approx(bleu(hypotheses, references).value)
    assert "nrefs:var" in ours.signature


def test_i_love_you() -> None:
    """All three words and both pairs are right; only the length tells the difference from: Oh I love you."""
    found = explain("I love you", "Oh I love you")
    assert [(order.matched, order.total) for order in found.orders] == [(3, 3), (2, 2), (1, 1), (0, 0)]
    assert found.orders[3].precision is None
    assert found.geometric_mean == 1 and found.brevity_penalty == pytest.approx(math.exp(1 - 4 / 3))
    assert found.bleu == pytest.approx(71.65, abs=0.01)
    assert (found.precision, found.recall, found.f) == pytest.approx((100, 75, 600 / 7))
    text = str(found)
    assert "exp(1 − 4/3) = 0.7165" in text and "too short to have any" in text and "by smoothing" not in text


def test_one_wrong_word_of_five() -> None:
    """F says 80, though the song has become another: BLEU sees that no three words in a row are right."""
    found = explain("나는 이 노래를 많이 사랑한다", "나는 이 영화를 많이 사랑한다")
    assert [(order.matched, order.total) for order in found.orders] == [(4, 5), (2, 4), (0, 3), (0, 2)]
    assert [order.precision for order in found.orders] == pytest.approx([4 / 5, 2 / 4, 1 / 2 / 3, 1 / 4 / 2])
    assert [order.smoothed for order in found.orders] == [False, False, True, True]
    assert found.f == pytest.approx(80)
    assert found.bleu == pytest.approx(100 * (0.8 * 0.5 / 6 / 8) ** 0.25)
    plain = explain("나는 이 노래를 많이 사랑한다", "나는 이 영화를 많이 사랑한다", smooth="none")
    assert plain.bleu == 0 and "smooth:none" in plain.signature
    assert "wrong:     “노래를”" in str(found) and "0 without smoothing" in str(found)


def test_words_said_too_often_are_clipped() -> None:
    """Papineni's example: seven times `the`, of which the reference has two."""
    found = explain("the the the the the the the", "The cat is on the mat the", "13a")
    first = found.orders[0]
    assert (first.matched, first.total) == (2, 7)
    (word,) = first.ngrams
    assert (word.words, word.count, word.allowed, word.matched) == (("the",), 7, 2, 2)
    assert "“the” 7 times, 2 count" in str(found)


def test_nothing_to_explain_is_zero_throughout() -> None:
    for hypothesis in ("", "x y"):
        found = explain(hypothesis, "a b c")
        assert found.bleu == 0 and found.f == 0 and "BLEU" in str(found)


def test_it_is_plain_data() -> None:
    found = explain("a b a", ["a b", "b a"])
    values = json.loads(json.dumps(found.to_json()))
    assert values["hypothesis"] == ["a", "b", "a"] and values["references"] == [["a", "b"], ["b", "a"]]
    assert values["orders"][0]["ngrams"][0] == {"words": ["a"], "count": 2, "allowed": 1}
    assert values["bleu"] == found.bleu


def test_what_cannot_be_explained_is_named() -> None:
    with pytest.raises(UserError, match="not smoothed by 'add'"):
        explain("a", "a", smooth="add")
    with pytest.raises(UserError, match="cannot tokenize"):
        explain("a", "a", "14a")
    with pytest.raises(UserError, match="no reference"):
        explain("a", [])


def test_the_page_about_bleu_quotes_what_is_printed() -> None:
    page = Path(__file__).parents[2] / "docs" / "explanation" / "bleu.md"
    quoted = next(block for block in page.read_text("utf-8").split("```") if block.startswith("text\noutput"))
    printed = str(explain("나는 이 노래를 많이 사랑한다", "나는 이 영화를 많이 사랑한다"))
    assert printed.startswith(quoted.removeprefix("text\n"))
