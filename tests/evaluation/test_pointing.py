"""The pointing game, by hand."""

import numpy as np
import pytest

from mallang.errors import UserError
from mallang.evaluation.pointing import is_hit, pointing_statistics, read_box


def test_the_middle_of_the_most_attended_cell_is_in_the_box_or_not():
    weights = np.array([0.1, 0.2, 0.6, 0.1])  # two columns: the third cell is the lower left one, its middle (2, 6)
    assert is_hit(weights, (0.0, 4.0, 4.0, 8.0), columns=2, cell=4) and is_hit(
        weights, (2.0, 6.0, 3.0, 7.0), columns=2, cell=4
    )
    assert not is_hit(weights, (0.0, 0.0, 4.0, 4.0), columns=2, cell=4)
    assert not is_hit(weights, (0.0, 0.0, 2.0, 6.0), columns=2, cell=4)  # the right and lower edges are outside


def test_boxes_are_read_and_hits_are_counted_over_words():
    assert read_box("1,2,3,4.5") == (1, 2, 3, 4.5) and read_box("-") is None
    with pytest.raises(UserError, match="no box"):
        read_box("1,2")
    assert pointing_statistics([[True, True, False], [True]]).value == 75
