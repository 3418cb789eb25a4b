"""Labeled F1 of roles: cases by hand, and against a second scorer that reads bracketed columns as srl-eval does."""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest
from seqeval.metrics import f1_score

from mallang.evaluation.roles import (
    Argument,
    Labeled,
    by_tree,
    predicate_statistics,
    role_statistics,
    role_table,
    scores_by_role,
)
from mallang.evaluation.spans import tag_set

GOLD = Labeled([1], [["ARG0", "_", "ARG2", "_", "ARG1"]])


def value(outputs: list[Labeled], golds: list[Labeled], share: str = "F1", *, spans: bool = False) -> float:
    return role_statistics(outputs, golds, spans=spans)[share].value


def test_cases_by_hand() -> None:
    assert value([GOLD], [GOLD]) == 100
    output = Labeled([1], [["ARG0", "_", "ARG1", "_", "_"]])  # one right of two, of three
    assert role_table([output], [GOLD], spans=False).tolist() == [[1, 2, 3]]
    assert value([output], [GOLD], "precision") == 50 and value([output], [GOLD], "recall") == pytest.approx(100 / 3)
    assert value([output], [GOLD]) == pytest.approx(40)
    nothing = Labeled([1], [["_"] * 5])
    assert value([nothing], [GOLD]) == 0 and value([nothing], [nothing]) == 0
    by_role = {score.signature.rpartition(":")[2]: score for score in scores_by_role([output], [GOLD], spans=False)}
    assert by_role["ARG0"].value == 100 and by_role["ARG1"].value == 0 and by_role["ARG1"].count == 1


def test_a_right_role_of_another_predicate_is_wrong() -> None:
    gold = Labeled([0, 3], [["_", "ARG1", "_", "_"], ["_", "_", "ARG0", "_"]])
    swapped = Labeled([0, 3], [["_", "_", "ARG0", "_"], ["_", "ARG1", "_", "_"]])
    assert value([swapped], [gold]) == 0
    missed = Labeled([3], [["_", "_", "ARG0", "_"]])
    invented = Labeled([0, 1, 3], [gold.roles[0], ["_", "_", "ARG1", "_"], gold.roles[1]])
    assert role_table([missed, invented], [gold, gold], spans=False).tolist() == [[1, 1, 2], [2, 3, 2]]
    found = predicate_statistics([missed, invented], [gold, gold])
    assert found.table.tolist() == [[1, 1, 2], [2, 3, 2]] and found.value == pytest.approx(100 * 2 * 3 / (4 + 4))


def test_spans_are_right_only_with_both_ends() -> None:
    gold = Labeled([2], [["B-ARG0", "I-ARG0", "O", "B-ARG1", "I-ARG1", "I-ARG1"]])
    short = Labeled([2], [["B-ARG0", "I-ARG0", "O", "B-ARG1", "I-ARG1", "O"]])
    assert gold.arguments(spans=True) == {Argument(2, "ARG0", 0, 2), Argument(2, "ARG1", 3, 6)}
    assert role_table([short], [gold], spans=True).tolist() == [[1, 2, 2]]


def test_heads_become_spans_by_a_tree() -> None:
    heads = [2, 0, 4, 2, 4]
    gold = Labeled([1], [["ARG0", "_", "_", "ARG1", "_"]])
    spans = by_tree(gold, heads)
    assert spans.roles == [["B-ARG0", "O", "B-ARG1", "I-ARG1", "I-ARG1"]]
    nested = by_tree(Labeled([1], [["ARG0", "_", "_", "ARG1", "ARG2"]]), heads)
    assert nested.roles == [["B-ARG0", "O", "B-ARG1", "I-ARG1", "B-ARG2"]]
    # Two of three heads are right, but the wrong one cuts a right span short.
    assert value([Labeled([1], [["ARG0", "_", "_", "ARG1", "ARG2"]])], [gold]) == pytest.approx(80)
    assert value([nested], [spans], spans=True) == pytest.approx(40)


def bracketed(tags: list[str]) -> list[str]:
    """BIO tags as the columns of CoNLL-2005: (A0*, *, *)."""
    column = []
    for place, tag in enumerate(tags):
        opens = f"({tag[2:]}" if tag.startswith("B-") else ""
        following = tags[place + 1] if place + 1 < len(tags) else "O"
        column.append(f"{opens}*{')' if tag != 'O' and not following.startswith('I-') else ''}")
    return column


def srl_eval(outputs: list[list[str]], golds: list[list[str]]) -> tuple[int, int, int]:
    """Right, excessive and missed arguments of bracketed columns, counted as srl-eval.pl does: V is left out."""

    def arguments(column: list[str]) -> Counter[tuple[str, int, int]]:
        found, stack = Counter[tuple[str, int, int]](), list[tuple[str, int]]()
        for place, cell in enumerate(column):
            stack += [(role, place) for role in re.findall(r"\(([^*()]+)", cell)]
            for _ in range(cell.count(")")):
                role, start = stack.pop()
                if role != "V":
                    found[role, start, place] += 1
        return found

    right = excessive = missed = 0
    for output, gold in zip(outputs, golds, strict=True):
        ours, theirs = arguments(output), arguments(gold)
        right += (ours & theirs).total()
        excessive += (ours - theirs).total()
        missed += (theirs - ours).total()
    return right, excessive, missed


def random_tags(draw: random.Random, words: int) -> list[str]:
    names, tags = tag_set(("ARG0", "ARG1", "ARGM-TMP", "C-ARG1"), "iob2"), ["O"]
    while len(tags) <= words:
        allowed = [tag for tag in names if not tag.startswith("I-") or tags[-1] in (f"B-{tag[2:]}", tag)]
        tags.append(draw.choice(allowed))
    return tags[1:]


def test_it_agrees_with_a_scorer_of_bracketed_columns_and_with_seqeval() -> None:
    draw = random.Random(3)
    for _ in range(30):
        golds = [random_tags(draw, draw.randint(1, 8)) for _ in range(10)]
        outputs = [[tag if draw.random() < 0.8 else "O" for tag in tags] for tags in golds]
        ours = [Labeled([0], [tags]) for tags in outputs]
        theirs = [Labeled([0], [tags]) for tags in golds]
        right, excessive, missed = srl_eval([bracketed(clean(tags)) for tags in outputs], list(map(bracketed, golds)))
        table = role_table(ours, theirs, spans=True).sum(axis=0).tolist()
        assert table == [right, right + excessive, right + missed]
        f1 = 200 * right / max(1, 2 * right + excessive + missed)
        assert value(ours, theirs, spans=True) == pytest.approx(f1)
        assert f1 == pytest.approx(100 * f1_score(golds, outputs))


def clean(tags: list[str]) -> list[str]:
    """Tags in which a span whose beginning is gone starts where it is left, as conlleval reads it."""
    found = []
    for before, tag in zip(["O", *tags], tags, strict=False):
        starts = tag.startswith("I-") and before[2:] != tag[2:]
        found.append(f"B-{tag[2:]}" if starts else tag)
    return found
