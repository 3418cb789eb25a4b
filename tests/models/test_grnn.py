"""GRNN equals its formulas written as loops, for both encoders of sentences."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from torch import Tensor

from mallang.data.batch import Batch, Shapes, pad_rows
from mallang.models.grnn import WIDTHS, Config, Model
from models.test_han import VOCABULARY, Document, batch_of, close, documents, gru, some

every_kind = pytest.mark.parametrize("kind", ("lstm", "cnn"))


def build(kind: str) -> Any:
    torch.manual_seed(3)
    model = Model(Config(embedding_dim=5, dim=4, sentence_encoder=kind), VOCABULARY).eval()
    with torch.no_grad():  # biases that matter
        for name, weight in model.named_parameters():
            if name.endswith("linear.bias"):
                weight.normal_()
            elif "bias" in name:
                weight[: 2 * 4].normal_()  # the candidate part stays zero
    return model


def lstm(cell: Any, inputs: list[Tensor]) -> Tensor:
    """The state after the last word."""
    state, memory = torch.zeros(4), torch.zeros(4)
    for x in inputs:
        gates = cell.weight_ih_l0 @ x + cell.bias_ih_l0 + cell.weight_hh_l0 @ state + cell.bias_hh_l0
        given, kept, new, out = gates.chunk(4)
        memory = kept.sigmoid() * memory + given.sigmoid() * new.tanh()
        state = out.sigmoid() * memory.tanh()
    return state


def filtered(encoder: Any, inputs: list[Tensor]) -> Tensor:
    """tanh of the mean over all n-grams of the sentence, averaged over n = 1, 2, 3; a shorter sentence is padded."""
    found = []
    for layer, width in zip(encoder.filters, WIDTHS, strict=True):
        zero, left = [torch.zeros(5)], (width - 1) // 2
        grams = [inputs[begin : begin + width] for begin in range(len(inputs) - width + 1)]
        if not grams:  # the window at the first word
            padded = zero * left + inputs + zero * width
            grams = [padded[:width]]
        responses = [layer.linear.weight @ torch.cat(gram) + layer.linear.bias for gram in grams]
        found.append(torch.tanh(sum(responses[1:], responses[0]) / len(responses)))
    return sum(found[1:], found[0]) / len(WIDTHS)


def by_loops(model: Any, document: Document) -> Tensor:
    sentences = []
    for sentence in document:
        words = [model.embedding.weight[word] for word in sentence]
        encoder = model.sentence_encoder
        is_lstm = model.config.sentence_encoder == "lstm"
        sentences.append(lstm(encoder.reader, words) if is_lstm else filtered(encoder, words))
    states = gru(model.document_reader, sentences)
    return sum(states[1:], states[0]) / len(states)


@every_kind
@some
@given(given=documents)
@torch.no_grad()
def test_it_equals_explicit_loops(kind: str, given: list[Document]) -> None:
    model = build(kind)
    found = model(batch_of(given))
    for number, document in enumerate(given):
        close(found[number], by_loops(model, document))
    close(model(Shapes(200, multiple=8).fill(batch_of(given)))[: len(given)], found)


@every_kind
def test_gradients_reach_everything(kind: str) -> None:
    model = build(kind).train()
    model(Shapes(200, multiple=8).fill(batch_of([[[4, 5], [6]], [[7, 8, 9]]])))[:2].pow(2).sum().backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None and weight.grad.isfinite().all() and weight.grad.any(), name


@torch.no_grad()
def test_a_batch_without_documents_is_one_sentence_each() -> None:
    model, sentences = build("lstm"), [[4, 5, 6], [7], [8, 9]]
    tokens, lengths = pad_rows(sentences)
    close(model(Batch(tokens=tokens, lengths=lengths)), model(batch_of([[each] for each in sentences])))
