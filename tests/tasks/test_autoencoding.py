"""Saying a text again: damage, both losses, both ways to come out."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mallang.data.batch import Shapes
from mallang.decoding import contract as decoding
from mallang.errors import UserError
from mallang.models import autoencoder, transformer
from mallang.tasks.autoencoding import Config, Task, Verbs
from mallang.text.tokenizer import Config as Text
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import SPECIALS

TEXTS = ["the cat sees a dog", "a dog sees the bird", "the bird sings", "a cat sings", "the dog is here", "a bird is"]
VECTORS = {"hidden_dims": [64], "dim": 16}


def make(module=autoencoder, shape=None, **options):
    tokenizer = Tokenizer.train(TEXTS, Text(unit="word", vocabulary=30))
    task = Task(Config(**options), {"text": tokenizer})
    torch.manual_seed(5)
    return task, task.build(module, module.Config(**(shape or module.SIZES["tiny"])))


def make_batch(task, texts=TEXTS, random=None):
    rows = [((np.array(ids),),) for ids in task.text.encode_batch(list(texts))]
    return task.prepare(rows, random or np.random.default_rng(0))


def learn(task, model, steps=150):
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        task.loss(model, make_batch(task), None).sums["loss"].backward()
        optimizer.step()
    return Verbs(task, model.eval(), decoding.Config(method="greedy"), 30)


def test_the_loss_of_a_bag_asks_every_word():
    task, model = make()
    batch = make_batch(task)
    loss = float(task.loss(model, batch, None).sums["loss"].detach())
    logits, expected = model(batch).detach(), 0.0
    for row, text in enumerate(TEXTS):
        for place, word in enumerate(task.text.vocabulary.tokens):
            chance = logits[row, place].sigmoid()
            expected -= float((chance if word.strip("▁") in text.split() else 1 - chance).log())
    assert loss == pytest.approx(expected, rel=1e-5)
    assert task.counts(batch) == {"loss": sum(len(text.split()) + 1 for text in TEXTS)}


def test_rows_that_fill_a_rectangle_ask_for_nothing():
    task, model = make()
    batch = make_batch(task)
    filled = Shapes(200).fill(batch)
    assert len(filled) > len(batch)
    torch.testing.assert_close(task.loss(model, filled, None).sums, task.loss(model, batch, None).sums)
    assert task.counts(filled) == task.counts(batch)


def test_both_kinds_learn_to_say_a_text_again():
    vectors = learn(*make(shape=VECTORS))
    said = vectors.reconstruct(TEXTS)
    order = task_order(vectors)
    assert [str(each) for each in said] == [" ".join(sorted(text.split(), key=order)) for text in TEXTS]
    assert [token.strip("▁") for token in said[0].tokens] == str(said[0]).split() and said[0].score < 0
    scores, _ = vectors.evaluate([(text,) for text in TEXTS])
    assert scores[0].value == 100
    sequences = learn(*make(transformer, {**transformer.SIZES["tiny"], "dropout": 0.0}))
    assert [str(each) for each in sequences.reconstruct(TEXTS)] == TEXTS
    scores, outputs = sequences.evaluate([(text,) for text in TEXTS])
    assert scores[0].value == 100 and outputs == TEXTS
    assert str(sequences.reconstruct(TEXTS[0], beam=3, method="beam")) == TEXTS[0]


def task_order(verbs):
    return lambda word: verbs.task.text.vocabulary.ids[f"▁{word}"]


def test_a_text_has_a_vector_whatever_stands_beside_it():
    task, model = make(shape=VECTORS)
    verbs = Verbs(task, model.eval(), decoding.Config(), 30)
    together = verbs.embed(TEXTS)
    assert together.shape == (6, 16) and together.dtype == np.float32
    for text, vector in zip(TEXTS, together, strict=True):
        alone = verbs.embed(text)
        assert alone.shape == (16,)
        np.testing.assert_allclose(alone, vector, rtol=1e-5, atol=1e-6)
    with pytest.raises(UserError, match="no word vectors"):
        verbs.embed(["cat"], words=True)


def test_no_texts_have_no_vectors():
    task, model = make(shape=VECTORS)
    verbs = Verbs(task, model.eval(), decoding.Config(), 30)
    none = verbs.embed([])
    assert none.shape == (0, 16) and none.dtype == np.float32 and verbs.reconstruct([]) == []
    task, model = make(transformer)
    none = Verbs(task, model.eval(), decoding.Config(), 30).embed([], words=True)
    assert none.shape == (0, model.source_embedding.table.weight.shape[1]) and none.dtype == np.float32


def test_word_vectors_are_rows_of_the_table_or_their_mean():
    task, model = make(transformer)
    verbs = Verbs(task, model.eval(), decoding.Config(), 30)
    table = model.source_embedding.table.weight.detach().numpy()
    cat, dog = (task.text.vocabulary.ids[f"▁{word}"] for word in ("cat", "dog"))
    found = verbs.embed(["cat", "cat dog"], words=True)
    np.testing.assert_allclose(found, [table[cat], (table[cat] + table[dog]) / 2], rtol=1e-6)
    with pytest.raises(UserError, match="knows nothing of 'zebra'"):
        verbs.embed(["zebra"], words=True)
    with pytest.raises(UserError, match="no single vector"):
        verbs.embed("the cat")


@given(st.lists(st.integers(4, 40), max_size=12), st.floats(0, 0.99), st.integers(0, 4), st.integers(0, 2**32))
def test_damage_leaves_words_of_the_text_near_their_places(tokens, drop, shuffle, seed):
    tokenizer = Tokenizer.train(TEXTS, Text(unit="word", vocabulary=30))
    marked = np.array([token * 100 + place for place, token in enumerate(tokens)], dtype=np.int64)
    shuffled = Task(Config(shuffle=shuffle), {"text": tokenizer}).damage(marked, np.random.default_rng(seed))
    assert sorted(shuffled) == sorted(marked)
    assert all(abs(now - before % 100) <= shuffle for now, before in enumerate(shuffled))
    dropped = Task(Config(drop=drop), {"text": tokenizer}).damage(marked, np.random.default_rng(seed))
    assert list(dropped) == [token for token in marked if token in dropped]
    assert len(dropped) > 0 or not tokens
    assert drop > 0 or len(dropped) == len(tokens)


def test_damage_is_read_and_not_asked_for():
    task, _ = make(transformer, drop=0.5, shuffle=2)
    clean, batch = make_batch(make(transformer)[0]), make_batch(task)
    assert torch.equal(batch.labels, clean.labels) and torch.equal(batch.tokens, clean.tokens)
    assert batch.source_lengths.sum() < clean.source_lengths.sum()
    share = 1 - (task.damage(np.arange(4, 10004), np.random.default_rng(0)).size / 10000)
    assert share == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize(("options", "said"), [({"shuffle": 2}, "shuffle"), ({"label_smoothing": 0.1}, "smoothing")])
def test_what_a_bag_cannot_use_is_refused(options, said):
    with pytest.raises(UserError, match=said):
        make(**options)
    task, model = make()
    with pytest.raises(UserError, match="beam"):
        Verbs(task, model, decoding.Config(), 30).reconstruct(TEXTS, beam=3)


@pytest.mark.parametrize("options", [{"drop": 1.0}, {"drop": -0.1}, {"shuffle": -1}, {"label_smoothing": 1.0}])
def test_wrong_numbers_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        Config(**options)


def test_special_tokens_are_no_words():
    task, _ = make()
    bags = task.present(make_batch(task, ["the zebra"]))
    assert bags.sum() == 1 and bags[0, : len(SPECIALS)].sum() == 0
