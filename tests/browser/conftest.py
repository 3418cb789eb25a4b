"""A browser for all tests of this folder, and pages opened in it as a person would open them: from disk, offline."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: make test-browser")
    if CHROMIUM is None:
        pytest.skip("needs Chromium: make test-browser")
    with playwright.sync_playwright() as started:
        chosen = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chosen
        chosen.close()


@pytest.fixture
def opened(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens a file at a fragment with the network cut; an error, a dialog or a request ends the test."""
    contexts, faults = [], []

    def open_page(path: Path, fragment: str = "", **options: Any) -> Any:
        settings = {"locale": "en-US", "viewport": {"width": 1280, "height": 900}, "offline": True, **options}
        contexts.append(browser.new_context(**settings))
        page = contexts[-1].new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda said: said.type == "error" and faults.append(said.text))
        page.on("dialog", lambda asked: faults.append(asked.message))
        page.on("request", lambda asked: asked.url.startswith(("file:", "data:")) or faults.append(asked.url))
        page.goto(f"{path.as_uri()}#{fragment}")
        page.wait_for_selector("body[data-ready]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not faults
