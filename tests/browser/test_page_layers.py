"""The views of what layers do, in a real browser: numbers, gates, vectors, images, answers; windows and saving."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from inspection.test_forward_pass import answering, filling
from inspection.test_live import translator, writer
from inspection.test_page import NASTY, page_of, read_page
from mallang.inspection.page import Page
from mallang.inspection.shown_runs import inspect
from mallang.inspection.shown_texts import Wanted, read_text, shown_text
from mallang.inspection.shown_vectors import vectors_of

TEXT = "유나는 배를 탔다."
HOSTILE = "<img src=x onerror=alert(1)>"
Open = Callable[..., Any]
EXACT = """async () => {
  const { stepsOf } = await import("#view_numbers");
  const layer = mallang.shown.numbers.find(each => each.name === "decoder.1.self");
  const plain = each => (Number.isFinite(each) ? each : null);
  return Object.fromEntries(stepsOf(layer, 2).map(step => [step.id, Array.from(step.table.values, plain)]));
}"""
"""The numbers of a head as the page has computed them; null is −∞."""


def tab(page: Any, name: str) -> Any:
    page.click(f"#tab-{name}")
    return page


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("layers")
    return page_of(folder / "page.html", shown_text(translator(norm="pre"), TEXT, Wanted()))


def test_steps_are_shown_one_by_one_and_every_number_is_the_models(opened: Open, path: Path) -> None:
    page = tab(opened(path), "numbers")
    assert page.locator("#rungs .step").count() == 1
    page.keyboard.press("Space")
    assert page.locator("#rungs .step").count() == 2 and "rung=2" in page.url
    page.click("#all-steps")
    names = [each.get_attribute("data-step") for each in page.locator("#rungs .step").all()]
    assert " ".join(names) == "x bs bw by q k v scores scaled masked weights context heads output"
    page.select_option("#layer", "decoder.1.self")
    page.keyboard.press("3")
    page.check("#table")
    reading = read_text(translator(norm="pre"), TEXT)
    assert reading is not None
    steps = reading.steps()["decoder.1.self"]
    assert steps.basic is not None
    expected = {
        "x": steps.x, "bs": steps.basic.scores, "bw": steps.basic.weights, "by": steps.basic.output, "q": steps.q[2],
        "k": steps.k[2], "v": steps.v[2], "scores": steps.scores[2], "scaled": steps.scaled[2],
        "masked": steps.masked[2], "weights": steps.weights[2], "context": steps.context[2], "heads": steps.joined,
        "output": steps.output,
    }  # fmt: skip
    for name, table in expected.items():
        cells = page.locator(f"[data-step='{name}'] td[data-cell]").all_inner_texts()
        found = [-np.inf if cell == "−∞" else float(cell) for cell in cells]
        assert found == pytest.approx(table.flatten().tolist(), abs=6e-4), name
    exact = page.evaluate(EXACT)
    for name, table in expected.items():
        flat = [value if np.isfinite(value) else None for value in table.flatten().tolist()]
        assert [each is None for each in exact[name]] == [each is None for each in flat]
        most = max(abs(value) for value in flat if value is not None)
        assert [each or 0 for each in exact[name]] == pytest.approx(
            [each or 0 for each in flat], abs=1e-6 * max(1, most)
        )
    page.locator("[data-step='scaled'] td[data-cell]").nth(0).click()
    assert re.search(r" / 2\.8284$", page.inner_text(".told"))
    page.locator("[data-step='context'] td[data-cell]").nth(0).click()
    assert page.inner_text(".told").count(" × ") == 3


def test_gates_are_chosen_and_told(opened: Open, tmp_path: Path) -> None:
    time, dim = 4, 5
    gates = {name: torch.rand(time, dim) for name in "ifogch"}
    trace = {"kind": "lstm", "tokens": ["a", "b", HOSTILE, "d"], "units": 70, "gates": gates,
             "means": {name: gate.mean(dim=1) for name, gate in gates.items()}}  # fmt: skip
    text = {
        "input": "a",
        "output": "",
        "score": None,
        "gates": [{"name": "encoder.0", **trace}, {"name": "x", **trace}],
    }
    page = tab(opened(page_of(tmp_path / "a.html", text)), "gates")
    assert page.locator("#gate-means path.curve").count() == 6 and "5 of 70" in page.inner_text("#view")
    page.select_option("#gate", "f")
    assert page.inner_text("#units") == "Every unit: forget gate f" and "gate=f" in page.url
    page.locator("#gate-units .matrix").focus()
    for key in ("ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    assert page.inner_text(".told") == f"b, forget gate f: {float(gates['f'][1, 1]):.6f} (unit 2)"
    page.locator("#gate-means").focus()
    page.keyboard.press("ArrowRight")
    assert page.inner_text(".told") == f"a, input gate i: {float(gates['i'][0].mean()):.6f}"
    page.locator("h1").click()
    page.keyboard.press("]")
    assert page.input_value("#gate-layer") == "1" and page.locator("img").count() == 0


def test_a_word_on_the_plane_has_its_neighbors(opened: Open, tmp_path: Path) -> None:
    verbs, texts = filling(), ["the dog runs .", "the cat sleeps .", "my dog is hairy"]
    vectors = vectors_of(verbs, texts)
    assert vectors is not None
    path = page_of(tmp_path / "a.html", shown_text(verbs, texts[0], Wanted()), vectors=vectors)
    page = tab(opened(path), "vectors")
    count = len(vectors["words"])
    assert page.locator("#plane circle").count() == count and not page.locator("#neighbors .bar").count()
    place = vectors["words"].index("cat")
    page.locator(f"[data-node='{place}']").click()
    layer = vectors["layers"][-1]
    drawn = [float(each.get_attribute("data-cosine")) for each in page.locator("#neighbors .bar").all()]
    assert drawn == pytest.approx(layer["cosines"][place].tolist(), abs=1e-7)
    first = layer["neighbors"][place][0]
    before, after = vectors["texts"][first]
    assert page.locator("#neighbors .bar b").first.inner_text() == f"{before}[{vectors['words'][first]}]{after}"
    page.select_option("#vector-layer", layer["name"])
    page.fill("#find", "hairy")
    page.keyboard.press("Enter")
    assert f"node={vectors['words'].index('hairy')}" in page.url


def test_an_image_is_shaded_for_every_word(opened: Open, tmp_path: Path) -> None:
    pixels, weights = torch.full((8, 8, 3), 200.0), torch.tensor([[[0.7, 0.1], [0.1, 0.1]]])
    text = {"input": "a", "output": "b", "score": -1.0,
            "image": {"pixels": pixels, "words": [HOSTILE], "weights": weights}}  # fmt: skip
    page = opened(page_of(tmp_path / "a.html", text))
    colors = page.evaluate("""() => [...document.querySelectorAll("#images canvas")].map(canvas => {
      const all = canvas.getContext("2d").getImageData(0, 0, 8, 8).data;
      return [all[0], all[4 * 7]];
    })""")
    assert colors == [[200, 200], [200, round(200 * (0.15 + 0.85 * 0.1 / 0.7))]]
    page.locator("#images canvas").nth(1).hover()
    assert page.inner_text(".told") == f"{HOSTILE}: its largest weight is 0.700000"


def test_answers_are_marked_in_their_context(opened: Open, tmp_path: Path) -> None:
    shown = shown_text(answering(), "w1 w2\tw3 w4 w5 w6", Wanted())
    page = opened(page_of(tmp_path / "a.html", shown))
    assert page.inner_text("#context mark") == shown["output"] and page.inner_text("#context") == "w3 w4 w5 w6"
    drawn = [float(each.get_attribute("data-share")) for each in page.locator(".candidates .bar").all()]
    assert drawn == pytest.approx(shown["candidates"][0]["shares"])
    odd = {**shown, "answer": {"question": HOSTILE, "context": "🙂🙂 배를 탔다", "start": 3, "end": 5}}
    odd["candidates"] = [{"title": HOSTILE, "names": [NASTY], "shares": [-3.0], "kind": "score"}]
    page = opened(page_of(tmp_path / "b.html", odd))
    assert page.inner_text("#context mark") == "배를" and page.locator("img").count() == 0


def test_a_window_of_a_long_text_is_told(opened: Open, tmp_path: Path) -> None:
    verbs, text = writer("char", max_length=400), " ".join([TEXT] * 25)[:240]
    shown = shown_text(verbs, text, Wanted(search={"method": "greedy", "max_length": 2}))
    page = opened(page_of(tmp_path / "a.html", shown))
    assert page.inner_text("#window").startswith(f"Tokens 1 to 128 of {shown['window']['of']} are shown")
    assert page.locator("#heads canvas").first.evaluate("canvas => canvas.width") == 128
    for each in page.locator("nav button").all():
        each.click()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_views_are_saved_as_pictures_and_numbers(opened: Open, path: Path, tmp_path: Path, scheme: str) -> None:
    page = opened(path, color_scheme=scheme, accept_downloads=True)
    found = {}
    for kind in ("svg", "png", "json"):
        with page.expect_download() as started:
            page.click(f"#save-{kind}")
        assert started.value.suggested_filename == f"a-attention.{kind}"
        found[kind] = Path(started.value.path()).read_bytes()
    drawn = found["svg"].decode("utf-8")
    assert drawn.startswith("<svg") and "data:image/png" in drawn and "<script" not in drawn and "유나는" in drawn
    assert found["png"].startswith(b"\x89PNG") and len(found["png"]) > 5000
    data, whole = json.loads(found["json"]), read_page(path)["runs"][0]["texts"][0]
    assert np.array(data["maps"][0]["weights"]) == pytest.approx(whole["maps"][0]["weights"], abs=1e-9)


def test_a_notebook_shows_the_page_in_a_frame(opened: Open, tmp_path: Path) -> None:
    shown = inspect(translator(), TEXT, method="greedy")
    assert isinstance(shown, Page)
    (tmp_path / "notebook.html").write_text(
        f"<!doctype html><meta charset=utf-8><body data-ready=true>{shown._repr_html_()}", "utf-8"
    )
    page = opened(tmp_path / "notebook.html")
    frame = page.frame_locator("iframe")
    frame.locator("#tab-numbers").click()
    assert frame.locator("#rungs .step").count() == 1 and frame.locator("#input").inner_text() == TEXT


@pytest.mark.parametrize("locale", ["ko-KR", "en-US"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_fits_a_phone(opened: Open, path: Path, locale: str, scheme: str) -> None:
    page = opened(path, "rung=20", locale=locale, color_scheme=scheme, viewport={"width": 360, "height": 740})
    for each in page.locator("nav button").all():
        each.click()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, each.inner_text()
        assert "undefined" not in page.inner_text("body")
