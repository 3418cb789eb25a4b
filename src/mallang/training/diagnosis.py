"""Stops a training run on NaN, divergence or zero gradients, and says why."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import nn

from mallang.errors import UserError

TOO_HIGH, NATS = 1.5, 2.0
"""A loss this many times the first one, and this many nats above it, has diverged. Both conditions, since a run that
starts from trained weights starts near zero, where half as much again means nothing."""

LEARNED = 0.01
"""A loss below this may have a gradient of zero: the training text is memorized."""


GAINED = 0.1
"""A loss of masked tokens this many nats below that of their frequencies has used the text around them."""


def note_of_frequencies(values: Mapping[str, float]) -> str:
    """A sentence where a masked language model says no more than how frequent each token is; empty elsewhere.

    `values` are the scores of a validation. Many runs stay there for a long time: a rate too high, or no warm-up.
    """
    loss, unigram = values.get("mlm"), values.get("unigram")
    if loss is None or unigram is None or loss <= unigram - GAINED:
        return ""
    return (
        f"the loss of masked tokens, {loss:.2f}, is that of the frequencies of tokens alone, {unigram:.2f}: nothing is "
        "learned of the text around them yet; if this stays, try another optimizer.learning_rate or a longer "
        "schedule.warmup"
    )


def check_health(
    model: nn.Module, *, step: int, rate: float, norm: float, loss: float | None, first_loss: float | None, saved: int
) -> None:
    """Raise an error on NaN or infinity, on a loss that has diverged, and on zero gradients."""
    is_finite = math.isfinite(norm) and (loss is None or math.isfinite(loss))
    ran_away = loss is not None and first_loss is not None and loss > max(TOO_HIGH * first_loss, first_loss + NATS)
    stands_still = is_finite and norm == 0 and loss is not None and loss > LEARNED
    if is_finite and not ran_away and not stands_still:
        return
    if stands_still:
        what = f"nothing is learned: the loss is {loss:.3g}, but its gradient is zero for all weights"
    elif is_finite:
        what = f"the training has diverged: the loss is {loss:.3g}, it began at {first_loss:.3g}"
    else:
        what = f"the training broke down: {broken_part(model)}"
    shown = "unknown" if loss is None else f"{loss:.4g}"
    raise UserError(
        what,
        where=f"step {step}: loss {shown}, gradient norm {norm:.4g}, learning rate {rate:.3g}; last good checkpoint: "
        + (f"step {saved}" if saved else "none"),
        todo="train.engine=eager, to see whether the engine is to blame"
        if stands_still
        else "a lower optimizer.learning_rate, a longer schedule.warmup, optimizer.max_grad_norm=1.0, "
        "or train.precision=fp32",
    )


def has_finite_weights(model: nn.Module) -> bool:
    """Whether no weight is NaN or infinite; this waits for the device."""
    return all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters())


def broken_part(model: nn.Module) -> str:
    """A sentence that names the first parameter or gradient with a NaN or infinity."""
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            return f"the weights of {name} are no longer finite"
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and not torch.isfinite(parameter.grad).all():
            return f"the gradient of {name} is not finite"
    return "the loss is not finite"
