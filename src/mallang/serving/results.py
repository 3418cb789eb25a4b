"""The tables of RESULTS.md, which is shipped with the package: what the page shows of what was measured."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[1]
PLACES = (PACKAGE / "RESULTS.md", PACKAGE.parents[1] / "RESULTS.md")
"""In an installed package, and in a checkout."""
LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")


@cache
def result_tables() -> list[dict[str, Any]]:
    """The sections of the page of results that have a table."""
    found = next((place for place in PLACES if place.exists()), None)
    return [] if found is None else sections_of(found.read_text("utf-8"))


def sections_of(page: str) -> list[dict[str, Any]]:
    """The sections of a page of Markdown: their titles, and the head and the rows of their tables, as plain text."""
    sections: list[dict[str, Any]] = []
    titles = {2: "", 3: ""}
    for line in page.splitlines():
        if heading := re.match(r"(#{2,3}) (.*)", line):
            level = len(heading[1])
            titles |= {level: plain(heading[2]), **({3: ""} if level == 2 else {})}
            sections.append({"title": ": ".join(filter(None, titles.values())), "head": [], "rows": []})
        elif line.startswith("|") and sections:
            cells = [plain(cell) for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])]
            last = sections[-1]
            if all(re.fullmatch(r":?-+:?", cell) for cell in cells):
                continue
            if not last["head"]:
                last["head"] = cells
            elif cells != last["head"]:
                last["rows"].append(cells)
    return [each for each in sections if each["rows"]]


def plain(cell: str) -> str:
    """A cell without the marks of Markdown."""
    return LINK.sub(r"\1", cell).replace("**", "").replace("`", "").replace("\\|", "|").strip()
