"""Optimizers against their formulas, clipping, groups, and memory that comes back."""

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from mallang.tasks.contract import Group
from mallang.training import optimizer as optimizers
from mallang.training.muon import is_matrix
from mallang.training.optimizer import Config


def make(config, scale=1.0):
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    return model, optimizers.build(config, [Group(list(model.named_parameters()), scale)])


def step(model, optimizer, seed):
    torch.manual_seed(seed)
    optimizer.zero_grad()
    model(torch.randn(5, 3)).square().sum().backward()
    optimizer.step()


def test_adam_is_the_papers_formula():
    config = Config(name="adam", learning_rate=0.1, betas=(0.9, 0.98), epsilon=1e-9)
    model, optimizer = make(config)
    weight = model.weight.detach().clone()
    first = second = torch.zeros_like(weight)
    for t in (1, 2, 3):
        step(model, optimizer, t)
        gradient = model.weight.grad
        first, second = 0.9 * first + 0.1 * gradient, 0.98 * second + 0.02 * gradient**2
        weight = weight - 0.1 * (first / (1 - 0.9**t)) / ((second / (1 - 0.98**t)).sqrt() + 1e-9)
        assert torch.allclose(model.weight, weight, atol=1e-5)


def test_adamw_decays_matrices_alone_and_apart_from_the_gradient():
    plain, decayed = (
        make(Config(name="adamw", learning_rate=0.1)),
        make(Config(name="adamw", learning_rate=0.1, weight_decay=0.5)),
    )
    before = plain[0].weight.detach().clone()
    for model, optimizer in (plain, decayed):
        step(model, optimizer, 1)
    assert torch.allclose(decayed[0].weight, plain[0].weight - 0.1 * 0.5 * before, atol=1e-6)
    assert torch.equal(decayed[0].bias, plain[0].bias)


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_gains_of_weight_normalization_are_no_matrix(name):
    torch.manual_seed(0)
    model = weight_norm(nn.Linear(3, 2))
    optimizer = optimizers.build(Config(name=name, weight_decay=0.5), [Group(list(model.named_parameters()))], model)
    names = {parameter: key.split(".")[-1] for key, parameter in model.named_parameters()}
    decays = {names[p]: group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    assert decays == {"bias": 0.0, "original0": 0.0, "original1": 0.5}
    assert not is_matrix(torch.zeros(1, 7)) and not is_matrix(torch.zeros(7, 1, 1)) and is_matrix(torch.zeros(2, 1, 2))


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adagrad_is_that_of_torch(decay):
    model, optimizer = make(Config(name="adagrad", learning_rate=0.1, weight_decay=decay))
    other, _ = make(Config())
    groups = [{"params": [other.weight], "weight_decay": decay}, {"params": [other.bias]}]  # biases do not decay
    theirs = torch.optim.Adagrad(groups, lr=0.1)
    for t in (1, 2, 3):
        step(model, optimizer, t)
        step(other, theirs, t)
    assert torch.allclose(model.weight, other.weight, atol=1e-6) and torch.allclose(model.bias, other.bias, atol=1e-6)


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd", "adagrad"])
def test_memory_comes_back(name):
    config = Config(name=name, learning_rate=0.05, momentum=0.9 if name == "sgd" else None)
    model, optimizer = make(config)
    step(model, optimizer, 1)
    names = {parameter: key for key, parameter in model.named_parameters()}
    saved = {key: value.clone() for key, value in optimizers.optimizer_tensors(optimizer, names).items()}
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    step(model, optimizer, 2)
    other, restored = make(config)
    other.load_state_dict(weights)
    optimizers.restore_optimizer(restored, {p: key for key, p in other.named_parameters()}, saved)
    step(other, restored, 2)
    assert torch.equal(model.weight, other.weight) and torch.equal(model.bias, other.bias)


def test_adagrad_has_no_other_options():
    for wrong in ({"momentum": 0.9}, {"betas": (0.9, 0.99)}, {"epsilon": 1e-8}):
        with pytest.raises(ValueError, match="adagrad"):
            Config(name="adagrad", **wrong)


def test_rates_are_scaled_by_group():
    _, optimizer = make(Config(learning_rate=0.1), scale=0.5)
    optimizers.set_rate(optimizer, 0.02)
    assert {group["lr"] for group in optimizer.param_groups} == {0.01}


def test_clipping_scales_all_gradients_to_the_bound_and_tells_the_norm_before():
    model, _ = make(Config())
    model(torch.ones(1, 3)).sum().backward()
    whole = torch.cat([p.grad.flatten() for p in model.parameters()])
    norm = optimizers.clip_gradients(model.parameters(), Config(max_grad_norm=0.5))
    assert norm == pytest.approx(whole.norm().item())
    clipped = torch.cat([p.grad.flatten() for p in model.parameters()])
    assert torch.allclose(clipped, whole * 0.5 / whole.norm(), atol=1e-6)
    optimizers.clip_gradients(model.parameters(), Config(max_grad_norm=0.0))
    assert torch.equal(clipped, torch.cat([p.grad.flatten() for p in model.parameters()]))


@pytest.mark.parametrize(
    "wrong",
    [
        {"learning_rate": 0.0},
        {"momentum": 0.9},
        {"weight_decay": -1.0},
        {"max_grad_norm": -1.0},
        {"epsilon": 0.0},
        {"betas": (0.9, 1.0)},
    ],
)
def test_impossible_values_are_refused(wrong):
    with pytest.raises(ValueError):
        Config(**wrong)
