"""What is written is what tomllib reads, and what is typed is what was meant."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang import toml
from mallang.errors import UserError

texts = st.text(st.characters(exclude_categories=["Cs"]))
plain = st.booleans() | st.integers() | st.floats(allow_nan=False) | texts
values = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6
)
not_tables = plain | st.lists(values, max_size=3)


def same(one: object, other: object) -> bool:
    """Equal, and of the same kinds: True is not 1, and 1 is not 1.0."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


@settings(deadline=None)
@given(st.dictionaries(texts, not_tables | st.dictionaries(texts, values, max_size=4), max_size=5))
def test_what_is_written_reads_back_equal(whole: dict[str, object]) -> None:
    assert same(tomllib.loads(toml.write(whole)), whole)


def test_none_is_left_out() -> None:
    assert tomllib.loads(toml.write({"a": None, "s": {"b": None, "c": 1}})) == {"s": {"c": 1}}
    assert toml.write({"s": {"n": {"a": None, "b": 2}}}) == "[s]\nn = {b = 2}\n"


def test_what_toml_cannot_hold_is_refused() -> None:
    with pytest.raises(TypeError, match="object"):
        toml.write({"a": object()})


@settings(deadline=None)
@given(values)
def test_a_typed_toml_value_is_that_value(value: object) -> None:
    assert same(toml.read_value(toml.write_value(value)), value)


@settings(deadline=None)
@given(st.from_regex(r"[A-Za-z/.~가-힣][\w/.~ -]*\.(txt|tsv|conll)", fullmatch=True))
def test_a_typed_path_is_text(path: str) -> None:
    assert toml.read_value(path) == path


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("6", 6),
        ("1e-3", 1e-3),
        ("true", True),
        ("my.tsv", "my.tsv"),
        ("", ""),
        ("2024-01-01", "2024-01-01"),
        ("12:30:00", "12:30:00"),
        ("6 # six", "6 # six"),
        ("1, 2", "1, 2"),
        ("1]\nother = [2", "1]\nother = [2"),
        ("007", "007"),
        ('["a", "b"]', ["a", "b"]),
        ("'quoted 6'", "quoted 6"),
    ],
)
def test_what_is_typed_is_what_was_meant(typed: str, meant: object) -> None:
    assert same(toml.read_value(typed), meant)


@pytest.mark.parametrize("typed", ["[a.txt, b.txt]", '"open', "{a = }"])
def test_a_broken_list_is_not_taken_for_a_text(typed: str) -> None:
    with pytest.raises(UserError, match="not a value of TOML"):
        toml.read_value(typed)


def test_a_key_is_found_again() -> None:
    text = '# layers = 1\nseed = 1\n\n[model]\nname = "x"\n"layers" = 6\n\n[train] # how\nlog-every = 3\nlayers = 7\n'
    assert toml.line_of(text, "seed") == 2
    assert toml.line_of(text, "model") == 4
    assert toml.line_of(text, "model.layers") == 6
    assert toml.line_of(text, "train") == 8
    assert toml.line_of(text, "train.log_every") == 9
    assert toml.line_of(text, "train.layers") == 10
    assert toml.line_of(text, "layers") is None
    assert toml.line_of("model.layers = 6\n", "model.layers") == 1
