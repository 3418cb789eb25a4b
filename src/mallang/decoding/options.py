"""Search options from users: validated, and named in the error where they are wrong."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from mallang.decoding.contract import Config
from mallang.errors import UserError, nearest

SEARCH = TypeAdapter(Config)


def change_search(config: Config, options: Mapping[str, Any]) -> Config:
    """The search options with some changed; an unknown or wrong one is named in the error."""
    known = {field.name for field in dataclasses.fields(config)}
    for name in options:
        if name not in known:
            raise UserError(f"there is no search option {name!r}", todo=nearest(name, known))
    if "method" in options:
        config = config.with_method(str(options["method"]))  # type: ignore[arg-type]
    try:
        return SEARCH.validate_json(json.dumps({**dataclasses.asdict(config), **options}), strict=True)
    except ValidationError as error:
        (first, *_) = error.errors()
        name = ".".join(str(part) for part in first["loc"])
        raise UserError(f"search option {name} = {first['input']!r}: {first['msg']}") from error
