from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.toy_models import Table, empty_batch, random_gru, random_table, source_batch, tiny_vocabulary
from mallang.decoding import greedy, runner
from mallang.decoding.contract import Config, limits

SOURCES = [[4, 5], [5], [4, 4, 5, 1], [], [5, 5, 5]]


@given(seed=st.integers(0, 10_000), max_length=st.integers(1, 12))
@settings(deadline=None, max_examples=30)
def test_the_most_probable_token_at_every_step(seed: int, max_length: int) -> None:
    model = random_table(tiny_vocabulary(4), seed)
    config = Config(method="greedy", max_length=max_length, max_ratio=1.0)
    found = greedy.search(model, source_batch(SOURCES), config)
    for source, (one,) in zip(SOURCES, found, strict=True):
        alone = source_batch([source])
        (limit,) = limits(alone, config)
        said: list[int] = []
        while len(said) < limit and 3 not in said:
            logits, _ = model.step(torch.tensor([[2, *said]]), model.start(alone))
            said.append(max((1, *range(3, 8)), key=logits[0, -1].tolist().__getitem__))
        assert one.labels(3) == tuple(said)
        assert one.finished == (said[-1] == 3)


def test_equal_tokens_go_to_the_lower_id() -> None:
    vocabulary = tiny_vocabulary(3)
    logits = torch.zeros(7, 7, 7)
    logits[0, 2, 5:] = 1.0
    ((one,),) = greedy.search(Table(vocabulary, logits), empty_batch(1), Config(method="greedy", max_length=3))
    assert one.tokens == (5, 1, 1)
    assert not one.finished


@pytest.mark.parametrize("every", [2, 3, 100])
def test_how_often_the_host_checks_changes_nothing(every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = random_gru(tiny_vocabulary(6), seed=1), source_batch(SOURCES)
    config = Config(method="greedy", max_length=14)
    expected = greedy.search(model, batch, config)
    assert len({len(one[0].tokens) for one in expected}) > 1
    monkeypatch.setattr(runner, "check_every", lambda device: every)
    for (one,), (other,) in zip(greedy.search(model, batch, config), expected, strict=True):
        assert one.tokens == other.tokens
        assert one.score == pytest.approx(other.score, abs=1e-4)
