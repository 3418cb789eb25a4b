"""Multi-head scaled dot-product attention (Vaswani et al. 2017, arXiv:1706.03762, section 3.2), and how to see it.

    weights = softmax(Q Kᵀ / √key_dim)      each head by itself
    output  = [head 1; head 2; …] W^O       heads · value_dim → dim

A fused kernel computes this and never holds the weights. Inside `record_attention` the same formula runs in plain
steps and every layer keeps its weights; the two agree to 1e-5.

The other score functions (dot, general, multiplicative, additive, concat) and attention by them are in scores.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from mallang.layers import native
from mallang.layers.few_queries import attend_few, is_made_for, write_and_attend
from mallang.layers.kernel import is_off
from mallang.layers.native_attention import ShortAttention, is_for_short
from mallang.layers.packed import Linear
from mallang.layers.windowed import Window, attend_within, is_worth

Mask: TypeAlias = (
    Bool[Tensor, "_batch _heads _query _key"]
    | Float[Tensor, "_batch _heads _query _key"]
    | Literal["causal"]
    | Window
    | None
)
"""True = may be seen; or 0 = may be seen, −∞ = may not, which is added to the scores and spares kernels a conversion.
"causal" lets query i see the keys up to i and has a faster kernel; a window of a long text is computed in blocks; None
hides nothing."""


SHORT = 256
"""Positions up to which a sequence is short to `kernels_for`."""
WIDE = 128
"""Numbers of a head beyond which the fused kernels of a GPU are slow: over short sequences plain products are not."""


class KeysValues(NamedTuple):
    """What attention looks at, projected once."""

    keys: Float[Tensor, "_batch _heads _key _key_dim"]
    values: Float[Tensor, "_batch _heads _key _value_dim"]

    @property
    def at(self) -> None:
        """New ones have no slots that wait for them."""
        return None

    def extend(
        self,
        keys: Float[Tensor, "batch heads new key_dim"],
        values: Float[Tensor, "batch heads new value_dim"],
    ) -> KeysValues:
        """The old ones and the new."""
        return KeysValues(torch.cat((self.keys, keys), dim=2), torch.cat((self.values, values), dim=2))

    def at_hand(self) -> KeysValues:
        """Laid out for being looked at again and again: a CPU's matrix product wants one column a key."""
        if self.keys.is_cuda:
            return self
        return KeysValues(self.keys.transpose(2, 3).contiguous().transpose(2, 3), self.values.contiguous())


@runtime_checkable
class Extensible(Protocol):
    """The past of one layer: keys and values of what was read, to which new ones are added."""

    @property
    def keys(self) -> Tensor:
        """A row per hypothesis, or per sentence where the hypotheses share one memory."""

    @property
    def values(self) -> Tensor:
        """As many."""

    @property
    def at(self) -> Tensor | slice | None:
        """The slots of the new ones, where there are slots for them."""

    def extend(self, keys: Tensor, values: Tensor) -> KeysValues:
        """The old ones and the new."""


