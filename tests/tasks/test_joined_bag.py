"""A network joined with a hashed bag of n-grams: logits, padding, learning rates, run folders, wrong options."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mallang
from mallang.data.batch import Shapes
from mallang.data.columns import LabelSet
from mallang.errors import UserError
from mallang.find import find
from mallang.kernels.ngram_rows import NgramIndex
from mallang.layers.hashed_bag import hashed_ngrams
from mallang.recipe import read
from mallang.tasks.classification import BAG, Config, Task
from mallang.text.tokenizer import Config as Text
from mallang.text.tokenizer import Tokenizer
from mallang.training.optimizer import Config as Optimizer
from mallang.training.optimizer import build
from mallang.training.train import Options, train

TEXTS = ["재밌다 👍", "b", "지루해 지루해", "", "ab ab", "그냥 그래"]
LABELS = {"single": [0, 1, 2, 0, 1, 2], "ordinal": [0, 1, 2, 0, 1, 2], "multi": [[0], [], [1, 2], [0], [2], [0, 1]]}


def task_of(documents=False, **config) -> Task:
    tokenizer = Tokenizer.train(TEXTS, Text(unit="char", vocabulary=50))
    kind = "labels" if config.get("kind") == "multi" else "label"
    given_bag = {"bag_buckets": 1024, "bag_orders": (1, 2, 3), **config}
    return Task(
        Config(documents=documents, **given_bag), {"text": tokenizer}, {"label": LabelSet(("a", "b", "c"), kind)}
    )


def model_of(task, name="bag_of_means", **config):
    """A network with random weights, also in its bag."""
    torch.manual_seed(1)
    module = find("models", name)
    model = task.build(module, module.Config(**{"dropout": 0.0, **config})).eval()
    torch.nn.init.normal_(model.head.bag.table.weight)
    with torch.no_grad():
        model.head.bag.table.weight[0] = 0
    return model


def examples_of(task, texts, labels) -> list:
    arrays = [each.encoder.encode_batch(list(texts)) for each in task.arrays() if each.place == 0]
    rows = zip(*arrays, labels, strict=True)
    return [
        tuple(np.atleast_1d(np.array(each, dtype=np.int64)) for each in (first, label, *others))
        for first, *others, label in rows
    ]


def loop_logits(model, text) -> torch.Tensor:
    """The logits of the bag for one text: one n-gram after the other."""
    buckets = set()
    for n in (1, 2, 3):
        index = NgramIndex(1, (n,), buckets=1024)
        for start in range(len(text) - n + 1):
            codes = np.array([ord(character) for character in text[start : start + n]])
            buckets.add(int(hashed_ngrams([codes], index)))
    table = model.head.bag.table.weight.detach()
    total = torch.zeros(table.shape[1])
    for bucket in buckets:
        total += table[bucket]
    return total / max(1, len(buckets)) ** 0.5


def logits_alone(task, model, batch) -> torch.Tensor:
    """The logits of the network without its bag."""
    bag, model.head.bag = model.head.bag, None
    found = model.head(task.encoded(model.model, batch).pooled)
    model.head.bag = bag
    return found


@pytest.mark.parametrize("kind", ["single", "ordinal", "multi"])
def test_the_logits_of_the_bag_are_added_to_those_of_the_head(kind):
    task = task_of(kind=kind)
    model = model_of(task, dim=8)
    batch = task.collate(examples_of(task, TEXTS, LABELS[kind]))
    joined, _ = task.logits(model, batch)
    for found, network, text in zip(joined, logits_alone(task, model, batch), TEXTS, strict=True):
        torch.testing.assert_close(found, network + loop_logits(model, text))
    if kind == "ordinal":
        assert (joined.diff(dim=1) < 0).all()


@pytest.mark.parametrize("kind", ["single", "ordinal", "multi"])
def test_with_separate_losses_each_learns_as_it_would_alone(kind):
    """The mean of both logits predicts; the gradient of the network is half of what it would be without a bag."""
    task = task_of(kind=kind, bag_loss="separate")
    model = model_of(task, dim=8)
    batch = task.collate(examples_of(task, TEXTS, LABELS[kind]))
    network = logits_alone(task, model, batch)
    bag = torch.stack([loop_logits(model, text) for text in TEXTS])
    if kind == "ordinal":
        shift = network - model.head.score(task.encoded(model.model, batch).pooled)
        bag = bag + shift.detach()
    found = task.loss(model, batch, None)
    torch.testing.assert_close(task.logits(model, batch)[0], (network + bag) / 2)
    each = [task.losses(logits, batch)[0].sum() for logits in (network, bag)]
    torch.testing.assert_close(found.sums["loss"], (each[0] + each[1]) / 2)
    right = task.losses((network + bag) / 2, batch)[1]
    assert int(found.report["accuracy"]) == int(right.sum())
    weight = model.head.score.weight if kind == "ordinal" else model.head.linear.weight
    (alone,) = torch.autograd.grad(each[0], weight, retain_graph=True)
    (together,) = torch.autograd.grad(found.sums["loss"], weight)
    torch.testing.assert_close(together, alone / 2)


@pytest.mark.parametrize("name, documents", [("cnn", False), ("han", True)])
@settings(deadline=None, max_examples=15)
@given(texts=st.lists(st.text("가나다👍. ab\n", max_size=25), min_size=1, max_size=5))
def test_batched_is_single_and_padding_changes_nothing(name, documents, texts):
    task = task_of(documents=documents)
    sizes = find("models", name).SIZES["tiny"]
    model = model_of(task, name, **sizes)
    examples = examples_of(task, texts, [k % 3 for k in range(len(texts))])
    batch = task.collate(examples)
    together, _ = task.logits(model, batch)
    alone = torch.cat([task.logits(model, task.collate([each]))[0] for each in examples])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)
    shapes = Shapes(1024, multiple=8)
    filled = shapes.fill(batch)
    assert filled.ngrams.shape[1] in {8 << k for k in range(12)}
    found, _ = task.logits(model, filled)
    torch.testing.assert_close(found[: len(texts)], together, rtol=1e-4, atol=1e-5)
    gradients = []
    for each in (batch, filled):
        model.zero_grad()
        task.loss(model, each, None).sums["loss"].backward()
        gradients.append(model.head.bag.table.weight.grad.clone())
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)
    assert not gradients[0][0].any()


def test_few_shapes_for_texts_of_all_lengths():
    """Widths of n-grams double, so that a graph is captured for few of them."""
    task = task_of()
    shapes = Shapes(2048, multiple=8)
    texts = ["가나다라마바사아"[: k % 9] * (k % 7) + "x" * (k % 5) for k in range(200)]
    found = set()
    for text in texts:
        batch = shapes.fill(task.collate(examples_of(task, [text], [0])))
        found.add((batch.tokens.shape[1], batch.ngrams.shape[1]))
    assert len({width for _, width in found}) <= 5


def test_the_bag_has_a_learning_rate_of_its_own():
    task = task_of(bag_learning_rate_scale=4.0)
    model = model_of(task, dim=8)
    network, bag = task.updates(model)
    assert [name for name, _ in bag.parameters] == [BAG] and bag.scale == 4.0
    assert {name for name, _ in network.parameters} | {BAG} == {name for name, _ in model.named_parameters()}
    optimizer = build(Optimizer(learning_rate=0.5), [network, bag])
    scales = {parameter: group["scale"] for group in optimizer.param_groups for parameter in group["params"]}
    assert scales[model.head.bag.table.weight] == 4.0 and scales[model.head.linear.weight] == 1.0
    assert len(task_of(bag_buckets=0, bag_orders=(1, 2, 3, 4, 5)).updates(model)) == 1


def test_words_can_be_the_unit_of_the_bag():
    task = task_of(bag_unit="word", bag_orders=(1,))
    batch = task.collate(examples_of(task, ["지루해 지루해", "아주 지루해", ""], [0, 1, 2]))
    first, second, third = (set(row) - {0} for row in batch.ngrams.tolist())
    assert len(first) == 1 and len(second) == 2 and first < second and not third


@pytest.mark.parametrize("unit", ["char", "word"])
def test_a_run_with_a_bag_is_saved_and_loaded(unit, tmp_path):
    """The bag sees what the network cannot: it reads tokens that are unknown to the network."""
    rows = [f"{'좋' if k % 2 else '싫'}어 {k % 3}\t{'yes' if k % 2 else 'no'}" for k in range(60)]
    (tmp_path / "mine.tsv").write_text("\n".join(rows) + "\n", "utf-8")
    changes = [
        f"data.train={tmp_path / 'mine.tsv'}", "task.bag_buckets=4096", f"task.bag_unit={unit}", "model.dim=8",
        "text.unit=char", "text.vocabulary=6", "text.min_count=25", "train.epochs=5", "train.batch_tokens=64",
    ]  # fmt: skip
    recipe = read("bag-of-means", changes).build()
    run = train(recipe, Options(folder=tmp_path / "run", quiet=True))
    model = mallang.load(run.folder)
    texts = ["좋어 1", "싫어 0", "좋어", ""]
    found = model.classify(texts)
    assert [each.label for each in found[:3]] == ["yes", "no", "yes"]
    for text, each in zip(texts, found, strict=True):
        assert model.classify(text).probability == pytest.approx(each.probability, abs=1e-5)
    assert BAG in dict(model.model.named_parameters())


@pytest.mark.parametrize(
    "wrong, what",
    [
        ({"bag_buckets": 1000}, "bag_buckets must be a power of two"),
        ({"bag_buckets": 64, "bag_orders": (0,)}, "bag_orders must be between 1 and 16"),
        ({"bag_buckets": 64, "bag_dropout": 1.0}, "bag_dropout must be at least 0"),
        ({"bag_buckets": 64, "bag_learning_rate_scale": 0.0}, "bag_learning_rate_scale must be above 0"),
        ({"bag_orders": (1, 2)}, "bag_orders has no effect without a bag"),
        ({"bag_unit": "word"}, "bag_unit has no effect without a bag"),
        ({"bag_loss": "separate"}, "bag_loss has no effect without a bag"),
    ],
)
def test_wrong_options_are_refused(wrong, what):
    with pytest.raises(ValueError, match=what):
        Config(**wrong)


def test_a_model_without_a_head_has_no_bag():
    module = find("models", "bag_of_words")
    with pytest.raises(UserError, match="bag_buckets are about a head"):
        task_of().build(module, module.Config())
