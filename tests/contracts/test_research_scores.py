"""Systems of research reach a stated score on miniworld within about a minute; their recipes say what they reach."""

from pathlib import Path

import pytest

from mallang import load, recipe
from mallang.data.corpus import open_corpus
from mallang.evaluation.quality import MEASURES
from mallang.find import find
from mallang.tasks.word_by_word import find_lexicon
from mallang.training.record import read as read_record
from mallang.training.train import Options, train

pytestmark = pytest.mark.slow


def trained(folder, name, *changes):
    """The run of a recipe, and the rows of its test split."""
    built = recipe.read(name, changes).build()
    run = train(built, Options(folder=folder, device="cpu", quiet=True))
    columns = find("tasks", built.task_name).Task.columns
    return run, list(open_corpus(run.data(), columns).split("test"))


def scores_of(run, rows):
    """All scores by name, those of single labels left out."""
    found: dict[str, float] = {}
    for score in load(run.folder, device="cpu").evaluate(rows)[0]:
        found.setdefault(score.name, score.value)
    return found


@pytest.mark.parametrize("name", ["deep-srl-miniworld", "dependency-srl-miniworld"])
def test_roles_are_labeled(name: str, tmp_path: Path) -> None:
    run, rows = trained(tmp_path / "run", name)
    assert scores_of(run, rows[:300])["role F1"] >= 97


@pytest.mark.parametrize("name", ["lample-miniworld", "artetxe-miniworld"])
def test_translation_without_pairs_is_far_beyond_words(name: str, tmp_path: Path) -> None:
    run, rows = trained(tmp_path / "run", name)
    lexicon, model = find_lexicon("miniworld-dictionary", [], 1, 1), load(run.folder, device="cpu")
    for side in (0, 1):
        gold = [row[1 - side] for row in rows[:300]]
        texts = [row[side] for row in rows[:300]]
        by_words = MEASURES["bleu"]([lexicon.translate(text, side) for text in texts], gold).score().value
        outputs = [str(each) for each in model.translate(texts, reverse=bool(side), method="greedy")]
        assert MEASURES["bleu"](outputs, gold).score().value > by_words + 5


def test_entities_of_names_are_predicted(tmp_path: Path) -> None:
    graph, _ = trained(tmp_path / "graph", "transe-miniworld")
    run, _ = trained(tmp_path / "run", "ernie-dea-miniworld-links", f"given.entities={graph.folder}")
    validations = [line for line in read_record(run.folder / "metrics.jsonl") if line["kind"] == "valid"]
    assert max(line["dea_accuracy"] for line in validations) >= 65
