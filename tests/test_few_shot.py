"""Prompting and fine-tuning with the same examples: which rows both get, and the whole way with a tiny model."""

import argparse
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the benchmarks are not installed
from benchmarks import few_shot  # noqa: E402

from mallang.data.corpus import Config, open_corpus  # noqa: E402
from mallang.data.miniworld_prompts import NAMES, NONSENSE  # noqa: E402


def given(runs: Path, **changes: object) -> argparse.Namespace:
    return argparse.Namespace(**{"language": "ko", "runs": runs, "device": "cpu", "limit": 8, **changes})


def read(path: Path) -> list[tuple[str, str]]:
    return [tuple(line.split("\t")) for line in path.read_text("utf-8").splitlines()]


def rows_of(split: str) -> list[tuple[str, str]]:
    corpus = open_corpus(Config(corpus="miniworld-topics", columns=["ko", "ko-topic"]), ("text", "label"))
    return [(text, topic) for text, topic in corpus.split(split)]


@pytest.mark.parametrize("draw", few_shot.DRAWS)
def test_a_draw_has_equally_many_of_each_topic_and_one_label_for_each(draw: int, tmp_path: Path) -> None:
    few, many = (few_shot.write_draw(shots, draw, given(tmp_path)) for shots in (4, 8))
    assert read(few["test"]) == read(many["test"]) and read(few["train"]) == read(many["train"])[:4]
    topics = {text: topic for split in ("train", "test") for text, topic in rows_of(split)}
    named = {(topics[text], word) for text, word in [*read(many["train"]), *read(many["test"])]}
    assert {topic for topic, _ in named} == set(NAMES["ko"]) and len(named) == len(NAMES["ko"])
    assert {word for _, word in named} <= set(NONSENSE["ko"])
    for files, share in ((few, 1), (many, 2)):
        found = [topics[text] for text, _ in read(files["train"])]
        assert {topic: found.count(topic) for topic in found} == dict.fromkeys(NAMES["ko"], share)
    train, test = ({text for text, _ in rows_of(split)} for split in ("train", "test"))
    assert {text for text, _ in read(many["train"])} <= train
    assert [text for text, _ in read(many["test"])] == [text for text, _ in rows_of("test")] and not train & test


def test_draws_differ_in_their_examples_and_their_labels(tmp_path: Path) -> None:
    first, second = (read(few_shot.write_draw(8, draw, given(tmp_path))["train"]) for draw in (1, 2))
    assert {text for text, _ in first} != {text for text, _ in second}
    assert [label for _, label in first] != [label for _, label in second]


@pytest.mark.slow
def test_the_same_examples_are_prompted_with_and_fine_tuned_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import mallang
    from mallang.tasks.prompting import Example, Prompter, accuracy
    from mallang.tasks.templates import read_template

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(few_shot, "DRAWS", (1,))
    monkeypatch.setattr(few_shot, "SAME_SHOTS", (4,))
    monkeypatch.setattr(few_shot, "TUNED", (("1", "1e-9"), ("25", "1e-2")))
    arguments = given(Path("runs"))
    how = [few_shot.RECIPE, "data.source=ko", "train.steps=20", "model.dim=16", "model.layers=1"]
    run = few_shot.trained("tiny", [*how, "schedule.warmup=0"], arguments)
    found = few_shot.same_examples([run], arguments)
    assert {label: len(values) for label, values in found.items()} == {
        "same examples, 4 shots": 1, "same examples, fine-tuned on 4": 1,
    }  # fmt: skip
    shots = [Example(*row) for row in read(tmp_path / "runs" / "few-shot-ko-1-4-train.tsv")]
    lines = (tmp_path / "runs" / "few-shot-ko-1-4-train.txt").read_text("utf-8").splitlines()
    assert sorted(lines) == sorted(f"{text} → {label}" for text, label in shots)  # nothing but the examples
    rows = read(tmp_path / "runs" / "few-shot-ko-1-4-test.tsv")[:8]
    labels, template = sorted({label for _, label in rows}), read_template("{text} → {label}", " / ")
    tuned = min(
        (
            -few_shot.ask_file(one, {"valid": tmp_path / "runs" / "few-shot-ko-1-4-valid.tsv"}, "valid", 0, arguments),
            one,
        )
        for one in (Path("runs/tiny-4-of-1-1-1e-9"), Path("runs/tiny-4-of-1-25-1e-2"))
    )[1]
    for folder, used, kind in ((run, shots, "4 shots"), (tuned, [], "fine-tuned on 4")):
        prompter = Prompter(mallang.load(folder, device="cpu"), template, labels)
        answers = prompter.choose([text for text, _ in rows], used, len(used))
        assert found[f"same examples, {kind}"] == [pytest.approx(accuracy(answers, [b for _, b in rows]).value)]
