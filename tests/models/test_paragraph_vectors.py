"""Paragraph vectors: an epoch equals explicit loops, the vector of a text is the minimum of its loss."""

import math

import numpy as np
import pytest
import torch

from mallang.data.batch import Batch, pad_rows
from mallang.errors import UserError
from mallang.layers.word_windows import AliasTable
from mallang.models import paragraph_vectors as module
from mallang.models.paragraph_vectors import Config, Model
from mallang.text.vocabulary import SPECIALS, Vocabulary

VOCABULARY = Vocabulary((*SPECIALS, *"abcdefg"))
FIRST = len(SPECIALS)
TEXTS = [[FIRST + number for number in text] for text in ([0, 1, 2, 0, 1, 3], [5, 0], [2, 3, 4, 5, 1, 0], [0], [0, 1])]
every_kind = pytest.mark.parametrize("kind", ["dbow", "dm"])


def batch_of(texts=TEXTS, classes=None):
    tokens, lengths = pad_rows([np.array(text) for text in texts], VOCABULARY.pad, end=VOCABULARY.eos)
    return Batch(tokens=tokens, lengths=lengths, classes=torch.tensor(classes or [at % 2 for at in range(len(texts))]))


def build(seed=1, **config):
    torch.manual_seed(seed)
    settings = {"dim": 4, "window": 1, "epochs": 1, "subsample": 0.0, "negatives": 2, "learning_rate": 0.3}
    return Model(Config(**{**settings, **config}), VOCABULARY, 2)


def sigmoid(score):
    return 1 / (1 + math.exp(-score))


def by_loops(rows, kind, order, drawn, rate):
    """One epoch over positions in this order, in double precision; vectors of texts are rows after those of words."""
    x, y = rows.double().numpy().copy(), np.zeros((len(VOCABULARY), rows.shape[1]))
    words = len(VOCABULARY) if kind == "dm" else 0
    places = [(number, at) for number, text in enumerate(TEXTS) for at in range(len(text))]
    total = 0.0
    for step, place in enumerate(order):
        number, at = places[place]
        text, now = TEXTS[number], rate * (1 - step / len(places))
        around = text[max(0, at - 1) : at] + text[at + 1 : at + 2] if kind == "dm" else []
        ins = [words + number, *around]
        mean, old = x[ins].mean(axis=0), y.copy()
        for row, label in [(text[at], 1), *((each, 0) for each in drawn[step] if each != text[at])]:
            probability = sigmoid(float(mean @ old[row]))
            total -= math.log(probability if label else 1 - probability)
            y[row] += now * (label - probability) * mean
            for each in ins:
                x[each] += now * (label - probability) * old[row]
    return x[:words], y, total / len(places)


@every_kind
def test_an_epoch_is_that_of_explicit_loops(kind, monkeypatch):
    drawn, orders, starts = [], [], []
    draw, randperm, rand = AliasTable.draw, torch.randperm, torch.rand

    def kept(found, place):
        place.append(found)
        return found

    monkeypatch.setattr(AliasTable, "draw", lambda self, *given: kept(draw(self, *given), drawn))
    monkeypatch.setattr(module.torch, "randperm", lambda *given, **options: kept(randperm(*given, **options), orders))
    monkeypatch.setattr(module.torch, "rand", lambda *given, **options: kept(rand(*given, **options), starts))
    model = build(kind=kind, block=1)
    report, _ = model.fit([batch_of()])
    (rows,) = [start for start in starts if start.dim() == 2 and start.shape[1] == 4]
    words, output, loss = by_loops((rows - 0.5) / 4, kind, orders[0].tolist(), drawn[1].numpy(), 0.3)
    np.testing.assert_allclose(model.spaces[0].inputs.numpy(), words, atol=1e-5)
    np.testing.assert_allclose(model.spaces[0].output.numpy(), output, atol=1e-5)
    assert report["loss"] == pytest.approx(loss, rel=1e-5)


