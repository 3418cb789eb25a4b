"""Recurrent layers against their formulas in explicit loops, and against torch's packed sequences."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from mallang.kernels import recurrent
from mallang.kernels.recurrent import FlattenedWeights, computed_as, gru_update, lstm_update, unrolled
from mallang.layers.cache import State
from mallang.layers.recurrent import (
    BidirectionalReader,
    Maxout,
    Memory,
    Reader,
    Recurrent,
    roll,
)

both_kinds = pytest.mark.parametrize("kind", ["lstm", "gru"])
some = settings(deadline=None, max_examples=15)
lengths_of_rows = st.lists(st.integers(1, 6), min_size=1, max_size=5)


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)


def some_x(rows: int, time: int, dim: int = 3, seed: int = 1) -> Tensor:
    return torch.randn(rows, time, dim, generator=torch.Generator().manual_seed(seed))


def with_biases(module: Any, seed: int = 2) -> Any:
    """Every bias drawn at random, where it may be something: they start at 0 and 1, which would hide mistakes."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, Recurrent):
                for name, weight in part.named_parameters():
                    if "bias" in name:
                        free = [0, 1, 3] if isinstance(part, Reader) else [0, 1, 2, 3]
                        for gate, values in enumerate(weight.view(-1, part.hidden_size)):
                            if gate in free:
                                values.copy_(torch.randn(part.hidden_size, generator=random))
    return module


