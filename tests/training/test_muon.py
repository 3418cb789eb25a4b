"""Muon against explicit singular values, against torch's own, and put back after a stop."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from mallang.data.batch import Batch
from mallang.errors import UserError
from mallang.layers.characters import Highway
from mallang.layers.convolution import GatedConvolution
from mallang.layers.recurrent import Maxout
from mallang.models.modern_gpt import Config as Shape
from mallang.models.modern_gpt import ModernGPT
from mallang.tasks.contract import Group
from mallang.text.vocabulary import SPECIALS, Vocabulary
from mallang.training import optimizer as optimizers
from mallang.training.muon import COEFFICIENTS, STEPS, Muon, orthogonal, pieces_of, tables_of
from mallang.training.optimizer import Config


def polynomial(values):
    """What five steps make of singular values."""
    a, b, c = COEFFICIENTS
    for _ in range(STEPS):
        values = a * values + b * values**3 + c * values**5
    return values


@settings(deadline=None, max_examples=20)
@given(
    count=st.integers(1, 3), rows=st.integers(1, 12), more=st.integers(0, 9), exponent=st.integers(-6, 4),
    seed=st.integers(0, 999),
)  # fmt: skip
def test_only_singular_values_change(count, rows, more, exponent, seed):
    """U S Vᵀ becomes U p(S / |S|) Vᵀ, the decomposition being computed explicitly."""
    random = torch.Generator().manual_seed(seed)
    matrices = torch.randn(count, rows, rows + more, generator=random).double() * 10.0**exponent
    u, s, vt = torch.linalg.svd(matrices, full_matrices=False)
    scaled = s / (s.norm(dim=1, keepdim=True) + 1e-7)
    torch.testing.assert_close(orthogonal(matrices), (u * polynomial(scaled)[:, None]) @ vt, atol=1e-6, rtol=1e-6)


def test_all_directions_become_nearly_equally_strong():
    torch.manual_seed(1)
    matrices = torch.randn(4, 64, 128)
    found = orthogonal(matrices)
    u, _, vt = torch.linalg.svd(matrices, full_matrices=False)
    along = (u.mT @ found @ vt.mT).diagonal(dim1=1, dim2=2)
    assert along.min() > 0.65 and along.max() < 1.25
    values = polynomial(torch.linspace(0.01, 1, 2000, dtype=torch.float64))
    assert values.min() > 0.68 and values.max() < 1.14
    # the update of all directions, next to what U Vᵀ itself would be
    assert ((found - u @ vt).norm() / (u @ vt).norm()).item() < 0.25
    assert orthogonal(torch.zeros(1, 3, 4)).eq(0).all()


def group_of(model):
    return [Group(list(model.named_parameters()))]


@pytest.mark.parametrize("shape", [(6, 9), (9, 6), (5, 5)])
def test_it_is_torchs_muon_but_for_bfloat16(shape):
    torch.manual_seed(2)
    ours = nn.Parameter(torch.randn(shape))
    theirs = nn.Parameter(ours.detach().clone())
    start = ours.detach().clone()
    mine = Muon([{"params": [ours], "weight_decay": 0.1}], None, rate=0.05, momentum=0.9)
    other = torch.optim.Muon([theirs], lr=0.05, weight_decay=0.1, momentum=0.9, adjust_lr_fn="match_rms_adamw")
    for _ in range(3):
        gradient = torch.randn(shape)
        for parameter, optimizer in ((ours, mine), (theirs, other)):
            parameter.grad = gradient.clone()
            optimizer.step()
    moved = (theirs.detach() - start).norm()
    assert (ours.detach() - theirs.detach()).norm() < 0.05 * moved
    assert moved.item() == pytest.approx(3 * 0.05 * 0.2 * math.sqrt(max(shape) * min(shape)), rel=0.6)


def model_of(**changes):
    torch.manual_seed(1)
    shape = Shape(layers=2, dim=16, heads=2, max_length=8, zero_init=False, norm="layer", **changes)
    return ModernGPT(shape, Vocabulary((*SPECIALS, *"abcdefg")))


def step(model, optimizer, seed):
    tokens = torch.randint(4, 11, (3, 6), generator=torch.Generator().manual_seed(seed))
    optimizer.zero_grad()
    model.output(model(Batch(tokens=tokens, lengths=torch.full((3,), 6)))).square().sum().backward()
    optimizer.step()


def test_matrices_between_layers_are_its_own_and_adamw_has_the_rest():
    model = model_of(positions="learned")
    config = Config(name="muon", learning_rate=0.02, adam_learning_rate=0.01, weight_decay=0.1)
    optimizer = optimizers.build(config, group_of(model), model)
    names = {parameter: name for name, parameter in model.named_parameters()}
    mine = {names[parameter] for group in optimizer.own for parameter in group["params"]}
    kinds = "self_attention.query_key_value", "self_attention.output", "feedforward.up_proj", "feedforward.down_proj"
    assert mine == {f"decoder.{layer}.{kind}.weight" for layer in (0, 1) for kind in kinds}
    every = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    assert len(every) == len(names) and {id(p) for p in every} == {id(p) for p in names}
    assert {names[table] for table in tables_of(model)} == {
        "embedding.weight", "positions.table.weight", "head.own.weight",
    }  # fmt: skip
    decays = {group["weight_decay"] for group in optimizer.param_groups if group["params"][0].dim() == 1}
    assert decays == {0.0}
    optimizers.set_rate(optimizer, 0.01)
    assert {group["lr"] for group in optimizer.own} == {0.01}
    assert {group["lr"] for group in optimizer.rest.param_groups} == {0.005}


def test_what_adamw_has_moves_as_adamw_moves_it():
    model, twin = model_of(), model_of()
    optimizer = optimizers.build(Config(name="muon", learning_rate=0.02, weight_decay=0.1), group_of(model), model)
    reference = optimizers.build(Config(name="adamw", learning_rate=0.02, weight_decay=0.1), group_of(twin))
    step(model, optimizer, 1)
    step(twin, reference, 1)
    assert torch.equal(model.embedding.weight, twin.embedding.weight)
    assert torch.equal(model.head.weight, twin.head.weight)
    assert torch.equal(model.decoder_norm.weight, twin.decoder_norm.weight)
    assert not torch.equal(model.decoder[0].feedforward.up_proj.weight, twin.decoder[0].feedforward.up_proj.weight)


def test_queries_keys_and_values_are_made_orthogonal_each_by_itself():
    model = model_of()
    attention = model.decoder[0].self_attention
    before = attention.query_key_value.weight.detach().clone()
    optimizer = optimizers.build(Config(name="muon", learning_rate=0.02, momentum=0.0), group_of(model), model)
    step(model, optimizer, 1)
    gradient = attention.query_key_value.weight.grad
    for place, given_gradient, old in zip(attention.input_weights(), gradient.split(16), before.split(16), strict=True):
        change = orthogonal(given_gradient[None])[0] * 0.02 * 0.2 * 4
        torch.testing.assert_close(place, old - change, atol=1e-6, rtol=1e-5)
    lstm = nn.LSTM(3, 5)
    assert {tuple(sizes) for sizes in pieces_of(lstm).values()} == {(5, 5, 5, 5)}


def test_memory_comes_back():
    config = Config(name="muon", learning_rate=0.02, weight_decay=0.1)
    model = model_of()
    optimizer = optimizers.build(config, group_of(model), model)
    step(model, optimizer, 1)
    names = {parameter: key for key, parameter in model.named_parameters()}
    saved = {key: value.clone() for key, value in optimizers.optimizer_tensors(optimizer, names).items()}
    assert "momentum/decoder.0.feedforward.up_proj.weight" in saved and "exp_avg/embedding.weight" in saved
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    step(model, optimizer, 2)
    other = model_of()
    restored = optimizers.build(config, group_of(other), other)
    other.load_state_dict(weights)
    optimizers.restore_optimizer(restored, {p: key for key, p in other.named_parameters()}, saved)
    step(other, restored, 2)
    assert all(torch.equal(value, other.state_dict()[key]) for key, value in model.state_dict().items())


def test_joined_halves_are_known_with_and_without_weight_normalization():
    for module in (GatedConvolution(3, 2), Highway(3), Maxout(5, 3)):
        assert list(pieces_of(module).values()) == [[3, 3]]
    normalized = GatedConvolution(3, 2)
    weight_norm(normalized.linear)
    assert pieces_of(normalized)[normalized.linear.parametrizations.weight.original1] == [3, 3]


def test_memory_of_gains_that_were_once_moved_by_muon_is_left_out():
    torch.manual_seed(1)
    model = weight_norm(nn.Linear(4, 3))
    optimizer = optimizers.build(Config(name="muon", learning_rate=0.02), group_of(model), model)
    names = {parameter: key for key, parameter in model.named_parameters()}
    saved = {f"momentum/parametrizations.weight.original{i}": torch.ones(3, size) for i, size in ((0, 1), (1, 4))}
    optimizers.restore_optimizer(optimizer, names, saved)
    gains, directions = model.parametrizations.weight.original0, model.parametrizations.weight.original1
    assert optimizer.state[directions]["momentum"].eq(1).all() and "momentum" not in optimizer.state[gains]
    before = gains.detach().clone()
    model(torch.randn(2, 4)).square().sum().backward()
    optimizer.step()
    torch.testing.assert_close((gains - before).abs(), torch.full((3, 1), 0.02), atol=1e-5, rtol=0)  # Adam's first


def test_it_needs_matrices_and_the_model():
    table = nn.Embedding(4, 3)
    with pytest.raises(UserError, match="models with hidden matrices"):
        optimizers.build(Config(name="muon"), group_of(table), table)
    with pytest.raises(ValueError, match="muon needs the model"):
        optimizers.build(Config(name="muon"), group_of(table))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"name": "adamw", "adam_learning_rate": 0.1}, "adam_learning_rate belongs to muon"),
        ({"name": "muon", "adam_learning_rate": 0.0}, "adam_learning_rate must be above 0"),
        ({"name": "muon", "momentum": 1.0}, "momentum must be at least 0 and less than 1"),
        ({"name": "adam", "momentum": 0.9}, "momentum belongs to sgd and muon"),
    ],
)
def test_impossible_values_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Config(**wrong)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_does_about_the_same_in_bfloat16():
    matrices = torch.randn(3, 64, 96, generator=torch.Generator().manual_seed(1))
    exact = orthogonal(matrices)
    rough = orthogonal(matrices.cuda())
    assert rough.dtype == torch.float32
    assert ((rough.cpu() - exact).norm() / exact.norm()).item() < 0.05
