"""The complexity benchmark at a size that takes no time: counts and paths against what the formulas say."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
import torch

from mallang.kernels.windowed_attention import WORTH
from mallang.layers.convolution import Convolution

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the benchmarks are not installed
from benchmarks import complexity  # noqa: E402

DIM, N = 32, 32


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(complexity, "TOKENS", 128)
        patch.setattr(complexity, "WINDOW", 8)
        threads = torch.get_num_threads()
        costs = {n: complexity.at_length(DIM, n, 1, "cpu") for n in (16, 32, 64)}
        folder = tmp_path_factory.mktemp("out")
        results = complexity.measure(DIM, 64, 1, out=str(folder))
        torch.set_num_threads(threads)
    return costs, results, folder


def test_operations_are_those_of_the_formulas(found):
    d, block = DIM, 2 * max(8, WORTH)
    expected = {
        "recurrence (Elman)": 4 * d * d,
        "recurrence (LSTM)": 16 * d * d,
        "convolution": 2 * complexity.WIDTH * d * d,
        "dilated convolution": 2 * complexity.WIDTH * d * d,
        "self-attention": 8 * d * d + 4 * N * d,
        "self-attention, unfused": 8 * d * d + 4 * N * d,
        "windowed self-attention": 8 * d * d + 4 * block * d,
        "attention alone": 4 * N * d,
    }
    assert {name: cost.flops for name, cost in found[0][N].items()} == expected


def test_attention_alone_costs_what_a_recurrence_costs_where_the_text_is_as_long_as_wide(found):
    results = found[1]
    crossing = results["complexity-cpu-operations-of-attention-alone-and-of-an-elman-recurrence"]
    assert crossing.value == DIM


def test_memory_of_weights_that_are_held_grows_with_the_text(found):
    short, long = found[0][32], found[0][64]
    assert long["self-attention, unfused"].bytes > short["self-attention, unfused"].bytes
    assert long["convolution"].bytes == short["convolution"].bytes == complexity.WIDTH * DIM * 4


@pytest.mark.parametrize("name", ["recurrence (Elman)", "convolution", "self-attention", "windowed self-attention"])
def test_a_path_is_as_long_as_it_takes_to_hear_of_the_first_position(name, monkeypatch):
    monkeypatch.setattr(complexity, "WINDOW", 8)
    torch.manual_seed(1)
    run = complexity.layers(DIM, "cpu")[0][name]
    layers = complexity.path(name, N)
    if "recurrence" in name:
        assert layers == N - 1  # one layer hears of it, after so many steps
        layers = 1

    def hears(layers):
        x = torch.randn(1, N, DIM, requires_grad=True)
        y = x
        for _ in range(layers):
            y = run(y)
        (gradient,) = torch.autograd.grad(y[0, -1].sum(), x)
        return bool(gradient[0, 0].abs().sum() > 0)

    assert hears(layers) and (layers == 1 or not hears(layers - 1))


def test_the_path_of_dilated_convolutions_is_a_logarithm():
    torch.manual_seed(1)
    layers = complexity.path("dilated convolution", N)
    assert layers == math.ceil(math.log(N, complexity.WIDTH)) < complexity.path("convolution", N)
    stack = [
        Convolution(DIM, complexity.WIDTH, causal=True, dilation=complexity.WIDTH**layer) for layer in range(layers)
    ]

    def hears(layers):
        x = torch.randn(1, N, DIM, requires_grad=True)
        y = x
        for layer in layers:
            y = layer(y)
        (gradient,) = torch.autograd.grad(y[0, -1].sum(), x)
        return bool(gradient[0, 0].abs().sum() > 0)

    assert hears(stack) and not hears(stack[:-1])
    own = complexity.layers(DIM, "cpu")[0]["dilated convolution"]
    assert own.dilation == complexity.WIDTH  # the row is that of a layer whose inputs lie apart


def test_everything_is_written(found):
    _, results, folder = found
    assert all(result.value > 0 and result.metric and result.protocol for result in results.values())
    text = (folder / "cpu-32.md").read_text("utf-8")
    assert text.count("| path |") == 8 and "self-attention" in (folder / "cpu-32.svg").read_text("utf-8")


def test_the_page_has_the_numbers_of_the_table():
    docs = ROOT / "docs"
    table = (docs / "complexity" / "cpu-128.md").read_text("utf-8").splitlines()
    page = (docs / "explanation" / "complexity.md").read_text("utf-8")
    rows = [line.split(" | ") for line in table if line.startswith("| ") and "attention alone" not in line][1:]
    assert len(rows) == 24
    for layer, measure, *values in rows:
        name = layer if measure == "time, µs" else "| "  # the first row of a layer names it
        assert f"{name} | {' | '.join([measure, *values])}".replace("|  |", "| |") in page
