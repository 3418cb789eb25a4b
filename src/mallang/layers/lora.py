"""LoRA: frozen linear layers with a trained low-rank update (Hu et al. 2021, arXiv:2106.09685).

    y = x Wᵀ + b  +  (alpha / rank) · dropout(x) Aᵀ Bᵀ        A: rank × inputs, B: outputs × rank, B = 0 at first

W and b are frozen, so that A and B are all that a task adds to a model. One linear layer may compute several matmuls,
such as W^Q, W^K and W^V: each adapted one then has its own A and B, and the others have none. After training the update
is added to W, and the layer is an ordinary one again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from mallang.layers.attention import SelfAttention
from mallang.layers.dropout import Dropout
from mallang.layers.feedforward import FeedForward
from mallang.layers.linear import Linear

Target = Literal["query", "key", "value", "output", "ffn"]
"""The linear layers of a block that may be adapted: those of self-attention, and both of the feed-forward network."""


class LoRALinear(Linear):
    """A frozen linear layer with a low-rank update of some of its outputs.

    The weight and the bias keep their names, so that the weights of the model below fit.
    """

    def __init__(
        self, base: nn.Linear, rank: int, scale: float, dropout: float = 0.0, sizes: Sequence[tuple[int, bool]] = ()
    ) -> None:
        """`sizes` has the number of outputs of each matmul of the layer, and whether it is adapted; default: one."""
        super().__init__(base.in_features, base.out_features, bias=base.bias is not None, device="meta")
        self.weight, self.bias = base.weight.requires_grad_(False), base.bias
        if self.bias is not None:
            self.bias.requires_grad_(False)
        self.rank, self.scale, self.sizes = rank, scale, list(sizes) or [(base.out_features, True)]
        adapted = [size for size, is_adapted in self.sizes if is_adapted]
        self.dropout = Dropout(dropout)
        self.lora_down = nn.Parameter(torch.empty(len(adapted) * rank, base.in_features))
        self.lora_up = nn.Parameter(torch.zeros(sum(adapted), rank))
        nn.init.kaiming_uniform_(self.lora_down, a=math.sqrt(5))

    def forward(self, x: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch outputs"]:
        """The new x."""
        low = F.linear(self.dropout(x), self.lora_down) * self.scale
        change = [
            low.new_zeros(*low.shape[:-1], size) if up is None else F.linear(low[..., place], up)
            for size, place, up in self.parts()
        ]
        y: Tensor = super().forward(x)
        return y + torch.cat(change, dim=-1)

    def parts(self) -> Iterator[tuple[int, slice, Tensor | None]]:
        """The outputs of every matmul, its rows of `lora_down`, and its B; None without an update."""
        row = number = 0
        for size, is_adapted in self.sizes:
            place = slice(number * self.rank, (number + 1) * self.rank)
            yield size, place, self.lora_up[row : row + size] if is_adapted else None
            row, number = row + size * is_adapted, number + is_adapted

    @torch.no_grad()
    def update(self) -> Float[Tensor, "outputs inputs"]:
        """What the update adds to the weight: (alpha / rank) · B A."""
        changes = [
            self.weight.new_zeros(size, self.in_features) if up is None else self.scale * (up @ self.lora_down[place])
            for size, place, up in self.parts()
        ]
        return torch.cat(changes)

    @torch.no_grad()
    def merged(self) -> Linear:
        """An ordinary layer that computes the same."""
        made = Linear(self.in_features, self.out_features, bias=self.bias is not None, device="meta")
        made.weight, made.bias = nn.Parameter(self.weight + self.update()), self.bias
        return made.requires_grad_(True)


def adapt(model: nn.Module, targets: Sequence[Target], rank: int, scale: float, dropout: float = 0.0) -> int:
    """Freeze a model and adapt the linear layers that the targets name; returns how many were adapted."""
    model.requires_grad_(False)
    count = 0
    for part in list(model.modules()):
        if isinstance(part, SelfAttention):
            adapted = [name in targets for name in ("query", "key", "value")]
            if any(adapted):
                sizes = list(zip(part.sizes, adapted, strict=True))
                part.query_key_value = LoRALinear(part.query_key_value, rank, scale, dropout, sizes)
            if "output" in targets:
                part.output = LoRALinear(part.output, rank, scale, dropout)
            count += sum(adapted) + ("output" in targets)
        elif isinstance(part, FeedForward) and "ffn" in targets:
            part.up_proj = LoRALinear(part.up_proj, rank, scale, dropout)
            part.down_proj = LoRALinear(part.down_proj, rank, scale, dropout)
            count += 2
    return count


def adapters(model: nn.Module) -> dict[str, LoRALinear]:
    """The adapted layers of a model by name."""
    return {name: part for name, part in model.named_modules() if isinstance(part, LoRALinear)}


def are_adapted(names: Iterable[str]) -> bool:
    """Whether weights of these names hold updates beside the frozen weights, not merged into them."""
    return any(name.endswith((".lora_down", ".lora_up")) for name in names)


def merge_adapters(model: nn.Module) -> None:
    """Replace every adapted layer by an ordinary one that computes the same."""
    for module in list(model.modules()):
        for name, part in list(module.named_children()):
            if isinstance(part, LoRALinear):
                setattr(module, name, part.merged().train(part.training))
