"""Every task that labels or rates texts, words or pairs, with every model that can do it, learns miniworld in seconds.

Each cell of the grid trains a model in about its tiny size with the real training loop, and on held-out rows its micro
F1, or Spearman's correlation, must exceed that of the best constant prediction by MARGIN points. Models are found by
their protocols and tasks by their columns, so that a new one is in the grid without being named here; what cannot learn
a task is named in REFUSED with its message. One model per job is trained by `make test`, all by `make test-all`, all on
a GPU by `make test-gpu`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import torch

from contracts.tiny_models import CLASSES, CLASSIFIERS, ENCODERS, FITTED, NAMES, reads_documents, task_of
from mallang import load, recipe
from mallang.data import corpus as corpora
from mallang.data.columns import NAMED, LabelSet
from mallang.errors import UserError
from mallang.evaluation.spans import read_spans
from mallang.find import find, names
from mallang.models.contract import Tagger
from mallang.tasks import classification, mention_classification, pairs, similarity, tagging
from mallang.tasks.contract import Distilling, column_kinds
from mallang.text.added_words import with_special_tokens
from mallang.training.train import Options, train

MARGIN = 15.0
"""Points of micro F1, or of Spearman's correlation, above the best constant prediction; a job may have its own."""
SPLITS = {"train": 3000, "valid": 50, "test": 300}
"""Rows that are read; the one validation, at the end, chooses nothing."""
LEARNING = ("train.steps=400", "train.validate_every=400", "train.batch_sentences=32", "train.workers=0",
            "optimizer.learning_rate=0.01", "schedule.name=constant")  # fmt: skip
CHANGES = {
    "autoencoder": ("model.dim=8",),  # its tiny code of two numbers cannot keep eleven topics apart
    **dict.fromkeys(  # norms after the sublayers bear no more without a warm-up
        ("albert", "bert", "distilbert", "electra"), ("optimizer.learning_rate=0.001",)
    ),
    "char_cnn": ("text.unit=char",),
    "ernie": (
        "optimizer.learning_rate=0.001",
        "model.dim=32",
        "model.heads=2",
    ),  # as BERT's; its tiny size is too small
    "grnn": ("model.dim=24",),  # a last state of twelve numbers learns to keep the first words only after LEARNING
    "paragraph_vectors": ("model.dim=100", "model.epochs=10", "model.block=256", "model.learning_rate=0.1"),
    "rnn_lm": ("model.layers=1",),  # as does one of two layers
}
"""What a model needs besides, or in place of its tiny size."""
TAGGERS = [name for name in NAMES if issubclass(find("models", name).Model, Tagger)]


@dataclass(frozen=True)
class Job:
    """A task on columns of miniworld; its labels, tags or numbers are the last one."""

    task: str
    columns: tuple[str, ...]
    quick: str
    """The model that `make test` trains."""
    values: tuple[str, ...] = ()
    """Recipe values besides the name of the task."""
    by_spans: bool = False
    """Tags spell spans, and these are scored."""
    margin: float = MARGIN
    corpus: str = "miniworld"
    in_pairs: bool = False
    """Each text has the next row's text beside it, in the other language, and the label of that row."""

    @property
    def models(self) -> list[str]:
        """All models whose protocols the task accepts."""
        others = {"classification": CLASSIFIERS, "pairs": CLASSIFIERS, "tagging": TAGGERS}
        return sorted({*ENCODERS, *others.get(self.task, ())})

    @property
    def roles(self) -> tuple[str, ...]:
        """The columns of the task, by the names that they have in files here."""
        return find("tasks", self.task).Task.columns if self.task in (*PAIRED, *LINKED) else ("text", "label")


PAIRED = ("pairs", "similarity")
"""Tasks that read two texts."""
LINKED = ("mention_classification",)
"""Tasks that read mentions and entity links beside a text."""


