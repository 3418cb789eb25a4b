import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from mallang.layers.attention import additive, record_attention
from mallang.layers.scores import (
    AdditiveScore,
    ConcatScore,
    DotScore,
    GeneralScore,
    MultiplicativeScore,
    ScaledDotScore,
    ScoredAttention,
)

QUERY, MEMORY, HIDDEN = 4, 6, 5
KINDS = {
    "dot": lambda: DotScore(MEMORY, MEMORY),
    "scaled dot": lambda: ScaledDotScore(MEMORY, MEMORY),
    "general": lambda: GeneralScore(QUERY, MEMORY),
    "multiplicative": lambda: MultiplicativeScore(QUERY, MEMORY, HIDDEN),
    "additive": lambda: AdditiveScore(QUERY, MEMORY, HIDDEN),
    "concat": lambda: ConcatScore(QUERY, MEMORY, HIDDEN),
}
every_kind = pytest.mark.parametrize("kind", KINDS)
TINY = settings(deadline=None, max_examples=10)


def make(kind, seed=1):
    torch.manual_seed(seed)
    score = KINDS[kind]().double()
    for parameter in score.parameters():
        nn.init.normal_(parameter, std=0.7)
    return score


def inputs(kind, sentences=2, asking=3, source=4, seed=1):
    random = torch.Generator().manual_seed(seed)
    query_dim = MEMORY if "dot" in kind else QUERY
    states = torch.randn(sentences, asking, query_dim, generator=random, dtype=torch.float64)
    memory = torch.randn(sentences, source, MEMORY, generator=random, dtype=torch.float64)
    return states, memory


def times(matrix, vector):
    return [sum(w * x for w, x in zip(row, vector, strict=True)) for row in matrix]


def inner(left, right):
    return sum(a * b for a, b in zip(left, right, strict=True))


def by_hand(score, kind, s, h):
    """The formula of the paper for one state and one position, one number at a time."""
    weights = {name: value.tolist() for name, value in score.named_parameters()}
    if kind == "dot":
        return inner(s, h)
    if kind == "scaled dot":
        return inner(s, h) / math.sqrt(len(s))
    if kind == "general":
        return inner(s, times(weights["key.weight"], h))
    if kind == "multiplicative":
        return inner(times(weights["query.weight"], s), times(weights["key.weight"], h))
    if kind == "additive":
        sums = zip(times(weights["query.weight"], s), times(weights["key.weight"], h), strict=True)
        return inner(weights["v"], [math.tanh(a + b) for a, b in sums])
    return inner(weights["v"], [math.tanh(x) for x in times(weights["joined"], [*s, *h])])


@every_kind
@TINY
@given(seed=st.integers(0, 1000), asking=st.integers(1, 4), source=st.integers(1, 4))
def test_a_score_is_its_formula(kind, seed, asking, source):
    score, (states, memory) = make(kind, seed), inputs(kind, 2, asking, source, seed)
    found = score(states, memory)
    for sentence in range(2):
        for i, s in enumerate(states[sentence].tolist()):
            for j, h in enumerate(memory[sentence].tolist()):
                assert found[sentence, i, j].item() == pytest.approx(by_hand(score, kind, s, h), abs=1e-12)


@TINY
@given(seed=st.integers(0, 1000))
def test_additive_is_concat_with_its_matrix_in_two(seed):
    concat, split = make("concat", seed), make("additive", seed + 1)
    with torch.no_grad():
        split.query.weight.copy_(concat.joined[:, :QUERY])
        split.key.weight.copy_(concat.joined[:, QUERY:])
        split.v.copy_(concat.v)
    states, memory = inputs("concat", seed=seed)
    torch.testing.assert_close(concat(states, memory), split(states, memory))
    pairs = torch.cat((states[:, :, None].expand(-1, -1, 4, -1), memory[:, None].expand(-1, 3, -1, -1)), dim=-1)
    torch.testing.assert_close(concat(states, memory), torch.tanh(pairs @ concat.joined.T) @ concat.v)


@TINY
@given(seed=st.integers(0, 1000))
def test_multiplicative_is_general_with_the_product_of_its_matrices(seed):
    two, one = make("multiplicative", seed), make("general", seed)
    with torch.no_grad():
        one.key.weight.copy_(two.query.weight.T @ two.key.weight)
    states, memory = inputs("general", seed=seed)
    torch.testing.assert_close(two(states, memory), one(states, memory))


def test_additive_and_multiplicative_differ_in_the_tanh_alone():
    """With v = 1 and small sums tanh(a + b) is a + b: the state then shifts all scores alike and the softmax sees
    nothing of it, which is why the additive score needs its tanh and the product does not."""
    score, (states, memory) = make("additive"), inputs("additive")
    with torch.no_grad():
        for weight in (score.query.weight, score.key.weight):
            weight.mul_(1e-6)
        weights = score(states, memory).mul(1e6).softmax(dim=-1)
    torch.testing.assert_close(weights, weights[:, :1].expand_as(weights), atol=1e-6, rtol=1e-6)


