"""Link prediction: losses and filtered ranks against loops, unseen entities, and a run from graph files to answers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from commands.running import as_served
from mallang.data.columns import LabelSet
from mallang.data.knowledge import Known
from mallang.errors import UserError
from mallang.evaluation.link_ranks import filtered_rank
from mallang.find import find
from mallang.loading import load
from mallang.recipe import read
from mallang.runs.folder import Run
from mallang.runs.model import open_model
from mallang.tasks.completer import ranks_of
from mallang.tasks.link_prediction import Config, Task
from mallang.text.tokenizer import Config as TextConfig
from mallang.text.tokenizer import Tokenizer
from mallang.training.train import Options, train

NAMES = [f"e{number}" for number in range(12)]
RELATIONS = ("r0", "r1", "r2")


def task_of(**config: Any) -> Task:
    tokenizer = Tokenizer.train([" ".join(NAMES)], TextConfig(unit="space"))
    return Task(Config(**config), dict.fromkeys(("head", "tail"), tokenizer), {"relation": LabelSet(RELATIONS)})


def model_of(task: Task, **config: Any) -> Any:
    module = find("models", "transe")
    torch.manual_seed(1)
    return task.build(module, module.Config(dim=6, scale=0.5, **config)).eval()


def some_triples(count: int, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    columns = [random.integers(4, 16, count), random.integers(0, 3, count), random.integers(4, 16, count)]
    return np.unique(np.stack(columns, axis=1), axis=0)


@pytest.mark.parametrize("loss", ["softmax", "margin", "self-adversarial"])
@pytest.mark.parametrize("reciprocal", [False, True])
def test_the_loss_against_a_loop(loss: str, reciprocal: bool) -> None:
    """Every triple by itself, for its tail and for its head, against every entity but the answer."""
    task = task_of(loss=loss, negatives=0)
    model, triples = model_of(task, reciprocal=reciprocal), some_triples(10)
    expected = 0.0
    with torch.no_grad():
        for head, relation, tail in triples.tolist():
            for asked, answer, heads in ((head, tail, False), (tail, head, True)):
                scores = model.answer_scores(torch.tensor([asked]), torch.tensor([relation]), heads=heads)[0].tolist()
                right, others = scores[answer], [scores[n] for n in range(4, 16) if n != answer]
                if loss == "softmax":
                    expected += math.log(math.exp(right) + sum(map(math.exp, others))) - right
                elif loss == "margin":
                    expected += sum(max(0.0, 1.0 - right + other) for other in others) / (len(others) + 1)
                else:
                    total = sum(map(math.exp, others))
                    wrong = sum(math.exp(each) / total * math.log(1 / (1 + math.exp(9 + each))) for each in others)
                    expected -= (math.log(1 / (1 + math.exp(-9 - right))) + wrong) / 2
    batch = task.collate(triples)
    assert float(task.loss(model, batch, None).sums["loss"].detach()) == pytest.approx(expected, rel=1e-4)
    assert task.counts(batch) == {"loss": 2 * len(triples), "tokens": 2 * len(triples)}


def test_drawn_entities_stand_for_all() -> None:
    """The mean over many draws of the sum that a softmax divides by is that over all entities."""
    everything, drawn = task_of(negatives=0), task_of(negatives=6)
    model, batch = model_of(everything), everything.collate(some_triples(1)[:1])
    exact = float(everything.loss(model, batch, None).sums["loss"].detach())
    torch.manual_seed(4)
    losses = [float(drawn.loss(model, batch, None).sums["loss"].detach()) for _ in range(400)]
    assert exact == pytest.approx(float(np.mean(losses)), rel=0.05) and np.std(losses) > 0


def test_triples_with_unknown_entities_and_filled_rows_do_not_count() -> None:
    task = task_of(negatives=0)
    model, triples = model_of(task), some_triples(4)
    more = np.concatenate([triples, [[task.names.vocabulary.unk, 0, 5]]])
    batch, longer = task.collate(triples), task.collate(more)
    assert task.counts(longer)["loss"] == task.counts(batch)["loss"]
    losses = [float(task.loss(model, each, None).sums["loss"].detach()) for each in (longer, batch)]
    assert losses[0] == pytest.approx(losses[1])


@pytest.mark.parametrize("reciprocal", [False, True])
def test_filtered_ranks_against_a_loop(reciprocal: bool) -> None:
    task = task_of()
    model = model_of(task, reciprocal=reciprocal)
    every = some_triples(300)
    triples, unknown = every[::3], task.names.vocabulary.unk
    triples = np.concatenate([triples, [[unknown, 1, 5], [6, 1, unknown]]])
    found = ranks_of(task, model, triples, Known(np.concatenate([every, triples])))
    true = {tuple(row) for row in every.tolist()}
    with torch.no_grad():
        for (head, relation, tail), of_tail, of_head in zip(triples.tolist(), found.tails, found.heads, strict=True):
            for asked, answer, heads, rank in ((head, tail, False, of_tail), (tail, head, True, of_head)):
                scores = model.answer_scores(torch.tensor([asked]), torch.tensor([relation]), heads=heads)[0].numpy()
                known = [n for n in range(4, 16) if ((n, relation, asked) if heads else (asked, relation, n)) in true]
                if answer == unknown:
                    assert rank == 12 - len(known) + 1, "last"
                elif asked == unknown:
                    assert rank == filtered_rank(np.zeros(12), 0, [])[0] == 6.5, "all are equally good"
                else:
                    expected, _ = filtered_rank(scores[4:], answer - 4, [n - 4 for n in known])
                    assert rank == expected
    assert found.unseen == 2 and "unseen:2 counted last" in found.scores("x")[0].signature


def test_ties_share_the_mean_of_their_ranks() -> None:
    task = task_of()
    model, triples = model_of(task), some_triples(40)
    model.embedding.weight.data.zero_()
    found = ranks_of(task, model, triples, Known(triples))
    for (head, relation, _), rank in zip(triples.tolist(), found.tails, strict=True):
        others = sum((h, r) == (head, relation) for h, r, _ in triples.tolist()) - 1
        assert rank == (1 + 12 - others) / 2


ONE_GRAPH = ("task.name=link_prediction", "model.name=transe", "model.dim=16", "train.epochs=60",
             "train.batch_tokens=32", "optimizer.learning_rate=0.02", "train.threads=1", "train.workers=0",
             "task.negatives=0")  # fmt: skip


def graph_files(folder: Path) -> list[str]:
    """Cities lie in countries, and their people speak the language of the country."""
    rows = []
    for number in range(6):
        country, language = f"land {number}", f"tongue {number}"
        rows.append((country, "speaks", language))
        for town in range(4):
            rows += [(f"town {number} {town}", "in", country), (f"town {number} {town}", "uses", language)]
    held_out = [rows.pop(number) for number in (50, 30, 12)]
    (folder / "train.tsv").write_text("".join("\t".join(row) + "\n" for row in [("head", "relation", "tail"), *rows]))
    lost = [("town 9 9", "in", "land 1")]
    (folder / "valid.tsv").write_text(
        "".join("\t".join(row) + "\n" for row in [("head", "relation", "tail"), *held_out])
    )
    (folder / "test.tsv").write_text(
        "".join("\t".join(row) + "\n" for row in [("head", "relation", "tail"), *held_out, *lost])
    )
    return [f"data.{split}={folder / split}.tsv" for split in ("train", "valid", "test")]


def test_from_graph_files_to_answers(tmp_path: Path) -> None:
    built = read("transe-miniworld", [*graph_files(tmp_path), *ONE_GRAPH]).build()
    run = train(built, Options(folder=tmp_path / "run", device="cpu", quiet=True))
    model = load(run.folder, device="cpu")
    assert model.complete("land 3", "speaks").nbest[0][0] == "tongue 3"
    answers = model.complete("land 3", "in", heads=True, count=4)
    assert {name for name, _ in answers.nbest} == {f"town 3 {town}" for town in range(4)} and any(answers.known)
    (answer,) = as_served(run.folder, "complete", [("land 3", "in")], heads=True, count=4)
    assert answer["input"] == ["land 3", "in", "heads"] and answer["output"] == str(answers)
    assert [(each["output"], each["known"]) for each in answer["nbest"]] == [
        (name, known) for (name, _), known in zip(answers.nbest, answers.known, strict=True)
    ]
    rows = [("town 3 0", "in", "land 3"), ("town 9 9", "in", "land 1")]
    scores, ranks = model.evaluate(rows)
    assert ranks[0].split("\t")[0] == "1" and "all splits" in scores[0].signature and "unseen:1" in scores[0].signature
    for entity, relation, told in (("town", "in", "no entity"), ("land 1", "is", "no relation")):
        with pytest.raises(UserError, match=told):
            model.complete(entity, relation)
    given = open_model(Run.open(run.folder)).model
    torch.testing.assert_close(given.vectors(), model.model.vectors())


def test_an_edge_without_an_end_is_refused_with_its_row(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("head\trelation\ttail\na\tr\tb\nb\ts\t\nc\tr\ta\n")
    given = (f"data.train={tmp_path / 'train.tsv'}", "data.hold_out=0.3", "model.name=transe")
    built = read("transe-miniworld", given).build()
    with pytest.raises(UserError, match="the tail is empty: an edge of the graph has two ends") as caught:
        train(built, Options(folder=tmp_path / "run", device="cpu", quiet=True))
    assert "row" in str(caught.value.where)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="margin is above 0"):
        Config(margin=2.0)
    with pytest.raises(ValueError, match="temperature"):
        Config(loss="margin", temperature=1.0)
    with pytest.raises(ValueError, match="negatives"):
        Config(negatives=-1)
    with pytest.raises(UserError, match="scores no triples"):
        task_of().build(find("models", "bert"), None)


@pytest.mark.slow
def test_miniworld_is_learned(tmp_path: Path) -> None:
    run = train(read("transe-miniworld", []).build(), Options(folder=tmp_path / "run", device="cpu", quiet=True))
    scores, _ = load(run.folder, device="cpu").evaluate(list(held_out()))
    assert scores[0].name == "MRR" and scores[0].value >= 65


def held_out() -> Any:
    from mallang.data.corpus import Config as Data
    from mallang.data.corpus import open_corpus

    return open_corpus(Data(corpus="miniworld-triples"), ("head", "relation", "tail")).split("test")