class Attention(nn.Module):
    """What self- and cross-attention share: the heads, the way they look, and the projection that joins them."""

    def __init__(
        self, dim: int, heads: int, key_dim: int, value_dim: int, dropout: float = 0.0, bias: bool = True
    ) -> None:
        super().__init__()
        self.heads, self.key_dim, self.value_dim, self.dropout = heads, key_dim, value_dim, dropout
        self.output = Linear(heads * value_dim, dim, bias=bias)
        self.recorders: list[Recorder] = []

    def split_heads(self, x: Float[Tensor, "batch time inner"]) -> Float[Tensor, "batch {self.heads} time head_dim"]:
        """The share of every head, as a view."""
        return x.view(*x.shape[:2], self.heads, x.shape[-1] // self.heads).transpose(1, 2)

    def attend(
        self,
        queries: Float[Tensor, "batch heads query key_dim"],
        keys: Float[Tensor, "batch heads key key_dim"],
        values: Float[Tensor, "batch heads key value_dim"],
        mask: Bool[Tensor, "#batch #heads #query #key"]
        | Float[Tensor, "#batch #heads #query #key"]
        | Literal["causal"]
        | Window
        | None,
    ) -> Float[Tensor, "batch query dim"]:
        """Look from every query at all keys that the mask lets it see, and join the heads."""
        # A search has few queries and a mask of numbers: on a CPU plain steps are then several times faster, but for
        # a single query whose keys lie as the fused kernel reads them.
        searching = isinstance(mask, Tensor) and mask.is_floating_point() and not mask.is_cuda
        searching = searching and (queries.shape[2] > 1 or keys.stride(-1) != 1)
        wide = (
            not is_off("wide-heads")
            and queries.is_cuda
            and queries.shape[-1] > WIDE
            and keys.shape[2] <= SHORT
            and not isinstance(mask, Window)
        )
        dropout = self.dropout if self.training else 0.0
        if not is_off("c-decode-attention") and self.looks_plainly() and native.is_for_few(queries, keys, values, mask):
            looked: Tensor = self.output(native.attend(queries, keys, values, mask))  # type: ignore[arg-type]
            return looked
        if self.looks_plainly() and is_made_for(queries, keys, values, mask):
            context = attend_few(queries, keys, values, mask)  # type: ignore[arg-type]
        elif not is_off("c-training-attention") and self.looks_plainly() and is_for_short(queries, keys, values, mask):
            context = ShortAttention.apply(queries, keys, values, mask).transpose(1, 2)  # type: ignore[no-untyped-call]
        elif self.recorders or searching or wide:
            context = self.attend_readably(queries, keys, values, mask)
        elif isinstance(mask, Window):
            context = attend_within(mask, queries, keys, values, dropout)
        else:
            context = F.scaled_dot_product_attention(
                queries,
                keys,
                values,
                attn_mask=None if isinstance(mask, str) else mask,
                is_causal=isinstance(mask, str),
                dropout_p=dropout,
            )
        joined: Tensor = self.output(context.transpose(1, 2).flatten(2))
        return joined

    def looks_plainly(self) -> bool:
        """Whether nobody watches the weights and none are dropped."""
        return not self.recorders and not (self.training and self.dropout)

    def attend_readably(
        self,
        queries: Float[Tensor, "batch heads query key_dim"],
        keys: Float[Tensor, "batch heads key key_dim"],
        values: Float[Tensor, "batch heads key value_dim"],
        mask: Mask,
    ) -> Float[Tensor, "batch heads query value_dim"]:
        """The formula of the paper in plain steps; tells the recorders."""
        scores = (queries / math.sqrt(self.key_dim)) @ keys.transpose(-2, -1)
        if isinstance(mask, Window):
            mask = mask.mask(scores.shape[-1], scores.device)
        if isinstance(mask, str):
            mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()[None, None]
        if mask is None:
            weights = scores.softmax(dim=-1)
        elif mask.dtype == torch.bool:  # who may see nothing looks nowhere: softmax alone would make it NaN
            weights = scores.masked_fill(~mask, -math.inf).softmax(dim=-1)
            weights = weights.masked_fill(~mask.any(dim=-1, keepdim=True), 0.0)
        else:
            alone = not self.recorders and not scores.requires_grad
            weights = (scores.add_(mask) if alone else scores + mask).softmax(dim=-1)
        for recorder in self.recorders:
            recorder(scores, weights)
        return F.dropout(weights, self.dropout, self.training).to(values.dtype) @ values


class SelfAttention(Attention):
    """Every position looks at the positions of its own sequence."""

    def __init__(
        self, dim: int, heads: int, key_dim: int, value_dim: int, dropout: float = 0.0, bias: bool = True
    ) -> None:
        super().__init__(dim, heads, key_dim, value_dim, dropout, bias)
        self.sizes = (heads * key_dim, heads * key_dim, heads * value_dim)
        self.query_key_value = Linear(dim, sum(self.sizes), bias=bias)  # one product instead of three

    def input_weights(self) -> list[Tensor]:
        """The matrices W^Q, W^K and W^V, parts of one: an initialisation may treat each by itself."""
        return list(self.query_key_value.weight.detach().split_with_sizes(self.sizes))

    def forward(
        self, x: Float[Tensor, "rows time dim"], mask: Mask = None, past: Extensible | None = None
    ) -> tuple[Float[Tensor, "rows time dim"], KeysValues]:
        """The new x, and the keys and values of all positions so far: give them as `past` to go on from here.

        Where the past has a row per sentence, the width folds into the query axis as in cross-attention.
        """
        folded = x if past is None else x.reshape(len(past.keys), -1, x.shape[-1])
        projected = self.query_key_value(folded)
        queries, keys, values = self.parts_of(projected)
        if past is not None and isinstance(past.at, Tensor) and self.looks_plainly():
            slots = KeysValues(past.keys, past.values)
            if not is_off("cache-write-attention") and is_made_for(queries, *slots, mask):
                context: Tensor = write_and_attend(projected, past.at, *slots, mask)
                return self.output(context).view_as(x), slots
        seen = KeysValues(keys, values) if past is None else past.extend(keys, values)
        return self.attend(queries, *seen, mask).view_as(x), seen

    def project(
        self, x: Float[Tensor, "batch time dim"]
    ) -> tuple[
        Float[Tensor, "batch heads time key_dim"],
        Float[Tensor, "batch heads time key_dim"],
        Float[Tensor, "batch heads time value_dim"],
    ]:
        """The queries, keys and values of these positions."""
        return self.parts_of(self.query_key_value(x))

    def parts_of(
        self, projected: Float[Tensor, "batch time inner"]
    ) -> tuple[
        Float[Tensor, "batch heads time key_dim"],
        Float[Tensor, "batch heads time key_dim"],
        Float[Tensor, "batch heads time value_dim"],
    ]:
        """The same of what was projected."""
        queries, keys, values = map(self.split_heads, projected.split_with_sizes(self.sizes, dim=-1))
        return queries, keys, values

    def remember_nothing(self, x: Float[Tensor, "rows time dim"]) -> KeysValues:
        """The past of rows that have read nothing yet, in the precision that keys and values will have."""
        _, keys, values = self.project(x[:, :0])
        return KeysValues(keys, values)


class CrossAttention(Attention):
    """Every position looks at another sequence, the memory."""

    def __init__(
        self, dim: int, heads: int, key_dim: int, value_dim: int, dropout: float = 0.0, bias: bool = True
    ) -> None:
        super().__init__(dim, heads, key_dim, value_dim, dropout, bias)
        self.sizes = (heads * key_dim, heads * value_dim)
        self.query = Linear(dim, heads * key_dim, bias=bias)
        self.key_value = Linear(dim, sum(self.sizes), bias=bias)

    def input_weights(self) -> list[Tensor]:
        """The matrices W^Q, W^K and W^V, two of them parts of one."""
        return [self.query.weight.detach(), *self.key_value.weight.detach().split_with_sizes(self.sizes)]

    def remember(self, memory: Float[Tensor, "sentences source dim"]) -> KeysValues:
        """The keys and values of a memory: once per sentence, however many steps and hypotheses look at it."""
        return KeysValues(*map(self.split_heads, self.key_value(memory).split(self.sizes, dim=-1)))

    def forward(
        self, x: Float[Tensor, "rows time dim"], memory: KeysValues, mask: Mask = None
    ) -> Float[Tensor, "rows time dim"]:
        """The new x. Rows may be sentences × width: the width then folds into the query axis, nothing is copied."""
        sentences = len(memory.keys)
        queries = self.split_heads(self.query(x.reshape(sentences, -1, x.shape[-1])))  # width · time queries each
        return self.attend(queries, *memory, mask).view_as(x)


def causal_mask(time: int, past: int = 0, window: int | None = None, device: torch.device | None = None) -> Mask:
    """What `time` new positions may see of themselves and of `past` earlier ones: nothing later than itself.

    With a window r (restricted self-attention) position i sees only i−r … i.
    """
    if window is None and past == 0:
        return "causal" if time > 1 else None
    if window is None and time == 1:
        return None
    if window is not None and past == 0 and isinstance(time, int) and is_worth(time, window):
        return Window(window)
    back = distance(time, past, device)
    seen = back >= 0 if window is None else (back >= 0) & (back <= window)
    return seen[None, None]


def segment_mask(segments: Int[Tensor, "batch time"], window: int | None = None) -> Bool[Tensor, "batch 1 time time"]:
    """What the positions of packed rows may see: nothing later than itself, and nothing of another segment."""
    back = distance(segments.shape[1], 0, segments.device)
    seen = back >= 0 if window is None else (back >= 0) & (back <= window)
    return (seen & (segments[:, :, None] == segments[:, None, :]))[:, None]


def padding_mask(real: Bool[Tensor, "batch time"], window: int | None = None) -> Bool[Tensor, "batch 1 queries time"]:
    """All real positions, or with a window r those at most r away.

    A padding query may look at the padding around it, so that it always sees something and stays a number.
    """
    if window is None:
        return real[:, None, None, :]
    near = distance(real.shape[1], 0, real.device).abs() <= window
    return (near & (real[:, None, :] | ~real[:, :, None]))[:, None]


def additive(mask: Bool[Tensor, "*shape"], like: Tensor) -> Float[Tensor, "*shape"]:
    """The same mask as a number to add to scores: 0 = may be seen, −∞ = may not."""
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill_(~mask, -math.inf)


def distance(time: int | torch.SymInt, past: int, device: torch.device | None) -> Tensor:
    """How far key j lies behind query i, for `time` queries that follow `past` keys: [time, past + time].

    In a graph that is exported `time` is a size that is not known yet.
    """
    places = torch.arange(past + time, device=device)  # type: ignore[arg-type]  # its stub knows no SymInt
    return places[past:, None] - places[None, :]


def kernels_for(device: torch.device, longest: int) -> AbstractContextManager[object]:
    """The fused kernels that are fastest for sequences of at most this length: put it around what runs attention.

    On a GPU the memory-efficient kernel is twice as fast as the others while sequences are short: at 32 positions of
    256 × 8 heads of 64 an H200 took 92 µs forward and backward, against 250 with flash attention, 162 with cuDNN's.
    """
    if device.type != "cuda" or longest > SHORT or is_off("sdpa-backend"):
        return nullcontext()
    return sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])


