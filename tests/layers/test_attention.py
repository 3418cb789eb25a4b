import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from mallang.layers.attention import (
    CrossAttention,
    SelfAttention,
    additive,
    causal_mask,
    padding_mask,
    record_attention,
)

DIM, HEADS, KEY_DIM, VALUE_DIM = 6, 2, 3, 5
TINY = settings(deadline=None, max_examples=25)


def attention_by_loops(layer, x, memory, may_see):
    """The formula with one number at a time; may_see(sentence, query, key) is a truth value."""
    w_query, w_key, w_value = (matrix.double().tolist() for matrix in layer.input_weights())
    biases = [part.bias.detach().double() for part in layer.children() if part is not layer.output]
    biases = torch.cat(biases).tolist()
    b_query, b_key = biases[: len(w_query)], biases[len(w_query) : len(w_query) + len(w_key)]
    b_value = biases[len(w_query) + len(w_key) :]
    w_out, b_out = layer.output.weight.double().tolist(), layer.output.bias.double().tolist()

    def affine(matrix, bias, vector):
        return [sum(w * v for w, v in zip(row, vector, strict=True)) + b for row, b in zip(matrix, bias, strict=True)]

    result = []
    for sentence, (asking, asked) in enumerate(zip(x.double().tolist(), memory.double().tolist(), strict=True)):
        keys = [affine(w_key, b_key, vector) for vector in asked]
        values = [affine(w_value, b_value, vector) for vector in asked]
        rows = []
        for place, vector in enumerate(asking):
            query, joined = affine(w_query, b_query, vector), []
            seen = [other for other in range(len(asked)) if may_see(sentence, place, other)]
            for head in range(HEADS):
                part = slice(head * KEY_DIM, (head + 1) * KEY_DIM)
                scores = [
                    sum(q * k for q, k in zip(query[part], keys[other][part], strict=True)) / math.sqrt(KEY_DIM)
                    for other in seen
                ]
                total = sum(math.exp(score) for score in scores)
                weights = [math.exp(score) / total for score in scores]
                for i in range(head * VALUE_DIM, (head + 1) * VALUE_DIM):
                    joined.append(sum(w * values[other][i] for w, other in zip(weights, seen, strict=True)))
            rows.append(affine(w_out, b_out, joined))
        result.append(rows)
    return torch.tensor(result)


def make(kind, seed=1, dropout=0.0):
    torch.manual_seed(seed)
    layer = kind(DIM, HEADS, KEY_DIM, VALUE_DIM, dropout)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5)
    return layer.eval()


def both_ways(layer, *inputs, **options):
    """The output of the fused kernel, after checking that the readable path gives the same."""
    fused = layer(*inputs, **options)
    with record_attention(layer) as maps:
        readable = layer(*inputs, **options)
    assert len(maps) == 1
    first = (fused[0], readable[0]) if isinstance(fused, tuple) else (fused, readable)
    torch.testing.assert_close(*first, rtol=1e-5, atol=1e-5)
    return first[0]


@pytest.mark.parametrize("window", [None, 0, 1, 2])
def test_causal_self_attention_is_the_formula(window):
    layer, x = make(SelfAttention), torch.randn(2, 5, DIM)
    found = both_ways(layer, x, causal_mask(5, window=window))
    reach = 5 if window is None else window
    expected = attention_by_loops(layer, x, x, lambda _, i, j: i - reach <= j <= i)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("window", [None, 1])
def test_padded_self_attention_is_the_formula(window):
    layer, x = make(SelfAttention), torch.randn(2, 5, DIM)
    lengths = [5, 3]
    real = torch.arange(5) < torch.tensor(lengths)[:, None]
    found = both_ways(layer, x, padding_mask(real, window))
    for sentence, length in enumerate(lengths):
        alone = x[sentence : sentence + 1, :length]
        expected = attention_by_loops(layer, alone, alone, lambda _, i, j: window is None or abs(i - j) <= window)
        torch.testing.assert_close(found[sentence, :length], expected[0], rtol=1e-5, atol=1e-5)
    assert found.isfinite().all()  # the padding queries too


def test_cross_attention_is_the_formula():
    layer, x, memory = make(CrossAttention), torch.randn(2, 4, DIM), torch.randn(2, 3, DIM)
    seen = torch.tensor([[True, True, True], [True, True, False]])
    found = both_ways(layer, x, layer.remember(memory), padding_mask(seen))
    expected = attention_by_loops(layer, x, memory, lambda sentence, _, j: bool(seen[sentence, j]))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@TINY
@given(sentences=st.integers(1, 3), width=st.integers(1, 4), time=st.integers(1, 3), source=st.integers(1, 4))
def test_the_width_folds_into_the_queries(sentences, width, time, source):
    layer = make(CrossAttention)
    memory, x = torch.randn(sentences, source, DIM), torch.randn(sentences * width, time, DIM)
    mask = padding_mask(torch.arange(source) < torch.randint(1, source + 1, (sentences, 1)))
    folded = layer(x, layer.remember(memory), mask)
    copied = layer(x, layer.remember(memory.repeat_interleave(width, 0)), mask.repeat_interleave(width, 0))
    torch.testing.assert_close(folded, copied, rtol=1e-5, atol=1e-5)


