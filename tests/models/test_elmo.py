"""ELMo: torch's own LSTMs with projection, what each direction may see, and texts that start from a zero state."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from mallang.data.batch import Batch, pad_rows
from mallang.layers.mix import LayerMix
from mallang.layers.projected_lstm import ProjectedLSTM, reversed_rows
from mallang.layers.spelling import ReadsSpelling
from mallang.models.contract import Encoder
from mallang.models.elmo import SIZES, Config, ELMo
from mallang.tasks.bidirectional_language_modeling import Bidirectional
from mallang.text.vocabulary import BOS, EOS, SPECIALS, Vocabulary

WORDS = Vocabulary((*SPECIALS, "play", "plays", "player", "ball", "stage", "배", "사과"))


def make(vocabulary: Vocabulary = WORDS, **options: Any) -> ELMo:
    torch.manual_seed(1)
    return ELMo(Config(**{**SIZES["tiny"], "layers": 2, **options}), vocabulary).eval()


def framed(*rows: list[int]) -> Batch:
    tokens, lengths = pad_rows(list(rows), begin=BOS, end=EOS)
    return Batch(tokens=tokens, lengths=lengths)


def of_torch(layer: ProjectedLSTM) -> nn.LSTM:
    """torch's layer with these weights, whose recurrent matrix works on the projected state."""
    inputs, cells = layer.weight_ih.shape[1], layer.cells
    size = 0 if layer.projection is None else layer.projection.weight.shape[0]
    other = nn.LSTM(inputs, cells, batch_first=True, proj_size=size)
    with torch.no_grad():
        other.weight_ih_l0.copy_(layer.weight_ih)
        other.weight_hh_l0.copy_(layer.weight_hh)
        other.bias_ih_l0.copy_(layer.bias)
        other.bias_hh_l0.zero_()
        if layer.projection is not None:
            other.weight_hr_l0.copy_(layer.projection.weight)  # type: ignore[operator]
    return other


@pytest.mark.parametrize("dim", [None, 5])
@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_a_projected_layer_is_torchs_with_its_gradients(dim: int | None) -> None:
    torch.manual_seed(2)
    layer = ProjectedLSTM(4, 7, dim)
    other, x = of_torch(layer), torch.randn(3, 6, 4)
    torch.testing.assert_close(layer(x), other(x)[0])
    layer(x).square().sum().backward()
    other(x)[0].square().sum().backward()
    pairs = [(layer.weight_ih, other.weight_ih_l0), (layer.weight_hh, other.weight_hh_l0)]
    pairs += [(layer.bias, other.bias_ih_l0)]
    pairs += [] if layer.projection is None else [(layer.projection.weight, other.weight_hr_l0)]
    for ours, theirs in pairs:
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-5)


def test_rows_are_reversed_within_their_lengths() -> None:
    rows, lengths = torch.tensor([[1, 2, 3, 0], [4, 5, 6, 7], [8, 0, 0, 0]]), torch.tensor([3, 4, 1])
    found = reversed_rows(rows, lengths)
    assert found.tolist() == [[3, 2, 1, 0], [7, 6, 5, 4], [8, 0, 0, 0]]
    assert torch.equal(reversed_rows(found, lengths), rows)
    deep = rows[:, :, None].expand(-1, -1, 2)
    assert torch.equal(reversed_rows(deep, lengths)[:, :, 1], found)


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("skip", [True, False])
@torch.no_grad()
def test_the_layers_are_those_of_a_loop_over_both_directions(skip: bool) -> None:
    model = make(skip=skip)
    ids = [4, 7, 8, 10]
    words = model.word_vectors(torch.tensor([[BOS, *ids, EOS]]))
    sides = []
    for layers, x in ((model.forwards, words), (model.backwards, words.flip(1))):
        outputs = [x]
        for number, layer in enumerate(layers):
            after = of_torch(layer)(outputs[-1])[0]  # type: ignore[arg-type]
            outputs.append(after + outputs[-1] if number and skip else after)
        sides.append(outputs)
    expected = [torch.cat((there, back.flip(1)), dim=2)[:, 1:] for there, back in zip(*sides, strict=True)]
    encoded = model.encode(Batch(tokens=torch.tensor([[*ids, EOS]]), lengths=torch.tensor([5])))
    assert len(encoded.layers) == len(expected) == 3
    for ours, theirs in zip(encoded.layers, expected, strict=True):
        torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(encoded.pooled, expected[-1].mean(dim=1))
    there, back = model.directions(framed(ids))
    torch.testing.assert_close(torch.cat((there, back), dim=2)[:, 1:], encoded.layers[-1])


@torch.no_grad()
def test_the_forward_half_never_sees_the_future_nor_the_backward_half_the_past() -> None:
    model, row = make(), [4, 5, 6, 7, 8, 9]
    dim = model.config.dim
    whole = model.directions(framed(row))
    layers = model.encode(framed(row)).layers
    for place in range(len(row)):
        other = [*row[:place], 10, *row[place + 1 :]]
        there, back = model.directions(framed(other))
        at = place + 1  # after <s>
        assert torch.equal(there[:, :at], whole[0][:, :at]) and not torch.allclose(there[:, at:], whole[0][:, at:])
        assert torch.equal(back[:, at + 1 :], whole[1][:, at + 1 :])
        assert not torch.allclose(back[:, at], whole[1][:, at])
        for one, same in zip(model.encode(framed(other)).layers[1:], layers[1:], strict=True):
            assert torch.equal(one[:, :at, :dim], same[:, :at, :dim])
            assert torch.equal(one[:, at + 1 :, dim:], same[:, at + 1 :, dim:])
            assert not torch.allclose(one[:, at - 1, dim:], same[:, at - 1, dim:])


