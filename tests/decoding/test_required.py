"""Outputs that hold required phrases, against a list of all outputs on tiny vocabularies."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.toy_models import random_gru, random_table, source_batch, tiny_vocabulary
from mallang.decoding import beam, required
from mallang.decoding.constraints import constrain
from mallang.decoding.contract import Config, Hypothesis, limits
from mallang.decoding.matching import Spelling, look_for
from mallang.decoding.ranking import hypothesis, ranked
from mallang.decoding.scoring import score, with_labels

SOURCES = [[4, 5], [5], []]
WORDS = tiny_vocabulary(3)
SPELLING = Spelling(WORDS, ("", "?", "", "", " a", "b", " b"))
"""Three tokens: "ab" is one word of two tokens, "a b" two words."""
PHRASES = ["a", "b", "ab", "a b", "a*", "ab b", "b a", "*b"]


def text_of(tokens: tuple[int, ...]) -> str:
    return "".join(SPELLING.texts[token] for token in tokens)


def holds(tokens: tuple[int, ...], phrase: str, follows: str = " ") -> bool:
    """Whether an output holds a phrase, by comparing letters; `follows` is what comes after its end."""
    text = f"{text_of(tokens)}{follows}"
    core = phrase.strip("*")
    starts = [place for place in range(len(text)) if text.startswith(core, place)]
    before = [place for place in starts if phrase.startswith("*") or place == 0 or text[place - 1] in " ?"]
    return any(phrase.endswith("*") or text[place + len(core)] in " ?" for place in before)


def every_output(model: Any, source: list[int], config: Config) -> list[Hypothesis]:
    """All outputs for a source, best first."""
    (limit,) = limits(source_batch([source]), config)
    words = [1, 4, 5, 6]
    labels = [[*said, 3] for length in range(limit) for said in itertools.product(words, repeat=length)]
    scores = score(model, with_labels(source_batch([source] * len(labels)), labels, WORDS))
    return ranked(hypothesis(*pair, WORDS, config) for pair in zip(labels, scores, strict=True))


@given(
    seed=st.integers(0, 1000),
    wanted=st.lists(st.lists(st.sampled_from(PHRASES), max_size=2, unique=True), min_size=3, max_size=3),
    penalty=st.sampled_from(["average", "none"]),
    stop=st.sampled_from(["optimal", "complete"]),
)
@settings(deadline=None, max_examples=8)
def test_a_wide_beam_finds_the_best_of_all_outputs_that_hold_the_phrases(
    seed: int, wanted: list[list[str]], penalty: Any, stop: Any
) -> None:
    model = random_table(WORDS, seed) if seed % 2 else random_gru(WORDS, seed)
    config = Config(beam=330, nbest=3, max_length=4, length_penalty=penalty, stop=stop)
    matchers = [[look_for((phrase,), SPELLING) for phrase in phrases] for phrases in wanted]
    found = required.search(model, source_batch(SOURCES), config, matchers)
    for source, phrases, nbest in zip(SOURCES, wanted, found, strict=True):
        right = [one for one in every_output(model, source, config) if all(holds(one.tokens, p) for p in phrases)]
        finished = [one for one in nbest if one.finished]
        assert bool(finished) == bool(right) and finished in ([], nbest)
        assert [one.score for one in finished] == pytest.approx([one.score for one in right[:3]], abs=1e-4)
        assert [one.tokens for one in finished] == [one.tokens for one in right[:3]]


@given(seed=st.integers(0, 1000), width=st.integers(1, 4), wanted=st.lists(st.sampled_from(PHRASES), max_size=3))
@settings(deadline=None, max_examples=20)
def test_a_narrow_beam_finds_room_for_all_phrases(seed: int, width: int, wanted: list[str]) -> None:
    model = random_table(WORDS, seed, sharpness=6.0)
    config = Config(beam=width, max_length=14)
    matchers = [look_for((phrase,), SPELLING) for phrase in wanted]
    for nbest in required.search(model, source_batch([[4, 5, 4]] * 2), config, [matchers] * 2):
        assert nbest[0].finished
        assert all(holds(nbest[0].tokens, phrase) for phrase in wanted)
        labels = nbest[0].labels(WORDS.eos)
        (rescored,) = score(model, with_labels(source_batch([[4, 5, 4]]), [labels], WORDS))
        assert nbest[0].token_scores == pytest.approx(rescored, abs=1e-4)


@given(seed=st.integers(0, 1000))
@settings(deadline=None, max_examples=10)
def test_without_phrases_it_is_beam_search(seed: int) -> None:
    model = random_table(WORDS, seed)
    config = Config(beam=4, nbest=2, max_length=9)
    plain = beam.search(model, source_batch(SOURCES), config)
    found = required.search(model, source_batch(SOURCES), config, [[], [], []])
    for nbest, expected in zip(found, plain, strict=True):
        if expected[0].finished:  # at the limit this search prefers an end that fell out of the beam
            assert [one.tokens for one in nbest] == [one.tokens for one in expected]


def test_the_limit_may_leave_no_room() -> None:
    model = random_table(WORDS, 1)
    matchers = [[look_for((phrase,), SPELLING) for phrase in ("a b", "b a")]]
    (nbest,) = required.search(model, source_batch([[4]]), Config(beam=3, max_length=2), matchers)
    assert not nbest[0].finished and len(nbest[0].tokens) == 2
    (nbest,) = required.search(model, source_batch([[4]]), Config(beam=3, max_length=4), matchers)
    assert nbest[0].finished and text_of(nbest[0].tokens) in (" a b a", " b a b")


def test_what_is_forbidden_and_the_prefix_hold_as_well() -> None:
    model = random_table(WORDS, 3)
    rules = constrain(SPELLING, [[6], []], [["ab"], ["a b"]])
    matchers = [[look_for(("a",), SPELLING)], [look_for(("b",), SPELLING), look_for(("a",), SPELLING)]]
    found = required.search(
        model, source_batch([[4], [4, 5]]), Config(beam=40, nbest=40, max_length=5), matchers, rules
    )
    for nbest, must_not, must in zip(found, ("ab", "a b"), (["a"], ["a", "b"]), strict=True):
        assert len(nbest) > 5
        for one in nbest:
            assert not holds(one.tokens, must_not) and all(holds(one.tokens, phrase) for phrase in must)
    assert {one.tokens[0] for one in found[0]} == {6}
    assert len({one.tokens[0] for one in found[1]}) > 1


def test_nothing_is_found_where_the_required_is_forbidden() -> None:
    rules = constrain(SPELLING, [[]], [["a"]])
    matchers = [[look_for(("a",), SPELLING)]]
    (nbest,) = required.search(
        random_table(WORDS, 3), source_batch([[4]]), Config(beam=3, max_length=5), matchers, rules
    )
    assert not any(one.finished or holds(one.tokens, "a", follows="c") for one in nbest)


def test_a_shortest_length_holds() -> None:
    matchers = [[look_for(("a",), SPELLING)]]
    config = Config(beam=3, max_length=6, min_length=5)
    (nbest,) = required.search(random_table(WORDS, 3), source_batch([[4]]), config, matchers)
    assert len(nbest[0].tokens) >= 4


def test_no_sentences_no_outputs() -> None:
    batch = source_batch([[4]]).map(lambda tensor: tensor[:0])
    assert required.search(random_table(WORDS, 3), batch, Config(), []) == []
