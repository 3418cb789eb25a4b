"""The precision of decoding: float32, or bfloat16 with a copy of the weights."""

from __future__ import annotations

import copy
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from mallang.decoding.contract import Autoregressive, Config, is_in_training
from mallang.errors import UserError
from mallang.layers.quantization import Int8Linear
from mallang.layers.spelling import Spelling

ROUGH: WeakKeyDictionary[nn.Module, nn.Module] = WeakKeyDictionary()
"""The bfloat16 copies of models."""


def at_precision(model: Autoregressive, config: Config) -> Autoregressive:
    """The model itself, or a bfloat16 copy of its current weights.

    The copy is allocated once and its weights are updated at every call. A copy rather than autocast, which would
    convert every weight at every step.
    """
    # Exact search compares outputs with close scores: with bfloat16, rounding would decide.
    auto = "fp32" if config.method in ("best-first", "exhaustive") else usual(model)
    wanted = auto if config.precision == "auto" else config.precision
    if wanted == "fp32":
        return model
    if not isinstance(model, nn.Module):
        raise UserError(
            f"decoding.precision is bf16, but {type(model).__name__} is not a torch module that could be copied",
            todo="decoding.precision = fp32",
        )
    if any(isinstance(part, Int8Linear) for part in model.modules()):
        raise UserError(
            "decoding.precision is bf16, but the weights of the model are 8-bit integers",
            todo="leave out precision, or int8",
        )
    if model not in ROUGH:
        ROUGH[model] = copy.deepcopy(model).to(torch.bfloat16)
    own, theirs = weights_of(ROUGH[model]), weights_of(model)
    if [(each.shape, each.device) for each in own] != [(each.shape, each.device) for each in theirs]:
        del ROUGH[model]
        return at_precision(model, config)
    with torch.no_grad():
        torch._foreach_copy_(own, theirs)
    follow_spelling(ROUGH[model], model)
    return ROUGH[model].train(is_in_training(model))  # type: ignore[return-value]


def follow_spelling(rough: object, model: object) -> None:
    """Let the copy of a model read the words outside the vocabulary that the model itself has met since."""
    if not isinstance(rough, nn.Module) or not isinstance(model, nn.Module) or rough is model:
        return
    for part, original in zip(rough.modules(), model.modules(), strict=True):
        if isinstance(part, Spelling) and isinstance(original, Spelling):
            part.follow(original)


def weights_of(model: nn.Module) -> list[Tensor]:
    """Each tensor of a model's state dict; computed tables, which may grow, are not in it."""
    saved = model.state_dict(keep_vars=True).values()
    return list({id(tensor): tensor for tensor in saved if isinstance(tensor, Tensor)}.values())


def usual(model: Autoregressive) -> str:
    """The default precision: bfloat16 on a GPU that supports it, as in training, since decoding is bound by memory
    bandwidth and bfloat16 halves the bytes; float32 elsewhere, where all runners must give equal outputs."""
    first = next(model.parameters(), None) if isinstance(model, nn.Module) else None
    rough = first is not None and first.is_cuda and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bf16" if rough else "fp32"
