"""The tabs of a page beside attention in a real browser: search tree, labels, comparison, positions, training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from browser.test_page import HOSTILE, OTHER, TEXT, tab
from inspection.test_highlights import verbs_of
from inspection.test_live import translator, writer
from inspection.test_page import NASTY, page_of, read_page
from mallang.inspection.next_token import TEMPERATURES
from mallang.inspection.page import write_page
from mallang.inspection.search_tree import tree_of
from mallang.inspection.shown_runs import position_map
from mallang.inspection.shown_texts import Wanted, shown_text
from mallang.layers.mix import LayerMix

Open = Callable[..., Any]


def test_a_search_tree_is_walked_step_by_step(opened: Open, tmp_path: Path) -> None:
    verbs = translator(norm="pre")
    search = {"method": "beam", "beam": 3}
    path = page_of(tmp_path / "a.html", shown_text(verbs, TEXT, Wanted(search=search)))
    page, tree = tab(opened(path), "search"), tree_of(verbs, TEXT, **search)
    nodes, steps = page.locator("#tree [role=button]"), max(node.step for node in tree.nodes)
    assert nodes.count() == len(tree.nodes)
    fates = page.eval_on_selector_all("#tree [role=button]", "all => all.map(one => one.dataset.fate)")
    assert fates == [node.fate for node in tree.nodes]
    best = [tree.nodes[place].token for place in (0, *tree.path(tree.outputs[0]))]
    assert page.inner_text("#tree-path").split() == best
    assert page.locator("#tree path.best").count() == len(best) - 1
    page.keyboard.press("ArrowLeft")
    assert nodes.count() == sum(node.step < steps for node in tree.nodes) and f"step={steps - 1}" in page.url
    page.locator("#step").fill("1")
    assert nodes.count() == sum(node.step <= 1 for node in tree.nodes)
    page.get_by_label("show pruned candidates").uncheck()
    assert nodes.count() == sum(node.step <= 1 and node.fate in ("kept", "ended") for node in tree.nodes)
    place = next(place for place, node in enumerate(tree.nodes) if node.step == 1 and node.fate == "kept")
    page.locator(f"[data-node='{place}']").hover()
    said, node = page.inner_text(".told"), tree.nodes[place]
    assert f"probability {np.exp(node.log_prob):.4f}, sum {node.total:.4f}" in said and said.endswith(
        "it was continued"
    )
    page.locator(f"[data-node='{place}']").click()
    assert f"node={place}" in page.url and page.locator("#tree path.on").count() == 1


def test_no_two_candidates_of_a_tree_lie_on_each_other(opened: Open, tmp_path: Path) -> None:
    shown = shown_text(writer(), "유나는", Wanted(search={"method": "beam", "beam": 4}))
    page = tab(opened(page_of(tmp_path / "a.html", shown, task="language_modeling")), "search")
    places = page.eval_on_selector_all(
        "#tree rect.back", "all => all.map(one => `${one.getAttribute('x')} ${one.getAttribute('y')}`)"
    )
    assert len(places) == len(set(places)) == len(shown["tree"]["parents"])


def test_two_runs_are_compared_on_one_text(opened: Open, tmp_path: Path) -> None:
    about = {
        "model": "transformer",
        "task": "translation",
        "parameters": 1,
        "curves": {},
        "mixes": [],
        "positions": None,
    }
    said = [(1, "Yuna took a ship."), (2, "Yuna took a ship."), (3, "Yuna ate the ship.")]
    shown = [shown_text(translator(seed=seed), TEXT, Wanted(target=target)) for seed, target in said]
    refused = {"input": TEXT, "output": "", "score": None, "problem": "too long"}
    runs = [{**about, "name": name, "texts": [text]} for name, text in zip("abcd", [*shown, refused], strict=True)]
    path = write_page(tmp_path / "a.html", {"temperatures": list(TEMPERATURES), "runs": runs})
    page, data = tab(opened(path), "compare"), read_page(path)["runs"]
    assert page.inner_text("#verdict") == "Both give the same output." and not page.locator("mark.differs").count()
    curves = page.locator("#bits-so-far path.curve")
    assert [each.get_attribute("data-line") for each in curves.all()] == ["a", "b"]
    page.locator("#difference .matrix").focus()
    page.keyboard.press("ArrowDown")
    first, second = (
        next(each for each in data[run]["texts"][0]["maps"] if each["name"] == "decoder.1.cross") for run in (0, 1)
    )
    one, two = (float(each["weights"].mean(axis=0)[1, 0]) for each in (first, second))
    told = page.inner_text(".told")
    assert f": {one:.6f} and {two:.6f}" in told and told.startswith(f"{first['queries'][1]} → {first['keys'][0]}")
    page.select_option("#other", "2")
    assert page.inner_text("#verdict") == "The outputs differ." and "other=2" in page.url
    assert page.locator("[data-side='1'] mark.differs").all_inner_texts() == ["ate", "the"]
    assert page.locator("[data-side='0'] mark.differs").all_inner_texts() == ["took", "a"]
    page.select_option("#other", "3")
    assert page.inner_text("#cannot") == "d: This run cannot read the text: too long"
    page.keyboard.press("1")
    page.click("#tab-attention")
    page.keyboard.press("c")
    assert page.get_attribute("#tab-compare", "aria-selected") == "true"


def test_classifiers_show_labels_and_shaded_words(opened: Open, tmp_path: Path) -> None:
    shown = shown_text(verbs_of("han"), "유나는 배를 탔다. 책을 읽는다!", Wanted())
    page = tab(opened(page_of(tmp_path / "a.html", shown, task="classification")), "labels")
    shares = [float(each.get_attribute("data-share")) for each in page.locator("#labels .bar").all()]
    assert shares == sorted(shown["labels"]["probabilities"], reverse=True)
    page.click("#tab-highlights")
    (view,) = shown["highlights"]
    marks = page.locator("#highlights mark")
    assert marks.all_inner_texts() == [piece for sentence in view["sentences"] for piece in sentence["pieces"]]
    weights = torch.cat([sentence["weights"] for sentence in view["sentences"]])
    drawn = [float(each.get_attribute("data-weight")) for each in marks.all()]
    assert drawn == pytest.approx(weights.tolist(), abs=1e-7)
    bars = [float(each.get_attribute("data-weight")) for each in page.locator("#highlights .weight").all()]
    assert bars == pytest.approx([sentence["weight"] for sentence in view["sentences"]]) and sum(bars) == pytest.approx(
        1
    )
    marks.nth(1).hover()
    assert page.inner_text(".told") == f"{view['sentences'][0]['pieces'][1]}: {drawn[1]:.4f}"


def test_positions_and_mixes_are_drawn(opened: Open, tmp_path: Path) -> None:
    mix, table = LayerMix(3), position_map(translator(dim=32).model)
    assert table is not None
    with torch.no_grad():
        mix.scores.copy_(torch.tensor([0.0, 1.0, 2.0]))
    mixes = [{"name": "mix", "weights": mix.weights().detach(), "scale": 1.5}]
    path = page_of(tmp_path / "a.html", shown_text(translator(), TEXT, Wanted()), positions=table, mixes=mixes)
    page = tab(opened(path), "positions")
    assert page.inner_text("#positions-size") == "50 positions × 32 dimensions, of 1024 × 32."
    page.locator("#positions .matrix").focus()
    page.keyboard.press("ArrowDown")
    assert page.inner_text(".told") == f"position 1, dimension 0: {np.sin(1):.6f}"
    page.locator("#near .matrix").focus()
    for key in ("ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    assert page.inner_text(".told") == "positions 1 and 1: 16.0000"  # sin² + cos² for every pair of dimensions
    shares = [float(each.get_attribute("data-share")) for each in page.locator(".mix .bar").all()]
    assert shares == pytest.approx(torch.tensor([0.0, 1.0, 2.0]).softmax(0).tolist(), abs=1e-6)


def test_training_curves_of_a_metric_are_chosen_and_read(opened: Open, tmp_path: Path) -> None:
    steps = torch.arange(1.0, 6)
    curves = {
        "train": {"loss": torch.stack([steps, 8 / steps]), "rate": torch.stack([steps, steps / 10])},
        "valid": {"loss": torch.stack([steps[1:3], 9 / steps[1:3]])},
    }
    path = page_of(tmp_path / "a.html", shown_text(translator(), TEXT, Wanted()), curves=curves)
    page = tab(opened(path), "training")
    assert page.locator("#curves path.curve").count() == 2
    page.locator("#curves").focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    assert page.inner_text(".told") == "training, update 3: 2.66667"
    page.keyboard.press("ArrowDown")
    assert page.inner_text(".told").startswith("validation, update 3: 3")
    page.locator("#log").check()
    page.select_option("#metric", "rate")
    assert page.locator("#curves path.curve").count() == 1 and "metric=rate" in page.url and "log=1" in page.url


def test_markup_in_every_part_of_a_page_is_shown_and_never_run(opened: Open, tmp_path: Path) -> None:
    shown = shown_text(translator("char"), OTHER, Wanted())
    shown["tree"]["tokens"] = [HOSTILE] * len(shown["tree"]["tokens"])
    shown["labels"] = {"names": [HOSTILE, NASTY], "probabilities": [0.75, 0.25]}
    shown["tags"] = {"words": [HOSTILE], "tags": [NASTY], "probabilities": torch.tensor([0.5])}
    weights = torch.tensor([1.0])
    sentence = {"weight": 1.0, "pieces": [HOSTILE], "spaced": [True], "weights": weights}
    shown["highlights"] = [{"name": "mean", "sentences": [sentence]}, {"name": HOSTILE, "sentences": [sentence]}]
    curves = {HOSTILE: {NASTY: torch.tensor([[1.0, 2.0], [3.0, 4.0]])}}
    mixes = [{"name": HOSTILE, "weights": weights, "scale": 1.0}]
    page = opened(page_of(tmp_path / "a.html", shown, curves=curves, mixes=mixes))
    assert page.locator("nav button").count() == 9
    for each in page.locator("nav button").all():
        each.click()
        assert page.locator("img").count() == 0
    page.set_viewport_size({"width": 360, "height": 800})
    for each in page.locator("nav button").all():
        each.click()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, each.inner_text()
