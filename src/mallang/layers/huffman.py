"""Huffman codes: frequent words have short paths in a binary tree (Huffman 1952), for the hierarchical softmax.

The tree has one leaf per word and one node less than leaves. The path of a word lists the nodes from the root to its
leaf; its code has one bit per node, which says where the path turns.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32, Int32, Int64
from torch import Tensor


@dataclass(frozen=True)
class HuffmanTree:
    """The path and the code of every word, padded."""

    nodes: Int32[Tensor, "words depth"]
    """Inner nodes from the root on, 0 … words − 2; −1 after the end of a path."""
    labels: Float32[Tensor, "words depth"]
    """1 where the path turns left, 0 where it turns right."""


def huffman_tree(counts: Int64[Tensor, " words"]) -> HuffmanTree:
    """The tree of least expected depth; words that do not occur have no path. Ties go to the lower id."""
    words = torch.nonzero(counts)[:, 0].tolist()
    parents, turns = join(np.asarray(counts.tolist()), words)
    paths = {word: path_of(word, len(counts), parents, turns) for word in words}
    depth = max([1, *(len(path) for path in paths.values())])
    nodes, labels = torch.full((len(counts), depth), -1, dtype=torch.int32), torch.zeros(len(counts), depth)
    for word, path in paths.items():
        if path:
            nodes[word, : len(path)] = torch.tensor([node for node, _ in path], dtype=torch.int32)
            labels[word, : len(path)] = torch.tensor([label for _, label in path])
    return HuffmanTree(nodes.to(counts.device), labels.to(counts.device))


def join(counts: np.ndarray, words: list[int]) -> tuple[dict[int, int], dict[int, float]]:
    """Join the two rarest subtrees until one is left: the parent of every subtree, and the turn that leads to it.

    Leaves have the ids of their words, inner nodes the ids from the number of words on.
    """
    heap = [(int(counts[word]), word) for word in words]
    heapq.heapify(heap)
    parents: dict[int, int] = {}
    turns: dict[int, float] = {}
    for node in range(len(counts), len(counts) + len(words) - 1):
        (few, left), (more, right) = heapq.heappop(heap), heapq.heappop(heap)
        parents[left] = parents[right] = node
        turns[left], turns[right] = 1.0, 0.0
        heapq.heappush(heap, (few + more, node))
    return parents, turns


def path_of(word: int, leaves: int, parents: dict[int, int], turns: dict[int, float]) -> list[tuple[int, float]]:
    """The inner nodes above a word, counted from 0, from the root on, with the turn at each."""
    path, place = [], word
    while place in parents:
        path.append((parents[place] - leaves, turns[place]))
        place = parents[place]
    return path[::-1]
