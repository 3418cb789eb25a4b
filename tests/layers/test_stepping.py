import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from mallang.kernels.recurrent import gru_cell, lstm_cell
from mallang.kernels.repeated_matmul import RepeatedMatmul, repeated
from mallang.layers.quantization import quantize

TINY = settings(deadline=None, max_examples=10)


@TINY
@given(seed=st.integers(0, 1000), rows=st.integers(1, 4), dim=st.integers(1, 6))
def test_cells_are_those_of_torch(seed, rows, dim):
    torch.manual_seed(seed)
    gru, lstm = nn.GRUCell(3, dim).double(), nn.LSTMCell(3, dim).double()
    x, state, cell = (torch.randn(rows, size, dtype=torch.float64) for size in (3, dim, dim))
    gates = [x @ gru.weight_ih.T + gru.bias_ih, state @ gru.weight_hh.T + gru.bias_hh]
    torch.testing.assert_close(gru_cell(*gates, state), gru(x, state))
    gates = [x @ lstm.weight_ih.T + lstm.bias_ih, state @ lstm.weight_hh.T + lstm.bias_hh]
    torch.testing.assert_close(lstm_cell(*gates, cell), lstm(x, (state, cell)))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("cell", [gru_cell, lstm_cell])
def test_a_fused_cell_equals_the_formula_with_its_gradients(cell):
    torch.manual_seed(1)
    gates = 3 if cell is gru_cell else 4
    joined, other, state = torch.randn(5, gates * 8 + 3), torch.randn(5, gates * 8), torch.randn(5, 8)
    results = []
    for device in ("cpu", "cuda"):
        given_ = [tensor.to(device, copy=True).requires_grad_() for tensor in (joined, other, state)]
        found = cell(given_[0][:, 3:], given_[1], given_[2])  # a part of a wider product, as in a model
        found = [found] if isinstance(found, torch.Tensor) else list(found)
        sum(part.square().sum() for part in found).backward()
        results.append([part.cpu() for part in (*found, *(tensor.grad for tensor in given_))])
    for left, right in zip(*results, strict=True):
        torch.testing.assert_close(left, right, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_gradients_have_the_type_and_the_strides_of_their_weights(precision):
    maps = [nn.Linear(4, 4), nn.Linear(4, 3)]
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == torch.bfloat16):
        total = unrolled(maps, repeated, torch.ones(2, 4))
    weights = [p for each in maps for p in each.parameters()]
    for weight, gradient in zip(weights, torch.autograd.grad(total, weights), strict=True):
        assert (gradient.dtype, gradient.stride()) == (weight.dtype, weight.stride())


def unrolled(maps, many, state):
    """A loop in which two maps of the state make the next one."""
    project, total = many(*maps), 0.0
    for _ in range(4):
        new, looked = project(state)
        state, total = new.tanh(), total + looked.square().sum()
    return total + state.sum()


def one_by_one(*maps):
    return lambda x: tuple(each(x) for each in maps)


def some_maps(bias=True):
    torch.manual_seed(1)
    return nn.Linear(4, 4, bias=bias).double(), nn.Linear(4, 3, bias=False).double()


@pytest.mark.parametrize("bias", [True, False])
def test_repeated_maps_have_the_gradients_of_plain_ones(bias):
    results = []
    for many in (one_by_one, repeated):
        maps, state = some_maps(bias), torch.linspace(-1, 1, 8, dtype=torch.float64).view(2, 4).requires_grad_()
        total = unrolled(maps, many, state)
        total.backward()
        results.append([total, state.grad, *(p.grad for each in maps for p in each.parameters())])
    for left, right in zip(*results, strict=True):
        torch.testing.assert_close(left, right)


class Products(TorchDispatchMode):
    """Counts matmuls."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += "mm" in str(function)
        return function(*args, **(kwargs or {}))


def test_the_gradient_of_a_weight_is_one_product_however_many_steps():
    counts = {}
    for many in (one_by_one, repeated):
        with Products() as products:
            unrolled(some_maps(), many, torch.ones(2, 4, dtype=torch.float64, requires_grad=True)).backward()
        counts[many] = products.count
    assert counts[one_by_one] == 2 * 4 * 3  # two maps, four steps: forward, its input's gradient, its weight's
    assert counts[repeated] == 4 * 2 + 1


def test_a_product_for_each_sentence_has_its_gradient():
    torch.manual_seed(1)
    values, x = (torch.randn(2, *shape, dtype=torch.float64) for shape in ((5, 3), (1, 5)))
    found = []
    for deferred in (True, False):
        matrix = values.clone().requires_grad_()
        multiply = RepeatedMatmul(matrix) if deferred else matrix.__rmatmul__
        (multiply(x) + multiply(2 * x).tanh()).square().sum().backward()
        found.append(matrix.grad)
    torch.testing.assert_close(*found)


def test_a_step_whose_output_nobody_uses_adds_nothing():
    matrix = torch.eye(2, dtype=torch.float64, requires_grad=True)
    product = RepeatedMatmul(matrix)
    product(torch.ones(1, 2, dtype=torch.float64))
    product(torch.full((1, 2), 3.0, dtype=torch.float64)).sum().backward()
    assert matrix.grad.tolist() == [[3, 3], [3, 3]]


def test_gradients_in_bfloat16_go_to_weights_in_float32():
    linear, state = nn.Linear(4, 4), torch.ones(2, 4)
    with torch.autocast("cpu", torch.bfloat16):
        project = repeated(linear)
        for _ in range(2):
            (state,) = project(state)
    assert state.dtype == torch.bfloat16
    state.float().sum().backward()
    assert linear.weight.grad.dtype == torch.float32 and linear.weight.grad.abs().sum() > 0


def test_maps_in_8_bit_integers_run_as_they_are():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(32, 32))
    x = torch.randn(2, 32)
    exact = model(x)
    quantize(model)
    (found,) = repeated(model[0])(x)
    assert torch.equal(found, model(x))
    torch.testing.assert_close(found, exact, atol=0.05, rtol=0.05)
