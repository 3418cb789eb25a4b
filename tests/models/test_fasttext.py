"""fastText: a pass over a text equals explicit loops; words outside the vocabulary, seeds, options."""

import math

import numpy as np
import pytest
import torch

from mallang.data.batch import Batch
from mallang.layers.word_windows import AliasTable
from mallang.models.fasttext import Config, Model
from mallang.text.character_ngrams import character_ngrams, hashed, jamo_letters
from mallang.text.vocabulary import SPECIALS, Vocabulary

WORDS = ("we", "went", "where", "국어", "국가")
VOCABULARY = Vocabulary((*SPECIALS, *WORDS))
FIRST = len(SPECIALS)
LINES = [[FIRST + number for number in line] for line in ([0, 1, 2, 3, 1], [4, 0], [2, 3, 4, 2], [0])]
BUCKETS = 40


def batches(lines=LINES):
    return [Batch(tokens=torch.tensor([line]), lengths=torch.tensor([len(line)])) for line in lines]


def build(seed=1, **config):
    torch.manual_seed(seed)
    settings = {"dim": 5, "window": 1, "epochs": 1, "subsample": 0.0, "buckets": BUCKETS, "negatives": 2}
    model = Model(Config(**{**settings, "learning_rate": 0.3, **config}), VOCABULARY)
    model.output.normal_(std=0.3)
    return model


def rows_of(word, number=None):
    """The rows of a word by definition: its own, then one per n-gram of 3 to 6 characters."""
    own = [] if number is None else [number]
    ngrams = character_ngrams(word, 3, 6)
    return own + [len(VOCABULARY) + hashed(each.encode()) % BUCKETS for each in ngrams]


def test_the_vector_of_a_word_is_the_mean_of_its_rows():
    model = build()
    table = model.table.numpy()
    for number, word in enumerate(WORDS, start=FIRST):
        wanted = table[rows_of(word, number)].mean(axis=0)
        np.testing.assert_allclose(model.vectors()[number].numpy(), wanted, rtol=1e-5, atol=1e-7)
    for number in range(FIRST):  # special tokens have no n-grams
        np.testing.assert_allclose(model.vectors()[number].numpy(), table[number], rtol=1e-6)


@pytest.mark.parametrize("word", ["whenever", "국어사전", "we"])
def test_an_unseen_word_is_the_mean_of_its_ngrams(word):
    model = build()
    (found,) = model.spelled_vectors([word])
    np.testing.assert_allclose(found.numpy(), model.table.numpy()[rows_of(word)].mean(axis=0), rtol=1e-5, atol=1e-7)


def test_a_word_without_ngrams_is_zeros():
    assert build(min_ngram=6).spelled_vectors(["a", "where"])[0].eq(0).all()
    assert len(build().spelled_vectors([])) == 0


def test_jamo_are_added_to_korean_words_alone():
    model = build(max_jamo=5)
    wanted = [
        len(VOCABULARY) + hashed(each.encode()) % BUCKETS for each in character_ngrams(jamo_letters("국어"), 3, 5)
    ]
    assert model.ngram_rows("국어") == rows_of("국어") + wanted
    assert model.ngram_rows("went") == rows_of("went")


def by_loops(model, drawn, rate):
    """One epoch with windows of one word, position by position, in double precision."""
    table, y = model.table.double().numpy().copy(), model.output.double().numpy().copy()
    size, position, total, pairs = sum(map(len, LINES)), 0, 0.0, 0
    for line in LINES:
        for at, center in enumerate(line):
            now = rate * (1 - position / size)
            rows = rows_of(WORDS[center - FIRST], center)
            mean, old_y = table[rows].mean(axis=0), y.copy()
            samples = drawn[position].reshape(2, 2)  # of the two sides of the window
            for side, other in enumerate((at - 1, at + 1)):
                if not 0 <= other < len(line):
                    continue
                pairs += 1
                terms = [(line[other], 1), *((each, 0) for each in samples[side] if each != line[other])]
                for row, label in terms:
                    probability = 1 / (1 + math.exp(-float(mean @ old_y[row])))
                    total -= math.log(probability if label else 1 - probability)
                    y[row] += now * (label - probability) * mean
                    for each in rows:  # the whole gradient of the mean, as in fastText
                        table[each] += now * (label - probability) * old_y[row]
            position += 1
    return table, y, total / pairs, pairs


def test_an_epoch_is_that_of_explicit_loops(monkeypatch):
    drawn = []
    original = AliasTable.draw

    def draw(self, *arguments):
        drawn.append(original(self, *arguments))
        return drawn[-1]

    monkeypatch.setattr(AliasTable, "draw", draw)
    model = build(block=1)
    (report,) = model.fit(batches())
    table, y, loss, pairs = by_loops(build(block=1), drawn[0].numpy(), 0.3)
    np.testing.assert_allclose(model.table.numpy(), table, atol=2e-5)
    np.testing.assert_allclose(model.output.numpy(), y, atol=2e-5)
    assert report["loss"] == pytest.approx(loss, rel=1e-5) and report["predictions"] == pairs


def test_a_seed_gives_the_same_bits():
    models = []
    for seed in (1, 1, 2):
        model = build(seed, window=3, epochs=3, block=4, subsample=0.1, learning_rate=0.05)
        for _ in model.fit(batches(LINES * 10)):
            pass
        models.append(model)
    assert torch.equal(models[0].table, models[1].table)
    assert not torch.equal(models[0].table, models[2].table)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_ngram": 4, "max_ngram": 3}, "max_ngram = 3 is less than min_ngram = 4"),
        ({"min_jamo": 4}, "min_jamo = 4 has no effect without max_jamo"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0"),
        ({"subsample": -1.0}, "subsample must not be negative"),
    ],
)
def test_options_that_cannot_be(options, message):
    with pytest.raises(ValueError, match=message):
        Config(**options)
