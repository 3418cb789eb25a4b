"""The labeled texts of a file, or of a split of a named corpus, with the first line taken for what it is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mallang.data import corpus as corpora
from mallang.data import registry
from mallang.data.columns import LabelSet
from mallang.data.corpus import Rows
from mallang.data.header import check_header
from mallang.data.miniworld_views import VIEWS
from mallang.errors import UserError

TEXT, LABEL = "text", "label"


def labeled_rows(
    target: str,
    split: str = "train",
    columns: Sequence[str | int] | None = None,
    roles: tuple[str, ...] = (TEXT, LABEL),
) -> Rows:
    """Texts and labels, or what else the roles of the columns are; a header that would be read as a row is refused."""
    is_named = target in (*VIEWS, *registry.names()) and not Path(target).is_file()
    chosen = list(columns) if columns else None
    if not is_named and not Path(target).suffix and not Path(target).exists() and target != "-":
        registry.entry(target)  # says which corpus comes near it
    if is_named:
        config = corpora.Config(corpus=target, columns=chosen)
    else:
        config = corpora.Config(corpus=None, train=target, columns=chosen)
    rows = corpora.open_corpus(config, roles).split(split)
    is_counted = chosen is not None and all(str(each).isdecimal() for each in chosen)
    if not is_counted:  # columns by number say that the first line is data
        check_first_line(rows)
    return rows


def check_first_line(rows: Rows) -> None:
    """Refuse a header that is read as data; rows of a single class are left to whoever needs more."""
    labels = [row[-1] for row in rows]
    if len({label for label in labels if label.strip()}) < 2:
        return
    try:
        check_header(rows, LABEL, LabelSet.learn(labels, "label"), None)
    except UserError as error:
        raise UserError(
            error.what,
            where=error.where,
            todo="--columns TEXT,LABEL by name if the first line is a header; by number, --columns 1,2, if it is data",
        ) from error
