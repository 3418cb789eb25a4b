"""Mallang: sequence models from n-grams to GPT and BERT, in Korean and English.

In three lines of Python:

    import mallang
    model = mallang.load("runs/transformer-miniworld")
    print(model.translate("민수는 사과를 먹었다."))
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what a type checker sees; at run time each is imported when it is first used
    from mallang.errors import UserError
    from mallang.find import add_plugin
    from mallang.inspection.alignment import attention_of
    from mallang.inspection.comparison import compare
    from mallang.inspection.shown_runs import inspect
    from mallang.layers.attention import record_attention
    from mallang.loading import load
    from mallang.recipe import Recipe
    from mallang.recipe import read as read_recipe
    from mallang.training.train import train

__version__ = "0.1.0"
__all__ = [
    "Recipe",
    "UserError",
    "add_plugin",
    "attention_of",
    "compare",
    "inspect",
    "load",
    "read_recipe",
    "record_attention",
    "train",
]

_PLACES = {
    "Recipe": "mallang.recipe:Recipe",
    "UserError": "mallang.errors:UserError",
    "add_plugin": "mallang.find:add_plugin",
    "attention_of": "mallang.inspection.alignment:attention_of",
    "compare": "mallang.inspection.comparison:compare",
    "inspect": "mallang.inspection.shown_runs:inspect",
    "load": "mallang.loading:load",
    "read_recipe": "mallang.recipe:read",
    "record_attention": "mallang.layers.attention:record_attention",
    "train": "mallang.training.train:train",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'mallang' has no attribute {name!r}")
    module, _, attribute = _PLACES[name].partition(":")
    return getattr(importlib.import_module(module), attribute)
