"""Recipes: TOML and overrides to checked dataclasses, and back.

read("transformer-miniworld", ["model.layers=6"])    names are checked against the committed schema, without torch
    .show()                                          every value and where it comes from
    .build()                                         values are checked and become the Config of each section
"""

from __future__ import annotations

import dataclasses
import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mallang import find, schema, toml
from mallang.errors import UserError, nearest
from mallang.recipe_layers import Layer, Values, check_top, elsewhere, lay, nearest_key, of_today, shown, underscored

if TYPE_CHECKING:
    from mallang.data.corpus import Config as DataConfig
    from mallang.data.word_vectors import Config as VectorsConfig
    from mallang.decoding.contract import Config as DecodingConfig
    from mallang.text.tokenizer import Config as TextConfig
    from mallang.training.optimizer import Config as OptimizerConfig
    from mallang.training.options import Config as TrainConfig
    from mallang.training.schedule import Config as ScheduleConfig
else:  # they import torch, which reading a recipe does not need
    DataConfig = DecodingConfig = TextConfig = TrainConfig = OptimizerConfig = ScheduleConfig = VectorsConfig = Any

ALIASES = {"unsupervised": "unsupervised_transformer"}
"""Other names of models, where a person names a model in place of a recipe."""
FOLDER = Path(__file__).parent / "recipes"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A checked run: the Config of every section, and the values they were made from."""

    name: str
    paper: str
    reach: str
    seed: int
    task_name: str
    model_name: str
    task: Any
    model: Any
    given: Mapping[str, str]
    """The folders of other runs that this one uses, by name."""
    text: TextConfig
    data: DataConfig
    train: TrainConfig
    optimizer: OptimizerConfig
    schedule: ScheduleConfig
    decoding: DecodingConfig | None
    """None where the task decodes nothing."""
    vectors: VectorsConfig | None
    """None where the model has no embedding of words."""
    resolved: Resolved

    @classmethod
    def make(cls, *, name: str = "python", seed: int = 1, paper: str = "", reach: str = "", **sections: Any) -> Recipe:
        """A recipe from Config objects, `Recipe.make(model=transformer.Config(layers=2))`, through the same checks."""
        values: Values = {"paper": paper, "reach": reach, "seed": seed}
        for section, config in sections.items():
            if section not in schema.SECTIONS:
                raise UserError(f"a recipe has no section {section!r}", todo=nearest(section, schema.SECTIONS))
            if section == schema.GIVEN:
                values[section] = dict(config)
                continue
            module = type(config).__module__.rpartition(".")[2].removeprefix("mallang_plugin_")
            if type(config) is not schema.config_class(section, module):
                raise UserError(f"{section} is {config!r}", todo=f"give the Config of a {section}")
            values[section] = json.loads(json.dumps(dataclasses.asdict(config), default=str))
            if section in schema.NAMED:
                values[section]["name"] = module
        return Resolved(name, (Layer("python", values),)).build()


def read(name_or_path: str, overrides: Sequence[str] = ()) -> Resolved:
    """A recipe by name, by path, from a run folder, or a bare model on miniworld, with `section.key=value` on top."""
    name, layers = _find(name_or_path)
    if overrides:
        layers = (*layers, _override(overrides))
    return Resolved(name, layers)


def names() -> list[str]:
    """The recipes that come with mallang."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def difference(old: Resolved, new: Resolved) -> list[str]:
    """What changed from one recipe to another, a line per key: `train.steps: 1000 → 2000`."""
    before, after = dict(_flat(old.resolved())), dict(_flat(new.resolved()))
    changed = [
        key for key in {**before, **after} if before.get(key) != after.get(key) and key not in ("paper", "reach")
    ]
    return [f"{key}: {shown(before.get(key))} → {shown(after.get(key))}" for key in changed]


