"""Gradient checkpointing: the backward pass computes the activations of a block again (Chen et al. 2016,
arXiv:1604.06174).

Then only the inputs of the blocks are kept between forward and backward, for about a third more computation. Dropout
draws the same masks again, so that the gradients are those without it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


@runtime_checkable
class Recomputable(Protocol):
    """A module whose activations may be computed again in the backward pass: a block of a deep model."""

    is_recomputable: bool


def recompute_blocks(model: nn.Module) -> int:
    """Let the blocks of a model compute their activations again in the backward pass; returns how many are trained."""
    blocks = [part for part in model.modules() if isinstance(part, Recomputable) and isinstance(part, nn.Module)]
    found = [block for block in blocks if any(each.requires_grad for each in block.parameters())]
    for block in found:
        block.forward = recomputed(block.forward)
    return len(found)


def recomputed(forward: Callable[..., Any]) -> Callable[..., Any]:
    """A function that keeps nothing but its arguments for the backward pass."""

    @wraps(forward)
    def kept(*arguments: Any, **named: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*arguments, **named)
        return checkpoint(forward, *arguments, use_reentrant=False, **named)

    return kept
