"""Packed weights give the same products; they are used in a search alone, and never after their weight has changed."""

from __future__ import annotations

import copy
import math
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from mallang.kernels import c_library, c_matmul, linear, prepacked
from mallang.kernels.prepacked import CURRENT, MANY, PREPACK_AT, SHARED, PrepackedWeights, can_prepack
from mallang.layers.feedforward import FeedForward
from mallang.layers.head import Projection
from mallang.layers.linear import Linear
from mallang.layers.quantization import Int8Linear, quantize

needs_kernels = pytest.mark.skipif(c_library.library() is None, reason="no compiler, or not such a processor")
seeds = st.integers(0, 2**32 - 1)


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the size, one thread or two."""
    monkeypatch.setattr(c_library, "threads", lambda multiplications: request.param)


@pytest.fixture(autouse=True)
def of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small weights are prepacked, too, and on any processor."""
    monkeypatch.setattr(prepacked, "LEAST", 1)
    for module in (linear, prepacked):
        monkeypatch.setattr(module, "beats_torch", lambda: True)


@pytest.fixture
def searching() -> Iterator[PrepackedWeights]:
    """A search that this thread is at."""
    packs = PrepackedWeights()
    with torch.inference_mode(), packs.in_use():
        yield packs


def meet(layer: nn.Module, x: Tensor) -> Tensor:
    """What the layer gives once its weights are packed, if they ever are."""
    return [layer(x) for _ in range(PREPACK_AT)][-1]


# ---- the kernel ----


@needs_kernels
@pytest.mark.usefixtures("threads")
@settings(max_examples=100, deadline=None)
@given(
    rows=st.integers(0, 20), inputs=st.integers(0, 150), outputs=st.integers(1, 200), seed=seeds, has_bias=st.booleans()
)
def test_the_product_is_torchs(rows: int, inputs: int, outputs: int, seed: int, has_bias: bool) -> None:
    torch.manual_seed(seed)
    x, weight = torch.randn(rows, inputs), torch.randn(outputs, inputs)
    bias = torch.randn(outputs) if has_bias else None
    wanted = F.linear(x.double(), weight.double(), None if bias is None else bias.double()).float()
    torch.testing.assert_close(c_matmul.FloatMatrix(weight).multiply(x, bias), wanted, rtol=1e-5, atol=1e-4)


@needs_kernels
@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize(("inputs", "outputs"), [(256, 768), (1024, 256), (256, 8000), (4099, 65)])
def test_large_products_too(inputs: int, outputs: int) -> None:
    torch.manual_seed(1)
    x, weight, bias = torch.randn(160, inputs), torch.randn(outputs, inputs), torch.randn(outputs)
    wanted = F.linear(x.double(), weight.double(), bias.double()).float()
    torch.testing.assert_close(c_matmul.FloatMatrix(weight).multiply(x, bias), wanted, rtol=1e-5, atol=1e-3)


@needs_kernels
def test_a_row_is_the_same_bit_by_bit_among_any_others() -> None:
    torch.manual_seed(1)
    matrix, x = c_matmul.FloatMatrix(torch.randn(70, 33)), torch.randn(13, 33)
    for count in range(1, 14):
        assert torch.equal(matrix.multiply(x)[:count], matrix.multiply(x[:count]))


@needs_kernels
@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", ["x", "weight", "bias"])
def test_what_is_no_number_goes_where_torch_has_it(wrong: float, place: str) -> None:
    torch.manual_seed(1)
    given = {"x": torch.randn(7, 33), "weight": torch.randn(70, 33), "bias": torch.randn(70)}
    given[place].view(-1)[40] = wrong
    given["x"][0] = 0.0  # 0 · ∞ is no number
    found = c_matmul.FloatMatrix(given["weight"]).multiply(given["x"], given["bias"])
    torch.testing.assert_close(
        found,
        F.linear(**dict(zip(("input", "weight", "bias"), given.values(), strict=True))),
        equal_nan=True,
        rtol=1e-5,
        atol=1e-4,
    )


@needs_kernels
def test_what_lies_otherwise_in_memory() -> None:
    torch.manual_seed(1)
    x, weight, bias = torch.randn(40, 2, 9).transpose(0, 2), torch.randn(40, 30).T, torch.randn(60)[::2]
    found = c_matmul.FloatMatrix(weight).multiply(x, bias)
    assert found.shape == (9, 2, 30)
    torch.testing.assert_close(found, F.linear(x, weight, bias))
    torch.testing.assert_close(c_matmul.FloatMatrix(weight).multiply(x[0, 0]), F.linear(x[0, 0], weight))


@needs_kernels
@pytest.mark.parametrize("x", [torch.randn(3, 4), torch.empty(3, 5, device="meta")])
def test_what_does_not_fit_is_refused(x: Tensor) -> None:
    with pytest.raises(ValueError, match="for a matrix of float32 of 5"):
        c_matmul.FloatMatrix(torch.randn(7, 5)).multiply(x)


