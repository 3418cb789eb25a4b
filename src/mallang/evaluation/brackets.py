"""Labeled bracket precision, recall and F1 of parse trees (PARSEVAL).

    brackets(["(S (NP XX )NP (VP XX )VP )S"], ["(S (NP XX )NP (VP XX )VP )S"])["F1"]

A bracket is a label with the words it spans: (NP, from word 0, to word 1). It is right if the gold tree has it, at most
as often as the gold tree has it. Brackets of all sentences are summed (Black et al., 1991; the F1 of Vinyals et al.
2015, arXiv:1412.7449). A leaf is any token without a bracket, so trees with XX and with words are read in the same way;
`(NP … )` may close without its label.

An output that is no tree is repaired as in that paper: missing closing brackets are added at its end, missing opening
ones at its start. A closing bracket closes the innermost open one, whatever label it names. An output with another
number of words keeps its brackets: those with the right span are right. The share of outputs that are whole trees over
the right number of words is a score of its own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mallang.errors import UserError
from mallang.evaluation.bag_of_words import harmonic, precision_and_recall
from mallang.evaluation.score import RESAMPLES, SEED, Score, Statistics
from mallang.evaluation.translation import References, all_references

Bracket = tuple[str, int, int]
"""A label, the first word it spans, and the first one after."""
TOKEN = re.compile(r"\(\s*[^\s()]*|\)[^\s()]*|[^\s()]+")
MEASURES = {"precision": "bracket precision", "recall": "bracket recall", "F1": "bracket F1", "whole": "whole trees"}


@dataclass(frozen=True)
class Tree:
    """The brackets of a linearized tree."""

    brackets: Counter[Bracket]
    words: int
    whole: bool
    """Whether it is one tree over all its words, every phrase with a word; False where it had to be repaired."""


def brackets(outputs: Sequence[str], golds: References) -> dict[str, Score]:
    """The scores "precision", "recall" and "F1" of the brackets, and "whole" for whole trees, from 0 to 100."""
    table = count_brackets(outputs, golds)
    return {name: _statistics(name, table).score() for name in MEASURES}


def bracket_statistics(outputs: Sequence[str], golds: References) -> Statistics:
    """The statistics of bracket F1: right brackets, brackets of the output, brackets of the gold tree."""
    return _statistics("F1", count_brackets(outputs, golds))


def is_tree(text: str) -> bool:
    """Whether a text is a linearized tree."""
    read = read_tree(text)
    return read.whole and bool(read.brackets)


def count_brackets(outputs: Sequence[str], golds: References) -> np.ndarray:
    """For every sentence: right brackets, brackets, brackets of the gold tree, whether it is a whole tree, and 1."""
    rows = []
    for number, (output, options) in enumerate(zip(outputs, all_references(outputs, golds), strict=True), start=1):
        if len(options) != 1:
            raise UserError(f"sentence {number} has {len(options)} gold trees, but brackets are counted against one")
        if not is_tree(options[0]):
            raise UserError(
                f"the reference of sentence {number} is not a parse tree: {options[0][:60]!r}",
                todo="measure text by bleu or chrf; brackets are those of trees such as (S (NP XX )NP (VP XX )VP )S",
            )
        ours, gold = read_tree(output), read_tree(options[0])
        right = (ours.brackets & gold.brackets).total()
        is_whole = ours.whole and ours.words == gold.words
        rows.append((right, ours.brackets.total(), gold.brackets.total(), is_whole, 1))
    return np.array(rows)


def read_tree(text: str) -> Tree:
    """The brackets of a linearized tree, repaired where they do not match."""
    opened: list[tuple[str, int]] = []
    found: list[Bracket] = []
    words, whole = 0, True
    for token in TOKEN.findall(text):
        if token[0] not in "()":
            whole &= bool(opened)
            words += 1
            continue
        label = token[1:].strip()
        if token[0] == "(":
            whole &= bool(opened) or not found  # a second tree beside the first
            opened.append((label, words))
        elif opened:
            name, start = opened.pop()
            whole &= label in ("", name) and start < words
            found.append((name, start, words))
        else:
            whole = False
            found.append((label, 0, words))
    found += [(label, start, words) for label, start in opened]
    return Tree(Counter(found), words, whole and not opened)


def _statistics(name: str, table: np.ndarray) -> Statistics:
    def measure(sums: np.ndarray) -> float:
        right, ours, gold, whole, sentences = sums.tolist()
        precision, recall = precision_and_recall(right, ours, gold)
        shares = {"precision": precision, "recall": recall, "F1": harmonic(precision, recall)}
        return 100 * (whole / sentences if name == "whole" else shares[name])

    signature = f"bs:{RESAMPLES}|seed:{SEED}|brackets:labelled|root:counted|malformed:mended"  # words: ok, recorded
    return Statistics(MEASURES[name], table, measure, signature)
