"""Gated convolutions against loops over positions, channels and places of the window."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.layers.convolution import GatedConvolution, scale_gradient

few = settings(deadline=None, max_examples=25)
shapes = st.tuples(st.integers(1, 3), st.integers(1, 7), st.integers(1, 4), st.integers(1, 5))
"""Rows, positions, channels, kernel_size."""


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def looped(layer, x):
    """The formula, one number at a time."""
    rows, time, dim = x.shape
    weight = layer.linear.weight.view(2 * dim, layer.kernel_size, dim)
    out = torch.zeros_like(x)
    for row in range(rows):
        for i in range(time):
            for channel in range(dim):
                halves = []
                for output in (channel, dim + channel):
                    total = layer.linear.bias[output].item()
                    for place in range(layer.kernel_size):
                        at = i - layer.left + place * layer.dilation
                        if 0 <= at < time:
                            total += sum((weight[output, place, c] * x[row, at, c]).item() for c in range(dim))
                    halves.append(torch.tensor(total))
                out[row, i, channel] = halves[0] * halves[1].sigmoid()
    return out


def a_layer(shape, causal, seed=1, dilation=1):
    rows, time, dim, kernel_size = shape
    torch.manual_seed(seed)
    return GatedConvolution(dim, kernel_size, causal, dilation=dilation), torch.randn(rows, time, dim)


@few
@given(shape=shapes, causal=st.booleans(), dilation=st.integers(1, 3))
@torch.no_grad()
def test_it_is_the_formula(shape, causal, dilation):
    layer, x = a_layer(shape, causal, dilation=dilation)
    close(layer(x), looped(layer, x))


@few
@given(shape=shapes, causal=st.booleans())
@torch.no_grad()
def test_it_is_a_convolution_and_a_gate(shape, causal):
    layer, x = a_layer(shape, causal)
    weight = layer.linear.weight.view(2 * x.shape[2], layer.kernel_size, -1).transpose(1, 2)
    padded = torch.nn.functional.pad(x, (0, 0, layer.left, layer.kernel_size - 1 - layer.left))
    convolved = torch.nn.functional.conv1d(padded.transpose(1, 2), weight, layer.linear.bias)
    close(layer(x), torch.nn.functional.glu(convolved, dim=1).transpose(1, 2))


@few
@given(shape=shapes, cuts=st.lists(st.integers(1, 3), min_size=1, max_size=7))
@torch.no_grad()
def test_steps_equal_the_whole(shape, cuts):
    layer, x = a_layer(shape, causal=True)
    window, found, at = torch.zeros(len(x), layer.kernel_size - 1, x.shape[2]), [], 0
    for size in [*cuts, x.shape[1]]:
        part = x[:, at : at + size]
        if part.shape[1]:
            new, after = layer.step(part, window)
            assert after.shape == window.shape  # so that a captured step finds its memory where it was
            window, at = after, at + part.shape[1]
            found.append(new)
    close(torch.cat(found, dim=1), layer(x))


@torch.no_grad()
def test_an_even_width_sees_one_more_to_the_right():
    layer, x = a_layer((1, 5, 2, 4), causal=False)
    changed = x.clone()
    changed[:, 3] += 1
    assert ((layer(x) != layer(changed)).any(dim=2)[0]).tolist() == [False, True, True, True, True]


def test_a_scaled_gradient_changes_the_way_back_alone():
    x = torch.randn(2, 3, requires_grad=True)
    y = scale_gradient(x, 0.25)
    assert torch.equal(y, x)
    (y * 2).sum().backward()
    assert torch.equal(x.grad, torch.full((2, 3), 0.5))
