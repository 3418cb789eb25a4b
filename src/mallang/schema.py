"""What a recipe may say: a JSON schema made from the Config classes, committed so that no torch is needed to read it.

The classes stand beside what they configure; `python -m mallang.recipe` writes the schema again.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from mallang import find
from mallang.errors import UserError, nearest

FILE = Path(__file__).with_name("recipe_schema.json")
NAMED = {"task": "tasks", "model": "models"}
"""Sections whose `name` chooses a file of a stage, and thereby the keys they hold."""
PLAIN = {
    "text": "mallang.text.tokenizer",
    "data": "mallang.data.corpus",
    "train": "mallang.training.options",
    "optimizer": "mallang.training.optimizer",
    "schedule": "mallang.training.schedule",
    "decoding": "mallang.decoding.contract",
}
"""The other sections, and the module whose Config they fill."""
VECTORS = "mallang.data.word_vectors"
"""The module of the keys that [model] has beside those of its Config, where the model has an embedding of words."""
NONE = {"const": "none"}
"""How a recipe says that a key has no value: TOML has no null."""
GIVEN = "given"
"""The section that names other runs; its keys are those that the task declares (tasks.contract.Receiving)."""
SECTIONS = (*NAMED, GIVEN, *PLAIN)
OWNED = (GIVEN, "decoding")
"""The sections that a recipe has only if its task declares keys of [given], or lists the section in SECTIONS."""
RIVALS = {
    "train": (("steps", "epochs"), ("epochs", "steps")),
    "data": (
        *((key, rival) for key in ("corpus", "train") for rival in ("corpora", "domains", "untagged")),
        *(("corpora", rival) for rival in ("corpus", "train", "domains", "untagged", "hold_out")),
        *(("valid", "hold_out"), ("hold_out", "valid"), ("corpus", "hold_out")),
    ),
}
"""Two keys that say the same thing in two ways: whoever gives the first takes back the second of earlier layers."""
TOP: dict[str, dict[str, Any]] = {
    "base": {"type": "string", "description": "Name of a recipe that this one changes; it has no base itself."},
    "paper": {"type": "string", "default": "", "description": "Authors, year and arXiv id."},
    "reach": {"type": "string", "default": "", "description": "The number to reach, and where it comes from."},
    "seed": {"type": "integer", "default": 1, "description": "All randomness derives from it."},
}


def part(section: str, name: str | None = None) -> dict[str, Any]:
    """The schema of one section; of the model or task of that name where the section has one, or depends on it."""
    if section in PLAIN or (section == GIVEN and name is None):
        return dict(_committed()["properties"][section])
    if section == GIVEN:
        return _given(part("task", name).get("x-given", {}))
    known = names(section)
    file_name = find.plain(name or "")
    if file_name in known:
        definitions = _committed()["$defs"]
        key = f"{NAMED[section]}.{file_name}"
        if key in definitions and file_name not in find.PLUGINS:
            return dict(definitions[key])
        return _named_part(section, file_name, find.find(NAMED[section], file_name))
    raise UserError(f"there is no {section} {name!r}", todo=nearest(file_name, known))


def sections(task: str) -> tuple[str, ...]:
    """The sections of a recipe of this task."""
    about = part("task", task)
    owned = (*about["x-sections"], *([GIVEN] if "x-given" in about else []))
    return tuple(section for section in SECTIONS if section not in OWNED or section in owned)


def names(section: str) -> list[str]:
    """The models or tasks there are: those of the schema, plugins, and files newer than the schema."""
    stage = NAMED[section]
    plugins = set(find.PLUGINS) if stage == "models" else set()
    return sorted(plugins | _own_names(stage, tuple(name for name in find.names(stage) if name not in plugins)))


def homes(key: str) -> list[str]:
    """The sections that hold a key of this name, as `section.key`."""
    whole = _committed()
    found = [section for section in (GIVEN, *PLAIN) if key in whole["properties"][section]["properties"]]
    for section, stage in NAMED.items():
        named = (part for name, part in whole["$defs"].items() if name.startswith(f"{stage}."))
        if any(key in part["properties"] for part in named):
            found.append(section)
    return [f"{section}.{key}" for section in found]


def config_class(section: str, name: str | None = None) -> Any:
    """The dataclass that a section fills; run folders by name for [given]."""
    if section == GIVEN:
        return dict[str, str | None]
    module = importlib.import_module(PLAIN[section]) if section in PLAIN else find.find(NAMED[section], name or "")
    return module.Config


def vectors_class() -> Any:
    """The dataclass of the keys of [model] about pretrained vectors."""
    return importlib.import_module(VECTORS).Config


def generate() -> dict[str, Any]:
    """The whole schema, from all Config classes there are."""
    properties: dict[str, Any] = dict(TOP)
    definitions: dict[str, Any] = {}
    for section, stage in NAMED.items():
        found = [name for name in find.names(stage) if name not in find.PLUGINS and _configurable(stage, name)]
        for name in found:
            definitions[f"{stage}.{name}"] = _named_part(section, name, find.find(stage, name))
        properties[section] = _choice(stage, found)
    names = [part.get("x-given", {}) for part in definitions.values()]
    properties[GIVEN] = _given({name: text for each in names for name, text in each.items()})
    for section in PLAIN:
        properties[section] = _fields(config_class(section))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Mallang recipe",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "$defs": definitions,
    }


def text() -> str:
    """The schema as the committed file holds it."""
    return json.dumps(generate(), indent=1, ensure_ascii=False) + "\n"


def checker(classes: dict[str, Any], *, is_described: bool = False) -> Any:
    """A pydantic model with one plain dataclass a section: unknown keys and wrong types are errors with a path.

    Checking needs no docstrings of fields, and finding them takes longer than all else.
    """
    return _checker(tuple(classes.items()), is_described)


@cache
def _checker(classes: tuple[tuple[str, Any], ...], is_described: bool) -> Any:
    from pydantic import ConfigDict, create_model

    rules = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=is_described)
    fields: dict[str, Any] = {section: (config, ...) for section, config in classes}
    return create_model("Recipe", __config__=rules, **fields)


@cache
def _committed() -> dict[str, Any]:
    return dict(json.loads(FILE.read_text(encoding="utf-8")))


@cache
def _own_names(stage: str, files: tuple[str, ...]) -> frozenset[str]:
    """The models or tasks among these files and in the schema: every recipe that is read asks many times."""
    prefix = f"{stage}."
    committed = {key.removeprefix(prefix) for key in _committed()["$defs"] if key.startswith(prefix)}
    return frozenset(committed | {name for name in files if name not in committed and _configurable(stage, name)})


def _configurable(stage: str, name: str) -> bool:
    """Contracts lie beside tasks but are none: they define no Config. Read, not imported, to stay without torch."""
    return name in find.PLUGINS or _defines_config(find.ROOT / stage / f"{name}.py")


@cache
def _defines_config(file: Path) -> bool:
    """Every recipe that is read asks for all files of its stages, so each is read only once."""
    return re.search(r"^class Config\b", file.read_text(encoding="utf-8"), re.MULTILINE) is not None


def _choice(stage: str, names: Iterable[str]) -> dict[str, Any]:
    """A section whose keys depend on its name."""
    rules = [
        {
            "if": {"properties": {"name": {"enum": _spellings(name)}}, "required": ["name"]},
            "then": {"$ref": f"#/$defs/{stage}.{name}"},
        }
        for name in names
    ]
    spellings = [spelling for name in names for spelling in _spellings(name)]
    return {"type": "object", "properties": {"name": {"enum": spellings}}, "allOf": rules}


def _named_part(section: str, name: str, module: ModuleType) -> dict[str, Any]:
    made = _fields(module.Config)
    extra: dict[str, Any] = {"name": {"enum": _spellings(name), "default": name, "description": f"The {section}."}}
    defaults = {key: rule.get("default") for key, rule in made["properties"].items()}
    if section == "model" and (sizes := _sizes(module.SIZES, defaults)):
        made["x-sizes"] = sizes
        extra["size"] = {"enum": list(sizes), "description": "Values to start from."}
    last: dict[str, Any] = {}
    if section == "model" and importlib.import_module("mallang.models.contract").takes_vectors(module):
        last = _fields(vectors_class())["properties"]
    taken = {*extra, *last} & set(made["properties"])
    if taken:
        raise TypeError(f"{module.__name__}.Config may not have a field named {' or '.join(sorted(taken))}")
    made["description"] = (module.__doc__ or "").strip().split("\n")[0]
    made["properties"] = {**extra, **made["properties"], **last}
    if section == "model":
        made["x-task"] = module.TASK
    if section == "task":
        made["x-sections"] = list(module.SECTIONS)
        if module.DEFAULTS:
            made["x-defaults"] = module.DEFAULTS
        from mallang.tasks.contract import Receiving  # it imports torch, and so has the module by now

        if issubclass(module.Task, Receiving):
            made["x-given"] = dict(module.Task.receives())
    return made


def _given(names: Mapping[str, str]) -> dict[str, Any]:
    """The schema of [given]: names, and what each is for."""
    keys = {
        name: {"anyOf": [{"type": "string"}, NONE], "default": None, "description": text}
        for name, text in names.items()
    }
    return {"additionalProperties": False, "properties": keys, "type": "object"}


def _spellings(name: str) -> list[str]:
    return list(dict.fromkeys([name.replace("_", "-"), name]))


def _sizes(sizes: dict[str, dict[str, Any]], defaults: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Each size with a value for every key that any size sets, so that naming one undoes another."""
    given = {size: dict(values) for size, values in sizes.items()}
    keys = list(dict.fromkeys(key for values in given.values() for key in values))
    return {size: {key: values.get(key, defaults[key]) for key in keys} for size, values in given.items()}


def _fields(config: Any) -> dict[str, Any]:
    """The schema of one Config: types, defaults, and the docstring of each field."""
    whole = checker({"section": config}, is_described=True).model_json_schema()
    if len(whole["$defs"]) != 1:
        raise TypeError(f"the fields of {config.__module__}.Config must be plain values")
    (made,) = whole["$defs"].values()
    for field in dataclasses.fields(config):
        described = made["properties"][field.name]
        described.pop("title", None)
        if field.default_factory is not dataclasses.MISSING:
            described["default"] = field.default_factory()
    made.pop("title", None)
    for base in (base for base in config.__mro__[1:] if dataclasses.is_dataclass(base)):
        for name, inherited in _fields(base)["properties"].items():  # pydantic reads the docstrings of one class only
            made["properties"][name].setdefault("description", inherited["description"])
    null, none = json.dumps({"type": "null"}), json.dumps(NONE)
    return dict(json.loads(json.dumps(made).replace(null, none)))
