"""Restricted self-attention in blocks against the same with a mask over all pairs."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.evaluation.flops import counting
from mallang.kernels import windowed_attention as windowed
from mallang.kernels.windowed_attention import Window, windowed_attention
from mallang.layers.attention import SelfAttention, causal_mask, record_attention

few = settings(deadline=None, max_examples=25)


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@few
@given(
    time=st.integers(1, 70),
    back=st.integers(0, 40),
    shape=st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 5), st.integers(1, 5)),
)
def test_it_is_attention_with_a_mask(time, back, shape):
    rows, heads, key_dim, value_dim = shape
    torch.manual_seed(time)
    tensors = [torch.randn(rows, heads, time, dim, requires_grad=True) for dim in (key_dim, key_dim, value_dim)]
    mask = Window(back).mask(time, torch.device("cpu"))
    assert mask.sum() == sum(min(place, back) + 1 for place in range(time))
    expected = F.scaled_dot_product_attention(*tensors, attn_mask=mask)
    found = windowed_attention(Window(back), *tensors)
    close(found, expected)
    weights = torch.randn_like(expected)
    for ours, theirs in zip(
        torch.autograd.grad((found * weights).sum(), tensors),
        torch.autograd.grad((expected * weights).sum(), tensors),
        strict=True,
    ):
        close(ours, theirs)


@torch.no_grad()
def test_a_layer_computes_windows_of_long_texts_in_blocks(monkeypatch):
    torch.manual_seed(1)
    layer, x = SelfAttention(8, 2, 4, 4), torch.randn(2, 100, 8)
    mask = causal_mask(100, window=5)
    assert mask == Window(5)
    found, _ = layer(x, mask)
    with record_attention(layer) as maps:
        readable, _ = layer(x, mask)
    (weights,) = maps.values()
    assert torch.equal(weights[0, 0] > 0, mask.mask(100, x.device)[0, 0])
    close(found, readable)
    monkeypatch.setattr("mallang.layers.attention.is_worth", lambda time, window: False)
    dense = causal_mask(100, window=5)
    close(found, layer(x, dense)[0])


def test_short_texts_and_texts_with_a_past_have_a_mask():
    assert isinstance(causal_mask(4 * windowed.WORTH, window=3), torch.Tensor)
    assert isinstance(causal_mask(200, past=1, window=3), torch.Tensor)
    assert causal_mask(4 * windowed.WORTH + 1, window=3) == Window(3)


@pytest.mark.parametrize("time", [512, 1024])
@torch.no_grad()
def test_its_cost_grows_with_the_text_and_not_with_its_square(time):
    def flops(time):
        tensors = [torch.randn(1, 1, time, 8) for _ in range(3)]
        with counting() as count:
            windowed_attention(Window(32), *tensors)
        return count.flops

    assert flops(2 * time) == 2 * flops(time) == 2 * (2 * 2 * time * 64 * 8)


def test_training_drops_weights():
    torch.manual_seed(1)
    tensors = [torch.randn(1, 1, 80, 4) for _ in range(3)]
    kept = windowed_attention(Window(2), *tensors)
    assert not torch.allclose(windowed_attention(Window(2), *tensors, dropout=0.5), kept)
