"""GloVe: a pass over the counts of a text equals explicit loops; seeds and options."""

import math

import numpy as np
import pytest
import torch

from layers.test_cooccurrence import by_loops as counts_by_loops
from mallang.data.batch import Batch
from mallang.errors import UserError
from mallang.layers.cooccurrence import cooccurrences
from mallang.layers.word_windows import text_of
from mallang.models import glove
from mallang.models.glove import Config, Model
from mallang.text.vocabulary import SPECIALS, Vocabulary

VOCABULARY = Vocabulary((*SPECIALS, *"abcdefg"))
FIRST = len(SPECIALS)
LINES = [[FIRST + number for number in line] for line in ([0, 1, 2, 0, 1, 3], [5, 0], [2, 3, 4, 5, 1, 0], [0], [0, 1])]


def batches(lines=LINES):
    return [Batch(tokens=torch.tensor([line]), lengths=torch.tensor([len(line)])) for line in lines]


def build(seed=1, **config):
    torch.manual_seed(seed)
    return Model(Config(**{"dim": 4, "epochs": 1, "window": 3, "x_max": 2.0, **config}), VOCABULARY)


def fitted(model, lines=LINES):
    reports = list(model.fit(batches(lines)))
    return model, reports


def by_loops(model, order, block):
    """One epoch over the counts in this order, with vectors and biases apart, in double precision."""
    config, counts = model.config, counts_by_loops(LINES, model.config.window)
    entries = cooccurrences(text_of(batches(), VOCABULARY), config.window, len(VOCABULARY))  # for their order alone
    keys = list(zip(entries.rows.tolist(), entries.columns.tolist(), strict=True))
    start = [table.detach().double().numpy().copy() for table in (model.rows, model.columns)]
    v, u = (table[:, : config.dim] for table in start)
    b, c = start[0][:, config.dim].copy(), start[1][:, config.dim + 1].copy()
    squares = [np.ones_like(each) for each in (v, u, b, c)]
    total = 0.0
    for first in range(0, len(keys), block):
        gradients = [np.zeros_like(each) for each in (v, u, b, c)]
        for number in order[first : first + block]:
            i, j = keys[number]
            x = counts[i, j]
            weight = min(1.0, (x / config.x_max) ** config.alpha)
            error = v[i] @ u[j] + b[i] + c[j] - math.log(x)
            total += 0.5 * weight * error**2
            for gradient, row, slope in zip(gradients, (i, j, i, j), (u[j], v[i], 1.0, 1.0), strict=True):
                gradient[row] += config.learning_rate * weight * error * slope
        for values, gradient, square in zip((v, u, b, c), gradients, squares, strict=True):
            values -= gradient / np.sqrt(square)
            square += gradient**2
    return v + u, b, c, total / len(keys)


@pytest.mark.parametrize("block", [1, 6, 1000])
def test_an_epoch_is_that_of_explicit_loops(block, monkeypatch):
    orders = []
    original = torch.randperm

    def randperm(*arguments, **options):
        orders.append(original(*arguments, **options))
        return orders[-1]

    monkeypatch.setattr(glove.torch, "randperm", randperm)
    model, (report,) = fitted(build(block=block))
    vectors, b, c, loss = by_loops(build(block=block), orders[0].tolist(), block)
    np.testing.assert_allclose(model.vectors().numpy(), vectors, atol=1e-5)
    np.testing.assert_allclose(model.rows[:, 4].numpy(), b, atol=1e-5)
    np.testing.assert_allclose(model.columns[:, 5].numpy(), c, atol=1e-5)
    assert report == {"loss": pytest.approx(loss, rel=1e-5), "counts": len(counts_by_loops(LINES, 3))}


def test_the_loss_of_the_training_text_is_that_of_an_epoch_without_steps():
    model, _ = fitted(build(epochs=30))
    total, count = model.held_out_loss(batches())
    again = build(epochs=1, learning_rate=1e-12)
    again.load_state_dict(model.state_dict())
    _, (report,) = fitted(again)
    assert total / count == pytest.approx(report["loss"], rel=1e-5)


def test_dot_products_approach_the_logarithms_of_counts():
    model, reports = fitted(build(dim=8, epochs=400, learning_rate=0.1))
    assert reports[-1]["loss"] < 1e-3 * reports[0]["loss"]
    counts = counts_by_loops(LINES, 3)
    for (i, j), x in counts.items():
        assert float(model.rows[i] @ model.columns[j]) == pytest.approx(math.log(x), abs=0.05)


def test_a_seed_gives_the_same_bits():
    models = [fitted(build(seed, epochs=3, block=4))[0] for seed in (1, 1, 2)]
    assert torch.equal(models[0].vectors(), models[1].vectors())
    assert not torch.equal(models[0].vectors(), models[2].vectors())


def test_a_text_without_pairs_is_an_error():
    with pytest.raises(UserError, match="no two words"):
        fitted(build(), [[FIRST], [FIRST + 1]])


@pytest.mark.parametrize("name", ["x_max", "alpha", "learning_rate"])
def test_options_that_cannot_be(name):
    with pytest.raises(ValueError, match=f"{name} must be above 0"):
        Config(**{name: 0.0})
