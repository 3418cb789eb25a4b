"""NPLM against the formula of the paper, window by window; contracts/ holds what all models keep."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.data.batch import Batch, pad_rows
from mallang.models.nplm import NPLM, SIZES, Config
from mallang.text.vocabulary import BOS, SPECIALS, Vocabulary

WORDS = Vocabulary((*SPECIALS, *"abcdefg"))
few = settings(deadline=None, max_examples=20)


def build(**changes):
    torch.manual_seed(1)
    model = NPLM(Config(**{**SIZES["tiny"], **changes}), WORDS).eval()
    for weight in model.parameters():  # what begins with zeros could not be seen
        torch.nn.init.normal_(weight, std=0.5)
    return model


def a_batch(rows):
    tokens, lengths = pad_rows(rows, begin=BOS)
    return Batch(tokens=tokens, lengths=lengths)


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def by_hand(model, tokens):
    """y = b + W x + U tanh(d + H x), for every position of one text."""
    size, kept = model.config.embedding_dim, model.config.order - 1
    vectors = [torch.zeros(size)] * (kept - 1) + [model.embedding.weight[token] for token in tokens]
    logits = []
    for place in range(len(tokens)):
        x = torch.cat(vectors[place : place + kept])
        h = torch.tanh(model.hidden.bias + model.hidden.weight @ x)
        u, w = model.head.weight[:, : model.config.dim], model.head.weight[:, model.config.dim :]
        logits.append(model.head.bias + u @ h + (w @ x if model.config.direct else 0))
    return torch.stack(logits)


@pytest.mark.parametrize("order", [2, 3, 5])
@pytest.mark.parametrize("direct", [True, False])
@torch.no_grad()
def test_it_is_the_formula(order, direct):
    model = build(order=order, direct=direct)
    batch = a_batch([[4, 5, 6, 7, 5], [8, 4, 4, 5, 6]])
    for row, tokens in enumerate(batch.tokens.tolist()):
        close(model.output(model(batch))[row], by_hand(model, tokens))


@torch.no_grad()
def test_a_tied_output_is_the_table():
    model = build(embedding_dim=8, dim=8, direct=False, tie_weights=True)
    batch = a_batch([[4, 5, 6]])
    assert "head.own.weight" not in dict(model.named_parameters())
    close(model.output(model(batch)), model(batch) @ model.embedding.weight.T + model.head.bias)


@few
@given(
    rows=st.integers(1, 6).flatmap(
        lambda time: st.lists(st.lists(st.integers(4, 10), min_size=time, max_size=time), min_size=1, max_size=3)
    ),
    data=st.data(),
)
@torch.no_grad()
def test_where_a_text_is_cut_makes_no_difference(rows, data):
    model, batch = build(direct=True), a_batch(rows)
    time = batch.tokens.shape[1]
    cuts = sorted({0, time, *data.draw(st.sets(st.integers(1, time)))})
    carry, found = None, []
    for begin, end in itertools.pairwise(cuts):
        reading = model.forward_stateful(Batch(tokens=batch.tokens[:, begin:end], lengths=batch.lengths), carry)
        carry = reading.carry
        assert carry.shape == (len(batch), model.config.order - 2)
        found.append(reading.hidden)
    close(torch.cat(found, dim=1), model(batch))


@torch.no_grad()
def test_what_lies_before_the_window_is_not_seen():
    model = build(order=3)
    said = model(a_batch([[4, 5, 6, 7], [8, 9, 6, 7]]))
    torch.testing.assert_close(said[0, 4], said[1, 4], rtol=1e-5, atol=1e-6)  # some processors round row by row
    assert not torch.allclose(said[0, 3], said[1, 3], rtol=1e-3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"order": 1}, "order must be at least 2"),
        ({"dim": 0}, "dim must be at least 1"),
        ({"dropout": 1.0}, "dropout must be"),
        ({"tie_weights": True, "direct": True}, "direct connections need a weight of their own"),
        ({"tie_weights": True, "dim": 9, "embedding_dim": 8}, "of one size"),
    ],
)
def test_it_refuses_what_cannot_be(changes, message):
    with pytest.raises(ValueError, match=message):
        Config(**changes)
