"""Distances of every query from every candidate: L1 directly, L2 as a matmul, always in fp32.

‖q − c‖² = ‖q‖² + ‖c‖² − 2 q·c. In bf16 the difference of such sums would be noise, so autocast is off.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

SMALLEST = 1e-9
"""The least squared distance: the gradient of a root at 0 is infinite."""


def distances(
    queries: Float[Tensor, "queries dim"], candidates: Float[Tensor, "candidates dim"], norm: int
) -> Float[Tensor, "queries candidates"]:
    """The distance of each query from each candidate, by L1 or L2."""
    with torch.autocast(queries.device.type, enabled=False):
        queries, candidates = queries.float(), candidates.float()
        if norm == 1:
            return torch.cdist(queries, candidates, p=1.0)
        squares = queries.square().sum(dim=1)[:, None] + candidates.square().sum(dim=1)[None, :]
        return (squares - 2 * queries @ candidates.T).clamp_min(SMALLEST).sqrt()
