"""An update with an infinite or NaN gradient is skipped: weights, optimizer state and EMA stay as they are."""

import math

import pytest
import torch
from torch import nn

from mallang.errors import UserError
from mallang.inspection.checkup import examine_training
from mallang.tasks.contract import Group, Loss
from mallang.training import optimizer as optimizers
from mallang.training.optimizer import Config
from mallang.training.record import FILE, read
from mallang.training.skipping import LIMIT, Skipping
from mallang.training.stopping import Stop
from training.test_loop import StopAt, ToyTask, make, same, weights

RULES = {
    "adam": Config(name="adam", learning_rate=0.1),
    "adamw": Config(name="adamw", learning_rate=0.1, weight_decay=0.1),
    "sgd": Config(name="sgd", learning_rate=0.1, weight_decay=0.1),
    "momentum": Config(name="sgd", learning_rate=0.1, weight_decay=0.1, momentum=0.9),
    "adagrad": Config(name="adagrad", learning_rate=0.1, weight_decay=0.1),
    "muon": Config(name="muon", learning_rate=0.1, weight_decay=0.1),
}


class Scaled(torch.autograd.Function):
    """A loss with its gradient multiplied by a number."""

    @staticmethod
    def forward(context, loss, factor):
        context.factor = factor
        return loss.clone()

    @staticmethod
    def backward(context, gradient):
        return gradient * context.factor, None


class Exploding(ToyTask):
    """The gradient of some updates, numbered from 1, is infinite or NaN; with `in_loss` their loss is infinite too."""

    def __init__(self, steps, factor=math.inf, in_loss=False):
        self.steps, self.factor, self.in_loss, self.calls = steps, factor, in_loss, 0

    def loss(self, model, batch, carry):
        self.calls += 1
        loss = super().loss(model, batch, carry).sums["loss"]
        if self.calls in self.steps:
            loss = Scaled.apply(loss, self.factor) + (math.inf if self.in_loss else 0.0)
        return Loss(sums={"loss": loss})


def gradients(model, seed):
    torch.manual_seed(seed)
    model.zero_grad()
    model(torch.randn(5, 4)).square().sum().backward()


def train(rule, seeds, clip, poison=None):
    """The weights and optimizer state after updates with these seeds; None stands for one with a broken gradient."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3))
    optimizer = optimizers.build(rule, [Group(list(model.named_parameters()))], model)
    skipping, names = Skipping(), {parameter: name for name, parameter in model.named_parameters()}
    for seed in seeds:
        gradients(model, seed or 9)
        if seed is None:
            model[0].weight.grad[1, 2] = poison
        norm = optimizers.clip_gradients(model.parameters(), Config(max_grad_norm=clip))
        assert bool(skipping.update(optimizer, norm)) == (seed is None)
    assert int(skipping.count) == sum(seed is None for seed in seeds)
    return dict(model.state_dict()), optimizers.optimizer_tensors(optimizer, names)


@pytest.mark.parametrize("poison", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("clip", [0.0, 1.0], ids=["", "clipped"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seeds", [(None, 1, 2), (1, 2, None, 3, None, None, 4), (1, None)], ids=str)
def test_an_update_with_a_broken_gradient_is_as_if_it_had_not_been(rule, seeds, clip, poison):
    broken = train(RULES[rule], seeds, clip, poison)
    whole = train(RULES[rule], [seed for seed in seeds if seed is not None], clip)
    for ours, wanted in zip(broken, whole, strict=True):
        assert ours.keys() == wanted.keys()
        assert all(torch.equal(ours[name], wanted[name]) for name in wanted)
    assert whole[1] or rule == "sgd"


@pytest.mark.parametrize("rule", RULES)
def test_an_update_that_is_not_skipped_is_that_of_the_optimizer_alone(rule):
    ours, _ = train(RULES[rule], [1, 2, 3], clip=0.0)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3))
    optimizer = optimizers.build(RULES[rule], [Group(list(model.named_parameters()))], model)
    for seed in (1, 2, 3):
        gradients(model, seed)
        optimizer.step()
    assert all(torch.equal(ours[name], value) for name, value in model.state_dict().items())


def test_the_loop_goes_on_after_a_skipped_update_and_counts_it(tmp_path):
    rule = Config(learning_rate=0.01, max_grad_norm=1.0)
    loop = make(tmp_path, rule=rule, task=Exploding({5, 9}), ema_decay=0.9)
    history = []
    look_up = loop.look_up
    loop.look_up = lambda: (
        look_up(),
        history.append((weights(loop), [v.clone() for v in loop.average.weights.values()])),
    )
    assert loop.run(Stop())
    for step in range(1, 20):
        is_skipped = step + 1 in {5, 9}
        assert same(history[step - 1][0], history[step][0]) == is_skipped, step + 1
        assert same(history[step - 1][1], history[step][1]) == is_skipped, step + 1
    assert loop.progress.skipped_updates == 2
    lines = [entry for entry in read(tmp_path / FILE) if entry["kind"] == "train"]
    assert [entry.get("skipped_updates") for entry in lines] == [None, 1, 2, 2, 2, 2, 2]
    assert all(math.isfinite(entry["loss"]) for entry in lines)
    said = loop.plan.recorder.console.file.getvalue()
    assert said.count("skipped updates: 1; their gradient norm was not finite") == said.count("skipped") == 1


def test_the_count_is_resumed(tmp_path):
    loop = make(tmp_path, task=Exploding({5}))
    assert not loop.run(StopAt(loop, 8))
    again = make(tmp_path, task=Exploding({3}))
    assert again.run(Stop())
    assert again.progress.skipped_updates == 2
    assert "skipped" not in again.plan.recorder.console.file.getvalue(), "it was reported before"


def test_a_loss_that_was_infinite_once_does_not_end_the_training(tmp_path):
    loop = make(tmp_path, task=Exploding({5}, math.nan, in_loss=True))
    assert loop.run(Stop())
    lines = read(tmp_path / FILE)
    assert [entry["step"] for entry in lines if not math.isfinite(entry["loss"])] == [6]
    assert not [found for found in examine_training(lines) if "not finite" in found.what]
    without = [{key: value for key, value in entry.items() if key != "skipped_updates"} for entry in lines]
    assert [found for found in examine_training(without) if "not finite" in found.what]


@pytest.mark.parametrize(("first", "stops_at"), [(1, 3), (21, 30)])
def test_training_ends_when_every_update_is_skipped(tmp_path, first, stops_at):
    loop = make(tmp_path, task=Exploding(range(first, 200)), steps=100, validate_every=50)
    with pytest.raises(UserError, match=f"(?s)broke down: the gradient of .* is not finite.*step {stops_at}"):
        loop.run(Stop())
    assert int(loop.skipping.in_a_row) == min(LIMIT, stops_at - first + 1)
