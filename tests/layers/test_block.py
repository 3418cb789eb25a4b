import pytest
import torch
from torch import nn

from mallang.layers.attention import CrossAttention, SelfAttention, causal_mask
from mallang.layers.block import Block, Blocks
from mallang.layers.feedforward import FeedForward

DIM = 8


def make(norm, cross=True, dropout=0.0):
    torch.manual_seed(1)
    shape = DIM, 2, 3, 5
    block = Block(SelfAttention(*shape), FeedForward(DIM, 12), CrossAttention(*shape) if cross else None, norm, dropout)
    for parameter in block.parameters():
        nn.init.normal_(parameter, std=0.5)
    return block.eval()


@pytest.mark.parametrize("cross", [True, False])
@pytest.mark.parametrize("norm", ["pre", "post", "none"])
def test_the_norm_stands_before_or_after_each_sublayer(norm, cross):
    block, x, source = make(norm, cross), torch.randn(2, 4, DIM), torch.randn(2, 3, DIM)
    memory = block.remember(source) if cross else None
    expected = x
    sublayers = [(block.self_norm, lambda y: block.self_attention(y, "causal")[0])]
    if cross:
        sublayers.append((block.cross_norm, lambda y: block.cross_attention(y, memory)))
    sublayers.append((block.feedforward_norm, block.feedforward))
    for layer_norm, sublayer in sublayers:
        if norm == "pre":
            expected = expected + sublayer(layer_norm(expected))
        elif norm == "none":
            assert not list(layer_norm.parameters())
            expected = expected + sublayer(expected)
        else:
            expected = layer_norm(expected + sublayer(expected))
    torch.testing.assert_close(block(x, "causal", memory), expected)


@pytest.mark.parametrize("norm", ["pre", "post", "none"])
def test_steps_equal_the_whole(norm):
    block, x = make(norm), torch.randn(2, 5, DIM)
    memory = block.remember(torch.randn(2, 3, DIM))
    first, past = block.step(x[:, :2], None, causal_mask(2), memory)
    second, past = block.step(x[:, 2:], past, causal_mask(3, 2), memory)
    torch.testing.assert_close(torch.cat((first, second), dim=1), block(x, "causal", memory))
    assert past[0].shape[2] == 5


def test_dropout_falls_on_every_sublayer():
    block = make("pre", dropout=0.999999).train()
    x = torch.randn(2, 4, DIM)
    with torch.no_grad():
        found = block(x, "causal", block.remember(torch.randn(2, 3, DIM)))
    torch.testing.assert_close(found, x)  # nothing of any sublayer comes through


def test_new_blocks_start_with_norms_that_change_nothing():
    block = Block(SelfAttention(DIM, 2, 4, 4), FeedForward(DIM, 12))
    for module in block.modules():
        if isinstance(module, nn.LayerNorm):
            assert module.weight.eq(1).all() and module.bias.eq(0).all()
    assert len(list(Blocks([block, block]))) == 2
