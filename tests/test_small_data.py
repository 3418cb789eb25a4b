"""The sweep on small files: what is drawn, what was kept, and what a page says of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from mallang import recipe as recipes
from mallang.renamed import KEYS

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the benchmarks are not installed
from benchmarks import small_data, small_data_sweep  # noqa: E402

PAGE = (ROOT / "docs" / "how-to" / "small-data.md").read_text("utf-8")


def kept(size: int, trial: int) -> dict[str, object]:
    found: dict[str, object] = json.loads((ROOT / f"results/small-data-{size}-trial{trial:02}.json").read_text("utf-8"))
    return found


def test_every_drawn_configuration_can_be_trained_and_no_two_are_alike() -> None:
    drawn = [small_data_sweep.drawn(trial) for trial in range(1, 21)]
    assert len(set(map(tuple, drawn))) == 20
    for overrides in drawn:
        recipes.read("transformer", overrides).build()


def today(override: str) -> str:
    """An override of a kept trial, with the key that it has today."""
    dotted, _, value = override.partition("=")
    section, _, key = dotted.partition(".")
    return f"{section}.{KEYS.get(dotted, key)}={value}"


@pytest.mark.parametrize("size", small_data_sweep.SIZES)
def test_all_trials_are_kept_as_they_were_drawn_and_the_page_names_the_best(size: int) -> None:
    trials = [kept(size, trial) for trial in range(1, 21)]
    for number, trial in enumerate(trials, 1):
        overrides = [today(override) for override in trial["overrides"]]  # type: ignore[attr-defined]
        assert overrides == small_data_sweep.drawn(number)[: len(overrides)]
    best = max(float(str(trial["value"])) for trial in trials)
    assert small_data.best_trial(size) == best
    assert any(line.startswith(f"| {size:,} |") and f" {best} |" in line for line in PAGE.splitlines())


def test_trials_in_a_file_become_results_and_are_not_run_again(tmp_path: Path) -> None:
    about = {"commit": "c", "hardware": "h", "signature": "s", "seconds": 1.0, "overrides": ["a=1"]}
    path = tmp_path / "sweep.jsonl"
    lines = [{"pairs": size, "trial": 1, "bleu": 3.5, **about} for size in small_data_sweep.SIZES]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    merged = small_data_sweep.measure(merge=str(path))
    assert {name: result.value for name, result in merged.items()} == {
        "small-data-500-trial01": 3.5, "small-data-5000-trial01": 3.5,
    }  # fmt: skip
    assert small_data_sweep.measure(trials=1, out=str(path)) == merged


@pytest.mark.parametrize("size", small_data_sweep.SIZES)
def test_the_defaults_reach_nine_tenths_of_the_best_and_the_page_says_how_much(size: int) -> None:
    paths = {name: ROOT / f"results/small-data-{size}-defaults-{name}.json" for name in ("valid", "test2016", "share")}
    if not paths["share"].exists():
        pytest.skip("`python -m benchmarks small_data --write` has not been run yet")
    values = {name: json.loads(path.read_text("utf-8"))["value"] for name, path in paths.items()}
    assert values["share"] >= 0.9 and values["share"] == pytest.approx(
        values["valid"] / small_data.best_trial(size),
        abs=2e-3,  # values of three digits
    )
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| {size:,} |"))
    assert [cell.strip() for cell in row.strip("|").split("|")][1:] == [
        str(values["valid"]), str(small_data.best_trial(size)), str(values["test2016"]),
    ]  # fmt: skip


def test_results_say_on_what_they_were_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    score = SimpleNamespace(value=20.0)
    monkeypatch.setattr(small_data, "trained", lambda *given: {"seconds": 1.0, "CPU seconds": 2.0})
    monkeypatch.setattr(small_data, "loaded", lambda *given: None)
    monkeypatch.setattr(small_data, "pairs", lambda split: [])
    monkeypatch.setattr(small_data, "bleu", lambda *given: score)
    for given, said in (({}, "2 threads"), ({"threads": 4}, "4 threads"), ({"device": "cuda"}, "cuda and 2 threads")):
        found = small_data.measure("500", **given)  # type: ignore[arg-type]
        assert found and all(f", {said} of a CPU;" in result.protocol for result in found.values())
    found = small_data.measure("500", seed=2)
    assert found["small-data-500-defaults-test2016-seed2"].seed == 2
