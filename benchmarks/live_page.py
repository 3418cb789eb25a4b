"""A live page gives the outputs of the model with the same int8 weights, for 500 of 500 test sentences, and is small.

The page of `mallang inspect --live` runs in node over sources of miniworld's test split (prompts for a language model:
the first half of a sentence's words). Its outputs are compared with greedy search of the toolkit by the weights that
the page holds, and by those of float32. In Chromium, if playwright is there, a sentence is edited: how long until the
page is drawn again. An existing run in runs/ is used; a missing one is trained first.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.report import Result, show, versions

RECIPES = (
    "transformer-miniworld", "convs2s-miniworld", "bahdanau-miniworld", "luong-miniworld", "sutskever-miniworld",
    "cho-miniworld", "bahdanau-miniworld-ko-ko-tree", "transformer-miniworld-en-en-tree-words", "gpt-miniworld",
    "modern-gpt-miniworld", "rnn-lm-miniworld", "char-aware-miniworld", "conv-miniworld", "nplm-miniworld",
    "ngram-miniworld",
)  # fmt: skip
SCRIPT = Path(__file__).parents[1] / "tests" / "inspection" / "live.js"
EDITS = """async text => {
  const field = document.getElementById("text"), begun = performance.now();
  field.value = text;
  field.dispatchEvent(new Event("input", { bubbles: true }));
  document.body.offsetHeight;  // all is laid out
  const taken = performance.now() - begun;
  await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
  return taken;
}"""


def measure(sentences: int = 500) -> dict[str, Result]:
    """Outputs, size and time of the page of each run."""
    rows: list[tuple[object, ...]] = [
        ("run", "equal outputs", "equal to float32", "largest |Δ score|", "MB", "ms an output in node", "ms an edit")
    ]
    found = {}
    for recipe in RECIPES:
        begun = time.monotonic()
        if not (Path("runs") / recipe / "run.json").exists():
            subprocess.run([sys.executable, "-m", "mallang", "train", recipe, "--quiet", "--device", "cpu"], check=True)
        with tempfile.TemporaryDirectory() as folder:
            each = one_run(recipe, sentences, Path(folder) / "live.html")
        rows.append((recipe, *each.values()))
        protocol = (
            f"greedy, {sentences} test inputs: the page in node against the toolkit with the page's int8 weights; "
            f"equal to float32: {each['float32']}; page {each['megabytes']:.2f} MB; {each['milliseconds']:.1f} ms an "
            f"output; edit to drawn page in Chromium, median: {each['edit']}"
        )
        found[f"live-page-{recipe}"] = Result(
            system="live page", recipe=recipe, metric="outputs equal to the toolkit's, of all", split="test",
            value=each["equal"] / sentences, protocol=protocol, seconds=round(time.monotonic() - begun, 1),
            signature=versions("mallang", "torch"),
        )  # fmt: skip
    show(f"live pages, {sentences} inputs", rows)
    return found


def one_run(recipe: str, sentences: int, path: Path) -> dict[str, Any]:
    """What the page of one run says and costs."""
    from mallang import load
    from mallang.data import miniworld
    from mallang.inspection.live import rounded, write_live_page

    verbs = load(f"runs/{recipe}", device="cpu")
    side = 1 if "-en-en-" in recipe else 0  # a parser reads English or Korean, and so do models that translate
    sources = [row[side] for row in miniworld.rows("test")[:sentences]]
    is_writer = not verbs.model.reads_source
    texts = [" ".join(text.split()[: max(1, len(text.split()) // 2)]) for text in sources] if is_writer else sources
    written = write_live_page(path, verbs, recipe, texts[:3])
    exact = outputs(verbs, texts)
    rounded(verbs.model)
    ours = outputs(verbs, texts)
    begun = time.monotonic()
    asked = json.dumps([[text, {}] for text in texts])
    ended = subprocess.run(["node", str(SCRIPT), str(path)], input=asked, text=True, capture_output=True, check=True)
    spent = time.monotonic() - begun
    page = json.loads(ended.stdout)
    vocabulary = verbs.model.vocabulary
    said = [tuple(vocabulary.tokens[id] for id in each["ids"] if id != vocabulary.eos) for each in page]
    assert len(said) == len(ours) == sentences
    return {
        "equal": sum(one == other for one, (other, _) in zip(said, ours, strict=True)),
        "float32": sum(one == other for one, (other, _) in zip(said, exact, strict=True)),
        "score": max(abs(one["score"] - score) for one, (_, score) in zip(page, ours, strict=True)),
        "megabytes": written.bytes / 1e6,
        "milliseconds": 1000 * spent / sentences,
        "edit": edits(path, texts[:40]),
    }


def outputs(verbs: Any, texts: list[str]) -> list[tuple[tuple[str, ...], float]]:
    """The tokens that the toolkit says by greedy search, with their scores."""
    if verbs.model.reads_source:
        found = verbs.translate(texts, method="greedy")
    else:
        found = verbs.generate(texts, method="greedy")
    return [(each.tokens, each.score) for each in found]


def edits(path: Path, texts: list[str]) -> str:
    """The median time from an edit to the page that follows it, in a browser."""
    import shutil

    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return "not measured: needs playwright"
    if chromium is None:
        return "not measured: needs Chromium"
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(path.resolve().as_uri())
        page.wait_for_selector("body[data-warm]")
        taken = [page.evaluate(EDITS, text) for text in texts]
        browser.close()
    return f"{statistics.median(taken):.0f} ms (first {taken[0]:.0f}, largest {max(taken):.0f})"
