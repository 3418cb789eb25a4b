"""The hashed bag of n-grams, against explicit loops."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.kernels import c_bag
from mallang.kernels.ngram_rows import NgramIndex
from mallang.layers.hashed_bag import HashedBag, hashed_ngrams

ODD, WHOLE = 0x9E3779B97F4A7C15, 2**64 - 1


def bucket(symbols, bits) -> int:
    """The bucket of one n-gram, from 1."""
    key = 0
    for symbol in symbols:
        key = (key + symbol + 1) * ODD & WHOLE
        key ^= key >> 32
    return (key * ODD & WHOLE) >> (64 - bits)


def buckets_of(text, orders, bits) -> set[int]:
    """The buckets of all n-grams of a text, from 1."""
    codes = [ord(character) for character in text]
    return {bucket(codes[i : i + n], bits) + 1 for n in orders for i in range(len(codes) - n + 1)}


TEXTS = st.lists(st.text(max_size=12) | st.text("가나다👍é ab", max_size=30), min_size=1, max_size=6)


@settings(deadline=None, max_examples=60)
@given(texts=TEXTS, orders=st.sets(st.integers(1, 5), min_size=1), bits=st.sampled_from([1, 4, 10, 22]))
def test_rows_are_the_different_buckets_of_each_text(texts, orders, bits):
    symbols = [np.array([ord(character) for character in text], np.int64) for text in texts]
    for library in {c_bag.library(), None}:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(c_bag, "library", lambda found=library: found)
            found = hashed_ngrams(symbols, NgramIndex(1, sorted(orders), buckets=2**bits))
        wanted = [buckets_of(text, orders, bits) for text in texts]
        assert found.shape == (len(texts), max(map(len, wanted)))
        for row, own in zip(found.tolist(), wanted, strict=True):
            assert set(row[: len(own)]) == own and row[len(own) :] == [0] * (len(row) - len(own))


def test_logits_are_the_sum_over_the_root_of_the_number():
    torch.manual_seed(1)
    bag = HashedBag(8, 3)
    torch.nn.init.normal_(bag.table.weight)
    with torch.no_grad():
        bag.table.weight[0] = 0
    ngrams = torch.tensor([[3, 1, 8, 0], [2, 0, 0, 0], [0, 0, 0, 0], [1, 2, 3, 4]], dtype=torch.int32)
    for found, row in zip(bag(ngrams), ngrams.tolist(), strict=True):
        wanted = torch.zeros(3)
        for each in row:
            if each:
                wanted += bag.table.weight[each].detach() / sum(other > 0 for other in row) ** 0.5
        torch.testing.assert_close(found, wanted)


def test_padding_has_no_gradient_and_gives_no_logits():
    bag = HashedBag(8, 2)
    assert not bag.table.weight.any()
    bag(torch.tensor([[3, 1], [2, 0]])).sum().backward()
    assert bag.table.weight.grad.any(dim=1).tolist() == [False, True, True, True, *[False] * 5]
    assert bag(torch.zeros(2, 0, dtype=torch.int32)).tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_dropout_leaves_out_whole_ngrams_in_training_alone():
    bag = HashedBag(1000, 2, dropout=0.5)
    torch.nn.init.ones_(bag.table.weight)
    ngrams = torch.arange(1, 901).reshape(1, 900)
    torch.testing.assert_close(bag.eval()(ngrams), torch.full((1, 2), 30.0))
    torch.manual_seed(1)
    first, second = bag.train()(ngrams)[0].tolist()
    assert first == second != 30.0 and 20 < first < 40


def test_an_index_serves_threads_and_copies():
    """Marks of one call must not be seen by another: every copy has a table of its own, and threads take turns."""
    texts = [np.random.default_rng(k).integers(0, 50, 300) for k in range(40)]
    index = NgramIndex(1, (1, 2, 3), buckets=1024)
    wanted = [set(hashed_ngrams([text], index)[0].tolist()) for text in texts]
    for each in (index, copy.deepcopy(index), pickle.loads(pickle.dumps(index))):
        with ThreadPoolExecutor(4) as pool:
            for _ in range(5):
                found = list(pool.map(lambda text, index=each: hashed_ngrams([text], index)[0].tolist(), texts))
                assert [set(row) for row in found] == wanted
                assert all(len(set(row)) == len(row) for row in found)
