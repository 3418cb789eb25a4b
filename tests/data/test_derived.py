"""Columns made of others: joined ones and readable labels, in rows, fingerprints and the registry."""

from __future__ import annotations

from pathlib import Path

import pytest

from mallang.data import registry
from mallang.data.corpus import Config, open_corpus
from mallang.data.derived import derive, needed
from mallang.data.readers import Files

JOINED = {"text": ["title", ": ", "body"]}
VALUES = {"label": {"0": "negative", "1": "positive"}}


@pytest.fixture
def files(tmp_path: Path) -> Files:
    path = tmp_path / "table.tsv"
    path.write_text("label\ttitle\tbody\n1\tA\tgood\n0\tB\tbad\n7\t\t0\n")
    return Files("tsv", (path,), ("label", "title", "body"), header=True, joined=JOINED, values=VALUES)


def test_labels_have_names_and_texts_are_joined(files: Files) -> None:
    assert files.names == ("label", "title", "body", "text")
    assert list(files.rows(("text", "label"))) == [("A: good", "positive"), ("B: bad", "negative"), (": 0", "7")]
    assert next(iter(files.rows(("label", "text", "label")))) == ("positive", "A: good", "positive")
    assert list(files.rows(("body",))) == [("good",), ("bad",), ("0",)]  # only the values of the named column change


def test_rows_are_chosen_by_the_values_in_the_file(files: Files) -> None:
    chosen = Files("tsv", files.paths, files.columns, header=True, where=("label", "1"), joined=JOINED, values=VALUES)
    assert list(chosen.rows(("text", "label"))) == [("A: good", "positive")]


def test_a_fingerprint_knows_what_is_derived_and_only_that(files: Files) -> None:
    plain = Files("tsv", files.paths, files.columns, header=True)
    assert files.fingerprint(("body", "title")) == plain.fingerprint(("body", "title"))
    assert files.fingerprint(("label",)) != plain.fingerprint(("label",))
    other = Files("tsv", files.paths, files.columns, header=True, joined={"text": ["title", " ", "body"]})
    assert len({found.fingerprint(("text",)) for found in (files, other)}) == 2
    assert files.fingerprint(("text", "label")) != files.fingerprint(("label", "text"))


def test_only_what_is_needed_is_read() -> None:
    assert needed(("text", "title"), ("label", "title", "body"), JOINED) == ("title", "body")
    rows = derive(iter([("A", "good")]), ("title", "body"), ("body", "text"), JOINED, VALUES)
    assert list(rows) == [("good", "A: good")]


def test_the_registry_names_derived_columns(shop) -> None:  # type: ignore[no-untyped-def]
    shop.put_folder()
    table = registry.TABLE.read_text()
    made = 'kind = "classification"\njoined = { both = ["id", "/", "text"] }\nvalues = { label = { 1 = "good" } }'
    registry.TABLE.write_text(table.replace('kind = "classification"', made))
    registry._entries.cache_clear()
    assert registry.entry("small/talk").columns == ("id", "text", "label", "both")
    rows = open_corpus(Config(corpus="small/talk", columns=["both", "label"]), ("text", "label")).split("train")
    assert list(rows) == [("1/좋다", "good")]
