"""Traces of gates: the states that they end in are those that the layers give, by torch's cells step by step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.inspection.gates import record_gates
from mallang.kernels.recurrent import CELL_OBSERVERS
from mallang.layers.recurrent import BidirectionalReader, Reader, Recurrent
from mallang.models import bahdanau, elmo, luong, rnn_lm
from mallang.text.vocabulary import Vocabulary

WORDS = Vocabulary(("<pad>", "<unk>", "<s>", "</s>", *map(chr, range(97, 117))))


def states_by_cells(stack: Any, layer: int, x: Tensor) -> tuple[Tensor, Tensor | None]:
    """The states of one layer by torch's own cell."""
    kinds: dict[str, Any] = {"lstm": nn.LSTMCell, "gru": nn.GRUCell, "tanh": nn.RNNCell}
    cell = kinds[stack.kind](x.shape[1], stack.hidden_size)
    cell.load_state_dict({name: getattr(stack, f"{name}_l{layer}") for name, _ in cell.named_parameters()})
    hidden, inner, found = torch.zeros(1, stack.hidden_size), torch.zeros(1, stack.hidden_size), []
    for inputs in x:
        if stack.kind == "lstm":
            hidden, inner = cell(inputs[None], (hidden, inner))
        else:
            hidden = cell(inputs[None], hidden)
        found.append((hidden[0], inner[0]))
    states, inners = (torch.stack(each) for each in zip(*found, strict=True))
    return states, inners if stack.kind == "lstm" else None


@pytest.mark.parametrize("kind", ["lstm", "gru", "tanh"])
def test_traces_end_in_the_states_of_torchs_cells(kind: Any) -> None:
    torch.manual_seed(1)
    stack = Recurrent(kind, 5, 7, layers=2).eval()
    for bias in (part for part in stack.parameters() if part.dim() == 1):
        nn.init.normal_(bias)
    x = torch.randn(2, 6, 5)
    with torch.no_grad(), record_gates(nn.ModuleDict({"decoder": stack}), row=1) as traces:
        outputs, memory = stack(x)
        below = x[1]
        for layer in range(2):
            trace = traces[f"decoder.{layer}"]
            states, inners = states_by_cells(stack, layer, below)
            assert trace.kind == kind and trace.gates["h"] == pytest.approx(states.numpy(), abs=1e-6)
            if inners is not None:
                assert trace.gates["c"] == pytest.approx(inners.numpy(), abs=1e-6)
            below = states
    assert traces["decoder.1"].gates["h"] == pytest.approx(outputs[1].numpy(), abs=1e-6)
    assert traces["decoder.0"].gates["h"][-1] == pytest.approx(memory.hidden[1, 0].numpy(), abs=1e-6)
    gates = {"lstm": "ifogch", "gru": "rznh", "tanh": "h"}[kind]
    assert list(traces["decoder.0"].gates) == list(gates)
    if kind == "gru":
        each = traces["decoder.0"].gates
        before = torch.cat((torch.zeros(1, 7), each["h"][:-1]))
        assert each["h"] == pytest.approx(((1 - each["z"]) * each["n"] + each["z"] * before).numpy(), abs=1e-6)


def test_traces_of_readers_leave_out_padding_and_stand_in_the_order_of_the_text() -> None:
    torch.manual_seed(1)
    reader = BidirectionalReader("gru", 5, 4, layers=2).eval()
    x, lengths = torch.randn(2, 6, 5), torch.tensor([6, 4])
    with torch.no_grad(), record_gates(reader, row=1) as traces:
        outputs, _, _ = reader(x, lengths)
    assert list(traces) == ["forwards.0", "backwards.0", "forwards.1", "backwards.1"]
    assert traces["forwards.1"].gates["h"] == pytest.approx(outputs[1, :4, :4].numpy(), abs=1e-6)
    assert traces["backwards.1"].gates["h"] == pytest.approx(outputs[1, :4, 4:].numpy(), abs=1e-6)
    turned = Reader("lstm", 5, 4).eval()
    with torch.no_grad(), record_gates(nn.ModuleDict({"encoder": turned})) as traces:
        outputs, _ = turned(x, lengths, backwards=True)
    assert traces["encoder"].gates["h"] == pytest.approx(outputs[0].numpy(), abs=1e-6)


