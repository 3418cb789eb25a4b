"""The benchmark of bags of words: what it runs and reports, without timing it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # the benchmarks are not installed
from benchmarks import bag_entrants, bag_speed
from benchmarks.bag_speed import MALLANG, Program

ROWS = [f"{'좋다 👍' if k % 2 else '싫다 👎'} {k % 7}\t{'positive' if k % 2 else 'negative'}\n" for k in range(40)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for split in ("train", "valid"):
        (tmp_path / f"{split}.tsv").write_text("".join(ROWS), "utf-8")
    return tmp_path


@pytest.mark.parametrize("name", bag_speed.PEERS)
def test_the_classifiers_of_scikit_learn_learn(name: str, folder: Path) -> None:
    found = bag_entrants.scikit_learn(name, folder / "train.tsv", folder / "valid.tsv")
    assert found["accuracy"] == 100.0 and found["options"].items() >= bag_entrants.SETTINGS[name][0].items()


def test_our_programs_train_and_classify_every_line(folder: Path) -> None:
    training = bag_speed.training_programs(folder)[0]
    training.run()
    peers = [Program(label, (), printed=json.dumps({"accuracy": 90.0})) for label in bag_speed.PEERS.values()]
    assert bag_speed.accuracies([training, *peers], folder) == {
        MALLANG: 100.0,
        **dict.fromkeys(bag_speed.PEERS.values(), 90.0),
    }
    bag_speed.write_lines(folder / "lines.txt", ["좋다 👍", "", "싫다 👎"], 7)
    (classifying,) = bag_speed.classifying_programs(folder, {})
    classifying.run()
    labels = classifying.printed.splitlines()
    assert len(labels) == 7 and labels[0] == labels[3] == "positive" and labels[2] == "negative"
    found = bag_speed.classifying_results([classifying], 7, {}, rounds=1)
    assert found["classify-7-mallang"].value == pytest.approx(7 / classifying.median, abs=1)


def test_ratios_are_to_the_fastest_peer() -> None:
    programs = [
        Program(label, (), seconds=seconds, peak=2**20)
        for label, seconds in ((MALLANG, [2.0, 4.0, 3.0]), ("LinearSVC", [30.0]), ("SGDClassifier", [6.0]))
    ]
    found = bag_speed.training_results(programs, {program.label: 87.5 for program in programs}, rounds=3)
    assert found["bag-training-mallang"].value == 3.0
    assert "accuracy 87.50 on valid, peak 1 MiB, 2.0 times" in str(found["bag-training-mallang"].signature)
    assert "0.2 times" in str(found["bag-training-linearsvc"].signature)


def test_a_turn_finds_nothing_of_the_turn_before(tmp_path: Path) -> None:
    made = tmp_path / "cache"
    program = Program("maker", [sys.executable, "-c", f"import os; os.mkdir({str(made)!r})"], removed=[made])
    bag_speed.take_turns([program], rounds=2)
    assert made.is_dir() and len(program.seconds) == 2 and program.peak > 0


def test_a_program_that_fails_or_loses_lines_is_no_result() -> None:
    with pytest.raises(RuntimeError, match="code 3: why"):
        Program("broken", [sys.executable, "-c", "import sys; sys.stderr.write('why'); sys.exit(3)"]).run()
    with pytest.raises(RuntimeError, match="printed 1 labels for 2 lines"):
        bag_speed.classifying_results([Program(MALLANG, (), seconds=[1.0], printed="a\n")], 2, {}, rounds=1)


def test_files_are_read_in_chunks(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("a\n\nb c\n\x85d\n", "utf-8")
    assert list(bag_entrants.chunks(tmp_path / "lines.txt", 3)) == [["a", "", "b c"], ["\x85d"]]
