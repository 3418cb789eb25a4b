"""Attention step by step with its numbers: X, Q, K, V, QKᵀ, scaling, mask, softmax, the heads, the output.

    attention_steps(mallang.load("runs/x"), "유나는 배를 탔다.", "encoder.0.self").text(head=1)     of a trained layer
    multi_head_attention(x, w_q, w_k, w_v, w_o, heads=8).text(head=1)        of matrices of one's own
    basic_self_attention(x)                                                  without any parameters: the first rung

The numbers of a trained layer are those that it computes: queries, keys and values as they enter the softmax (in
`modern_gpt` normalized and rotated), recorded while `forward` reads a text. `tests/inspection/test_attention_steps.py`
computes them again, number by number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from rich.cells import cell_len
from torch import Tensor, nn

from mallang import notebook
from mallang.decoding.contract import inference
from mallang.errors import UserError, nearest
from mallang.kernels.attention import Mask, Texts, Window
from mallang.layers.attention import Attention, CrossAttention, readable_name, record_attention

WIDEST = 12
"""The maximum number of columns of a table as text."""


class Basic(NamedTuple):
    """Self-attention without parameters: z_i = Σ_j softmax_j(x_i · x_j) x_j."""

    scores: Float[Tensor, "token token"]
    weights: Float[Tensor, "token token"]
    output: Float[Tensor, "token dim"]


def basic_self_attention(x: Float[Tensor, "token dim"], mask: Bool[Tensor, "token token"] | None = None) -> Basic:
    """The first rung: x_i · x_j for every pair of tokens, softmax, weighted sums. Nothing is learned."""
    scores = x @ x.T
    weights = (scores if mask is None else scores.masked_fill(~mask, -math.inf)).softmax(dim=-1)
    return Basic(scores, weights, weights @ x)


@dataclass(frozen=True)
class AttentionSteps:
    """All numbers of one attention layer over one text."""

    name: str
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    x: Float[Tensor, "query dim"]
    """What the layer reads."""
    memory: Float[Tensor, "key dim"] | None
    """What cross-attention attends to; None in self-attention, which attends to X itself."""
    q: Float[Tensor, "heads query key_dim"]
    k: Float[Tensor, "heads key key_dim"]
    v: Float[Tensor, "heads key value_dim"]
    mask: Bool[Tensor, "query key"]
    """True = may be seen."""
    weights: Float[Tensor, "heads query key"]
    output: Float[Tensor, "query dim"]
    """The heads, joined and projected."""

    @property
    def scores(self) -> Float[Tensor, "heads query key"]:
        """QKᵀ."""
        return self.q @ self.k.mT

    @property
    def scaled(self) -> Float[Tensor, "heads query key"]:
        """QKᵀ / √key_dim."""
        return self.scores / math.sqrt(self.q.shape[-1])

    @property
    def masked(self) -> Float[Tensor, "heads query key"]:
        """The scaled scores, −∞ where nothing may be seen."""
        return self.scaled.masked_fill(~self.mask, -math.inf)

    @property
    def context(self) -> Float[Tensor, "heads query value_dim"]:
        """softmax · V, head by head."""
        return self.weights @ self.v

    @property
    def joined(self) -> Float[Tensor, "query heads_value_dim"]:
        """[head 1; head 2; …]."""
        return self.context.transpose(0, 1).flatten(1)

    @property
    def basic(self) -> Basic | None:
        """Self-attention over the same X without parameters; none in cross-attention."""
        return None if self.memory is not None else basic_self_attention(self.x, self.mask)

    def rungs(self, head: int) -> Iterator[tuple[str, Tensor, tuple[str, ...], tuple[str, ...]]]:
        """Every step in order, for one head, counted from 1: its formula, its table, the names of rows and columns."""
        if not 1 <= head <= len(self.q):
            raise UserError(f"there is no head {head} in a layer of {len(self.q)}", todo="give 1 for the first")
        own, rows, columns = head - 1, self.queries, self.keys
        yield "X", self.x, rows, numbered(self.x)
        if self.memory is not None:
            yield "M", self.memory, columns, numbered(self.memory)
        elif self.basic is not None:
            yield "X Xᵀ", self.basic.scores, rows, columns
            yield "softmax(X Xᵀ)", self.basic.weights, rows, columns
            yield "softmax(X Xᵀ) X", self.basic.output, rows, numbered(self.x)
        read = "X" if self.memory is None else "M"
        yield f"Q = X Wq, head {head}", self.q[own], rows, numbered(self.q)
        yield f"K = {read} Wk, head {head}", self.k[own], columns, numbered(self.k)
        yield f"V = {read} Wv, head {head}", self.v[own], columns, numbered(self.v)
        yield "Q Kᵀ", self.scores[own], rows, columns
        yield f"Q Kᵀ / √{self.q.shape[-1]}", self.scaled[own], rows, columns
        yield "masked", self.masked[own], rows, columns
        yield "softmax", self.weights[own], rows, columns
        yield "softmax · V", self.context[own], rows, numbered(self.v)
        yield "[head 1; head 2; …]", self.joined, rows, numbered(self.joined)
        yield "[…] Wo", self.output, rows, numbered(self.output)

    def window(self, first: int, most: int) -> AttentionSteps:
        """The numbers of some tokens of a long text. The weights of a query then need not sum to one."""
        part = slice(first, first + most)
        return AttentionSteps(
            self.name, self.queries[part], self.keys[part], self.x[part],
            None if self.memory is None else self.memory[part],
            self.q[:, part], self.k[:, part], self.v[:, part],
            self.mask[part, part], self.weights[:, part, part], self.output[part],
        )  # fmt: skip

    def text(self, head: int = 1, digits: int = 3) -> str:
        """Every step as a table, for one head."""
        return "\n\n".join(
            f"{formula}  {' × '.join(map(str, table.shape))}\n{as_table(table, rows, columns, digits)}"
            for formula, table, rows, columns in self.rungs(head)
        )

    def _repr_html_(self) -> str:
        """In a notebook: every step of the first head as a table."""
        steps = (
            notebook.note(f"{formula}   {' × '.join(map(str, table.shape))}")
            + notebook.table(
                ["", *columns[:WIDEST]],
                [
                    [name, *(f"{value:.3f}" for value in row[:WIDEST])]
                    for name, row in zip(rows, table.tolist(), strict=True)
                ],
            )
            for formula, table, rows, columns in self.rungs(1)
        )
        return notebook.block(f"{self.name}, head 1 of {len(self.q)}", *steps)

    def to_json(self, head: int = 1) -> dict[str, Any]:
        """Every step as lists of numbers, for one head; null is −∞."""
        return {
            "layer": self.name,
            "head": head,
            "heads": len(self.q),
            "queries": list(self.queries),
            "keys": list(self.keys),
            "steps": [{"step": formula, "values": finite(table.tolist())} for formula, table, *_ in self.rungs(head)],
        }


def numbered(table: Tensor) -> tuple[str, ...]:
    """The columns of a table by number, from 1."""
    return tuple(map(str, range(1, table.shape[-1] + 1)))


def finite(rows: list[list[float]]) -> list[list[float | None]]:
    """Rows of numbers, with null for −∞, which JSON has no word for."""
    return [[value if math.isfinite(value) else None for value in row] for row in rows]


def as_table(table: Tensor, rows: Sequence[str], columns: Sequence[str], digits: int) -> str:
    """A table as text; of a wide one the first columns."""
    shown = list(columns[:WIDEST])
    cells = [
        ["−∞" if value == -math.inf else f"{value:.{digits}f}" for value in row[:WIDEST]] for row in table.tolist()
    ]
    more = f"   … {len(columns) - WIDEST} more" if len(columns) > WIDEST else ""
    left = max(map(cell_len, rows), default=0)  # in columns of a terminal: Hangul takes two
    wide = [max(cell_len(line[i]) for line in [shown, *cells]) for i in range(len(shown))]
    lines = [
        "  ".join(
            [
                name + " " * (left - cell_len(name)),
                *(" " * (width - cell_len(cell)) + cell for cell, width in zip(line, wide, strict=True)),
            ]
        )
        for name, line in zip(["", *rows], [shown, *cells], strict=True)
    ]
    return "\n".join([lines[0] + more, *lines[1:]])


def multi_head_attention(
    x: Float[Tensor, "query dim"],
    w_q: Float[Tensor, "dim heads_key_dim"],
    w_k: Float[Tensor, "dim heads_key_dim"],
    w_v: Float[Tensor, "dim heads_value_dim"],
    w_o: Float[Tensor, "heads_value_dim dim_out"],
    heads: int = 1,
    causal: bool = False,
    tokens: Sequence[str] | None = None,
) -> AttentionSteps:
    """Self-attention over rows of one's own with matrices of one's own, head after head in their columns."""
    if w_q.shape[1] % heads or w_v.shape[1] % heads:
        raise UserError(f"{w_q.shape[1]} and {w_v.shape[1]} columns cannot be divided among {heads} heads")
    q, k, v = ((x @ w).view(len(x), heads, -1).transpose(0, 1) for w in (w_q, w_k, w_v))
    names = tuple(tokens or map(str, range(1, len(x) + 1)))
    seen = torch.ones(len(x), len(x), dtype=torch.bool)
    mask = seen.tril() if causal else seen
    weights = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~mask, -math.inf).softmax(dim=-1)
    output = (weights @ v).transpose(0, 1).flatten(1) @ w_o
    return AttentionSteps("self", names, names, x, None, q, k, v, mask, weights, output)


class Recorded(NamedTuple):
    """What a layer read and computed in one run, with all rows of the batch."""

    x: Tensor
    memory: Tensor | None
    q: Tensor
    k: Tensor
    v: Tensor
    mask: Mask
    output: Tensor


@contextmanager
def record_steps(model: nn.Module) -> Iterator[dict[str, Recorded]]:
    """Record the inputs, the projections and the output of every multi-head attention layer that runs inside.

    Names are those of `record_attention`.
    """
    layers = {readable_name(name): part for name, part in model.named_modules() if isinstance(part, Attention)}
    found: dict[str, Recorded] = {}
    undo: list[Callable[[], None]] = []
    try:
        for name, layer in layers.items():
            undo += listen(name, layer, found)
        yield found
    finally:
        for each in undo:
            each()


def listen(name: str, layer: Attention, found: dict[str, Recorded]) -> list[Callable[[], None]]:
    """Record every run of one layer; returns what ends that."""
    runs, memories, inputs = 0, list[Tensor](), list[Tensor]()

    def attend(queries: Tensor, keys: Tensor, values: Tensor, mask: Mask) -> Tensor:
        nonlocal runs
        output = type(layer).attend(layer, queries, keys, values, mask)
        runs += 1
        key = name if runs == 1 else f"{name}:{runs}"
        found[key] = Recorded(inputs[-1], memories[-1] if memories else None, queries, keys, values, mask, output)
        return output

    hooks = [layer.register_forward_pre_hook(lambda _, given: inputs.append(given[0].detach()))]
    layer.attend = attend  # type: ignore[method-assign]
    ends: list[Callable[[], None]] = [lambda: delattr(layer, "attend"), *(hook.remove for hook in hooks)]
    if isinstance(layer, CrossAttention):

        def remember(memory: Tensor) -> Any:
            memories.append(memory.detach())
            return CrossAttention.remember(layer, memory)

        layer.remember = remember  # type: ignore[method-assign]
        ends.append(lambda: delattr(layer, "remember"))
    return ends


def steps_of(
    model: nn.Module,
    forward: Callable[[], object],
    sides: Callable[[str, int, int], tuple[Sequence[str], Sequence[str]] | None],
    row: int = 0,
) -> dict[str, AttentionSteps]:
    """The steps of every multi-head attention layer while `forward` runs, for one row of its batch.

    `sides` names the tokens of a layer's queries and keys, given how many there are; none: the layer is left out.
    """
    with inference(model), record_attention(model) as weights, record_steps(model) as recorded:
        forward()
    found = {}
    for name, each in recorded.items():
        counts = each.q.shape[2], each.k.shape[2]
        names = sides(name, *counts) if len(each.q) > row else None
        if names is None:
            continue
        memory = None if each.memory is None else plain(each.memory, row)
        q, k, v = (plain(part, row) for part in (each.q, each.k, each.v))
        found[name] = AttentionSteps(
            name, tuple(names[0]), tuple(names[1]), plain(each.x, row), memory, q, k, v,
            visible(each.mask, row, *counts), plain(weights[name], row), plain(each.output, row),
        )  # fmt: skip
    return found


def plain(part: Tensor, row: int) -> Tensor:
    """One row of a batch, in float32 on the CPU."""
    return part[row].detach().float().cpu()


def visible(mask: Mask, row: int, queries: int, keys: int) -> Bool[Tensor, "query key"]:
    """A mask of one row as a table, True = may be seen."""
    if isinstance(mask, Window):
        mask = mask.mask(keys, torch.device("cpu"))
    if isinstance(mask, Texts):
        mask = mask.mask(keys)
    if mask is None:
        return torch.ones(queries, keys, dtype=torch.bool)
    if isinstance(mask, str):
        return torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
    seen = mask if mask.dtype == torch.bool else mask == 0
    own = seen[min(row, len(seen) - 1), 0].cpu()
    return own.expand(queries, keys)


def choose_steps(found: Mapping[str, AttentionSteps], layer: str | None) -> AttentionSteps:
    """The steps of a layer; of the first one if none is named."""
    if not found:
        raise UserError(
            "the model has no multi-head attention, so there are no Q, K and V to show",
            todo="use a model that has, such as transformer, gpt or bert",
        )
    if layer is None:
        return next(iter(found.values()))
    if layer not in found:
        raise UserError(f"the model has no layer {layer!r} with Q, K and V", todo=nearest(layer, found))
    return found[layer]
