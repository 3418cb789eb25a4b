"""Values of JSON records by dotted paths: `{"answer": {"text": "no"}}` has one value, `answer.text`."""

from __future__ import annotations

import json
from typing import Any

MISSING = object()
"""Given for a value that a record does not have."""


def inside(record: Any, path: str) -> Any:
    """The value at a dotted path, or MISSING."""
    if isinstance(record, dict) and path in record:
        return record[path]
    for key in path.split("."):
        if not isinstance(record, dict) or key not in record:
            return MISSING
        record = record[key]
    return record


def keys(record: dict[str, Any], prefix: str = "") -> list[str]:
    """The dotted paths to all values of a record."""
    found = []
    for key, value in record.items():
        found += keys(value, f"{prefix}{key}.") if isinstance(value, dict) else [prefix + key]
    return found


def as_text(value: Any) -> str:
    """A value as text: nothing for null, JSON for what is neither text nor number."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False, default=str)
