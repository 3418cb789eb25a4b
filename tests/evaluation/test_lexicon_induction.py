"""Lexicon induction from vectors of two languages: precision by hand, starts, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from layers.test_vector_mapping import clusters, rotation
from mallang.data.word_vectors import Vectors
from mallang.errors import UserError
from mallang.evaluation.lexicon_induction import Space, induce, precision

COUNT = 200


def languages() -> tuple[Vectors, Vectors]:
    """Two languages whose words have vectors of one shape; the first twelve words are spelled alike."""
    one = clusters(COUNT, 12)
    other = one @ rotation(12) + 0.02 * torch.randn(COUNT, 12, generator=torch.Generator().manual_seed(1))
    names = [f"same{i}" if i < 12 else f"a{i}" for i in range(COUNT)]
    others = [name.replace("a", "b") if name.startswith("a") else name for name in names]
    return Vectors(tuple(names), one.numpy()), Vectors(tuple(others), other.numpy())


GOLD = [(f"a{i}", f"b{i}") for i in range(12, COUNT)]


@pytest.mark.parametrize("how", ["identical", "similarities"])
def test_words_are_found_without_a_lexicon(how: str) -> None:
    space = induce(*languages(), how)  # type: ignore[arg-type]
    score = precision(space, GOLD)
    assert score.value > 90 and score.count == COUNT - 12 and score.low is not None and score.low <= score.value
    assert how in score.signature and f"known:{COUNT - 12}/{COUNT - 12}" in score.signature
    assert [each[0][0] for each in space.translations(["a20", "a30"])] == ["b20", "b30"]


def test_known_pairs_are_the_supervised_mapping() -> None:
    space = induce(*languages(), "supervised", pairs=GOLD[:60])
    assert precision(space, GOLD[60:]).value > 90 and "rounds" not in space.how


def test_precision_by_hand() -> None:
    vectors = torch.eye(4)
    space = Space(("a", "B", "c", "d"), ("w", "x", "Y", "z"), vectors, vectors[[0, 2, 1, 3]], "by hand")
    gold = [("a", "w"), ("a", "z"), ("B", "x"), ("C", "nothing"), ("c", "X"), ("unknown", "w")]
    score = precision(space, gold)  # a → w is right, B → Y is wrong, c → x is right in lower case, the others unknown
    assert score.count == 3 and score.value == pytest.approx(200 / 3) and "known:3/5" in score.signature
    assert precision(space, gold, count=4).value == 100


def test_what_cannot_be_mapped_is_said() -> None:
    one, other = languages()
    apart = Vectors(tuple(f"other{i}" for i in range(COUNT)), other.values)
    with pytest.raises(UserError, match="only 0 words are spelled alike"):
        induce(one, apart, "identical")
    with pytest.raises(UserError, match="12 and 5 numbers"):
        induce(one, Vectors(other.words, np.ascontiguousarray(other.values[:, :5])), "identical")
    with pytest.raises(UserError, match="no word of the gold lexicon"):
        precision(induce(one, other, "identical"), [("nothing", "here")])
