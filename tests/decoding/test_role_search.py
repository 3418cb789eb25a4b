"""The search for roles: the best sequence that keeps all rules, by enumeration of all sequences."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.decoding.role_search import RoleRules, base_of, best_roles
from mallang.evaluation.spans import read_spans, tag_set

HEADS = ("_", "ARG0", "ARG1", "R-ARG0", "C-ARG1", "ARGM-TMP")
SPANS = tuple(tag_set(("ARG0", "R-ARG0", "C-ARG0"), "iob2"))


def keeps(names: tuple[str, ...], labels: tuple[int, ...], unique: tuple[str, ...]) -> bool:
    """The rules as the paper words them, over the roles that a sequence spells."""
    tags = [names[label] for label in labels]
    if "O" in names:
        for before, tag in itertools.pairwise(("O", *tags)):
            if tag.startswith("I-") and before not in (f"B-{tag[2:]}", tag):
                return False
        roles = [span.type for span in read_spans(tags)]
    else:
        roles = [tag for tag in tags if tag != "_"]
    for place, role in enumerate(roles):
        if role in unique and roles.count(role) > 1:
            return False
        if role.startswith("C-") and role[2:] not in roles[:place]:
            return False
        if role.startswith("R-") and role[2:] not in roles:
            return False
    return True


def total(scores: np.ndarray, labels: tuple[int, ...] | list[int]) -> float:
    return float(sum(row[label] for row, label in zip(scores, labels, strict=True)))


@settings(deadline=None, max_examples=60)
@given(words=st.integers(0, 4), spans=st.booleans(), seed=st.integers(0, 10_000), own=st.booleans())
def test_it_finds_the_best_of_all_sequences(words: int, spans: bool, seed: int, own: bool) -> None:
    names = SPANS if spans else HEADS
    unique = ("ARGM-TMP", "C-ARG0") if own else None
    rules = RoleRules(names, "iob2" if spans else None, unique)
    scores = np.random.default_rng(seed).normal(size=(words, len(names))) * 2
    once = ("ARG0", "ARG1") if unique is None else unique
    every = [each for each in itertools.product(range(len(names)), repeat=words) if keeps(names, each, once)]
    for labels in itertools.product(range(len(names)), repeat=min(words, 3)):
        assert rules.are_kept(labels) == keeps(names, labels, once)
    found = best_roles(scores, rules)
    assert keeps(names, tuple(found), once)
    assert total(scores, found) == pytest.approx(max(total(scores, each) for each in every))
    # Depth first it may miss the best, but it keeps the rules.
    assert keeps(names, tuple(best_roles(scores, rules, most=0)), once)


def test_rules_by_hand() -> None:
    rules = RoleRules(HEADS)
    zero, one, refer, goes_on, time = (HEADS.index(role) for role in ("ARG0", "ARG1", "R-ARG0", "C-ARG1", "ARGM-TMP"))
    assert rules.are_kept([zero, 0, one]) and not rules.are_kept([zero, zero, one]), "a core role occurs once"
    assert rules.are_kept([time, time]), "a modifier may occur twice"
    assert rules.are_kept([refer, zero]) and not rules.are_kept([refer, one]), "R- needs its role anywhere"
    assert rules.are_kept([one, goes_on]) and not rules.are_kept([goes_on, one]), "C- comes after its role"
    assert base_of("C-ARG1") == base_of("R-ARG1") == "ARG1" and base_of("ARGM-TMP") == ""
    assert RoleRules(HEADS, unique=()).are_kept([zero, zero])


def test_a_second_core_role_gives_way_to_the_better_one() -> None:
    names = ("_", "ARG0", "ARG1")
    scores = np.log([[0.1, 0.8, 0.1], [0.3, 0.6, 0.1], [0.2, 0.1, 0.7]])
    assert scores.argmax(axis=1).tolist() == [1, 1, 2]
    assert best_roles(scores, RoleRules(names)) == [1, 0, 2]


def test_long_sentences_of_flat_scores_end() -> None:
    roles = [*(f"ARG{number}" for number in range(6)), *(f"ARGM-{number}" for number in range(20)), "R-ARG0", "C-ARG1"]
    rules = RoleRules(tuple(tag_set(roles, "iob2")), "iob2")
    scores = np.random.default_rng(1).normal(size=(40, len(rules.names))) * 0.1
    assert rules.are_kept(best_roles(scores, rules)) and rules.are_kept(best_roles(scores, rules, most=50))


def test_without_a_label_of_no_role_it_says_so() -> None:
    with pytest.raises(ValueError, match="no sequence keeps the rules"):
        best_roles(np.zeros((2, 1)), RoleRules(("ARG0",)))
