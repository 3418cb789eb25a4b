"""BERT's own facts: its parameters counted, its three embeddings, its pooler and the heads of its pre-training."""

from __future__ import annotations

import math

import pytest
import torch

from mallang.data.batch import Batch
from mallang.errors import UserError
from mallang.layers.attention import record_attention
from mallang.models.bert import BERT, SIZES, Config
from mallang.models.contract import Encoder, marks_of
from mallang.text.vocabulary import SPECIALS, Vocabulary

WORDS = 23
SMALL = {"layers": 2, "dim": 16, "heads": 2, "max_length": 12, "dropout": 0.0, "attention_dropout": 0.0}
HEADS = {"pretraining_heads": "both"}


def words(count: int) -> Vocabulary:
    return Vocabulary((*SPECIALS, *(f"w{number}" for number in range(len(SPECIALS), count))))


def made(**changes: object) -> BERT:
    torch.manual_seed(2)
    model = BERT(Config(**{**SMALL, **changes}), words(WORDS)).eval()  # type: ignore[arg-type]
    with torch.no_grad():
        for weight in model.parameters():  # norms and biases too
            weight.add_(torch.randn_like(weight) * 0.2)
    return model


def batch(**more: torch.Tensor) -> Batch:
    tokens = torch.tensor([[4, 9, 5, 11, 5], [4, 8, 5, 0, 0]])
    return Batch(tokens=tokens, lengths=torch.tensor([5, 3]), **more)


@pytest.mark.parametrize(
    ("size", "encoder", "with_heads", "paper"),
    [
        ("tiny", 4_385_920, 4_433_468, None),
        ("base", 109_482_240, 110_106_428, 110e6),
        ("large", 335_141_888, 336_226_108, 340e6),
    ],
)
def test_the_parameters_are_those_of_transformers(
    size: str, encoder: int, with_heads: int, paper: float | None
) -> None:
    """110M and 340M in the paper are these, rounded: the encoder with its pooler, and with both heads."""
    transformers = pytest.importorskip("transformers")
    vocabulary, shape = words(30_522), SIZES[size]
    config = transformers.BertConfig(
        hidden_size=shape["dim"], num_hidden_layers=shape["layers"], num_attention_heads=shape["heads"],
        intermediate_size=4 * shape["dim"],
    )  # fmt: skip
    with torch.device("meta"):
        found = [BERT(Config(**shape, **more), vocabulary) for more in ({}, HEADS)]
        theirs = [transformers.BertModel(config), transformers.BertForPreTraining(config)]
    counts = [[sum(each.numel() for each in model.parameters()) for model in models] for models in (found, theirs)]
    assert counts[0] == counts[1] == [encoder, with_heads]
    assert paper is None or all(abs(each / paper - 1) < 0.04 for each in counts[0])


def test_roberta_has_two_rows_of_positions_that_no_token_reads() -> None:
    model = made(position_offset=2, token_types=1)
    assert model.embedding.positions.table.weight.shape == (14, 16)
    before = model(batch())
    with torch.no_grad():
        model.embedding.positions.table.weight[:2].add_(1.0)
    assert torch.equal(model(batch()), before)
    with torch.no_grad():
        model.embedding.positions.table.weight[2].add_(1.0)
    assert not torch.equal(model(batch()), before)


@torch.no_grad()
def test_the_embedding_is_the_norm_of_the_sum_of_three_vectors() -> None:
    model = made()
    types = torch.tensor([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]])
    found = model.embedding(batch().tokens, types)
    for row, column in ((0, 1), (0, 4), (1, 2)):
        part = model.embedding
        summed = part.words.weight[batch().tokens[row, column]] + part.positions.table.weight[column]
        summed = summed + part.token_types.weight[types[row, column]]
        scaled = (summed - summed.mean()) / (summed.var(correction=0) + 1e-12).sqrt()
        expected = scaled * part.norm.weight + part.norm.bias
        torch.testing.assert_close(found[row, column], expected, atol=1e-6, rtol=1e-5)
    assert torch.equal(model.embedding(batch().tokens), model.embedding(batch().tokens, torch.zeros_like(types)))