@TINY
@given(cuts=st.lists(st.integers(1, 3), min_size=1, max_size=4), window=st.none() | st.integers(0, 4))
def test_going_on_from_the_past_equals_reading_at_once(cuts, window):
    layer, x = make(SelfAttention), torch.randn(2, sum(cuts), DIM)
    whole, (keys, values) = layer(x, causal_mask(sum(cuts), window=window))
    past, parts, start = None, [], 0
    for cut in cuts:
        part, past = layer(x[:, start : start + cut], causal_mask(cut, start, window), past)
        parts.append(part)
        start += cut
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(past, (keys, values))


@TINY
@given(time=st.integers(1, 5), past=st.integers(0, 5), window=st.none() | st.integers(0, 6))
def test_causal_mask_hides_the_future_and_the_far(time, past, window):
    mask = causal_mask(time, past, window)
    seen = torch.ones(time, past + time, dtype=torch.bool)
    if isinstance(mask, str):
        assert past == 0
        seen = seen.tril()
    elif mask is not None:
        seen = seen & mask[0, 0]
    for i in range(time):
        for j in range(past + time):
            near = window is None or past + i - window <= j
            assert seen[i, j] == (near and j <= past + i)


@TINY
@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=3), window=st.none() | st.integers(0, 3))
def test_padding_mask_shows_the_real_and_the_near(lengths, window):
    width = max(lengths)
    mask = padding_mask(torch.arange(width) < torch.tensor(lengths)[:, None], window)
    mask = mask.expand(-1, 1, width, width)[:, 0]
    for sentence, length in enumerate(lengths):
        for i in range(length):
            for j in range(width):
                near = window is None or abs(i - j) <= window
                assert mask[sentence, i, j] == (near and j < length)
    assert mask.any(dim=-1).all()  # nobody is left without anything to see


@TINY
@given(data=st.data(), query=st.integers(1, 4), key=st.integers(1, 5))
def test_masking_before_the_softmax_is_zeroing_after_it_and_renormalizing(data, query, key):
    rows = st.lists(st.booleans(), min_size=key, max_size=key).filter(any)
    mask = torch.tensor(data.draw(st.lists(rows, min_size=query, max_size=query)))[None, None]
    layer, x, memory = make(CrossAttention), torch.randn(2, query, DIM), torch.randn(2, key, DIM)
    with record_attention(layer) as masked:
        layer(x, layer.remember(memory), mask)
    with record_attention(layer) as unmasked:
        layer(x, layer.remember(memory))
    zeroed = unmasked[""] * mask
    torch.testing.assert_close(masked[""], zeroed / zeroed.sum(dim=-1, keepdim=True), rtol=1e-5, atol=1e-6)


def test_who_may_see_nothing_stays_a_number():
    layer, x, memory = make(CrossAttention), torch.randn(1, 2, DIM, requires_grad=True), torch.randn(1, 3, DIM)
    mask = torch.tensor([[True, True, False], [False, False, False]])[None, None]
    out = both_ways(layer, x, layer.remember(memory), mask)
    torch.testing.assert_close(out[0, 1], layer.output.bias)
    with record_attention(layer, keep_graph=True) as maps:
        (out + layer(x, layer.remember(memory), mask)).sum().backward()
    assert maps[""][0, :, 1].eq(0).all()
    assert x.grad is not None and x.grad.isfinite().all()


def test_thinking_machines():
    """The well-known picture: scores 112 and 96, divided by √64, give weights 0.88 and 0.12."""
    layer = CrossAttention(64, 1, 64, 64)
    queries = torch.full((1, 1, 1, 64), 1.0)
    keys = torch.stack((torch.full((64,), 112 / 64), torch.full((64,), 96 / 64)))[None, None]
    with record_attention(layer, scores=True) as maps:
        layer.attend(queries, keys, torch.randn(1, 1, 2, 64), None)
    torch.testing.assert_close(maps[".scores"][0, 0, 0], torch.tensor([14.0, 12.0]))
    torch.testing.assert_close(maps[""][0, 0, 0], torch.tensor([0.88, 0.12]), rtol=0, atol=5e-3)


def test_dividing_by_the_root_of_the_size_keeps_the_spread_of_scores():
    torch.manual_seed(1)
    for size in (4, 64, 512):
        layer = CrossAttention(4, 1, size, 4)
        with record_attention(layer, scores=True) as maps:
            layer.attend(torch.randn(1, 1, 200, size), torch.randn(1, 1, 200, size), torch.randn(1, 1, 200, 4), None)
        assert 0.9 < maps[".scores"].std() < 1.1


