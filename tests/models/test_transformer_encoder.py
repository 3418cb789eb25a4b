"""The Transformer encoder: equal to torch's own layers on the same weights; pooling, the class token, positions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mallang.data.batch import Batch, pad_rows
from mallang.errors import UserError
from mallang.layers.attention import record_attention
from mallang.models.transformer_encoder import Config, TransformerEncoder
from mallang.text.vocabulary import SPECIALS, Vocabulary

WORDS = Vocabulary((*SPECIALS, *(f"w{number}" for number in range(9))))
ROWS = [[4, 5, 6, 7, 8, 3], [9, 3], [3], [4, 4, 12, 11, 10, 9, 8, 3]]
POOLINGS = ("mean", "max", "mean-max", "first")


def make(**options: Any) -> TransformerEncoder:
    torch.manual_seed(1)
    shape = {"layers": 2, "dim": 8, "heads": 2, "hidden_dim": 12}
    model = TransformerEncoder(Config(**{**shape, **options}), WORDS).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape) * 0.1)  # biases start at zero, norms at one
    return model


def batch_of(rows: list[list[int]]) -> Batch:
    tokens, lengths = pad_rows(rows)
    return Batch(tokens=tokens, lengths=lengths)


def torchs(model: TransformerEncoder) -> nn.TransformerEncoder:
    """torch's encoder with the same weights."""
    config = model.config
    layer = nn.TransformerEncoderLayer(
        config.dim, config.heads, config.hidden_dim, 0.0, batch_first=True, norm_first=config.norm == "pre"
    )
    norm = nn.LayerNorm(config.dim) if config.norm == "pre" else None
    other = nn.TransformerEncoder(layer, config.layers, norm, enable_nested_tensor=False).eval()
    with torch.no_grad():
        for theirs, ours in zip(other.layers, model.encoder, strict=True):
            attention: Any = theirs.self_attn
            attention.in_proj_weight.copy_(ours.self_attention.query_key_value.weight)
            attention.in_proj_bias.copy_(ours.self_attention.query_key_value.bias)
            pairs = (
                (attention.out_proj, ours.self_attention.output),
                (theirs.linear1, ours.feedforward.up_proj),
                (theirs.linear2, ours.feedforward.down_proj),
                (theirs.norm1, ours.self_norm),
                (theirs.norm2, ours.feedforward_norm),
                *(((norm, model.encoder_norm),) if norm is not None else ()),
            )
            for there, here in pairs:
                there.weight.copy_(here.weight)
                there.bias.copy_(here.bias)
        if norm is not None:
            other.norm.load_state_dict(model.encoder_norm.state_dict())  # type: ignore[union-attr]
    return other


def expected(model: TransformerEncoder, row: list[int]) -> tuple[Tensor, Tensor]:
    """The vectors of the words of one text, without any padding, and the vector of the text."""
    x = model.embedding(torch.tensor([row]))
    if model.class_token is not None:
        x = torch.cat((model.class_token[None, None], x), dim=1)
    x = torchs(model)(x)[0]
    words = x if model.class_token is None else x[1:]
    pools = {"mean": x.mean(dim=0), "max": x.amax(dim=0), "first": x[0]}
    pools["mean-max"] = torch.cat((pools["mean"], pools["max"]))
    return words, pools[model.config.pooling]


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("norm", ["post", "pre"])
@torch.no_grad()
def test_it_is_torchs_encoder_and_a_pool_over_its_words(pooling: str, norm: str) -> None:
    model = make(pooling=pooling, norm=norm)
    encoded = model.encode(batch_of(ROWS))
    assert len(encoded.layers) == 2 and encoded.pooled.shape[1] == model.encoder_dims().pooled
    for number, row in enumerate(ROWS):
        words, text = expected(model, row)
        torch.testing.assert_close(encoded.layers[-1][number, : len(row)], words, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(encoded.pooled[number], text, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_the_class_token_attends_to_the_words_and_nobody_to_padding() -> None:
    model, batch = make(pooling="first"), batch_of(ROWS)
    with record_attention(model) as maps:
        model(batch)
    assert list(maps) == ["encoder.0.self", "encoder.1.self"]
    for weights in maps.values():
        assert weights.shape == (4, 2, 9, 9)
        for number, row in enumerate(ROWS):
            assert (weights[number, :, 0, : len(row) + 1] > 0).all() and not weights[number, :, :, len(row) + 1 :].any()


@torch.no_grad()
def test_order_matters_unless_there_are_no_positions() -> None:
    there, back = batch_of([[4, 5, 6]]), batch_of([[6, 5, 4]])
    for positions, is_alike in (("sinusoidal", False), ("none", True)):
        model = make(positions=positions)
        assert torch.allclose(model(there), model(back), atol=1e-5) == is_alike


@torch.no_grad()
def test_learned_positions_have_an_end() -> None:
    model = make(positions="learned", max_length=3, pooling="first")
    assert model.longest == 3 and make().longest is None
    assert model(batch_of([[4, 5, 6]])).shape == (1, 8)  # the class token needs no position
    with pytest.raises(UserError, match="4 tokens, but the model learned only 3"):
        model(batch_of([[4, 5, 6, 3]]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dim": 9}, "divided among"),
        ({"dim": 9, "heads": 3}, "odd"),
        ({"max_length": 9}, "no effect"),
        ({"positions": "learned"}, "need max_length"),
        ({"layers": 0}, "layers"),
    ],
)
def test_impossible_shapes_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Config(**options)
