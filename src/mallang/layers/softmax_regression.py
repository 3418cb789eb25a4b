"""Multinomial logistic regression on dense features, fitted to the optimum by L-BFGS."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

ITERATIONS = 200
"""Iterations of L-BFGS, at most."""


def fit_softmax_regression(
    features: Float[Tensor, "texts features"], labels: Tensor, classes: int, strength: float
) -> tuple[Float[Tensor, "classes features"], Float[Tensor, " classes"], float]:
    """Weights, bias and the mean loss; labels are one class per text, or a set of classes as 0 and 1.

    The objective is scikit-learn's: C Σ loss + ½ |W|², of one softmax, or of one sigmoid per class.
    """
    x, texts = features.double(), max(1, len(features))
    table = torch.zeros(classes, x.shape[1] + 1, dtype=torch.float64, device=x.device, requires_grad=True)
    is_set = labels.dim() == 2
    targets = labels.double() if is_set else labels

    def loss_of(table: Tensor) -> Tensor:
        logits = x @ table[:, :-1].T + table[:, -1]
        if is_set:
            return F.binary_cross_entropy_with_logits(logits, targets, reduction="sum") / texts
        return F.cross_entropy(logits, targets)

    optimizer = torch.optim.LBFGS(
        [table], max_iter=ITERATIONS, tolerance_grad=1e-8, tolerance_change=1e-12, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(table) + table[:, :-1].square().sum() / (2 * strength * texts)
        loss.backward()  # type: ignore[no-untyped-call, unused-ignore]
        return loss

    with torch.enable_grad():
        optimizer.step(closure)  # type: ignore[no-untyped-call, unused-ignore]
    solved = table.detach()
    return solved[:, :-1].float(), solved[:, -1].float(), float(loss_of(solved))
