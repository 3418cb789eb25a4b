"""Examples that are cut again depend on (seed, epoch, example) and on nothing else."""

import itertools

import numpy as np
import pytest
import torch

from mallang.data.corpus import Rows
from mallang.data.filters import Filters
from mallang.data.loader import Position, Source, load
from mallang.data.prepared import prepare
from mallang.data.resegmented import Resegmented, dropouts_of, uniform
from mallang.errors import UserError
from mallang.tasks.translation import Config, Task
from mallang.text.tokenizer import Config as Text
from mallang.text.tokenizer import Tokenizer

PAIRS = [(f"나는 학교에서 사과를 {n}개 먹었다.", f"I ate {n} apples at school, banana!") for n in range(40)]
LINES = [line for pair in PAIRS for line in pair]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(LINES, Text(vocabulary=300))


@pytest.fixture
def task(tokenizer):
    return Task(Config(bpe_dropout=0.3), {"source": tokenizer, "target": tokenizer})


@pytest.fixture
def corpus(tokenizer, tmp_path):
    rows = Rows.of(PAIRS, ("source", "target"))
    return prepare(rows, [tokenizer, tokenizer], Filters(max_length=60), cache=tmp_path)


def lists(examples):
    return [tuple(ids.tolist() for ids in example) for example in examples]


def test_an_example_is_cut_by_its_number_and_epoch(task, corpus, tokenizer):
    first = lists(task.examples(corpus, 1, 0))
    again = task.examples(corpus, 1, 0)
    assert [lists([again[i]])[0] for i in reversed(range(len(again)))] == first[::-1], "in any order"
    assert lists(again.many([7, 3, 3])) == [first[7], first[3], first[3]], "and in any company"
    assert lists(task.examples(corpus, 1, 1)) != first
    assert lists(task.examples(corpus, 2, 0)) != first
    assert [tuple(map(tokenizer.decode, example)) for example in first] == PAIRS, "the text is the same"
    assert sum(len(ids) for pair in first for ids in pair) > 1.2 * corpus.lengths.sum()


def test_nothing_is_cut_anew_without_dropout_or_in_validation(corpus, tokenizer):
    task = Task(Config(), {"source": tokenizer, "target": tokenizer})
    assert task.examples(corpus, 1, 0) is corpus


def test_workers_and_a_new_start_change_nothing(task, corpus):
    source = Source(
        examples=lambda epoch: task.examples(corpus, 1, epoch),
        plan=lambda epoch: task.plan(corpus, tokens=60, seed=1, epoch=epoch),
        prepare=task.prepare,
        seed=1,
    )

    def read(start, count, workers=0):
        return list(itertools.islice(load(source, start, workers=workers), count))

    count = 2 * len(source.plan(0))
    whole = read(Position(), count)
    helped = read(Position(), count, workers=2)
    rest = read(whole[4][1], count - 5)
    for (batch, _), (other, _) in zip(whole + whole[5:], helped + rest, strict=True):
        assert torch.equal(batch.tokens, other.tokens) and torch.equal(batch.source, other.source)


def test_a_side_that_would_grow_too_long_stays_as_it_was(task, corpus):
    longest = int(corpus.lengths.max()) + 3
    bounded = Resegmented(corpus, task.dropouts, longest=longest, seed=1, epoch=0)
    free = Resegmented(corpus, task.dropouts, longest=10_000, seed=1, epoch=0)
    kept = 0
    for number in range(len(corpus)):
        for plain, cut, wish in zip(corpus[number], bounded[number], free[number], strict=True):
            too_long = len(wish) > longest
            assert np.array_equal(cut, plain if too_long else wish)
            kept += too_long
    assert 0 < kept < 2 * len(corpus)
    assert task.examples(corpus, 1, 0).longest == 60, "data.max_length"


def test_a_side_without_merges_stays_as_it_is(tokenizer, tmp_path):
    words = Tokenizer.train(LINES, Text(unit="word"))
    task = Task(Config(bpe_dropout=0.5), {"source": words, "target": tokenizer})
    corpus = prepare(Rows.of(PAIRS, ("source", "target")), [words, tokenizer], Filters(), cache=tmp_path)
    cut = task.examples(corpus, 1, 0)
    assert all(np.array_equal(cut[i][0], corpus[i][0]) for i in range(len(corpus)))
    assert any(len(cut[i][1]) > len(corpus[i][1]) for i in range(len(corpus)))
    with pytest.raises(UserError, match=r"task.bpe_dropout = 0.5 has nothing to drop: .* by word") as caught:
        Task(Config(bpe_dropout=0.5), {"source": words, "target": words})
    assert "bpe" in caught.value.todo


def test_one_memory_for_one_tokenizer(tokenizer):
    assert len({id(dropout) for dropout in dropouts_of([tokenizer, tokenizer], 0.1)}) == 1


@pytest.mark.parametrize("unit", ["bpe", "byte-bpe"])
def test_the_tag_of_a_domain_stays_in_its_place(unit):
    tokenizer = Tokenizer.train(LINES, Text(unit=unit, vocabulary=400), domains=["news", "bible"])
    (dropout,) = dropouts_of([tokenizer], 0.5)
    tag = tokenizer.domains["bible"]
    for number, line in enumerate(LINES):
        ids, random = np.array([tag, *tokenizer.encode(line).ids]), np.random.default_rng(number)
        cut = dropout.cut([ids], lambda counts, random=random: random.random(int(counts.sum())))[0].tolist()
        assert cut[0] == tag and tokenizer.decode(cut) == line


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_impossible_shares_are_refused(share):
    with pytest.raises(ValueError, match="bpe_dropout must lie between 0 and 1"):
        Config(bpe_dropout=share)


def test_random_numbers_are_even_and_each_names_own():
    key, names = np.array([5], dtype=np.uint64), np.arange(200, dtype=np.uint64)
    drawn = uniform(key, names, np.full(200, 100)).reshape(200, 100)
    assert drawn.min() >= 0 and drawn.max() < 1
    assert abs(drawn.mean() - 0.5) < 5 / np.sqrt(12 * drawn.size)
    counts = np.histogram(drawn, bins=20, range=(0, 1))[0]
    assert ((counts - 1000) ** 2 / 1000).sum() < 45, "chi squared of 19 degrees of freedom"
    for other in (drawn.T[1:].T, np.roll(drawn, 1, axis=0)[:, 1:]):
        assert abs(np.corrcoef(drawn[:, :-1].ravel(), other.ravel())[0, 1]) < 5 / np.sqrt(other.size)
    some = uniform(key, names[[9, 4]], np.array([3, 100]))
    assert np.array_equal(some, np.concatenate((drawn[9, :3], drawn[4]))), "whoever else is drawn, and how much"
    assert not np.isin(uniform(key + np.uint64(1), names, np.full(200, 100)), drawn).any()
