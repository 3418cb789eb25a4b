"""Best-first search against exhaustive search: the same best outputs, and certainty only where it is due."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.test_decoding import SOURCES, penalties, same
from contracts.toy_models import Table, empty_batch, random_gru, random_table, source_batch, tiny_vocabulary
from mallang.decoding import beam, best_first, exhaustive
from mallang.decoding.constraints import constrain
from mallang.decoding.contract import Config
from mallang.decoding.matching import Spelling
from mallang.decoding.ranking import penalty
from mallang.decoding.search import search as search_by_config
from mallang.errors import UserError

seeds = st.integers(0, 10_000)
options = st.fixed_dictionaries(
    {
        "max_length": st.integers(1, 4),
        "min_length": st.integers(1, 2),
        "nbest": st.integers(1, 4),
        "beam": st.integers(1, 2),
    }
)


def made(options: dict[str, Any], **more: Any) -> Config:
    """A configuration that reads all that is in it."""
    least = min(options["min_length"], options["max_length"])
    return Config(method="best-first", **{**options, "min_length": least, **more})


@given(seed=seeds, options=options, penalty=penalties, words=st.integers(1, 3), sharpness=st.floats(0.1, 5.0))
@settings(deadline=None, max_examples=25)
def test_the_same_as_exhaustive_search(
    seed: int, options: dict[str, Any], penalty: dict[str, Any], words: int, sharpness: float
) -> None:
    model = random_table(tiny_vocabulary(words), seed, sharpness)
    batch = source_batch([[min(token, 3 + words) for token in source] for source in SOURCES])
    config = made(options, max_expansions=2000, **penalty)
    found = best_first.solve(model, batch, config)
    assert all(solution.proven for solution in found)
    assert all(one.proven for solution in found for one in solution.nbest)
    same([one.nbest for one in found], exhaustive.search(model, batch, config.with_method("exhaustive")))


@given(seed=seeds, options=options, penalty=penalties)
@settings(deadline=None, max_examples=30)
def test_equals_go_to_the_shorter_then_to_the_lower_ids(
    seed: int, options: dict[str, Any], penalty: dict[str, Any]
) -> None:
    """Every row holds the same two values in another order, so most outputs have equals."""
    likely = torch.rand(6, 6, 6, generator=torch.Generator().manual_seed(seed)).argsort(dim=-1) < 4
    model, config = Table(tiny_vocabulary(2), likely.float()), made(options, **penalty)
    expected = exhaustive.search(model, empty_batch(1), config.with_method("exhaustive"))
    assert [one.tokens for one in best_first.search(model, empty_batch(1), config)[0]] == [
        one.tokens for one in expected[0]
    ]


@given(seed=seeds, options=options, penalty=penalties, budget=st.integers(1, 60))
@settings(deadline=None, max_examples=25)
def test_what_is_called_proven_is_the_best_and_the_bound_holds(
    seed: int, options: dict[str, Any], penalty: dict[str, Any], budget: int
) -> None:
    """With any budget; and what is not proven is at least as good as what the beam had found."""
    model, batch = random_gru(tiny_vocabulary(2), seed), source_batch(SOURCES)
    config = made(options, max_expansions=budget, **penalty)
    whole = exhaustive.search(model, batch, config.with_method("exhaustive"))
    wide = best_first.incumbents(model, batch, config, None)
    for found, best, known in zip(best_first.solve(model, batch, config), whole, wide, strict=True):
        assert found.expansions <= budget
        assert found.bound >= best[0].normalized - 1e-4
        assert found.nbest[0].normalized >= known[0].normalized or not known[0].finished
        if found.proven:
            assert found.bound == found.nbest[0].normalized
            same([found.nbest], [best])
        else:
            assert found.expansions == budget


@given(seed=seeds, penalty=penalties)
@settings(deadline=None, max_examples=5)
def test_how_much_is_read_at_once_changes_no_proof(seed: int, penalty: dict[str, Any]) -> None:
    model, batch = random_gru(tiny_vocabulary(3), seed), source_batch(SOURCES)
    config = Config(method="best-first", max_length=5, nbest=2, **penalty)
    expected = best_first.solve(model, batch, config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(best_first, "TOGETHER", 1)
        patch.setattr(best_first, "ROWS", {"cpu": 3})
        patch.setattr(best_first, "NUMBERS", {"cpu": 30})
        found = best_first.solve(model, batch, config)
    same([one.nbest for one in found], [one.nbest for one in expected])
    # One at a time is the order that reads least.
    assert all(one.expansions <= other.expansions for one, other in zip(found, expected, strict=True))


@given(seed=seeds, penalty=penalties)
@settings(deadline=None, max_examples=20)
def test_no_more_is_read_than_any_search_must(seed: int, penalty: dict[str, Any]) -> None:
    """One at a time: exactly the prefixes whose bound reaches the best output, each once."""
    vocabulary = tiny_vocabulary(2)
    model, limit = random_table(vocabulary, seed), 5
    config = Config(method="best-first", max_length=limit, **penalty)
    read = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(best_first, "TOGETHER", 1)
        (found,) = best_first.solve(model, empty_batch(1), config, watch=lambda said, _: read.append(said))
    assert len(read) == len(set(read)) == found.expansions
    lowest = found.nbest[0].normalized * penalty_at(limit, config)
    for said in itertools.chain(*(itertools.product((1, 4, 5), repeat=length) for length in range(limit))):
        rows = model.logits[[0, *([2, *said][:-1])], [2, *said]].log_softmax(dim=-1).double()
        total = sum(float(rows[place, token]) for place, token in enumerate(said))
        if abs(total - lowest) > 1e-5:  # equals may be read or not
            assert (said in read) == (total > lowest)


def penalty_at(length: int, config: Config) -> float:
    return float(penalty(length, config))


def test_a_better_output_than_the_beams_is_found_and_proven() -> None:
    """Greedy takes the more probable first word, after which all is uncertain."""
    vocabulary = tiny_vocabulary(6)
    logits = torch.full((10, 10, 10), -30.0)
    logits[0, 2, 4], logits[0, 2, 5] = math.log(0.6), math.log(0.4)
    logits[2, 4, 4:] = 0.0  # six ways to go on
    logits[2, 5, 6] = 0.0
    logits[4, :, 3] = logits[5, 6, 3] = 0.0
    model, config = Table(vocabulary, logits), Config(method="best-first", beam=1, length_penalty="none")
    (narrow,) = beam.search(model, empty_batch(1), Config(beam=1, length_penalty="none"))
    (found,) = best_first.solve(model, empty_batch(1), config)
    assert narrow[0].tokens == (4, 4) and found.nbest[0].tokens == (5, 6)
    assert found.proven and found.nbest[0].score == pytest.approx(math.log(0.4), abs=1e-4)
    assert found.expansions <= 4 + 6  # the empty one, "4", "5", "5 6", and what follows "4" at most


def test_a_budget_that_is_too_small_is_reported() -> None:
    model, batch = random_table(tiny_vocabulary(3), 7, sharpness=0.1), source_batch([[4, 5], []])
    config = Config(method="best-first", max_length=8, max_expansions=5)
    for solution in best_first.solve(model, batch, config):
        assert not solution.proven and solution.expansions == 5
        assert solution.bound > solution.nbest[0].normalized
    assert all(one.proven is False for found in best_first.search(model, batch, config) for one in found)


def test_the_frontier_never_holds_more_than_may_still_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    model, sizes = random_table(tiny_vocabulary(40), 7, sharpness=0.1), []
    tidy = best_first.Hunt.tidy

    def watched(hunt: best_first.Hunt) -> None:
        tidy(hunt)
        sizes.append((len(hunt.open), hunt.remaining))

    monkeypatch.setattr(best_first.Hunt, "tidy", watched)
    best_first.search(model, empty_batch(2), Config(method="best-first", max_length=20, max_expansions=100))
    assert all(size <= remaining for size, remaining in sizes)
    assert any(size == remaining > 0 for size, remaining in sizes)


def test_without_an_end_the_unfinished_are_searched_whole() -> None:
    model = random_table(tiny_vocabulary(1), seed=2)
    model.logits[:, :, 3] = -math.inf
    config = Config(method="best-first", max_length=5, nbest=3)
    (found,) = best_first.solve(model, empty_batch(1), config)
    assert found.proven and not any(one.finished for one in found.nbest)
    same([found.nbest], exhaustive.search(model, empty_batch(1), config.with_method("exhaustive")))


def test_a_model_without_any_possible_output_is_named() -> None:
    model = Table(tiny_vocabulary(1), torch.full((5, 5, 5), -math.inf))
    with pytest.raises(UserError, match="no output has a finite score"):
        best_first.search(model, empty_batch(1), Config(method="best-first", max_length=3))


SPELLING = Spelling(tiny_vocabulary(3), ("", "?", "", "", " a", " b", "c"))


@given(seed=seeds, penalty=penalties, nbest=st.integers(1, 3))
@settings(deadline=None, max_examples=6)
def test_rules_are_obeyed(seed: int, penalty: dict[str, Any], nbest: int) -> None:
    model, batch = random_gru(tiny_vocabulary(3), seed), source_batch([[4, 5], [6], []])
    rules = constrain(SPELLING, [[], [5], [4, 6]], [["a b"], ["a"], ["b"]])
    config = Config(method="best-first", max_length=4, nbest=nbest, **penalty)
    found = search_by_config(model, batch, config, rules=rules)
    same(found, search_by_config(model, batch, config.with_method("exhaustive"), rules=rules))


def test_the_beginning_of_a_language_model_is_searched_too() -> None:
    model = random_table(tiny_vocabulary(2), 3)
    config = Config(method="best-first", max_length=4)
    same(
        best_first.search(model, empty_batch(2), config),
        exhaustive.search(model, empty_batch(2), config.with_method("exhaustive")),
    )
