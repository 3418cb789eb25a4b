"""Runs that give labels or tags side by side: the numbers are those of evaluate, tests are those of the right rows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import mallang
from mallang import recipe as recipes
from mallang.errors import UserError
from mallang.evaluation.classification import accuracy_statistics
from mallang.evaluation.correlation import correlations
from mallang.evaluation.significance import paired_bootstrap
from mallang.inspection import cost
from mallang.inspection.row_statistics import statistics_of
from mallang.training.train import Options, train

FILES = ("data.train=train.tsv", "data.valid=valid.tsv", "data.test=test.tsv", "text.unit=space")
QUICK = ("model.size=tiny", "train.workers=0", "train.batch_tokens=256")
WORDS = ["좋은", "나쁜", "긴", "짧은", "파란", "붉은", "큰", "작은"]


def write_rows(path: Path, rows: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    lines = []
    for _ in range(rows):
        words = [WORDS[number] for number in random.integers(0, len(WORDS), 5)]
        label = "good" if words.count("좋은") >= words.count("나쁜") else "bad"
        if random.random() < 0.2:
            label = "bad" if label == "good" else "good"
        lines.append(f"{' '.join(words)}\t{label}\n")
    path.write_text("".join(lines), "utf-8")


def make_run(name: str, model: str, *overrides: str) -> None:
    built = recipes.read(model, ["task.name=classification", *FILES, *overrides]).build()
    run = train(built, Options(folder=Path("runs") / name, quiet=True, device="cpu"))
    run.update(seconds=float(run.info["steps"] or 1))  # how fast this machine was does not matter


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MALLANG_CACHE", str(folder / "cache"))
        for name, rows, seed in (("train", 200, 1), ("valid", 20, 2), ("test", 60, 3)):
            write_rows(folder / f"{name}.tsv", rows, seed)
        make_run("bag", "bag_of_words")
        for seed in (1, 2):
            make_run(f"cnn-seed{seed}", "cnn", *QUICK, f"seed={seed}", "train.steps=4")
        make_run("longer", "cnn", *QUICK, "train.steps=12")
        yield folder


def test_the_numbers_are_those_of_evaluate_and_the_test_is_that_of_its_labels(home: Path) -> None:
    found = mallang.compare(["runs/bag", "runs/longer"], speed=0)
    rows = [tuple(line.split("\t")) for line in (home / "test.tsv").read_text("utf-8").splitlines()]
    outputs = {}
    for name in ("bag", "longer"):
        scores, outputs[name] = mallang.load(f"runs/{name}").evaluate(rows)
        system = next(each for each in found.systems if each.name == name)
        assert {score.name: score.value for score in scores} == {
            name: value.mean for name, value in system.scores.items()
        }
        assert system.parameters == json.loads((home / "runs" / name / "run.json").read_text("utf-8"))["parameters"]
    assert found.metric == "accuracy" and found.systems[0].name == found.baseline and found.rows == 60
    other = found.systems[1]
    golds = [label for _, label in rows]
    test = paired_bootstrap(outputs[other.name], outputs[found.baseline], golds, accuracy_statistics)
    assert other.difference is not None and other.difference.p_value == test.p_value
    assert other.error_reduction == pytest.approx(100 * (test.first - test.second) / (100 - test.second))


def test_seeds_are_one_system_and_unequal_budgets_are_noted() -> None:
    found = mallang.compare(["runs/cnn-seed1", "runs/cnn-seed2", "runs/longer"], speed=0)
    assert sorted(system.name for system in found.systems) == ["cnn (2 seeds)", "longer"]
    assert next(system for system in found.systems if len(system.runs) == 2).scores["accuracy"].deviation is not None
    (note,) = [note for note in found.notes if note.startswith("no common budget")]
    assert "4 to 12 updates" in note
    alike = mallang.compare(["runs/cnn-seed1", "runs/longer"], speed=0, metric="MACRO f1")
    assert alike.metric == "macro F1" and "accuracy" in alike.tables()[0].head


def test_costs_come_with_it_and_outputs_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cost, "BATCHES", 2)
    said: list[str] = []
    found = mallang.compare(["runs/bag", "runs/longer"], speed=5, say=said.append)
    assert all(system.sentences_per_second and system.seconds for system in found.systems), found
    assert [system.name for system in found.systems if system.flops] == ["longer"]
    assert found.tables()[1].head[-1] == "rows/s" and len(found.tables()) == 2 and len(found.tables()[1].lines[0]) == 6
    assert not any("scoring" in each for each in said)  # they were kept by the first comparison
    assert found.draw(tmp_path / "labels.svg").read_text("utf-8").count("<path") > 30
    told = found.to_json()
    assert [each["is_baseline"] for each in told["systems"]] == [True, False] and told["lengths"] == []
    assert len(found.to_csv().splitlines()) == 3 and found.to_markdown().startswith("**60 rows of test.tsv")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "bleu"}, "has no score 'bleu'; it has accuracy, "),
        ({"lengths": [5]}, "lengths has no effect on these runs"),
        ({"prompts": ["a"]}, "prompts has no effect on these runs; it is for language models"),
        ({"search": {"beam": 2}}, "search has no effect on these runs, which search for no output"),
    ],
)
def test_what_has_no_effect_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        mallang.compare(["runs/bag", "runs/longer"], speed=0, **options)


def test_statistics_of_rows_have_the_values_of_their_scores() -> None:
    random = np.random.default_rng(5)
    numbers, golds = random.normal(size=(2, 40)) + 3
    rows = [("a", "b", f"{gold:.6f}") for gold in golds]
    found = statistics_of("numbers", "Pearson", [f"{number:.6f}" for number in numbers], rows)
    assert found is not None and found.value == pytest.approx(100 * correlations(numbers, golds)["pearson"], abs=1e-3)
    taken = np.array([0, 3, 3, 9, 20])
    expected = 100 * np.corrcoef(numbers[taken], golds[taken])[0, 1]
    assert found.measure(found.table[taken].sum(axis=0)) == pytest.approx(expected, abs=1e-3)
    ranks = statistics_of("ranks", "MRR", ["1\t2", "4\t1"], [("a", "r", "b")] * 2)
    assert ranks is not None and ranks.value == pytest.approx(100 * (1 + 1 / 2 + 1 / 4 + 1) / 4)
    tags = [("a b c", "B-X I-X O"), ("d e", "O B-X")]
    spans = statistics_of("tags", "span F1", ["B-X I-X O", "O O"], tags)
    words = statistics_of("tags", "tag accuracy", ["B-X I-X O", "O O"], tags)
    assert spans is not None and spans.value == pytest.approx(200 / 3)
    assert words is not None and words.value == pytest.approx(80)
    choices = [("q", "one | two", "2"), ("q", "one | two", "1")]
    assert statistics_of("texts", "BLEU", ["a"], choices[:1]) is None
