"""The page of 30 + 30 tokens at 6 + 6 layers × 8 heads is smaller than 3 MB and is drawn within a second.

A Transformer of the paper's base shape with random weights and miniworld's vocabulary reads a sentence; the page is
opened from disk in Chromium, several times, each in a new context: how long from the beginning of the navigation until
the first view is drawn.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.report import Result, show, versions

SIZE, TIME = 3.0, 1000.0
"""Megabytes and milliseconds that are claimed to be enough."""
DRAWN = """() => ({
  drawn: performance.getEntriesByName("drawn")[0].startTime,
  painted: performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? null,
})"""


def measure(turns: int = 10, tokens: int = 30) -> dict[str, Result]:
    """The size of the page, and the median time until it is drawn."""
    from playwright.sync_api import sync_playwright

    begun = time.monotonic()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as started:
        path = base_page(Path(folder) / "page.html", tokens)
        megabytes = path.stat().st_size / 1e6
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        taken = []
        for _ in range(turns + 1):
            context = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True)
            page = context.new_page()
            page.goto(path.as_uri())
            page.wait_for_selector("body[data-ready]")
            taken.append(page.evaluate(DRAWN)["drawn"])
            heads = page.locator("#heads .thumb").count()
            context.close()
        browser.close()
    median = statistics.median(taken[1:])
    assert heads == 18 * 9, heads
    show(f"page of {tokens} + {tokens} tokens, 6 + 6 layers × 8 heads", [
        ("MB", "drawn after, ms, median", "least", "most"), (megabytes, median, min(taken[1:]), max(taken[1:])),
    ])  # fmt: skip
    print(f"  size: {'below' if megabytes < SIZE else 'NOT below'} {SIZE} MB")
    print(f"  time: {'below' if median < TIME else 'NOT below'} {TIME:.0f} ms")
    protocol = f"{tokens} + {tokens} tokens, 6 + 6 layers × 8 heads, from disk in Chromium, median of {turns} contexts"
    spent, signature = round(time.monotonic() - begun, 1), versions("mallang", "playwright")
    claims = (("size", "size, MB", megabytes, SIZE), ("time", "first view, ms", median, TIME))
    return {
        f"page-{name}": Result(
            system="page of inspect", metric=metric, value=round(value, 3),
            protocol=f"{protocol}; claimed: below {most:g}", seconds=spent, signature=signature,
        )
        for name, metric, value, most in claims
    }  # fmt: skip


def base_page(path: Path, tokens: int) -> Path:
    """The page of a sentence and an output of this many tokens."""
    from mallang.inspection.next_token import TEMPERATURES
    from mallang.inspection.page import write_page
    from mallang.inspection.shown_texts import Wanted, shown_text

    verbs, word = base_model(), "배"
    text = " ".join([word] * (tokens - 1))
    shown = shown_text(verbs, text, Wanted(target=text))
    assert {len(each["queries"]) for each in shown["maps"]} == {tokens}
    run = {
        "name": "transformer", "model": "transformer", "task": "translation", "curves": {}, "mixes": [],
        "positions": None, "parameters": sum(each.numel() for each in verbs.model.parameters()), "texts": [shown],
    }  # fmt: skip
    return write_page(path, {"temperatures": list(TEMPERATURES), "runs": [run]})


def base_model() -> Any:
    """A Transformer of the base shape that reads words of miniworld."""
    import torch

    from mallang.data.miniworld import EXAMPLES
    from mallang.decoding.contract import Config as Search
    from mallang.models import transformer
    from mallang.tasks import translation
    from mallang.text.tokenizer import Config, Tokenizer

    tokenizer = Tokenizer.train([*EXAMPLES, "배"], Config(unit="space", shared=True))
    torch.manual_seed(1)
    task = translation.Task(translation.Config(), {"source": tokenizer, "target": tokenizer})
    model = task.build(transformer, transformer.Config()).eval()
    return translation.Verbs(task, model, Search(), 100)
