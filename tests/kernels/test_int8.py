"""Products in 8-bit integers: each step against its definition, and a trained model against itself."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import mallang
from mallang import recipe as recipes
from mallang.data.batch import Batch
from mallang.data.corpus import open_corpus
from mallang.errors import UserError
from mallang.evaluation.translation import bleu
from mallang.kernels import c_library, c_matmul, int8
from mallang.kernels.int8 import FbgemmMatrix, PlainMatrix, quantize_rows
from mallang.layers import quantization
from mallang.layers.quantization import Int8Linear, quantize
from mallang.models.transformer import SIZES, Config, Transformer
from mallang.text.vocabulary import SPECIALS, Vocabulary
from mallang.training.train import Options, train

sizes = st.integers(1, 40)


def integers(rows: int, columns: int, seed: int) -> Tensor:
    random = np.random.default_rng(seed)
    return torch.from_numpy(random.integers(-127, 128, (rows, columns), dtype=np.int8))


def product_by_hand(left: Tensor, right: Tensor) -> list[list[int]]:
    """Python's integers, which know no overflow."""
    columns = list(zip(*right.tolist(), strict=True))
    return [[sum(x * y for x, y in zip(row, column, strict=True)) for column in columns] for row in left.tolist()]


@given(rows=sizes, columns=sizes, seed=st.integers(0, 2**32), power=st.floats(-20, 20))
def test_rows_are_rounded_to_the_nearest_integer_of_their_own_scale(
    rows: int, columns: int, seed: int, power: float
) -> None:
    random = np.random.default_rng(seed)
    x = torch.from_numpy(random.standard_normal((rows, columns)) * 10**power).float()
    x[0] = 0.0
    found, scale = quantize_rows(x)
    assert found[0].tolist() == [0] * columns
    assert bool((found[1:].abs().amax(dim=1) == 127).all())
    error = (found.double() * scale.double() - x.double()).abs()
    assert bool((error <= scale.double() * (0.5 + 1e-4)).all())


KERNELS = {"native": c_matmul.Int8Matrix, "packed": FbgemmMatrix, "plain": PlainMatrix}