def test_the_scaled_dot_keeps_the_variance():
    torch.manual_seed(1)
    for dim in (16, 256):
        states, memory = torch.randn(1, 400, dim), torch.randn(1, 400, dim)
        assert ScaledDotScore(dim, dim)(states, memory).var().item() == pytest.approx(1, abs=0.1)
        assert DotScore(dim, dim)(states, memory).var().item() == pytest.approx(dim, rel=0.1)


def test_a_dot_of_two_sizes_is_refused():
    with pytest.raises(ValueError, match="4 and 6"):
        DotScore(4, 6)


@every_kind
def test_steps_equal_one_look_and_gradients_too(kind):
    """One after the other, with the gradient of keys and values taken once, or all at once."""
    states, memory = inputs(kind)
    results = []
    for stepwise in (False, True):
        attention = ScoredAttention(make(kind))
        source = memory.clone().requires_grad_()
        keys, mask = attention.score.remember(source), torch.tensor([[0.0] * 4, [0.0, 0.0, -math.inf, -math.inf]])
        if stepwise:
            looks = attention.steps(keys, source, mask.double())
            found = torch.stack([looks(query) for query in attention.score.ask(states).unbind(1)], dim=1)
        else:
            found = attention(states, keys, source, mask.double())
        found.square().sum().backward()
        results.append([found, source.grad, *(parameter.grad for parameter in attention.parameters())])
    for left, right in zip(*results, strict=True):
        torch.testing.assert_close(left, right)


@every_kind
@TINY
@given(seed=st.integers(0, 1000), data=st.data())
def test_minus_infinity_before_the_softmax_is_zero_and_renormalized_after_it(kind, seed, data):
    states, memory = inputs(kind, source=5, seed=seed)
    attention = ScoredAttention(make(kind, seed))
    lengths = [data.draw(st.integers(1, 5)) for _ in range(2)]
    real = torch.arange(5) < torch.tensor(lengths)[:, None]
    keys = attention.score.remember(memory)
    with record_attention(attention, scores=True) as maps, torch.no_grad():
        context = attention(states, keys, memory, additive(real, memory))
    weights = maps[".scores"][:, 0].softmax(dim=-1) * real[:, None]
    weights = weights / weights.sum(dim=-1, keepdim=True)
    torch.testing.assert_close(maps[""][:, 0], weights)
    torch.testing.assert_close(context, weights @ memory)
    for sentence, length in enumerate(lengths):
        alone = attention(
            states[sentence : sentence + 1],
            keys[sentence : sentence + 1, :length],
            memory[sentence : sentence + 1, :length],
            torch.zeros(1, length, dtype=torch.float64),
        )
        torch.testing.assert_close(context[sentence], alone[0])


@every_kind
@torch.no_grad()
def test_steps_are_recorded_once_as_one_head(kind):
    states, memory = inputs(kind)
    attention = ScoredAttention(make(kind))
    keys, mask = attention.score.remember(memory), torch.zeros(2, 4, dtype=torch.float64)
    queries = attention.score.ask(states)
    with record_attention(attention, scores=True) as maps:
        attention(states, keys, memory, mask)
        looks = attention.steps(keys, memory, mask)
        for query in queries.unbind(1):
            looks(query)
        looks.end()
    assert set(maps) == {"", ".scores", ":2", ":2.scores"}
    for name in ("", ".scores"):
        assert maps[name].shape == (2, 1, 3, 4)
        torch.testing.assert_close(maps[name], maps[f":2{name}"])
    looks = attention.steps(keys, memory, mask)
    looks(queries[:, 0])
    assert not looks.kept  # nothing is kept that nobody asked for


@every_kind
@torch.no_grad()
def test_hypotheses_share_the_memory_of_their_sentence(kind):
    attention, (states, memory) = ScoredAttention(make(kind)), inputs(kind, asking=1)
    keys, mask = attention.score.remember(memory), torch.zeros(2, 4, dtype=torch.float64)
    other = states.flip(0)
    rows = torch.stack((states, other), dim=1).flatten(0, 1)  # two hypotheses per sentence
    for found in (attention(rows, keys, memory, mask)[:, 0],
                  attention.steps(keys, memory, mask)(attention.score.ask(rows[:, 0]))):  # fmt: skip
        torch.testing.assert_close(found[0::2], attention(states, keys, memory, mask)[:, 0])
        torch.testing.assert_close(found[1::2], attention(other, keys, memory, mask)[:, 0])


def test_concat_draws_its_own_weights_alone():
    torch.manual_seed(3)
    score = ConcatScore(QUERY, MEMORY, HIDDEN)
    after = torch.rand(1)
    torch.manual_seed(3)
    v = torch.empty(HIDDEN).uniform_(-1, 1) / math.sqrt(HIDDEN)
    joined = nn.init.xavier_uniform_(torch.empty(HIDDEN, QUERY + MEMORY))
    assert torch.equal(score.v, v) and torch.equal(score.joined, joined) and torch.equal(torch.rand(1), after)
    assert dict(score.named_parameters()).keys() == {"v", "joined"}
