"""Updates of word vectors equal explicit loops and the gradients of autograd, in plain torch, in C and in triton."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from mallang.kernels import c_library, c_word_vectors
from mallang.kernels.word_vectors import (
    Groups,
    add_rows_,
    logistic_losses,
    logistic_updates_,
    softmax_updates_,
)

POOLINGS = ["none", "mean", "bag"]
every_pooling = pytest.mark.parametrize("pooling", POOLINGS)


def problem(groups=11, inputs=4, outputs=3, dim=5, rows=(9, 7), seed=1, device="cpu"):
    """Two tables and random groups; some rows are missing, some come twice in a group, one group has no inputs."""
    random = torch.Generator().manual_seed(seed)
    tables = [torch.randn(count, dim, generator=random) for count in rows]
    chosen = [
        torch.randint(-1, count, (groups, width), generator=random).int()
        for count, width in zip(rows, (inputs, outputs), strict=True)
    ]
    chosen[0][groups // 2] = -1
    chosen[1][-1, 1:] = chosen[1][-1, 0]
    labels = torch.rand(groups, outputs, generator=random).round()
    some = Groups(*(each.to(device) for each in (*chosen, labels)))
    return *(table.to(device) for table in tables), some


def rates_of(groups, block):
    return torch.linspace(0.3, 0.1, -(-len(groups) // block))


def by_loops(inputs, outputs, groups, rates, block, pooling):
    """What a block adds, one number at a time: the formula of the file, without tensors."""
    x, y = inputs.double().numpy().copy(), outputs.double().numpy().copy()
    losses = []
    for first in range(0, len(groups), block):
        old_x, old_y, rate = x.copy(), y.copy(), float(rates[first // block])
        for number in range(first, min(first + block, len(groups))):
            ins = [row for row in groups.inputs[number].tolist() if row >= 0]
            outs = [
                (row, label)
                for row, label in zip(groups.outputs[number].tolist(), groups.labels[number].tolist(), strict=True)
                if row >= 0
            ]
            mean = sum(old_x[row] for row in ins) / max(1, len(ins))
            loss = 0.0
            for vector, owners in [(old_x[row], [row]) for row in ins] if pooling == "none" else [(mean, ins)]:
                for row, label in outs if ins else ():
                    probability = 1 / (1 + math.exp(-float(vector @ old_y[row])))
                    loss -= math.log(probability if label else 1 - probability)
                    slope = rate * (label - probability)
                    y[row] += slope * vector
                    for owner in owners:
                        x[owner] += slope * old_y[row] / (len(ins) if pooling == "mean" else 1)
            losses.append(loss)
    return x, y, losses


def assert_close(found, wanted, tolerance=2e-5):
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(one.cpu()), other, atol=tolerance, rtol=tolerance)


@every_pooling
@pytest.mark.parametrize("block", [1, 4, 100])
def test_a_block_is_updated_as_explicit_loops_do(pooling, block, monkeypatch):
    monkeypatch.setenv("MALLANG_KERNELS", "off")
    inputs, outputs, groups = problem()
    rates = rates_of(groups, block)
    wanted = by_loops(inputs, outputs, groups, rates, block, pooling)
    losses = logistic_updates_(inputs, outputs, groups, rates, block, pooling)
    assert_close((inputs, outputs, losses), wanted)


@pytest.mark.skipif(c_library.library() is None, reason="no C kernels on this machine")
@every_pooling
@pytest.mark.parametrize("block", [1, 4, 100])
@pytest.mark.parametrize("dim", [1, 5, 16, 100, 300])
def test_c_updates_as_explicit_loops_do(pooling, block, dim):
    inputs, outputs, groups = problem(dim=dim)
    rates = rates_of(groups, block)
    wanted = by_loops(inputs / 4, outputs / 4, groups, rates, block, pooling)
    inputs, outputs = inputs / 4, outputs / 4
    losses = logistic_updates_(inputs, outputs, groups, rates, block, pooling)
    assert_close((inputs, outputs, losses), wanted, 1e-4)


@pytest.mark.skipif(c_library.library() is None, reason="no C kernels on this machine")
def test_threads_change_no_bit():
    results = []
    for threads in (1, 2, 3):
        inputs, outputs, groups = problem(groups=500, inputs=10, outputs=6, dim=100, rows=(60, 50))
        torch.set_num_threads(threads)
        try:
            losses = logistic_updates_(inputs, outputs, groups, rates_of(groups, 64), 64, "none")
        finally:
            torch.set_num_threads(1)
        results.append((inputs, outputs, losses))
    for found in results[1:]:
        assert all(torch.equal(one, other) for one, other in zip(found, results[0], strict=True))


def test_one_thread_is_taken_where_several_wait_for_each_other(monkeypatch):
    """A clock that says how long a call with one thread and with two takes."""
    now, pace, chosen = [0.0], c_word_vectors.Pace(), []
    monkeypatch.setattr(c_word_vectors.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(c_word_vectors.c_library, "threads", lambda multiplications: 2)

    def calls(count, seconds):
        chosen.clear()
        for _ in range(count):
            with pace.threads(1000) as threads:
                chosen.append(threads)
                now[0] += seconds[threads]
        return chosen

    idle, busy = {1: 2.0, 2: 1.0}, {1: 3.0, 2: 30.0}
    assert calls(20, idle) == [2, 1] + [2] * 18
    assert calls(12, busy) == [2] + [1] * 10 + [2]  # the 32nd call tries again
    assert calls(20, idle)[-4:] == [2] * 4
    assert sum(each == 1 for each in calls(128, idle)) == 2


@every_pooling
def test_one_block_is_one_step_of_gradient_descent(pooling):
    inputs, outputs, groups = problem()
    leaves = [table.clone().requires_grad_() for table in (inputs, outputs)]
    x, y = (F.pad(leaf, (0, 0, 0, 1)) for leaf in leaves)  # row −1 is zeros
    x, y = x[groups.inputs.long()], y[groups.outputs.long()]
    count = (groups.inputs >= 0).sum(1)
    there = (groups.inputs >= 0)[:, :, None] & (groups.outputs >= 0)[:, None, :]
    if pooling != "none":
        x = x.sum(1, keepdim=True) / count.clamp_min(1)[:, None, None]
        there = there.any(dim=1, keepdim=True)
    wanted = F.binary_cross_entropy_with_logits(x @ y.mT, groups.labels[:, None].expand(there.shape), there.float(),
                                                reduction="none")  # fmt: skip
    loss = wanted.sum()
    loss.backward()
    losses = logistic_updates_(inputs, outputs, groups, torch.tensor([0.2]), 100, pooling)
    assert_close([losses], [wanted.sum((1, 2)).detach().numpy()])
    assert_close([outputs], [(leaves[1] - 0.2 * leaves[1].grad).detach().numpy()])
    if pooling != "bag":  # whose gradient is not divided by the number of rows, as fastText has it
        assert_close([inputs], [(leaves[0] - 0.2 * leaves[0].grad).detach().numpy()])
    assert_close([logistic_losses(leaves[0].detach(), leaves[1].detach(), groups, 3, pooling)], [losses.numpy()])


def test_scores_far_from_zero_keep_the_loss_finite():
    tables = [torch.full((2, 4), 20.0), torch.full((2, 4), 20.0)]
    groups = Groups(torch.tensor([[0, 1]]).int(), torch.tensor([[0, 1]]).int(), torch.tensor([[1.0, 0.0]]))
    losses = logistic_updates_(*tables, groups, torch.tensor([0.1]), 1, "none")
    assert torch.isfinite(losses).all() and losses[0] > 50
    assert all(torch.isfinite(table).all() for table in tables)


@pytest.mark.parametrize("block", [1, 4, 100])
def test_the_softmax_is_one_step_of_gradient_descent_per_block(block):
    inputs, outputs, groups = problem()
    possible = torch.tensor([False, True, False, True, True, True, True])
    groups.outputs[~possible[groups.outputs.long()]] = -1
    rates, losses = rates_of(groups, block), []
    x, y = inputs.clone().double(), outputs.clone().double()
    for rate, some in zip(rates, groups.blocks(block), strict=True):
        leaves = [x.clone().requires_grad_(), y.clone().requires_grad_()]
        for ins, outs in zip(some.inputs.tolist(), some.outputs.tolist(), strict=True):
            ins, outs = [row for row in ins if row >= 0], [row for row in outs if row >= 0]
            one = 0 * (leaves[0].sum() + leaves[1].sum())
            for row in outs if ins else ():
                scores = (leaves[1] @ (sum(leaves[0][each] for each in ins) / len(ins)))[possible]
                one = one + scores.logsumexp(0) - scores[int(possible[:row].sum())]
            losses.append(one)
        torch.stack(losses[-len(some) :]).sum().backward()
        x, y = ((leaf - rate * leaf.grad).detach() for leaf in leaves)
    found = softmax_updates_(inputs, outputs, groups, rates, block, possible)
    assert_close((inputs, outputs, found), (x.numpy(), y.numpy(), torch.stack(losses).detach().numpy()))


def test_the_softmax_gradient_is_that_of_finite_differences():
    inputs, outputs, groups = problem(groups=2, inputs=2, outputs=2, dim=3, rows=(3, 3))
    groups.inputs[:] = torch.tensor([[0, 1], [2, 0]])
    rates, possible = torch.tensor([1.0]), torch.ones(3, dtype=torch.bool)

    def loss(x, y):
        return float(softmax_updates_(x, y, groups, torch.zeros(1), 2, possible).sum())

    moved = [inputs.clone(), outputs.clone()]
    softmax_updates_(*moved, groups, rates, 2, possible)
    for side, before in enumerate((inputs, outputs)):
        for place in np.ndindex(before.shape):
            both = []
            for step in (1e-2, -1e-2):
                tables = [inputs.clone(), outputs.clone()]
                tables[side][place] += step
                both.append(loss(*tables))
            slope = (both[0] - both[1]) / 2e-2
            assert float(moved[side][place] - before[place]) == pytest.approx(-slope, abs=2e-3)


def test_rows_take_their_updates_in_order():
    table, rows = torch.zeros(2, 1), torch.tensor([[0, -1], [0, 1]])
    add_rows_(table, rows, torch.tensor([[[1.0], [50.0]], [[2.0], [4.0]]]))
    assert table[:, 0].tolist() == [3.0, 4.0]


# ---- triton ----