GUARDED = """
import ctypes, mmap, sys, torch
from mallang.kernels import c_library, c_matmul

page, kept, checked = mmap.PAGESIZE, [], []


def fenced(*shape):
    # Memory right before a page that nobody may touch, and right after another.
    size = 4 * torch.Size(shape).numel()
    whole = -(-size // page) * page
    memory = mmap.mmap(-1, whole + 2 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for wall in (start, start + page + whole):
        assert ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(wall), page, 0) == 0
    kept.append(memory)
    numbers = (ctypes.c_char * size).from_address(start + page + whole - size)
    return torch.frombuffer(numbers, dtype=torch.float32).view(shape)


for rows, inputs, outputs in ((1, 1, 1), (5, 3, 65), (6, 17, 64), (7, 16, 63), (13, 33, 130), (2, 31, 15)):
    x, turned_x, bias, y = fenced(rows, inputs), fenced(inputs, rows), fenced(outputs), fenced(rows, outputs)
    weight, turned, panels = fenced(outputs, inputs), fenced(inputs, outputs), fenced(-(-outputs // 64) * 64 * inputs)
    for each in (x, weight, bias):
        each.normal_()
    turned.copy_(weight.T), turned_x.copy_(x.T)
    for matrix in (c_matmul.FloatMatrix(weight), c_matmul.FloatMatrix(turned.T)):
        panels.copy_(matrix.prepacked)
        matrix.prepacked = panels
        for shift in (bias, None):
            wanted = torch.nn.functional.linear(x, weight, shift)
            torch.testing.assert_close(matrix.put(x, shift, 0, y), wanted, rtol=1e-5, atol=1e-4)
        matrix.add_transposed_(y, turned_x)
        torch.testing.assert_close(y, 2 * wanted, rtol=1e-5, atol=1e-4)
    given = weight.data_ptr(), outputs, inputs, inputs, 1
    c_library.library().prepack(*given, panels.zero_().data_ptr(), 1)
    assert torch.equal(panels, c_matmul.FloatMatrix(weight).prepacked)
"""