def loss_by_loops(model, kind, text, vector):
    """The loss of a text's vector, from the words around each word and the fixed list of negative samples."""
    space, config, total = model.spaces[0], model.config, 0.0
    for at, word in enumerate(text):
        around = text[max(0, at - config.window) : at] + text[at + 1 : at + 1 + config.window] if kind == "dm" else []
        mean = (vector + sum(space.inputs[each].double() for each in around)) / (1 + len(around))
        noise = [int(model.noise[(at * config.negatives + k) % len(model.noise)]) for k in range(config.negatives)]
        for row, label in [(word, 1), *((each, -1) for each in noise if each != word)]:
            total = total - torch.nn.functional.logsigmoid(label * (mean @ space.output[row].double()))
    return total / max(1, len(text)) + 0.5 * config.penalty * vector.square().sum()


@every_kind
def test_the_vector_of_a_text_is_the_minimum_of_its_loss(kind):
    model = build(kind=kind, epochs=30, steps=200, window=2, penalty=0.05, learning_rate=0.1)
    for _ in model.fit([batch_of(TEXTS * 5)]):
        pass
    found = model.vectors_of(batch_of())
    for text, vector in zip(TEXTS, found, strict=True):
        leaf = vector.double().requires_grad_()
        (slope,) = torch.autograd.grad(loss_by_loops(model, kind, text, leaf), leaf)
        assert slope.abs().max() < 1e-5
    assert found.abs().max() > 0.05


@every_kind
def test_every_step_lowers_the_loss(kind):
    losses = []
    for steps in (1, 2, 4, 8, 30):
        model = build(kind=kind, epochs=30, steps=steps, learning_rate=0.1)
        for _ in model.fit([batch_of(TEXTS * 5)]):
            pass
        vector = model.vectors_of(batch_of())[2].double()
        losses.append(float(loss_by_loops(model, kind, TEXTS[2], vector)))
    assert max(np.diff(losses)) < 1e-9 and losses[0] > losses[-1]


def test_a_text_without_known_words_is_zeros_and_changes_no_other():
    model = build(kind="both")
    for _ in model.fit([batch_of()]):
        pass
    found = model.vectors_of(batch_of([[3, 3], TEXTS[0]]))  # 3 is <unk>
    assert found[0].eq(0).all()
    torch.testing.assert_close(found[1], model.vectors_of(batch_of())[0])


def test_a_seed_gives_the_same_bits():
    weights = []
    for seed in (1, 1, 2):
        model = build(seed, kind="both", epochs=3, block=4)
        for _ in model.fit([batch_of(TEXTS * 4)]):
            pass
        weights.append(model.state_dict())
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert not torch.equal(weights[0]["spaces.0.output"], weights[2]["spaces.0.output"])


def test_texts_of_two_topics_are_told_apart():
    random = np.random.default_rng(1)
    texts = [list(FIRST + random.choice(3, 8) + 3 * (number % 2)) for number in range(60)]
    model = build(kind="dbow", dim=8, epochs=10, learning_rate=0.1, block=16)
    for _ in model.fit([batch_of(texts[:40])]):
        pass
    found = model.classify(batch_of(texts[40:])).argmax(dim=1)
    assert found.tolist() == [number % 2 for number in range(20)]


def test_texts_without_classes_are_an_error():
    tokens, lengths = pad_rows([np.array(TEXTS[0])], VOCABULARY.pad)
    with pytest.raises(UserError, match="have no classes"):
        list(build().fit([Batch(tokens=tokens, lengths=lengths)]))
    with pytest.raises(UserError, match="no words"):
        list(build().fit([batch_of([[3]])]))


@pytest.mark.parametrize("name", ["learning_rate", "penalty", "C"])
def test_options_that_cannot_be(name):
    with pytest.raises(ValueError, match=f"{name} must be above 0"):
        Config(**{name: 0.0})
