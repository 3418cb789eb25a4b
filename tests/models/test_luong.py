from dataclasses import fields

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from mallang.decoding import beam
from mallang.decoding.contract import Config as Search
from mallang.decoding.coverage import cross_attention
from mallang.errors import UserError
from mallang.layers.attention import record_attention
from mallang.layers.quantization import quantize
from mallang.models.luong import SIZES, Config, Luong, Model
from models.test_bahdanau import batch_of, vocabulary

TINY = {"layers": 2, "embedding_dim": 5, "dim": 6, "dropout": 0.0}

every_score = pytest.mark.parametrize("score", ["dot", "general", "concat"])
feeding_or_not = pytest.mark.parametrize("feeding", [True, False])


def make(words=11, source_words=13, seed=1, **changes):
    torch.manual_seed(seed)
    model = Model(Config(**{**TINY, **changes}), vocabulary(words), vocabulary(source_words)).eval()
    for name, parameter in model.named_parameters():
        if "bias" not in name or "encoder" not in name:  # some of the encoder's biases must stay at zero
            nn.init.normal_(parameter, std=0.5)
    return model


def lstm(stack, x, states):
    """One step of a stack; states are (h, c) of every layer, changed in place. The output of the last layer."""
    dim, weights = stack.hidden_size, stack._flat_weights
    for layer, (h, c) in enumerate(states):
        w, u, b, d = weights[4 * layer : 4 * layer + 4]
        gates = w @ x + b + u @ h + d
        i, f, g, o = (gates[k * dim : (k + 1) * dim] for k in range(4))
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        x = torch.sigmoid(o) * torch.tanh(c)
        states[layer] = (x, c)
    return x


def score_of(model, h, memory):
    parts = dict(model.cross_attention.score.named_parameters())
    if model.config.score == "dot":
        return h @ memory
    if model.config.score == "general":
        return h @ (parts["key.weight"] @ memory)
    return parts["v"] @ torch.tanh(parts["joined"] @ torch.cat((h, memory)))


def by_the_paper(model, source, tokens):
    """The logits of one sentence and its weights, one word at a time, as the equations stand in the paper."""
    states = [(torch.zeros(6), torch.zeros(6)) for _ in range(2)]
    memory = [lstm(model.encoder, model.own_source_embedding.weight[word], states) for word in source]
    logits, alphas, vector = [], [], torch.zeros(6)
    for token in tokens:
        x = model.embedding.weight[token]
        h = lstm(model.decoder, torch.cat((x, vector)) if model.config.input_feeding else x, states)
        alpha = torch.stack([score_of(model, h, each) for each in memory]).softmax(dim=0)
        c = sum(a * each for a, each in zip(alpha, memory, strict=True))
        vector = torch.tanh(model.combine.weight @ torch.cat((c, h)))
        logits.append(model.head.weight @ vector)
        alphas.append(alpha)
    return torch.stack(logits), torch.stack(alphas)


