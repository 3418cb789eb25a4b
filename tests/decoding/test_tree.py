"""A recorded search tree tells what the search really did."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.test_decoding import KINDS
from contracts.toy_models import Table, empty_batch, random_gru, random_table, source_batch, tiny_vocabulary
from mallang.decoding import beam, best_first, greedy
from mallang.decoding.contract import Config, Hypothesis
from mallang.decoding.ranking import penalty
from mallang.decoding.search import search
from mallang.decoding.tree import FATES, Tree, record
from mallang.errors import UserError
from mallang.text.vocabulary import SPECIALS, Vocabulary

penalties = st.sampled_from(["average", "none", "gnmt"])
searches = st.one_of(
    st.builds(lambda penalty: Config(method="greedy", max_length=7, length_penalty=penalty), penalties),
    st.builds(
        lambda penalty, beam, stop: Config(beam=beam, nbest=beam, stop=stop, max_length=7, length_penalty=penalty),
        penalties, st.integers(1, 4), st.sampled_from(["optimal", "complete"]),
    ),
    st.builds(
        lambda penalty, nbest, budget: Config(
            method="best-first", nbest=nbest, beam=2, max_expansions=budget, max_length=5, length_penalty=penalty
        ),
        penalties, st.integers(1, 3), st.integers(1, 60),
    ),
)  # fmt: skip


def labels_of(tree: Tree, place: int) -> list[int]:
    return [tree.nodes[each].id for each in tree.path(place)]


def check(tree: Tree, found: list[Hypothesis], config: Config, eos: int) -> None:
    """The outputs are those of the search, sums are sums, and fates fit together."""
    assert [labels_of(tree, place) for place in tree.outputs] == [list(one.labels(eos)) for one in found]
    for place, one in zip(tree.outputs, found, strict=True):
        assert tree.nodes[place].normalized == pytest.approx(one.normalized, abs=1e-4)
        assert tree.nodes[place].fate == ("ended" if one.finished else "limit")
    last = max(node.step for node in tree.nodes)
    for place, node in enumerate(tree.nodes[1:], start=1):
        assert node.parent is not None and node.parent < place
        before = tree.nodes[node.parent]
        assert node.step == before.step + 1 and before.fate in ("kept", "seed")
        assert node.total == pytest.approx(before.total + node.log_prob, abs=1e-9)
        assert node.normalized == pytest.approx(node.total / penalty(node.step, config), abs=1e-9)
        assert node.bound >= node.normalized - 1e-9 and node.fate in FATES
        assert (node.fate == "kept") <= (node.step < last)  # its continuations may be missing
        assert (node.fate == "limit") <= (node.step == tree.limit)
        assert (node.fate == "ended") <= (node.id == eos)
    names = [(node.parent, node.id) for node in tree.nodes]
    assert len(set(names)) == len(names)


@given(seed=st.integers(0, 10_000), config=searches, alternatives=st.integers(1, 6))
@settings(deadline=None, max_examples=25)
def test_its_outputs_are_those_of_the_search_and_fates_fit_together(
    seed: int, config: Config, alternatives: int
) -> None:
    model, batch = random_table(tiny_vocabulary(3), seed), source_batch([[4, 5]])
    tree = record(model, batch, config, alternatives=alternatives)
    (found,) = search(model, batch, config)
    check(tree, found, config, 3)
    assert tree.proven == found[0].proven
    assert Tree.from_json(json.loads(json.dumps(tree.to_json()))) == tree


@pytest.mark.parametrize("method", ["greedy", "beam", "best-first"])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_for_every_model(kind: Any, method: Any) -> None:
    model, batch = kind.build(tiny_vocabulary(3), 1), kind.batch([[4, 5, 5]])
    config = Config(method=method, max_length=4)
    module = {"greedy": greedy, "beam": beam, "best-first": best_first}[method]
    check(record(model, batch, config), module.search(model, batch, config)[0], config, 3)


@given(seed=st.integers(0, 10_000), width=st.integers(2, 4))
@settings(deadline=None, max_examples=15)
def test_what_a_beam_keeps_scores_higher_than_what_it_prunes(seed: int, width: int) -> None:
    model = random_gru(tiny_vocabulary(4), seed)
    tree = record(model, source_batch([[4, 5]]), Config(beam=width, max_length=7))
    last = max(node.step for node in tree.nodes)
    for step in range(1, last + 1):
        here = [node for node in tree.nodes if node.step == step]
        assert len(here) <= 2 * width or len(here) <= 5
        kept = [node.total for node in here if node.fate in ("kept", "bound", "limit")]
        dropped = [node.total for node in here if node.fate == "beam" and node.id != 3]
        assert len(kept) <= width and (step < last) == any(node.fate == "kept" for node in here)
        assert not dropped or min(kept) >= max(dropped)
        assert [node.total for node in here] == sorted((node.total for node in here), reverse=True)


def test_best_first_prunes_by_the_bound_and_says_what_it_did_not_come_to() -> None:
    model, batch = random_table(tiny_vocabulary(3), 5), source_batch([[4, 5]])
    whole = record(model, batch, Config(method="best-first", max_length=6))
    best = whole.nodes[whole.outputs[0]].normalized
    assert whole.proven
    for node in whole.nodes:
        assert node.fate != "bound" or node.bound < best
        assert node.fate not in ("budget", "seed")
    part = record(model, batch, Config(method="best-first", max_length=6, max_expansions=2))
    assert part.proven is False and sum(node.fate == "kept" for node in part.nodes) == 2
    assert {"budget", "seed"} & {node.fate for node in part.nodes}
    assert len(whole.nodes) > len(part.nodes)


def test_the_beam_of_the_lecture() -> None:
    """Three slots after "today the": 0.153, 0.153 and 0.077; of the two equal ones the lower id comes first."""
    words = ("today", "the", "price", "company", "italian", "emirate")
    vocabulary = Vocabulary((*SPECIALS, *words))
    named = {word: place for place, word in enumerate(words, start=len(SPECIALS))}
    shares = {"price": 0.153, "company": 0.153, "italian": 0.077, "emirate": 0.039}
    logits = torch.full((len(vocabulary),) * 3, -math.inf)
    logits[0, 2, named["today"]] = logits[2, named["today"], named["the"]] = 0.0
    for word, share in shares.items():
        logits[named["today"], named["the"], named[word]] = math.log(share)
        logits[named["the"], named[word], vocabulary.eos] = 0.0
    logits[named["today"], named["the"], vocabulary.pad] = math.log(1 - sum(shares.values()))  # all other words
    config = Config(beam=3, nbest=3, length_penalty="none", max_length=8)
    tree = record(Table(vocabulary, logits), empty_batch(1), config)
    slots = [node for node in tree.nodes if node.step == 3]
    assert [(node.token, round(math.exp(node.total), 3), node.fate) for node in slots] == [
        ("price", 0.153, "kept"), ("company", 0.153, "kept"), ("italian", 0.077, "kept"), ("emirate", 0.039, "beam"),
    ]  # fmt: skip
    said = [[tree.nodes[place].token for place in tree.path(output)] for output in tree.outputs]
    assert said == [["today", "the", word, "</s>"] for word in ("price", "company", "italian")]
    assert [round(math.exp(tree.nodes[place].total), 3) for place in tree.outputs] == [0.153, 0.153, 0.077]


def test_what_has_no_tree_is_refused() -> None:
    model, batch = random_table(tiny_vocabulary(2), 1), source_batch([[4], [5]])
    with pytest.raises(ValueError, match="one sentence, not 2"):
        record(model, batch, Config())
    for config in (Config(method="sampling"), Config(method="exhaustive", max_length=3), Config(coverage=0.2)):
        with pytest.raises(UserError, match="has no search tree"):
            record(model, source_batch([[4]]), config)
    with pytest.raises(UserError, match="not a search tree"):
        Tree.from_json({"format": "other"})
