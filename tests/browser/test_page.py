"""The page of `mallang inspect` in a real browser: what a person does with it. `make test-browser` installs all."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from inspection.test_live import translator, writer
from inspection.test_page import NASTY, page_of, read_page
from mallang.inspection.shown_texts import Wanted, shown_text

TEXT, OTHER = "유나는 배를 탔다.", "그 농부는 배가 아프다."
Open = Callable[..., Any]
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    verbs = translator(norm="pre")
    texts = [shown_text(verbs, text, Wanted()) for text in (TEXT, OTHER)]
    return page_of(tmp_path_factory.mktemp("page") / "page.html", *texts)


def tab(page: Any, name: str) -> Any:
    page.click(f"#tab-{name}")
    return page


def test_a_hovered_token_shows_its_links_and_a_head_is_chosen(opened: Open, path: Path) -> None:
    page, data = opened(path), read_page(path)["runs"][0]["texts"][0]
    cross = data["maps"][data["first"]]
    assert page.inner_text("#input") == TEXT and page.inner_text("#output") == data["output"]
    assert page.locator("#heads .thumb").count() == 6 * 5  # four heads and their mean
    assert page.inner_text("#focus") == "decoder 2, cross-attention, mean of the heads"
    row, keys = 2, len(cross["keys"])
    page.locator(".links [role=button]").nth(keys + row).hover()
    weights = cross["weights"].mean(axis=0)[row]
    drawn = page.eval_on_selector_all(".links path", "all => all.map(one => ({...one.dataset}))")
    assert {int(each["row"]) for each in drawn} == {row}
    assert {int(each["column"]): float(each["weight"]) for each in drawn} == pytest.approx(
        {column: float(weight) for column, weight in enumerate(weights) if weight >= 0.01}, abs=1e-6
    )
    assert f"{cross['queries'][row]} attends most to: {cross['keys'][weights.argmax()]}" in page.inner_text(".told")
    page.locator("#heads .thumb").nth(6).click()
    assert page.inner_text("#focus") == "encoder 2, self-attention, head 2"
    page.keyboard.press("]")
    page.keyboard.press("4")
    assert page.inner_text("#focus") == "decoder 1, self-attention, head 4" and "head=3" in page.url


def test_a_cell_is_told_by_mouse_and_by_keys(opened: Open, path: Path) -> None:
    page, data = opened(path, "map=encoder.0.self&head=0"), read_page(path)["runs"][0]["texts"][0]["maps"][0]
    page.locator(".matrix").focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    expected = f"{data['queries'][1]} attends to {data['keys'][2]} with "
    told = page.inner_text(".told")
    assert told.startswith(expected) and float(told.removeprefix(expected)) == pytest.approx(
        float(data["weights"][0, 1, 2]), abs=1e-6
    )
    box = page.locator(".matrix canvas").bounding_box()
    page.mouse.move(box["x"] + 3, box["y"] + 3)
    assert page.inner_text(".told").startswith(f"{data['queries'][0]} attends to {data['keys'][0]} with ")
    page.click("summary")
    assert page.locator("details td").nth(1).inner_text() == f"{data['weights'][0, 0, 0]:.4f}"


def test_the_alignment_has_a_ribbon_per_weight_and_a_threshold(opened: Open, path: Path) -> None:
    page = tab(opened(path), "alignment")
    before = page.locator("#ribbons path").count()
    assert before > 3 and "–" in page.inner_text("#strongest") and "decoder 2" in page.inner_text("#read-off")
    page.locator("#threshold").fill("0.9")
    assert page.locator("#ribbons path").count() < before
    page.locator("#threshold").fill("0")
    page.locator("#ribbons [role=button]", has_text="유나는").hover()
    assert set(page.eval_on_selector_all("#ribbons path", "all => all.map(one => one.dataset.column)")) == {"0"}
    assert "← 유나는: 0." in page.inner_text(".told")


def test_sliders_change_the_distribution_of_the_next_token(opened: Open, path: Path) -> None:
    page, data = tab(opened(path), "next"), read_page(path)["runs"][0]["texts"][0]["next"]

    def shares() -> list[float]:
        return [float(each.get_attribute("data-share")) for each in page.locator("#bars .bar").all()]

    page.locator("#tokens .token").nth(1).click()
    assert page.inner_text("#next-title") == f"In place of “{data['labels'][1]}”"
    log_probs = torch.tensor(data["log_probs"][1])
    total = log_probs.double().exp().sum() + torch.tensor(data["rest"][1, 18]).double().exp()  # at temperature 1
    whole = log_probs.double().exp() / total
    assert shares()[:12] == pytest.approx(whole[:12].tolist(), abs=1e-6) and sum(shares()) == pytest.approx(1)
    page.locator("#temperature").fill("0")  # the first of the temperatures, 0.1
    sharp = (log_probs.double() / 0.1).softmax(0)
    assert shares()[:12] == pytest.approx(sharp[:12].tolist(), abs=1e-6) and "temperature=0.1" in page.url
    page.locator("#temperature").fill("18")
    page.locator("#k").fill("3")
    assert shares()[:3] == pytest.approx(log_probs.double()[:3].softmax(0).tolist(), abs=1e-6)
    assert page.locator("#bars .bar.cut").count() == 10 and "3 tokens can be drawn" in page.inner_text("#kept")
    page.locator("#k").fill("0")
    page.locator("#p").fill("0.05")
    nucleus = 1 + int((whole.cumsum(0) < 0.05).sum())
    assert page.locator("#bars .bar:not(.cut)").count() == nucleus < 12
    bits = [
        float(each) for each in page.eval_on_selector_all("#surprisal g", "all => all.map(one => one.dataset.bits)")
    ]
    assert bits == pytest.approx((-data["label_log_probs"] / 0.6931471805599453).tolist(), abs=1e-6)


def test_language_theme_and_text_are_chosen_and_kept_in_the_address(opened: Open, path: Path) -> None:
    page = opened(path, locale="ko-KR", color_scheme="dark")
    assert page.get_attribute("html", "lang") == "ko" and page.get_attribute("html", "data-theme") == "dark"
    assert (
        page.inner_text("#tab-attention") == "어텐션"
        and page.inner_text("#focus") == "디코더 2, 크로스 어텐션, 헤드 평균"
    )
    page.click("#language")
    assert page.inner_text("#tab-attention") == "Attention" and page.get_attribute("html", "lang") == "en"
    page.click("#theme")
    assert page.get_attribute("html", "data-theme") == "light"
    page.select_option("#text select, select#text", "1")
    assert page.inner_text("#input") == OTHER
    again = opened(path, page.url.split("#")[1])
    assert again.inner_text("#input") == OTHER and again.get_attribute("html", "data-theme") == "light"
    again = opened(path, "tab=next&colour=red&token=x")
    assert "colour, token" in again.inner_text(".told") and again.inner_text("#next-title").startswith("In place of")


def test_markup_in_a_text_is_shown_and_never_run(opened: Open, tmp_path: Path) -> None:
    shown = shown_text(translator("char"), HOSTILE, Wanted())
    hostile = {**shown, "input": NASTY + HOSTILE, "output": HOSTILE}
    hostile["maps"] = [{**each, "keys": [HOSTILE] * len(each["keys"])} for each in shown["maps"]]
    hostile["next"] = {**shown["next"], "labels": [HOSTILE] * len(shown["next"]["labels"])}
    page = opened(page_of(tmp_path / "a.html", hostile, name="<b>run</b>"))
    assert page.inner_text("h1") == "<b>run</b>" and page.inner_text("#input") == NASTY + HOSTILE
    for each in page.locator("nav button").all():
        each.click()
        assert page.locator("img").count() == 0 and page.locator("h1 b").count() == 0


def test_keys_are_listed_and_closed(opened: Open, path: Path) -> None:
    page = opened(path)
    page.keyboard.press("?")
    assert "Space" in page.inner_text("dialog")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1280, "dark")])
def test_nothing_is_wider_than_the_screen(opened: Open, path: Path, width: int, scheme: str) -> None:
    page = opened(path, viewport={"width": width, "height": 800}, color_scheme=scheme)
    for each in page.locator("nav button").all():
        each.click()
        assert page.evaluate("document.documentElement.scrollWidth") <= width, each.inner_text()


def test_a_language_model_shows_its_prompt(opened: Open, tmp_path: Path) -> None:
    shown = shown_text(writer(), "유나는", Wanted())
    page = tab(opened(page_of(tmp_path / "a.html", shown, task="language_modeling")), "next")
    given = page.locator("#tokens .token.given").count()
    assert given == shown["prompt"] > 0
    assert page.get_attribute(f"#tokens .token >> nth={given}", "aria-pressed") == "true"
    assert not page.locator("#tab-alignment").count()


def test_thirty_tokens_at_six_layers_of_eight_heads_are_small_and_quick(opened: Open, tmp_path: Path) -> None:
    verbs = translator("char", layers=6, dim=64, heads=8)
    text, target = "유나는 지난주에 배를 탔다. 농부는 배가 아프다.", "Yuna took a ship. A pear! Oh"
    shown = shown_text(verbs, text, Wanted(target=target))
    assert len(shown["maps"]) == 18 and all(len(each["queries"]) >= 28 for each in shown["maps"])
    path = page_of(tmp_path / "a.html", shown)
    assert path.stat().st_size < 3_000_000
    page = opened(path)
    assert page.locator("#heads .thumb").count() == 18 * 9
    assert page.evaluate("performance.getEntriesByName('drawn')[0].startTime") < 5000  # 1000 on an idle machine
    map_ = shown["maps"][12]
    found = page.evaluate("mallang.shown.maps[12].weights.at(3).values.join()")
    assert [float(each) for each in found.split(",")] == pytest.approx(map_["weights"][3].flatten().tolist(), abs=1e-7)
    assert re.fullmatch(r"decoder 6, cross-attention, mean of the heads", page.inner_text("#focus"))
