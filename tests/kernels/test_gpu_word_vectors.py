"""The kernels of word vectors on a GPU update what plain torch updates, with captured graphs and without."""

import math

import numpy as np
import pytest
import torch

from kernels.gpu import DEVICE, HAS_GPU, needs_gpu, needs_kernels
from kernels.test_word_vectors import assert_close, every_pooling, problem, rates_of
from mallang.kernels import gpu_word_vectors, word_vectors
from mallang.kernels.gpu_word_vectors import WORTH_IT, Sorted, fits, gpu_logistic_updates_
from mallang.kernels.word_vectors import Groups, plain_logistic_updates_


def test_sorted_rows_keep_the_order_of_the_groups():
    rows = torch.tensor([[3, -1], [1, 3], [3, 1], [0, 0], [-1, 2]])
    found = Sorted.of(rows, block=2, table_rows=4)
    assert found.rows.tolist() == [1, 3, 3, -1, 0, 0, 1, 3, 2, -1]
    assert found.slots.tolist() == [2, 0, 3, 1, 2, 3, 1, 0, 1, 0]


@needs_kernels
@every_pooling
@pytest.mark.parametrize(("block", "dim", "inputs", "outputs"), [(1, 5, 4, 3), (4, 100, 10, 6), (7, 130, 20, 17)])
def test_a_gpu_updates_as_plain_torch_does(pooling, block, dim, inputs, outputs):
    sizes = {"groups": 17, "inputs": inputs, "outputs": outputs, "dim": dim, "rows": (9, 7)}
    *tables, groups = problem(**sizes, device=DEVICE)
    tables = [table / dim**0.5 for table in tables]
    before, rates = [table.clone() for table in tables], rates_of(groups, block)
    losses = gpu_logistic_updates_(*tables, groups, rates, block, pooling)
    wanted = plain_logistic_updates_(*before, groups, rates, block, pooling)
    assert_close((*tables, losses), [each.cpu().numpy() for each in (*before, wanted)], 1e-4)


@needs_kernels
def test_a_row_that_every_group_of_a_block_names():
    groups = Groups(*(torch.full((50, 3), row, dtype=torch.int32, device=DEVICE) for row in (1, 2)),
                    torch.ones(50, 3, device=DEVICE))  # fmt: skip
    tables = [torch.full((4, 8), 0.1, device=DEVICE) for _ in range(2)]
    gpu_logistic_updates_(*tables, groups, torch.tensor([0.01]), 50, "none")
    added = 0.01 * 0.1 / (1 + math.exp(0.08)) * 50 * 9
    for table, row in zip(tables, (1, 2), strict=True):
        wanted = np.full((4, 8), 0.1)
        wanted[row] += added
        assert_close([table], [wanted])


@needs_gpu
@every_pooling
def test_a_graph_that_is_replayed_gives_what_launches_give(pooling, monkeypatch):
    sizes = {"groups": 3 * WORTH_IT * 4 - 2, "inputs": 10, "outputs": 6, "dim": 100, "rows": (200, 300)}
    results = []
    for limit in (WORTH_IT, 10**9):
        monkeypatch.setattr(gpu_word_vectors, "WORTH_IT", limit)
        *tables, groups = problem(**sizes, device="cuda")
        tables = [table / 10 for table in tables]
        losses = gpu_logistic_updates_(*tables, groups, rates_of(groups, 4) / 10, 4, pooling)
        results.append((*tables, losses))
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


@needs_gpu
def test_a_gpu_has_the_kernels():
    inputs, outputs, groups = problem(device="cuda")
    assert word_vectors.gpu_kernels_work() and fits(inputs, outputs, groups, "none")
    wide = torch.zeros(3, 4096, device="cuda")
    assert not fits(wide, wide, groups, "none")


def test_they_are_for_a_gpu(monkeypatch):
    monkeypatch.setattr(word_vectors, "gpu_kernels_work", lambda: True)
    assert HAS_GPU or not fits(*problem(), "none")
