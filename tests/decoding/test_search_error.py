"""The search error of beams against a model whose best output is known by hand, and against exhaustive search."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.toy_models import Table, empty_batch, random_table, source_batch, tiny_vocabulary
from mallang.decoding.contract import Config, Hypothesis
from mallang.decoding.search import search
from mallang.decoding.search_error import Row, compare, search_error
from mallang.errors import UserError


def garden_path() -> Table:
    """Greedy takes word 4 (0.6), after which six ways are equally good; word 5 (0.4) has one certain end."""
    logits = torch.full((10, 10, 10), -30.0)
    logits[0, 2, 4], logits[0, 2, 5] = math.log(0.6), math.log(0.4)
    logits[2, 4, 4:] = 0.0
    logits[2, 5, 6] = logits[4, :, 3] = logits[5, 6, 3] = 0.0
    return Table(tiny_vocabulary(6), logits)


def test_by_hand() -> None:
    model, batch = garden_path(), empty_batch(3)
    found = search_error(lambda config: search(model, batch, config), Config(length_penalty="none"), [1, 2])
    greedy, wide = found.rows
    assert (found.sentences, found.solved, found.empty) == (3, 3, 0)
    assert (greedy.beam, greedy.errors, greedy.share) == (1, 3, 1.0)
    assert greedy.loss == pytest.approx(math.log(0.4) - math.log(0.1), abs=1e-4)
    assert wide == Row(2, 0, 0, 0.0, 0.0)
    assert "3 of 3 sentences (100.0%)" in str(found) and "   1       3    100.0%     1.38629" in str(found)
    assert found.to_json()["rows"][1]["errors"] == 0


@given(seed=st.integers(0, 10_000), penalty=st.sampled_from(["average", "none", "gnmt"]))
@settings(deadline=None, max_examples=10)
def test_as_exhaustive_search_would_count(seed: int, penalty: str) -> None:
    model, batch = random_table(tiny_vocabulary(2), seed), source_batch([[4], [5, 5], []])
    config = Config(max_length=4, length_penalty=penalty)  # type: ignore[arg-type]
    every = search(model, batch, config.with_method("exhaustive"))
    found = search_error(lambda config: search(model, batch, config), config, [1, 3])
    assert found.solved == 3 and found.empty == sum(not best[0].tokens for best in every)
    for row, width in zip(found.rows, (1, 3), strict=True):
        outputs = search(model, batch, Config(beam=width, max_length=4, length_penalty=penalty))  # type: ignore[arg-type]
        pairs = [(best[0], one[0]) for best, one in zip(every, outputs, strict=True)]
        losses = [best.normalized - one.normalized for best, one in pairs if one.finished]
        assert row.cut == 3 - len(losses) and row.errors == sum(loss > 1e-4 for loss in losses) + row.cut
        assert row.loss == (pytest.approx(sum(losses) / len(losses), abs=1e-3) if losses else None)


def test_what_is_not_solved_is_not_counted() -> None:
    def given(config: Config) -> list[list[Hypothesis]]:
        """One proven best that the beam misses, one that is only the best so far and worse than the beam's."""
        assert config.precision == "fp32" and config.nbest == 1
        if config.method == "best-first":
            assert (config.beam, config.max_expansions) == (4, 7)
            return [[Hypothesis((), -1.0, -1.0, True, (-1.0,), proven=known)] for known in (True, False)]
        assert config.stop == "complete"
        return [[Hypothesis((4,), -2.0, -score, True, (-1.0, -1.0))] for score in (1.5, 0.5)]

    found = search_error(given, Config(stop="complete"), [4, 1], max_expansions=7)
    assert (found.sentences, found.solved, found.empty) == (2, 1, 1)
    assert found.rows == (Row(4, 1, 0, 1.0, 0.5), Row(1, 1, 0, 1.0, 0.5))
    nothing = search_error(
        lambda config: [[*one[:0], one[0]] for one in given(config)[1:]], Config(stop="complete"), [4], 7
    )
    assert nothing.rows == (Row(4, 0, 0, None, None),) and "–" in str(nothing)


def test_an_output_that_was_cut_off_is_no_output() -> None:
    """However well its beginning scores."""
    best = Hypothesis((4,), -3.0, -1.5, True, (-1.0, -2.0), proven=True)
    cut = Hypothesis((4, 4), -0.2, -0.1, False, (-0.1, -0.1))
    worse = Hypothesis((5,), -4.0, -2.0, True, (-2.0, -2.0))
    assert compare(2, [(best, cut), (best, best), (best, worse)]) == Row(2, 2, 1, 2 / 3, 0.25)
    assert compare(2, [(cut, cut)]) == Row(2, 0, 0, 0.0, 0.0)  # where nothing ends nothing was missed


def test_mistakes_are_reported() -> None:
    for beams in ([], [0, 1], [2, 2]):
        with pytest.raises(UserError, match="beam widths cannot be compared"):
            search_error(lambda config: [], Config(), beams)
    with pytest.raises(UserError, match="coverage"):
        search_error(lambda config: [], Config(coverage=0.2), [1])