JOBS = {
    "sentiment": Job("classification", ("ko", "sentiment"), "cnn"),
    "topics": Job("classification", ("en", "topics"), "bag_of_means", ("task.kind=multi",)),
    "rating": Job("classification", ("ko", "rating"), "rnn_classifier", ("task.kind=ordinal",)),
    "parts of speech": Job("tagging", ("ko-tokens", "ko-pos"), "rnn_tagger", ("task.head=softmax",)),
    "entities": Job("tagging", ("en-tokens", "en-ner"), "lstm_crf", ("task.head=crf",), by_spans=True),
    "second sentiment": Job("pairs", ("en", "ko", "sentiment"), "cnn", margin=10.0, in_pairs=True),
    "equal parts": Job(
        "similarity",
        ("ko-sentence1", "ko-sentence2", "score"),
        "bag_of_means",
        ("task.kind=bi",),
        corpus="miniworld-similarity",
    ),
    "types of mentions": Job(
        "mention_classification",
        ("en", "en-mention", "en-links", "types"),
        "ernie",
        ("task.kind=multi", "task.read=text"),
        margin=5.0,
        corpus="miniworld-links",
    ),
}
REFUSED = {
    **{
        ("rating", model): f"task.kind=ordinal needs a head with ordered thresholds, and {model} has none"
        for model in ("bag_of_words", "paragraph_vectors")
    },
    **{
        (job, model): f"{model} has no vector for a single word, so it cannot tag words"
        for job in ("parts of speech", "entities")
        for model in ("autoencoder", "char_cnn", "kagnet")
    },
    **{
        ("equal parts", model): f"{model} reads documents in sentences, so a text alone has no vector of its own"
        for model in ("grnn", "han")
    },
    **{
        ("types of mentions", model): f"{model} reads documents in sentences, and no mention in one"
        for model in ("grnn", "han")
    },
}
"""The cells that are refused, each with its message."""
CELLS = [(job, model) for job in JOBS for model in JOBS[job].models if (job, model) not in REFUSED]


@cache
def rows_of(job: str, split: str) -> list[tuple[str, ...]]:
    """The first rows of a split."""
    columns = JOBS[job].columns
    opened = corpora.open_corpus(corpora.Config(corpus=JOBS[job].corpus, columns=list(columns)), columns)
    rows = [row for row, _ in zip(opened.split(split), range(SPLITS[split]), strict=False)]
    if JOBS[job].in_pairs:
        return [(first[0], *second[1:]) for first, second in pairwise(rows)]
    return rows


def files_of(job: str, folder: Path) -> list[str]:
    """Recipe values that name files with the rows of a job; words, tags and several labels are lists there."""
    roles = JOBS[job].roles
    found = [f"data.columns={json.dumps(roles)}"]
    for split in SPLITS:
        file = folder / f"{job.replace(' ', '-')}.{split}.jsonl"
        if not file.exists():
            cells = [[cell.split("\t") if "\t" in cell else cell for cell in row] for row in rows_of(job, split)]
            lines = [json.dumps(dict(zip(roles, row, strict=True))) for row in cells]
            file.write_text("\n".join(lines), encoding="utf-8")
        found.append(f"data.{split}={file}")
    return found


def values_of(job: str, model: str) -> list[str]:
    """The recipe values of a cell, data apart; no dropout, which delays learning."""
    found = [f"task.name={JOBS[job].task}", *JOBS[job].values, "model.size=tiny", "train.threads=1"]
    if JOBS[job].task != "tagging":
        found += ["text.unit=word", "text.vocabulary=2000"]
    if JOBS[job].task == "classification":
        found += [f"task.documents={str(reads_documents(model)).lower()}"]
    if model not in FITTED:
        names = [each.name for each in fields(find("models", model).Config)]
        found += [*LEARNING, *(f"model.{name}=0.0" for name in names if name.endswith("dropout"))]
    return [*found, *CHANGES.get(model, ())]


def train_cell(job: str, model: str, data: Sequence[str], folder: Path, device: str) -> Any:
    """The trained model of a cell."""
    built = recipe.read(model, [*values_of(job, model), *data]).build()
    return load(train(built, Options(folder=folder / "run", device=device, quiet=True)).folder, device=device)


def decisions(job: str, cells: Sequence[str]) -> list[set[Hashable]]:
    """What the cells of a column say: the labels of each text, the spans of each sentence, or the tag of each word."""
    if JOBS[job].task in ("classification", "pairs", *LINKED):
        return [set(cell.replace("|", "\t").split("\t")) - {""} for cell in cells]
    if JOBS[job].by_spans:
        return [set(read_spans(cell.split())) for cell in cells]
    return [{tag} for cell in cells for tag in cell.split()]


def micro_f1(found: Sequence[set[Hashable]], gold: Sequence[set[Hashable]]) -> float:
    """In percent; where every decision is for exactly one label it is the accuracy."""
    both = sum(len(ours & theirs) for ours, theirs in zip(found, gold, strict=True))
    return 200 * both / (sum(map(len, found)) + sum(map(len, gold)))


