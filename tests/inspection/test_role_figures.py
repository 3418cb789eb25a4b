"""Roles as a page, in a terminal and as text: every part of a text once, escaped, one color per role."""

from __future__ import annotations

import html
import io
import re
from pathlib import Path

from rich.console import Console

from mallang.inspection.role_figures import (
    COLORS,
    PREDICATE,
    all_roles,
    color_of,
    in_plain_text,
    in_terminal,
    parts_of,
    write_page,
)
from mallang.tasks.role_labeler import Proposition, RoleLabeling, RoleSpan

TEXT = "<b>Anna</b> gave Bob a book."
ANNA = RoleSpan("ARG0", "<b>Anna</b>", 0, 11, 0, 0, 0.9)
BOOK = RoleSpan("ARG1", "a book", 21, 27, 3, 4, 0.5)
GAVE = Proposition("gave", "give", 1, 12, 16, 0.75, ("ARG0", "_", "_", "_", "ARG1", "_"), (ANNA, BOOK))
SELF = Proposition("gave", "give", 1, 12, 16, 1.0, (), (RoleSpan("ARG2", "gave", 12, 16, 1, 1, 0.4),))
FOUND = RoleLabeling(TEXT, (), (), (GAVE, SELF), are_given=False)
NOTHING = RoleLabeling("Hello & \x1b[31m", (), (), (), are_given=True)


def test_the_parts_of_a_text_are_the_text() -> None:
    parts = parts_of(FOUND, GAVE)
    assert "".join(part.text for part in parts) == TEXT
    assert [part.role for part in parts] == ["ARG0", "", "V", "", "ARG1", ""]
    assert [part.role for part in parts_of(FOUND, SELF)] == ["", "V", ""], "the predicate is shown as the predicate"


def test_plain_text_has_brackets() -> None:
    first, second = in_plain_text(FOUND).splitlines()
    assert first == "[ARG0 <b>Anna</b>] [V gave] Bob [ARG1 a book]." and second == "<b>Anna</b> [V gave] Bob a book."
    assert "no predicate" in in_plain_text(NOTHING) and "\x1b" not in in_plain_text(NOTHING)


def test_a_terminal_has_colors_and_no_escapes_of_the_text() -> None:
    screen = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor", width=200)
    roles = all_roles([FOUND])
    for each in (FOUND, NOTHING):
        screen.print(in_terminal(each, roles), end="")
    out = screen.file.getvalue()  # type: ignore[attr-defined]
    plain = re.sub(r"\x1b\[[0-9;]*m", "", out)
    assert "<b>Anna</b> ARG0 gave Bob a book ARG1." in plain and "no predicate" in plain
    red, green, blue = (int(COLORS[0][place : place + 2], 16) for place in (1, 3, 5))
    assert f"48;2;{red};{green};{blue}" in out and "\x1b[31m" not in out


def test_one_color_per_role() -> None:
    roles = ["ARG0", "ARG1", "C-ARG1", "R-ARG0"]
    assert color_of("C-ARG1", roles) == color_of("ARG1", roles) != color_of("ARG0", roles)
    assert color_of("R-ARG0", roles) == color_of("ARG0", roles) and color_of("V", roles) == PREDICATE


def test_the_page_loads_nothing_and_escapes_everything(tmp_path: Path) -> None:
    page = write_page(tmp_path / "roles.html", [FOUND, NOTHING]).read_text("utf-8")
    assert "<b>" not in page and html.escape("<b>Anna</b>") in page and "default-src 'none'" in page
    assert "<script" not in page and "http-equiv" in page and "src=" not in page
    marks = re.findall(r"<mark[^>]*>([^<]*)<sub>([^<]*)</sub></mark>", page)
    assert marks[:3] == [(html.escape("<b>Anna</b>"), "ARG0"), ("gave", "give"), ("a book", "ARG1")]
    assert "2 predicates, found by the model" in page and "0 predicates, given" in page
