"""A GPT after one minute on miniworld: how many of 1,000 Korean samples are grammatical, and how many are new.

Grammatical is what miniworld's grammar checker accepts: words, particles, endings and honorifics, and who does what
where. New is what no line of the training text is. Sampling is plain, without top-k or top-p: at temperature 1, where
every mistake of the model shows, and at 0.5, where a model makes fewer mistakes and says less that is new.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.miniworld import mallang
from benchmarks.report import Result
from mallang.data import miniworld

SAMPLES = 1000
TEMPERATURES = ("1.0", "0.5")
SEED = 1
"""The seed of sampling."""


@dataclass(frozen=True)
class Drawn:
    """Samples of one run at one temperature, in percent of all samples."""

    grammatical: float
    new: float
    """Not a line of the training text."""
    distinct: float
    """How many different samples there are."""


def measure(recipe: str = "gpt-miniworld", seeds: int = 3) -> dict[str, Result]:
    """Train with the real command, once per seed, sample with the real command, and check every sentence."""
    results = {}
    for seed in range(1, seeds + 1):
        with tempfile.TemporaryDirectory() as home:
            mallang("train", recipe, f"seed={seed}", "--quiet", home=home)
            run = json.loads((Path(home) / "runs" / recipe / "run.json").read_text("utf-8"))
            drawn = {each: draw(f"runs/{recipe}", each, seed=SEED, home=home) for each in TEMPERATURES}
        print(f"  seed {seed}: trained in {run['seconds']:.0f} s; " + "; ".join(map(in_words, drawn, drawn.values())))
        results |= results_of(recipe, run, drawn)
    return results


def draw(run: str, temperature: str, *, seed: int, home: str) -> Drawn:
    """Sample from a run with the real command."""
    options = ("--method", "sampling", "--temperature", temperature, "--seed", str(seed))
    said = mallang("generate", run, "-n", str(SAMPLES), *options, "--json", home=home)
    sentences = [each["output"] for line in said.splitlines() for each in json.loads(line)["nbest"]]
    if len(sentences) != SAMPLES:
        raise ValueError(f"{SAMPLES} samples were asked for, but {len(sentences)} came")
    return checked(sentences)


def checked(sentences: Sequence[str]) -> Drawn:
    """The shares of these sentences that are grammatical, and that are new."""

    def share(count: int) -> float:
        return round(100 * count / len(sentences), 2)

    return Drawn(
        grammatical=share(sum(miniworld.is_grammatical(each, "ko") for each in sentences)),
        new=share(sum(each not in training_text() for each in sentences)),
        distinct=share(len(set(sentences))),
    )


@cache
def training_text() -> frozenset[str]:
    """Every line the model was trained on."""
    return frozenset(miniworld.text("train", "ko"))


def in_words(temperature: str, drawn: Drawn) -> str:
    """Samples in one phrase."""
    shares = f"{drawn.grammatical:.1f} % grammatical, {drawn.new:.1f} % new, {drawn.distinct:.1f} % distinct"
    return f"temperature {temperature}: {shares}"


def results_of(recipe: str, run: dict[str, Any], drawn: dict[str, Drawn]) -> dict[str, Result]:
    """One seed's values by file name."""
    about: dict[str, Any] = {
        "system": recipe.removesuffix("-miniworld"), "recipe": recipe, "overrides": [], "corpus": "miniworld",
        "seed": run["seed"], "seconds": run["seconds"],
    }  # fmt: skip
    seed = f"seed{run['seed']}"
    results = {
        f"{recipe}-seconds-{seed}": Result(
            **about, protocol="one thread, claimed: below 60 s", metric="training, seconds", value=run["seconds"]
        )
    }
    for text, one in drawn.items():
        temperature = f"{float(text):g}"
        results |= {
            f"{recipe}-temperature{temperature}-{name}-{seed}": Result(
                **about,
                protocol=f"{SAMPLES:,} Korean samples, no top-k, no top-p",
                metric=f"{words} at temperature {temperature}, %",
                value=getattr(one, name),
                signature=f"samples:{SAMPLES}|temperature:{temperature}|top-k:0|top-p:1|sampling-seed:{SEED}",
            )
            for name, words in (("grammatical", "grammatical"), ("new", "not in training"), ("distinct", "distinct"))
        }
    return results
