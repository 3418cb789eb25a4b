"""The recurrent classifier: every cell, direction and pooling equal to explicit loops over the words."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from mallang.data.batch import Batch, pad_rows
from mallang.layers.initialization import torch_defaults
from mallang.models.rnn_classifier import Config, RNNClassifier
from mallang.models.rnn_lm import RNNLM
from mallang.models.rnn_lm import Config as LanguageModel
from mallang.models.sutskever import Config as Autoencoder
from mallang.models.sutskever import Sutskever
from mallang.runs.weights import own_weights, set_some_weights
from mallang.text.vocabulary import SPECIALS, Vocabulary

WORDS = Vocabulary((*SPECIALS, *(f"w{number}" for number in range(9))))
ROWS = [[4, 5, 6, 7, 8, 3], [9, 3], [3], [4, 4, 12, 11, 10, 9, 8, 3]]
CELLS, POOLINGS = ("elman", "gru", "lstm"), ("last", "mean", "max", "mean-max")


def make(**options: Any) -> RNNClassifier:
    torch.manual_seed(1)
    return RNNClassifier(Config(**{"embedding_dim": 5, "dim": 4, **options}), WORDS).eval()


def batch_of(rows: list[list[int]]) -> Batch:
    tokens, lengths = pad_rows(rows)
    return Batch(tokens=tokens, lengths=lengths)


def states_of(cell: str, weights: list[Tensor], x: list[Tensor]) -> list[Tensor]:
    """The states of one layer in one direction, word by word, by the formulas of recurrent.py."""
    w, u, b, d = weights
    dim = u.shape[1]
    h = c = torch.zeros(dim)
    found = []
    for word in x:
        inputs, own = w @ word + b, u @ h + d
        if cell == "elman":
            h = (inputs + own).tanh()
        elif cell == "gru":
            r, z = (inputs[:dim] + own[:dim]).sigmoid(), (inputs[dim : 2 * dim] + own[dim : 2 * dim]).sigmoid()
            n = (inputs[2 * dim :] + r * own[2 * dim :]).tanh()
            h = (1 - z) * n + z * h
        else:
            i, f, g, o = (inputs + own).chunk(4)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        found.append(h)
    return found


def explicit(model: RNNClassifier, row: list[int]) -> tuple[Tensor, Tensor]:
    """The states of one text, and its vector."""
    config, encoder = model.config, model.encoder
    x = [model.embedding.weight[token] for token in row]
    there: list[Tensor] = []
    back: list[Tensor] = []
    for layer in range(config.layers):
        if not config.bidirectional:
            x = there = states_of(config.cell, list(encoder._flat_weights)[4 * layer : 4 * layer + 4], x)
            continue
        there = states_of(config.cell, list(encoder.forwards[layer]._flat_weights), x)
        back = states_of(config.cell, list(encoder.backwards[layer]._flat_weights), x[::-1])[::-1]
        x = [torch.cat(pair) for pair in zip(there, back, strict=True)]
    states = torch.stack(x)
    ends = torch.cat([there[-1], back[0]]) if config.bidirectional else there[-1]
    pools = {"last": ends, "mean": states.mean(dim=0), "max": states.amax(dim=0)}
    pools["mean-max"] = torch.cat([pools["mean"], pools["max"]])
    return states, pools[config.pooling]


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("pooling", POOLINGS)
@torch.no_grad()
def test_it_is_a_loop_over_the_words(cell: str, bidirectional: bool, pooling: str) -> None:
    model = make(cell=cell, bidirectional=bidirectional, pooling=pooling, layers=2)
    encoded = model.encode(batch_of(ROWS))
    assert encoded.pooled.shape[1] == model.encoder_dims().pooled
    assert encoded.layers[-1].shape[2] == model.encoder_dims().token
    for number, row in enumerate(ROWS):
        states, text = explicit(model, row)
        torch.testing.assert_close(encoded.layers[-1][number, : len(row)], states, atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(encoded.pooled[number], text, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("initialization", ["own", "torch"])
def test_training_leaves_padding_without_effect(cell: str, initialization: str) -> None:
    """Biases that would move the state before the first word stay at zero, also where torch initializes the rest."""
    model, batch = make(cell=cell, pooling="last", dropout=0.0, embedding_dropout=0.0), batch_of(ROWS)
    if initialization == "torch":
        torch_defaults(model)
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    assert (cell == "elman") == (len(trained) < len(list(model.parameters())))
    optimizer = torch.optim.Adam(trained, lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
    together = model(batch)
    for number, row in enumerate(ROWS):
        torch.testing.assert_close(model(batch_of([row]))[0], together[number], atol=1e-5, rtol=1e-5)


def test_the_size_of_infersent_is_4096() -> None:
    assert RNNClassifier(Config(dim=2048, embedding_dim=8), WORDS).encoder_dims().pooled == 4096


@torch.no_grad()
def test_characters_of_the_words_are_read_and_padding_has_no_effect() -> None:
    model, batch = make(characters=6), batch_of(ROWS)
    assert model.spelling is not None
    before = model(batch)
    for number, row in enumerate(ROWS):
        torch.testing.assert_close(model(batch_of([row]))[0], before[number])
    model.spelling.letters.weight += 0.5
    assert not torch.allclose(model(batch), before)


WRONG = [{"layers": 0}, {"dim": 0}, {"dropout": 1.0}, {"embedding_dropout": -0.1}, {"characters": -1}, {"jamo": True}]


@pytest.mark.parametrize("options", WRONG)
def test_impossible_shapes_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        Config(**options)


LM = {"layers": 2, "embedding_dim": 5, "dim": 4, "dropout": 0.0}


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("tie_weights", [True, False])
@torch.no_grad()
def test_it_starts_from_a_language_model_and_computes_its_states(cell: str, tie_weights: bool) -> None:
    sizes = {**LM, "dim": 5} if tie_weights else LM
    reader = RNNLM(LanguageModel(cell=cell, tie_weights=tie_weights, **sizes), WORDS).eval()
    for weight in reader.parameters():
        weight.uniform_(-0.5, 0.5)  # its candidate biases too
    model = make(cell=cell, bidirectional=False, pooling="last", layers=2, dim=sizes["dim"])
    report = set_some_weights(model, model.adapted(own_weights(reader)), "runs/x")
    assert report.new == [] and all(name.startswith("head.") for name in report.left)
    together = model.encode(batch_of(ROWS))
    for number, row in enumerate(ROWS):
        states = reader.hidden_states(torch.tensor([row]))[-1][0]
        torch.testing.assert_close(together.layers[-1][number, : len(row)], states, atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(together.pooled[number], states[-1], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("tie_weights", ["none", "all"])
@torch.no_grad()
def test_it_starts_from_a_sequence_autoencoder_and_computes_its_states(tie_weights: str) -> None:
    config = Autoencoder(**{**LM, "dim": 5}, reverse_source=False, tie_weights=tie_weights)
    reader = Sutskever(config, WORDS, WORDS).eval()
    model = make(bidirectional=False, pooling="last", layers=2, dim=5)
    report = set_some_weights(model, model.adapted(own_weights(reader)), "runs/x")
    assert report.new == [] and any(name.startswith("decoder.") for name in report.left)
    batch = batch_of(ROWS)
    source = Batch(tokens=batch.tokens, lengths=batch.lengths, source=batch.tokens, source_lengths=batch.lengths)
    torch.testing.assert_close(model(batch), reader.encode(source).pooled, atol=1e-6, rtol=1e-5)
