"""The picture of paths: every concept and relation once, arrows as the triples have them, nothing unescaped."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from mallang.errors import UserError
from mallang.inspection.path_figure import draw_paths, layout, picture
from mallang.tasks.graph_chooser import AttendedPath, ChoicePaths, Reasons

LONG = AttendedPath(0.75, ("cat", "eat", "fish"), ("done by", "takes"), (True, False))
SHORT = AttendedPath(0.25, ("cat", "fish"), ("likes <b>",), (False,))
CHOICE = ChoicePaths("fish", 0.9, (LONG, SHORT))
REASONS = Reasons("What <i>?", (CHOICE, ChoicePaths("stone", 0.1, ())), ("cat",))
SVG = "{http://www.w3.org/2000/svg}"


def test_the_choice_is_in_the_last_column_and_each_concept_once() -> None:
    spots = layout(CHOICE.paths)
    assert set(spots) == {(0, "cat"), (1, "eat"), (2, "fish")}
    assert spots[0, "cat"].x < spots[1, "eat"].x < spots[2, "fish"].x


def test_lines_are_as_thick_as_their_weight_and_arrows_have_the_direction_of_the_triple() -> None:
    root = ElementTree.fromstring(picture(CHOICE))
    lines = root.findall(f"{SVG}line")
    assert [line[0].text for line in lines] == ["0.7500", "0.7500", "0.2500"]
    assert ["marker-start" in line.attrib for line in lines] == [True, False, False]
    widths = [float(line.attrib["stroke-width"]) for line in lines]
    assert widths[0] == widths[1] > widths[2] > 0
    texts = [text.text for text in root.findall(f"{SVG}text")]
    assert texts == ["done by 0.75", "takes 0.75", "likes <b> 0.25", "cat", "eat", "fish"]


def test_a_page_has_all_choices_and_runs_nothing(tmp_path: Path) -> None:
    text = draw_paths(tmp_path / "why.html", REASONS).read_text("utf-8")
    assert "What &lt;i&gt;?" in text and "<i>" not in text and "<script" not in text
    assert "No path of the graph connects it" in text and "cat ←done by- eat -takes→ fish" in text
    assert draw_paths(tmp_path / "why.svg", REASONS).read_text("utf-8") == picture(CHOICE)
    with pytest.raises(UserError, match=r"drawn as why\.png"):
        draw_paths(tmp_path / "why.png", REASONS)


def test_a_choice_without_paths_is_an_empty_picture() -> None:
    assert ElementTree.fromstring(picture(REASONS.choices[1])).findall(f"{SVG}line") == []
