"""Take the pictures of the page in docs/page: `mallang serve` with a run, in Chromium, in light, dark and on a phone.

    python docs/make_screenshots.py runs/transformer-miniworld

The run should translate Korean. It needs playwright and a Chromium of the system, as `make test-browser` installs them,
and a font with Hangul (apt-get install fonts-nanum).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "page"
TEXT = "유나는 지난주에 배를 탔다."
DESK, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
PICTURES: dict[str, tuple[str, dict[str, Any], str, tuple[str, ...]]] = {
    "inside-light": ("page=inside&tab=attention", {"viewport": DESK}, ".links [role=button]", ()),
    "search-dark": ("page=inside&tab=search", {"viewport": DESK, "color_scheme": "dark"}, "svg.drawn", ()),
    "try-phone": ("page=try", {"viewport": PHONE, "device_scale_factor": 2, "locale": "ko-KR"}, "#send", ("#send",)),
    "live-dark": ("page=live", {"viewport": DESK, "color_scheme": "dark"}, "#live-frame", ()),
    "results-light": ("page=results", {"viewport": DESK}, "#results h2", ()),
}
"""Of each its address, its browser, what it waits for, and what is clicked then."""


def take(page: Any, home: str, name: str) -> None:
    """One picture."""
    fragment, _, awaited, clicks = PICTURES[name]
    page.goto(f"{home}#{fragment}&in={TEXT}")
    page.wait_for_selector(awaited)
    for place in clicks:
        page.click(place)
    if clicks:
        page.wait_for_selector(".output")
    if name == "live-dark":
        page.frame_locator("#live-frame").locator("body[data-ready]").wait_for()
    page.wait_for_timeout(500)
    page.screenshot(path=FOLDER / f"{name}.png")


def main(run: str) -> None:
    """All pictures of a run."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    command = [sys.executable, "-m", "mallang", "serve", run, "--port", "0", "--workers", "1", "--device", "cpu"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    try:
        home = next(found[0] for line in server.stderr if (found := re.search(r"http://\S+:\d+", line)))
        with sync_playwright() as started:
            browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            for name, (_, options, _, _) in PICTURES.items():
                context = browser.new_context(**{"locale": "en-US", **options})
                context.set_default_timeout(120_000)
                take(context.new_page(), home, name)
                context.close()
            browser.close()
    finally:
        server.terminate()
        server.wait(60)


if __name__ == "__main__":
    main(*sys.argv[1:])
