"""Weights as torch begins them, in place of what a model chose."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mallang.find import find
from mallang.layers.initialization import torch_defaults
from mallang.text.vocabulary import SPECIALS, Vocabulary

WORDS = Vocabulary((*SPECIALS, *map(str, range(296))))


def build(name, **changes):
    module = find("models", name)
    torch.manual_seed(1)
    config = module.Config(**{**module.SIZES["tiny"], **changes})
    return module.Model(config, WORDS, WORDS) if name == "transformer" else module.Model(config, WORDS)


def is_uniform(weight, bound):
    return weight.abs().max() <= bound and weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.1)


def test_every_layer_is_as_torch_begins_it():
    model = build("transformer", dim=64, hidden_dim=128)
    torch_defaults(model)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            assert is_uniform(module.weight, module.in_features**-0.5)
            assert module.bias is None or module.bias.abs().max() > 0
        elif isinstance(module, nn.Embedding):
            assert module.weight.std().item() == pytest.approx(1, rel=0.1)
        elif isinstance(module, nn.LayerNorm):
            assert module.weight.eq(1).all() and module.bias.eq(0).all()


def test_recurrent_layers_lose_their_orthogonal_matrices_and_their_forget_bias():
    model = build("rnn_lm", dim=64)
    torch_defaults(model)
    lstm = next(module for module in model.modules() if isinstance(module, nn.RNNBase))
    for weight in lstm.parameters():
        assert is_uniform(weight, 64**-0.5)


def test_normalized_weights_are_those_of_a_plain_layer():
    model = build("conv_lm", dim=64)
    before = model.first.linear.weight.detach().clone()
    torch_defaults(model)
    linear = model.first.linear
    assert not torch.equal(linear.weight, before) and is_uniform(linear.weight, linear.in_features**-0.5)


def test_what_starts_from_zero_does_so_no_more():
    model = build("modern_gpt", zero_init=True)
    assert model.head.weight.eq(0).all()
    torch_defaults(model)
    assert all(parameter.abs().max() > 0 for parameter in model.parameters())