@pytest.fixture(params=KERNELS)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Layers by each of the kernels."""
    missing = {"native": c_library.library() is None, "packed": not int8.is_fbgemm_exact()}
    if missing.get(request.param):
        pytest.skip("this machine has no such kernel")
    monkeypatch.setattr(quantization, "matrix_class", lambda inputs: KERNELS[request.param])
    return str(request.param)


def test_the_fastest_kernel_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MALLANG_KERNELS", raising=False)
    monkeypatch.setattr(c_library, "library", lambda: "there")
    assert int8.matrix_class(8) is c_matmul.Int8Matrix
    assert int8.matrix_class(2**16) is PlainMatrix
    monkeypatch.setattr(c_library, "library", lambda: None)
    for exact, wanted in ((True, FbgemmMatrix), (False, PlainMatrix)):
        monkeypatch.setattr(int8, "is_fbgemm_exact", lambda exact=exact: exact)
        assert int8.matrix_class(8) is wanted


@settings(max_examples=30)
@given(rows=sizes, inner=sizes, columns=sizes, seed=st.integers(0, 2**32))
def test_the_plain_product_is_exact(rows: int, inner: int, columns: int, seed: int) -> None:
    left, right = integers(rows, inner, seed), integers(columns, inner, seed + 1)
    left[:, 0] = 127  # so that a row is its own integers
    found = PlainMatrix(right, torch.ones(columns)).multiply(left.float())
    assert found.round().tolist() == product_by_hand(left, right.t())


@settings(max_examples=30)
@given(rows=sizes, inner=sizes, columns=sizes, seed=st.integers(0, 2**32))
def test_the_packed_product_is_exact(rows: int, inner: int, columns: int, seed: int) -> None:
    if not int8.is_fbgemm_exact():
        pytest.skip("this machine has no such kernel")
    left, right = integers(rows, inner, seed), integers(columns, inner, seed + 1)
    found = FbgemmMatrix(right, torch.ones(columns)).scaled(left / 127, 1 / 127)
    assert (127 * found).round().tolist() == product_by_hand(left, right.t())


@pytest.mark.parametrize("fault", ["overflow", "missing"])
def test_a_packed_kernel_that_is_wrong_or_missing_is_not_used(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    def broken(self: FbgemmMatrix, x: Tensor, scale: float) -> Tensor:
        if fault == "missing":
            raise RuntimeError("no such kernel")
        return torch.full((len(x), 32), (2.0**15 - 1) / 127)

    monkeypatch.setattr(FbgemmMatrix, "scaled", broken)
    monkeypatch.setattr(c_library, "library", lambda: None)
    int8.is_fbgemm_exact.cache_clear()
    try:
        assert not int8.is_fbgemm_exact()
        assert isinstance(Int8Linear(torch.randn(5, 4)).matrix, PlainMatrix)
    finally:
        int8.is_fbgemm_exact.cache_clear()


@pytest.mark.usefixtures("kernel")
def test_a_copy_has_fp8_alike() -> None:
    layer, x = Int8Linear(torch.randn(30, 20), torch.randn(30)), torch.randn(7, 20)
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("has_bias", [True, False])
def test_a_layer_is_the_formula(has_bias: bool) -> None:
    torch.manual_seed(1)
    linear, x = nn.Linear(24, 10, bias=has_bias), torch.randn(2, 3, 24)
    found = Int8Linear(linear.weight, linear.bias)(x)
    (left, row_scale), (right, scale) = quantize_rows(x.flatten(0, 1)), quantize_rows(linear.weight.detach())
    bias = linear.bias.tolist() if has_bias else [0.0] * 10
    expected = [
        [total * row * column + b for total, column, b in zip(totals, scale[:, 0].tolist(), bias, strict=True)]
        for totals, row in zip(product_by_hand(left, right.t()), row_scale[:, 0].tolist(), strict=True)
    ]
    torch.testing.assert_close(found.flatten(0, 1), torch.tensor(expected), atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(found, linear(x), atol=0.03, rtol=0.03)


@pytest.mark.usefixtures("kernel")
def test_a_row_does_not_depend_on_its_neighbors() -> None:
    torch.manual_seed(1)
    layer, x = Int8Linear(torch.randn(30, 20), torch.randn(30)), torch.randn(7, 20)
    x[3], x[4] = 1000 * x[3], 0.0
    assert torch.equal(layer(x)[4], layer.bias)
    torch.testing.assert_close(layer(x), torch.cat([layer(row[None]) for row in x]), rtol=1e-6, atol=1e-5)
    assert layer(x[:0]).shape == (0, 30)


@pytest.mark.usefixtures("kernel")
def test_a_bias_may_lie_anywhere() -> None:
    apart = torch.arange(8.0)[::2]
    layer = Int8Linear(torch.randn(4, 4), apart)
    assert torch.equal(layer(torch.zeros(1, 4))[0], apart)


@pytest.mark.usefixtures("kernel")
def test_what_is_no_number_stays_none() -> None:
    layer, x = Int8Linear(torch.randn(5, 4)), torch.randn(3, 4)
    x[0, 1], x[1, 2] = torch.nan, torch.inf
    assert layer(x).isfinite().any(dim=1).tolist() == [False, False, True]


def tiny(share: str) -> Transformer:
    torch.manual_seed(1)
    vocabulary = Vocabulary((*SPECIALS, *(chr(97 + i) for i in range(20))))
    return Transformer(Config(**SIZES["tiny"], tie_weights=share), vocabulary, vocabulary).eval()


@pytest.mark.parametrize("share", ["all", "target", "none"])
def test_every_linear_map_and_the_head_are_replaced(share: str) -> None:
    model, plain = tiny(share), tiny(share)
    count = sum(isinstance(part, nn.Linear) for part in model.modules()) + (share != "none")
    table = model.embedding.table.weight
    changed = quantize(model)
    assert changed is model
    assert not any(isinstance(part, nn.Linear) for part in model.modules())
    assert sum(isinstance(part, Int8Linear) for part in model.modules()) == count
    assert isinstance(model.head, Int8Linear)
    assert model.embedding.table.weight is table
    batch = Batch(
        tokens=torch.tensor([[2, 5, 6]]), lengths=torch.tensor([3]),
        source=torch.tensor([[7, 8, 9, 3]]), source_lengths=torch.tensor([4]),
    )  # fmt: skip
    expected, found = (each.output(each(batch)) for each in (plain, changed))
    assert not torch.equal(found, expected)
    torch.testing.assert_close(found, expected, atol=0.1, rtol=0.0)


def test_a_model_elsewhere_is_refused() -> None:
    with pytest.raises(UserError, match="CPU"):
        quantize(tiny("all").to("meta"))


@pytest.mark.slow
def test_a_trained_model_translates_nearly_as_well(tmp_path: Path) -> None:
    overrides = ["model.dim=64", "train.steps=400", "train.validate_every=400", "schedule.warmup=50"]
    run = train(recipes.read("transformer-miniworld", overrides).build(), Options(folder=tmp_path / "run", quiet=True))
    rows = [
        (source, target)
        for source, target in islice(open_corpus(run.recipe().data, ("source", "target")).split("valid"), 200)
    ]
    sources = [source for source, _ in rows]
    outputs = {
        weights: [str(each) for each in mallang.load(run.folder, "cpu", weights).translate(sources)]
        for weights in ("float32", "int8")
    }
    scores = {name: bleu(texts, [target for _, target in rows]).value for name, texts in outputs.items()}
    same = sum(x == y for x, y in zip(outputs["float32"], outputs["int8"], strict=True)) / len(rows)
    assert scores["float32"] > 20
    assert scores["int8"] > scores["float32"] - 1.5
    assert same > 0.8


@pytest.mark.usefixtures("kernel")
def test_a_single_row_that_holds_no_number_gives_none() -> None:
    layer = Int8Linear(torch.randn(5, 8), torch.randn(5))
    for wrong in (float("nan"), float("inf")):
        x = torch.randn(1, 8)
        x[0, 3] = wrong
        assert not layer(x).isfinite().any()
    assert torch.equal(layer(torch.zeros(1, 8))[0], layer.bias)


def test_layers_packed_side_by_side_leave_torch_as_it_was() -> None:
    if not int8.is_fbgemm_exact():
        pytest.skip("this machine has no such kernel")
    before, x = torch.backends.quantized.engine, torch.randn(4, 16)
    matrix, scale = quantize_rows(torch.randn(16, 16))
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: FbgemmMatrix(matrix, scale.flatten()), range(200)))
    assert torch.backends.quantized.engine == before
    assert all(torch.equal(one.multiply(x), made[0].multiply(x)) for one in made[1:])
