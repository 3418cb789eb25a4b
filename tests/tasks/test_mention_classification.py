"""Mentions: marks and entities in batches, windows, controls, what is refused, and runs from training to labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mallang import load, recipe
from mallang.data.batch import Shapes
from mallang.data.columns import LabelSet
from mallang.data.corpus import open_corpus
from mallang.errors import UserError
from mallang.find import find
from mallang.inspection.label_report import label_report
from mallang.models import transe
from mallang.runs.folder import Run
from mallang.runs.given import Given
from mallang.runs.weights import own_weights
from mallang.tasks.entity_links import GivenEntities
from mallang.tasks.mention_classification import Config, Task
from mallang.text.added_words import with_special_tokens
from mallang.text.tokenizer import Config as TextConfig
from mallang.text.tokenizer import Tokenizer
from mallang.training.train import Options, train

WORDS = [f"w{number}" for number in range(30)]
TEXT = Tokenizer.train([" ".join(WORDS)], TextConfig(unit="space"), (), ("entity", "head", "tail", "cls", "sep"))
GRAPH = Tokenizer.train(["Q1 Q2 Q3 Q4 Q5"], TextConfig(unit="space"))


def graph() -> dict[str, Given]:
    torch.manual_seed(1)
    model = transe.TransE(transe.Config(dim=8, scale=1.0), GRAPH.vocabulary, relations=2).eval()
    return {"entities": Given("entities", Path("runs/graph"), model, GRAPH, "link_prediction", "sum")}


def task_of(**config: Any) -> Task:
    labels = LabelSet(("a", "b", "c"), "labels" if config.get("kind") == "multi" else "label")
    return Task(Config(**config), {"text": TEXT}, {"label": labels}, graph())


def model_of(task: Task, **config: Any) -> Any:
    module = find("models", "ernie")
    torch.manual_seed(2)
    shape = {**module.SIZES["tiny"], "max_length": 32, **config}
    return task.build(module, module.Config(**shape)).eval()


def example(
    words: str, mentions: list[list[int]], links: list[tuple[str, int, int]], label: int = 0
) -> tuple[Any, ...]:
    """A text of words parted by spaces; mentions and links by the numbers of their words."""
    table = [[start, end, GRAPH.vocabulary.ids[name]] for name, start, end in links]
    arrays = TEXT.encode_batch([words])[0], [label], np.reshape(mentions, -1), np.reshape(table, -1)
    return tuple(np.array(each, dtype=np.int64) for each in arrays)


SOME = [
    example("w1 w2 w3 w4 w5", [[1, 2]], [("Q1", 1, 2), ("Q3", 4, 4)], 0),
    example("w6 w7 w8", [[0, 0]], [], 1),
    example("w9 w8 w7 w6", [[3, 3]], [("Q2", 0, 1)], 2),
]


def test_marks_stand_around_the_mention_and_entities_where_their_names_begin() -> None:
    batch = task_of().collate(SOME)
    names = np.array(TEXT.vocabulary.tokens, dtype=object)
    rows = [" ".join(names[row[:length]]) for row, length in zip(batch.tokens.numpy(), batch.lengths, strict=True)]
    assert rows == [
        "<cls> w1 <entity> w2 w3 <entity> w4 w5 <sep>",
        "<cls> <entity> w6 <entity> w7 w8 <sep>",
        "<cls> w9 w8 w7 <entity> w6 <entity> <sep>",
    ]
    assert batch.entities is not None and batch.entity_places is not None
    ids = GRAPH.vocabulary.ids
    assert batch.entities.tolist() == [[ids["Q1"], ids["Q3"]], [-1, -1], [ids["Q2"], -1]]
    assert batch.entity_places.tolist() == [[3, 7], [-1, -1], [1, -1]]


def test_head_and_tail_have_their_own_marks() -> None:
    batch = task_of(marks="relation").collate([example("w1 w2 w3", [[2, 2], [0, 0]], [("Q1", 2, 2)])])
    names = np.array(TEXT.vocabulary.tokens, dtype=object)
    assert " ".join(names[batch.tokens[0].numpy()]) == "<cls> <tail> w1 <tail> w2 <head> w3 <head> <sep>"
    assert batch.entity_places is not None and batch.entity_places.tolist() == [[6]]


def test_the_controls() -> None:
    both, alone = task_of(), task_of(read="text")
    usual, text, entities, shuffled = (each.collate(SOME) for each in (
        both, alone, task_of(read="entities"), task_of(read="shuffled")))  # fmt: skip
    assert text.entities is None and torch.equal(text.tokens, usual.tokens)
    assert torch.equal(shuffled.tokens, usual.tokens) and shuffled.entity_places is not None
    assert usual.entities is not None and shuffled.entities is not None and entities.entities is not None
    there = usual.entities >= 0
    assert (shuffled.entities >= 0).equal(there) and (shuffled.entities != usual.entities)[there].all()
    assert torch.equal(entities.entities, usual.entities)
    kept = {TEXT.vocabulary.tokens[number] for number in entities.tokens.unique().tolist()}
    assert kept == {"<cls>", "<sep>", "<pad>", "<entity>", "<unk>"}
    assert both.mention_config.read == "both" and model_of(alone).model.graph is None


def test_every_entity_is_shuffled_to_another_one_and_none_is_lost() -> None:
    order = GivenEntities(graph(), "shuffled").order
    ids = sorted(set(range(len(GRAPH.vocabulary))) - GRAPH.vocabulary.specials)
    assert order is not None and sorted(order[ids].tolist()) == ids and all(order[number] != number for number in ids)


@torch.no_grad()
def test_batched_is_single_and_padding_changes_nothing() -> None:
    task = task_of(kind="multi")
    model = model_of(task)
    batch = task.collate(SOME)
    logits, _ = task.logits(model, batch)
    padded, _ = task.logits(model, Shapes(tokens=128, multiple=8).fill(batch))
    torch.testing.assert_close(padded[:3], logits)
    for place, each in enumerate(SOME):
        torch.testing.assert_close(task.logits(model, task.collate([each]))[0][0], logits[place])
    filled = Shapes(tokens=128, multiple=8).fill(batch)
    assert task.counts(filled)["loss"] == task.counts(batch)["loss"] == 3
    torch.testing.assert_close(task.loss(model, filled, None).sums["loss"], task.loss(model, batch, None).sums["loss"])


def test_long_texts_are_read_in_a_window_around_their_mentions() -> None:
    task = task_of(max_tokens=12)  # 8 words, <cls>, <sep> and two marks
    model_of(task)
    words = " ".join(f"w{number}" for number in range(20))
    for first in range(20):
        ids, _, mentions, links = task.window(example(words, [[first, first]], [("Q1", first, first), ("Q2", 0, 0)]))
        assert len(ids) == 8 and TEXT.vocabulary.tokens[ids[mentions[0]]] == f"w{first}"
        assert links[0] == mentions[0] or first == 0
        assert all(0 <= place < 8 for place in links.reshape(-1, 3)[:, 0])
    assert task.collate([example(words, [[0, 19]], [])]).tokens.shape == (1, 12)
    assert task.widths(np.array([3, 8, 20])).tolist() == [7, 12, 12]
    with pytest.raises(UserError, match="no room for a mention"):
        model_of(task_of(max_tokens=4))


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(UserError, match="reads entities, and no run has their vectors") as caught:
        Task(Config(), {"text": TEXT}, {"label": LabelSet(("a", "b"))})
    assert "given.entities" in (caught.value.todo or "")
    with pytest.raises(UserError, match="its vectors have 8 numbers, but those that the model reads 6") as caught:
        model_of(task_of(), entity_dim=6)
    assert caught.value.todo == "model.entity_dim=8"
    bert = find("models", "bert")
    shape = bert.Config(**bert.SIZES["tiny"])
    with pytest.raises(UserError, match="BERT reads no entities"):
        task_of().build(bert, shape)
    assert task_of(read="text").build(bert, shape)
    with pytest.raises(UserError, match="has no vectors of entities"):
        given = graph()["entities"]
        wrong = Given(given.name, given.folder, torch.nn.Linear(1, 1), GRAPH, "", "")
        GivenEntities({"entities": wrong}, "both")
    for values in ({"kind": "ordinal"}, {"confidence": 2.0}, {"max_tokens": -1}):
        with pytest.raises(ValueError, match=next(iter(values))):
            Config(**values)
    with pytest.raises(UserError, match="no special token 'entity'"):
        plain = Tokenizer.train(["w1"], TextConfig(unit="space"))
        Task(Config(), {"text": plain}, {"label": LabelSet(("a", "b"))}, graph())


@pytest.fixture(scope="module")
def entities(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained graph of miniworld."""
    folder = tmp_path_factory.mktemp("graph") / "transe"
    values = ["train.epochs=1", "train.validate_every=none"]
    return train(
        recipe.read("transe-miniworld", values).build(), Options(folder=folder, device="cpu", quiet=True)
    ).folder


