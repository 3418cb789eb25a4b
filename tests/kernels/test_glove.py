"""Steps of GloVe equal explicit loops of AdaGrad, in plain torch and in C."""

import numpy as np
import pytest
import torch

from mallang.kernels import c_library
from mallang.kernels.glove import Entries, Table, errors_of, glove_updates_


def problem(entries=40, words=6, columns=7):
    """Two tables, with a column of ones in each, and random entries."""
    random = torch.Generator().manual_seed(1)
    tables = []
    for fixed in (columns - 1, columns - 2):
        values = torch.randn(words, columns, generator=random) / 3
        values[:, fixed] = 1.0
        tables.append(Table(values, 1 + torch.rand(words, columns, generator=random), fixed))
    rows, others = torch.randint(words, (2, entries), generator=random).int()
    return *tables, Entries(rows, others, torch.randn(entries, generator=random), torch.rand(entries, generator=random))


def by_loops(rows, columns, entries, rate, block):
    """The same in numpy, entry by entry, in double precision."""
    tables = [table.values.double().numpy().copy() for table in (rows, columns)]
    squares = [table.squares.double().numpy().copy() for table in (rows, columns)]
    losses = []
    for first in range(0, len(entries), block):
        gradients = [np.zeros_like(table) for table in tables]
        for number in range(first, min(first + block, len(entries))):
            one, other = int(entries.rows[number]), int(entries.columns[number])
            weight = float(entries.weights[number])
            error = tables[0][one] @ tables[1][other] - float(entries.logs[number])
            losses.append(0.5 * weight * error**2)
            gradients[0][one] += rate * weight * error * tables[1][other]
            gradients[1][other] += rate * weight * error * tables[0][one]
        for side, fixed in ((0, rows.fixed), (1, columns.fixed)):
            gradients[side][:, fixed] = 0
            tables[side] -= gradients[side] / np.sqrt(squares[side])
            squares[side] += gradients[side] ** 2
    return *tables, *squares, losses


@pytest.mark.parametrize("kernels", ["off", "on"])
@pytest.mark.parametrize("block", [1, 7, 100])
def test_a_block_is_one_step_of_adagrad(block, kernels, monkeypatch):
    monkeypatch.setenv("MALLANG_KERNELS", kernels)
    rows, columns, entries = problem()
    wanted = by_loops(rows, columns, entries, 0.05, block)
    losses = glove_updates_(rows, columns, entries, 0.05, block)
    found = rows.values, columns.values, rows.squares, columns.squares, losses
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one.numpy(), other, atol=2e-5, rtol=2e-5)
    assert rows.values[:, rows.fixed].eq(1).all() and columns.values[:, columns.fixed].eq(1).all()


def test_the_first_step_descends_along_the_gradient_of_autograd():
    rows, columns, entries = problem()
    leaves = [table.values.clone().requires_grad_() for table in (rows, columns)]
    errors = errors_of(leaves[0][entries.rows], leaves[1][entries.columns], entries)
    (0.5 * entries.weights * errors.square()).sum().backward()
    before = [(table.values.clone(), table.squares.clone()) for table in (rows, columns)]
    glove_updates_(rows, columns, entries, 0.05, 1000)
    for table, leaf, (values, squares) in zip((rows, columns), leaves, before, strict=True):
        wanted = values - 0.05 * leaf.grad / squares.sqrt()
        wanted[:, table.fixed] = 1.0
        torch.testing.assert_close(table.values, wanted)


@pytest.mark.skipif(c_library.library() is None, reason="no C kernels on this machine")
def test_threads_change_no_bit():
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        try:
            rows, columns, entries = problem(entries=20_000, words=100, columns=102)
            losses = glove_updates_(rows, columns, entries, 0.05, 512)
        finally:
            torch.set_num_threads(1)
        results.append((rows.values, columns.values, losses))
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))