Recorder: TypeAlias = Callable[[Tensor, Tensor], None]
"""Takes the raw scores and the weights of one look: [batch, heads, query, key]."""


@contextmanager
def record_attention(
    model: nn.Module, scores: bool = False, keep_graph: bool = False
) -> Iterator[dict[str, Float[Tensor, "batch heads query key"]]]:
    """Keep the weights of every attention layer that runs inside, by name: "encoder.0.self", "decoder.1.cross".

    With `scores` the raw scores QKᵀ/√key_dim, before any mask, come along as "encoder.0.self.scores"; with
    `keep_graph` gradients can flow through what was kept. A layer that runs again (layers that share weights, a
    second forward) adds "encoder.0.self:2" and so on. Any module with a list `recorders` takes part.
    """
    maps: dict[str, Tensor] = {}
    listening: list[tuple[list[Recorder], Recorder]] = []
    try:
        for name, module in model.named_modules():
            if isinstance(recorders := getattr(module, "recorders", None), list):
                recorder = recorder_of(readable_name(name), maps, scores, keep_graph)
                recorders.append(recorder)
                listening.append((recorders, recorder))
        yield maps
    finally:
        for recorders, recorder in listening:
            recorders.remove(recorder)


def readable_name(name: str) -> str:
    """`encoder.0.self_attention` as `encoder.0.self`, without the mark that compiling leaves."""
    return name.replace("_orig_mod.", "").removesuffix("_attention")


def recorder_of(name: str, maps: dict[str, Tensor], scores: bool, keep_graph: bool) -> Recorder:
    """A recorder that files what it is told under the name of one layer."""
    runs = 0

    def record(raw: Tensor, weights: Tensor) -> None:
        nonlocal runs
        runs += 1
        key = name if runs == 1 else f"{name}:{runs}"
        maps[key] = weights if keep_graph else weights.detach()
        if scores:
            maps[f"{key}.scores"] = raw if keep_graph else raw.detach()

    return record
