"""A bag of words is what a counter counts."""

from collections import Counter

import torch
from hypothesis import given
from hypothesis import strategies as st

from mallang.data.batch import lengths_to_mask, pad_rows
from mallang.layers.bag import bag_of
from mallang.text.vocabulary import SPECIALS, Vocabulary

WORDS = Vocabulary((*SPECIALS, *"abcdef"))


@given(st.lists(st.lists(st.integers(0, 9), max_size=8), min_size=1, max_size=5), st.integers(0, 9))
def test_it_counts_words_alone(rows, filler):
    tokens, lengths = pad_rows(rows, filler)
    if tokens.shape[1] == 0:
        tokens = torch.full((len(rows), 1), filler)
    bags = bag_of(tokens, lengths_to_mask(lengths, tokens.shape[1]), WORDS)
    for bag, row in zip(bags.tolist(), rows, strict=True):
        counted = Counter(token for token in row if token > 3)
        assert bag == [counted[token] for token in range(len(WORDS))]