SMALL = ["train.epochs=none", "train.steps=40", "train.validate_every=none"]


def run_of(entities: Path, folder: Path, *values: str, start: Path | None = None) -> Run:
    built = recipe.read("ernie-miniworld-links", [f"given.entities={entities}", *SMALL, *values]).build()
    return train(built, Options(folder=folder, device="cpu", quiet=True, start=start))


def test_a_run_from_training_to_labels(entities: Path, tmp_path: Path) -> None:
    run = run_of(entities, tmp_path / "types")
    model = load(run.folder, device="cpu")
    rows = list(open_corpus(run.data(), Task.columns).split("test"))[:12]
    scores, labels = model.evaluate(rows)
    named = {score.name: score for score in scores}
    assert {"micro F1", "coverage", "micro F1 (covered)"} <= named.keys() and len(labels) == 12
    assert named["coverage"].value == 100.0 and named["micro F1"].value == named["micro F1 (covered)"].value
    report = label_report(run.folder, model, rows, "test", is_kept=False)
    assert set(report.parts) >= {"all", "covered"}
    found = model.classify("Minsu ate [[tuletule|apple]] yesterday.")
    [again] = model.classify([("Minsu ate tuletule yesterday.", "[10, 18]", '[["apple", 10, 18]]')])
    assert found.probabilities == pytest.approx(again.probabilities) and set(found.probabilities) >= {"food", "animal"}
    other = model.classify("Minsu ate [[tuletule|dog]] yesterday.")
    assert other.probabilities != pytest.approx(found.probabilities, abs=1e-6)
    with pytest.raises(UserError, match="has 0 mentions, and 1 are asked for"):
        model.classify("Minsu ate an apple.")
    assert not any("graph" in name for name in run.read_weights())