def lstm_loop(x: Tensor, weights: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """One row through one layer, formula by formula: its outputs, the last h and the last c."""
    w, u, b, d = weights
    size = u.shape[1]
    h, c, outputs = torch.zeros(size), torch.zeros(size), []
    for word in x:
        a = w @ word + b + u @ h + d
        i, f, g, o = (a[k * size : (k + 1) * size] for k in range(4))
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        outputs.append(h)
    return torch.stack(outputs), h, c


def gru_loop(x: Tensor, weights: list[Tensor]) -> tuple[Tensor, Tensor, None]:
    """The same of a GRU that resets after the product."""
    w, u, b, d = weights
    size = u.shape[1]
    h, outputs = torch.zeros(size), []
    for word in x:
        (a_r, a_z, a_n), (p_r, p_z, p_n) = (w @ word + b).split(size), (u @ h + d).split(size)
        r, z = torch.sigmoid(a_r + p_r), torch.sigmoid(a_z + p_z)
        h = (1 - z) * torch.tanh(a_n + r * p_n) + z * h
        outputs.append(h)
    return torch.stack(outputs), h, None


LOOPS: dict[str, Any] = {"lstm": lstm_loop, "gru": gru_loop}


@both_kinds
@pytest.mark.parametrize("backwards", [False, True])
@some
@given(lengths=lengths_of_rows, padding=st.integers(0, 2))
@torch.no_grad()
def test_a_reader_is_an_explicit_loop_over_each_row(
    kind: Any, backwards: bool, lengths: list[int], padding: int
) -> None:
    torch.manual_seed(1)
    reader = with_biases(Reader(kind, 3, 4, layers=2))
    x = some_x(len(lengths), max(lengths) + padding)
    outputs, memory = reader(x, torch.tensor(lengths), backwards)
    for row, length in enumerate(lengths):
        words = x[row, :length].flip(0) if backwards else x[row, :length]
        for layer in range(2):
            words, h, c = LOOPS[kind](words, reader.weights()[4 * layer : 4 * layer + 4])
            close(memory.hidden[row, layer], h)
            if memory.cell is not None:
                close(memory.cell[row, layer], c)
        close(outputs[row, :length], words.flip(0) if backwards else words)
        assert not outputs[row, length:].any()
    assert (memory.cell is None) == (kind == "gru")


@both_kinds
@some
@given(lengths=lengths_of_rows)
def test_a_reader_equals_packed_sequences_of_torch_and_so_do_its_gradients(kind: Any, lengths: list[int]) -> None:
    torch.manual_seed(1)
    reader = with_biases(Reader(kind, 3, 4, layers=2))
    theirs = (nn.LSTM if kind == "lstm" else nn.GRU)(3, 4, 2, batch_first=True)
    theirs.load_state_dict(reader.state_dict())
    x = some_x(len(lengths), max(lengths))
    outputs, memory = reader(x, torch.tensor(lengths))
    packed = pack_padded_sequence(x, torch.tensor(lengths), batch_first=True, enforce_sorted=False)
    found, state = theirs(packed)
    expected, _ = pad_packed_sequence(found, batch_first=True)
    hidden = state[0] if kind == "lstm" else state
    close(outputs, expected)
    close(memory.hidden, hidden.transpose(0, 1))
    (outputs.square().sum() + memory.hidden.sum()).backward()
    (expected.square().sum() + hidden.sum()).backward()
    for (name, own), their in zip(reader.named_parameters(), theirs.parameters(), strict=True):
        assert own.grad is not None and their.grad is not None
        wanted = their.grad.clone()
        if "bias" in name:
            assert wanted[8:12].any()  # torch's would learn what must stay zero here
            wanted[8:12] = 0
        close(own.grad, wanted)


@both_kinds
@some
@given(lengths=lengths_of_rows)
@torch.no_grad()
def test_both_directions_equal_torch(kind: Any, lengths: list[int]) -> None:
    torch.manual_seed(1)
    reader = with_biases(BidirectionalReader(kind, 3, 4, layers=2))
    theirs = (nn.LSTM if kind == "lstm" else nn.GRU)(3, 4, 2, batch_first=True, bidirectional=True)
    for layer in range(2):
        for ending, direction in (("", reader.forwards[layer]), ("_reverse", reader.backwards[layer])):
            for name, weight in direction.named_parameters():
                theirs.get_parameter(name.replace("_l0", f"_l{layer}{ending}")).copy_(weight)
    x = some_x(len(lengths), max(lengths))
    outputs, there, back = reader(x, torch.tensor(lengths))
    found, state = theirs(pack_padded_sequence(x, torch.tensor(lengths), batch_first=True, enforce_sorted=False))
    close(outputs, pad_packed_sequence(found, batch_first=True)[0])
    hidden = state[0] if kind == "lstm" else state
    close(there.hidden, hidden[0::2].transpose(0, 1))
    close(back.hidden, hidden[1::2].transpose(0, 1))
    ends = outputs[torch.arange(len(lengths)), torch.tensor(lengths) - 1]
    close(ends[:, :4], there.hidden[:, -1])


@both_kinds
@torch.no_grad()
def test_it_goes_on_from_a_state_in_any_number_of_steps(kind: Any) -> None:
    torch.manual_seed(1)
    stack, x = with_biases(Recurrent(kind, 3, 4, layers=3)), some_x(2, 7)
    expected, end = stack(x)
    memory, found = None, []
    for part in x.split([1, 1, 3, 2], dim=1):
        outputs, memory = stack(part, memory)
        found.append(outputs)
    close(torch.cat(found, dim=1), expected)
    assert memory is not None
    close(memory.hidden, end.hidden)
    assert memory.hidden.shape == (2, 3, 4)


@both_kinds
@torch.no_grad()
def test_hypotheses_can_be_widened_and_reordered(kind: Any) -> None:
    torch.manual_seed(1)
    stack, x = with_biases(Recurrent(kind, 3, 4, layers=2)), some_x(2, 3)
    _, memory = stack(x)
    state = State(None, memory).widen(2).select(torch.tensor([3, 0, 0, 1]))
    assert isinstance(state.moving, Memory)
    found, _ = stack(some_x(4, 2, seed=3), state.moving)
    for row, origin in enumerate([1, 0, 0, 0]):
        alone, _ = stack(torch.cat((x[origin], some_x(4, 2, seed=3)[row]))[None])
        close(found[row], alone[0, 3:])


@both_kinds
def test_the_bias_that_would_wake_a_reader_stays_zero_in_training(kind: Any) -> None:
    torch.manual_seed(1)
    reader = Reader(kind, 3, 4, layers=2)
    optimizer = torch.optim.Adam(reader.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        reader(some_x(2, 4), torch.tensor([4, 2]))[0].sum().backward()
        optimizer.step()
    for name, weight in reader.named_parameters():
        if "bias" in name:
            assert not weight[8:12].any() and weight[:8].all()
    padded, _ = copy.deepcopy(reader)(some_x(2, 4), torch.tensor([1, 2]))
    alone, _ = reader(some_x(2, 4)[:1, :1], torch.tensor([1]))
    close(padded[0, 0], alone[0, 0])


@both_kinds
def test_dropout_falls_between_layers_only_and_follows_the_seed(kind: Any) -> None:
    torch.manual_seed(1)
    one, two = Recurrent(kind, 3, 4, 1, dropout=0.5), Recurrent(kind, 3, 4, 2, dropout=0.5)
    x = some_x(2, 5)
    assert torch.equal(one(x)[0], one.eval()(x)[0])
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(two(x)[0])
    assert torch.equal(found[0], found[1]) and not torch.equal(found[0], found[2])
    torch.manual_seed(1)
    lower, _ = two.run(x, two.nothing(x).of_layer(0), two.weights()[:4])
    upper, _ = two.run(two.between(lower), two.nothing(x).of_layer(1), two.weights()[4:])
    close(found[0], upper)


@both_kinds
@torch.no_grad()
def test_what_a_compiler_sees_is_the_same(kind: Any) -> None:
    torch.manual_seed(1)
    stack, x = with_biases(Recurrent(kind, 3, 4)), some_x(2, 5)
    expected, end = stack(x)
    found, memory = unrolled(kind, x, stack.nothing(x), stack.weights())
    close(found, expected)
    close(memory.hidden, end.hidden)


@torch.no_grad()
def test_updates_are_the_cells_of_torch() -> None:
    torch.manual_seed(1)
    x, h, c = some_x(1, 5)[0], some_x(1, 5, 4, seed=2)[0], some_x(1, 5, 4, seed=3)[0]
    cell = nn.LSTMCell(3, 4)
    gates = x @ cell.weight_ih.T + cell.bias_ih + h @ cell.weight_hh.T + cell.bias_hh
    for found, expected in zip(lstm_update(gates, c), cell(x, (h, c)), strict=True):
        close(found, expected)
    gru = nn.GRUCell(3, 4)
    close(gru_update(x @ gru.weight_ih.T + gru.bias_ih, h @ gru.weight_hh.T + gru.bias_hh, h), gru(x, h))


def test_an_lstm_starts_by_keeping_what_it_has() -> None:
    reader = Reader("lstm", 3, 4, layers=2)
    for layer in range(2):
        assert reader.get_parameter(f"bias_ih_l{layer}").tolist() == [0] * 4 + [1] * 4 + [0] * 8
        assert not reader.get_parameter(f"bias_hh_l{layer}").any()
        for gate in reader.get_parameter(f"weight_hh_l{layer}").detach().split_with_sizes([4] * 4):
            close(gate @ gate.T, torch.eye(4))


@torch.no_grad()
def test_maxout_takes_the_larger_of_two_maps() -> None:
    torch.manual_seed(1)
    layer, x = Maxout(3, 5), some_x(2, 4)
    weight, bias = layer.pairs.weight, layer.pairs.bias
    for place in [(0, 0), (1, 3)]:
        for j in range(5):
            pair = [weight[k] @ x[place] + bias[k] for k in (j, 5 + j)]
            close(layer(x)[place][j], max(pair))


@some
@given(lengths=lengths_of_rows, padding=st.integers(0, 3))
def test_rolling_puts_padding_in_front_and_back_again(lengths: list[int], padding: int) -> None:
    width = max(lengths) + padding
    x = some_x(len(lengths), width)
    by = width - torch.tensor(lengths)
    moved = roll(x, by)
    for row, length in enumerate(lengths):
        assert torch.equal(moved[row, width - length :], x[row, :length])
    assert torch.equal(roll(moved, -by), x)


@torch.no_grad()
def test_one_piece_is_asked_for_as_cudnn_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU only what it is told can be seen; that the numbers are right is tested where there is one."""
    told: list[Any] = []
    monkeypatch.setattr(torch, "_cudnn_rnn_flatten_weight", lambda *arguments: told.append(arguments[1:]))
    monkeypatch.setattr(recurrent.cudnn_rnn, "get_cudnn_mode", lambda mode: {"LSTM": 2, "GRU": 3}[mode])
    stack = Recurrent("lstm", 3, 4, 2)
    with torch.enable_grad():
        low = FlattenedWeights.apply(torch.bfloat16, "LSTM", *stack.weights())
        sum((2 * weight).float().sum() for weight in low).backward()
    assert told == [(4, 3, 2, 4, 0, 2, True, False)]
    for own, copy_ in zip(stack.weights(), low, strict=True):
        assert copy_.dtype == torch.bfloat16 and torch.equal(copy_, own.bfloat16())
        assert own.grad is not None and own.grad.dtype == torch.float32 and (own.grad == 2).all()


@pytest.mark.parametrize(
    ("version", "computed"), [(None, torch.float32), (90100, torch.float32), (91300, torch.bfloat16)]
)
def test_bfloat16_is_left_to_those_who_know_it(
    version: int | None, computed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: version)
    assert computed_as(torch.bfloat16) == computed
    assert computed_as(torch.float32) == torch.float32


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def relative(found: Tensor, expected: Tensor) -> float:
    return float((found.detach().float().cpu() - expected.detach()).norm() / expected.detach().norm())


@needs_gpu
@both_kinds
@pytest.mark.parametrize("low", [False, True], ids=["float32", "bfloat16"])
def test_a_gpu_computes_the_same_and_so_are_its_gradients(kind: Any, low: bool) -> None:
    """A warning would be an error here: the weights must lie in one piece, whatever their type."""
    torch.manual_seed(1)
    reader, tolerance = with_biases(Reader(kind, 8, 16, 2)), 0.03 if low else 0.002
    x, lengths = some_x(4, 7, 8), torch.tensor([7, 1, 3, 5])
    expected, end = reader(x, lengths)
    # As small as those of a loss divided by many thousand tokens: in float16 they would be gone.
    (1e-7 * expected.square().sum()).backward()
    gradients = {name: weight.grad.clone() for name, weight in reader.named_parameters() if weight.grad is not None}
    reader.zero_grad()
    reader.cuda()
    with torch.autocast("cuda", torch.bfloat16, enabled=low):
        found, memory = reader(x.cuda(), lengths.cuda())
    assert found.dtype == (torch.bfloat16 if low else torch.float32)
    (1e-7 * found.float().square().sum()).backward()
    assert relative(found, expected) < tolerance and relative(memory.hidden, end.hidden) < tolerance
    for name, weight in reader.named_parameters():
        assert weight.grad is not None and relative(weight.grad, gradients[name]) < tolerance, name


@needs_gpu
@both_kinds
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.no_grad()
def test_steps_on_a_gpu_equal_whole_sequences(kind: Any, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    stack, x = with_biases(Recurrent(kind, 8, 16, 2)), some_x(3, 5, 8)
    expected, _ = stack(x)
    own = copy.deepcopy(stack.cuda()).to(dtype)
    x = x.to("cuda", dtype)
    _, memory = own(x[:, :2])
    for step in (2, 3, 4):
        outputs, memory = own(x[:, step : step + 1], memory)
        assert outputs.dtype == memory.hidden.dtype == dtype
        assert relative(outputs[:, 0], expected[:, step]) < (0.03 if dtype == torch.bfloat16 else 0.002)


@needs_gpu
@both_kinds
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_gpu_can_capture_and_replay_it(kind: Any, dropout: float) -> None:
    torch.manual_seed(1)
    reader = with_biases(Reader(kind, 8, 16, 2, dropout)).cuda()
    x, lengths = some_x(4, 7, 8).cuda(), torch.tensor([7, 1, 3, 5]).cuda()

    def work() -> Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            outputs: Tensor = reader(x, lengths)[0]
        outputs.float().sum().backward()
        return outputs

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            expected = work().clone()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):  # gradients are gathered where their weights were first met
        replayed = work()
    graph.replay()
    first = replayed.clone()
    graph.replay()
    assert torch.equal(first, replayed) == (dropout == 0)
    if not dropout:
        torch.testing.assert_close(first, expected)
