"""The layers of a recipe: a base, a recipe, the command line; how one is put over another, and what each may name."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from mallang import find, renamed, schema, toml
from mallang.errors import UserError, nearest

Values: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Layer:
    """Values from one place: a base, a recipe, the command line. Later layers win."""

    origin: str
    values: Values
    path: Path | None = None
    olds: Mapping[str, str] = field(default_factory=dict)
    """`section.key` of today, for those that this layer gives under an older name: that name."""
    old_values: Mapping[str, str] = field(default_factory=dict)
    """`section.key = value` of today, for values that this layer gives under an older name: the same as given."""

    def gives(self, dotted: str) -> bool:
        """Whether this layer names a section, or a key of it."""
        section, _, key = dotted.partition(".")
        return section in self.values and (not key or key in self.values[section])

    def place(self, dotted: str) -> str:
        """Where a person finds this key to change it."""
        if self.path is None:
            return self.origin
        line = toml.line_of(self.path.read_text(encoding="utf-8"), self.olds.get(dotted, dotted))
        return f"{self.path}, line {line}" if line else str(self.path)

    def note(self) -> str | None:
        """One line that names what it calls by older names; none where it does not."""
        pairs = [*self.olds.items(), *self.old_values.items()]
        if not pairs:
            return None
        names = ", ".join(f"{old} is now {today}" for today, old in pairs)
        return f"{self.path}: {names}" if self.path else names


def of_today(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """The layers with the names of today in place of older ones."""
    known = {section: properties_of(section, layers) for section in schema.SECTIONS}
    return tuple(_of_today(layer, known) for layer in layers)


def properties_of(section: str, layers: Sequence[Layer]) -> Mapping[str, Any]:
    """The keys that a section has in the end, and their rules; none where it names a model that there is not."""
    if section == schema.GIVEN:  # its keys depend on the task, and none of them had another name
        return {}
    if section not in schema.NAMED:
        return dict(schema.part(section)["properties"])
    name = chosen_name(section, layers)
    if not name and section == "task" and (model := chosen_name("model", layers)) in schema.names("model"):
        name = schema.part("model", model)["x-task"]
    return dict(schema.part(section, name)["properties"]) if name in schema.names(section) else {}


def chosen_name(section: str, layers: Sequence[Layer]) -> str:
    """The name that the last layer with one gives to a section; "" where none does."""
    sections = (layer.values.get(section) for layer in reversed(layers))
    return find.plain(
        str(next((each["name"] for each in sections if isinstance(each, Mapping) and "name" in each), ""))
    )


def _of_today(layer: Layer, known: Mapping[str, Mapping[str, Any]]) -> Layer:
    values, olds, old_values = dict(layer.values), dict(layer.olds), dict(layer.old_values)
    for section, rules in known.items():
        given = values.get(section)
        if not isinstance(given, Mapping):
            continue
        fresh: Values = {}
        for key, value in given.items():
            today = renamed.key_today(section, key, rules)
            dotted, old = f"{section}.{today}", f"{section}.{key}"
            if today in fresh or (today != key and today in given):
                both = f"{old} and {dotted} are the same key"
                raise UserError(both, where=layer.place(old), todo=f"give {dotted} alone")
            fresh[today] = renamed.value_today(dotted, value, rules.get(today, {}))
            if today != key:
                olds[dotted] = old
            if fresh[today] != value:
                old_values[f"{dotted} = {fresh[today]}"] = f"{dotted} = {value}"
        values[section] = fresh
    return layer if values == layer.values else replace(layer, values=values, olds=olds, old_values=old_values)


def lay(layer: Layer, section: str, values: Values, origins: dict[str, str]) -> None:
    """Put a layer's section over the values so far."""
    given = dict(layer.values[section])
    if section in schema.NAMED and "name" in given:
        given["name"] = find.plain(str(given["name"]))
        if given["name"] not in schema.names(section):
            known = nearest(given["name"], schema.names(section))
            known += " Or give --plugin FILE, if it is a model of your own" if section == "model" else ""
            place = layer.place(f"{section}.name")
            raise UserError(f"there is no {section} {given['name']!r}", where=place, todo=known)
        if values.get("name") not in (None, given["name"]):
            # Another model starts from its own defaults: the keys of the first one mean nothing to it.
            for key in values:
                origins.pop(f"{section}.{key}", None)
            values.clear()
    name = given.get("name", values.get("name"))
    if section == "model" and "size" in given and name is not None:
        sizes = schema.part("model", name).get("x-sizes", {})
        if given["size"] not in sizes:
            where, todo = layer.place("model.size"), nearest(str(given["size"]), sizes)
            raise UserError(f"the model {name} has no size {given['size']!r}", where=where, todo=todo)
        values.update(sizes[given["size"]])
        origins.update({f"model.{key}": f"size {given['size']}" for key in sizes[given["size"]]})
    for key, rival in schema.RIVALS.get(section, ()):
        if key in given and rival not in given:
            values.pop(rival, None)
            origins.pop(f"{section}.{rival}", None)
    values.update(given)
    origins.update({f"{section}.{key}": layer.origin for key in given})


def check_top(layer: Layer, key: str, given: Any) -> None:
    """Refuse what is neither a section nor one of the few values above the sections."""
    if key in schema.SECTIONS:
        raise UserError(f"{key} is a section, not a value", where=layer.place(key), todo=f"{key}.KEY=VALUE")
    if key == "base":
        raise UserError("a base can only be named inside a recipe", todo="train that recipe, or write one of your own")
    if key not in schema.TOP and isinstance(given, Mapping):
        raise UserError(f"a recipe has no section [{key}]", where=layer.place(key), todo=nearest(key, schema.SECTIONS))
    if key not in schema.TOP:
        homes = homes_of(key)
        todo = f"did you mean {' or '.join(homes)}?" if homes else nearest(key, [*schema.TOP, *schema.SECTIONS])
        raise UserError(f"{key}: a recipe has no such value above its sections", where=layer.place(key), todo=todo)


def elsewhere(dotted: str, value: Any) -> str:
    """Where a key belongs that stands in the wrong section, with its value; nothing where there is no such key."""
    key = dotted.partition(".")[2]
    places = [key] if key in schema.TOP else [place for place in homes_of(key) if place != dotted]
    return f"did you mean {' or '.join(f'{place}={shown(value)}' for place in places)}?" if places else ""


def homes_of(key: str) -> list[str]:
    """The `section.key` names that a key has, or that it had in an earlier version."""
    return list(dict.fromkeys([*schema.homes(key), *renamed.homes(key)]))


def nearest_key(section: str, key: str, known: Collection[str]) -> str:
    """The closest keys of a section; a key that is close to an older name gets the current name."""
    olds = renamed.olds_of(section, known)
    return nearest(key, {*known, *olds}, lambda name: olds.get(name, name)) if olds else nearest(key, known)


def underscored(values: Mapping[str, Any]) -> Values:
    """Keys as the Config classes spell them: `-` and `_` are alike."""
    whole = {key.replace("-", "_"): value for key, value in values.items()}
    for section in set(whole) & set(schema.SECTIONS):
        if isinstance(whole[section], Mapping):
            whole[section] = {key.replace("-", "_"): value for key, value in whole[section].items()}
    return whole


def shown(value: Any) -> str:
    """A value as a recipe has it."""
    return "not set" if value is None else toml.write_value(value)
