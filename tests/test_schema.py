"""The committed schema is what the Config classes say today, and it says enough for an editor."""

from __future__ import annotations

import json

import pytest

from mallang import find, schema
from mallang.errors import UserError


def test_the_committed_schema_is_up_to_date() -> None:
    assert schema.FILE.read_text(encoding="utf-8") == schema.text(), "run: python -m mallang.recipe"


def test_every_key_has_a_description_and_a_default() -> None:
    whole = schema.generate()
    parts = {section: whole["properties"][section] for section in schema.PLAIN} | whole["$defs"]
    for place, part in parts.items():
        assert part["additionalProperties"] is False
        for key, rule in part["properties"].items():
            assert rule.get("description") or key == "name", f"{place}.{key} has no docstring"
            assert "default" in rule or key == "size", f"{place}.{key} has no default"


def test_contracts_are_no_tasks() -> None:
    assert (find.ROOT / "tasks" / "contract.py").is_file()
    assert "contract" not in schema.names("task")
    assert "translation" in schema.names("task")


def test_a_name_that_is_none_gets_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean transformer"):
        schema.part("model", "transfromer")
    with pytest.raises(UserError, match="there is no task 'contract'"):
        schema.part("task", "contract")


def test_a_size_sets_every_key_that_sizes_set() -> None:
    from mallang.models import transformer

    sizes = schema.part("model", "transformer")["x-sizes"]
    assert set(sizes) == set(transformer.SIZES)
    for size, values in sizes.items():
        assert transformer.Config(**values) == transformer.Config(**transformer.SIZES[size])
        assert values.keys() == sizes["base"].keys()


def test_the_sections_of_a_key() -> None:
    assert schema.homes("layers") == ["model.layers"]
    assert schema.homes("max_length") == ["data.max_length", "decoding.max_length", "model.max_length"]
    assert schema.homes("nothing") == []


def test_both_spellings_of_a_name_are_offered() -> None:
    assert schema._choice("models", ["lstm_crf"])["properties"]["name"]["enum"] == ["lstm-crf", "lstm_crf"]


def test_a_config_may_not_take_the_names_of_the_recipe() -> None:
    from dataclasses import dataclass
    from types import ModuleType

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """A clash."""

        name: str = "x"

    module = ModuleType("clash")
    module.Config, module.SIZES, module.Model = Config, {}, object  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="may not have a field named name"):
        schema._named_part("model", "clash", module)


def test_the_schema_is_json() -> None:
    assert json.loads(schema.text())["title"] == "Mallang recipe"
