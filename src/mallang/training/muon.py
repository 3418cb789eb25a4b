"""Muon: the update of every matrix is orthogonalized (Jordan et al. 2024, kellerjordan.github.io/posts/muon).

    M ← momentum · M + (1 − momentum) · G                G' = (1 − momentum) · G + momentum · M     (Nesterov)
    G' = U S Vᵀ  →  U Vᵀ                                 all singular values of the update become 1
    W ← (1 − rate · decay) · W − rate · 0.2 √max(rows, columns) · U Vᵀ

The last factor matches the RMS of an update to that of AdamW, so that one learning rate serves both (Liu et al. 2025,
arXiv:2502.16982). No SVD is computed: five Newton–Schulz iterations X ← a X + b (X Xᵀ) X + c (X Xᵀ)² X, starting from
X = G' / |G'|, bring all singular values near 1 (with these a, b, c between 0.68 and 1.14, unless they were nearly 0).
On a GPU the iterations run in bfloat16, batched over matrices of one shape.

Muon is for hidden matrices. Embeddings and the output have one row per word, and most words are not in a batch; AdamW
updates them and all parameters that are not matrices. Matrices that are fused into one parameter are orthogonalized
separately where `pieces_of` knows them: W^Q, W^K and W^V, the gates of recurrent layers, the two halves of gated
convolutions, highways and maxout.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mallang.errors import UserError
from mallang.layers.attention import CrossAttention, SelfAttention
from mallang.layers.characters import Highway
from mallang.layers.convolution import GatedConvolution
from mallang.layers.head import Projection
from mallang.layers.recurrent import Maxout
from mallang.tasks.contract import Group

if TYPE_CHECKING:
    from mallang.training.optimizer import Config

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""a, b and c of the Newton–Schulz iteration, chosen to raise small singular values as fast as possible."""
STEPS = 5
MOMENTUM = 0.95


def build(config: Config, groups: Sequence[Group], model: nn.Module) -> Muon:
    """Muon for a model's hidden matrices, AdamW for all other parameters."""
    tables, matrices, others = tables_of(model), [], []
    for group in groups:
        hidden = [p for _, p in group.parameters if is_matrix(p) and p.dim() == 2 and p not in tables]
        decayed = [p for _, p in group.parameters if is_matrix(p) and (p.dim() > 2 or p in tables)]
        plain = [p for _, p in group.parameters if not is_matrix(p)]
        scale = group.scale * (config.adam_learning_rate or config.learning_rate) / config.learning_rate
        if hidden:
            matrices.append({"params": hidden, "scale": group.scale, "weight_decay": config.weight_decay})
        others += [{"params": decayed, "scale": scale, "weight_decay": config.weight_decay}] if decayed else []
        others += [{"params": plain, "scale": scale, "weight_decay": 0.0}] if plain else []
    if not matrices:
        raise UserError("muon is for models with hidden matrices, and this one has none", todo="optimizer.name=adamw")
    rest = (
        torch.optim.AdamW(others, lr=config.learning_rate, betas=config.betas, eps=config.epsilon, fused=True)
        if others
        else None
    )
    momentum = MOMENTUM if config.momentum is None else config.momentum
    return Muon(matrices, rest, rate=config.learning_rate, momentum=momentum, pieces=pieces_of(model))


