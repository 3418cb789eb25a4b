from dataclasses import fields

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from mallang.data.batch import Batch, lengths_to_mask
from mallang.decoding.contract import Config as Search
from mallang.decoding.coverage import cross_attention
from mallang.decoding.search import search
from mallang.errors import UserError
from mallang.inspection.attention import attention_maps
from mallang.layers.attention import record_attention
from mallang.layers.quantization import quantize
from mallang.models.bahdanau import SIZES, Bahdanau, Config, Model
from mallang.text.vocabulary import SPECIALS, Vocabulary

TINY = {"embedding_dim": 5, "dim": 6, "score_dim": 4, "readout_dim": 5}


def vocabulary(words):
    return Vocabulary((*SPECIALS, *map(str, range(words - 4))))


def make(words=11, source_words=13, seed=1, **changes):
    torch.manual_seed(seed)
    model = Model(Config(**{**TINY, **changes}), vocabulary(words), vocabulary(source_words)).eval()
    for name, parameter in model.named_parameters():
        if "bias" not in name or "encoder" not in name:  # some of the encoder's biases must stay at zero
            nn.init.normal_(parameter, std=0.5)
    return model


def batch_of(source_lengths=(5, 3), lengths=(4, 6), words=11, seed=1):
    random = torch.Generator().manual_seed(seed)
    source_lengths, lengths = torch.tensor(source_lengths), torch.tensor(lengths)
    source = torch.randint(4, words, (len(lengths), int(source_lengths.max())), generator=random)
    tokens = torch.randint(4, words, (len(lengths), int(lengths.max())), generator=random)
    source[~lengths_to_mask(source_lengths, source.shape[1])] = 0
    tokens[~lengths_to_mask(lengths, tokens.shape[1])] = 0
    return Batch(tokens=tokens, lengths=lengths, source=source, source_lengths=source_lengths)


def gru(gates_of_input, gates_of_state, state):
    """torch's convention: the reset gate acts after the matmul with U."""
    dim = len(state)
    r = torch.sigmoid(gates_of_input[:dim] + gates_of_state[:dim])
    z = torch.sigmoid(gates_of_input[dim : 2 * dim] + gates_of_state[dim : 2 * dim])
    n = torch.tanh(gates_of_input[2 * dim :] + r * gates_of_state[2 * dim :])
    return (1 - z) * n + z * state


def read_one_way(reader, words):
    w, u, b, d = reader._flat_weights
    state, states = torch.zeros(6), []
    for x in words:
        state = gru(w @ x + b, u @ state + d, state)
        states.append(state)
    return states


def by_the_paper(model, source, tokens):
    """The logits of one sentence and its weights α, one word at a time, as the equations stand in the paper."""
    words = [model.own_source_embedding.weight[j] for j in source]
    there = read_one_way(model.encoder.forwards[0], words)
    back = read_one_way(model.encoder.backwards[0], words[::-1])[::-1]
    annotations = [torch.cat(pair) for pair in zip(there, back, strict=True)]
    score = model.cross_attention.score
    s = torch.tanh(model.first_state.weight @ back[0] + model.first_state.bias)
    logits, alphas = [], []
    for token in tokens:
        y = model.embedding.weight[token]
        e = [score.v @ torch.tanh(score.query.weight @ s + score.key.weight @ h) for h in annotations]
        alpha = torch.stack(e).exp() / torch.stack(e).exp().sum()
        c = sum(a * h for a, h in zip(alpha, annotations, strict=True))
        gates = model.word_gates.weight @ y + model.word_gates.bias + model.context_gates.weight @ c
        s = gru(gates, model.state_gates.weight @ s + model.state_gates.bias, s)
        t = model.readout.pairs.weight @ torch.cat((s, y, c)) + model.readout.pairs.bias
        maxout = torch.stack([max(t[k], t[5 + k]) for k in range(5)])
        logits.append(model.head.weight @ maxout)
        alphas.append(alpha)
    return torch.stack(logits), torch.stack(alphas)