@dataclass(frozen=True)
class Resolved:
    """A recipe's values with their origins. Its names are checked; `build` checks the values."""

    name: str
    layers: tuple[Layer, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", of_today(self.layers))
        for section in set(self.values) & (set(schema.SECTIONS) - set(self.sections)):
            first = next(iter(self.values[section]), "")
            raise UserError(
                f"{section}.{first} has no effect: a recipe of the task {self._chosen('task')} has no [{section}]",
                where=self.place(f"{section}.{first}"),
                todo="leave it out",
            )
        for section in self.sections:
            known = schema.part(section, self._chosen(section))["properties"]
            for key in self.values.get(section, {}):
                if key not in known:
                    dotted = f"{section}.{key}"
                    whose = f"the {section} {self._chosen(section)}" if section in schema.NAMED else f"[{section}]"
                    whose += f" of the task {self._chosen(section)}" if section == schema.GIVEN else ""
                    todo = elsewhere(dotted, self.values[section][key]) or nearest_key(section, key, known)
                    raise UserError(f"{dotted}: {whose} has no {key}", where=self.place(dotted), todo=todo)

    @property
    def values(self) -> Values:
        """What the layers give, by section: sizes spelled out, without the defaults."""
        return self._merged[0]

    @property
    def notes(self) -> list[str]:
        """What its layers call by names of an earlier version, one line per layer."""
        return [note for layer in self.layers if (note := layer.note()) is not None]

    @property
    def sections(self) -> tuple[str, ...]:
        """The sections that a recipe of this task has."""
        return schema.sections(str(self.values["task"]["name"]))

    @cached_property
    def origins(self) -> dict[str, str]:
        """Where the value of each `section.key` comes from."""
        return {dotted: self._merged[1].get(dotted, "default") for dotted, _ in _flat(self.resolved())}

    def resolved(self) -> Values:
        """Every value, given or default."""
        whole: Values = {key: self.values.get(key, rule.get("default")) for key, rule in schema.TOP.items()}
        whole.pop("base")
        for section in self.sections:
            given = self.values.get(section, {})
            rules = schema.part(section, self._chosen(section))["properties"]
            whole[section] = {
                key: _unset(rule, given[key] if key in given else rule["default"])
                for key, rule in rules.items()
                if key in given or "default" in rule
            }
        return whole

    def to_toml(self) -> str:
        """The whole recipe, to be read back by `read`."""
        return toml.write(self._writable())

    def show(self) -> list[str]:
        """Every value and its origin, as lines of TOML with comments."""
        rows = []
        for dotted, value in _flat(self._writable()):
            section, _, key = dotted.rpartition(".")
            rows.append((section, f"{key} = {shown(value)}" if value is not None else f"# {key} not set", dotted))
        width = min(48, max(len(text) for _, text, _ in rows))
        lines, last = [], ""
        for section, text, dotted in rows:
            lines += ["", f"[{section}]"] if section != last else []
            lines.append(f"{text:<{width}}  # {self.origins[dotted]}")
            last = section
        return lines

    def with_overrides(self, overrides: Sequence[str]) -> Resolved:
        """A copy of the recipe with `section.key=value` overrides on top."""
        return Resolved(self.name, (*self.layers, _override(overrides))) if overrides else self

    def place(self, dotted: str) -> str | None:
        """Where a person finds this key to change it; nowhere for a default."""
        return next((layer.place(dotted) for layer in reversed(self.layers) if layer.gives(dotted)), None)

    def build(self) -> Recipe:
        """The recipe as Config objects; wrong values are one error that names them all."""
        from pydantic import ValidationError

        whole = self.resolved()
        chosen = {section: whole[section].pop("name") for section in schema.NAMED}
        whole["model"].pop("size", None)
        kinds: dict[str, Any] = {"paper": str, "reach": str, "seed": int}
        kinds |= {section: schema.config_class(section, chosen.get(section)) for section in self.sections}
        parts: Values = dict.fromkeys((*schema.OWNED, "vectors"))
        if "vectors" in whole["model"]:
            kinds["vectors"] = schema.vectors_class()
            whole["vectors"] = {
                each.name: whole["model"].pop(each.name) for each in dataclasses.fields(kinds["vectors"])
            }
        wrong = [(dotted, "should be a number that ends") for dotted, value in _flat(whole) if _is_endless(value)]
        if isinstance(whole["seed"], int) and whole["seed"] < 0:
            wrong.append(("seed", "should not be negative"))
        for part, kind in kinds.items():
            key = "model" if part == "vectors" else part
            try:
                # In JSON strict means what a reader of TOML expects: 1 is a float, "1" no number, a list fills a tuple.
                given = json.dumps({key: whole[part]}, default=str)
                parts[part] = getattr(schema.checker({key: kind}).model_validate_json(given), key)
            except ValidationError as error:
                wrong += [(".".join(map(str, each["loc"][:2])), each["msg"]) for each in error.errors()]
            except UserError as error:
                wrong.append((key, error.what))
        if wrong:
            raise self._complaint(wrong)
        parts[schema.GIVEN] = {name: folder for name, folder in (parts[schema.GIVEN] or {}).items() if folder}
        return Recipe(name=self.name, task_name=chosen["task"], model_name=chosen["model"], resolved=self, **parts)

    @cached_property
    def _merged(self) -> tuple[Values, dict[str, str]]:
        """Values and origins of all layers, later ones over earlier ones."""
        values: Values = {}
        origins: dict[str, str] = {}
        for layer in self.layers:
            for key, given in layer.values.items():
                if key in schema.SECTIONS and isinstance(given, Mapping):
                    lay(layer, key, values.setdefault(key, {}), origins)
                else:
                    check_top(layer, key, given)
                    values[key], origins[key] = given, layer.origin
        if "name" not in values.get("model", {}):
            raise UserError(
                f"the recipe {self.name} names no model", todo="give model.name; " + nearest("", schema.names("model"))
            )
        task = schema.part("model", values["model"]["name"])["x-task"]
        values["task"] = {"name": task, **values.get("task", {})}
        chosen = values["task"]["name"]
        for section, defaults in schema.part("task", chosen).get("x-defaults", {}).items():
            for key, value in defaults.items():
                if key not in values.setdefault(section, {}):
                    values[section][key], origins[f"{section}.{key}"] = value, f"task {chosen}"
        return values, origins

    def _writable(self) -> Values:
        """Every value, with the text "none" where None is not the default: TOML leaves None out."""
        whole = self.resolved()
        for section in self.sections:
            rules = schema.part(section, self._chosen(section))["properties"]
            for key, value in whole[section].items():
                if value is None and rules[key].get("default") is not None:
                    whole[section][key] = "none"
        return whole

    def _chosen(self, section: str) -> str | None:
        named = "task" if section == schema.GIVEN else section  # the keys of [given] depend on the task
        return str(self.values[named]["name"]) if named in schema.NAMED else None

    def _complaint(self, wrong: Sequence[tuple[str, str]]) -> UserError:
        """One error that names every wrong value, what was expected, and where to change it."""
        given = dict(_flat(self.resolved()))
        lines: dict[str, str] = {}
        for dotted, message in wrong:
            said = message.removeprefix("Value error, ").replace("Field required", "is missing")
            said = said.replace("Input should be", "should be").replace("valid array", "valid list")
            value = f" = {shown(given[dotted])}" if dotted in given else ""
            lines[dotted] = f"{lines[dotted]} or {said}" if dotted in lines else f"{dotted}{value}: {said}"
        lists = [dotted for dotted, line in lines.items() if line.endswith(": should be a valid list")]
        todo = _as_list(lists[0], given[lists[0]]) if lists else None
        places = [place for place in map(self.place, lines) if place]
        return UserError("\n".join(lines.values()), where="; ".join(dict.fromkeys(places)) or None, todo=todo)


def _as_list(dotted: str, value: Any) -> str:
    """How a value that should be a list is typed as one: `a,b` is a text."""
    texts = [part.strip() for part in str(value).split(",") if part.strip()]
    return (
        f"{dotted}='[{', '.join(text if text.isdigit() else json.dumps(text, ensure_ascii=False) for text in texts)}]'"
    )


def _is_endless(value: Any) -> bool:
    """Whether a value is, or holds, an infinite number or none at all."""
    if isinstance(value, list | tuple):
        return any(map(_is_endless, value))
    return isinstance(value, float) and not math.isfinite(value)


def _find(name: str) -> tuple[str, tuple[Layer, ...]]:
    """The layers behind what a person typed, and what to call them."""
    key, path = find.plain(name).replace("_", "-"), Path(name).expanduser()
    if key in names():
        return key, _load(FOLDER / f"{key}.toml", f"recipe {key}")
    if (path / "recipe.toml").is_file():
        return path.resolve().name, _load(path / "recipe.toml", f"run {path}")
    if path.is_file():
        return path.stem, _load(path, f"recipe {path}")
    model = ALIASES.get(find.plain(name), find.plain(name))
    if model in schema.names("model"):
        return key, (Layer("command line", {"model": {"name": model}}),)
    if path.is_dir():
        raise UserError(f"{name} is not a run folder: it holds no recipe.toml", todo="give a recipe or a run folder")
    if path.suffix == ".toml" or len(path.parts) > 1:
        raise UserError(f"{name} does not exist", todo="`mallang recipes` lists the recipes that come with mallang")
    alike = [known for known in names() if known.startswith(f"{key}-")]
    raise UserError(
        f"there is no recipe {name!r}",
        todo=f"did you mean {' or '.join(alike)}?" if alike else nearest(key, {*names(), *schema.names("model")}),
    )


def _load(path: Path, origin: str, *, may_have_base: bool = True) -> tuple[Layer, ...]:
    """The layers of a recipe file: its base, if it names one, and itself."""
    try:
        read = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{path} is not TOML: {error}", todo="see `mallang recipes NAME` for an example") from error
    values = underscored(read)
    layer = Layer(origin, values, path)
    if "base" not in values:
        return (layer,)
    base = str(values.pop("base"))
    key = find.plain(base).replace("_", "-")
    if not may_have_base:
        raise UserError(
            f"the base {path.stem} has a base itself", where=layer.place("base"), todo="name that one instead"
        )
    if key not in names():
        raise UserError(f"there is no recipe {base!r}", where=layer.place("base"), todo=nearest(key, names()))
    return (*_load(FOLDER / f"{key}.toml", f"base {key}", may_have_base=False), layer)


def _override(texts: Sequence[str]) -> Layer:
    """The layer of `section.key=value` texts."""
    values: Values = {}
    for text in texts:
        dotted, equals, value = text.partition("=")
        keys = dotted.strip().replace("-", "_").split(".")
        if equals and keys[0] in schema.SECTIONS and all(keys) and len(keys) == 3:
            table = f"{keys[0]}.{keys[1]}={{{keys[2]}={value}}}"
            raise UserError(f"{text!r} changes one entry of a table", todo=f"give the table whole: '{table}'")
        if not equals or not all(keys) or len(keys) > 2:
            raise UserError(f"{text!r} changes nothing in a recipe", todo="section.key=value, such as model.layers=6")
        place = values.setdefault(keys[0], {}) if len(keys) == 2 else values
        place[keys[-1]] = toml.read_value(value)
    return Layer("command line", values)


def _unset(rule: Mapping[str, Any], value: Any) -> Any:
    """The text "none" stands for None in the keys that may be without a value."""
    return None if value == "none" and schema.NONE in rule.get("anyOf", []) else value


def _flat(whole: Values) -> list[tuple[str, Any]]:
    """Every `section.key` with its value, the few above the sections first."""
    top = [(key, value) for key, value in whole.items() if key not in schema.SECTIONS]
    given = [section for section in schema.SECTIONS if section in whole]
    return top + [(f"{section}.{key}", value) for section in given for key, value in whole[section].items()]


if __name__ == "__main__":
    schema.FILE.write_text(schema.text(), encoding="utf-8")
