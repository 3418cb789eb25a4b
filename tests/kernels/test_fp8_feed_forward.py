"""A feed-forward network of products in 8 bits comes near that of 32, and so do its gradients."""

import pytest
import torch

from kernels.gpu import DEVICE, INTERPRETED, large, needs_gpu, needs_kernels
from mallang.kernels import fp8_feed_forward
from mallang.kernels.feed_forward import gelu_tanh
from mallang.kernels.fp8 import WIDEST, fp8_matmuls
from mallang.kernels.fp8_feed_forward import ROWS, gelu, gelu_backward
from mallang.layers.feedforward import FeedForward


def error(found, wanted):
    return float(((found.float() - wanted.float()).norm() / wanted.float().norm()).detach())


def is_fused(layer, x):
    """Whether a layer computes all of itself in FP8."""
    return (
        layer.activation is gelu_tanh and fp8_feed_forward.feed_forward(x, layer.up_proj, layer.down_proj) is not None
    )


def test_it_is_for_a_gpu_that_is_told_so(monkeypatch):
    monkeypatch.setattr(fp8_feed_forward, "works", lambda: True)
    x, layer = torch.randn(3, 16).bfloat16(), FeedForward(16, 32, "gelu-tanh").bfloat16()
    assert not is_fused(layer, x)
    with fp8_matmuls():
        assert not is_fused(layer, x)


@needs_gpu
def test_a_gpu_has_it_for_one_activation_and_all_widths_that_fit():
    x = torch.randn(3, 16, device="cuda").bfloat16()
    with fp8_matmuls():
        assert is_fused(FeedForward(16, 32, "gelu-tanh").bfloat16().cuda(), x)
        assert not is_fused(FeedForward(16, 32, "relu").bfloat16().cuda(), x)
        assert not is_fused(FeedForward(16, WIDEST + 16, "gelu-tanh").bfloat16().cuda(), x)


@needs_kernels
@pytest.mark.parametrize(("rows", "columns"), [(1, 16), (ROWS + 1, 48), large(3 * ROWS, 3072)])
def test_the_kernels_of_a_gpu_come_near(rows, columns):
    torch.manual_seed(columns)
    inner, gradient = (torch.randn(rows, columns, device=DEVICE).bfloat16() for _ in range(2))
    exact = inner.float().requires_grad_()
    wanted = torch.nn.functional.gelu(exact, approximate="tanh")
    wanted.backward(gradient.float())
    small, scales = gelu(inner)
    activated, back, (rough, rough_scales), sums = gelu_backward(gradient, inner)
    near = 0.2 if INTERPRETED else 0.04  # it loses a carry where a number is rounded up to the next power of two
    assert error(small.float() * scales, wanted) < near
    assert error(activated, wanted) < 0.01
    assert error(back, exact.grad) < 0.01
    assert error(rough.float() * rough_scales, exact.grad) < near
    assert torch.allclose(sums, exact.grad.sum(dim=0), atol=1e-3)


@needs_gpu
@pytest.mark.parametrize("bias", [True, False])
def test_a_network_on_a_gpu_comes_near(bias):
    torch.manual_seed(3)
    layer = FeedForward(64, 256, "gelu-tanh", bias=bias).cuda()
    x = torch.randn(2, 20, 64, device="cuda")
    rough_layer = FeedForward(64, 256, "gelu-tanh", bias=bias).cuda().bfloat16()
    rough_layer.load_state_dict(layer.state_dict())
    given, rough_given = x.clone().requires_grad_(), x.bfloat16().requires_grad_()
    wanted = layer(given)
    with fp8_matmuls():
        found = rough_layer(rough_given)
    assert 0.005 < error(found, wanted) < 0.08
    wanted.square().sum().backward()
    found.square().sum().backward()
    assert error(rough_given.grad, given.grad) < 0.12
    pairs = zip(rough_layer.named_parameters(), layer.parameters(), strict=True)
    for (name, rough), exact in pairs:
        assert error(rough.grad, exact.grad) < 0.12, name
