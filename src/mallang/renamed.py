"""What had another name in an earlier version: recipe keys, their values, and parameters of models.

Recipes, run folders and weight files of earlier versions are read under the names of today. A table here is all that a
rename needs: `recipe_layers.py` reads the first two, `training/weights.py` the third.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar

KEYS: dict[str, str] = {
    "optimizer.rate": "learning_rate",
    "optimizer.adam_rate": "adam_learning_rate",
    "optimizer.decay": "weight_decay",
    "optimizer.clip": "max_grad_norm",
    "train.accumulation": "gradient_accumulation",
    "train.ema": "ema_decay",
    "train.fit": "auto_micro_batch",
    "model.share": "tie_weights",
    "model.tied": "tie_weights",
    "model.locked": "variational",
    "model.zero_start": "zero_init",
    "model.query_key_norm": "qk_norm",
    "model.width": "kernel_size",
}
"""`section.key` of an earlier version: the key of that section today."""
VALUES: dict[str, dict[str, str]] = {
    "train.engine": {"plain": "eager", "graphs": "cuda-graphs"},
}
"""`section.key` of today: values of an earlier version and what they are called today."""
PARAMETERS: dict[str, str] = {
    r"\.widen\.": ".up_proj.",
    r"\.narrow\.": ".down_proj.",
}
"""Regular expressions for parts of parameter names of an earlier version, and what replaces them."""

Leaf = TypeVar("Leaf")


def key_today(section: str, key: str, known: Collection[str]) -> str:
    """What a key is called today; a key that the section knows keeps its name, whatever the table says.

    So a plugin's model may have a key of its own that carries the old name of one of ours.
    """
    today = KEYS.get(f"{section}.{key}", key)
    return key if key in known or today not in known else today


def value_today(dotted: str, value: Any, rule: Mapping[str, Any]) -> Any:
    """What a value is called today, where the key is a choice that no longer has the old one."""
    today = VALUES.get(dotted, {}).get(value) if isinstance(value, str) else None
    choices = rule.get("enum", ())
    return today if today in choices and value not in choices else value


def homes(key: str) -> list[str]:
    """The `section.key` names of today of a key that an earlier version had."""
    olds = (old.partition(".") for old in KEYS)
    return [f"{section}.{KEYS[f'{section}.{old}']}" for section, _, old in olds if old == key]


def olds_of(section: str, known: Collection[str]) -> dict[str, str]:
    """Keys of an earlier version of a section, and their names of today, as far as the section has those."""
    pairs = ((old.partition("."), today) for old, today in KEYS.items())
    return {key: today for (home, _, key), today in pairs if home == section and today in known and key not in known}


def fit_names(tensors: Mapping[str, Leaf], names: Iterable[str]) -> dict[str, Leaf]:
    """Tensors under the names that the model of today has for them; other names stay as they are."""
    known = frozenset(names)
    return {_name_today(name, known): tensor for name, tensor in tensors.items()}


def _name_today(name: str, known: Collection[str]) -> str:
    if name in known:
        return name
    today = name
    for pattern, replacement in PARAMETERS.items():
        today = re.sub(pattern, replacement, today)
    return today if today in known else name
