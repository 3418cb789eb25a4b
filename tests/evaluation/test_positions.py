"""Position by position: against an explicit walk, and the examples that show why BLEU is needed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.evaluation.explanation import explain, explain_corpus
from mallang.evaluation.positions import position_statistics
from mallang.evaluation.significance import paired_bootstrap

TEXT = st.lists(st.sampled_from("abc"), max_size=6)


@given(pairs=st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=5))
@settings(deadline=None, max_examples=60)
def test_positions_are_counted_one_by_one(pairs: list[tuple[list[str], list[str]]]) -> None:
    right = everywhere = 0
    for said, wanted in pairs:
        for place in range(max(len(said), len(wanted))):
            everywhere += 1
            right += place < len(said) and place < len(wanted) and said[place] == wanted[place]
    found = position_statistics([" ".join(said) for said, _ in pairs], [" ".join(wanted) for _, wanted in pairs])
    assert found.score().value == pytest.approx(100 * right / everywhere if everywhere else 0.0)


def test_the_examples_of_the_page() -> None:
    love = explain("I love you", "Oh I love you")
    assert (love.positions_right, love.positions, love.position_accuracy) == (0, 4, 0.0) and love.f > 85
    assert str(love).splitlines()[-1] == "positions         0 of 4 right: accuracy 0.00"
    song = explain("나는 이 노래를 많이 사랑한다", "나는 이 영화를 많이 사랑한다")
    assert song.position_accuracy == 80 == pytest.approx(song.f) and song.to_json()["positions_right"] == 4
    both = explain_corpus(["I love you", "a b"], ["Oh I love you", "a c"])
    assert (both.positions_right, both.positions) == (1, 6)
    several = position_statistics(["a b c"], [["x a b c", "a b d"]])
    assert several.score().value == pytest.approx(200 / 3) and "nrefs:2" in several.score().signature
    assert explain("", "a").position_accuracy == 0.0


def test_systems_are_compared_by_it() -> None:
    found = paired_bootstrap(["a b"] * 5, ["b a"] * 5, ["a b"] * 5, "positions")
    assert (found.metric, found.first, found.second) == ("position accuracy", 100, 0)
