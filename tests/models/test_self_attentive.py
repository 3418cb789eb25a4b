"""Self-attentive embeddings: equal to explicit loops over views and words; the penalty; what can be recorded."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from mallang.data.batch import Batch, pad_rows
from mallang.layers.attention import record_attention
from mallang.models.self_attentive import Config, SelfAttentive, overlap
from mallang.text.vocabulary import SPECIALS, Vocabulary

WORDS = Vocabulary((*SPECIALS, *(f"w{number}" for number in range(9))))
ROWS = [[4, 5, 6, 7, 8, 3], [9, 3], [3], [4, 4, 12, 11, 10, 9, 8, 3]]


def make(seed: int = 1, **options: Any) -> SelfAttentive:
    torch.manual_seed(seed)
    shape = {"embedding_dim": 5, "dim": 3, "attention_dim": 4, "views": 3, "hidden_dim": 7, "penalty": 0.3}
    return SelfAttentive(Config(**{**shape, **options}), WORDS).eval()


def batch_of(rows: list[list[int]]) -> Batch:
    tokens, lengths = pad_rows(rows)
    return Batch(tokens=tokens, lengths=lengths)


def explicit_weights(model: SelfAttentive, states: Tensor) -> list[list[float]]:
    """The weight of every word in every view of one text, number by number."""
    first, second = model.view_attention.hidden.weight, model.view_attention.score.weight
    found = []
    for view in range(model.config.views):
        scores = []
        for state in states:
            hidden = [math.tanh(float(row @ state)) for row in first]
            scores.append(sum(float(weight) * value for weight, value in zip(second[view], hidden, strict=True)))
        total = sum(math.exp(score) for score in scores)
        found.append([math.exp(score) / total for score in scores])
    return found


def explicit_penalty(weights: list[list[float]]) -> float:
    """The squared Frobenius norm of A Aᵀ − I."""
    total = 0.0
    for i, first in enumerate(weights):
        for j, second in enumerate(weights):
            dot = sum(a * b for a, b in zip(first, second, strict=True))
            total += (dot - (i == j)) ** 2
    return total


@pytest.mark.parametrize("hidden_dim", [0, 7])
@torch.no_grad()
def test_it_is_a_loop_over_views_and_words(hidden_dim: int) -> None:
    model = make(hidden_dim=hidden_dim)
    with record_attention(model) as maps:
        encoded = model.encode(batch_of(ROWS))
    assert list(maps) == ["view"] and maps["view"].shape == (4, 3, 1, 8)
    for number, row in enumerate(ROWS):
        states = encoded.layers[0][number, : len(row)]
        weights = explicit_weights(model, states)
        recorded = maps["view"][number, :, 0]
        torch.testing.assert_close(recorded[:, : len(row)], torch.tensor(weights), atol=1e-6, rtol=1e-5)
        assert not recorded[:, len(row) :].any()
        views = [
            sum(weight * float(state[axis]) for weight, state in zip(view, states, strict=True))
            for view in weights
            for axis in range(6)
        ]
        expected = torch.tensor(views)
        if model.hidden is not None:
            expected = (model.hidden.weight @ expected + model.hidden.bias).clamp(min=0)
        torch.testing.assert_close(encoded.pooled[number], expected, atol=1e-6, rtol=1e-5)
        penalty = 0.3 * explicit_penalty(weights)
        assert float(encoded.penalties["penalty"][number]) == pytest.approx(penalty, rel=1e-5)


def test_the_penalty_is_zero_where_each_view_has_a_word_of_its_own() -> None:
    assert float(overlap(torch.eye(3)[None])) == 0.0
    same = torch.tensor([[[1.0, 0.0], [1.0, 0.0]]])  # two views of one word: two cells of the Gram matrix are wrong
    spread = torch.full((1, 1, 4), 0.25)  # one view of four words: its square is 1/4
    assert float(overlap(same)) == 2.0 and float(overlap(spread)) == 0.75**2


def test_the_penalty_keeps_views_apart() -> None:
    def overlap_after(penalty: float) -> float:
        model, batch = make(penalty=penalty), batch_of(ROWS[:1])
        optimizer = torch.optim.Adam(model.view_attention.parameters(), lr=0.05)
        for _ in range(60):
            encoded = model.encode(batch)
            loss = encoded.pooled.square().sum() + sum(each.sum() for each in encoded.penalties.values())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with record_attention(model) as maps:
            model(batch)
        return float(overlap(maps["view"][:, :, 0]))

    assert overlap_after(1.0) < 0.5 * overlap_after(0.0)


def test_without_a_weight_there_is_no_penalty() -> None:
    assert not make(penalty=0.0).encode(batch_of(ROWS)).penalties


def test_the_sizes_are_the_papers() -> None:
    config = Config()
    assert (2 * config.dim, config.attention_dim, config.views) == (600, 350, 30)
    assert make(hidden_dim=0, dim=3, views=5).encoder_dims().pooled == 30


@pytest.mark.parametrize("options", [{"penalty": -1.0}, {"hidden_dim": -1}, {"views": 0}, {"dropout": 1.0}])
def test_impossible_shapes_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        Config(**options)
