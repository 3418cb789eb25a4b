"""ERNIE: the fusion against loops over tokens and entities, BERT's path without entities, padding, and the start."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from mallang.data.batch import Batch, Shapes
from mallang.errors import UserError
from mallang.models import bert, transe
from mallang.models.contract import ReadsEntities
from mallang.models.ernie import ERNIE, SIZES, Config, Entities, KnowledgeBlock
from mallang.runs.weights import own_weights
from mallang.text.vocabulary import SPECIALS, Vocabulary

WORDS, GRAPH = 20, 14
VOCABULARY = Vocabulary((*SPECIALS, *(f"w{number}" for number in range(4, WORDS))))
ENTITIES = Vocabulary((*SPECIALS, *(f"e{number}" for number in range(4, GRAPH))))


def shaken(model: nn.Module) -> Any:
    """The model with weights that are all different, norms and biases too."""
    torch.manual_seed(3)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.2)
    return model.eval()


def graph() -> nn.Module:
    torch.manual_seed(1)
    return transe.TransE(transe.Config(dim=8, scale=1.0), ENTITIES, relations=2).eval()


def made(**changes: Any) -> ERNIE:
    config = Config(**{**SIZES["tiny"], "max_length": 16, "dropout": 0.0, "attention_dropout": 0.0, **changes})
    model = shaken(ERNIE(config, VOCABULARY))
    model.give_graph(graph())
    return model  # type: ignore[no-any-return]


def batch(*, entities: list[list[int]] | None = None, places: list[list[int]] | None = None) -> Batch:
    tokens = torch.tensor([[5, 9, 6, 11, 7, 8], [5, 8, 7, 0, 0, 0]])
    found = Batch(tokens=tokens, lengths=torch.tensor([6, 3]))
    if entities is None:
        return found
    return replace(found, entities=torch.tensor(entities), entity_places=torch.tensor(places))


LINKED: dict[str, Any] = {"entities": [[5, 9, 7], [6, -1, -1]], "places": [[1, 3, 4], [2, -1, -1]]}


def attended(part: Any, vectors: Tensor, heads: int) -> Tensor:
    """Self-attention over the rows of one text, head by head and pair by pair."""
    dim = vectors.shape[1] // heads
    query, key, value = (vectors @ w.T + b for w, b in zip(
        part.query_key_value.weight.chunk(3), part.query_key_value.bias.chunk(3), strict=True))  # fmt: skip
    found = torch.zeros_like(vectors)
    for head in range(heads):
        own = slice(head * dim, (head + 1) * dim)
        for i in range(len(vectors)):
            scores = torch.stack([query[i, own] @ key[j, own] / dim**0.5 for j in range(len(vectors))])
            found[i, own] = sum(p * value[j, own] for j, p in enumerate(scores.softmax(dim=0)))  # type: ignore[assignment]
    return found @ part.output.weight.T + part.output.bias  # type: ignore[no-any-return]


def by_loops(block: KnowledgeBlock, x: Tensor, e: Tensor, places: list[int]) -> tuple[Tensor, Tensor | None]:
    """One layer of the K-Encoder for one text, as the paper's equations 3 to 5 and its code say it."""

    def norm(vector: Tensor, by: nn.LayerNorm) -> Tensor:
        return F.layer_norm(vector, vector.shape[-1:], by.weight, by.bias, by.eps)

    tokens = norm(x + attended(block.self_attention, x, 2), block.self_norm)
    entities = norm(e + attended(block.entity_attention, e, 2), block.entity_norm)
    up, down = block.feedforward.up_proj, block.feedforward.down_proj
    new_tokens, new_entities = [], []
    for j, token in enumerate(tokens):
        raised = up.weight @ token + up.bias
        for k, place in enumerate(places):
            if place == j:
                raised = raised + block.entity_up.weight @ entities[k]
        hidden = F.gelu(raised)
        new_tokens.append(norm(token + down.weight @ hidden + down.bias, block.feedforward_norm))
        for k, place in enumerate(places):
            if place == j and block.entity_down is not None and block.entity_output_norm is not None:
                change = block.entity_down.weight @ hidden + block.entity_down.bias
                new_entities.append((k, norm(entities[k] + change, block.entity_output_norm)))
    return torch.stack(new_tokens), torch.stack([e for _, e in sorted(new_entities)]) if new_entities else None


