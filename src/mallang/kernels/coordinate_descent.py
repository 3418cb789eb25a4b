"""Dual coordinate descent for linear classifiers on sparse rows, and their scores; in C and in plain numpy.

    min ½‖w‖² + Σ C · loss(y (w·x + b))        loss: squared hinge or logistic; b is the weight of a constant feature

A Dual Coordinate Descent Method for Large-scale Linear SVM. Hsieh et al. 2008, doi:10.1145/1390156.1390208; for
logistic regression Yu, Huang and Lin 2011, doi:10.1007/s10994-010-5221-8. Both as in LIBLINEAR, with its objective.
An update changes one dual variable and reads one row, so a pass costs as much as one pass of SGD, but there is no
learning rate, and it converges to the optimum. All classes share a pass: the features of a row are read once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float32, Float64, Int8, Int32, Int64, UInt8

from mallang.kernels import c_bag
from mallang.kernels.c_bag import address

Loss = Literal["squared-hinge", "logistic"]
NEWTON_STEPS = 50


@dataclass(frozen=True)
class Matrix:
    """A sparse matrix in CSR form."""

    indptr: Int64[np.ndarray, " bounds"]
    indices: Int32[np.ndarray, " entries"]
    values: Float32[np.ndarray, " entries"]
    columns: int

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def scores(
        self, weights: Float32[np.ndarray, "columns classes"], bias: Float32[np.ndarray, " classes"]
    ) -> Float32[np.ndarray, "rows classes"]:
        """The matrix times weights, plus the bias."""
        found = np.empty((len(self), len(bias)), np.float32)
        if (kernels := c_bag.library()) is not None:
            kernels.linear_scores(
                address(self.indptr, np.int64), address(self.indices, np.int32), address(self.values, np.float32),
                len(self), address(weights, np.float32), address(bias, np.float32), len(bias),
                address(found, np.float32),
            )  # fmt: skip
            return found
        for row in range(len(self)):
            mine = slice(self.indptr[row], self.indptr[row + 1])
            found[row] = self.values[mine].astype(np.float64) @ weights[self.indices[mine]] + bias
        return found


class Descent:
    """The problem of every class, and the dual variables and weights reached so far."""

    def __init__(
        self,
        matrix: Matrix,
        signs: Int8[np.ndarray, "rows classes"],
        costs: Float64[np.ndarray, "classes 2"],
        loss: Loss,
        scales: Float32[np.ndarray, "columns classes"] | None = None,
    ) -> None:
        """`signs`: 1 where a row belongs to a class, else −1; `costs`: C of each class for sign −1 and for sign 1.

        With `scales` a weight is regularized by ½w²/s: as if its feature were multiplied by √s.
        """
        self.matrix, self.signs, self.costs, self.loss = matrix, np.ascontiguousarray(signs), costs, loss
        self.scales = scales
        rows, classes = signs.shape
        self.squares: Float64[np.ndarray, "rows classes"] = np.ones((rows, classes))  # of the constant feature
        filled = np.flatnonzero(np.diff(matrix.indptr))
        squares = np.square(matrix.values, dtype=np.float64)
        for k in range(classes if len(filled) else 0):
            own = squares if scales is None else squares * scales[matrix.indices, k]
            self.squares[filled, k] += np.add.reduceat(own, matrix.indptr[filled])
        self.alpha: Float64[np.ndarray, "rows classes"] = np.zeros((rows, classes))
        self.weights: Float64[np.ndarray, "columns classes"] = np.zeros((matrix.columns, classes))
        self.bias: Float64[np.ndarray, " classes"] = np.zeros(classes)
        self.active: UInt8[np.ndarray, " rows"] = np.ones(rows, np.uint8)
        """Whether each row may still change the solution; see `run`."""

    def run(self, order: Int64[np.ndarray, " visited"], bar: float) -> float:
        """One pass over these rows; returns the largest change of a margin by an update of its own row.

        A row is marked inactive if all its dual variables are 0 and its margins lie more than `bar` above 1.
        """
        kernels, matrix = c_bag.library(), self.matrix
        if kernels is None:
            return max((self.visit(int(row), bar) for row in order), default=0.0)
        change, scratch = np.zeros(1), np.empty(2 * len(self.bias))
        doubles = (self.alpha, self.weights, self.bias, scratch)
        kernels.descend(
            address(order, np.int64), len(order), address(matrix.indptr, np.int64), address(matrix.indices, np.int32),
            address(matrix.values, np.float32), None if self.scales is None else address(self.scales, np.float32),
            address(self.squares, np.float64), address(self.signs, np.int8), address(self.costs, np.float64),
            len(self.bias), int(self.loss == "logistic"), bar, *(address(each, np.float64) for each in doubles),
            address(self.active, np.uint8), address(change, np.float64),
        )  # fmt: skip
        return float(change[0])

    def visit(self, row: int, bar: float) -> float:
        """The updates of one row, for all classes."""
        mine = slice(self.matrix.indptr[row], self.matrix.indptr[row + 1])
        indices, values = self.matrix.indices[mine], self.matrix.values[mine].astype(np.float64)
        scores, before = values @ self.weights[indices] + self.bias, self.alpha[row].copy()
        is_active = self.loss == "logistic"
        for k, sign in enumerate(self.signs[row].tolist()):
            cost, margin, square = self.costs[k, int(sign > 0)], sign * scores[k], self.squares[row, k]
            if self.loss == "logistic":
                self.alpha[row, k] = cost * sigmoid(-logistic_margin(square, margin, cost, before[k]))
            else:
                slope = margin - 1 + before[k] / (2 * cost)
                self.alpha[row, k] = max(0.0, before[k] - slope / (square + 1 / (2 * cost)))
                is_active |= bool(self.alpha[row, k] > 0 or slope <= bar)
        steps = self.alpha[row] - before
        self.active[row] = is_active
        added = np.outer(values, steps * self.signs[row])
        self.weights[indices] += added if self.scales is None else added * self.scales[indices]
        self.bias += steps * self.signs[row]
        return float((np.abs(steps) * self.squares[row]).max())


def sigmoid(x: float) -> float:
    """1 / (1 + e⁻ˣ), without overflow."""
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def logistic_margin(square: float, margin: float, cost: float, alpha: float) -> float:
    """The margin m of a row once its own dual variable is optimal: m = margin + square · (C / (1 + eᵐ) − alpha).

    By Newton's method, between the margins that the dual variables 0 and C would give.
    """
    low, high = margin - square * alpha, margin + square * (cost - alpha)
    m = min(max(margin, low), high)
    for _ in range(NEWTON_STEPS):
        share = sigmoid(-m)
        error = m - margin - square * (cost * share - alpha)
        low, high = (low, m) if error > 0 else (m, high)
        new = m - error / (1 + square * cost * share * (1 - share))
        if not low < new < high:
            new = (low + high) / 2
        if abs(new - m) <= 1e-12 * (1 + abs(m)):
            return new
        m = new
    return m