@every_score
@feeding_or_not
@settings(deadline=None, max_examples=5)
@given(seed=st.integers(0, 1000), data=st.data())
@torch.no_grad()
def test_it_is_the_formulas_of_the_paper(score, feeding, seed, data):
    length = st.integers(1, 5)
    lengths = data.draw(st.lists(st.tuples(length, length), min_size=1, max_size=3))
    batch = batch_of(*zip(*lengths, strict=True), seed=seed)
    model = make(seed=seed, score=score, input_feeding=feeding)
    with record_attention(model) as maps:
        logits = model.output(model(batch))
    assert list(maps) == ["cross"]
    for row, (source, time) in enumerate(lengths):
        expected, alphas = by_the_paper(model, batch.source[row, :source], batch.tokens[row, :time])
        torch.testing.assert_close(logits[row, :time], expected, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(maps["cross"][row, 0, :time, :source], alphas, atol=1e-5, rtol=1e-5)


@every_score
@feeding_or_not
def test_training_gives_the_gradients_of_the_formulas(score, feeding):
    model, batch = make(score=score, input_feeding=feeding), batch_of((4,), (5,))
    found = []
    for logits in (lambda: model.output(model(batch))[0],
                   lambda: by_the_paper(model, batch.source[0], batch.tokens[0])[0]):  # fmt: skip
        model.zero_grad()
        logits().square().sum().backward()
        found.append({name: p.grad.clone() for name, p in model.named_parameters()})
    for name, gradient in found[0].items():
        expected = found[1][name]
        if "encoder" in name and "bias" in name:  # the third part of these stays at zero, so that padding does too
            expected[12:18] = 0
        torch.testing.assert_close(gradient, expected, atol=1e-4, rtol=1e-4, msg=name)


@every_score
@torch.no_grad()
def test_steps_with_input_feeding_equal_the_whole(score):
    """The contracts ask this of the tiny size, which feeds nothing; here of the other way too, and of a width."""
    model, batch = make(score=score, input_feeding=True), batch_of(lengths=(6, 6))
    whole, state = model.output(model(batch)), model.start(batch)
    first, state = model.step(batch.tokens[:, :2], state)
    rest, _ = model.step(batch.tokens[:, 2:].repeat_interleave(3, dim=0), state.widen(3))
    torch.testing.assert_close(first, whole[:, :2])
    torch.testing.assert_close(rest, whole[:, 2:].repeat_interleave(3, dim=0))


@feeding_or_not
def test_every_runner_finds_the_same(feeding):
    model, batch = make(input_feeding=feeding), batch_of()
    found = [beam.search(model, batch, Search(beam=3, nbest=2, max_length=6, runner=runner))
             for runner in ("plain", "static")]  # fmt: skip
    assert [[one.tokens for one in each] for each in found[0]] == [[one.tokens for one in each] for each in found[1]]


@torch.no_grad()
def test_input_feeding_passes_the_attention_of_the_step_before():
    """The state after <s> is the same, but the next one has seen a part of the source through the vector."""
    batch = batch_of((5,), (3,))
    for feeding in (True, False):
        model = make(input_feeding=feeding)
        state = model.start(batch)
        other = type(state)({**state.fixed, "memory": state.fixed["memory"] + 1}, state.moving)
        memories = [model.write(batch.tokens, each)[1].moving["decoder"].hidden for each in (state, other)]
        assert torch.equal(*memories) != feeding


@every_score
@torch.no_grad()
def test_8_bit_integers_change_little(score):
    for feeding in (True, False):
        model, batch = make(embedding_dim=32, dim=32, score=score, input_feeding=feeding, seed=3), batch_of()
        exact = model.output(model(batch))
        rough = quantize(model)
        close = rough.output(rough(batch))
        assert 0 < (close - exact).norm() / exact.norm() < 0.1
        stepped, _ = rough.step(batch.tokens, rough.start(batch))
        torch.testing.assert_close(stepped, close)


@torch.no_grad()
def test_coverage_reads_its_attention():
    model, batch = make(), batch_of()
    looked = cross_attention(model, batch)
    assert looked.shape == (2, 6, 5) and looked[1, :, 3:].abs().max() == 0


def test_dropout_acts_between_layers_when_fed_and_when_not():
    batch = batch_of()
    for feeding in (True, False):
        model = make(input_feeding=feeding, dropout=0.5).train()
        model.dropout.p = 0.0  # so that only the one between the layers is left
        assert not torch.equal(model(batch), model(batch))


def test_sizes_of_the_paper():
    with torch.device("meta"):
        model = Model(Config(input_feeding=True), vocabulary(1000), vocabulary(1000))
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    assert shapes["decoder.weight_ih_l0"] == (4000, 2000) and shapes["decoder.weight_ih_l3"] == (4000, 1000)
    assert shapes["combine.weight"] == (1000, 2000) and shapes["embedding.weight"] == (1000, 1000)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"layers": 0}, "layers must be at least 1, but is 0"),
        ({"dropout": 1.0}, "less than 1"),
        ({"tie_weights": "all"}, "embedding_dim is 5 and dim 6"),
    ],
)
def test_shapes_that_cannot_be_are_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        Config(**{**TINY, **changes})


def test_one_table_needs_one_vocabulary():
    with pytest.raises(UserError, match=r"13 and 11 tokens"):
        make(11, 13, tie_weights="all", embedding_dim=6)


def test_the_sizes_are_configs():
    assert {"tiny", "base"} <= set(SIZES) and Config(**SIZES["base"]) == Config()
    assert all(set(size) <= {field.name for field in fields(Config)} for size in SIZES.values())
    assert Model is Luong
