"""A pretrained module inside another one: it moves along to a device, and is neither trained nor saved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import nn


class Frozen(nn.Module):
    """Holds a module of another run: no parameters, no entries in the state dict, always in eval mode."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        # In a tuple, so that torch does not register it: its weights belong to the other run.
        self.held = (module.requires_grad_(False).eval(),)

    @property
    def module(self) -> Any:
        """The module itself."""
        return self.held[0]

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Frozen:
        """What `to`, `cpu` and `cuda` do to every tensor of a model: done to the module as well."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.held[0]._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self


def running_modules(model: nn.Module) -> Iterator[nn.Module]:
    """The modules that run with a model: its own, and those that it holds frozen."""
    for part in model.modules():
        yield part
        if isinstance(part, Frozen):
            yield from part.module.modules()
