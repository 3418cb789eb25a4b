"""Convolutional language models against NPLM, loops and torch's conv1d; contracts/ holds what all models keep."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.utils import parametrize

from mallang.data.batch import Batch, pad_rows
from mallang.layers.convolution import fold_weights
from mallang.models import nplm
from mallang.models.conv_lm import SIZES, Config, ConvLM
from mallang.text.vocabulary import BOS, SPECIALS, Vocabulary

WORDS = Vocabulary((*SPECIALS, *"abcdefg"))
few = settings(deadline=None, max_examples=20)


def build(size="tiny", **changes):
    torch.manual_seed(1)
    return ConvLM(Config(**{**SIZES[size], **changes}), WORDS).eval()


def a_batch(rows=((4, 5, 6, 7, 5), (8, 4, 4, 5, 6))):
    tokens, lengths = pad_rows([list(row) for row in rows], begin=BOS)
    return Batch(tokens=tokens, lengths=lengths)


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("order", [2, 4, 6])
@torch.no_grad()
def test_one_layer_without_gates_is_nplm_slid_along(order):
    conv = build("windowed", kernel_size=order - 1)
    sizes = {"order": order, "embedding_dim": conv.config.embedding_dim, "dim": conv.config.dim}
    flat = nplm.NPLM(nplm.Config(**sizes), WORDS).eval()
    flat.embedding.load_state_dict(conv.embedding.state_dict())
    flat.hidden.load_state_dict(conv.first.linear.state_dict())
    flat.head.load_state_dict(conv.head.state_dict())
    batch = a_batch()
    assert sum(p.numel() for p in flat.parameters()) == sum(p.numel() for p in conv.parameters())
    close(flat.output(flat(batch)), conv.output(conv(batch)))
    assert torch.equal(flat(batch), conv(batch))


def convolved(layer, x, dilation=1):
    """Through torch's own convolution, with zeros before the first token, and the gate in two parts."""
    weight = layer.linear.weight.view(len(layer.linear.weight), layer.kernel_size, -1).transpose(1, 2)
    padded = F.pad(x.transpose(1, 2), ((layer.kernel_size - 1) * dilation, 0))
    a, b = F.conv1d(padded, weight, layer.linear.bias, dilation=dilation).transpose(1, 2).chunk(2, dim=-1)
    return a * torch.sigmoid(b)


@pytest.mark.parametrize("bottleneck", [None, 8])
@pytest.mark.parametrize("block_layers", [1, 2])
@torch.no_grad()
def test_it_is_stacked_gated_convolutions_with_residuals(block_layers, bottleneck):
    model, batch = build(block_layers=block_layers, bottleneck=bottleneck), a_batch()
    x = convolved(model.first, model.embedding(batch.tokens))
    for block in model.blocks:
        new = x
        for layer in filter(None, (block.down_proj, *block.wide, block.up_proj)):
            new = convolved(layer, new)
        x = (x + new) * math.sqrt(0.5)
    close(model(batch), x)
    assert (model.blocks[0].down_proj is None) == (bottleneck is None)


@few
@given(
    rows=st.integers(1, 8).flatmap(
        lambda time: st.lists(st.lists(st.integers(4, 10), min_size=time, max_size=time), min_size=1, max_size=3)
    ),
    changes=st.sampled_from(
        [{}, {"bottleneck": 8, "block_layers": 2}, {"gated": False}, {"kernel_size": 1}, {"dilation": 2}]
    ),
    data=st.data(),
)
@torch.no_grad()
def test_where_a_text_is_cut_makes_no_difference(rows, changes, data):
    model, batch = build(**changes), a_batch(rows)
    time = batch.tokens.shape[1]
    cuts = sorted({0, time, *data.draw(st.sets(st.integers(1, time)))})
    carry, found = None, []
    for begin, end in itertools.pairwise(cuts):
        reading = model.forward_stateful(Batch(tokens=batch.tokens[:, begin:end], lengths=batch.lengths), carry)
        carry = reading.carry
        kept = [(model.config.kernel_size - 1) * model.config.dilation**layer for layer in range(len(carry))]
        assert [window.shape[:2] for window in carry] == [(len(batch), each) for each in kept]
        found.append(reading.hidden)
    close(torch.cat(found, dim=1), model(batch))


