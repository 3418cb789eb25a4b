"""A live page in a real browser: what a person does with it. `make test-browser` installs what it needs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inspection.test_live import char_aware, conv_lm, convs2s, counted, ngram, nplm, rnn_lm, translator, writer
from mallang.inspection.live import write_live_page

TEXT, OTHER = "유나는 배를 탔다.", "그 농부는 배가 아프다."


@pytest.fixture(scope="module")
def verbs() -> Any:
    return translator(norm="pre")


@pytest.fixture(scope="module")
def path(verbs: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_live_page(tmp_path_factory.mktemp("live") / "live.html", verbs, "a run", [TEXT, OTHER]).path


@pytest.fixture
def page(browser: Any, path: Path) -> Iterator[Any]:
    """The page, opened from disk with the network cut; an error or a request ends the test."""
    context = browser.new_context(locale="en-US", viewport={"width": 1280, "height": 900}, offline=True)
    opened, faults = context.new_page(), []
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on("request", lambda request: request.url.startswith("file:") or faults.append(request.url))
    opened.goto(path.as_uri())
    opened.wait_for_selector("body[data-ready]")
    yield opened
    assert not faults
    context.close()


def tokens(page: Any) -> list[str]:
    found: list[str] = page.locator("#output .token").all_inner_texts()
    return found


def test_the_page_opens_with_the_first_example_and_follows_the_text(page: Any, verbs: Any) -> None:
    assert page.input_value("#text") == TEXT
    assert page.inner_text("#written") == verbs.translate(TEXT).output
    page.fill("#text", OTHER)
    assert page.inner_text("#written") == verbs.translate(OTHER).output
    page.locator("#examples button").first.click()
    assert page.inner_text("#written") == verbs.translate(TEXT).output
    made = verbs.translate(TEXT)
    assert tokens(page)[: len(made.tokens)] == list(made.tokens)


def test_a_token_shows_its_row_its_links_and_what_else_was_considered(page: Any) -> None:
    page.locator("#output .token").nth(2).hover()
    hovered = page.inner_text("#map th.chosen")
    assert page.locator("#links line").count() > 0 and page.inner_text("#next-title") == f"In place of “{hovered}”"
    page.locator("#output .token").nth(1).click()
    assert page.get_attribute("#output .token >> nth=1", "aria-pressed") == "true"
    assert page.inner_text("#map th.chosen") == tokens(page)[1]
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#map th.chosen") == tokens(page)[2] and "step=2" in page.url


def test_another_candidate_is_forced_and_given_back(page: Any) -> None:
    before = tokens(page)
    page.locator("#output .token").nth(1).click()
    chosen = page.locator("#bars .bar b").nth(1).inner_text()
    page.locator("#bars .bar").nth(1).click()
    assert tokens(page)[0] == before[0] and tokens(page)[1] == chosen != before[1]
    assert "forced" in page.get_attribute("#output .token >> nth=1", "class")
    page.click("#free")
    assert tokens(page) == before


def test_sliders_change_the_candidates(page: Any) -> None:
    page.evaluate("document.getElementById('temperature').value = 0.1")
    shares = page.locator("#bars u").all_inner_texts()
    page.dispatch_event("#temperature", "input")
    sharper = page.locator("#bars u").all_inner_texts()
    assert float(sharper[0].split()[0]) > float(shares[0].split()[0])
    page.evaluate("document.getElementById('topK').value = 2")
    page.dispatch_event("#topK", "input")
    assert page.locator("#bars .bar.cut").count() == page.locator("#bars .bar").count() - 2


def test_heads_layers_language_and_theme_are_chosen(page: Any) -> None:
    heads = page.locator("#heads button")
    assert heads.count() == 4 * 6  # encoder, decoder and cross-attention of two layers, four heads each
    heads.nth(5).click()
    assert page.inner_text("#focus") == "encoder 2, self-attention, head 2"
    page.locator("#output .token").first.click()
    page.keyboard.press("0")
    assert page.inner_text("#focus") == "encoder 2, self-attention, mean of the heads"
    page.click("#language")
    assert page.inner_text("#attention-title") == "어텐션" and page.get_attribute("html", "lang") == "ko"
    page.click("#theme")
    assert page.get_attribute("html", "data-theme") in ("dark", "light")


def test_weights_in_the_table_are_told(page: Any) -> None:
    page.locator("#map td").first.hover()
    assert re.fullmatch(r".+ attends to .+ with \d\.\d{3}", page.inner_text("#told"))


def test_an_address_opens_the_same_view(browser: Any, path: Path) -> None:
    page = browser.new_page(locale="ko-KR")
    page.goto(f"{path.as_uri()}#in={OTHER}&lang=ko&step=1&map=decoder.0.cross&head=3")
    page.wait_for_selector("body[data-ready]")
    assert page.input_value("#text") == OTHER and page.inner_text("#focus") == "디코더 1, 크로스 어텐션, 헤드 3"
    assert page.get_attribute("#output .token >> nth=1", "aria-pressed") == "true"
    page.close()


def test_markup_in_a_text_is_shown_and_a_long_text_refused(browser: Any, tmp_path: Path) -> None:
    written = write_live_page(
        tmp_path / "a.html", writer("char", max_length=20), "<b>run</b>", ["<img src=x onerror=alert(1)>"]
    )
    page = browser.new_page(locale="en-US")
    asked: list[str] = []
    page.on("dialog", lambda dialog: asked.append(dialog.message))
    page.goto(written.path.as_uri())
    page.wait_for_selector("body[data-ready]")
    assert page.inner_text("#name") == "<b>run</b>" and not asked
    assert "reads at most 20" in page.inner_text("#problem") and not tokens(page)
    page.fill("#text", "유나는")
    assert tokens(page) and "reads at most" not in page.inner_text("#problem")
    page.close()


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_is_wider_than_the_screen(browser: Any, path: Path, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 800})
    page.goto(path.as_uri())
    page.wait_for_selector("body[data-ready]")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()


def test_the_first_edit_is_as_fast_as_others_and_ends_the_warm_up(browser: Any, path: Path, verbs: Any) -> None:
    page = browser.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector("body[data-warm]")
    assert page.inner_text("#written") == verbs.translate(TEXT).output  # runs of the warm-up change nothing
    page.reload()
    page.wait_for_selector("body[data-ready]")
    page.fill("#text", OTHER)
    page.wait_for_selector("body[data-warm]")
    assert page.inner_text("#written") == verbs.translate(OTHER).output
    page.close()


def test_a_model_without_attention_shows_what_it_has(browser: Any, tmp_path: Path) -> None:
    verbs = writer(model=rnn_lm, cell="gru")
    page, faults = browser.new_page(), list[str]()
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(write_live_page(tmp_path / "a.html", verbs, "a", ["유나는"]).path.as_uri())
    page.wait_for_selector("body[data-warm]")
    assert page.inner_text("#written") == "유나는" + verbs.generate("유나는").output
    assert page.locator("#bars .bar").count() == 10 and not page.is_visible("#attention")
    page.locator("#output .token").nth(1).hover()
    page.keyboard.press("ArrowRight")
    assert not faults
    page.close()


def test_a_convolutional_translator_shows_the_attention_of_every_layer(browser: Any, tmp_path: Path) -> None:
    verbs = translator(model=convs2s, decoder_layers=3)
    page, faults = browser.new_page(locale="en-US"), list[str]()
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(write_live_page(tmp_path / "a.html", verbs, "a", [TEXT]).path.as_uri())
    page.wait_for_selector("body[data-warm]")
    assert page.inner_text("#written") == verbs.translate(TEXT).output
    assert page.locator("#heads button").count() == 3  # three layers of the decoder, one head each
    assert page.inner_text("#focus") == "decoder 3, cross-attention, mean of the heads"
    page.keyboard.press("[")
    assert page.inner_text("#focus") == "decoder 2, cross-attention, mean of the heads"
    page.locator("#bars .bar").nth(1).click()
    assert "forced" in page.get_attribute("#output .token >> nth=0", "class")
    assert not faults
    page.close()


@pytest.mark.parametrize(
    "model", [char_aware, conv_lm, nplm, ngram], ids=lambda model: model.__name__.rpartition(".")[2]
)
def test_language_models_without_attention_continue_a_text(browser: Any, tmp_path: Path, model: Any) -> None:
    verbs = counted() if model is ngram else writer("word" if model is char_aware else "bpe", model=model)
    page, faults = browser.new_page(locale="en-US"), list[str]()
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(write_live_page(tmp_path / "a.html", verbs, "a", ["유나는"]).path.as_uri())
    page.wait_for_selector("body[data-ready]")
    assert page.text_content("#written") == verbs.generate("유나는").text
    assert ("n-grams" if model is ngram else "int8 weights") in page.inner_text("#about")
    page.locator("#bars .bar").nth(1).click()
    assert "forced" in page.get_attribute("#output .token >> nth=0", "class")
    page.click("#sample")
    assert not page.is_visible("#attention") and not faults
    page.close()


def test_the_page_of_the_docs_translates(browser: Any) -> None:
    page = browser.new_page(locale="ko-KR")
    page.goto((Path(__file__).parents[2] / "docs" / "live" / "korean-to-english.html").as_uri())
    page.wait_for_selector("body[data-warm]")
    assert page.inner_text("#written") == "Yuna took the ship last week."
    page.fill("#text", "그 농부는 배가 아프다.")
    assert page.inner_text("#written") == "The farmer's stomach hurts."
    page.close()
