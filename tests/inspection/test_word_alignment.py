from __future__ import annotations

import pytest
import torch

from inspection.test_alignment import ENGLISH, KOREAN, loaded  # noqa: F401 - a fixture
from mallang.data import miniworld
from mallang.errors import UserError
from mallang.inspection.alignment import Words, attention_of, in_words
from mallang.inspection.word_alignment import (
    MEAN,
    Way,
    aligned,
    between_words,
    evaluate_alignment,
    every_way,
    links,
    miniworld_gold,
    usual_way,
    word_weights,
)

PAIRS = list(zip(KOREAN, ENGLISH, strict=True))


def test_links_are_what_is_looked_at_most_or_enough():
    weights = torch.tensor([[0.1, 0.6, 0.3], [0.5, 0.1, 0.4]])
    assert links(weights, None) == {(1, 0), (0, 1)}
    assert links(weights, 0.3) == {(1, 0), (2, 0), (0, 1), (2, 1)}
    assert links(weights, 0.9) == set()


def test_a_word_is_said_at_one_step_and_read_at_the_next():
    said = torch.eye(3)[None]  # step i looks at source token i: a b </s> are said, a b are read one step later
    keys, queries = Words(("x", "y"), (0, 1, None)), Words(("a", "b"), (0, 1))
    found = between_words({"cross": said}, keys, queries)
    assert links(found["cross", "said"][1], 0.5) == {(0, 0), (1, 1)}
    assert links(found["cross", "read"][1], 0.5) == {(1, 0)}  # b looks at </s> when it is read, which is no word
    assert torch.equal(found["cross", "said"][MEAN], found["cross", "said"][1])


def test_words_without_a_token_keep_their_place():
    looks = torch.tensor([[0.2, 0.7, 0.1], [0.8, 0.1, 0.1], [0.0, 0.0, 1.0]])[None]
    keys, queries = Words(("x", "\u200b", "z"), (0, 2, None)), Words(("\u200b", "b", "\u200b", "d"), (1, 3))
    found = between_words({"cross": looks}, keys, queries)
    expected = torch.tensor([[0.0, 0.0, 0.0], [0.2, 0.0, 0.7], [0.0, 0.0, 0.0], [0.8, 0.0, 0.1]])
    torch.testing.assert_close(found["cross", "said"][1], expected)
    assert links(found["cross", "said"][1], None) == {(2, 1), (0, 3)}
    assert links(found["cross", "said"][1], 0.5) == {(2, 1), (0, 3)}
    torch.testing.assert_close(found["cross", "read"][MEAN, 1], torch.tensor([0.8, 0.0, 0.1]))


def test_weights_between_words_are_those_that_inspect_shows(loaded):  # noqa: F811
    for pair, found in zip(PAIRS, word_weights(loaded, PAIRS), strict=True):
        shown = in_words(attention_of(loaded, pair[0], target=pair[1])).maps
        for layer in ("decoder.0.cross", "decoder.1.cross"):
            expected = shown[layer].weights[:, :-1, :-1]
            torch.testing.assert_close(found[layer, "said"][1:], expected, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(found[layer, "said"][MEAN], expected.mean(dim=0), rtol=1e-4, atol=1e-5)


def test_the_best_way_on_one_text_is_judged_on_another(loaded):  # noqa: F811
    secret = Way("decoder.0.cross", 2, "read")
    gold = aligned(loaded, PAIRS, secret)
    report = evaluate_alignment(loaded, (PAIRS[:2], gold[:2]), (PAIRS[2:], gold[2:]))
    assert report.tried[secret] == 0.0 and report.tried[report.way] == 0.0
    assert report.scores[0].count == 2 and str(report.way) in report.scores[0].signature
    if report.way == secret:
        assert report.scores[0].value == 0.0
    singles = [way for way in report.tried if way.threshold is None]
    assert len(singles) == 2 * 3 * 2 and len(set(singles)) == 12  # layers, heads and their mean, steps


def test_one_head_is_its_own_mean():
    one = {("cross", "said"): torch.zeros(2, 1, 1)}
    assert [way.head for way in every_way(one)] == [1]


def test_pairs_without_words_have_no_links(loaded):  # noqa: F811
    found = aligned(loaded, [("", "I"), (KOREAN[0], " "), PAIRS[0]], usual_way(loaded))
    assert found[:2] == [set(), set()] and len(found[2]) == 3


def test_unknown_layers_and_heads_are_told(loaded):  # noqa: F811
    with pytest.raises(UserError, match="no layer 'decoder.9.cross' attends to the source"):
        aligned(loaded, PAIRS, Way("decoder.9.cross", 1, "said"))
    with pytest.raises(UserError, match="no head 3 in a layer of 2"):
        aligned(loaded, PAIRS, Way("decoder.1.cross", 3, "said"))


def test_gold_links_of_miniworld_go_both_ways():
    pairs, gold = miniworld_gold("test", "ko", "en")
    turned_pairs, turned = miniworld_gold("test", "en", "ko")
    scene = miniworld.scene("test", 3)
    assert pairs[3] == (scene.korean, scene.english) == turned_pairs[3][::-1]
    assert gold[3] == set(scene.alignment) == {(korean, english) for english, korean in turned[3]}
    for (korean, english), found in zip(pairs[:50], gold[:50], strict=True):
        assert {target for _, target in found} == set(range(len(english.split())))
        assert max(source for source, _ in found) < len(korean.split())
    with pytest.raises(UserError, match="between ko and en"):
        miniworld_gold("test", "en", "en-tree")