def test_what_is_carried_has_no_history():
    model = build().train()
    reading = model.forward_stateful(a_batch(), None)
    assert reading.hidden.requires_grad and not any(window.requires_grad for window in reading.carry)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"blocks": 3, "block_layers": 2, "kernel_size": 2},
        {"blocks": 0, "block_layers": 2},
        {"dilation": 2},
        {"blocks": 2, "block_layers": 2, "kernel_size": 2, "dilation": 2, "bottleneck": 8},
    ],
)
@torch.no_grad()
def test_it_sees_as_far_as_it_says(changes):
    model = build(**changes)
    time = model.context + 2
    tokens = torch.randint(4, 11, (1, time), generator=torch.Generator().manual_seed(2))
    lengths = torch.tensor([time])
    said = model(Batch(tokens=tokens, lengths=lengths))[0, -1]
    for back in (model.context - 1, model.context):
        other = tokens.clone()
        other[0, -1 - back] = 4 + (other[0, -1 - back] - 3) % 7
        changed = not torch.equal(model(Batch(tokens=other, lengths=lengths))[0, -1], said)
        assert changed == (back < model.context)


@pytest.mark.parametrize(("kernel_size", "blocks"), [(2, 3), (3, 2), (4, 1)])
def test_dilation_by_the_width_sees_every_token_of_an_exponential_context_once(kernel_size, blocks):
    """The receptive field by gradients: kernel_size^layers tokens, none left out; layers = log of the context."""
    model = build(kernel_size=kernel_size, blocks=blocks, dilation=kernel_size, gated=False)
    context = kernel_size ** (blocks + 1)
    assert model.context == context and context > build(kernel_size=kernel_size, blocks=blocks).context
    tokens = torch.randint(4, 11, (1, context + 3), generator=torch.Generator().manual_seed(2))
    vectors = model.embedding(tokens).detach().requires_grad_()
    model.embed = lambda _: vectors
    hidden = model(Batch(tokens=tokens, lengths=torch.tensor([context + 3])))
    (gradient,) = torch.autograd.grad(hidden[0, -1].sum(), vectors)
    reached = gradient[0].abs().sum(dim=1) > 0
    assert reached.tolist() == [False] * 3 + [True] * context


@torch.no_grad()
def test_dilated_layers_are_torchs_dilated_convolutions():
    model, batch = build(dilation=2, blocks=3), a_batch()
    x = convolved(model.first, model.embedding(batch.tokens))
    for number, block in enumerate(model.blocks, 1):
        x = (x + convolved(block.wide[0], x, 2**number)) * math.sqrt(0.5)
    close(model(batch), x)


@torch.no_grad()
def test_folded_weights_say_the_same():
    model, batch = build(), a_batch()
    expected = model(batch)
    assert parametrize.is_parametrized(model.first.linear, "weight")
    fold_weights(model)
    assert not any(parametrize.is_parametrized(part) for part in model.modules())
    close(model(batch), expected)


def test_training_leaves_out_words_throughout_a_batch():
    model = build(word_dropout=0.5).train()
    torch.manual_seed(1)
    seen = model.embed(torch.arange(11).repeat(3, 1))
    assert torch.equal(seen[0], seen[1]) and torch.equal(seen[0], seen[2])
    gone = (seen[0] == 0).all(dim=1)
    assert 0 < gone.sum() < 11
    assert not (model.eval().embed(torch.arange(11)[None]) == 0).all(dim=2).any()


@torch.no_grad()
def test_it_begins_with_vectors_of_one_size():
    """The variance of hidden vectors is that of the embeddings, however deep the stack."""
    torch.manual_seed(1)
    deep = ConvLM(Config(blocks=8, dim=128, embedding_dim=128), WORDS).eval()
    hidden = deep(a_batch(torch.randint(4, 11, (8, 60)).tolist()))
    assert 0.5 < hidden[:, 40:].std() / deep.embedding.weight.std() < 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"blocks": -1}, "blocks must be at least 0"),
        ({"kernel_size": 0}, "kernel_size must be at least 1"),
        ({"word_dropout": 1.0}, "word_dropout must be"),
        ({"blocks": 0, "bottleneck": 8}, "bottleneck = 8 has no effect"),
        ({"blocks": 0, "dropout": 0.1}, "dropout = 0.1 has no effect"),
        ({"blocks": 0, "block_layers": 1}, "block_layers = 1 has no effect"),
        ({"blocks": 0, "block_layers": 2, "dilation": 2}, "dilation = 2 has no effect"),
        ({"dilation": 0}, "dilation must be at least 1"),
        ({"blocks": 30, "dilation": 2}, "over 61 layers sees .* but the most is 65,536"),
        ({"tie_weights": True, "dim": 9, "embedding_dim": 8}, "of one size"),
    ],
)
def test_it_refuses_what_cannot_be(changes, message):
    with pytest.raises(ValueError, match=message):
        Config(**changes)
