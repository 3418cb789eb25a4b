"""Pictures of search trees: nothing overlaps, Hangul is readable, text is only text."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import matplotlib.font_manager
import pytest
from matplotlib.image import imread

from contracts.toy_models import random_table, source_batch, tiny_vocabulary
from mallang.decoding.contract import Config
from mallang.decoding.tree import FATES, Tree, record
from mallang.errors import UserError
from mallang.inspection import figures, search_tree
from mallang.inspection.search_tree import COLORS, draw_tree, layout
from mallang.text.vocabulary import SPECIALS, Vocabulary

KOREAN = Vocabulary((*SPECIALS, "▁나는", "학생", "<b>&", "$x$"))


def a_tree(config: Config, words: int = 4) -> Tree:
    vocabulary = KOREAN if words == 4 else tiny_vocabulary(words)
    return replace(record(random_table(vocabulary, 3), source_batch([[4, 5]]), config), input="나는 <학생>이다.")


TREES = {
    "greedy": Config(method="greedy", max_length=5),
    "beam": Config(beam=3, nbest=2, max_length=6),
    "best-first": Config(method="best-first", max_length=4),
    "given up": Config(method="best-first", max_length=8, max_expansions=3),
}


@pytest.mark.parametrize("config", TREES.values(), ids=TREES.keys())
def test_no_two_candidates_stand_in_one_place(config: Config) -> None:
    tree = a_tree(config)
    spots = layout(tree)
    assert len(spots) == min(len(tree.nodes), search_tree.MOST)
    places = [(spot.node.step, spot.line) for spot in spots.values()]
    assert len(set(places)) == len(places)
    for place, spot in spots.items():
        assert spot.parent is None or spots[spot.parent].line <= spot.line
        assert spot.is_best == (place in (0, *tree.path(tree.outputs[0])))


@pytest.mark.parametrize("ending", [".png", ".svg", ".html"])
@pytest.mark.parametrize("config", TREES.values(), ids=TREES.keys())
def test_it_is_drawn_with_hangul(config: Config, ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """matplotlib warns of a missing glyph, and warnings are errors here; no Korean typeface is installed."""
    fonts = matplotlib.font_manager.fontManager
    monkeypatch.setattr(fonts, "ttflist", [font for font in fonts.ttflist if font.name not in figures.KOREAN_FONTS])
    path = draw_tree(tmp_path / f"tree{ending}", a_tree(config))
    if ending == ".png":
        assert imread(path).shape[0] > 200
    elif ending == ".svg":
        assert path.read_text("utf-8").count("<path") > 20


def test_the_page_holds_text_and_nothing_else(tmp_path: Path) -> None:
    tree = a_tree(TREES["beam"])
    text = draw_tree(tmp_path / "tree.html", tree).read_text("utf-8")
    assert "<b>" not in text and "<학생>" not in text and "&lt;b&gt;&amp;" in text and "▁나는" in text
    assert "<script" not in text and not re.search(r"(src|href)=", text) and "default-src 'none'" in text
    picture = ElementTree.fromstring(text[text.index("<svg") : text.index("</svg>") + 6])
    titles = [title.text or "" for title in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == len(tree.nodes)
    for node, title in zip((spot.node for spot in layout(tree).values()), titles, strict=True):
        assert title.startswith(node.token) and f"sum {node.total:.4f}" in title and FATES[node.fate] in title
    best = [path for path in picture.iter("{http://www.w3.org/2000/svg}path") if path.get("class") == "best"]
    assert len(best) == len(tree.path(tree.outputs[0]))


@pytest.mark.parametrize("ending", [".svg", ".html"])
def test_control_characters_leave_the_picture_valid(ending: str, tmp_path: Path) -> None:
    tree = a_tree(TREES["beam"])
    nodes = tuple(replace(node, token=f"\x1b[31m{node.token}\x00") for node in tree.nodes)
    text = draw_tree(tmp_path / f"tree{ending}", replace(tree, nodes=nodes, input="\x07")).read_text("utf-8")
    ElementTree.fromstring(text[text.index("<svg") : text.index("</svg>") + 6])
    assert not re.search("[\x00-\x08\x0b-\x1f]", text)


def test_of_a_large_tree_the_best_part_is_shown() -> None:
    tree = a_tree(Config(method="best-first", max_length=6, max_expansions=300), words=30)
    assert len(tree.nodes) > 3 * search_tree.MOST
    spots = layout(tree)
    assert len(spots) == search_tree.MOST and set(tree.path(tree.outputs[0])) <= set(spots)
    assert f"{len(tree.nodes) - search_tree.MOST:,} more candidates are not shown" in search_tree.page(tree)
    dropped = [node.total for place, node in enumerate(tree.nodes) if place not in spots]
    path = tree.path(tree.outputs[0])
    assert max(dropped) <= min(spot.node.total for place, spot in spots.items() if place not in path)


def test_every_fate_has_a_color_and_mistakes_are_told(tmp_path: Path) -> None:
    assert set(COLORS) == set(FATES)
    with pytest.raises(UserError, match=r"cannot be drawn as tree\.doc"):
        draw_tree(tmp_path / "tree.doc", a_tree(TREES["greedy"]))
