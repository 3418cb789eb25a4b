"""Sentences are put in the order of their documents, whatever the order of the rows."""

from __future__ import annotations

from random import Random

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.data.batch import Batch
from mallang.layers.documents import gather_sentences

few = settings(deadline=None, max_examples=40)
SIZES = st.lists(st.integers(1, 4), min_size=1, max_size=5)
"""The number of sentences of each document."""


@few
@given(sizes=SIZES, filled=st.integers(0, 2), random=st.randoms(use_true_random=False))
def test_every_document_gets_the_vectors_of_its_own_sentences(sizes: list[int], filled: int, random: Random) -> None:
    rows = list(range(sum(sizes)))
    random.shuffle(rows)
    left = iter(rows)
    documents = [[next(left) for _ in range(size)] for size in sizes] + [[] for _ in range(filled)]
    vectors = torch.randn(len(rows), 3, generator=torch.Generator().manual_seed(1))
    sentences = torch.tensor([[*each, *[-1] * (max(sizes) - len(each))] for each in documents])
    batch = Batch(
        tokens=torch.zeros(len(rows), 1, dtype=torch.long),
        lengths=torch.ones(len(rows), dtype=torch.long),
        sentences=sentences,
    )
    found, counts = gather_sentences(vectors, batch)
    assert counts.tolist() == [*sizes, *[1] * filled]  # one that fills up the batch has a sentence for its reader
    assert found.shape == (len(documents), max(sizes), 3) and found.isfinite().all()
    for document, places in enumerate(documents):
        for number, row in enumerate(places):
            assert torch.equal(found[document, number], vectors[row])


def test_without_documents_each_row_is_one() -> None:
    batch = Batch(tokens=torch.zeros(3, 4, dtype=torch.long), lengths=torch.tensor([4, 2, 1]))
    vectors = torch.randn(3, 2)
    found, counts = gather_sentences(vectors, batch)
    assert torch.equal(found, vectors[:, None]) and counts.tolist() == [1, 1, 1]
