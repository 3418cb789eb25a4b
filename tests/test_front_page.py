"""The pictures, tables and numbers of the README are those of results/."""

import json
import re
import sys
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest

from mallang.data import miniworld

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the benchmarks are not installed
from benchmarks import charts, front_figures, front_page, page_figures  # noqa: E402

AGAIN = "python -m benchmarks.front_page writes it again"
PAGES = sorted(front_page.LANGUAGES)
PROSE = {
    "small-data-5000-defaults-test2016": "{:g} BLEU",
}
"""Numbers between the tables, and how they are written."""


@pytest.mark.parametrize("name", PAGES)
def test_the_tables_are_up_to_date(name):
    page = (ROOT / name).read_text("utf-8")
    assert len(front_page.PART.findall(page)) == len(front_page.TABLES)
    assert page == front_page.filled(page, front_page.LANGUAGES[name]), AGAIN


@pytest.mark.parametrize("name", sorted(front_page.PICTURES))
def test_the_pictures_are_up_to_date(name):
    drawn = front_page.PICTURES[name]()
    assert (front_page.FOLDER / name).read_text("utf-8") == drawn, AGAIN
    assert ElementTree.fromstring(drawn).tag == "{http://www.w3.org/2000/svg}svg"


@pytest.mark.parametrize("name", sorted(page_figures.FIGURES))
def test_the_figures_of_pages_are_up_to_date(name):
    drawn = page_figures.FIGURES[name]()
    assert (page_figures.DOCS / name).read_text("utf-8") == drawn, "python -m benchmarks.page_figures draws it again"
    assert ElementTree.fromstring(drawn).tag == "{http://www.w3.org/2000/svg}svg"


def test_cells_begin_with_numbers():
    cells = ("1,023", "98.8 [98.1, 99.4]", "0.66 M", "39 k", "42.1 ± 0.3")
    assert [page_figures.number(cell) for cell in cells] == [1023, 98.8, 660_000, 39_000, 42.1]
    with pytest.raises(ValueError, match="begins with no number"):
        page_figures.number("–")


def test_a_page_without_the_table_is_named(tmp_path):
    (tmp_path / "page.md").write_text("| a | b |\n|---|---|\n| 1 | 2 |\n", "utf-8")
    assert page_figures.read_table(tmp_path / "page.md", "a") == [{"a": "1", "b": "2"}]
    with pytest.raises(ValueError, match="no table that begins with b"):
        page_figures.read_table(tmp_path / "page.md", "b")


def test_labels_are_moved_apart():
    assert charts.spread([10.0, 100.0], 15.0) == [10, 100]
    found = charts.spread([50.0, 40.0, 50.0], 15.0)
    assert found[1] < found[0] < found[2] and min(found[0] - found[1], found[2] - found[0]) >= 14.9


@pytest.mark.parametrize("name", PAGES)
def test_numbers_between_the_tables_are_measured(name):
    text = (ROOT / name).read_text("utf-8")
    prose = front_page.PART.sub("", text)
    for result, form in PROSE.items():
        assert form.format(front_page.value(result)) in prose, result
    minutes = front_page.value("small-data-5000-defaults-seconds") / 60
    assert re.search(rf"\b{minutes:.0f} minutes|{minutes:.0f}분", prose)
    exact = [front_page.value(f"miniworld-exact{seed}") for seed in ("", "-seed2", "-seed3")]
    assert exact == pytest.approx([98] * 3, abs=1) and "98 %" in prose
    assert front_page.value("miniworld-seconds") <= 120 and re.search(r"two minutes|2분", prose)
    assert f"{front_page.read('gpt-shakespeare-valid-nats-seed1')['published']}" in prose


def test_who_is_said_to_be_faster_is_faster():
    """README: CTranslate2 at greedy search and in float32 on a CPU, KenLM at scoring strings and as a command."""
    for theirs, ours in (
        ("decoding-cpu-greedy-ctranslate2-int8-*", "decoding-cpu-greedy-mallang-int8"),
        ("decoding-cpu-greedy-ctranslate2-float32-*", "decoding-cpu-greedy-mallang-float32"),
        ("decoding-cpu-beam5-ctranslate2-float32-*", "decoding-cpu-beam5-mallang-float32"),
        ("generation-cpu-1-ctranslate2-float32-*", "generation-cpu-1-mallang-float32"),
        ("ngram-kenlm-score", "ngram-mallang-from-strings"),
        ("ngram-kenlm-lmplz", "ngram-mallang-train-and-export"),
    ):
        assert front_page.best(theirs) > front_page.best(ours), "the sentence below the first table must change"


def test_a_peer_counts_in_its_best_form():
    forms = [front_page.value(f"decoding-cpu-greedy-ctranslate2-int8-{form}") for form in ("1x2", "2x1")]
    row = next(row for row in front_page.SPEED if "greedy" in row.work[0])
    assert f"CTranslate2 int8 {front_page.short(max(forms))}" in row.cells("en")[3].replace(front_page.GLUE, " ")


def test_the_figure_shows_the_values_of_the_results():
    said = [each.text for each in ElementTree.fromstring(front_page.generations()).iter() if each.tag.endswith("text")]
    for system in (*front_page.LANGUAGE[1:5], front_page.LANGUAGE[9], *front_page.TRANSLATION):
        assert any(text.endswith(f" {front_page.mean_of(system.result):.1f}") for text in said), system.name


def test_the_attention_is_that_of_real_sentences():
    maps = json.loads(front_page.WEIGHTS.read_text("utf-8"))
    assert [each["source"] for each in maps] == list(miniworld.EXAMPLES[:3])
    for each in maps:
        assert miniworld.is_grammatical(each["output"], "en")
        assert [len(row) for row in each["weights"]] == [len(each["keys"])] * len(each["queries"])
        assert all(sum(row) == pytest.approx(1, abs=0.03) for row in each["weights"])


def test_attention_is_drawn():
    weights = {
        "source": "배가",
        "output": "ship",
        "keys": ["배가", "</s>"],
        "queries": ["ship"],
        "weights": [[0.7, 0.3]],
    }
    drawn = front_figures.draw_attention([weights, weights])
    assert drawn.count("배 → ship") == 2 and 'fill-opacity="0.7"' in drawn


def test_a_paper_is_cited_with_its_number():
    assert front_page.cited("Cho et al. 2014, Learning, arXiv:1406.1078") == (
        "[Cho et al. 2014](https://arxiv.org/abs/1406.1078)"
    )
    assert front_page.cited("Katz 1987, Estimation of Probabilities") == "Katz 1987"


def test_numbers_have_three_digits():
    assert [front_page.short(number) for number in (604143.0, 3379, 16430398, 28.8)] == [
        "604k",
        "3.38k",
        "16.4M",
        "28.8",
    ]


def test_one_version_and_one_line_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    version, line = project["version"], project["description"]
    heads = re.findall(r"^## \[(.+?)\](?: - (\S+))?$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert heads[0] == ("Unreleased", "") and heads[1][0] == version
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"\nversion: {version}\ndate-released: {heads[1][1]}\n" in citation and line in citation
    assert f"**{line}**" in (ROOT / "README.md").read_text("utf-8")
    assert f"{version} of {heads[1][1]}" in (ROOT / "docs" / "versioning.md").read_text("utf-8")
