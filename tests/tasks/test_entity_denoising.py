"""dEA: how often links are replaced, hidden and kept; its loss against loops; and runs on miniworld."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mallang import load, recipe
from mallang.data.batch import IGNORE, Shapes
from mallang.errors import UserError
from mallang.find import find
from mallang.models import transe
from mallang.runs.given import Given
from mallang.tasks.entity_denoising import Config, Task
from mallang.text.tokenizer import Config as TextConfig
from mallang.text.tokenizer import Tokenizer
from mallang.training.train import Options, train

TEXT = Tokenizer.train(
    [" ".join(f"w{number}" for number in range(30))], TextConfig(unit="space"), (), ("mask", "cls", "sep")
)
NAMES = [f"Q{number}" for number in range(1, 12)]
GRAPH = Tokenizer.train([" ".join(NAMES)], TextConfig(unit="space"))
IDS = GRAPH.vocabulary.ids


def graph() -> dict[str, Given]:
    torch.manual_seed(1)
    model = transe.TransE(transe.Config(dim=8, scale=1.0), GRAPH.vocabulary, relations=2).eval()
    return {"entities": Given("entities", Path("runs/graph"), model, GRAPH, "link_prediction", "sum")}


def task_of(**config: Any) -> Task:
    return Task(Config(length=32, **config), {"text": TEXT}, {}, graph())


def model_of(task: Task, **config: Any) -> Any:
    module = find("models", "ernie")
    torch.manual_seed(2)
    shape = {"max_length": 32, "pretraining_heads": "masked-lm", "predict_entities": True, "dropout": 0.0, **config}
    return task.build(module, module.Config(**{**module.SIZES["tiny"], **shape})).eval()


def passage(words: str, links: dict[int, str], task: Task) -> tuple[Any, ...]:
    """A passage whose tokens carry their entities."""
    ids = np.array(TEXT.encode_batch([words])[0], dtype=np.int64)
    for place, name in links.items():
        ids[place] += task.words * (IDS[name] + 1)
    return ids, np.zeros(0, dtype=np.int64), IGNORE


def some(task: Task) -> list[tuple[Any, ...]]:
    rows = [("w1 w2 w3 w4", {0: "Q1", 2: "Q2"}), ("w5 w6", {1: "Q1"}), ("w7 w8 w9", {})]
    return [(passage(words, links, task),) for words, links in rows]


def test_tokens_carry_their_entities_into_a_batch() -> None:
    task = task_of()
    batch = task.collate(some(task))
    assert batch.entities is not None and batch.entity_places is not None and batch.entity_labels is not None
    assert batch.distinct_entities is not None
    assert batch.tokens[0].tolist() == [
        TEXT.vocabulary.cls, *TEXT.encode_batch(["w1 w2 w3 w4"])[0], TEXT.vocabulary.sep
    ]  # fmt: skip
    assert batch.entities.tolist() == [[IDS["Q1"], IDS["Q2"]], [IDS["Q1"], -1], [-1, -1]]
    assert batch.entity_places.tolist() == [[1, 3], [2, -1], [-1, -1]]
    distinct = batch.distinct_entities.tolist()
    assert sorted(distinct) == sorted({IDS["Q1"], IDS["Q2"]})
    assert [distinct[label] if label != IGNORE else None for label in batch.entity_labels.flatten().tolist()] == [
        IDS["Q1"], IDS["Q2"], IDS["Q1"], None, None, None,
    ]  # fmt: skip
    assert task.counts(replace(batch, masked=torch.full((1, 3), -1)))["dea"] == 3


def test_of_links_5_percent_are_replaced_15_hidden_and_the_rest_kept() -> None:
    """Within 3 standard errors; what is replaced gets every other entity equally often, and never its own."""
    task, random = task_of(), np.random.default_rng(7)
    entities = random.choice([-1, *(IDS[name] for name in NAMES)], size=(400, 100))
    found = task.corrupted(entities, random)
    there = entities >= 0
    count = int(there.sum())
    assert (found[~there] == -1).all()
    fates = {"hidden": found == -1, "kept": found == entities, "replaced": (found != -1) & (found != entities)}
    for name, share in (("hidden", 0.15), ("kept", 0.8), ("replaced", 0.05)):
        assert abs(fates[name][there].mean() - share) < 3 * (share * (1 - share) / count) ** 0.5, name
    replaced = fates["replaced"] & there
    drawn = np.bincount(found[replaced], minlength=max(IDS.values()) + 1)
    for name in NAMES:
        expected = (replaced & (entities != IDS[name])).sum() / (len(NAMES) - 1)
        assert abs(drawn[IDS[name]] - expected) < 4 * expected**0.5
    assert drawn.sum() == drawn[[IDS[name] for name in NAMES]].sum()
    hiding = task_of(replaced_links=0.0, hidden_links=1.0).corrupted(entities, random)
    assert (hiding == -1).all()


def test_masks_and_links_are_drawn_again_in_every_epoch_and_never_in_validation() -> None:
    task = task_of(hidden_links=0.5)
    rows = some(task) * 8
    first, second = (task.prepare(rows, np.random.default_rng(seed)) for seed in (1, 2))
    assert first.entities is not None and second.entities is not None and not first.entities.equal(second.entities)
    again = task.prepare(rows, np.random.default_rng(1))
    assert again.entities is not None and again.entities.equal(first.entities) and again.tokens.equal(first.tokens)


@pytest.mark.parametrize("candidates", ["batch", "text"])
@torch.no_grad()
def test_the_loss_against_loops(candidates: str) -> None:
    task = task_of(candidates=candidates)
    model = model_of(task)
    batch = task.prepare(some(task), np.random.default_rng(3))
    hidden, vectors = model(batch), graph()["entities"].model.entities(torch.arange(len(GRAPH.vocabulary)))
    expected, right = 0.0, 0
    per_row = [["Q1", "Q2"], ["Q1"], []]
    for row, links in enumerate(({1: "Q1", 3: "Q2"}, {2: "Q1"}, {})):
        names = ["Q1", "Q2"] if candidates == "batch" else per_row[row]
        for place, name in links.items():
            asked = model.entity_head(hidden[row, place])
            scores = torch.stack([asked @ vectors[IDS[each]] for each in names])
            expected -= float(scores.log_softmax(dim=0)[names.index(name)])
            right += int(names[int(scores.argmax())] == name)
    loss = task.loss(model, batch, None)
    assert float(loss.sums["dea"]) == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert int(loss.report["dea_accuracy"]) == right
    filled = Shapes(tokens=64, multiple=8).fill(batch)
    for part, value in task.loss(model, filled, None).sums.items():
        torch.testing.assert_close(value, loss.sums[part], rtol=1e-4, atol=1e-5)
    assert task.counts(filled) == {**task.counts(batch), "tokens": task.counts(filled)["tokens"]}


@torch.no_grad()
def test_a_batch_without_any_link_has_a_loss_of_zero() -> None:
    task = task_of()
    model = model_of(task)
    batch = task.prepare([(passage("w1 w2 w3 w4 w5 w6 w7", {}, task),)], np.random.default_rng(3))
    loss = task.loss(model, batch, None)
    assert float(loss.sums["dea"]) == 0.0 and loss.sums["mlm"].isfinite() and task.counts(batch)["dea"] == 0


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(UserError, match="no run has them") as caught:
        Task(Config(), {"text": TEXT}, {}, None)
    assert "given.entities" in (caught.value.todo or "")
    with pytest.raises(UserError, match="has no head that predicts entities") as caught:
        model_of(task_of(), predict_entities=False)
    assert caught.value.todo == "model.predict_entities=true"
    bert = find("models", "bert")
    with pytest.raises(UserError, match="bert has no head that predicts entities") as caught:
        task_of().build(bert, bert.Config(**bert.SIZES["tiny"], pretraining_heads="masked-lm"))
    assert caught.value.todo == "model.name=ernie"
    for values, message in (
        ({"replaced_links": 0.6, "hidden_links": 0.6}, "shares of at most 1"),
        ({"confidence": -1.0}, "confidence must lie"),
        ({"layout": "packed"}, "their entities would see each other"),
    ):
        with pytest.raises(ValueError, match=message):
            Config(**values)


def test_a_run_with_pairs_of_sentences_and_one_without(tmp_path: Path) -> None:
    values = ["train.epochs=1", "train.validate_every=none"]
    graph = train(recipe.read("transe-miniworld", values).build(), Options(folder=tmp_path / "g", quiet=True))
    rows = ["Minsu ate tuletule. Yuna saw it.\t" + '[["apple", 10, 18]]', "A dog ran. It was big.\t[]"] * 12
    (tmp_path / "texts.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    data = [f"data.{split}={tmp_path / 'texts.tsv'}" for split in ("train", "valid")]
    given = [f"given.entities={graph.folder}", "data.corpus=none", "data.columns=none", *data]
    short = ["train.epochs=none", "train.steps=3", "train.validate_every=3"]
    for pairs, heads, pooling in (("none", "masked-lm", "mean"), ("next", "both", "pooler")):
        model = [f"model.pretraining_heads={heads}", f"model.pooling={pooling}", f"task.pairs={pairs}"]
        built = recipe.read("ernie-dea-miniworld-links", [*given, *short, *model]).build()
        run = train(built, Options(folder=tmp_path / pairs, device="cpu", quiet=True))
        assert run.is_finished and load(run.folder, device="cpu").embed("Minsu ate.").shape == (64,)
    with pytest.raises(UserError, match="the link to apple from character 10 to 99 is not within its text"):
        (tmp_path / "texts.tsv").write_text('A dog.\t[["apple", 10, 99]]\nA cat.\t[]\n', encoding="utf-8")
        train(recipe.read("ernie-dea-miniworld-links", [*given, *short]).build(), Options(folder=tmp_path / "w"))
