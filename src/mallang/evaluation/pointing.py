"""The pointing game: how often the most attended place of an image lies in the right box (Zhang et al. 2016).

Top-down Neural Attention by Excitation Backprop, arXiv:1608.00507: a hit is a maximum inside the box of what a word is
about, a miss is one outside. Words that are not drawn have no box and do not count.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from mallang.errors import UserError
from mallang.evaluation.score import RESAMPLES, SEED, Statistics

NONE = "-"
"""The box of a word that is not drawn."""
Box = tuple[float, float, float, float]


def read_box(cell: str) -> Box | None:
    """The box in `left,top,right,bottom`; none for `-`."""
    if cell == NONE:
        return None
    try:
        left, top, right, bottom = map(float, cell.split(","))
    except ValueError as error:
        raise UserError(f"{cell!r} is no box", todo="write left,top,right,bottom in pixels, or - for none") from error
    return left, top, right, bottom


def is_hit(weights: Float[np.ndarray, " regions"], box: Box, columns: int, cell: int) -> bool:
    """Whether the middle of the most attended cell, `cell` pixels wide, lies in a box."""
    row, column = divmod(int(weights.argmax()), columns)
    x, y = cell * (column + 0.5), cell * (row + 0.5)
    left, top, right, bottom = box
    return left <= x < right and top <= y < bottom


def pointing_statistics(hits: Sequence[Sequence[bool]]) -> Statistics:
    """The percentage of hits, from those of every image; the interval is over images."""
    table = np.array([[sum(each), len(each)] for each in hits])
    signature = f"middle of the most attended cell in the box|bs:{RESAMPLES}|seed:{SEED}"
    return Statistics("pointing", table, lambda sums: float(100 * sums[0] / max(1.0, sums[1])), signature)
