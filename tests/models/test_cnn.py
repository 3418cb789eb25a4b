"""The CNN for sentences: equal to explicit loops over windows, filters and channels; its channels; its refusals."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from mallang.data.batch import Batch, pad_rows
from mallang.data.word_vectors import Vectors
from mallang.layers.embedding import load_vectors, spellings_of
from mallang.models.cnn import CNN, Config
from mallang.text.vocabulary import SPECIALS, Vocabulary

WORDS = Vocabulary((*SPECIALS, *(f"w{number}" for number in range(9))))
ROWS = [[4, 5, 6, 7, 8, 3], [9, 3], [3], [4, 4, 12, 11, 10, 9, 8, 3]]


def make(seed: int = 1, **options: Any) -> CNN:
    torch.manual_seed(seed)
    return CNN(Config(**{"embedding_dim": 5, "filters": 3, **options}), WORDS).eval()


def batch_of(rows: list[list[int]]) -> Batch:
    tokens, lengths = pad_rows(rows)
    return Batch(tokens=tokens, lengths=lengths)


def response(model: CNN, number: int, filter_: int, tables: list[Tensor], row: list[int], place: int) -> float:
    """The response of one filter to the window around a word, summed value by value over all channels."""
    convolution: Any = model.convolutions[number]
    width, dim = model.config.widths[number], model.config.embedding_dim
    total = float(convolution.linear.bias[filter_])
    for offset in range(width):
        here = place + offset - (width - 1) // 2
        if 0 <= here < len(row):
            for table in tables:
                for axis in range(dim):
                    weight = convolution.linear.weight[filter_, offset * dim + axis]
                    total += float(weight) * float(table[row[here], axis])
    return max(0.0, total)


def tables_of(model: CNN) -> list[Tensor]:
    static = model.embedding.weight.detach()
    return [static] if model.trained_change is None else [static, static + model.trained_change.weight.detach()]


@pytest.mark.parametrize("channels", ["static", "trained", "multichannel"])
@pytest.mark.parametrize("widths", [[3, 4, 5], [1, 2]])
@torch.no_grad()
def test_it_is_a_loop_over_windows_filters_and_channels(channels: str, widths: list[int]) -> None:
    model = make(channels=channels, widths=widths)
    for weight in model.parameters():  # the change of a channel starts at zero, and biases do
        weight.add_(torch.randn(weight.shape) * 0.3)
    encoded = model.encode(batch_of(ROWS))
    tables = tables_of(model)
    for number, row in enumerate(ROWS):
        maps = [
            [response(model, kind, filter_, tables, row, place) for place in range(len(row))]
            for kind in range(len(widths))
            for filter_ in range(3)
        ]
        found = encoded.layers[0][number, : len(row)]
        torch.testing.assert_close(found, torch.tensor(maps).T.contiguous(), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(encoded.pooled[number], torch.tensor([max(each) for each in maps]))


@torch.no_grad()
def test_mean_and_maximum_over_the_words_of_the_text_can_both_be_read() -> None:
    model = make(pooling="mean-max")
    encoded = model.encode(batch_of(ROWS))
    assert model.encoder_dims().pooled == encoded.pooled.shape[1] == 2 * encoded.layers[0].shape[2]
    for number, row in enumerate(ROWS):
        maps = encoded.layers[0][number, : len(row)]
        torch.testing.assert_close(encoded.pooled[number], torch.cat((maps.mean(dim=0), maps.amax(dim=0))))


@torch.no_grad()
def test_characters_give_every_token_a_second_vector() -> None:
    model = make(characters=7, widths=[1])
    tokens = batch_of(ROWS).tokens
    words = model.embed(tokens)
    assert words.shape[2] == model.config.embedding_dim + 7
    assert model.spelling is not None
    torch.testing.assert_close(words[:, :, -7:], model.spelling(tokens))
    torch.testing.assert_close(words[:, :, :-7], model.embedding(tokens))


def test_both_channels_start_from_the_same_vectors_and_one_is_trained() -> None:
    model, batch = make(channels="multichannel"), batch_of(ROWS)
    matrix = torch.randn(9, 5)
    vectors = Vectors(WORDS.tokens[4:], matrix.numpy())
    assert load_vectors(model.input_embedding(), spellings_of(WORDS), vectors, scaled=False).share == 1.0
    static, trained = tables_of(model)
    assert torch.equal(static, trained) and torch.equal(static[4:], matrix)
    model(batch).sum().backward()
    assert model.embedding.weight.grad is None and model.trained_change is not None
    assert model.trained_change.weight.grad is not None and model.trained_change.weight.grad[5].abs().sum() > 0


@pytest.mark.parametrize(("channels", "is_trained"), [("static", False), ("trained", True)])
def test_static_vectors_are_not_trained(channels: str, is_trained: bool) -> None:
    assert make(channels=channels).embedding.weight.requires_grad == is_trained
    assert make(channels=channels).trained_change is None


def test_the_paper_has_300_feature_maps_over_vectors_of_300() -> None:
    model = CNN(Config(), WORDS)
    assert model.encoder_dims().pooled == 300
    filters = sum(weight.numel() for weight in model.convolutions.parameters())
    assert filters == (3 + 4 + 5) * 300 * 100 + 300


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"widths": []}, "widths"),
        ({"widths": [0]}, "widths"),
        ({"filters": 0}, "filters"),
        ({"dropout": 1.0}, "drop"),
        ({"characters": -1}, "characters"),
        ({"jamo": True}, "jamo"),
    ],
)
def test_impossible_shapes_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Config(**options)
