"""A frozen module moves with the model that holds it, and is in nothing that is trained or saved."""

from __future__ import annotations

import torch
from torch import nn

from mallang.layers.frozen import Frozen, running_modules


def held() -> nn.Module:
    part = nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 3))
    part.register_buffer("table", torch.ones(2), persistent=False)
    return part


def test_it_is_no_parameter_no_buffer_and_not_saved() -> None:
    model = nn.ModuleDict({"own": nn.Linear(3, 1), "other": Frozen(held())})
    assert set(model.state_dict()) == {"own.weight", "own.bias"} == {name for name, _ in model.named_parameters()}
    assert not list(model.buffers())


def test_it_is_never_trained_and_stays_in_eval_mode() -> None:
    module = held()
    model = nn.ModuleDict({"other": Frozen(module)}).train()
    assert not any(part.training for part in module.modules())
    assert not any(weight.requires_grad for weight in module.parameters())
    assert torch.equal(module(torch.ones(5, 3)), module(torch.ones(5, 3))) and model.training


def test_it_moves_with_the_model_that_holds_it() -> None:
    module = held()
    nn.ModuleDict({"other": Frozen(module)}).to("meta")
    assert {each.device.type for each in (*module.parameters(), *module.buffers())} == {"meta"}


def test_what_runs_with_a_model_is_listed() -> None:
    module = held()
    model = nn.ModuleDict({"own": nn.Linear(3, 1), "other": Frozen(module)})
    found = list(running_modules(model))
    assert {*module.modules(), *model.modules()} == set(found) and len(found) == len(set(found))
