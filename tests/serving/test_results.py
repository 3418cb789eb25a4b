"""The tables of what was measured, as the page gets them."""

from __future__ import annotations

import tomllib
from pathlib import Path

from mallang.serving.results import PLACES, result_tables, sections_of
from serving.serving import Client

PAGE = """# Results
| no | section |
|---|---|
| a | b |
## Translation
Text.
|  | ours | on |
|---|--:|:-:|
| **Transformer**, [page](x.md) | 42.12 `BLEU` | H200 \\| CPU |
### Few seeds
nothing
### Others
| name |
|---|
| one |
"""


def test_tables_of_a_page() -> None:
    assert sections_of(PAGE) == [
        {
            "title": "Translation",
            "head": ["", "ours", "on"],
            "rows": [["Transformer, page", "42.12 BLEU", "H200 | CPU"]],
        },
        {"title": "Translation: Others", "head": ["name"], "rows": [["one"]]},
    ]


def test_the_page_of_results_is_served_and_shipped(server: Client) -> None:
    found = server.get("/api/results")["sections"]
    assert found == result_tables() and any("Translation" in each["title"] for each in found)
    assert all(len(row) == len(each["head"]) for each in found for row in each["rows"])
    built = tomllib.loads((PLACES[1].parent / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]
    assert built["targets"]["wheel"]["force-include"] == {"RESULTS.md": "mallang/RESULTS.md"}
    assert PLACES[0] == Path(PLACES[0].parent / "RESULTS.md")
