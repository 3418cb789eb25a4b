"""Huffman codes: no other tree has a shorter expected path, found by trying all of them."""

from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.layers.huffman import huffman_tree

counts_of_words = st.lists(st.integers(1, 20), min_size=1, max_size=7)


def least_cost(counts):
    """The least sum of count · depth over all binary trees, by splitting the words in every way."""

    @cache
    def best(words):
        if len(words) == 1:
            return 0
        total, rest = sum(counts[word] for word in words), words[1:]
        found = []
        for bits in range(2 ** len(rest) - 1):  # the first word is left; not all others are with it
            left = (words[0], *(word for at, word in enumerate(rest) if bits >> at & 1))
            right = tuple(word for at, word in enumerate(rest) if not bits >> at & 1)
            found.append(best(left) + best(right))
        return total + min(found)

    return best(tuple(range(len(counts))))


def paths(tree):
    """The (node, label) pairs of every word."""
    return [
        [(node, label) for node, label in zip(nodes, labels, strict=True) if node >= 0]
        for nodes, labels in zip(tree.nodes.tolist(), tree.labels.tolist(), strict=True)
    ]


@given(counts_of_words)
@settings(deadline=None, max_examples=60)
def test_no_tree_is_shorter(counts):
    found = paths(huffman_tree(torch.tensor(counts)))
    assert sum(count * len(path) for count, path in zip(counts, found, strict=True)) == least_cost(counts)


@given(counts_of_words)
@settings(deadline=None, max_examples=60)
def test_codes_are_free_of_prefixes_and_lead_to_the_leaves(counts):
    tree = huffman_tree(torch.tensor(counts))
    codes = [tuple(label for _, label in path) for path in paths(tree)]
    for one in range(len(codes)):
        for other in range(len(codes)):
            assert one == other or codes[one] != codes[other][: len(codes[one])]
    assert sum(2.0 ** -len(code) for code in codes) == 1  # no leaf is missing
    nodes = {node for path in paths(tree) for node, _ in path}
    assert nodes == set(range(len(counts) - 1))
    # The code up to a node is the same for all words below it: their paths meet in one tree.
    before = {}
    for path in paths(tree):
        for at, (node, _) in enumerate(path):
            assert before.setdefault(node, path[:at]) == path[:at]


def test_probabilities_of_the_paths_sum_to_one():
    counts = torch.tensor([0, 5, 2, 9, 0, 1, 4])
    tree, scores = huffman_tree(counts), torch.randn(6)
    total = 0.0
    for word, path in enumerate(paths(tree)):
        if counts[word]:
            signs = [(scores[node], label) for node, label in path]
            total += float(torch.stack([torch.sigmoid(s if label else -s) for s, label in signs]).prod())
    assert total == pytest.approx(1.0)


def test_words_that_do_not_occur_have_no_path():
    tree = huffman_tree(torch.tensor([3, 0, 2, 1]))
    assert paths(tree)[1] == [] and all(paths(tree)[word] for word in (0, 2, 3))
    assert tree.nodes.max() == 1
