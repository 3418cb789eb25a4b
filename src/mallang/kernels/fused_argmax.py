"""Fused argmax on a GPU: the argmax of every row of logits and its log-probability in one pass, for greedy search.

Op by op all log-probabilities would be written in float32 and read twice, though only one is needed. Here several
programs read the parts of a row once, and one more program per row reduces their results:

    log p = (x − m) − log Σ exp(x − m)                 m is the maximum of the row
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, no_type_check

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mallang.kernels.dispatch import tl, tried_once, triton

PART = 4096
"""Columns that a program reads."""


def is_at_hand(logits: Float[Tensor, "rows words"]) -> bool:
    """Whether the kernels can run on these logits."""
    return logits.is_cuda and logits.stride(1) == 1 and works()


@tried_once("argmax")
def works() -> bool:
    """Self-test: whether the kernels agree with the formula."""
    logits = torch.tensor([[5.0, 1.0, 2.0, 2.0], [0.0, 0.0, 0.0, 9.0]], device="cuda")
    words, log_probs = fused_argmax(logits, torch.zeros((), dtype=torch.long, device="cuda"), (0, 0), 3, 2)
    wanted = logits.log_softmax(dim=1).gather(1, words[:, None])[:, 0]
    return words.tolist() == [2, 1] and torch.allclose(log_probs, wanted, atol=1e-5)


def fused_argmax(
    logits: Float[Tensor, "rows words"], said: Int[Tensor, ""], never: tuple[int, int], late: int, least: int
) -> tuple[Int[Tensor, " rows"], Float[Tensor, " rows"]]:
    """The most probable word of every row and its log-probability; ties go to the lower index.

    The two words `never` are excluded, and the word `late` while the output, this word included, is shorter than
    `least`; they still count in the softmax. A NaN is never chosen, but makes the log-probability NaN; where all words
    are excluded, word 0 is chosen with −∞.
    """
    found: tuple[Tensor, Tensor] = argmax_rows(logits, said, *never, late, least)
    return found


@torch.library.custom_op(
    "mallang::argmax_rows",
    mutates_args=(),
    schema="(Tensor logits, Tensor said, int never, int nor, int late, int least) -> (Tensor, Tensor)",
)
def argmax_rows(
    logits: Float[Tensor, "rows words"], said: Int[Tensor, ""], never: int, nor: int, late: int, least: int
) -> tuple[Int[Tensor, " rows"], Float[Tensor, " rows"]]:
    """`fused_argmax` with integer arguments, as a custom op that a compiler does not trace."""
    rows, words = logits.shape
    parts = -(-words // PART)
    found = torch.empty(3, rows, parts, dtype=torch.float32, device=logits.device)
    places = torch.empty(rows, parts, dtype=torch.long, device=logits.device)
    _argmax_part[(rows, parts)](
        logits, said, found, places, logits.stride(0), rows, words, parts, never, nor, late, least,
        part=PART, num_warps=8,
    )  # fmt: skip
    word, log_prob = allocate_words(logits, said, never, nor, late, least)
    _join_parts[(rows,)](
        found, places, word, log_prob, rows, words, parts, block=triton.next_power_of_2(parts), num_warps=1
    )  # fmt: skip
    return word, log_prob


@argmax_rows.register_fake
def allocate_words(logits: Tensor, said: Tensor, never: int, nor: int, late: int, least: int) -> tuple[Tensor, Tensor]:
    """Empty outputs of the right shapes, for tracing."""
    rows = len(logits)
    return logits.new_empty(rows, dtype=torch.long), logits.new_empty(rows, dtype=torch.float32)


if TYPE_CHECKING:
    _argmax_part: Any
    _join_parts: Any
elif triton is not None:

    @triton.jit
    @no_type_check
    def _argmax_part(
        logits, said, found, places, stride, rows, words, parts, never, nor, late, least, part: tl.constexpr
    ):  # fmt: skip
        """One part of one row: its maximum, its sum of exponentials, and the best allowed word."""
        row, number = tl.program_id(0).to(tl.int64), tl.program_id(1)
        column = number * part + tl.arange(0, part)
        x = tl.load(logits + row * stride + column, mask=column < words, other=float("-inf")).to(tl.float32)
        highest = tl.max(x, axis=0)
        base = tl.where(highest == float("-inf"), 0.0, highest)  # all −∞: avoids −∞ − (−∞)
        total = tl.sum(tl.exp(x - base), axis=0)
        too_early = tl.load(said) + 1 < least
        barred = (column == never) | (column == nor) | ((column == late) & too_early) | (x != x)
        x = tl.where(barred, float("-inf"), x)
        best = tl.max(x, axis=0)
        place = tl.min(tl.where(x == best, column, words), axis=0)
        at = row * parts + number
        tl.store(found + at, highest)
        tl.store(found + rows * parts + at, total)
        tl.store(found + 2 * rows * parts + at, best)
        tl.store(places + at, place.to(tl.int64))

    @triton.jit
    @no_type_check
    def _join_parts(found, places, word, log_prob, rows, words, parts, block: tl.constexpr):
        """Reduce the parts of one row."""
        row, number = tl.program_id(0).to(tl.int64), tl.arange(0, block)
        at, inside = row * parts + number, number < parts
        highest = tl.load(found + at, mask=inside, other=float("-inf"))
        total = tl.load(found + rows * parts + at, mask=inside, other=0.0)
        best = tl.load(found + 2 * rows * parts + at, mask=inside, other=float("-inf"))
        place = tl.load(places + at, mask=inside, other=words)
        top = tl.max(highest, axis=0)
        base = tl.where(top == float("-inf"), 0.0, top)
        taken = tl.max(best, axis=0)
        whole = tl.sum(total * tl.exp(highest - base), axis=0)
        tl.store(word + row, tl.min(tl.where(best == taken, place, words), axis=0))
        nothing = taken == float("-inf")
        tl.store(log_prob + row, tl.where(nothing, taken, taken - base - tl.log(whole)))