@torch.no_grad()
def test_the_fusion_against_loops() -> None:
    model, given = made(), batch(**LINKED)
    block = model.encoder[1]
    entities = model.entities_of(given)
    assert isinstance(block, KnowledgeBlock) and entities is not None
    torch.manual_seed(5)
    x, mask = torch.randn(2, 6, 16), given.mask[:, None, None, :]
    tokens, after = block(x, mask, entities)
    last, nothing = model.encoder[2](x, mask, entities)
    assert nothing is None and isinstance(after, Entities)
    for row, (length, count) in enumerate([(6, 3), (3, 1)]):
        places = given.entity_places[row, :count].tolist()  # type: ignore[index]
        own = x[row, :length], entities.vectors[row, :count], places
        expected, vectors = by_loops(block, *own)
        torch.testing.assert_close(tokens[row, :length], expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(after.vectors[row, :count], vectors, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(last[row, :length], by_loops(model.encoder[2], *own)[0], rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_without_entities_it_is_bert_with_the_same_weights() -> None:
    ernie = made(pretraining_heads="both")
    shape = bert.Config(layers=3, dim=16, heads=2, max_length=16, pretraining_heads="both")
    plain: Any = bert.BERT(shape, VOCABULARY).eval()
    weights = own_weights(ernie)
    plain.load_state_dict({name: weights[name] for name in own_weights(plain)}, strict=False)
    missing = {name for name in weights if name not in own_weights(plain)}
    assert missing and all("entity" in name for name in missing)
    for each in (batch(), batch(entities=[[-1], [-1]], places=[[-1], [-1]])):
        torch.testing.assert_close(ernie(each), plain(each))
        torch.testing.assert_close(ernie.encode(each).pooled, plain.encode(each).pooled)
        torch.testing.assert_close(ernie.output(ernie(each)), plain.output(plain(each)))
        logits = ernie.next_sentence_logits(ernie(each))
        torch.testing.assert_close(logits, plain.next_sentence_logits(plain(each)))
    assert not torch.allclose(ernie(batch(**LINKED)), plain(batch()), atol=1e-3)


@settings(deadline=None, max_examples=10)
@given(filler=st.integers(0, WORDS - 1), multiple=st.integers(2, 9))
@torch.no_grad()
def test_neither_padding_nor_the_texts_beside_it_change_a_text(filler: int, multiple: int) -> None:
    model, both = made(), batch(**LINKED)
    whole = model.encode(both)
    padded = Shapes(tokens=64, multiple=multiple).fill(both)
    assert padded.entities is not None and padded.entities.shape[1] >= 3
    tokens = padded.tokens.masked_fill(~padded.mask, filler)
    if tokens.shape[1] <= 16:
        torch.testing.assert_close(model.encode(replace(padded, tokens=tokens)).pooled[:2], whole.pooled)
    for row, length in enumerate((6, 3)):
        alone = both.map(lambda tensor, row=row: tensor[row : row + 1])
        alone = replace(alone, tokens=alone.tokens[:, :length])
        torch.testing.assert_close(model.encode(alone).pooled[0], whole.pooled[row])
        torch.testing.assert_close(model(alone)[0], model(both)[row, :length])


@torch.no_grad()
def test_the_order_of_the_entities_does_not_matter_but_which_they_are_does() -> None:
    model = made()
    usual = model(batch(**LINKED))
    turned = model(batch(entities=[[7, 5, 9], [-1, 6, -1]], places=[[4, 1, 3], [-1, 2, -1]]))
    torch.testing.assert_close(usual, turned)
    assert not torch.allclose(usual, model(batch(entities=[[5, 9, 8], [6, -1, -1]], places=LINKED["places"])))


@torch.no_grad()
def test_entities_are_told_by_a_product_with_their_vectors() -> None:
    model = made(predict_entities=True)
    candidates, hidden = torch.tensor([9, 5]), torch.randn(2, 3, 16)
    logits = model.entity_logits(hidden, candidates)
    assert model.entity_head is not None and model.objectives == ("entities",)
    vectors = graph().embedding.weight  # type: ignore[union-attr]
    for i in range(2):
        for j in range(3):
            asked = model.entity_head.weight @ hidden[i, j] + model.entity_head.bias
            for c, entity in enumerate((9, 5)):
                assert float(logits[i, j, c]) == pytest.approx(float(asked @ vectors[entity]), rel=1e-4, abs=1e-5)


def test_the_graph_is_neither_saved_nor_trained_but_moves_along() -> None:
    model = made(predict_entities=True)
    assert isinstance(model, ReadsEntities) and model.entity_dim == 8
    assert not any("graph" in name for name in model.state_dict())
    assert not any(parameter.shape == (GRAPH, 8) for parameter in model.parameters())
    model(batch(**LINKED)).sum().backward()
    assert model.graph is not None and all(each.grad is None for each in model.graph.module.parameters())
    assert model.to(torch.float64).graph.module.embedding.weight.dtype == torch.float64  # type: ignore[union-attr]


def test_what_is_missing_is_named() -> None:
    model = ERNIE(Config(**SIZES["tiny"]), VOCABULARY)
    with pytest.raises(UserError, match="without its graph") as caught:
        model(batch(**LINKED))
    assert "given.entities" in (caught.value.todo or "")
    for ask in (lambda: model.output(torch.zeros(1, 16)), lambda: model.next_sentence_logits(torch.zeros(1, 2, 16))):
        with pytest.raises(UserError, match="built without its"):
            ask()
    with pytest.raises(UserError, match="predict_entities=true|without its head for entities"):
        model.entity_logits(torch.zeros(1, 16), torch.tensor([4]))
    for wrong in ({"entity_dim": 9}, {"heads": 3}, {"norm_epsilon": 0.0}):
        with pytest.raises(ValueError, match=r"divided|above 0"):
            Config(**{**SIZES["tiny"], **wrong})
    with pytest.raises(ValueError, match="needs pooling"):
        Config(**SIZES["tiny"], pooling="mean", pretraining_heads="both")


def test_layers_are_declared_once_each() -> None:
    model = made(pretraining_heads="both", predict_entities=True)
    groups = [{id(p) for part in group for p in part.parameters()} for group in model.layer_groups()]
    assert len(groups) == 1 + 3 and set().union(*groups) == {id(p) for p in model.parameters()}
    assert sum(map(len, groups)) == len(set().union(*groups))
