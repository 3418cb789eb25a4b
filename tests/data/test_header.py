"""The first line of a table: a header, or data, and which guesses are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from mallang.data.columns import LabelSet
from mallang.data.corpus import Config, open_corpus
from mallang.data.header import check_header
from mallang.errors import UserError

ROWS = [("buy now", "spam"), ("see you", "ham"), ("cheap", "spam"), ("hello", "ham")]


def check(path: Path, head: tuple[str, str], **options: object) -> list[str]:
    """The labels that are learned from a file with this first line."""
    path.write_text("".join(f"{text}\t{label}\n" for text, label in [head, *ROWS]), "utf-8")
    rows = open_corpus(Config(corpus=None, train=str(path), **options), ("text", "label")).split("train")
    labels = LabelSet.learn((label for _, label in rows), "label")
    check_header(rows, "label", labels, options.get("header"))
    return list(labels.names)


def test_a_label_may_have_the_name_of_its_column(tmp_path: Path) -> None:
    assert check(tmp_path / "a.tsv", ("mail", "spam"), columns=["mail", "spam"]) == ["ham", "spam"]


def test_data_that_is_called_a_header_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="it is data"):
        check(tmp_path / "a.tsv", ("good bye", "ham"), columns=[1, 2], header=True)


def test_a_header_with_the_wanted_names_stays_one_where_that_is_also_said(tmp_path: Path) -> None:
    """A class may have the name of the column: `spam` is both here."""
    named = {"columns": ["mail", "spam"], "header": True}
    assert check(tmp_path / "a.tsv", ("mail", "spam"), **named) == ["ham", "spam"]
    with pytest.raises(UserError, match="if it is a header, data.columns by name"):
        check(tmp_path / "a.tsv", ("mail", "spam"), columns=[1, 2], header=True)


def test_a_header_that_is_read_as_data_is_refused_unless_it_is_said_to_be_data(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="looks like a header"):
        check(tmp_path / "a.tsv", ("mail", "kind"))
    with pytest.raises(UserError, match="looks like a header"):
        check(tmp_path / "a.tsv", ("mail", "kind"), first=5)
    assert check(tmp_path / "a.tsv", ("mail", "kind"), header=False) == ["ham", "kind", "spam"]


def test_names_of_which_none_is_the_text_are_not_read_by_order(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("id\tdocument\tlabel\n7\tgood\t1\n8\tbad\t0\n", "utf-8")
    rows = open_corpus(Config(corpus=None, train=str(path)), ("text", "label")).split("train")
    assert list(rows) == [("good", "1"), ("bad", "0")]
    path.write_text("id\tcomment\tlabel\n7\tgood\t1\n8\tbad\t0\n", "utf-8")
    with pytest.raises(UserError, match="no column for the text: its first line seems to name .* id, comment, label"):
        open_corpus(Config(corpus=None, train=str(path)), ("text", "label"))
    said = open_corpus(Config(corpus=None, train=str(path), header=False), ("text", "label")).split("train")
    assert len(list(said)) == 3


def test_a_message_about_labels_that_are_long_texts_is_short() -> None:
    labels = LabelSet.learn((f"{number} {'very ' * 50}" for number in range(300)), "label")
    with pytest.raises(UserError, match="does not occur in the training data") as caught:
        labels.id("another")
    assert len(str(caught.value)) < 2000 and "(300 in all)" in (caught.value.todo or "")
