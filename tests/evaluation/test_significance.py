from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import sacrebleu
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest
from sacrebleu.significance import _compute_p_value as sacre_p_value

from mallang.errors import UserError
from mallang.evaluation import significance
from mallang.evaluation.score import SEED
from mallang.evaluation.significance import Comparison, paired_bootstrap, paired_randomization
from mallang.evaluation.translation import exact_statistics

TEXT = [
    "A dog runs across the meadow.",
    "Two men are cooking, and one of them is laughing!",
    "The teacher gives a book to the child.",
    "나는 이 노래를 많이 사랑한다.",
    "It's raining in the old town tonight.",
]


def systems(seed: int, sentences: int = 30) -> tuple[list[str], list[str], list[str]]:
    """References, and two systems that drop and double some words, the second one more often."""
    chance = random.Random(seed)
    references = [chance.choice(TEXT) for _ in range(sentences)]

    def outputs(share: float) -> list[str]:
        times = [[1 if chance.random() > share else chance.choice([0, 2]) for _ in text.split()] for text in references]
        rows = zip(references, times, strict=True)
        return [" ".join(w for w, n in zip(text.split(), row, strict=True) for _ in range(n)) for text, row in rows]

    return outputs(0.15), outputs(0.2), references


@pytest.mark.parametrize("test", [paired_bootstrap, paired_randomization])
def test_systems_that_say_the_same_do_not_differ(test: Callable[..., Comparison]) -> None:
    outputs, _, references = systems(1)
    assert (test(outputs, outputs, references).difference, test(outputs, outputs, references).p_value) == (0.0, 1.0)
    assert test(references, references, references, "exact").p_value == 1.0


@given(seed=st.integers(0, 1000), metric=st.sampled_from(["bleu", "chrf"]))
@example(seed=244, metric="bleu")  # one exchange leaves the difference as it was
@settings(deadline=None, max_examples=6)
def test_p_values_are_those_of_sacrebleu_with_equals_counted(seed: int, metric: str) -> None:
    ours, theirs, references = systems(seed)
    known: dict[str, Metric] = {"bleu": sacrebleu.BLEU(), "chrf": sacrebleu.CHRF()}
    for kind, test in (("bs", paired_bootstrap), ("ar", paired_randomization)):
        named: list[tuple[str, Sequence[str]]] = [("theirs", theirs), ("ours", ours)]
        count, equals = 200, []

        def p_value(chances: np.ndarray, observed: float, equals: list[int] = equals) -> float:
            equals.append(int(((chances <= observed) & (chances > observed - 1e-9)).sum()))
            return float(sacre_p_value(chances, observed))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sacrebleu.significance._compute_p_value", p_value)
            _, scores = PairedTest(named, {metric: known[metric]}, [references], kind, n_samples=count)()
        name = next(key for key in scores if key != "System")
        expected = scores[name][1]
        assert not isinstance(expected, str) and len(equals) == 1
        options = {"resamples": count} if kind == "bs" else {"trials": count}
        found = test(ours, theirs, references, metric, **options)
        assert found.p_value == pytest.approx(expected.p_value + equals[0] / (count + 1))
        assert found.first == pytest.approx(expected.score)


def measured(metric: str, outputs: list[str], references: list[str]) -> float:
    """sacreBLEU's score of the whole corpus."""
    if metric == "exact":
        return 100 * sum(a == b for a, b in zip(outputs, references, strict=True)) / len(outputs)
    known = {"bleu": sacrebleu.BLEU(), "chrf": sacrebleu.CHRF()}
    return float(known[metric].corpus_score(outputs, [references]).score)


@pytest.mark.parametrize("metric", ["bleu", "chrf", "exact"])
def test_the_interval_is_that_of_corpora_drawn_and_scored_one_by_one(metric: str) -> None:
    ours, theirs, references = systems(3, sentences=12)
    found = paired_bootstrap(ours, theirs, references, metric, resamples=40)
    chance = np.random.default_rng(SEED)
    differences = []
    for _ in range(40):
        places = chance.integers(0, 12, size=12)
        text = [references[i] for i in places]
        a, b = (measured(metric, [outputs[i] for i in places], text) for outputs in (ours, theirs))
        differences.append(a - b)
    differences.sort()
    assert (found.low, found.high) == pytest.approx((differences[1], differences[-2]))
    assert found.better == pytest.approx(np.mean([(d > 0) + (d == 0) / 2 for d in differences]))
    assert found.difference == pytest.approx(measured(metric, ours, references) - measured(metric, theirs, references))


