"""Listing recipes and printing one."""

from __future__ import annotations

import json

import pytest

from mallang import recipe
from mallang.commands import recipes
from mallang.inspection import recipe_list
from mallang.recipe import read


def test_the_list_names_every_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    recipes.command()
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows] == recipe.names()
    (row,) = [row for row in rows if row[0] == "transformer-miniworld"]
    assert row[1:3] == ["transformer", "miniworld"]
    assert "arXiv:1706.03762" in row[3]
    assert row[4] == read("transformer-miniworld").resolved()["reach"] != ""


def test_a_quiet_list_holds_names_only(capsys: pytest.CaptureFixture[str]) -> None:
    recipes.command(quiet=True)
    assert capsys.readouterr().out.split() == recipe.names()


def test_a_terminal_gets_a_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    recipes.command()
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["name", "corpus", "reach", "measured"]
    assert ["transformer-miniworld", "miniworld", "98"] in [row.split()[:3] for row in rows]


def test_a_printed_recipe_is_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    recipes.command("transformer-miniworld")
    assert capsys.readouterr().out == (recipe.FOLDER / "transformer-miniworld.toml").read_text(encoding="utf-8")


def test_a_bare_model_is_printed_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    recipes.command("transformer")
    assert capsys.readouterr().out == read("transformer").to_toml()


def test_json_holds_values_and_origins(capsys: pytest.CaptureFixture[str]) -> None:
    recipes.command("transformer-miniworld", json=True)
    shown = json.loads(capsys.readouterr().out)
    resolved = read("transformer-miniworld")
    assert shown == {"name": resolved.name, "values": resolved.resolved(), "origins": resolved.origins}
    recipes.command(json=True)
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == recipe.names()


def test_what_was_measured_is_shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    measured = {
        "metric": "BLEU", "split": "test2016", "mean": 42.1167, "deviation": 0.2775, "seeds": 3,
        "overrides": ["train.seconds=285"], "commit": "11a1147cb29e",
    }  # fmt: skip
    monkeypatch.setattr(recipe_list, "measurements", lambda: {"transformer-multi30k-en-de": measured})
    recipes.command()
    rows = {line.split("\t")[0]: line.split("\t")[5] for line in capsys.readouterr().out.splitlines()}
    assert rows["transformer-multi30k-en-de"] == ("42.12 ± 0.28 BLEU on test2016, 3 seeds, with train.seconds=285")
    assert rows["transformer-miniworld"] == ""
    recipes.command(json=True)
    shown = {row["name"]: row["measured"] for row in json.loads(capsys.readouterr().out)}
    assert shown["transformer-multi30k-en-de"] == measured and shown["transformer-miniworld"] is None


def test_a_measurement_in_words() -> None:
    one = {"metric": "bits per byte", "split": None, "mean": 1.5, "deviation": None, "seeds": 1, "overrides": []}
    assert recipes.in_words(one) == "1.5000 bits per byte, 1 seed"
    assert recipes.in_words(one | {"seeds": None, "metric": "BLEU", "split": "test"}) == "1.50 BLEU on test"


def test_only_recipes_were_measured() -> None:
    assert set(recipe_list.measurements()) <= set(recipe.names())
