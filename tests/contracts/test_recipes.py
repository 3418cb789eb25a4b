"""What every recipe that comes with mallang gets for nothing: it is small, names its paper, and builds."""

from __future__ import annotations

import re
import tomllib

import pytest

from mallang import recipe, schema
from mallang.find import find, plain
from mallang.recipe import read

RECIPES = recipe.names()
WHAT_IT_IS = ("name", "corpus", "source", "target", "unit")
"""Keys that tell a reader what the system is; they may be said although they are the default."""


def test_there_are_recipes() -> None:
    assert "transformer-miniworld" in RECIPES


@pytest.mark.parametrize("name", RECIPES)
def test_it_is_small_and_named_after_its_system_and_corpus(name: str) -> None:
    text = (recipe.FOLDER / f"{name}.toml").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 40
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", name), "a recipe is system-corpus"
    assert find("models", read(name).resolved()["model"]["name"]).Model
    data = read(name).resolved()["data"]
    if data["corpora"] is not None:
        assert len(data["corpora"]) > 1, "several corpora have a name together"
        return
    corpus = plain(data["corpus"]).replace("_", "-").replace("/", "-")
    short = corpus.removeprefix("tiny")  # nobody calls tinyshakespeare, imdb-subset or bbc-news by their full names
    for ending in ("-subset", "-news", "-documents", "-pictures", "-triples", "-hops", "-coref"):
        short = short.removesuffix(ending)
    short = re.sub(r"quad1\.\d(-dev-fold\d)?", "quad", short)
    assert name.endswith((f"-{short}", f"-{corpus}-{data['source']}-{data['target']}"))


@pytest.mark.parametrize("name", RECIPES)
def test_it_names_its_paper_and_the_number_to_reach(name: str) -> None:
    resolved = read(name).resolved()
    assert re.search(r"\b(19|20)\d\d\b", resolved["paper"]), "authors and year"
    assert re.search(r"\d", resolved["reach"]), "a number"


@pytest.mark.parametrize("name", RECIPES)
def test_it_says_only_what_differs_from_the_defaults(name: str) -> None:
    given = tomllib.loads((recipe.FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    if "base" in given:
        return  # it may put a default back
    chosen = {section: read(name).resolved()[section]["name"] for section in schema.NAMED}
    for section in read(name).sections:
        rules = schema.part(section, chosen.get(section))["properties"]
        values = {key: value for key, value in given.get(section, {}).items() if key not in WHAT_IT_IS}
        repeated = [key for key, value in values.items() if rules[key].get("default") == value]
        assert not repeated, f"[{section}] repeats defaults"


@pytest.mark.parametrize("name", RECIPES)
def test_it_builds_and_comes_back_from_toml(name: str) -> None:
    built = read(name).build()
    again = recipe.Resolved(name, (recipe.Layer("again", tomllib.loads(built.resolved.to_toml())),)).build()
    for section in schema.SECTIONS:
        assert getattr(again, section) == getattr(built, section)