@torch.no_grad()
def test_a_text_has_the_same_vectors_whatever_was_read_before_it_or_beside_it() -> None:
    """No state is carried from one batch to the next."""
    model, text = make(), framed([4, 7, 10])
    first = model.encode(text).layers
    model.encode(framed([9, 8, 7, 6, 5], [5, 5, 5]))
    for one, again in zip(first, model.encode(text).layers, strict=True):
        assert torch.equal(one, again)
    beside = model.encode(framed([4, 7, 10], [9, 8, 7, 6, 5, 4, 9])).layers
    for one, padded in zip(first, beside, strict=True):
        torch.testing.assert_close(padded[:1, : one.shape[1]], one, rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_words_that_it_never_saw_are_read_from_their_characters() -> None:
    model = make()
    assert isinstance(model, ReadsSpelling) and isinstance(model, Bidirectional) and isinstance(model, Encoder)
    played, partly, empty = model.ids_of_oov(["played", "pl€y", "€€"])
    assert played >= len(WORDS) and partly >= len(WORDS) and empty == WORDS.unk
    vectors = model.word_vectors(torch.tensor([[played, 4, 8]]))[0]
    near, far = (nn.functional.cosine_similarity(vectors[0], vectors[place], dim=0) for place in (1, 2))
    assert near > far
    model.forget_oov(0)
    assert model.ids_of_oov(["stages"]) == [len(WORDS)]


def test_both_directions_share_words_and_softmax_but_no_layer() -> None:
    model = make()
    there, back = model.directions(framed([4, 5]))
    names = {}
    for side, hidden in (("forwards", there), ("backwards", back)):
        loss = model.head(hidden).logsumexp(2).sum()
        grads = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True, retain_graph=True)
        names[side] = {
            name.split(".")[0]
            for (name, _), grad in zip(model.named_parameters(), grads, strict=True)
            if grad is not None and bool(grad.any())
        }
    shared = {"characters", "highways", "to_words", "head"}
    assert names == {side: {*shared, side} for side in ("forwards", "backwards")}


def test_the_original_has_the_papers_size() -> None:
    """93.6 million without the softmax, as its authors say; they count bytes for characters, and state the LSTM's."""
    with torch.device("meta"):
        layer = ProjectedLSTM(512, 4096, 512)
    lstm = sum(each.numel() for each in layer.parameters())
    assert 4 * lstm == 4 * (4 * 4096 * (512 + 512 + 1) + 4096 * 512)
    config = Config()
    widths = enumerate(config.filters, start=1)
    filters = sum(count * (width * config.character_dim + 1) for width, count in widths)
    dim = sum(config.filters)
    assert dim == 2048
    bytes_of = 262 * config.character_dim
    whole = 4 * lstm + filters + config.highways * 2 * (dim * dim + dim) + dim * 512 + 512 + bytes_of
    assert round(whole / 1e6, 1) == 93.6
    with torch.device("meta"):
        model = ELMo(config, WORDS)
    parts = [model.characters.weights, model.highways, model.to_words, model.forwards, model.backwards]
    counted = sum(each.numel() for part in parts for each in part.parameters()) + model.characters.bias.numel()
    assert counted + bytes_of == whole, "the model itself, with the bytes of the paper for its characters"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"filters": ()}, "filters"),
        ({"filters": (3, -1)}, "filters"),
        ({"highways": -1}, "highways"),
        ({"longest_word": 2}, "longest_word"),
        ({"hidden_dim": 0}, "hidden_dim"),
        ({"dropout": 1.0}, "dropout"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Config(**options)


def test_a_mix_is_a_weighted_sum_that_is_learned() -> None:
    torch.manual_seed(3)
    layers, mix = [torch.randn(2, 4, 3) for _ in range(3)], LayerMix(3, l2=0.1)
    torch.testing.assert_close(mix(layers), torch.stack(layers).mean(dim=0))
    with torch.no_grad():
        mix.scores.copy_(torch.tensor([0.3, -1.0, 2.0]))
        mix.scale.fill_(1.7)
    raw = [2.718281828459045**weight for weight in (0.3, -1.0, 2.0)]
    expected = sum(1.7 * each / sum(raw) * layer for each, layer in zip(raw, layers, strict=True))
    torch.testing.assert_close(mix(layers), expected)
    assert float(mix.penalty().detach()) == pytest.approx(0.1 * (0.09 + 1.0 + 4.0))
    target, optimizer = layers[2] * 3, torch.optim.Adam(mix.parameters(), lr=0.1)
    for _ in range(200):
        optimizer.zero_grad()
        (mix(layers) - target).square().mean().backward()
        optimizer.step()
    assert mix.weights()[2] > 0.95 and float(mix.scale.detach()) == pytest.approx(3.0, abs=0.2)
    with pytest.raises(ValueError, match="3 layers, not of 2"):
        mix(layers[:2])


def test_layer_dropout_leaves_out_whole_layers_but_never_all() -> None:
    torch.manual_seed(4)
    mix = LayerMix(2, dropout=0.5)
    seen = {tuple(mix.weights().tolist()) for _ in range(50)}
    assert seen == {(0.5, 0.5), (1.0, 0.0), (0.0, 1.0)}
    assert mix.eval().weights().tolist() == [0.5, 0.5]
