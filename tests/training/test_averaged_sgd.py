"""Averaged SGD against an explicit mean, and its trigger against the paper's algorithm."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from mallang.errors import UserError
from mallang.runs.weights import own_weights
from mallang.training import optimizer as optimizers
from mallang.training.averaged_sgd import Mean, Trigger, average_of
from mallang.training.optimizer import Average, Config

ASGD = Config(name="asgd", learning_rate=0.05, trigger=1)


def algorithm(losses: list[float], n: int) -> int | None:
    """Algorithm 1 of the paper: the validation, from 0, at which averaging begins."""
    logs: list[float] = []
    for t, v in enumerate(losses):
        if t > n and v > min(logs[k] for k in range(t - n)):
            return t
        logs.append(v)
    return None


@given(st.lists(st.integers(0, 9), max_size=12), st.integers(0, 4))
def test_the_trigger_is_the_papers_algorithm(values: list[int], n: int) -> None:
    trigger, config = Trigger(), Config(name="asgd", trigger=n)
    for step, value in enumerate(values):
        trigger = trigger.after(float(value), step, config)
    assert trigger.began == algorithm([float(value) for value in values], n)


def test_averaging_begins_at_the_latest_where_it_is_told_to() -> None:
    trigger, config = Trigger(), Config(name="asgd", average_from=25)
    for step, loss in ((10, 3.0), (20, 2.0)):
        trigger = trigger.after(loss, step, config)
        assert trigger.began is None and trigger.updates(step) == 0
    trigger = trigger.after(1.0, 30, config).after(2.0, 40, config)
    assert trigger.began == 30 and trigger.updates(40) == 10


def test_other_optimizers_never_begin() -> None:
    assert Trigger([1.0] * 9).after(5.0, 3, Config(name="sgd")) == Trigger([1.0] * 9)


def test_the_mean_is_that_of_all_weights_since_it_began_and_training_goes_on_without_it() -> None:
    torch.manual_seed(1)
    model, seen = nn.Linear(3, 2), []
    mean = Mean(model)
    plain = nn.Linear(3, 2)
    plain.load_state_dict(model.state_dict())
    for step in range(7):
        for each in (model, plain):
            torch.manual_seed(step)
            each.zero_grad()
            each(torch.randn(4, 3)).square().sum().backward()
            torch.optim.SGD(each.parameters(), lr=0.1).step()
        mean.update(model, torch.zeros(()))
        with mean.in_place_of(model):  # before it begins, the weights themselves
            if not seen:
                assert torch.equal(model.weight, plain.weight)
        if step == 2:
            mean.follow(Trigger(began=3))
        if step > 2:
            seen.append(model.weight.detach().clone())
    assert torch.equal(model.weight, plain.weight)
    expected = torch.stack(seen).mean(dim=0)
    torch.testing.assert_close(mean.weights["weight"], expected)
    with mean.in_place_of(model):
        torch.testing.assert_close(model.weight.detach(), expected)
    assert torch.equal(model.weight, plain.weight)


def test_a_mean_that_was_saved_goes_on_as_it_would_have() -> None:
    torch.manual_seed(1)
    model = nn.Linear(3, 2)
    mean, other = Mean(model), Mean(model)
    mean.follow(Trigger(began=0))
    for number in range(6):
        with torch.no_grad():
            model.weight.add_(torch.randn(2, 3))
        if number == 3:
            saved = {name: value.clone() for name, value in mean.weights.items()}
            other.restore(saved, Trigger(began=0).updates(number))
        mean.update(model, torch.zeros(()))
        other.update(model, torch.zeros(()))
    assert all(torch.equal(value, other.weights[name]) for name, value in mean.weights.items())


def test_what_is_averaged_follows_from_the_recipe() -> None:
    model = nn.Linear(2, 2)
    assert average_of(model, Config(), 0.0, "best") is None
    assert type(average_of(model, Config(), 0.9, "ema")) is Average
    assert isinstance(average_of(model, ASGD, 0.0, "best"), Mean)
    with pytest.raises(UserError, match=r"train\.ema_decay"):
        average_of(model, ASGD, 0.9, "ema")
    with pytest.raises(UserError, match=r"train\.final"):
        average_of(model, ASGD, 0.0, "average")
    assert set(own_weights(model)) == {"weight", "bias"}


@pytest.mark.parametrize(
    "options", [{"name": "sgd", "trigger": 3}, {"average_from": 5}, {"name": "asgd", "trigger": -1}]
)
def test_what_would_do_nothing_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="trigger and average_from"):
        optimizers.Config(**options)
