"""The character CNN: equal to explicit loops over layers, windows and pools, whatever the length of a text."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from mallang.data.batch import Batch, pad_rows
from mallang.models.char_cnn import CharCNN, Config, max_pool
from mallang.text.vocabulary import SPECIALS, Vocabulary

LETTERS = Vocabulary((*SPECIALS, *"abcdefghi"))
ROWS = [[4, 5, 6, 7, 8, 9, 3], [9, 3], [3], [4, 4, 12, 11, 10, 9, 8, 7, 6, 5, 4, 5, 3]]


def make(**options: Any) -> CharCNN:
    torch.manual_seed(1)
    shape = {"embedding_dim": 4, "dim": 6, "widths": [3, 4, 2], "pools": [3, 1, 2], "hidden_dim": 5}
    return CharCNN(Config(**{**shape, **options}), LETTERS).eval()


def convolved(convolution: Any, x: list[Tensor], width: int) -> list[Tensor]:
    """ReLU(W [x_{i−left} … x_{i+right}] + b) at every position, with zeros beyond the ends."""
    nothing, found = torch.zeros_like(x[0]), []
    for place in range(len(x)):
        places = [place + offset - (width - 1) // 2 for offset in range(width)]
        window = torch.cat([x[each] if 0 <= each < len(x) else nothing for each in places])
        found.append((convolution.linear.weight @ window + convolution.linear.bias).clamp(min=0))
    return found


def explicit(model: CharCNN, row: list[int]) -> Tensor:
    """One text by itself, position by position."""
    x = [model.embedding.weight[token] for token in row]
    for convolution, width, pool in zip(model.convolutions, model.config.widths, model.config.pools, strict=True):
        x = convolved(convolution, x, width)
        x = [torch.stack(x[begin : begin + pool]).amax(dim=0) for begin in range(0, len(x), pool)]
    return (model.hidden.weight @ torch.stack(x).amax(dim=0) + model.hidden.bias).clamp(min=0)


@torch.no_grad()
def test_it_is_a_loop_over_layers_windows_and_pools() -> None:
    model = make()
    for weight in model.parameters():
        weight.add_(torch.randn(weight.shape) * 0.3)  # biases start at zero
    tokens, lengths = pad_rows(ROWS)
    found = model.encode(Batch(tokens=tokens, lengths=lengths))
    assert not found.layers and model.encoder_dims().token is None
    for pooled, row in zip(found.pooled, ROWS, strict=True):
        torch.testing.assert_close(pooled, explicit(model, row), atol=1e-5, rtol=1e-5)


def test_pooling_joins_what_is_left_over() -> None:
    x = torch.tensor([[[1.0], [3.0], [2.0], [5.0], [0.0]], [[4.0], [0.0], [0.0], [0.0], [0.0]]])
    found, lengths = max_pool(x, torch.tensor([4, 1]), 3)
    assert found[:, :, 0].tolist() == [[3.0, 5.0], [4.0, 0.0]] and lengths.tolist() == [2, 1]
    assert max_pool(x, lengths, 1)[0] is x


def test_the_paper_has_six_layers() -> None:
    model = CharCNN(Config(), LETTERS)
    shapes = [tuple(convolution.linear.weight.shape) for convolution in model.convolutions]  # type: ignore[union-attr]
    assert shapes == [(256, 7 * 64), (256, 7 * 256), *[(256, 3 * 256)] * 4]


@pytest.mark.parametrize("options", [{"widths": [3]}, {"pools": []}, {"widths": [3, 0, 1]}, {"hidden_dim": 0}])
def test_impossible_shapes_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="widths|pools|hidden_dim"):
        Config(**options)
