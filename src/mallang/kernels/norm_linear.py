"""LayerNorm and the linear layer after it for a single row on a GPU, in one Triton kernel.

A decode step with one hypothesis multiplies every weight by a single row. A kernel launch takes a GPU as long as that,
so fewer kernels are faster. Here every program normalizes the row itself, which costs next to nothing, and then
multiplies it by a few rows of the weight.

    y = W ((x − mean) / √(variance + ε) ∘ gain + shift) + b
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, no_type_check

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mallang.kernels.dispatch import tl, tried_once, triton

ROWS = 8
"""Rows of the weight that a program multiplies."""
WIDEST = 4096
"""The maximum size of x, which a program holds."""
MOST = 2**14
"""The maximum number of outputs: beyond it, too many programs would repeat the normalization."""


def is_made_for(x: Tensor, gain: Tensor, shift: Tensor | None, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether this is a single row on a GPU, and shapes, dtypes and layouts are those that the kernel supports."""
    if weight.dim() != 2 or x.numel() != weight.shape[1]:
        return False
    outputs, inputs = weight.shape
    parts = [(gain, (inputs,)), (shift, (inputs,)), (weight, (outputs, inputs)), (bias, (outputs,))]
    fit = all(
        part is None or (part.shape == shape and part.dtype == x.dtype and part.is_contiguous())
        for part, shape in parts
    )
    return x.is_cuda and x.dtype != torch.float64 and fit and inputs <= WIDEST and outputs <= MOST and works()


@tried_once("norm-linear")
def works() -> bool:
    """Self-test: whether the kernel agrees with the formula."""
    x = torch.linspace(-1, 2, 20, dtype=torch.float32, device="cuda").view(1, 1, 20)
    weight = torch.linspace(-1, 1, 9 * 20, dtype=torch.float32, device="cuda").view(9, 20)
    given = x, x[0, 0] + 1, x[0, 0] - 1, weight, weight[:, 0].contiguous()
    exact, gain, shift, right, bias = (part.double() for part in given)
    wanted = plain_norm_linear(exact, gain, shift, 1e-5, right, bias)
    found = norm_linear(given[0], given[1], given[2], 1e-5, given[3], given[4])
    return torch.allclose(found.double(), wanted, atol=1e-3)


@torch.library.custom_op(
    "mallang::norm_linear",
    mutates_args=(),
    schema="(Tensor x, Tensor gain, Tensor? shift, float epsilon, Tensor weight, Tensor? bias) -> Tensor",
)
def norm_linear(
    x: Float[Tensor, "*ones inputs"],
    gain: Float[Tensor, " inputs"],
    shift: Float[Tensor, " inputs"] | None,
    epsilon: float,
    weight: Float[Tensor, "outputs inputs"],
    bias: Float[Tensor, " outputs"] | None,
) -> Float[Tensor, "*ones outputs"]:
    """LayerNorm and the linear layer, in one kernel on a GPU."""
    start = launch if x.is_cuda else plain_norm_linear
    return start(x, gain, shift, epsilon, weight, bias)


def launch(
    x: Tensor, gain: Tensor, shift: Tensor | None, epsilon: float, weight: Tensor, bias: Tensor | None
) -> Tensor:
    """Launch the kernel."""
    x = x.contiguous()
    outputs, inputs = weight.shape
    y: Tensor = allocate_outputs(x, gain, shift, epsilon, weight, bias)
    _norm_linear[(-(-outputs // ROWS),)](
        x, gain, gain if shift is None else shift, weight, gain if bias is None else bias, y, outputs, inputs, epsilon,
        shifts=shift is not None, adds=bias is not None, rows=ROWS, block=triton.next_power_of_2(inputs), num_warps=4,
    )  # fmt: skip
    return y


@norm_linear.register_fake
def allocate_outputs(
    x: Tensor, gain: Tensor, shift: Tensor | None, epsilon: float, weight: Tensor, bias: Tensor | None
) -> Tensor:
    """An empty output of the right shape, for tracing."""
    return x.new_empty(*x.shape[:-1], len(weight))


def plain_norm_linear(
    x: Tensor, gain: Tensor, shift: Tensor | None, epsilon: float, weight: Tensor, bias: Tensor | None
) -> Tensor:
    """LayerNorm and the linear layer in plain torch."""
    return F.linear(F.layer_norm(x, gain.shape, gain, shift, epsilon), weight, bias)


if TYPE_CHECKING:
    _norm_linear: Any
elif triton is not None:

    @triton.jit
    @no_type_check
    def _norm_linear(
        x, gain, shift, weight, bias, y, outputs, inputs, epsilon,
        shifts: tl.constexpr, adds: tl.constexpr, rows: tl.constexpr, block: tl.constexpr,
    ):  # fmt: skip
        """`rows` of the outputs."""
        row, column = tl.program_id(0) * rows + tl.arange(0, rows), tl.arange(0, block)
        inside, there = column < inputs, row < outputs
        # Loaded first: the normalization hides the memory latency of the weight.
        place = weight + row[:, None].to(tl.int64) * inputs + column[None, :]
        w = tl.load(place, mask=there[:, None] & inside[None, :], other=0.0)
        scale = tl.load(gain + column, mask=inside, other=0.0).to(tl.float32)
        if shifts:
            move = tl.load(shift + column, mask=inside, other=0.0).to(tl.float32)
        if adds:
            more = tl.load(bias + row, mask=there, other=0.0).to(tl.float32)
        given = tl.load(x + column, mask=inside, other=0.0).to(tl.float32)
        apart = tl.where(inside, given - tl.sum(given, axis=0) / inputs, 0.0)
        normal = apart * tl.rsqrt(tl.sum(apart * apart, axis=0) / inputs + epsilon) * scale
        if shifts:
            normal += move
        normal = normal.to(x.dtype.element_ty).to(tl.float32)  # rounded as the output of LayerNorm would be
        found = tl.sum(w.to(tl.float32) * normal[None, :], axis=1)
        if adds:
            found += more
        tl.store(y + row, found.to(y.dtype.element_ty), mask=there)
