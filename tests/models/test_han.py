"""HAN equals its formulas written as loops over words, sentences and documents."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mallang.data.batch import Batch, Shapes, pad_rows
from mallang.layers.attention import record_attention
from mallang.models.han import Config, Model
from mallang.text.vocabulary import SPECIALS, Vocabulary

WORDS = 20
VOCABULARY = Vocabulary((*SPECIALS, *(f"w{i}" for i in range(4, WORDS))))
KINDS = ("att", "ave", "max")
Document = list[list[int]]
every_kind = pytest.mark.parametrize("kind", KINDS)
documents = st.lists(
    st.lists(st.lists(st.integers(4, WORDS - 1), min_size=1, max_size=6), min_size=1, max_size=4),
    min_size=1,
    max_size=4,
)
some = settings(deadline=None, max_examples=15)


def build(kind: str = "att", **changes: Any) -> Any:
    torch.manual_seed(3)
    model = Model(Config(embedding_dim=5, dim=4, attention=kind, **changes), VOCABULARY).eval()
    with torch.no_grad():  # biases that matter
        for name, weight in model.named_parameters():
            if name.endswith("hidden.bias"):
                weight.normal_()
            elif "bias" in name:
                weight[: 2 * 4].normal_()  # the candidate part stays zero
    return model


def batch_of(given: list[Document]) -> Batch:
    tokens, lengths = pad_rows([sentence for document in given for sentence in document])
    ends = np.cumsum([0, *map(len, given)])
    rows = [np.arange(begin, end) for begin, end in pairwise(ends)]
    return Batch(tokens=tokens, lengths=lengths, sentences=pad_rows(rows, -1)[0])


def gru(cell: Any, inputs: list[Tensor]) -> list[Tensor]:
    """h = z∘h + (1−z)∘n, one position after the other."""
    state, states = torch.zeros(cell.hidden_size), []
    for x in inputs:
        given = (cell.weight_ih_l0 @ x + cell.bias_ih_l0).chunk(3)
        own = (cell.weight_hh_l0 @ state + cell.bias_hh_l0).chunk(3)
        reset, update = (given[0] + own[0]).sigmoid(), (given[1] + own[1]).sigmoid()
        new = torch.tanh(given[2] + reset * own[2])
        state = update * state + (1 - update) * new
        states.append(state)
    return states


def both_ways(reader: Any, inputs: list[Tensor]) -> list[Tensor]:
    there, back = gru(reader.forwards[0], inputs), gru(reader.backwards[0], inputs[::-1])[::-1]
    return [torch.cat(pair) for pair in zip(there, back, strict=True)]


def pooled(kind: str, layer: Any, states: list[Tensor]) -> tuple[Tensor, list[float]]:
    """The vector of one sentence or document, and the weights."""
    if kind == "ave":
        return sum(states[1:], states[0]) / len(states), []
    if kind == "max":
        return torch.stack([max(values) for values in zip(*states, strict=True)]), []
    scores = []
    for state in states:
        u = torch.tanh(layer.hidden.weight @ state + layer.hidden.bias)
        scores.append(torch.exp(u @ layer.context))
    weights = [score / sum(scores) for score in scores]
    return sum((weight * state for weight, state in zip(weights, states, strict=True)), torch.zeros(8)), [
        float(weight) for weight in weights
    ]


def by_loops(model: Any, document: Document) -> tuple[Tensor, list[list[float]], list[float]]:
    """The vector of a document, the weights of the words of each sentence, and those of the sentences."""
    kind, sentences, of_words = model.config.attention, [], []
    for sentence in document:
        states = both_ways(model.word_reader, [model.embedding.weight[word] for word in sentence])
        vector, weights = pooled(kind, model.word_attention, states)
        sentences.append(vector)
        of_words.append(weights)
    vector, weights = pooled(kind, model.sentence_attention, both_ways(model.sentence_reader, sentences))
    return vector, of_words, weights


def close(found: Any, expected: Any) -> None:
    torch.testing.assert_close(torch.as_tensor(found), torch.as_tensor(expected), rtol=1e-5, atol=1e-6)


@every_kind
@some
@given(given=documents)
@torch.no_grad()
def test_it_equals_explicit_loops(kind: str, given: list[Document]) -> None:
    model = build(kind)
    with record_attention(model) as maps:
        found = model(batch_of(given))
    row = 0
    for number, document in enumerate(given):
        vector, of_words, of_sentences = by_loops(model, document)
        close(found[number], vector)
        if kind != "att":
            assert maps == {}
            continue
        close(maps["sentence"][number, 0, 0, : len(document)], of_sentences)
        assert not maps["sentence"][number, 0, 0, len(document) :].any()
        for sentence, weights in zip(document, of_words, strict=True):
            close(maps["word"][row, 0, 0, : len(sentence)], weights)
            assert not maps["word"][row, 0, 0, len(sentence) :].any()
            row += 1


@every_kind
@some
@given(given=documents, filler=st.integers(0, WORDS - 1), budget=st.sampled_from((1, 100, 400)))
@torch.no_grad()
def test_padding_of_words_sentences_and_documents_changes_nothing(
    kind: str, given: list[Document], filler: int, budget: int
) -> None:
    model, batch = build(kind), batch_of(given)
    filled = Shapes(budget, multiple=8).fill(batch)
    assert len(filled.sentences) > len(given) and filled.tokens.shape[1] == 8
    filled.tokens[len(batch) :] = filler
    filled.tokens[: len(batch), batch.tokens.shape[1] :] = filler
    found = model(filled)
    assert found.isfinite().all()
    close(found[: len(given)], model(batch))


@every_kind
@some
@given(given=documents, data=st.data())
@torch.no_grad()
def test_documents_in_a_batch_are_as_alone_whatever_the_order_of_their_rows(
    kind: str, given: list[Document], data: st.DataObject
) -> None:
    model, batch = build(kind), batch_of(given)
    found = model(batch)
    for number, document in enumerate(given):
        close(found[number], model(batch_of([document]))[0])
    order = torch.tensor(data.draw(st.permutations(range(len(batch)))))
    places = torch.where(batch.sentences < 0, -1, order.argsort()[batch.sentences.clamp(min=0)])
    moved = Batch(tokens=batch.tokens[order], lengths=batch.lengths[order], sentences=places)
    close(model(moved), found)


@torch.no_grad()
def test_a_batch_without_documents_is_one_sentence_each() -> None:
    model, sentences = build(), [[4, 5, 6], [7], [8, 9]]
    tokens, lengths = pad_rows(sentences)
    close(model(Batch(tokens=tokens, lengths=lengths)), model(batch_of([[each] for each in sentences])))


@every_kind
def test_gradients_reach_everything_and_no_filler_spoils_them(kind: str) -> None:
    model = build(kind).train()
    batch = Shapes(200, multiple=8).fill(batch_of([[[4, 5], [6]], [[7, 8, 9]]]))
    out = model(batch)
    assert len(out) == 8
    out[:2].pow(2).sum().backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None and weight.grad.isfinite().all() and weight.grad.any(), name
    assert model.embedding.weight.grad.any(dim=1).nonzero()[:, 0].tolist() == [4, 5, 6, 7, 8, 9]


def test_each_level_has_attention_of_its_own() -> None:
    model = build(attention_dim=3)
    assert model.word_attention.hidden.weight.shape == model.sentence_attention.hidden.weight.shape == (3, 8)
    assert not torch.equal(model.word_attention.context, model.sentence_attention.context)


def test_sizes_without_effect_are_refused() -> None:
    with pytest.raises(ValueError, match="attention_dim has no effect on attention = 'max'"):
        Config(attention="max", attention_dim=10)
    with pytest.raises(ValueError, match="attention_dim must be at least 1"):
        Config(attention_dim=0)


def test_the_paper_sizes() -> None:
    model = Model(Config(), VOCABULARY)
    assert model.encoder_dims().pooled == 100 and model.word_attention.hidden.weight.shape == (100, 100)
    # Two BiGRUs (two directions of 3 gates each), two attention layers, and the word vectors.
    words, sentences = (2 * 3 * 50 * (size + 50 + 2) for size in (200, 100))
    assert sum(p.numel() for p in model.parameters()) == words + sentences + 2 * (100 * 100 + 200) + WORDS * 200
