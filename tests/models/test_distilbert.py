"""DistilBERT's own facts: half of BERT's blocks, without token types and pooler; its parameters counted."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mallang.data.batch import Batch
from mallang.errors import UserError
from mallang.models import bert
from mallang.models.distilbert import Config, DistilBERT
from mallang.text.vocabulary import SPECIALS, Vocabulary

SMALL: dict[str, Any] = {"layers": 2, "dim": 16, "heads": 2, "max_length": 12}


def words(count: int) -> Vocabulary:
    return Vocabulary((*SPECIALS, *(f"w{number}" for number in range(len(SPECIALS), count))))


def made(**changes: Any) -> DistilBERT:
    torch.manual_seed(2)
    return DistilBERT(Config(**{**SMALL, **changes}), words(23)).eval()


def batch() -> Batch:
    return Batch(tokens=torch.tensor([[4, 9, 5, 11, 5], [4, 8, 5, 0, 0]]), lengths=torch.tensor([5, 3]))


def test_the_parameters_are_those_of_transformers_and_of_the_paper() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.DistilBertConfig()
    with torch.device("meta"):
        ours = [DistilBERT(Config(**more), words(30_522)) for more in ({}, {"pretraining_heads": "masked-lm"})]
        theirs = [transformers.DistilBertModel(config), transformers.DistilBertForMaskedLM(config)]
    counts = [[sum(each.numel() for each in model.parameters()) for model in models] for models in (ours, theirs)]
    assert counts[0] == counts[1] == [66_362_880, 66_985_530]
    assert abs(counts[0][0] / 66e6 - 1) < 0.04


@torch.no_grad()
def test_it_is_a_bert_whose_token_types_are_zero() -> None:
    """With the weights of a BERT whose token types are zero vectors both compute the same."""
    model = made()
    torch.manual_seed(3)
    other = bert.BERT(bert.Config(**SMALL, pooling="first", pooler=False), words(23)).eval()
    assert other.embedding.token_types is not None
    other.embedding.token_types.weight.zero_()
    own = {name: value for name, value in other.state_dict().items() if "token_types" not in name}
    model.load_state_dict(own)
    torch.testing.assert_close(model(batch()), other(batch()))
    torch.testing.assert_close(model.encode(batch()).pooled, other.encode(batch()).pooled)


@torch.no_grad()
def test_the_pooler_is_relu_of_a_linear_layer_over_cls() -> None:
    model = made(pooling="pooler")
    hidden, pooler = model(batch()), model.pooler
    assert pooler is not None
    expected = (hidden[:, 0] @ pooler.weight.T + pooler.bias).clamp(min=0)
    torch.testing.assert_close(model.encode(batch()).pooled, expected)
    mean = made(pooling="mean").encode(batch())
    torch.testing.assert_close(mean.pooled[1], mean.layers[-1][1, :3].mean(0))


def test_what_a_model_was_built_without_is_named() -> None:
    with pytest.raises(UserError, match="this DistilBERT was built without its masked LM head"):
        made().output(torch.zeros(1, 16))
    assert made(pretraining_heads="masked-lm").output(torch.zeros(1, 16)).shape == (1, 23)
