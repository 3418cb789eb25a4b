"""The recurrent language model: its dropout, its carried state, its regularization."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from mallang.data.batch import Batch
from mallang.layers.dropout import dropout_mask
from mallang.models.rnn_lm import AWD, RNNLM, SIZES, Config
from mallang.text.vocabulary import SPECIALS, Vocabulary

WORDS = Vocabulary((*SPECIALS, *(f"w{number}" for number in range(9))))
SHAPES: dict[str, dict[str, Any]] = {
    "elman": {"cell": "elman", "layers": 1},
    "gru": {"cell": "gru"},
    "lstm": {},
    "tie_weights": {"tie_weights": True, "layers": 3},
    "tied alike": {"tie_weights": True, "embedding_dim": 8},
    "tied alone": {"tie_weights": True, "layers": 1},
    "variational": {"variational": True, "word_dropout": 0.2, "weight_dropout": 0.3, "ar": 2.0, "tar": 1.0},
}
every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)


def make(seed: int = 1, **options: Any) -> RNNLM:
    torch.manual_seed(seed)
    return RNNLM(Config(**{"embedding_dim": 6, "dim": 8, "init": 0.5, **options}), WORDS)


def batch_of(rows: int = 3, time: int = 12, seed: int = 2) -> Batch:
    tokens = torch.randint(2, len(WORDS), (rows, time), generator=torch.Generator().manual_seed(seed))
    return Batch(tokens=tokens, lengths=torch.full((rows,), time))


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)


@every_shape
@torch.no_grad()
def test_windows_that_go_on_are_one_long_text(shape: dict[str, Any]) -> None:
    model, batch = make(**shape).eval(), batch_of()
    whole, carry, parts = model(batch), None, []
    for begin, end in ((0, 5), (5, 6), (6, 12)):
        part = Batch(tokens=batch.tokens[:, begin:end], lengths=torch.full((3,), end - begin))
        reading = model.forward_stateful(part, carry)
        carry = reading.carry
        parts.append(reading.hidden)
        assert not reading.penalties
    close(torch.cat(parts, dim=1), whole)


def test_the_gradient_ends_where_a_window_begins_and_reaches_the_first_word_without_a_carry() -> None:
    model, batch = make(dropout=0.0).eval(), batch_of(rows=1)
    first = model.forward_stateful(Batch(tokens=batch.tokens[:, :6], lengths=torch.tensor([6])), None)
    assert all(not memory.hidden.requires_grad and not memory.cell.requires_grad for memory in first.carry)
    counted = torch.bincount(batch.tokens[:, 6:].flatten(), minlength=len(WORDS)) > 0
    second = model.forward_stateful(Batch(tokens=batch.tokens[:, 6:], lengths=torch.tensor([6])), first.carry)
    second.hidden[:, -1].sum().backward()
    assert torch.equal(model.embedding.weight.grad.abs().sum(dim=1) > 0, counted)
    model.zero_grad()
    model(batch)[:, -1].sum().backward()
    read = torch.bincount(batch.tokens.flatten(), minlength=len(WORDS)) > 0
    assert torch.equal(model.embedding.weight.grad.abs().sum(dim=1) > 0, read) and (read & ~counted).any()


def test_padding_is_not_fined_and_the_penalties_are_their_formulas() -> None:
    model = make(ar=2.0, tar=3.0, dropout=0.3, variational=True, word_dropout=0.3, weight_dropout=0.4)
    batch = batch_of()
    batch = Batch(tokens=batch.tokens, lengths=torch.tensor([12, 7, 1]))
    torch.manual_seed(5)
    reading = model.forward_stateful(batch, None)
    torch.manual_seed(5)
    hidden, states, _ = model.read(batch.tokens, None)
    ar = sum(hidden[i, t].square().mean() for i in range(3) for t in range(int(batch.lengths[i])))
    tar = sum(
        (states[i, t] - states[i, t - 1]).square().mean() for i in range(3) for t in range(1, int(batch.lengths[i]))
    )
    close(reading.penalties["ar"], 2.0 * torch.as_tensor(ar))
    close(reading.penalties["tar"], 3.0 * torch.as_tensor(tar))
    assert (hidden != states).any()


def test_the_gradients_of_the_penalties_are_finite_differences() -> None:
    model = make(ar=2.0, tar=3.0, dropout=0.0, weight_dropout=0.3, layers=1, dim=3, embedding_dim=2).double()
    batch = batch_of(rows=2, time=5)

    def fined() -> Tensor:
        torch.manual_seed(7)
        hidden, states, _ = model.read(batch.tokens, None)
        mask = batch.mask
        ar = 2.0 * (hidden.square().mean(dim=-1) * mask).sum()
        return ar + 3.0 * ((states[:, 1:] - states[:, :-1]).square().mean(dim=-1) * mask[:, 1:]).sum()

    torch.manual_seed(7)
    found = model.forward_stateful(batch, None).penalties
    sum(found.values()).backward()  # type: ignore[union-attr]
    for weight in (model.embedding.weight, *model.stacks.parameters()):
        for place in range(0, weight.numel(), 3):
            with torch.no_grad():
                values = []
                for change in (1e-5, -2e-5):
                    weight.view(-1)[place] += change
                    values.append(fined())
                weight.view(-1)[place] += 1e-5
            assert float(weight.grad.view(-1)[place]) == pytest.approx(float(values[0] - values[1]) / 2e-5, abs=1e-4)


def test_a_dropped_word_is_dropped_wherever_it_stands() -> None:
    model = make(dropout=0.0, word_dropout=0.4)
    tokens = torch.arange(2, len(WORDS)).repeat(2, 5)
    torch.manual_seed(3)
    x = model.embed(tokens)
    torch.manual_seed(3)
    close(x, (model.embedding.weight * dropout_mask(model.embedding.weight[:, :1], 0.4))[tokens])
    gone = (x == 0).all(dim=-1)
    assert torch.equal(gone[0, :11], gone[1, 11:22]) and 0 < int(gone[0, :11].sum()) < 11
    close(model.eval().embed(tokens), model.embedding(tokens))


@torch.no_grad()
def test_tied_weights_are_one_and_the_last_layer_has_their_size() -> None:
    tied, own = make(tie_weights=True, layers=3), make(layers=3)
    assert tied.head.weight is tied.embedding.weight
    assert [(stack.input_size, stack.hidden_size, stack.num_layers) for stack in tied.layers()] == [
        (6, 8, 2),
        (8, 6, 1),
    ]
    assert [(stack.input_size, stack.hidden_size, stack.num_layers) for stack in own.layers()] == [(6, 8, 3)]
    assert tied(batch_of()).shape == (3, 12, 6) and own(batch_of()).shape == (3, 12, 8)
    model = RNNLM(Config(**SIZES["awd"]), Vocabulary((*SPECIALS, *(f"w{number}" for number in range(9996)))))
    assert sum(parameter.numel() for parameter in model.parameters()) == 24_221_600  # 24M, as the paper says


@torch.no_grad()
def test_weights_begin_as_the_papers_say() -> None:
    zaremba, awd = make(init=0.05), make(init=None, **{**AWD, "embedding_dim": 10, "dim": 16})
    for weight in zaremba.parameters():
        assert 0.03 < float(weight.abs().max()) <= 0.05
    assert 0.09 < float(awd.embedding.weight.abs().max()) <= 0.1
    assert awd.head.bias is not None and not awd.head.bias.any()
    assert 0.2 < float(awd.layers()[0].weight_hh_l0.abs().max()) <= 0.25


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cell": "lstm", "activation": "relu"}, "it is for elman"),
        ({"variational": True, "dropout": 0.0}, "no effect without dropout"),
        ({"input_dropout": 1.0}, "input_dropout"),
        ({"weight_dropout": -0.1}, "weight_dropout"),
        ({"layers": 0}, "layers"),
        ({"ar": -1.0}, "ar"),
        ({"init": 0.0}, "init"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Config(**options)
