"""Similarity: losses against explicit loops, bi-encoders one text at a time, correlations against scipy and sklearn."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mallang
from mallang.data.batch import Shapes
from mallang.data.columns import Numbers
from mallang.errors import UserError
from mallang.find import find
from mallang.recipe import read
from mallang.tasks.comparer import Similarity, cosines, similarity_scores
from mallang.tasks.similarity import Config, Task
from mallang.text.tokenizer import Config as Text
from mallang.text.tokenizer import Tokenizer
from mallang.training.train import Options, train

PAIRS = [("a b c", "b"), ("b", "c c c c a"), ("a a", "b c d"), ("", "a"), ("d d", "a d")]
SCORES = ("0", "5", "2.5", "2.5", "4")


def task(**config: Any) -> Task:
    tokenizer = Tokenizer.train(["a b c d"], Text(unit="space", vocabulary=50), (), ("cls", "sep"))
    return Task(Config(**config), dict.fromkeys(("first", "second"), tokenizer), {})


def examples(the_task: Task) -> list[tuple[Any, ...]]:
    sides = [
        [np.array(ids, np.int64) for ids in the_task.text.encode_batch(list(side))] for side in zip(*PAIRS, strict=True)
    ]
    numbers = [np.array(bits) for bits in Numbers().encode_batch(list(SCORES))]
    return list(zip(*sides, numbers, strict=True))


def small(the_task: Task, name: str = "bert", **config: Any) -> Any:
    module = find("models", name)
    torch.manual_seed(1)
    return the_task.build(module, module.Config(**{**module.SIZES["tiny"], **config})).eval()


def shares_one_by_one(the_task: Task, model: Any) -> list[float]:
    """p of each pair, each text encoded by itself in a bi-encoder."""
    found = []
    for first, second, number in examples(the_task):
        if the_task.config.kind == "bi":
            vectors = [model.encode(the_task.collate([(ids, ids, number)])).pooled[0] for ids in (first, second)]
            one, two = (vector.double().numpy() for vector in vectors)
            found.append(float(one @ two / math.sqrt((one @ one) * (two @ two))))
        else:
            pooled = model.model.encode(the_task.collate([(first, second, number)])).pooled
            logit, config = float(model.head(pooled)[0, 0]), the_task.config
            of_logit = (logit - config.lowest) / (config.highest - config.lowest)
            found.append(1 / (1 + math.exp(-logit)) if config.activation == "sigmoid" else of_logit)
    return found


@pytest.mark.parametrize("kind", ["cross", "linear", "bi"])
@pytest.mark.parametrize("loss", ["mse", "bce", "cosent"])
def test_losses_are_the_formulas(kind: Any, loss: Any) -> None:
    if loss == "bce" and kind != "cross":
        return
    linear = {"kind": "cross", "activation": "identity"}
    the_task = task(loss=loss, **(linear if kind == "linear" else {"kind": kind}))
    model, golds = small(the_task), [float(score) / 5 for score in SCORES]
    with torch.no_grad():
        shares = shares_one_by_one(the_task, model)
    pairs = list(zip(shares, golds, strict=True))
    if loss == "mse":
        expected = sum((p - t) ** 2 for p, t in pairs)
    elif loss == "bce":
        expected = -sum(t * math.log(p) + (1 - t) * math.log(1 - p) for p, t in pairs)
    else:
        wrong = sum(math.exp(20 * (p - q)) for p, t in pairs for q, u in pairs if t < u)
        expected = len(pairs) * math.log(1 + wrong)
    batch = the_task.collate(examples(the_task))
    found = []
    for each in (batch, Shapes(256, multiple=8).fill(batch)):
        model.zero_grad()
        result = the_task.loss(model, each, None)
        assert float(result.sums["loss"].detach()) == pytest.approx(expected, rel=1e-4)
        assert float(result.report["squared_error"]) == pytest.approx(sum((p - t) ** 2 for p, t in pairs), rel=1e-4)
        assert the_task.counts(each)["loss"] == len(PAIRS)
        result.sums["loss"].backward()
        found.append([each.grad.clone() for each in model.parameters() if each.grad is not None])
    for alone, filled in zip(*found, strict=True):
        torch.testing.assert_close(filled, alone, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", ["cross", "bi"])
def test_scores_are_on_the_scale_and_in_the_order_of_the_pairs(kind: Any) -> None:
    the_task = task(kind=kind, lowest=1.0, highest=3.0)
    model = small(the_task)
    with torch.no_grad():
        expected = [1 + 2 * share for share in shares_one_by_one(the_task, model)]
    assert the_task.predict(model, examples(the_task)).tolist() == pytest.approx(expected, abs=1e-5)


def test_a_linear_score_is_the_logit() -> None:
    the_task = task(activation="identity", lowest=1.0, highest=3.0)
    model = small(the_task)
    with torch.no_grad():
        logits, _ = the_task.outputs(model, the_task.collate(examples(the_task)))
    assert the_task.predict(model, examples(the_task)).tolist() == pytest.approx(logits.tolist(), abs=1e-5)


@pytest.mark.parametrize("kind", ["cross", "bi"])
def test_what_an_encoder_adds_to_the_loss_counts(kind: Any) -> None:
    the_task, batches = task(kind=kind), []
    plain, model = (small(the_task, "self_attentive", penalty=weight) for weight in (0.0, 0.5))
    batch = the_task.collate(examples(the_task))
    for each in (batch, Shapes(256, multiple=8).fill(batch)):
        without, found = (the_task.loss(one, each, None) for one in (plain, model))
        added = float(found.sums["loss"].detach()) - float(without.sums["loss"].detach())
        assert added == pytest.approx(float(found.report["penalty"]), rel=1e-3) and added > 0
        batches.append(added)
    assert batches[0] == pytest.approx(batches[1], rel=1e-4)


def test_a_model_with_a_level_of_sentences_reads_a_pair_as_a_document() -> None:
    the_task = task()
    model = small(the_task, "han")
    assert the_task.predict(model, examples(the_task)).shape == (len(PAIRS),)
    with pytest.raises(UserError, match="han reads documents in sentences"):
        small(task(kind="bi"), "han")
    with pytest.raises(UserError, match="ngram encodes no text"):
        find_and_build("ngram")


@pytest.mark.parametrize("loss", ["mse", "bce"])
def test_in_both_orders_the_head_reads_the_sum_of_two_vectors(loss: Any) -> None:
    the_task, alone = task(both_orders=True, loss=loss), task(loss=loss)
    model, golds, expected = small(the_task), [float(score) / 5 for score in SCORES], 0.0
    for (first, second, number), gold in zip(examples(the_task), golds, strict=True):
        with torch.no_grad():
            vectors = [
                model.model.encode(alone.collate([(one, two, number)])).pooled
                for one, two in ((first, second), (second, first))
            ]
            share = float(model.head(vectors[0] + vectors[1]).sigmoid()[0, 0])
        bce = -(gold * math.log(share) + (1 - gold) * math.log(1 - share))
        expected += (share - gold) ** 2 if loss == "mse" else bce
    batch = the_task.collate(examples(the_task))
    for each in (batch, Shapes(256, multiple=8).fill(batch)):
        assert float(the_task.loss(model, each, None).sums["loss"].detach()) == pytest.approx(expected, rel=1e-4)
        assert the_task.counts(each)["loss"] == len(PAIRS)
    with pytest.raises(UserError, match="not in both orders"):
        small(the_task, "han")


def find_and_build(name: str) -> Any:
    module = find("models", name)
    return task().build(module, module.Config())


WRONG = [
    {"kind": "bi", "loss": "bce"}, {"kind": "bi", "symmetric": True}, {"kind": "bi", "freeze": True},
    {"kind": "bi", "both_orders": True}, {"both_orders": True, "symmetric": True},
    {"kind": "bi", "activation": "identity"}, {"activation": "identity", "loss": "bce"},
    {"activation": "identity", "r_drop": 1.0}, {"kind": "bi", "head_dropout": 0.1},
    {"lowest": 5.0}, {"max_tokens": -1}, {"word_dropout": 1.0},
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_options_without_effect_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Config(**wrong)


def test_correlations_are_those_of_scipy_and_the_error_that_of_sklearn() -> None:
    stats, metrics = pytest.importorskip("scipy.stats"), pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(1)
    golds = np.round(random.random(60) * 5, 1)
    scores = golds + random.normal(size=60)
    found, texts = similarity_scores(
        [Similarity(("a", "b"), float(score)) for score in scores], [str(gold) for gold in golds], Numbers(0.0, 5.0)
    )
    values = {score.name: score.value for score in found}
    assert values["Pearson"] == pytest.approx(100 * stats.pearsonr(scores, golds)[0])
    assert values["Spearman"] == pytest.approx(100 * stats.spearmanr(scores, golds)[0])
    assert values["MSE"] == pytest.approx(metrics.mean_squared_error(golds, scores))
    assert texts[0] == f"{scores[0]:.4f}"


# ---- a run ----


def write_rows(path: Path) -> Path:
    words = ["dog", "cat", "cow", "hen", "fox", "owl"]
    rows = [(f"a {a} and a {b}", f"a {c} and a {d}", len({a, b} & {c, d}) * 2.5)
            for a, b, c, d in np.random.default_rng(1).choice(words, (80, 4)).tolist()]  # fmt: skip
    lines = [f"{first}\t{second}\t{min(score, 5.0)}" for first, second, score in rows]
    path.write_text("sentence1\tsentence2\tscore\n" + "\n".join(lines) + "\n", "utf-8")
    return path


def train_here(folder: Path, *changes: str, start: Path | None = None, name: str = "run") -> Any:
    data = write_rows(folder / "sts.tsv")
    values = [
        f"data.train={data}", f"data.valid={data}", f"data.test={data}", "task.name=similarity", "text.unit=space",
        "text.vocabulary=60", "model.dim=16", "train.steps=40", "train.workers=0", "train.threads=1",
        "train.validate_every=40", "train.batch_tokens=1024", "optimizer.learning_rate=0.05",
    ]  # fmt: skip
    built = read("bag-of-means", [*values, *changes]).build()
    return train(built, Options(folder=folder / name, fresh=True, quiet=True, start=start))


def test_a_bi_encoder_trains_scores_and_embeds(tmp_path: Path) -> None:
    run = train_here(tmp_path, "task.kind=bi", "model.dropout=0")
    model = mallang.load(run.folder)
    rows = [tuple(line.split("\t")) for line in (tmp_path / "sts.tsv").read_text().split("\n")[1:-1]]
    scores, outputs = model.evaluate(rows)
    values = {score.name: score.value for score in scores}
    assert values["Spearman"] > 80 and list(values) == ["Pearson", "Spearman", "MSE"] and len(outputs) == len(rows)
    pair = ("a dog and a cat", "a cat and a cow")
    one, two = model.embed(pair[0]), model.embed(pair[1])
    cosine = float(one @ two / np.linalg.norm(one) / np.linalg.norm(two))
    assert model.similarity(pair).score == pytest.approx(5 * cosine, abs=1e-4)
    assert cosines(model, pair).score == pytest.approx(cosine, abs=1e-5)
    assert str(model.similarity([pair])[0]) == f"{model.similarity(pair).score:.4f}" and model.similarity([]) == []
    again = train_here(tmp_path, "task.kind=cross", start=run.folder, name="cross")
    with pytest.raises(UserError, match="a text alone has no vector"):
        mallang.load(again.folder).embed("a dog")
    with pytest.raises(UserError, match="'much' is no number") as raised:
        model.evaluate([*rows[:2], ("a", "b", "much")])
    assert raised.value.where == "row 3"
    with pytest.raises(UserError, match="7 is not between 0 and 5"):
        model.evaluate([("a", "b", "7"), rows[0]])


@pytest.mark.parametrize(("score", "message"), [("x", "'x' is no number"), ("9", "9 is not between 0 and 5")])
def test_a_file_with_another_number_is_refused_with_its_row(score: str, message: str, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "sts.tsv")
    path.write_text(path.read_text() + f"a\tb\t{score}\n", "utf-8")
    built = read("bag-of-means", [
        f"data.train={path}", f"data.valid={path}", "task.name=similarity", "train.steps=1", "text.unit=space",
    ]).build()  # fmt: skip
    with pytest.raises(UserError, match=message) as raised:
        train(built, Options(folder=tmp_path / "run", quiet=True))
    assert "row 81" in (raised.value.where or "")
