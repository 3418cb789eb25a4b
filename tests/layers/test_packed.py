"""Packed matrices give the same products, and are used for nothing else."""

import copy

import pytest
import torch

from mallang.layers import packed
from mallang.layers.packed import AT_HAND, Linear, has_packed_product, linear, packed_for

needs_mkl = pytest.mark.skipif(not has_packed_product(), reason="needs a torch with MKL")


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


@needs_mkl
@pytest.mark.parametrize("shape", [(6, 1, 5), (2, 3, 5), (6, 5)])
@pytest.mark.parametrize("bias", [True, False])
def test_the_product_is_the_same(shape, bias):
    layer, x = Linear(5, 7, bias=bias), torch.randn(shape)
    wanted = layer(x)
    with packed_for(6):
        for _ in range(2):
            torch.testing.assert_close(layer(x), wanted)
        assert len(AT_HAND.packs.made) == 1
    assert AT_HAND.packs is None


@needs_mkl
@pytest.mark.parametrize("x", [torch.randn(5, 5), torch.randn(6, 5, dtype=torch.float64)])
def test_other_rows_and_types_go_another_way(x):
    weight = torch.randn(7, 5, dtype=x.dtype)
    with packed_for(6):
        torch.testing.assert_close(linear(x, weight, None), x @ weight.T)
        assert not AT_HAND.packs.made


@needs_mkl
def test_gradients_go_another_way():
    layer = Linear(5, 7)
    with packed_for(6), torch.enable_grad():
        layer(torch.randn(6, 5)).sum().backward()
        assert layer.weight.grad is not None and not AT_HAND.packs.made


@needs_mkl
def test_what_does_not_lie_in_order_and_weights_that_changed():
    layer, x = Linear(5, 7), torch.randn(5, 6).T
    with packed_for(6):
        torch.testing.assert_close(layer(x), x @ layer.weight.T + layer.bias)
    layer.weight.mul_(2)
    with packed_for(6):
        torch.testing.assert_close(layer(x), x @ layer.weight.T + layer.bias)
    assert torch.equal(copy.deepcopy(layer).weight, layer.weight)


def test_without_the_kernel_nothing_changes(monkeypatch):
    monkeypatch.setattr(packed, "has_packed_product", lambda: False)
    layer, x = Linear(5, 7), torch.randn(6, 5)
    with packed_for(6):
        assert AT_HAND.packs is None
        torch.testing.assert_close(layer(x), x @ layer.weight.T + layer.bias)
