"""What every model that says what comes next has in common, so that no decoder knows a model family.

    state = model.start(batch)                 reads the source only
    logits, state = model.step(tokens, state)  one token or many per row: a prompt, a forced prefix, a search step

rows = sentences × width. `fixed` holds a row per sentence and is never reordered nor copied per beam; `moving`
holds a row per hypothesis and is reordered by index.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from mallang.data.batch import Batch

Nest: TypeAlias = Any
"""Any nest of dicts, lists and tuples whose leaves are tensors with rows first; other leaves are kept as they are."""
