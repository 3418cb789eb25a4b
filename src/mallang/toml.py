"""The small part of TOML that the standard library lacks: writing it, and finding a key's line again."""

from __future__ import annotations

import datetime
import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any

from mallang.console import is_utf8
from mallang.errors import UserError


def write(values: Mapping[str, Any]) -> str:
    """Values and sections of values as TOML that `tomllib` reads back equal; None is left out."""
    plain = [
        f"{write_key(key)} = {write_value(value)}"
        for key, value in values.items()
        if value is not None and not isinstance(value, Mapping)
    ]
    parts = ["\n".join(plain)] if plain else []
    for name, section in values.items():
        if isinstance(section, Mapping):
            lines = [f"{write_key(key)} = {write_value(value)}" for key, value in section.items() if value is not None]
            parts.append("\n".join([f"[{write_key(name)}]", *lines]))
    return "\n\n".join(parts) + "\n"


def write_value(value: Any) -> str:
    """One value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return "[" + ", ".join(write_value(item) for item in value) + "]"
    if isinstance(value, Mapping):
        items = (f"{write_key(key)} = {write_value(item)}" for key, item in value.items() if item is not None)
        return "{" + ", ".join(items) + "}"
    raise TypeError(f"TOML cannot hold {value!r}")


def write_key(key: str) -> str:
    """A key, in quotes where TOML asks for them."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else write_value(key)


def read_value(text: str) -> Any:
    """What someone types after `=`: a TOML value if it is one, else the text itself (`data.train=my.tsv`)."""
    if not is_utf8(text):
        raise UserError(
            f"{text} is not UTF-8, and what is written down of a run is", todo="rename it in UTF-8: mv OLD NEW"
        )
    try:
        # The brackets keep a comment or a second line from passing for a value.
        read = tomllib.loads(f"value = [{text}]")
    except (tomllib.TOMLDecodeError, RecursionError):
        read = {}
    values = read.get("value", [])
    if len(read) == 1 and len(values) == 1 and not isinstance(values[0], datetime.date | datetime.time):
        return values[0]
    if text.lstrip().startswith(("[", "{", '"', "'")):
        raise UserError(f"{text} is not a value of TOML", todo='quote the texts in a list: \'["a.txt", "b.txt"]\'')
    return text


def line_of(text: str, dotted: str) -> int | None:
    """The number of the line of a TOML text that gives `section.key`, or opens a section of that name."""
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        header = re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", line)
        given = re.match(r"\s*([^=#\[]+?)\s*=", line)
        if header:
            found = _plain(header.group(1))
            table = f"{found}."
        elif given:
            found = table + _plain(given.group(1))
        else:
            continue
        if found == dotted:
            return number
    return None


def _plain(key: str) -> str:
    return re.sub(r"[\"'\s]", "", key).replace("-", "_")