@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 1000), data=st.data())
@torch.no_grad()
def test_it_is_the_formulas_of_the_paper(seed, data):
    length = st.integers(1, 5)
    lengths = data.draw(st.lists(st.tuples(length, length), min_size=1, max_size=3))
    batch = batch_of(*zip(*lengths, strict=True), seed=seed)
    model = make(seed=seed)
    with record_attention(model) as maps:
        logits = model.output(model(batch))
    for row, (source, time) in enumerate(lengths):
        expected, alphas = by_the_paper(model, batch.source[row, :source], batch.tokens[row, :time])
        torch.testing.assert_close(logits[row, :time], expected, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(maps["cross"][row, 0, :time, :source], alphas, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_it_attends_from_the_state_before_so_the_first_context_does_not_depend_on_the_word():
    model, batch = make(words=12), batch_of()
    other = Batch(
        tokens=batch.tokens + 1, lengths=batch.lengths, source=batch.source, source_lengths=batch.source_lengths
    )
    looks = []
    for each in (batch, other):
        with record_attention(model) as maps:
            model(each)
        looks.append(maps["cross"])
    assert torch.equal(looks[0][:, :, 0], looks[1][:, :, 0])
    assert not torch.allclose(looks[0][:, :, 1], looks[1][:, :, 1])


def test_training_gives_the_gradients_of_the_formulas():
    """The loop takes the gradients of its weights once, over all steps; the formulas take them one by one."""
    model, batch = make(), batch_of((4,), (5,))
    found = []
    for logits in (lambda: model.output(model(batch))[0],
                   lambda: by_the_paper(model, batch.source[0], batch.tokens[0])[0]):  # fmt: skip
        model.zero_grad()
        logits().square().sum().backward()
        found.append({name: p.grad.clone() for name, p in model.named_parameters()})
    for name, gradient in found[0].items():
        expected = found[1][name]
        if "encoder" in name and "bias" in name:  # the third part of these stays at zero, so that padding does too
            expected[12:] = 0
        torch.testing.assert_close(gradient, expected, atol=1e-4, rtol=1e-4, msg=name)


@torch.no_grad()
def test_weights_are_recorded_once_per_forward_and_sum_to_one():
    model, batch = make(), batch_of()
    with record_attention(model, scores=True) as maps:
        model(batch)
    assert list(maps) == ["cross", "cross.scores"]
    assert maps["cross"].shape == (2, 1, 6, 5)
    assert maps["cross"][1, :, :, 3:].abs().max() == 0  # padding gets no attention
    torch.testing.assert_close(maps["cross"].sum(dim=-1), torch.ones(2, 1, 6))
    assert cross_attention(model, batch).shape == (2, 6, 5)
    seen = attention_maps(model, batch)[1]["cross"]
    assert seen.weights.shape == (1, 6, 3) and len(seen.keys) == 3 and len(seen.queries) == 6


def test_every_runner_finds_the_same_and_coverage_ranks_it():
    model, batch = make(), batch_of()
    plain, static = (
        search(model, batch, Search(beam=3, nbest=3, max_length=6, runner=runner)) for runner in ("plain", "static")
    )
    assert [[one.tokens for one in each] for each in plain] == [[one.tokens for one in each] for each in static]
    for each in search(model, batch, Search(beam=3, nbest=3, max_length=2, coverage=0.5)):
        assert [one.normalized for one in each] == sorted((one.normalized for one in each), reverse=True)
        # Two tokens cannot cover all of three words or five.
        assert all(one.normalized < one.score / len(one.token_scores) for one in each)


@torch.no_grad()
def test_8_bit_integers_change_little():
    model, batch = make(embedding_dim=32, dim=32, score_dim=32, readout_dim=32), batch_of()
    exact = model.output(model(batch))
    rough = quantize(model)
    close = rough.output(rough(batch))
    assert 0 < (close - exact).norm() / exact.norm() < 0.05
    stepped, _ = rough.step(batch.tokens, rough.start(batch))
    torch.testing.assert_close(stepped, close)


def test_sizes_of_the_paper():
    """RNNsearch: 1000 states each way, 620 a word, 500 after the maxout, every other matrix of the appendix."""
    with torch.device("meta"):
        model = Model(Config(), vocabulary(30_000), vocabulary(30_000))
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    assert shapes["embedding.weight"] == shapes["own_source_embedding.weight"] == (30_000, 620)
    assert shapes["cross_attention.score.query.weight"] == (1000, 1000)
    assert shapes["cross_attention.score.key.weight"] == (1000, 2000)
    assert shapes["context_gates.weight"] == (3000, 2000) and shapes["first_state.weight"] == (1000, 1000)
    assert shapes["readout.pairs.weight"] == (2 * 500, 1000 + 620 + 2000)
    assert shapes["head.own.weight"] == (30_000, 500)


def test_weights_that_are_shared_are_counted_once():
    names = {share: dict(make(11, 11, tie_weights=share).named_parameters()) for share in ("all", "target", "none")}
    assert "head.own.weight" in names["none"] and "head.own.weight" not in names["target"]
    assert "own_source_embedding.weight" in names["target"] and "own_source_embedding.weight" not in names["all"]
    model = make(11, 11, tie_weights="all")
    assert model.head.weight is model.embedding.weight


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"dim": 0}, "dim must be at least 1, but is 0"),
        ({"dropout": 1.0}, "less than 1"),
        ({"tie_weights": "target", "readout_dim": 7}, "embedding_dim is 5 and readout_dim 7"),
    ],
)
def test_shapes_that_cannot_be_are_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        Config(**{**TINY, **changes})


def test_one_table_needs_one_vocabulary():
    with pytest.raises(UserError, match=r"13 and 11 tokens"):
        make(11, 13, tie_weights="all")


def test_the_sizes_are_configs():
    assert {"tiny", "base"} <= set(SIZES) and Config(**SIZES["base"]) == Config()
    assert all(set(size) <= {field.name for field in fields(Config)} for size in SIZES.values())
    assert Model is Bahdanau
