"""What is generated and committed is up to date: `make generated` writes it again."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # docs is not installed
from docs import make_live, make_map  # noqa: E402

from mallang import schema  # noqa: E402


def test_the_schema_and_the_map_are_up_to_date():
    assert schema.FILE.read_text("utf-8") == schema.text(), "run: make generated"
    assert make_map.PAGE.read_text("utf-8") == make_map.text(), "run: make generated"


def test_make_generated_writes_both():
    rule = (ROOT / "Makefile").read_text("utf-8").split("\ngenerated:")[1].split("\n\n")[0]
    assert "-m mallang.recipe" in rule and "docs/make_map.py" in rule


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def test_every_file_has_a_line_also_in_a_folder_that_is_new(tmp_path):
    write(tmp_path / "data" / "b.py", '"""Reads b (Lee et al. 2017, section 3).\n\nMore."""\n')
    write(tmp_path / "data" / "a.py", '"""Does a.py\'s work,\nfor all. And more."""\n')
    write(tmp_path / "data" / "__init__.py", '"""Files."""\n')
    write(tmp_path / "kernels" / "fast.c", "/* Kernels for a CPU. */\n")
    write(tmp_path / "recipes" / "x.toml", "")
    found = make_map.text(tmp_path, "# Map\n\n{{ data: b gone * }}\n\n{{ layers: * }}\n\nThe end.\n")
    assert found == (
        "# Map\n\n"
        "- [b.py](../src/mallang/data/b.py): Reads b (Lee et al. 2017, section 3).\n"
        "- [a.py](../src/mallang/data/a.py): Does a.py's work, for all.\n\n"
        "The end.\n\n"
        "## Also: `kernels/`\n\n"
        "- [fast.c](../src/mallang/kernels/fast.c): Kernels for a CPU.\n"
    )


def test_every_module_says_what_it_is():
    silent = [path.name for path in make_map.SOURCE.rglob("*.py") if not make_map.first_sentence(path)]
    assert not silent


def test_the_live_page_of_the_docs_is_small_and_up_to_date() -> None:
    page = make_live.PAGE.read_text("utf-8")
    assert page == make_live.renewed(page), "run: python docs/make_live.py"
    assert make_live.PAGE.stat().st_size <= 1_000_000
    for readme in ("README.md", "README.ko.md"):
        assert "docs/live/korean-to-english.html" in (make_live.PAGE.parents[2] / readme).read_text("utf-8")