def test_it_starts_from_bert_with_new_rows_for_the_marks(entities: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("Minsu ate an apple.\nYuna saw a dog.\n" * 20, encoding="utf-8")
    lines = tmp_path / "lines.txt"
    shape = ["model.layers=3", "model.dim=64", "model.heads=4", "model.max_length=64", "model.pooler=true",
             "model.pooling=pooler", "text.vocabulary=1000", "train.steps=2", "train.epochs=none"]  # fmt: skip
    data = [f"data.train={lines}", f"data.valid={lines}", "data.columns=none", "data.corpus=none"]
    built = recipe.read("bert-masked-lm-miniworld", [*shape, *data, "train.validate_every=none"]).build()
    bert = train(built, Options(folder=tmp_path / "bert", device="cpu", quiet=True))
    run = run_of(entities, tmp_path / "ernie", "train.steps=1", "optimizer.learning_rate=1e-9", start=bert.folder)
    theirs, ours = bert.read_weights(), run.read_weights()
    assert [name for name in run.tokenizers(("text",))["text"].vocabulary.tokens if name == "<entity>"]
    for name, weight in theirs.items():
        if name.startswith("encoder."):
            torch.testing.assert_close(ours[f"model.{name}"], weight, atol=1e-6, rtol=0)
    words, more = theirs["embedding.words.weight"], ours["model.embedding.words.weight"]
    assert len(more) == len(words) + 1
    torch.testing.assert_close(more[: len(words)], words, atol=1e-6, rtol=0)


def test_a_stopped_run_resumes_bit_for_bit(entities: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mallang.training.loop import Loop

    values = ["train.steps=8", "train.save_every=3", "model.dropout=0.1", "data.columns=" + json.dumps(
        ["ko", "ko-pair", "ko-links", "relation"]), "task.kind=single", "task.marks=relation"]  # fmt: skip
    whole = run_of(entities, tmp_path / "whole", *values)
    look_up = Loop.look_up

    def stop(loop: Loop) -> None:
        look_up(loop)
        if loop.step == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(Loop, "look_up", stop)
    with pytest.raises(KeyboardInterrupt):
        run_of(entities, tmp_path / "parts", *values)
    monkeypatch.setattr(Loop, "look_up", look_up)
    parts = run_of(entities, tmp_path / "parts", *values)
    first, second = whole.read_weights(), parts.read_weights()
    assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
    relation = load(parts.folder, device="cpu")
    assert relation.classify("[[민수는]] [[사과를|apple]] 먹었다.").label in ("takes", "done by")


@pytest.mark.slow
def test_entities_tell_the_types_of_names_that_training_never_saw(tmp_path: Path) -> None:
    graph = train(recipe.read("transe-miniworld").build(), Options(folder=tmp_path / "g", device="cpu", quiet=True))
    scores = {}
    for read in ("both", "text"):
        values = [f"given.entities={graph.folder}", f"task.read={read}"]
        built = recipe.read("ernie-miniworld-links", values).build()
        run = train(built, Options(folder=tmp_path / read, device="cpu", quiet=True))
        rows = list(open_corpus(run.data(), Task.columns).split("test"))
        scores[read] = {s.name: s.value for s in load(run.folder, device="cpu").evaluate(rows)[0]}["micro F1"]
    assert scores["both"] >= 90 and scores["both"] >= scores["text"] + 15


def test_weights_of_the_graph_are_not_those_of_the_model() -> None:
    model = model_of(task_of())
    assert not any("graph" in name for name in own_weights(model))
    assert with_special_tokens(GRAPH, ("entity",)).vocabulary.special("entity") == len(GRAPH.vocabulary)