@needs_kernels
def test_nothing_is_touched_behind_the_numbers() -> None:
    done = subprocess.run([sys.executable, "-c", GUARDED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# ---- in a search ----


@needs_kernels
@pytest.mark.parametrize("shape", [(6, 1, 5), (2, 3, 5), (6, 5), (5,)])
@pytest.mark.parametrize("bias", [True, False])
def test_a_weight_is_prepacked_when_used_again(searching: PrepackedWeights, shape: tuple[int, ...], bias: bool) -> None:
    layer, x = learnable(Linear, 5, 7, bias=bias), torch.randn(shape)
    wanted = F.linear(x, layer.weight, layer.bias)
    for meeting in range(1, 4):
        torch.testing.assert_close(layer(x), wanted)
        assert len(searching.held) == (meeting >= PREPACK_AT)


@needs_kernels
def test_many_rows_pay_for_packing_at_once(searching: PrepackedWeights) -> None:
    layer, x = learnable(Linear, 5, 7), torch.randn(2, MANY // 2, 5)
    torch.testing.assert_close(layer(x), F.linear(x, layer.weight, layer.bias))
    assert len(searching.held) == 1
    other = learnable(Linear, 5, 7)
    other(x[:, 1:])
    assert len(searching.held) == 1


def learnable(kind: type[nn.Module], *sizes: int, **more: bool) -> nn.Module:
    """A layer as it is made outside of a search."""
    with torch.inference_mode(False):
        return kind(*sizes, **more)


@needs_kernels
def test_layers_of_models_use_them(searching: PrepackedWeights) -> None:
    x = torch.randn(6, 8)
    feed, head = learnable(FeedForward, 8, 16), learnable(Projection, 8, 11, bias=True)
    CURRENT.weights = None
    wanted = feed(x), head(x)
    CURRENT.weights = searching
    torch.testing.assert_close((meet(feed, x), meet(head, x)), wanted)
    assert len(searching.held) == 3


@needs_kernels
def test_a_changed_weight_is_packed_again(searching: PrepackedWeights) -> None:
    layer, x = learnable(Linear, 5, 7), torch.randn(6, 5)
    meet(layer, x)
    for change in (lambda: layer.weight.mul_(2), lambda: setattr(layer.weight, "data", torch.ones(7, 5))):
        with torch.inference_mode(False), torch.no_grad():
            change()
        torch.testing.assert_close(layer(x), F.linear(x, layer.weight, layer.bias))


@needs_kernels
def test_the_next_search_sees_weights_that_have_changed() -> None:
    layer, x = Linear(5, 7), torch.randn(6, 5)
    for _ in range(3):
        with torch.inference_mode(), PrepackedWeights().in_use():
            torch.testing.assert_close(meet(layer, x), F.linear(x, layer.weight, layer.bias))
        layer.weight.data.mul_(2)  # which torch does not count
        assert id(layer.weight) not in SHARED


@needs_kernels
def test_outside_of_a_search_and_with_gradients_nothing_changes() -> None:
    layer, x, packs = Linear(5, 7), torch.randn(6, 5), PrepackedWeights()
    with torch.no_grad():
        assert torch.equal(meet(layer, x), F.linear(x, layer.weight, layer.bias))
    with packs.in_use():
        meet(layer, x).sum().backward()
    assert layer.weight.grad is not None
    assert getattr(CURRENT, "weights", None) is None
    assert not packs.held


@needs_kernels
def test_what_is_not_for_the_kernel_goes_to_torch(searching: PrepackedWeights) -> None:
    layer, x = learnable(Linear, 5, 7), torch.randn(6, 5)
    doubled, normed = learnable(Linear, 5, 7).double(), learnable(Linear, 5, 7)
    with torch.inference_mode(False):
        weight_norm(normed)  # its weight is another at every step
    assert meet(doubled, x.double()).dtype == torch.float64
    torch.testing.assert_close(meet(normed, x), F.linear(x, normed.weight, normed.bias))
    torch.testing.assert_close(meet(Linear(5, 7), x).shape, torch.Size([6, 7]))  # made in inference mode
    assert meet(layer, x[:0]).shape == (0, 7)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert meet(layer, x).dtype == torch.bfloat16
    assert not searching.held


@needs_kernels
@pytest.mark.usefixtures("searching")
def test_shapes_that_do_not_fit_are_left_to_torch() -> None:
    layer, x = learnable(Linear, 5, 7), torch.randn(6, 5)
    with torch.inference_mode(False):
        one = nn.Parameter(torch.ones(1))
    assert can_prepack(x, layer.weight, layer.bias)
    assert not can_prepack(x, layer.weight, one)
    assert not can_prepack(x[:, 1:], layer.weight, layer.bias)


COMPILED = """
import torch
from mallang.kernels.prepacked import PrepackedWeights
from mallang.layers.linear import Linear

layer, x, packs = Linear(5, 7), torch.randn(6, 5), PrepackedWeights()
compiled = torch.compile(layer, backend="eager", fullgraph=True)
with torch.no_grad(), packs.in_use():
    for _ in range(3):
        torch.testing.assert_close(compiled(x), torch.nn.functional.linear(x, layer.weight, layer.bias))
assert not packs.held
"""


def test_compiled_code_goes_another_way() -> None:
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@needs_kernels
def test_a_large_model_is_prepacked_in_part(searching: PrepackedWeights, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepacked, "MOST", 50)
    layers, x = [learnable(Linear, 5, 7) for _ in range(3)], torch.randn(6, 5)
    for layer in layers:
        torch.testing.assert_close(meet(layer, x), F.linear(x, layer.weight, layer.bias))
    assert list(searching.held) == [id(layers[0].weight)]


@needs_kernels
def test_a_small_weight_is_not_packed(searching: PrepackedWeights, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepacked, "LEAST", 36)
    layer, x = learnable(Linear, 5, 7), torch.randn(6, 5)
    assert torch.equal(meet(layer, x), F.linear(x, layer.weight, layer.bias))
    assert not searching.held


@needs_kernels
def test_searches_side_by_side_share_packs() -> None:
    layer, x = Linear(64, 300), torch.randn(20, 64)
    wanted, together = F.linear(x, layer.weight, layer.bias).detach(), threading.Barrier(2)

    def search(_: int) -> c_matmul.FloatMatrix:
        packs = PrepackedWeights()
        with torch.inference_mode(), packs.in_use():
            for _ in range(20):
                torch.testing.assert_close(layer(x), wanted)
            together.wait(timeout=60)
        return packs.held[id(layer.weight)].matrix

    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(search, range(2))
    assert one is other
    assert getattr(CURRENT, "weights", None) is None


@needs_kernels
def test_a_search_within_a_search_gives_its_packs_back(searching: PrepackedWeights) -> None:
    with PrepackedWeights().in_use():
        assert CURRENT.weights is not searching
    assert CURRENT.weights is searching


def test_without_kernels_nothing_changes(searching: PrepackedWeights, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c_library, "library", lambda: None)
    layer, x = learnable(Linear, 5, 7), torch.randn(6, 5)
    assert torch.equal(meet(layer, x), F.linear(x, layer.weight, layer.bias))
    assert not searching.held


def test_it_is_a_linear_map_like_any_other() -> None:
    layer = Linear(5, 7)
    plain = nn.Linear(5, 7)
    plain.load_state_dict(layer.state_dict())
    x = torch.randn(6, 5)
    assert torch.equal(copy.deepcopy(layer)(x), plain(x))
    assert repr(layer) == repr(plain)
    assert isinstance(quantize(nn.Sequential(layer))[0], Int8Linear)


# ---- in training ----


@pytest.fixture
def of_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small products are ours, too."""
    monkeypatch.setattr(linear, "FEW", 1)
    monkeypatch.setattr(linear, "LARGE", 1)


def twins(inputs: int, outputs: int, has_bias: bool = True) -> tuple[Linear, nn.Linear]:
    """A layer of ours and one of torch's with the same weights."""
    ours, theirs = Linear(inputs, outputs, has_bias), nn.Linear(inputs, outputs, has_bias)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def trained(layer: nn.Module, x: Tensor, gradient: Tensor) -> list[Tensor]:
    """What a layer gives, and the gradients of its input and of its parameters."""
    given = x.clone().requires_grad_()
    found = layer(given)
    parameters = [given, *layer.parameters()]
    return [found.detach(), *torch.autograd.grad(found, parameters, gradient)]


@needs_kernels
@pytest.mark.usefixtures("threads", "of_few_rows")
@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 40), inputs=st.integers(1, 140), outputs=st.integers(1, 140), seed=seeds, has_bias=st.booleans()
)
def test_gradients_are_torchs(rows: int, inputs: int, outputs: int, seed: int, has_bias: bool) -> None:
    torch.manual_seed(seed)
    ours, theirs = twins(inputs, outputs, has_bias)
    x, gradient = torch.randn(2, rows, inputs), torch.randn(2, rows, outputs)
    assert "TrainingLinear" in type(ours(x).grad_fn).__name__
    for found, wanted in zip(trained(ours, x, gradient), trained(theirs, x, gradient), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


@needs_kernels
@pytest.mark.usefixtures("of_few_rows")
def test_gradients_of_what_lies_otherwise_in_memory() -> None:
    ours, theirs = twins(6, 9)
    x = torch.randn(6, 20).T
    for gradient in (torch.randn(9, 20).T, torch.ones(1, 1).expand(20, 9), torch.randn(20, 18)[:, ::2]):
        for found, wanted in zip(trained(ours, x, gradient), trained(theirs, x, gradient), strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@needs_kernels
@pytest.mark.usefixtures("of_few_rows")
def test_only_the_gradients_that_are_asked_for() -> None:
    layer, x = Linear(6, 9), torch.randn(20, 6)
    (slope,) = torch.autograd.grad(layer(x).sum(), layer.weight)
    torch.testing.assert_close(slope, x.sum(dim=0).expand(9, 6), rtol=1e-4, atol=1e-5)
    layer.requires_grad_(False)
    found = layer(given := x.clone().requires_grad_())
    assert "TrainingLinear" in type(found.grad_fn).__name__
    (slope,) = torch.autograd.grad(found.sum(), given)
    torch.testing.assert_close(slope, layer.weight.sum(dim=0).expand(20, 6), rtol=1e-4, atol=1e-5)


def test_small_products_and_other_numbers_are_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = Linear(6, 9), torch.randn(20, 6)
    assert "TrainingLinear" not in type(layer(x).grad_fn).__name__
    monkeypatch.setattr(linear, "FEW", 1)
    monkeypatch.setattr(linear, "LARGE", 1)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
    assert layer.double()(x.double()).dtype == torch.float64
    plain = Linear(6, 9)
    torch.testing.assert_close(torch.func.vmap(plain)(x), F.linear(x, plain.weight, plain.bias))
    assert torch.equal(layer(x.double()), F.linear(x.double(), layer.weight, layer.bias))
    plain.bias = nn.Parameter(plain.bias.double())
    with pytest.raises(RuntimeError, match="dtype"):
        plain(x)


@needs_kernels
def test_a_sum_goes_on_from_what_is_there() -> None:
    left, right, total = torch.randn(30, 9), torch.randn(30, 70), torch.randn(9, 70)
    wanted = total + left.T @ right
    c_matmul.FloatMatrix(right.T).add_transposed_(total, left)
    torch.testing.assert_close(total, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("processor", "ours"), [("vendor_id\t: GenuineIntel", False), ("vendor_id\t: AuthenticAMD", True)]
)
def test_on_processors_of_intel_torch_multiplies(processor: str, ours: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c_library, "processor", lambda: processor)
    assert c_matmul.beats_torch.__wrapped__() is ours


@needs_kernels
def test_where_torch_is_faster_nothing_is_prepacked(
    searching: PrepackedWeights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepacked, "beats_torch", lambda: False)
    layer, x = learnable(Linear, 5, 7), torch.randn(6, 5)
    torch.testing.assert_close(meet(layer, x), F.linear(x, layer.weight, layer.bias))
    assert not searching.held
