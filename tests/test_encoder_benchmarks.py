"""The benchmarks of BERT: what each system does, without timing it."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # the benchmarks are not installed
from benchmarks import embedding_speed, encoder_entrants, encoder_speed, finetuning_speed
from benchmarks.contest import Outcome

pytest.importorskip("transformers")
TEXTS = ["영화가 좋다", "정말 재미없는 영화", "다시 보고 싶다", "별로", "배우가 좋다 정말", "시간이 아깝다"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A tiny model, and a corpus like NSMC with a text that is empty."""
    (tmp_path / "nsmc").mkdir()
    lines = ["id\tdocument\tlabel", *(f"{number}\t{text}\t{number % 2}" for number, text in enumerate([*TEXTS, " "]))]
    for split in ("train", "test"):
        (tmp_path / "nsmc" / f"ratings_{split}.txt").write_text("\n".join(lines) + "\n", "utf-8")
    monkeypatch.setenv("MALLANG_DATA", str(tmp_path))
    monkeypatch.setattr(encoder_entrants, "SHAPE", encoder_entrants.SHAPE | {
        "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24,
    })  # fmt: skip
    encoder_entrants.make_folder(tmp_path / "model", "ForSequenceClassification", TEXTS)
    return str(tmp_path / "model")


def test_all_read_the_same_texts_and_count_the_same_work(folder: str) -> None:
    assert encoder_entrants.nsmc("train", 9) == (TEXTS, [0, 1] * 3)
    options: dict[str, Any] = {"folder": folder, "sentences": 6, "device": "cpu", "threads": 1}
    training = {**options, "batch": 2, "updates": 3}
    turns = [encoder_entrants.our_training(**training), encoder_entrants.their_training(**training)]
    ours, theirs = (turn() for turn in turns)
    assert ours == theirs > 2 * 3 * 2, "three batches of two are all texts"
    for weights in ("float32", "int8"):
        assert encoder_entrants.our_classifier(**options, weights=weights)() == 6
    assert encoder_entrants.their_classifier(**options, batch=4)() == 6


def test_the_options_of_every_system_are_those_of_its_function() -> None:
    given = "folder", 5, "cpu", 1
    entrants = [
        *finetuning_speed.entrants_of("folder", 5, 2, 2, "cpu", 1), *encoder_speed.entrants_of(*given),
        *embedding_speed.entrants_of(*given),
    ]  # fmt: skip
    assert len(entrants) == 2 + 5 + 6
    for entrant in entrants:
        function = entrant.place.partition(":")[2]
        inspect.signature(getattr(encoder_entrants, function)).bind(**entrant.options)
    assert not [one.label for one in encoder_speed.entrants_of("folder", 5, "cuda", 1) if "int8" in one.label]


def test_the_size_of_a_batch_stands_in_the_names_of_results() -> None:
    outcomes = {finetuning_speed.PEER: Outcome(10.0, 2**20, ""), "mallang": Outcome(25.0, 2**21, "")}
    found = finetuning_speed.results_of(outcomes, "cpu", 64, "64 reviews a batch", 0.0)
    assert {*found} == {"finetuning-cpu-64-transformers-Trainer", "finetuning-cpu-64-mallang"}
    assert "2.5 times transformers Trainer" in found["finetuning-cpu-64-mallang"].signature


def test_the_ratio_is_to_the_fastest_peer() -> None:
    slow, fast, _ = encoder_speed.PEERS
    outcomes = {slow: Outcome(5.0, 2**20, ""), fast: Outcome(10.0, 2**20, ""), "mallang": Outcome(25.0, 2**21, "")}
    assert encoder_speed.rows_of(outcomes)[-1] == ("mallang", 25.0, 2.0, 2.5)
    assert encoder_speed.rows_of({"mallang": Outcome(25.0, 2**21, "")})[0][3] == "?"
    peers = {f"sentence-transformers, torch, batches of {size}": Outcome(size, 2**20, "") for size in (32.0, 128.0)}
    found = embedding_speed.rows_of({**peers, "mallang": Outcome(256.0, 2**20, "")})
    assert found[-1] == ("mallang", 256.0, 1.0, 2.0)
