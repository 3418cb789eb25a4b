"""Fitting keeps what an update reads, takes the fewest pieces that fit, and is remembered."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mallang import recipe as recipes
from mallang.data.batch import Shapes
from mallang.errors import UserError
from mallang.training.fit import Trial, fitted, largest, restored
from mallang.training.materials import prepare_data
from mallang.training.options import Config
from mallang.training.train import check_device

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@given(st.integers(1, 10_000), st.integers(1, 8), st.integers(1, 20_000), st.integers(1, 300))
def test_the_fewest_pieces_that_fit(tokens, accumulation, memory, longest):
    config = Config(batch_tokens=tokens, gradient_accumulation=accumulation, auto_micro_batch=True)
    tried = []

    def fits(size):
        tried.append(size)
        return size <= memory

    total = tokens * accumulation
    sizes = [size for k in range(20) if (size := math.ceil(total / 2**k)) >= longest]
    if not any(size <= memory for size in sizes):
        with pytest.raises(UserError, match="longest example"):
            fitted(config, fits, longest)
        return
    found = fitted(config, fits, longest)
    assert longest <= found.batch_tokens <= memory and not found.auto_micro_batch
    assert total <= found.batch_tokens * found.gradient_accumulation < total + found.gradient_accumulation
    assert all(size > memory for size in tried[:-1]), "the first that fits is taken"
    assert restored(config, {"batch_tokens": found.batch_tokens, "accumulation": found.gradient_accumulation}) == found


@pytest.fixture(scope="module")
def materials():
    return prepare_data(recipes.read("transformer-miniworld", []).build(), None)


def test_the_largest_batches_are_tried(materials):
    batches = largest(materials.task, materials.train, 512, None)
    shapes = Shapes(512)
    plan = materials.task.plan(materials.train, tokens=512, multiple=shapes.multiple, seed=3, epoch=2)
    examples = materials.task.examples(materials.train, 3, 2)
    most = max(batch.tokens.numel() + batch.source.numel() for batch in batches)
    for place in range(0, len(plan), 7):
        rows = [tuple(examples[i] for i in row) for row in plan[place]]
        batch = shapes.fill(materials.task.prepare(rows, np.random.default_rng(0)))
        assert batch.tokens.numel() + batch.source.numel() <= 1.1 * most


@pytest.mark.parametrize("layout", ["order=shuffled", "layout=packed"])
def test_windows_are_all_alike(layout):
    changes = ["task.layout=stream", "task.context=16", f"task.{layout}"]
    materials = prepare_data(recipes.read("gpt-miniworld", changes).build(), None)
    (batch,) = largest(materials.task, materials.train, 128, None)
    assert batch.tokens.shape == (8, 16)


@pytest.mark.parametrize("change", ["decoding.max_ratio=1.0", "decoding.coverage=0.2"])
def test_what_needs_a_source_is_refused_where_there_is_none(change):
    changes = ["decoding.method=beam", change]
    with pytest.raises(UserError, match=f"{change.partition('=')[0]} = .* language_modeling has no source"):
        prepare_data(recipes.read("gpt-miniworld", changes).build(), None)


def test_a_cpu_has_nothing_to_fit():
    with pytest.raises(UserError, match="trains on a CPU"):
        check_device(Config(auto_micro_batch=True), torch.device("cpu"))
    with pytest.raises(UserError, match="needs a GPU"):
        check_device(Config(engine="cuda-graphs"), torch.device("cpu"))
    check_device(Config(auto_micro_batch=True), torch.device("cuda"))


@needs_gpu
def test_what_does_not_fit_is_told(materials):
    recipe = recipes.read("transformer-miniworld", []).build()
    from mallang.models import transformer

    model = materials.task.build(transformer, recipe.model).cuda()
    trial = Trial(materials.task, model, materials.train, Config(auto_micro_batch=True), torch.device("cuda"))
    assert trial.fits(4096)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    hog = torch.empty(int(0.95 * torch.cuda.mem_get_info()[0]), dtype=torch.uint8, device="cuda")
    assert not trial.fits(4096)
    del hog
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert all(parameter.grad is None for parameter in model.parameters())
