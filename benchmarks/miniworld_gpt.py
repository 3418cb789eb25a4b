"""A GPT after one minute on miniworld: how many of 200 Korean sentences are right, and how many are new.

Right is what miniworld's grammar checker accepts: words, particles, endings and honorifics, and who does what where.
New is what no line of the training text is. How the sentences are drawn is part of the protocol: a lower temperature
and a smaller share of the most probable tokens make fewer mistakes and say less that is new.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.miniworld import mallang
from benchmarks.report import Result
from mallang.data import miniworld

SAMPLES = 200
DRAWN = ("--method", "sampling", "--temperature", "0.3", "--top-p", "0.6", "--seed", "1")


def measure(recipe: str = "gpt-miniworld") -> dict[str, Result]:
    """Train with the real command, draw with the real command, and look at every sentence."""
    with tempfile.TemporaryDirectory() as home:
        mallang("train", recipe, "--quiet", home=home)
        said = mallang("generate", f"runs/{recipe}", "-n", str(SAMPLES), *DRAWN, "--json", home=home)
        run = json.loads((Path(home) / "runs" / recipe / "run.json").read_text("utf-8"))
    sentences = [each["output"] for line in said.splitlines() for each in json.loads(line)["nbest"]]
    if len(sentences) != SAMPLES:
        raise ValueError(f"{SAMPLES} samples were asked for, but {len(sentences)} came")
    known = set(miniworld.text("train", "ko"))
    wrong = [sentence for sentence in sentences if not miniworld.is_grammatical(sentence, "ko")]
    right, new = 100 * (1 - len(wrong) / SAMPLES), 100 * sum(one not in known for one in sentences) / SAMPLES
    print(f"  trained in {run['seconds']:.0f} s; {right:.1f} % right, {new:.1f} % new, {len(set(sentences))} different")
    for sentence in wrong:
        print(f"    not a sentence of miniworld: {sentence}")
    about: dict[str, Any] = {
        "system": recipe.removesuffix("-miniworld"), "recipe": recipe, "overrides": [], "corpus": "miniworld",
        "seed": run["seed"], "seconds": run["seconds"], "signature": " ".join(DRAWN),
    }  # fmt: skip
    protocol = f"{SAMPLES} Korean samples, {len(set(sentences))} of them different"
    return {
        f"{recipe}-grammatical": Result(**about, protocol=protocol, metric="grammatical, %", value=right),
        f"{recipe}-new": Result(**about, protocol=protocol, metric="not in training, %", value=new),
        f"{recipe}-seconds": Result(
            **about, protocol="one thread, claimed: below 60 s", metric="training, seconds", value=run["seconds"]
        ),
    }
