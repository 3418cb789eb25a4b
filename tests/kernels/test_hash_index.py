"""The hash table of keys, against looking through all of them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.kernels.hash_index import Index
from mallang.layers import ngram_table
from mallang.layers.ngram_table import NO_KEY, Table
from mallang.models.ngram import random_ngrams
from mallang.text.vocabulary import SPECIALS, Vocabulary

numbers = st.integers(0, 60) | st.integers(0, NO_KEY - 1)


@settings(deadline=None, max_examples=60)
@given(keys=st.sets(numbers, max_size=80), others=st.lists(numbers, max_size=40))
def test_every_key_is_found_and_no_other(keys: set[int], others: list[int]) -> None:
    ordered = sorted(keys)
    wanted = [*ordered, *others]
    places = {key: place for place, key in enumerate(ordered)}
    found = Index(torch.tensor([*ordered, NO_KEY])).find(torch.tensor(wanted, dtype=torch.long))
    assert found.tolist() == [places.get(key, len(ordered)) for key in wanted]


def test_keys_that_want_the_same_slot_get_one_after_the_other() -> None:
    index = Index(torch.cat((torch.arange(4096) << 50, torch.tensor([NO_KEY + 1]))))
    assert index.find(torch.arange(4096) << 50).tolist() == list(range(4096))
    assert index.find((torch.arange(100) << 50) + 1).tolist() == [4096] * 100


def test_scores_are_the_same_with_and_without_it_and_however_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ngram_table, "PART", 64)
    torch.manual_seed(1)
    vocabulary = Vocabulary((*SPECIALS, *(f"w{number}" for number in range(300))))
    table = Table(random_ngrams(4, vocabulary))
    words = torch.randint(4, 304, (1000,))
    places = torch.arange(1000) % 17
    slow = table.score(words[:100], places[:100])
    assert not table.indexes
    every = table.score(words, places)
    assert len(table.indexes) == 3 and torch.equal(every[:100], slow)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        assert torch.equal(table.score(words, places), every)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
