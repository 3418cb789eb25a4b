"""The benchmark of miniworld's GPT: what it counts, without training anything."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the benchmarks are not installed
from benchmarks import miniworld_gpt, miniworld_gpt_sweep  # noqa: E402

from mallang.data import miniworld  # noqa: E402

KNOWN, HELD_OUT = miniworld.text("train", "ko")[0], miniworld.text("test", "ko")[0]
WRONG = "민수는 민수는 물을."


def test_samples_are_checked_by_the_grammar_and_the_training_text() -> None:
    drawn = miniworld_gpt.checked([KNOWN, KNOWN, HELD_OUT, WRONG])
    assert drawn == miniworld_gpt.Drawn(grammatical=75.0, new=50.0, distinct=75.0)


def test_sampling_is_plain_and_every_seed_and_temperature_has_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    def mallang(*words: str, home: str) -> str:
        asked.append(words)
        if words[0] == "train":
            folder = Path(home) / "runs" / words[1]
            folder.mkdir(parents=True)
            (folder / "run.json").write_text(json.dumps({"seed": int(words[2][-1]), "seconds": 50.0}), "utf-8")
        return json.dumps({"nbest": [{"output": KNOWN}] * (miniworld_gpt.SAMPLES - 1) + [{"output": WRONG}]})

    monkeypatch.setattr(miniworld_gpt, "mallang", mallang)
    found = miniworld_gpt.measure(seeds=2)
    assert {words[words.index("--temperature") + 1] for words in asked if words[0] == "generate"} == {"1.0", "0.5"}
    assert not any(option in words for words in asked for option in ("--top-p", "--top-k"))
    one = found["gpt-miniworld-temperature0.5-grammatical-seed2"]
    assert (one.value, one.seed, one.metric) == (99.9, 2, "grammatical at temperature 0.5, %")
    assert found["gpt-miniworld-temperature1-distinct-seed1"].value == 0.2
    assert len(found) == 2 * (1 + 2 * 3)


def test_too_few_samples_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(miniworld_gpt, "mallang", lambda *words, home: json.dumps({"nbest": [{"output": "x"}]}))
    with pytest.raises(ValueError, match="but 1 came"):
        miniworld_gpt.draw("runs/x", "1.0", seed=1, home=".")


def test_trials_were_judged_on_dev_and_the_recipe_is_one_of_them() -> None:
    trials = [json.loads(line) for line in miniworld_gpt_sweep.TRIALS.read_text("utf-8").splitlines()]
    assert miniworld_gpt_sweep.DEV_SEED != miniworld_gpt.SEED
    assert all(0 < trial["dev"]["grammatical"] < 100 and trial["valid_bits_per_byte"] > 0 for trial in trials)
