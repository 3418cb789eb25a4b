import sys
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import matplotlib.font_manager
import pytest
import torch
from matplotlib.ft2font import FT2Font
from matplotlib.image import imread

from mallang.errors import UserError
from mallang.inspection import figures
from mallang.inspection.figures import draw_attention

SYLLABLES = [
    bytes((row, cell)).decode("euc_kr") for row in range(0xB0, 0xC9) for cell in range(0xA1, 0xFF)
]  # the 2,350 of KS X 1001
KOREAN = ["▁나는", "학생", "이다", "ᄀ", "\u1100\u1161", "ㅏ", ".", "</s>"]
ENGLISH = ["<s>", "I", "am", "a", "student", "…", "“é”"]


def weights(heads, rows, columns):
    return torch.randn(heads, rows, columns, generator=torch.Generator().manual_seed(1)).softmax(dim=-1)


@pytest.fixture
def only_the_vendored_font(monkeypatch):
    """A machine on which no Korean typeface is installed."""
    fonts = matplotlib.font_manager.fontManager
    left = [font for font in fonts.ttflist if font.name not in figures.KOREAN_FONTS]
    monkeypatch.setattr(fonts, "ttflist", left)


@pytest.mark.parametrize("ending", [".png", ".svg", ".PNG"])
def test_hangul_is_drawn_without_a_missing_glyph(tmp_path, only_the_vendored_font, ending):
    """matplotlib warns of each missing glyph, and warnings are errors here."""
    assert figures.families()[0] == figures.VENDORED_FAMILY
    path = draw_attention(
        tmp_path / f"map{ending}", weights(4, 7, 8), KOREAN, ENGLISH, title="나는 학생이다 → I am a student"
    )
    if ending == ".svg":
        assert path.read_text().count("<path") > 20  # letters are outlines: no font needed to see them
    else:
        assert imread(path).shape[0] > 300


@pytest.mark.parametrize("ending", [".png", ".svg"])
def test_control_characters_are_drawn_as_replacements(tmp_path, ending):
    """A terminal's sequences, a zero, half a character: no typeface has them, and no XML may hold them."""
    odd = ["\x1b[31m", "\x00", "\udcc7", "\ufffe\x9b"]
    path = draw_attention(tmp_path / f"map{ending}", weights(1, 4, 4), odd, odd, title="\x1b]0;title\x07\udcd1")
    if ending == ".svg":
        ElementTree.parse(path)
        assert "\ufffd" in path.read_text("utf-8")


def test_every_figure_is_saved_by_one_function():
    """So that control characters are looked for in all of them."""
    folder = Path(figures.__file__).parent
    assert [path.name for path in folder.glob("*.py") if "savefig" in path.read_text("utf-8")] == ["figures.py"]


def test_a_glyph_that_no_font_has_would_be_noticed(tmp_path, only_the_vendored_font):
    with pytest.warns(UserWarning, match="missing from font"):
        draw_attention(tmp_path / "map.png", weights(1, 1, 1), ["漢"], ["a"])


def test_the_vendored_font_holds_what_korean_needs():
    letters = FT2Font(str(figures.VENDORED_FONT)).get_charmap()
    assert len(SYLLABLES) == 2350 and all(ord(syllable) in letters for syllable in SYLLABLES)
    jamo = [*range(0x1100, 0x1113), *range(0x1161, 0x1176), *range(0x11A8, 0x11C3), *range(0x3131, 0x3164)]
    assert all(number in letters for number in (*jamo, *range(0x20, 0x7F), 0x2581))
    assert figures.VENDORED_FONT.stat().st_size < 1_000_000
    assert "SIL OPEN FONT LICENSE" in (figures.VENDORED_FONT.parent / "OFL.txt").read_text()


def test_an_installed_korean_font_comes_first(monkeypatch):
    installed = SimpleNamespace(ttflist=[SimpleNamespace(name=name) for name in ("NanumGothic", "Pretendard")])
    monkeypatch.setattr(matplotlib.font_manager, "fontManager", installed)
    assert figures.families() == ["Pretendard", "DejaVu Sans"]


@pytest.mark.parametrize("mirrored", [False, True])
def test_dark_fields_are_where_the_weight_is(tmp_path, mirrored):
    diagonal = torch.eye(2).flip(1) if mirrored else torch.eye(2)
    picture = imread(draw_attention(tmp_path / "one.png", diagonal[None], ["a", "b"], ["c", "d"]))
    darkest = abs(picture[..., :3] - [8 / 255, 48 / 255, 107 / 255]).max(axis=-1) < 0.02
    rows, columns = darkest[:, : int(picture.shape[1] * 0.6)].nonzero()  # the color bar lies to the right
    middle = (rows.min() + rows.max()) / 2
    upper, lower = columns[rows < middle].mean(), columns[rows > middle].mean()
    assert len(rows) > 500 and (upper > lower) == mirrored


def test_odd_tokens_are_shown_as_they_are(tmp_path):
    assert figures.show("a b\n") == "a␣b␣"
    assert figures.show("\u1112\u1161\u11ab") == "한"
    assert figures.show("x" * 50) == "x" * 19 + "…"
    draw_attention(tmp_path / "map.png", weights(5, 2, 2), ["$\\frac$", "$"], ["_", "^{"], title="$x$ costs 5$")


def test_long_sentences_still_fit(tmp_path):
    path = draw_attention(tmp_path / "long.png", weights(1, 150, 150), ["말"] * 150, ["word"] * 150)
    assert max(imread(path).shape[:2]) < 4000


def test_pyplot_is_not_touched(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)  # importing it would fail
    draw_attention(tmp_path / "map.png", weights(1, 1, 1), ["a"], ["b"])


def test_mistakes_are_told(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="2 target and 1 source tokens do not label weights of 1 × 2"):
        draw_attention(tmp_path / "map.png", weights(1, 1, 2), ["a"], ["b", "c"])
    with pytest.raises(UserError, match=r"cannot be written as map\.doc"):
        draw_attention(tmp_path / "map.doc", weights(1, 1, 1), ["a"], ["b"])
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UserError, match="matplotlib") as caught:
        draw_attention(tmp_path / "map.png", weights(1, 1, 1), ["a"], ["b"])
    assert "pip install -e '.[plots]'" in str(caught.value)
