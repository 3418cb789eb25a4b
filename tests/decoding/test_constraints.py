"""Forced beginnings and forbidden phrases, against the same demands checked on all outputs or on the text."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from contracts.toy_models import random_gru, random_table, source_batch
from decoding.test_ensemble import small_transformer
from decoding.test_required import PHRASES, SOURCES, SPELLING, WORDS, every_output, holds
from decoding.test_runner import needs_gpu, pretend_to_capture
from mallang.decoding import beam, exhaustive, greedy, sampling
from mallang.decoding.constraints import Constraints, constrain
from mallang.decoding.contract import METHODS, Config, Rules
from mallang.decoding.ensemble import Ensemble
from mallang.decoding.matching import Spelling
from mallang.decoding.scoring import score, with_labels
from mallang.decoding.search import search
from mallang.errors import UserError

prefixes = st.lists(st.sampled_from([4, 5, 6]), max_size=2)
lists = st.lists(st.sampled_from(PHRASES), max_size=2)
SEARCHES = [
    Config(method="greedy", max_length=7),
    Config(beam=3, nbest=2, max_length=7),
    Config(method="sampling", nbest=3, max_length=7),
]


def begins(tokens: tuple[int, ...], prefix: list[int]) -> bool:
    """Whether an output begins with the prefix as whole words: what follows is no letter."""
    rest = tokens[len(prefix) : len(prefix) + 1]
    return tokens[: len(prefix)] == tuple(prefix) and (not prefix or not any(SPELLING.texts[t] == "b" for t in rest))


@given(
    seed=st.integers(0, 1000),
    prefix=st.lists(prefixes, min_size=3, max_size=3),
    phrases=st.lists(lists, min_size=3, max_size=3),
)
@settings(deadline=None, max_examples=10)
def test_a_wide_beam_finds_the_best_of_all_outputs_that_obey(seed: int, prefix: Any, phrases: Any) -> None:
    assume(not any(holds(tuple(begin), one) for begin, ones in zip(prefix, phrases, strict=True) for one in ones))
    model = random_table(WORDS, seed) if seed % 2 else random_gru(WORDS, seed)
    config = Config(beam=330, nbest=3, max_length=4)  # 4³ open ones have 320 continuations: all must fit
    rules = constrain(SPELLING, prefix, phrases)
    found = beam.search(model, source_batch(SOURCES), config, rules)
    tried = exhaustive.search(model, source_batch(SOURCES), config.with_method("exhaustive"), rules)
    for source, begin, forbidden, nbest, every in zip(SOURCES, prefix, phrases, found, tried, strict=True):
        right = [
            one
            for one in every_output(model, source, config)
            if begins(one.tokens, begin) and not any(holds(one.tokens, phrase) for phrase in forbidden)
        ][:3]
        if not right:
            assert not nbest[0].finished
            continue
        assert [one.score for one in nbest] == pytest.approx([one.score for one in right], abs=1e-4)
        assert [one.tokens for one in nbest] == [one.tokens for one in right] == [one.tokens for one in every]


@pytest.mark.parametrize("config", SEARCHES, ids=lambda config: config.method)
@given(seed=st.integers(0, 1000))
@settings(deadline=None, max_examples=5)
def test_every_search_obeys_and_keeps_the_scores_of_the_model(config: Config, seed: int) -> None:
    model, batch = random_table(WORDS, seed, sharpness=4.0), source_batch(SOURCES)
    prefix, phrases = [[4], [], [6, 5]], [["b"], ["a", "ab"], ["a b"]]
    method = {"greedy": greedy, "beam": beam, "sampling": sampling}[config.method]
    found = method.search(model, batch, config, rules=constrain(SPELLING, prefix, phrases))
    for begin, forbidden, nbest in zip(prefix, phrases, found, strict=True):
        for one in nbest:
            follows = " " if one.finished else "c"  # where an output was cut off, a longer word may stand
            assert begins(one.tokens, begin)
            assert not any(holds(one.tokens, phrase, follows) for phrase in forbidden)
    labels = [nbest[0].labels(WORDS.eos) for nbest in found]
    for nbest, scores in zip(found, score(model, with_labels(batch, labels, WORDS)), strict=True):
        assert nbest[0].token_scores == pytest.approx(scores, abs=1e-4)


@pytest.mark.parametrize("config", SEARCHES, ids=lambda config: config.method)
def test_both_runners_obey_alike(config: Config) -> None:
    """Sentences end at different times, and their rules are dropped with them."""
    model = Ensemble([random_table(WORDS, 1), random_gru(WORDS, 2)])
    sources = [[4, 5], [5], [], [6, 6, 6], [4]]
    rules = constrain(SPELLING, [[4], [], [6, 5], [6], []], [["b"], ["a", "ab"], ["a b"], [], ["*b*"]])
    method = {"greedy": greedy, "beam": beam, "sampling": sampling}[config.method]
    plain, static = (
        method.search(model, source_batch(sources), replace(config, runner=runner), rules=rules)
        for runner in ("plain", "static")
    )
    assert [[one.tokens for one in nbest] for nbest in plain] == [[one.tokens for one in nbest] for nbest in static]


BATCHES = [  # one after another, so that captured steps are used again for other rules
    ([[4, 5], [5], [], [6, 6, 6]], [[4], [], [6, 5], [6]], [["b"], ["a", "ab"], ["a b"], []]),
    ([[4, 5], [5], [], [6, 6, 6]], [[], [5], [], []], [["a"], [], ["b"], ["ab b"]]),
    ([[4], [5, 5]], [[], []], [["*b*"], ["*b*"]]),
]


@pytest.mark.parametrize("config", SEARCHES, ids=lambda config: config.method)
def test_captured_steps_obey_the_rules_of_each_batch(config: Config) -> None:
    compare_captured(config, "cpu")


@needs_gpu
@pytest.mark.parametrize("config", SEARCHES, ids=lambda config: config.method)
def test_a_gpu_obeys_the_rules_of_each_batch(config: Config) -> None:
    compare_captured(config, "cuda")


def compare_captured(config: Config, device: str) -> None:
    model = Ensemble([random_table(WORDS, 1), small_transformer(WORDS, 2)]).eval()
    config = replace(config, precision="fp32", min_length=3)
    expected = [
        search(
            model, source_batch(sources), replace(config, runner="plain"), rules=constrain(SPELLING, prefix, phrases)
        )
        for sources, prefix, phrases in BATCHES
    ]
    model.to(device)
    with nullcontext() if device == "cuda" else pretend_to_capture():
        for (sources, prefix, phrases), want in zip(BATCHES, expected, strict=True):
            rules = constrain(SPELLING, prefix, phrases, torch.device(device))
            batch = source_batch(sources).to(device)
            found = search(model, batch, replace(config, runner="static"), rules=rules)
            assert [[one.tokens for one in nbest] for nbest in found] == [[o.tokens for o in nbest] for nbest in want]


@given(
    phrases=st.lists(st.sampled_from(PHRASES), min_size=1, max_size=3),
    said=st.lists(st.sampled_from([1, 4, 5, 6]), max_size=9),
    more=st.integers(0, 3),
)
@settings(deadline=None, max_examples=60)
def test_exactly_what_would_complete_a_phrase_is_forbidden(phrases: list[str], said: list[int], more: int) -> None:
    """And what could then only be ended by completing one, however long the buffer is that labels lie in.

    The state is worked out from the last tokens alone.
    """
    rules = constrain(SPELLING, [[]], [phrases])
    labels = torch.tensor([[*said, *[0] * (more + 1)]])
    log_probs = rules.apply(torch.zeros(1, len(WORDS)), labels, torch.tensor(len(said)))[0]
    words = (1, 4, 5, 6)
    ways = [way for length in range(3) for way in itertools.product(words, repeat=length)]

    def can_end(text: tuple[int, ...]) -> bool:
        return any(not any(holds((*text, *way), phrase) for phrase in phrases) for way in ways)

    assume(can_end(tuple(said)))  # no search comes elsewhere
    assert (log_probs[WORDS.eos] == -torch.inf) == any(holds(tuple(said), phrase) for phrase in phrases)
    for token in words:
        assert (log_probs[token] == -torch.inf) == (not can_end((*said, token))), (said, token)


WHOLE = Spelling(WORDS, ("", "?", "", "", " a", " b", "."))
"""No token makes a word longer: the edge after a word always comes."""


@pytest.mark.parametrize("method", METHODS)
def test_a_forbidden_word_is_not_generated_where_only_an_edge_can_follow(method: Any) -> None:
    model = random_table(WORDS, 1)
    model.logits[:, :, 4] += 9.0  # it would rather say the forbidden word
    rules = constrain(WHOLE, [[], []], [["a", "."], ["a b"]])
    config = Config(method=method, max_length=5, min_length=3)
    (first,), (second,) = search(model, source_batch([[4, 5], [4]]), config, rules=rules)
    assert not {4, 6} & set(first.tokens)
    assert (4, 5) not in set(itertools.pairwise(second.tokens)) and 4 in second.tokens


@pytest.mark.parametrize("method", METHODS)
def test_constraints_that_exclude_every_output_are_reported(method: Any) -> None:
    """After "b" only the end could come, but it would be too early."""
    model, rules = random_table(WORDS, 1), constrain(WHOLE, [[5]], [["a", ".", "b b", "b ?", "b?"]])
    with pytest.raises(UserError, match="the constraints exclude every output"):
        search(model, source_batch([[4]]), Config(method=method, max_length=5, min_length=3), rules=rules)


def test_rules_follow_the_sentences_that_stay() -> None:
    rules = constrain(SPELLING, [[4], [5], []], [[], ["a"], ["b", "a"]])
    assert isinstance(rules, Rules)
    kept = rules.keep(torch.tensor([2, 1]))
    log_probs, labels = torch.zeros(4, len(WORDS)), torch.tensor([[4, 0], [6, 0], [5, 0], [5, 0]])
    found = kept.apply(log_probs, labels, torch.tensor(1))  # two hypotheses each
    forbidden = [set((row == -torch.inf).nonzero()[:, 0].tolist()) for row in found]
    assert forbidden == [
        {1, 3, 4, 6},
        {1, 3, 4, 6},
        {5},
        {5},
    ]  # after "a" and after "b" an edge; after the prefix a letter


def test_nothing_asked_changes_nothing() -> None:
    rules = constrain(SPELLING, [[], []], [[], []])
    log_probs = torch.randn(6, len(WORDS))
    assert torch.equal(rules.apply(log_probs, torch.zeros(6, 3, dtype=torch.long), torch.tensor(2)), log_probs)


def test_apply_asks_the_host_nothing() -> None:
    """Tensors on the meta device have no values, so code that reads one fails."""
    rules = constrain(SPELLING, [[4], []], [["a"], []])
    blank = Constraints(
        **{name: value.to("meta") if isinstance(value, torch.Tensor) else value for name, value in vars(rules).items()}
    )
    labels, said = torch.zeros(4, 5, dtype=torch.long, device="meta"), torch.tensor(1, device="meta")
    assert blank.apply(torch.zeros(4, len(WORDS), device="meta"), labels, said).shape == (4, len(WORDS))