def translation_batch() -> Batch:
    one = torch.tensor([[5, 6, 7, 8, 3]])
    tokens, length = torch.tensor([[2, 9, 10, 11]]), torch.tensor([4])
    return Batch(tokens=tokens, lengths=length, source=one, source_lengths=torch.tensor([5]))


@pytest.mark.parametrize(
    ("module", "sizes", "expected"),
    [
        (bahdanau, {}, ["encoder.forwards.0", "encoder.backwards.0", "decoder"]),
        (luong, {"layers": 2, "input_feeding": True}, ["encoder.0", "encoder.1", "decoder.0", "decoder.1"]),
    ],
)
def test_loops_over_cells_are_traced_too(module: Any, sizes: dict[str, Any], expected: list[str]) -> None:
    torch.manual_seed(1)
    model = module.Model(module.Config(**(module.SIZES["tiny"] | sizes)), WORDS, WORDS).eval()
    batch = translation_batch()
    with torch.no_grad(), record_gates(model) as traces:
        _, after = model.write(batch.tokens, model.start(batch))
    assert list(traces) == expected
    last = traces[expected[-1]].gates["h"]
    assert last.shape[0] == 4
    states = [part for part in flat(after.moving) if part.shape[-1] == last.shape[1]]
    assert any(
        torch.allclose(last[-1], row, atol=1e-6) for part in states for row in part[0].reshape(-1, last.shape[1])
    )
    assert not CELL_OBSERVERS


def flat(nest: Any) -> list[Tensor]:
    if isinstance(nest, Tensor):
        return [nest]
    parts = nest.values() if isinstance(nest, dict) else nest
    return [part for each in parts if each is not None for part in flat(each)]


def test_a_language_model_that_is_called_token_by_token_has_one_trace() -> None:
    torch.manual_seed(1)
    model = rnn_lm.Model(rnn_lm.Config(**(rnn_lm.SIZES["tiny"] | {"cell": "lstm"})), WORDS).eval()
    tokens = torch.tensor([[2, 5, 6, 7]])
    with torch.no_grad(), record_gates(model) as whole:
        model(Batch(tokens=tokens, lengths=torch.tensor([4])))
    with torch.no_grad(), record_gates(model) as stepwise:
        state = model.start(Batch(tokens=tokens[:, :1], lengths=torch.tensor([1])))
        for place in range(4):
            _, state = model.step(tokens[:, place : place + 1], state)
    assert list(whole) == list(stepwise)
    for name, trace in whole.items():
        for gate, values in trace.gates.items():
            assert stepwise[name].gates[gate] == pytest.approx(values.numpy(), abs=1e-5), (name, gate)


def test_both_directions_of_elmo_stand_in_the_order_of_the_text() -> None:
    torch.manual_seed(1)
    model = elmo.Model(elmo.Config(**elmo.SIZES["tiny"]), WORDS).eval()
    batch = Batch(tokens=torch.tensor([[5, 6, 7, 8]]), lengths=torch.tensor([4]))
    with torch.no_grad(), record_gates(model) as traces:
        model.encode(batch)
    with torch.no_grad(), record_gates(model) as shorter:  # what comes after must not change what was read before
        model.encode(Batch(tokens=torch.tensor([[5, 6]]), lengths=torch.tensor([2])))
    there, back = (next(name for name in traces if part in name.split(".")) for part in ("forwards", "backwards"))
    assert shorter[there].gates["h"][:2] == pytest.approx(traces[there].gates["h"][:2].numpy(), abs=1e-5)
    assert shorter[back].gates["h"][:2] != pytest.approx(traces[back].gates["h"][:2].numpy(), abs=1e-5)