def test_attention_dropout_is_on_in_training_alone_and_right_on_average():
    layer, x = make(SelfAttention, dropout=0.3), torch.randn(1, 4, DIM)
    with torch.no_grad():
        still = layer(x)[0]
        torch.testing.assert_close(layer(x)[0], still)
        layer.train()
        for path in ("fused", "readable"):
            runs = []
            for _ in range(600):
                if path == "fused":
                    runs.append(layer(x)[0])
                else:
                    with record_attention(layer):
                        runs.append(layer(x)[0])
            assert not torch.equal(runs[0], runs[1])
            spread = torch.stack(runs).std(dim=0) / math.sqrt(len(runs))
            assert ((torch.stack(runs).mean(dim=0) - still).abs() < 5 * spread + 1e-6).all()


class Pair(nn.Module):
    """A layer, and one that is run twice."""

    def __init__(self):
        super().__init__()
        self.self_attention = make(SelfAttention)
        self.shared = nn.ModuleDict({"cross_attention": make(CrossAttention)})

    def forward(self, x):
        y, _ = self.self_attention(x, "causal" if x.shape[1] > 1 else None)
        cross = self.shared["cross_attention"]
        return cross(cross(y, cross.remember(x)), cross.remember(x))


def test_recording_names_what_it_keeps():
    model, x = Pair(), torch.randn(2, 3, DIM)
    with record_attention(model) as maps:
        model(x)
    assert list(maps) == ["self", "shared.cross", "shared.cross:2"]
    for weights in maps.values():
        assert weights.shape == (2, HEADS, 3, 3) and not weights.requires_grad
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(2, HEADS, 3))
    assert maps["self"].triu(1).eq(0).all()


def test_scores_are_raw_and_make_the_weights():
    model, x = Pair(), torch.randn(2, 3, DIM)
    with record_attention(model, scores=True) as maps:
        model(x)
    assert list(maps)[:2] == ["self", "self.scores"]
    raw = maps["self.scores"]
    assert raw.isfinite().all()
    masked = raw.masked_fill(torch.ones(3, 3, dtype=torch.bool).triu(1), -math.inf)
    torch.testing.assert_close(masked.softmax(-1), maps["self"])


def test_gradients_flow_when_the_graph_is_kept():
    model, x = Pair(), torch.randn(2, 3, DIM, requires_grad=True)
    with record_attention(model, keep_graph=True) as maps:
        model(x)
    maps["self"].square().sum().backward()
    assert x.grad is not None and x.grad.abs().sum() > 0


def test_nothing_is_recorded_outside_and_errors_leave_nothing_behind():
    model, x = Pair(), torch.randn(2, 3, DIM)
    with pytest.raises(RuntimeError, match="by itself"), record_attention(model) as maps:
        raise RuntimeError("an error inside comes through by itself")
    model(x)
    assert maps == {}
    assert not any(getattr(module, "recorders", None) for module in model.modules())


def test_nested_recordings_each_hear_what_runs_inside_them():
    model, x = Pair(), torch.randn(2, 3, DIM)
    with record_attention(model) as outer:
        with record_attention(model.shared) as inner:
            model(x)
        model(x)
    assert list(inner) == ["cross", "cross:2"]
    assert len(outer) == 6 and "shared.cross:4" in outer
    assert torch.equal(inner["cross"], outer["shared.cross"])


@TINY
@given(queries=st.integers(1, 6), keys=st.integers(1, 7), seed=st.integers(0, 99))
def test_a_mask_of_numbers_is_the_same_mask(queries, keys, seed):
    layer, generator = make(CrossAttention), torch.Generator().manual_seed(seed)
    x, memory = torch.randn(2, queries, DIM), layer.remember(torch.randn(2, keys, DIM))
    mask = torch.rand(2, 1, queries, keys, generator=generator) < 0.5
    mask[..., 0] = True
    expected = layer(x, memory, mask)
    torch.testing.assert_close(layer(x, memory, additive(mask, x)), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(layer(x, memory.for_decoding(), additive(mask, x)), expected, rtol=1e-5, atol=1e-5)
    with record_attention(layer) as maps:
        layer(x, memory, additive(mask, x))
    (weights,) = maps.values()
    assert (weights.masked_select(~mask.expand_as(weights)) == 0).all()


def test_short_sequences_on_a_gpu_take_the_kernel_that_is_fast_for_them():
    from torch.backends import cuda

    from mallang.kernels.attention import SHORT, sdpa_backend

    before = cuda.flash_sdp_enabled(), cuda.cudnn_sdp_enabled()
    with sdpa_backend(torch.device("cuda"), SHORT):
        assert cuda.mem_efficient_sdp_enabled() and not cuda.flash_sdp_enabled() and not cuda.cudnn_sdp_enabled()
    for device, longest in (("cuda", SHORT + 1), ("cpu", 4)):
        with sdpa_backend(torch.device(device), longest):
            assert (cuda.flash_sdp_enabled(), cuda.cudnn_sdp_enabled()) == before
    assert (cuda.flash_sdp_enabled(), cuda.cudnn_sdp_enabled()) == before