@torch.no_grad()
def test_every_token_attends_to_both_sides_and_none_to_padding() -> None:
    model = made()
    with record_attention(model) as maps:
        model(batch())
    assert list(maps) == ["encoder.0.self", "encoder.1.self"]
    for weights in maps.values():
        assert (weights[0] > 0).all() and (weights[1, :, :, :3] > 0).all() and (weights[1, :, :, 3:] == 0).all()


@torch.no_grad()
def test_three_kinds_of_pooling() -> None:
    encoded = made().encode(batch())
    hidden, model = encoded.layers[-1], made()
    assert model.pooler is not None and isinstance(model, Encoder)
    by_hand = torch.tanh(hidden[:, 0] @ model.pooler.weight.T + model.pooler.bias)
    torch.testing.assert_close(encoded.pooled, by_hand)
    assert torch.equal(made(pooling="first").encode(batch()).pooled, hidden[:, 0])
    mean = made(pooling="mean", normalized=True).encode(batch()).pooled
    by_hand = torch.stack([hidden[0].mean(0), hidden[1, :3].mean(0)])
    torch.testing.assert_close(mean, by_hand / by_hand.norm(dim=1, keepdim=True))


@torch.no_grad()
def test_the_heads_of_the_pre_training_by_hand() -> None:
    model = made(**HEADS)
    hidden, head = model(batch()), model.masked_lm
    assert head is not None and model.next_sentence is not None
    x = hidden @ head.transform.weight.T + head.transform.bias
    x = x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))
    x = (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + 1e-12).sqrt()
    x = x * head.norm.weight + head.norm.bias
    expected = x @ model.embedding.words.weight.T + head.decoder.bias
    torch.testing.assert_close(model.output(hidden), expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(model.output(hidden[:, 1]), expected[:, 1], atol=1e-4, rtol=1e-4)
    two = model.pooled(hidden) @ model.next_sentence.weight.T + model.next_sentence.bias
    torch.testing.assert_close(model.next_sentence_logits(hidden), two)


def test_what_a_model_was_built_without_is_named() -> None:
    model = made()
    hidden = model(batch())
    with pytest.raises(UserError, match="without its masked LM head"):
        model.output(hidden)
    with pytest.raises(UserError, match="without its next sentence head"):
        model.next_sentence_logits(hidden)
    with pytest.raises(ValueError, match="pooling = 'pooler' needs pooler"):
        Config(pooler=False)
    with pytest.raises(ValueError, match="pretraining_heads = 'both' needs pooler"):
        Config(pooler=False, pooling="mean", pretraining_heads="both")
    with pytest.raises(ValueError, match="cannot be divided among 5 heads"):
        Config(heads=5)


def test_a_text_that_is_too_long_is_refused_by_its_own_length() -> None:
    long = Batch(tokens=torch.full((1, 13), 5), lengths=torch.tensor([13]))
    with pytest.raises(UserError, match="13 tokens, but the model learned only 12 positions"):
        made(position_offset=2)(long)


def test_its_texts_are_framed_by_cls_and_sep() -> None:
    assert marks_of(BERT) == ("cls", "sep", "mask")
    plain = words(WORDS)
    assert plain.frame == (None, plain.eos) and plain.frame_length == 1
    marked = Vocabulary.named([*SPECIALS, "<cls>", "<sep>"], {"cls": "<cls>", "sep": "<sep>"})
    assert marked.frame == (4, 5) and marked.frame_length == 2
    assert Vocabulary.named([*SPECIALS, "<sep>"], {"sep": "<sep>"}).frame == (None, 3)


@pytest.mark.parametrize("pooling", ["pooler", "first", "mean"])
def test_a_text_is_pooled_from_the_last_of_three_layers(pooling: str) -> None:
    model, given = made(layers=3, pooling=pooling), batch()
    found = model.encode(given)
    last = found.layers[2]
    expected = {
        "pooler": lambda: (last[:, 0] @ model.pooler.weight.T + model.pooler.bias).tanh(),
        "first": lambda: last[:, 0],
        "mean": lambda: torch.stack([last[0].mean(dim=0), last[1, :3].mean(dim=0)]),
    }[pooling]()
    assert len(found.layers) == 3
    torch.testing.assert_close(found.pooled, expected)
