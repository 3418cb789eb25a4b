from __future__ import annotations

import math

import pytest
import torch

from contracts.toy_models import Table, empty_batch, random_table, tiny_vocabulary
from mallang.decoding import exhaustive
from mallang.decoding.contract import Config
from mallang.errors import UserError


@pytest.mark.parametrize(
    ("words", "limit", "number"), [(1, 17, "131,071"), (31_997, 256, "10^1149"), (10, 7, "1,948,717")]
)
def test_too_many_outputs_are_refused_with_both_numbers(words: int, limit: int, number: str) -> None:
    """One word and `<unk>` make two; 2^0 + … + 2^16 is 131,071 outputs."""
    model = Table(tiny_vocabulary(words), torch.zeros(1))  # refused before the table is read
    with pytest.raises(UserError) as error:
        exhaustive.search(model, empty_batch(1), Config(method="exhaustive", max_length=limit))
    assert number in str(error.value)
    assert "100,000" in str(error.value)


def test_the_largest_allowed_is_searched_whole() -> None:
    """Two words and 8 tokens: 255 outputs, whose probabilities and those of the unfinished sum to one."""
    model = random_table(tiny_vocabulary(1), seed=2)
    model.logits[:, :, [0, 2]] = -math.inf
    config = Config(method="exhaustive", max_length=8, nbest=1000, length_penalty="none")
    (found,) = exhaustive.search(model, empty_batch(1), config)
    assert len({one.tokens for one in found}) == len(found) == 255
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    model.logits[:, :, 3] = -math.inf
    (unfinished,) = exhaustive.search(model, empty_batch(1), config)
    assert len(unfinished) == 2**8
    assert not any(one.finished for one in unfinished)
    assert sum(math.exp(one.score) for one in unfinished) == pytest.approx(1, abs=1e-4)


def test_probabilities_of_all_outputs_sum_to_one_where_all_must_end() -> None:
    model = random_table(tiny_vocabulary(2), seed=4)
    model.logits[:, :, [0, 2]] = -math.inf
    for before in (4, 5, 1):  # whatever the second word is, the third token is the end
        model.logits[before] = torch.full((6,), -math.inf).index_fill(0, torch.tensor([3]), 0.0)
    (found,) = exhaustive.search(model, empty_batch(1), Config(method="exhaustive", max_length=3, nbest=100))
    assert sum(math.exp(one.score) for one in found) == pytest.approx(1, abs=1e-5)
    assert len(found) == 1 + 3 + 9


def test_equals_go_to_the_shorter_then_to_the_lower_ids() -> None:
    model = Table(tiny_vocabulary(1), torch.zeros(5, 5, 5))
    (found,) = exhaustive.search(model, empty_batch(1), Config(method="exhaustive", max_length=3, nbest=10))
    assert [one.tokens for one in found] == [(), (1,), (4,), (1, 1), (1, 4), (4, 1), (4, 4)]


def test_a_model_without_any_possible_output_is_named() -> None:
    model = Table(tiny_vocabulary(1), torch.full((5, 5, 5), -math.inf))
    with pytest.raises(UserError, match="no output has a finite score"):
        exhaustive.search(model, empty_batch(1), Config(method="exhaustive", max_length=3))