def test_randomization_comes_near_the_p_value_of_all_exchanges() -> None:
    """With eight sentences all 256 exchanges can be tried."""
    references = list("abcdefgh")
    ours, theirs = list("abcdefxx"), list("abxxxxgx")
    first, second = exact_statistics(ours, references), exact_statistics(theirs, references)
    observed = first.value - second.value
    beyond = 0
    for kept in itertools.product([0, 1], repeat=8):
        choice = np.array(kept)
        swapped = choice @ first.table[:, 0] + (1 - choice) @ second.table[:, 0]
        other = (1 - choice) @ first.table[:, 0] + choice @ second.table[:, 0]
        beyond += 100 * abs(swapped - other) / 8 >= observed - 1e-9
    found = paired_randomization(ours, theirs, references, "exact")
    assert found.p_value == pytest.approx(beyond / 256, abs=0.015)


def test_a_system_against_itself_differs_by_nothing() -> None:
    ours, _, references = systems(1)
    for test in (paired_bootstrap, paired_randomization):
        found = test(ours, ours, references)
        assert found.difference == 0
    found = paired_bootstrap(ours, ours, references)
    assert (found.low, found.high, found.better) == (0, 0, 0.5)


def test_a_clear_difference_is_certain_and_its_sign_is_that_of_the_first() -> None:
    references = [f"the dog number {i} runs over the green meadow" for i in range(60)]
    worse = [text.replace("green", "red") for text in references]
    found = paired_bootstrap(references, worse, references)
    assert found.difference > 10 and found.better == 1 and found.p_value == pytest.approx(1 / 1001)
    assert found.low is not None and 0 < found.low <= found.difference
    back = paired_bootstrap(worse, references, references)
    assert back.difference == pytest.approx(-found.difference) and back.p_value == found.p_value
    assert paired_randomization(references, worse, references).p_value == pytest.approx(1 / 10001)


def test_many_sentences_are_drawn_in_portions_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs, references = systems(5)

    def both() -> list[Comparison]:
        bootstrap = paired_bootstrap(ours, theirs, references, resamples=99)
        return [bootstrap, paired_randomization(ours, theirs, references, trials=99)]

    whole = both()
    monkeypatch.setattr(significance, "AT_ONCE", 70)
    assert both() == whole


def test_a_comparison_says_how_it_was_made() -> None:
    ours, theirs, references = systems(2)
    found = paired_bootstrap(ours, theirs, references, "exact", resamples=50, seed=3)
    assert found.signature == "nrefs:1|case:mixed|space:exact|test:paired-bootstrap|bs:50|seed:3"
    assert found.to_json()["difference"] == found.difference
    assert str(found).startswith(f"exact match {found.difference:+.2f} [")
    assert "p = " in str(paired_randomization(ours, theirs, references, exact_statistics))
    assert paired_bootstrap(ours, theirs, references, "exact", resamples=50, seed=3) == found
    assert paired_bootstrap(ours, theirs, references, "exact", resamples=50, seed=4) != found


def test_what_cannot_be_compared_is_named() -> None:
    with pytest.raises(UserError, match="did you mean bleu"):
        paired_bootstrap(["a"], ["b"], ["a"], "blue")
    with pytest.raises(UserError, match="2 hypotheses but 1 references"):
        paired_bootstrap(["a"], ["b", "c"], ["a"])
    with pytest.raises(UserError, match="resamples must be at least 1"):
        paired_bootstrap(["a"], ["b"], ["a"], resamples=0)
    with pytest.raises(UserError, match="trials must be at least 1"):
        paired_randomization(["a"], ["b"], ["a"], trials=0)