class Muon(torch.optim.Optimizer):
    """Muon and AdamW as one optimizer: one list of parameter groups, one state, one step."""

    def __init__(
        self,
        matrices: list[dict[str, Any]],
        rest: torch.optim.Optimizer | None,
        *,
        rate: float,
        momentum: float = MOMENTUM,
        pieces: Mapping[Tensor, Sequence[int]] | None = None,
    ) -> None:
        super().__init__(matrices, {"lr": rate, "weight_decay": 0.0, "momentum": momentum})
        self.own, self.rest, self.pieces = list(self.param_groups), rest, pieces or {}
        self.found_inf: Tensor | None = None
        """1 to skip an update, 0 to make it, on the device: the name by which torch's fused optimizers know it."""
        if rest is not None:
            self.param_groups.extend(rest.param_groups)
            rest.state = self.state  # the saved and restored state is that of both

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One update."""
        for group in self.own:
            self.update(group, [parameter for parameter in group["params"] if parameter.grad is not None])
        if self.rest is not None:
            self.rest.found_inf = self.found_inf  # type: ignore[attr-defined]
            self.rest.step()

    def update(self, group: Mapping[str, Any], parameters: list[Tensor]) -> None:
        """Update these matrices, batched by shape, unless `found_inf` says to skip the update."""
        if not parameters:
            return
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        for parameter in parameters:
            if "momentum" not in self.state[parameter]:
                self.state[parameter]["momentum"] = torch.zeros_like(parameter)
        memories = [self.state[parameter]["momentum"] for parameter in parameters]
        decayed = 1 - group["lr"] * group["weight_decay"]
        if self.found_inf is not None:
            # With the momentum as its gradient, the momentum does not change.
            for gradient, memory in zip(gradients, memories, strict=True):
                torch.where(self.found_inf.bool(), memory, gradient, out=gradient)
            decayed = torch.where(self.found_inf.bool(), 1.0, decayed)
        torch._foreach_lerp_(memories, gradients, 1 - group["momentum"])
        wanted = torch._foreach_lerp(gradients, memories, group["momentum"])
        torch._foreach_mul_(parameters, decayed)
        alike: dict[tuple[int, int], list[tuple[Tensor, Tensor]]] = defaultdict(list)
        for parameter, change in zip(parameters, wanted, strict=True):
            sizes = list(self.pieces.get(parameter, [len(parameter)]))
            for place, piece in zip(torch.split(parameter, sizes), torch.split(change, sizes), strict=True):
                upright = len(piece) <= piece.shape[1]
                pair = (place, piece) if upright else (place.T, piece.T)
                alike[pair[1].shape[0], pair[1].shape[1]].append(pair)
        for (_, longer), pairs in alike.items():
            changes = orthogonal(torch.stack([piece for _, piece in pairs]))
            if self.found_inf is not None:
                changes = changes * (1 - self.found_inf)
            places = [place for place, _ in pairs]
            torch._foreach_add_(places, list(changes.unbind()), alpha=-group["lr"] * 0.2 * math.sqrt(longer))


def orthogonal(matrices: Float[Tensor, "count rows columns"]) -> Float[Tensor, "count rows columns"]:
    """About U Vᵀ of each matrix: the same singular vectors, singular values near 1; rows must not exceed columns."""
    a, b, c = COEFFICIENTS
    x = matrices / (matrices.norm(dim=(1, 2), keepdim=True) + 1e-7)
    if x.is_cuda:
        x = x.bfloat16()
    for _ in range(STEPS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    result: Tensor = x.to(matrices.dtype)
    return result


def is_matrix(parameter: Tensor) -> bool:
    """Whether a parameter has rows and columns: not a bias, a norm or the gains of weight norm, a single column."""
    return sum(size > 1 for size in parameter.shape) > 1


def tables_of(model: nn.Module) -> set[Tensor]:
    """The weights with one row per word or position."""
    kinds = nn.Embedding | nn.EmbeddingBag | Projection
    return {module.weight for module in model.modules() if isinstance(module, kinds)}


def pieces_of(model: nn.Module) -> dict[Tensor, Sequence[int]]:
    """The row counts of the matrices that are fused into one parameter."""
    pieces: dict[Tensor, Sequence[int]] = {}
    for module in model.modules():
        if isinstance(module, SelfAttention):
            pieces[module.query_key_value.weight] = module.sizes
        elif isinstance(module, CrossAttention):
            pieces[module.key_value.weight] = module.sizes
        elif isinstance(module, nn.RNNBase | nn.RNNCellBase):
            for parameter in module.parameters():
                if parameter.dim() == 2 and len(parameter) % module.hidden_size == 0:
                    pieces[parameter] = [int(module.hidden_size)] * (len(parameter) // int(module.hidden_size))
        elif isinstance(module, GatedConvolution | Highway | Maxout):  # with weight norm the parameter has another name
            halves = (parameter for parameter in module.parameters() if parameter.dim() == 2)
            pieces.update((parameter, [len(parameter) // 2] * 2) for parameter in halves)
    return pieces
