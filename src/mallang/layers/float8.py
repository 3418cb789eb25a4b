"""Products of numbers with 8 bits, which newer GPUs compute twice as fast as those of 16.

FP8 Formats for Deep Learning. Micikevicius et al. 2022, arXiv:2209.05433. Of 8 bits four are the exponent and three the
fraction (e4m3): numbers up to 448 with two digits. Every row of either matrix is divided by a scale of its own that
makes its largest number 448, and the product is multiplied by both scales:

    x Wᵀ ≈ (x / s) (W / t)ᵀ · s tᵀ             s, t: the largest of each row / 448

So are the products of linear maps forward and those that give the gradient of x. The product that gives the gradient of
the weight, a sum over all positions of a batch, is of 16 bits: it is where small numbers add up. Of an output over the
vocabulary only the product forward has 8 bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, no_type_check

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from mallang.layers.kernel import asked_once, tl, tried_once, triton

HIGHEST = 448.0
"""The largest number of the format."""
LOWEST = 2.0**-100
"""The least scale: a row of zeros has one, too."""
ALIGN = 16
"""Both sides of a weight must be multiples of this."""
WIDEST = 8192
"""Columns that a program of the kernel holds."""
HELD = 4096
"""Of narrower rows it takes as many as have so many columns together."""
ADDED = 64
"""Rows that a program adds up."""

_wanted = False


@contextmanager
def products_in_8_bits() -> Iterator[None]:
    """Let linear maps multiply in 8 bits where they can, in the whole process."""
    global _wanted
    before, _wanted = _wanted, True
    try:
        yield
    finally:
        _wanted = before


def is_wanted(x: Tensor, weight: Tensor) -> bool:
    """Whether products are to be in 8 bits, and these can be, with those of their gradients."""
    return is_wanted_forward(x, weight) and len(weight) <= WIDEST


def is_wanted_forward(x: Tensor, weight: Tensor) -> bool:
    """Whether products are to be in 8 bits, and this one can be."""
    return _wanted and x.dim() > 1 and x.numel() > 0 and x.dtype == weight.dtype == torch.bfloat16 and fits(weight)


def fits(weight: Tensor) -> bool:
    """Whether a weight has the shape for it."""
    return weight.shape[1] <= WIDEST and not any(side % ALIGN for side in weight.shape)


def are_computed_by(device: torch.device) -> bool:
    """Whether a device has such products."""
    return device.type == "cuda" and multiplies()


@asked_once
def multiplies() -> bool:
    """Whether the GPU does."""
    table = torch.linspace(-1, 1, 32 * ALIGN, device="cuda").view(32, ALIGN).bfloat16()
    rows, scales = rounded_by_formula(table)
    found = torch._scaled_mm(rows, rows.T, scale_a=scales, scale_b=scales.T, out_dtype=table.dtype, use_fast_accum=True)
    exact = table.float()
    return torch.allclose(found.float(), exact @ exact.T, rtol=0.1, atol=0.2)


class Product(torch.autograd.Function):
    """x Wᵀ + b with its gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The product of a table; for what is not a table a view of one must be made outside: others write into it."""
        ctx.save_for_backward(x, weight)
        return multiply(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """With G the gradient of the product: G W in 8 bits, Gᵀ X in 16, and the sum of G."""
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        rough, sums = rounded_with_sums(gradient) if of_bias else (rounded(gradient), None)
        back = multiply_rounded(rough, weight.T, None) if of_x else None
        return back, gradient.T @ x if of_weight else None, sums


def linear(
    x: Float[Tensor, "*batch inputs"], weight: Float[Tensor, "outputs inputs"], bias: Float[Tensor, " outputs"] | None
) -> Float[Tensor, "*batch outputs"]:
    """x Wᵀ + b, whatever the shape of x."""
    product: Tensor = Product.apply(x.flatten(0, -2), weight, bias)  # type: ignore[no-untyped-call]
    return product.view(*x.shape[:-1], -1)


def multiply(
    x: Float[Tensor, "rows inputs"], weight: Float[Tensor, "outputs inputs"], bias: Float[Tensor, " outputs"] | None
) -> Float[Tensor, "rows outputs"]:
    """x Wᵀ + b."""
    return multiply_rounded(rounded(x), weight, bias)


Rounded = tuple[Float[Tensor, "rows columns"], Float[Tensor, "rows 1"]]
"""A table in 8 bits, and what each of its rows is to be multiplied by."""


def multiply_rounded(
    x: Rounded, weight: Float[Tensor, "outputs inputs"], bias: Float[Tensor, " outputs"] | None
) -> Float[Tensor, "rows outputs"]:
    """The same, where x is in 8 bits already."""
    rows, row_scales = x
    columns, column_scales = rounded(weight)
    return torch._scaled_mm(
        rows, columns.T, scale_a=row_scales, scale_b=column_scales.T, bias=bias, out_dtype=weight.dtype,
        use_fast_accum=True,
    )  # fmt: skip


def rounded(table: Float[Tensor, "rows columns"]) -> Rounded:
    """A table in 8 bits."""
    table = table.contiguous()
    if table.is_cuda and works():
        found: Rounded = round_rows(table)
        return found
    return rounded_by_formula(table)


def rounded_by_formula(table: Float[Tensor, "rows columns"]) -> Rounded:
    """The same op by op."""
    # Numbers, not names: a compiler for many shapes stumbles over the latter here.
    scales = (table.abs().amax(dim=1, keepdim=True).float() / 448.0).clamp(min=2.0**-100)
    return (table / scales).to(torch.float8_e4m3fn), scales


def rounded_with_sums(table: Float[Tensor, "rows columns"]) -> tuple[Rounded, Float[Tensor, " columns"]]:
    """A table in 8 bits, and the sums of its columns: of a gradient they are that of a bias."""
    table = table.contiguous()
    if table.is_cuda and works():
        small, scales, sums = round_and_add_rows(table)
        return (small, scales), sums.sum(dim=0).to(table.dtype)
    return rounded_by_formula(table), table.sum(dim=0)


@tried_once("fp8-quantize")
def works() -> bool:
    """Whether the kernel gives what the formula gives."""
    table = torch.tensor([[1.0, -3.0, 0.1], [0.0, 0.0, 0.0]], device="cuda").bfloat16()
    (found, scales), (_, wanted_scales) = round_rows(table), rounded_by_formula(table)
    near = torch.allclose(found.float() * scales, table.float(), rtol=2**-4, atol=0)
    *same, sums = round_and_add_rows(table)
    alike = torch.equal(same[0].float(), found.float()) and torch.equal(same[1], scales)
    return near and alike and torch.allclose(scales, wanted_scales) and torch.equal(sums[0], table[0].float())


@torch.library.custom_op("mallang::round_rows", mutates_args=(), schema="(Tensor table) -> (Tensor, Tensor)")
def round_rows(table: Float[Tensor, "rows columns"]) -> Rounded:
    """The same in one kernel. A compiler is not to look inside: where rows are long, it would read them twice."""
    small, scales = allocate_rounded(table)
    launch(table, small, scales)
    return small, scales


@round_rows.register_fake
def allocate_rounded(table: Tensor) -> tuple[Tensor, Tensor]:
    """Memory of that shape."""
    small = torch.empty_like(table, dtype=torch.float8_e4m3fn)
    return small, table.new_empty(len(table), 1, dtype=torch.float32)


@torch.library.custom_op(
    "mallang::round_and_add_rows", mutates_args=(), schema="(Tensor table) -> (Tensor, Tensor, Tensor)"
)
def round_and_add_rows(table: Float[Tensor, "rows columns"]) -> tuple[Tensor, Tensor, Tensor]:
    """The same, and for every `ADDED` rows their sum."""
    small, scales, sums = allocate_with_sums(table)
    launch(table, small, scales, sums)
    return small, scales, sums


@round_and_add_rows.register_fake
def allocate_with_sums(table: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Memory of those shapes."""
    rows, columns = table.shape
    return *allocate_rounded(table), table.new_empty(-(-rows // ADDED), columns, dtype=torch.float32)


def launch(table: Tensor, small: Tensor, scales: Tensor, sums: Tensor | None = None) -> None:
    """Start the kernel; without sums its programs are as small as can be."""
    rows, columns = table.shape
    block = triton.next_power_of_2(columns)
    together = max(1, min(HELD // block, ADDED))
    many = 1 if sums is None else ADDED // together
    _round_rows[(-(-rows // (together * many)),)](
        table, small, scales, scales if sums is None else sums, rows, columns, highest=HIGHEST, lowest=LOWEST,
        together=together, many=many, block=block, adds=sums is not None, num_warps=8,
    )  # fmt: skip


if TYPE_CHECKING:
    _round_rows: Any
elif triton is not None:

    @triton.jit
    @no_type_check
    def _round_rows(
        table, small, scales, sums, rows, columns,
        highest: tl.constexpr, lowest: tl.constexpr, together: tl.constexpr, many: tl.constexpr, block: tl.constexpr,
        adds: tl.constexpr,
    ):  # fmt: skip
        """Some rows, a few at once."""
        program, column = tl.program_id(0).to(tl.int64), tl.arange(0, block)
        total = tl.zeros((together, block), tl.float32)
        for number in range(many):
            row = (program * many + number) * together + tl.arange(0, together)
            place = row[:, None] * columns + column[None, :]
            inside = (row < rows)[:, None] & (column < columns)[None, :]
            x = tl.load(table + place, mask=inside, other=0.0).to(tl.float32)
            scale = tl.maximum(tl.max(tl.abs(x), axis=1) / highest, lowest)
            tl.store(small + place, (x * (1 / scale)[:, None]).to(small.dtype.element_ty), mask=inside)
            tl.store(scales + row, scale, mask=row < rows)
            if adds:
                total += x
        if adds:
            tl.store(sums + program * columns + column, tl.sum(total, axis=0), mask=column < columns)
