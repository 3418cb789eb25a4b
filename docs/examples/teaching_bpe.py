"""Byte-pair encoding in one page: what `tokenizers` does when text.unit is bpe, without its speed.

Learning: write every word as letters, then again and again merge the most frequent pair of neighbors.
Using: write a word as letters and apply the same merges in the same order.
Sennrich, Haddow and Birch, Neural Machine Translation of Rare Words with Subword Units, 2016, arXiv 1508.07909.
"""

from collections import Counter
from itertools import pairwise


def learn(words: dict[str, int], merges: int) -> list[tuple[str, str]]:
    """The pairs to merge, first to last, from words and how often each occurs."""
    cut = {word: list(word) for word in words}
    order = {letter: number for number, letter in enumerate(sorted(set("".join(words))))}
    learned: list[tuple[str, str]] = []
    while len(learned) < merges:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, pieces in cut.items():
            for pair in pairwise(pieces):
                pairs[pair] += words[word]
        if not pairs:
            break
        # The most frequent pair; of equally frequent ones the pair of the oldest pieces.
        best = min(pairs, key=lambda pair: (-pairs[pair], order[pair[0]], order[pair[1]]))
        learned.append(best)
        order.setdefault("".join(best), len(order))
        cut = {word: merge(pieces, best) for word, pieces in cut.items()}
    return learned


def encode(word: str, merges: list[tuple[str, str]]) -> list[str]:
    """The pieces of a word."""
    pieces = list(word)
    for pair in merges:
        pieces = merge(pieces, pair)
    return pieces


def merge(pieces: list[str], pair: tuple[str, str]) -> list[str]:
    """The pieces with every occurrence of the pair as one piece, from left to right."""
    merged: list[str] = []
    for piece in pieces:
        if merged and (merged[-1], piece) == pair:
            merged[-1] += piece
        else:
            merged.append(piece)
    return merged


if __name__ == "__main__":
    text = "나는 학교에 간다 너는 학교에서 온다 우리는 학교를 본다 그는 집에서 온다"
    rules = learn(Counter(text.split()), merges=8)
    for left, right in rules:
        print(f"{left} + {right}")
    print(" ".join(encode("학교에서는", rules)))