@cache
def constant(job: str) -> float:
    """The micro F1 of the best constant prediction: the most frequent labels, or the same tag for every word."""
    if JOBS[job].task == "similarity":
        return 0.0  # a constant has no order
    known, gold = ([row[-1] for row in rows_of(job, split)] for split in ("train", "test"))
    often = [label for label, _ in Counter(label for cell in known for label in cell.split("\t")).most_common()]
    if JOBS[job].task == "tagging":
        guesses = [["\t".join([tag] * len(cell.split("\t"))) for cell in gold] for tag in often]
    else:
        most = len(often) if "task.kind=multi" in JOBS[job].values else 1
        guesses = [["\t".join(often[:size])] * len(gold) for size in range(1, most + 1)]
    return max(micro_f1(decisions(job, guess), decisions(job, gold)) for guess in guesses)


def check(job: str, model: str, data: Path, folder: Path, device: str) -> None:
    """Train a cell and compare what it predicts with the best constant prediction."""
    rows = rows_of(job, "test")
    scores, predicted = train_cell(job, model, files_of(job, data), folder, device).evaluate(rows)
    if JOBS[job].task == "similarity":
        found = {score.name: score.value for score in scores}["Spearman"]
    else:
        found = micro_f1(decisions(job, predicted), decisions(job, [row[-1] for row in rows]))
    assert found > constant(job) + JOBS[job].margin, (
        f"{found:.1f} against {constant(job):.1f} of the best constant prediction"
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the rows of every job are kept."""
    return tmp_path_factory.mktemp("grid")


@pytest.mark.parametrize(
    ("job", "model"),
    [pytest.param(job, model, marks=[] if JOBS[job].quick == model else pytest.mark.slow) for job, model in CELLS],
)
def test_every_model_learns_every_task(job: str, model: str, data: Path, tmp_path: Path) -> None:
    check(job, model, data, tmp_path, "cpu")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("job", "model"), CELLS)
def test_every_model_learns_every_task_on_a_gpu(job: str, model: str, data: Path, tmp_path: Path) -> None:
    check(job, model, data, tmp_path, "cuda")


@pytest.mark.parametrize(("job", "model"), REFUSED)
def test_what_cannot_learn_a_task_says_why(job: str, model: str, data: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=REFUSED[job, model]) as caught:
        train_cell(job, model, files_of(job, data), tmp_path, "cpu")
    assert caught.value.todo and not (tmp_path / "run" / "model.safetensors").exists()


def both(name: str) -> dict[str, Any]:
    """The tokenizer of both texts of a pair."""
    return dict.fromkeys(("first", "second"), task_of(name).text)


def marked(name: str) -> mention_classification.Task:
    """The task of types of mentions in texts alone."""
    tokenizer = with_special_tokens(task_of(name).text, ("entity",))
    config = mention_classification.Config(read="text")
    return mention_classification.Task(config, {"text": tokenizer}, {"label": LabelSet(CLASSES)})


def test_models_that_encode_no_text_are_refused() -> None:
    """They are all that is not in the grid."""
    tags = LabelSet.learn(["O\tI-PER"], "tags", "tags")
    tasks = {
        "classification": lambda name: task_of(name),
        "tagging": lambda name: tagging.Task(tagging.Config(), {"words": task_of(name).text}, {"tags": tags}),
        "pairs": lambda name: pairs.Task(pairs.Config(), both(name), {"label": LabelSet(CLASSES)}),
        "similarity": lambda name: similarity.Task(similarity.Config(), both(name), {}),
        "mention_classification": marked,
    }
    left = [(job.task, name) for job in JOBS.values() for name in NAMES if name not in job.models]
    assert {("classification", "modern_gpt"), ("tagging", "ngram"), ("tagging", "bag_of_words")} <= set(left)
    for task, name in set(left):
        module = find("models", name)
        with pytest.raises(UserError, match=f"{name} encodes no text") as caught:
            tasks[task](name).build(module, module.Config(**module.SIZES["tiny"]))
        assert "such as model.name=" in (caught.value.todo or "")


def test_every_task_with_labels_and_every_kind_of_it_has_a_job() -> None:
    modules = {name: find("tasks", name) for name in names("tasks")}
    tasks = {name: module for name, module in modules.items() if hasattr(module, "Task")}
    kinds = {name: column_kinds(module.Task, module.Config()).values() for name, module in tasks.items()}
    learned = {name for name, found in kinds.items() if set(found) & {*NAMED, "number"} and "name" not in found}
    learned -= {name for name in learned if issubclass(tasks[name].Task, Distilling)}  # they have a teacher
    learned.remove("semantic_roles")  # its models read a predicate beside the words; test_semantic_roles.py trains them
    assert learned == {job.task for job in JOBS.values()}
    named = {value.removeprefix("task.kind=") for job in JOBS.values() for value in job.values}
    assert set(get_args(get_type_hints(classification.Config)["kind"])) - {"single"} <= named
    assert all((name, job.quick) in CELLS for name, job in JOBS.items())
