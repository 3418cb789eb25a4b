"""Classification: losses against explicit formulas, filled-up batches, labels, partial loading, frozen encoders."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import mallang
from mallang.data.batch import IGNORE, Shapes
from mallang.data.columns import LabelSet
from mallang.data.corpus import Rows
from mallang.data.filters import Filters
from mallang.data.prepared import prepare
from mallang.errors import UserError
from mallang.evaluation.label_predictions import LabelPredictions
from mallang.find import find
from mallang.layers.head import ClassificationHead, Headed, OrdinalHead
from mallang.recipe import read
from mallang.runs.folder import Run
from mallang.tasks.classification import Config, Task, ordinal_loss
from mallang.text.tokenizer import Config as Text
from mallang.text.tokenizer import Tokenizer
from mallang.training.train import Options, train

TEXTS = ["a b c", "b", "c c c c a", "", "a a", "b c"]


def task(labels=("bad", "fine", "good"), counts=(3, 2, 1), **config):
    tokenizer = Tokenizer.train(["a b c d"], Text(unit="char", vocabulary=50))
    kind = "labels" if config.get("kind") == "multi" else "label"
    return Task(Config(**config), {"text": tokenizer}, {"label": LabelSet(labels, kind, counts)})


def model_of(the_task, seed=1):
    torch.manual_seed(seed)
    module = find("models", "bag_of_means")
    return the_task.build(module, module.Config(dim=8, dropout=0.0)).eval()


def examples(the_task, labels):
    ids = the_task.text.encode_batch(TEXTS[: len(labels)])
    return [(np.array(row, dtype=np.int64), np.atleast_1d(label)) for row, label in zip(ids, labels, strict=True)]


def rows(the_task, labels):
    return [(example,) for example in examples(the_task, labels)]


@pytest.mark.parametrize("config", [{}, {"class_weights": "balanced"}, {"label_smoothing": 0.2}])
def test_the_loss_of_one_class_is_the_formula(config):
    the_task, labels = task(**config), [0, 1, 2, 0, 1]
    model = model_of(the_task)
    batch = the_task.prepare(rows(the_task, labels), np.random.default_rng(0))
    found = the_task.loss(model, batch, None)
    expected, share = 0.0, config.get("label_smoothing", 0.0)
    for example, label in zip(examples(the_task, labels), labels, strict=True):
        logits, _ = the_task.logits(model, the_task.collate([example]))
        logs = logits[0].detach().log_softmax(0)
        weight = 6 / (3 * (3, 2, 1)[label]) if config.get("class_weights") else 1.0
        expected -= weight * ((1 - share) * float(logs[label]) + share * float(logs.mean()))
    assert found.sums["loss"].item() == pytest.approx(expected, rel=1e-5)
    assert the_task.counts(batch)["loss"] == 5


def test_the_weights_of_balanced_classes_have_mean_one_over_the_texts():
    the_task = task(class_weights="balanced")
    assert sum(w * n for w, n in zip(the_task.weights.tolist(), (3, 2, 1), strict=True)) / 6 == pytest.approx(1.0)


@pytest.mark.parametrize("kind", ["single", "multi", "ordinal"])
@settings(deadline=None, max_examples=10)
@given(count=st.integers(1, 5))
def test_filling_up_changes_neither_loss_nor_gradients(kind, count):
    """Rows that fill up a batch have no label, and class 0 is a label."""
    the_task = task(kind=kind)
    labels = [[0, 2][: number % 3] for number in range(count)] if kind == "multi" else [0] * count
    model, batch = model_of(the_task), the_task.prepare(rows(the_task, labels), np.random.default_rng(0))
    found = []
    for each in (batch, Shapes(64, multiple=8).fill(batch)):
        model.zero_grad()
        loss = the_task.loss(model, each, None).sums["loss"]
        loss.backward()
        found.append([loss.detach(), *(parameter.grad.clone() for parameter in model.parameters())])
        assert the_task.counts(each)["loss"] == count
    assert float(found[0][0]) > 0
    for alone, filled in zip(*found, strict=True):
        torch.testing.assert_close(filled, alone, rtol=1e-5, atol=1e-6)


def test_several_labels_are_sigmoids():
    the_task = task(kind="multi")
    model = model_of(the_task)
    batch = the_task.prepare(rows(the_task, [[0, 2], [], [1]]), np.random.default_rng(0))
    logits, _ = the_task.logits(model, batch)
    wanted = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    expected = F.binary_cross_entropy_with_logits(logits, wanted, reduction="sum")
    torch.testing.assert_close(the_task.loss(model, batch, None).sums["loss"], expected)


def test_ordinal_probabilities_sum_to_one_and_thresholds_keep_their_order():
    head = OrdinalHead(4, 5)
    with torch.no_grad():
        head.gaps.copy_(torch.tensor([-3.0, 2.0, 0.0]))
    logits = head(torch.randn(7, 4)).detach()
    assert (logits.diff(dim=1) < 0).all()
    shares = LabelPredictions("ordinal", tuple("12345"), logits.numpy()).probabilities()
    assert (shares > 0).all() and shares.sum(axis=1) == pytest.approx(np.ones(7))
    expected = -sum(math.log(float(torch.sigmoid(s * x))) for s, x in zip((1, 1, -1, -1), logits[0], strict=True))
    assert float(ordinal_loss(logits[:1], torch.tensor([2]))) == pytest.approx(expected, rel=1e-5)
    assert float(ordinal_loss(logits[:1], torch.tensor([IGNORE]))) == 0.0


def test_a_rating_is_the_number_of_thresholds_below_it():
    the_task = task(labels=tuple("1234"), counts=(1,) * 4, kind="ordinal")
    logits = np.array([[2.0, 0.5, -1.0], [-0.5, -1.0, -2.0], [3.0, 2.0, 0.1]], dtype=np.float32)
    assert LabelPredictions("ordinal", tuple("1234"), logits).outputs().tolist() == [2, 0, 3]
    batch = the_task.collate(examples(the_task, [2, 1, 3]))
    _, right = the_task.losses(torch.from_numpy(logits), batch)
    assert right.tolist() == [True, False, True]


def test_a_batch_is_filled_to_its_budget(tmp_path):
    """A text takes its tokens and `</s>`: four texts of four tokens fill 20."""
    the_task = task()
    labeled = Rows.of([("abcd", "bad")] * 8, ("text", "label"))
    corpus = prepare(labeled, the_task.arrays(), Filters(), cache=tmp_path)
    plan = the_task.plan(corpus, tokens=20, seed=1, epoch=0)
    assert [len(plan[number]) for number in range(len(plan))] == [4, 4]


def test_word_dropout_reads_unknown_tokens_in_training_only():
    the_task = task(word_dropout=0.5)
    made = the_task.prepare(rows(the_task, [0] * 6) * 20, np.random.default_rng(1))
    unknown = (made.tokens == the_task.text.vocabulary.unk).sum() / (made.mask.sum() - len(made))
    assert 0.3 < float(unknown) < 0.7
    assert (the_task.collate(examples(the_task, [0] * 6)).tokens != the_task.text.vocabulary.unk).all()


def test_bpe_dropout_cuts_texts_again_and_leaves_labels_alone(tmp_path):
    lines = [f"나는 학교에서 사과를 {n}개 먹었다." for n in range(20)]
    tokenizer = Tokenizer.train(lines, Text(vocabulary=300))
    the_task = Task(Config(bpe_dropout=0.5), {"text": tokenizer}, {"label": LabelSet(("bad", "good"), "label", (1, 1))})
    labeled = Rows.of([(line, ("bad", "good")[n % 2]) for n, line in enumerate(lines)], ("text", "label"))
    corpus = prepare(labeled, the_task.arrays(), Filters(), cache=tmp_path)
    cut = the_task.examples(corpus, seed=1, epoch=0)
    assert [tokenizer.decode(ids.tolist()) for ids, _ in cut] == lines
    assert [int(label[0]) for _, label in cut] == [n % 2 for n in range(20)]
    assert any(len(ids) > len(corpus[number][0]) for number, (ids, _) in enumerate(cut))
    assert the_task.prepare([(cut[0],)], np.random.default_rng(1)).tokens.shape[1] == len(cut[0][0]) + 1


WRONG = [
    {"bpe_dropout": 0.1, "documents": True},
    {"kind": "multi", "label_smoothing": 0.1},
    {"kind": "ordinal", "class_weights": "balanced"},
    {"word_dropout": 1.0},
    {"max_words": 0},
    {"max_tokens": -1},
    {"max_tokens": 5, "documents": True},
]


@pytest.mark.parametrize("given", WRONG)
def test_options_without_effect_are_refused(given):
    with pytest.raises(ValueError):
        Config(**given)


def test_the_smallest_documents_are_allowed():
    assert Config(max_words=1, max_sentences=1).max_words == 1


def test_a_model_that_encodes_nothing_is_refused():
    module = find("models", "ngram")
    with pytest.raises(UserError, match="encodes no text"):
        task().build(module, module.Config())


def write_tsv(path, count=60, label=lambda number: "yes" if number % 2 else "no"):
    words = {"yes": "good great fine", "no": "bad poor weak"}
    lines = [f"{words.get(label(n), 'x y z').split()[n % 3]} film {n}\t{label(n)}" for n in range(count)]
    path.write_text("text\tlabel\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return path


def train_here(folder, *overrides, recipe="bag-of-means", start=None):
    given = [f"data.train={folder / 'train.tsv'}", f"data.valid={folder / 'train.tsv'}", "model.dim=8"]
    given += [
        "text.unit=word",
        "train.steps=12",
        "train.batch_tokens=128",
        "optimizer.learning_rate=0.1",
        "train.workers=0",
    ]
    return train(
        read(recipe, [*given, *overrides]).build(), Options(folder=folder / "run", fresh=True, quiet=True, start=start)
    )


def test_a_tsv_trains_classifies_and_evaluates(tmp_path):
    write_tsv(tmp_path / "train.tsv")
    run = train_here(tmp_path)
    assert "[decoding]" not in (run.folder / "recipe.toml").read_text()
    model = mallang.load(run.folder)
    found = model.classify("a good film")
    assert str(found) == "yes" and sum(found.probabilities.values()) == pytest.approx(1.0)
    texts = ["a bad film", "great", "a poor poor film", ""]
    together = model.classify(texts)
    assert [str(each) for each in together][:3] == ["no", "yes", "no"]
    for text, each in zip(texts, together, strict=True):
        assert model.classify(text).probability == pytest.approx(each.probability, abs=1e-5)
    scores, labels = model.evaluate([("good", "yes"), ("bad", "yes")])
    assert {score.name: score.value for score in scores}["accuracy"] == 50.0 and labels == ["yes", "no"]
    assert [score.name for score in scores] == ["accuracy", "macro F1", "weighted F1", "MCC", "NLL", "Brier", "ECE"]
    with pytest.raises(UserError, match="'maybe' does not occur") as raised:
        model.evaluate([("good", "yes"), ("good", "maybe")])
    assert raised.value.where == "row 2"
    with pytest.raises(UserError, match="there is no label"):
        model.evaluate([("good", " ")])


def test_long_texts_are_examples_too(tmp_path):
    lines = [f"{('good so ' if n % 2 else 'bad so ') * 150}\t{'yes' if n % 2 else 'no'}" for n in range(20)]
    (tmp_path / "train.tsv").write_text("text\tlabel\n" + "\n".join(lines) + "\n", encoding="utf-8")
    run = train_here(
        tmp_path, "train.batch_tokens=290", "train.steps=100", "optimizer.learning_rate=0.03"
    )  # less than one text
    assert [str(each) for each in mallang.load(run.folder).classify(["so good", "so bad"])] == ["yes", "no"]


def test_of_a_text_the_first_max_tokens_are_read(tmp_path):
    write_tsv(tmp_path / "train.tsv")
    model = mallang.load(train_here(tmp_path, "task.max_tokens=1").folder)
    short, long, other = model.classify(["good", "good bad bad bad", "bad"])
    assert short.probabilities == pytest.approx(long.probabilities, abs=1e-6) and str(short) != str(other)
    tokens = task(max_tokens=3).arrays()[0].encoder
    whole = task().arrays()[0].encoder
    assert tokens.encode_batch(TEXTS) == [ids[:3] for ids in whole.encode_batch(TEXTS)]
    assert tokens.fingerprint != whole.fingerprint != task(max_tokens=4).arrays()[0].encoder.fingerprint


def test_other_labels_than_those_of_training_are_noticed(tmp_path):
    write_tsv(tmp_path / "train.tsv")
    run = train_here(tmp_path)
    LabelSet(("yes", "no")).save(run.folder, "label")
    with pytest.raises(UserError, match="the labels of the label are damaged"):
        mallang.load(run.folder)


def test_weights_are_saved_as_model_and_head_and_a_frozen_model_stays_bit_equal(tmp_path):
    write_tsv(tmp_path / "train.tsv")
    (tmp_path / "first").mkdir()
    write_tsv(tmp_path / "first" / "train.tsv")
    first = train_here(tmp_path / "first")
    weights = Run.open(first.folder).read_weights()
    assert set(weights) == {"model.embedding.weight", "head.linear.weight", "head.linear.bias"}
    second = Run.open(train_here(tmp_path, "task.freeze=true", start=first.folder).folder).read_weights()
    assert second["model.embedding.weight"].equal(weights["model.embedding.weight"])
    assert not second["head.linear.weight"].equal(weights["head.linear.weight"])


def test_a_frozen_model_stays_in_eval_mode():
    encoder = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(2, 2))
    model = Headed(encoder, ClassificationHead(2, 2, 0.5), frozen=True).train()
    assert not encoder[0].training and model.head.dropout.training
    assert [name for name, each in model.named_parameters() if each.requires_grad] == [
        "head.linear.weight",
        "head.linear.bias",
    ]


def test_starting_from_another_run_reports_what_fits(tmp_path, capfd):
    (tmp_path / "first").mkdir()
    write_tsv(tmp_path / "first" / "train.tsv")
    first = train_here(tmp_path / "first")
    write_tsv(tmp_path / "train.tsv", label=lambda number: ("yes", "no", "maybe")[number % 3])
    given = [
        f"data.train={tmp_path / 'train.tsv'}",
        f"data.valid={tmp_path / 'train.tsv'}",
        "text.unit=word",
        "train.steps=1",
    ]
    train(read("bag-of-means", [*given, "model.dim=8"]).build(), Options(folder=tmp_path / "b", start=first.folder))
    assert "1 tensors loaded; new: head.linear.weight" in " ".join(capfd.readouterr().err.split())
    with pytest.raises(UserError, match="none of the 3 tensors fits"):
        train(read("bag-of-means", [*given, "model.dim=9"]).build(), Options(folder=tmp_path / "c", start=first.folder))


def test_a_section_that_the_task_does_not_have_is_refused():
    with pytest.raises(UserError, match=r"decoding.beam has no effect: .* classification has no \[decoding\]"):
        read("bag-of-means", ["decoding.beam=3"])
