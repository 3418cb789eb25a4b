"""The page of `mallang serve` in a real browser: what a person does with it. `make test-browser` installs all."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mallang
from serving.serving import TEXTS, Client, serving, until, write_run

TOKEN = "a-token-of-this-test"
LENGTHS = ("decoding.min_length=4", "decoding.max_length=12")
HOSTILE = "<img src=x onerror=alert(1)>"
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def served(browser: Any, folder: Path) -> Iterator[Client]:
    """Two translators and a language model, behind a token; and a training run to watch."""
    runs = [
        write_run(folder / "translator", "transformer-miniworld", *LENGTHS),
        write_run(folder / "other", "transformer-miniworld", *LENGTHS, "model.layers=2"),
        write_run(folder / "writer", "gpt-miniworld", "model.max_length=64"),
    ]
    (folder / "runs" / "growing").mkdir(parents=True)
    log(folder, 1, 4.0)
    with serving(*runs, "--workers", "1", "--watch", folder / "runs", MALLANG_TOKEN=TOKEN) as (client, _):
        yield client


def log(folder: Path, step: int, loss: float) -> None:
    with (folder / "runs" / "growing" / "metrics.jsonl").open("a") as stream:
        stream.write(json.dumps({"step": step, "loss": loss}) + "\n")


@pytest.fixture
def opened(browser: Any, served: Client) -> Iterator[Open]:
    """Opens the page at a fragment; an error, a dialog or a request to elsewhere ends the test."""
    contexts, faults = [], []
    home = f"http://127.0.0.1:{served.port}/"

    def open_page(fragment: str = "", token: str | None = TOKEN, **options: Any) -> Any:
        settings = {"locale": "en-US", "viewport": {"width": 1280, "height": 900}, **options}
        contexts.append(browser.new_context(**settings))
        if token:
            contexts[-1].add_init_script(f"sessionStorage.setItem('mallang-token', '{token}')")
        contexts[-1].set_default_timeout(120_000)  # of a machine that is busy
        page = contexts[-1].new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on(
            "console",
            lambda said: said.type == "error" and "status of 40" not in said.text and faults.append(said.text),
        )
        page.on("dialog", lambda asked: faults.append(asked.message))
        page.on("request", lambda asked: asked.url.startswith((home, "data:", "blob:")) or faults.append(asked.url))
        page.goto(f"{home}#{fragment}")
        page.wait_for_selector("body[data-ready]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not faults


@pytest.fixture(scope="module")
def translator(folder: Path, served: Client) -> Any:
    return mallang.load(folder / "translator", "cpu")


def test_the_token_is_asked_for_and_a_text_translated(opened: Open, translator: Any) -> None:
    page = opened(token=None)
    page.fill("#token", "wrong, wrong, wrong")
    page.keyboard.press("Enter")
    page.wait_for_selector(".problem")
    page.fill("#token", TOKEN)
    page.click("button[type=submit]")
    page.wait_for_selector("#field-texts")
    page.fill("#field-texts", TEXTS[0])
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(".output")
    expected = translator.translate(TEXTS[0])
    assert page.inner_text(".output") == expected.output
    assert page.locator(".piece").all_inner_texts() == list(expected.tokens)
    assert "in=" in page.url and TOKEN not in page.url
    page.click("#go-inside")
    page.wait_for_selector("#inside-text")
    assert page.input_value("#inside-text") == TEXTS[0]


def test_bad_input_is_told_in_words(opened: Open) -> None:
    page = opened()
    page.click("#send")
    page.wait_for_selector(".output")  # no text has a translation too
    page.click("summary")
    page.fill("#option-domain", "bible")
    page.click("#send")
    page.wait_for_selector("#told.problem")
    assert page.inner_text("#told").startswith("400: ") and "domain" in page.inner_text("#told")
    page.fill("#option-domain", "")
    page.fill("#option-beam", "99")
    page.click("#send")
    until(lambda: "beam" in page.inner_text("#told"))


def test_a_language_model_writes_while_one_reads(opened: Open) -> None:
    page = opened("a=writer")
    page.fill("#field-prompts", TEXTS[0])
    page.click("#send")
    page.wait_for_selector(".piece")
    assert page.inner_text(".output")
    page.select_option("#verb", "score")
    page.fill("#field-texts", TEXTS[1])
    page.click("#send")
    page.wait_for_selector(".answer .big")
    assert page.inner_text(".answer .big").startswith("log-probability -")


def test_two_runs_side_by_side(opened: Open) -> None:
    page = opened("a=translator&b=other")
    page.fill("#field-texts", TEXTS[0])
    page.click("#send")
    page.wait_for_selector("#answers section:nth-child(2) .output")
    assert page.locator("#answers h2").all_inner_texts() == ["translator", "other"]
    page.click("#go-inside")
    page.wait_for_selector("#tab-compare")
    page.click("#tab-compare")
    page.wait_for_selector("#verdict")
    assert page.locator("[data-side]").count() == 2 and "tab=compare" in page.url and "b=other" in page.url


def test_a_text_is_looked_into_while_it_is_typed(opened: Open, translator: Any) -> None:
    page = opened(f"page=inside&a=translator&in={TEXTS[0]}")
    page.wait_for_selector("#heads .thumb")
    assert page.inner_text("#output") == translator.translate(TEXTS[0]).output
    page.locator(".links [role=button]").nth(2).hover()
    assert page.locator(".links path").count() > 0 and "attended to most" in page.inner_text(".told")
    page.fill("#inside-text", TEXTS[2])
    until(lambda: page.inner_text("#input") == TEXTS[2])
    assert page.inner_text("#output") == translator.translate(TEXTS[2]).output
    page.click("#tab-next")
    before = page.locator("#bars .bar u").all_inner_texts()
    page.locator("#temperature").fill("0")
    assert page.locator("#bars .bar u").all_inner_texts() != before
    page.click("#tab-search")
    page.wait_for_selector("svg.drawn")
    page.keyboard.press("ArrowLeft")
    assert re.search(r"[#&]step=\d", page.url)
    page.reload()
    page.wait_for_selector("#tab-search[aria-selected=true]")
    assert page.input_value("#inside-text") == TEXTS[2]


def test_the_same_in_korean_and_dark(opened: Open) -> None:
    page = opened("page=inside", locale="ko-KR", color_scheme="dark")
    assert page.get_attribute("html", "lang") == "ko" and page.get_attribute("html", "data-theme") == "dark"
    assert page.inner_text("#go-inside") == "속 보기"
    page.fill("#inside-text", TEXTS[0])
    page.wait_for_selector("#tab-attention")
    assert page.inner_text("#tab-attention") == "어텐션"
    page.click("#language")
    assert page.inner_text("#tab-attention") == "Attention" and page.inner_text("#go-inside") == "Look inside"
    page.click("#theme")
    assert page.get_attribute("html", "data-theme") == "light" and "lang=en" in page.url


def test_the_model_runs_in_the_browser(opened: Open) -> None:
    page = opened(f"page=live&a=translator&in={TEXTS[0]}")
    frame = page.frame_locator("#live-frame")
    frame.locator("body[data-ready]").wait_for()
    assert frame.locator("#text").input_value() == TEXTS[0]
    assert frame.locator("#written").inner_text() and frame.locator("#name").inner_text() == "translator"
    page.context.set_offline(True)
    before = frame.locator("#written").inner_text()
    frame.locator("#text").fill(TEXTS[1])
    assert frame.locator("#written").inner_text() != before
    page.context.set_offline(False)


def test_a_growing_training_run_and_the_recipes(opened: Open, folder: Path) -> None:
    page = opened("page=training")
    page.wait_for_selector("#curves")
    assert "growing" in page.locator("#training-runs button[aria-pressed=true]").inner_text()
    before = page.get_attribute("#curves path.curve", "d")
    for step in range(2, 6):
        log(folder, step, 4.0 / step)
    until(lambda: page.get_attribute("#curves path.curve", "d") != before)
    page.keyboard.press("5")
    page.wait_for_selector("#recipes tbody tr")
    page.fill("#filter", "transformer multi30k")
    assert 0 < page.locator("#recipes tbody tr").count() < 30


def test_markup_is_shown_and_never_run(opened: Open) -> None:
    page = opened(f"a=writer&in={HOSTILE}")
    page.click("#send")
    page.wait_for_selector(".piece")
    assert HOSTILE in page.inner_text(".answer") and page.locator("img").count() == 0
    page.click("#go-inside")
    page.wait_for_selector("#input")
    assert page.inner_text("#input") == HOSTILE and page.locator("img").count() == 0


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_is_wider_than_the_screen(opened: Open, width: int) -> None:
    page = opened(f"a=translator&b=other&in={TEXTS[0]}", viewport={"width": width, "height": 800})
    page.wait_for_selector("#send")
    page.click("#send")
    page.wait_for_selector(".output")
    for tab in page.locator("#tabs button").all():
        tab.click()
        page.wait_for_timeout(300)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, tab.inner_text()


def test_options_are_in_the_address_of_both_forms(opened: Open, translator: Any) -> None:
    page = opened(f"a=translator&in={TEXTS[0]}&opt=beam%3D2%26nbest%3D2")
    page.wait_for_selector("#option-beam")
    assert page.input_value("#option-beam") == "2"
    page.click("#send")
    page.wait_for_selector(".output")
    assert page.inner_text(".output") == translator.translate(TEXTS[0], beam=2).output
    page.fill("#option-nbest", "1")
    page.keyboard.press("Tab")
    assert "nbest%3D1" in page.url
    page.click("#go-inside")
    page.click("#tab-of-inside summary")
    page.fill("#option-beam", "3")
    page.keyboard.press("Tab")
    assert "look=beam%3D3" in page.url
    page.click("#tab-search")
    until(lambda: "beam 3" in page.inner_text("#view") or page.locator("svg.drawn").count() > 0)
    page.check("#option-lines")
    page.fill("#inside-text", f"{TEXTS[0]}\n{TEXTS[2]}")
    page.wait_for_selector("#text")
    assert page.locator("#text option").count() == 2 and page.inner_text("#input") == TEXTS[0]
    page.check("#option-numbers")
    page.wait_for_selector("#tab-numbers")


def test_the_results_can_be_filtered(opened: Open) -> None:
    page = opened("page=results")
    page.wait_for_selector("#results h2")
    everything = page.locator("#results tbody tr").count()
    page.fill("#filter", "transformer multi30k en-de")
    assert 0 < page.locator("#results tbody tr").count() < everything
