import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.errors import UserError
from mallang.layers.position import LearnedPositions, SinusoidalPositions


def test_the_50_by_128_table_is_the_formula():
    table = SinusoidalPositions(128)(50)
    for place in range(50):
        for i in range(64):
            angle = place / 10000 ** (2 * i / 128)
            assert table[place, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[place, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


@settings(deadline=None, max_examples=25)
@given(start=st.integers(0, 50), time=st.integers(1, 50), length=st.integers(1, 20))
def test_the_table_grows_with_the_text(start, time, length):
    positions = SinusoidalPositions(6, length)
    whole = SinusoidalPositions(6, 100)(100)
    assert torch.equal(positions(time, start), whole[start : start + time])
    assert torch.equal(positions(1), whole[:1])


def test_far_positions_keep_their_precision():
    assert SinusoidalPositions(4, 8)(1, 99_999)[0, 0].item() == pytest.approx(math.sin(99_999), abs=1e-6)


def test_a_table_grown_while_generating_can_be_trained_with():
    positions = SinusoidalPositions(4, 2)
    with torch.inference_mode():
        positions(5)
    weight = torch.ones(4, requires_grad=True)
    (positions(5) * weight).sum().backward()
    assert weight.grad is not None


def test_the_table_is_not_saved_but_moves_with_the_model():
    positions = SinusoidalPositions(4, 2).to(torch.float64)
    assert positions.state_dict() == {}
    assert positions(9).dtype == torch.float64


def test_an_odd_size_is_refused():
    with pytest.raises(ValueError, match="dim 5 is odd"):
        SinusoidalPositions(5)


def test_learned_positions_end_with_a_clear_message():
    positions = LearnedPositions(4, 6)
    assert torch.equal(positions(2, 4), positions.table.weight[4:])
    with pytest.raises(UserError, match=r"7 tokens.*6 positions") as caught:
        positions(3, 4)
    assert "max_length" in str(caught.value)


@pytest.mark.parametrize("positions", [SinusoidalPositions(6, length=4), LearnedPositions(6, 9)])
def test_a_start_that_only_the_device_knows(positions):
    for start in (0, 2, 7):
        found = positions(2, torch.tensor(start), 9)
        assert torch.equal(found, positions(2, start))
