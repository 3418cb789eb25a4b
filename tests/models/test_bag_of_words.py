"""The bag of words: features and decisions of scikit-learn on the same texts; every kind of label; odd texts."""

from __future__ import annotations

import json
import unicodedata

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

import mallang
from mallang.data.batch import Batch, Shapes
from mallang.data.columns import LabelSet
from mallang.data.corpus import open_corpus
from mallang.errors import UserError
from mallang.find import find
from mallang.models.bag_of_words import BagOfWords, Config
from mallang.recipe import read
from mallang.tasks.classification import Config as TaskConfig
from mallang.tasks.classification import Task
from mallang.text.tokenizer import Config as Text
from mallang.text.tokenizer import Tokenizer
from mallang.training.train import Options, train

TEXTS = [
    "정말 재미있다 !", "재미없다 정말", "최고의 영화 최고의 배우", "돈 아깝다 ...", "", "🎬 good film 👍",
    "bad bad film", "보지 마세요", "꼭 보세요 꼭", "그냥 그렇다", "최고 👍👍", "시간 아깝다",
]  # fmt: skip
LABELS = [1, 0, 1, 0, 0, 1, 0, 0, 1, 2, 1, 0]


def task_of(labels, unit="char", texts=TEXTS, **config) -> Task:
    tokenizer = Tokenizer.train(texts, Text(unit=unit, vocabulary=3000))
    kind = "labels" if config.get("kind") == "multi" else "label"
    return Task(TaskConfig(**config), {"text": tokenizer}, {"label": LabelSet(tuple(labels), kind)})


def batches(task, labels, texts=TEXTS, size=5) -> list[Batch]:
    ids = task.text.encode_batch(list(texts))
    examples = [(np.array(row, dtype=np.int64), np.atleast_1d(label)) for row, label in zip(ids, labels, strict=True)]
    return [task.collate(examples[first : first + size]) for first in range(0, len(examples), size)]


def fitted(task, labels, texts=TEXTS, **config) -> tuple[BagOfWords, list[Batch]]:
    made = batches(task, labels, texts)
    model = task.build(find("models", "bag_of_words"), Config(tolerance=1e-6, passes=5000, **config))
    for _ in model.fit(made):
        pass
    return model, made


def named_features(model, made) -> list[dict[str, float]]:
    """The value of every n-gram of every text."""
    tokens, found = model.vocabulary.tokens, []
    for batch in made:
        matrix = model.features(batch)
        for begin, end in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True):
            names = ["".join(tokens[t] for t in model.index.tokens(int(k))) for k in matrix.indices[begin:end]]
            found.append(dict(zip(names, matrix.values[begin:end].tolist(), strict=True)))
    return found


def of_scikit_learn(vectorizer, texts) -> list[dict[str, float]]:
    wanted = vectorizer.fit_transform(texts).tocsr()
    names = vectorizer.get_feature_names_out()
    return [dict(zip(names[row.indices], row.data.tolist(), strict=True)) for row in wanted]


@pytest.mark.usefixtures("bag_kernels")
@pytest.mark.parametrize("orders", [(1,), (2, 3), (1, 2, 3, 4, 5)])
@pytest.mark.parametrize("values", ["counts", "binary", "tf-idf"])
def test_characters_are_those_of_scikit_learn(orders, values):
    kind = TfidfVectorizer if values == "tf-idf" else CountVectorizer
    options = {"binary": True} if values == "binary" else {}
    oracle = kind(analyzer="char", lowercase=False, ngram_range=(orders[0], orders[-1]), **options)
    task = task_of("01")
    model, made = fitted(
        task, [label % 2 for label in LABELS], orders=orders, values=values, normalize=values[0] == "t"
    )
    for found, wanted in zip(named_features(model, made), of_scikit_learn(oracle, TEXTS), strict=True):
        assert found == pytest.approx(wanted, rel=1e-5)


@pytest.mark.usefixtures("bag_kernels")
def test_words_are_those_of_scikit_learn():
    task = task_of("01", unit="word")
    tokenize = lambda text: task.text.encode(text).tokens  # noqa: E731
    oracle = TfidfVectorizer(
        tokenizer=tokenize, token_pattern=None, lowercase=False, ngram_range=(1, 2), sublinear_tf=True
    )
    model, made = fitted(task, [label % 2 for label in LABELS], sublinear=True)
    wanted = [{name.replace(" ", ""): value for name, value in row.items()} for row in of_scikit_learn(oracle, TEXTS)]
    for found, row in zip(named_features(model, made), wanted, strict=True):
        assert found == pytest.approx(row, rel=1e-5)


@pytest.mark.usefixtures("bag_kernels")
def test_rare_ngrams_have_no_weight():
    oracle = TfidfVectorizer(analyzer="char", lowercase=False, ngram_range=(1, 3), min_df=2)
    model, made = fitted(task_of("01"), [label % 2 for label in LABELS], orders=(1, 2, 3), min_count=2)
    for found, wanted in zip(named_features(model, made), of_scikit_learn(oracle, TEXTS), strict=True):
        assert found == pytest.approx(wanted, rel=1e-5)
    assert len(model.weight) == len(oracle.vocabulary_)


@pytest.mark.parametrize("classifier", ["svm", "logistic"])
@pytest.mark.parametrize("labels", [[label % 2 for label in LABELS], LABELS], ids=["two classes", "three classes"])
@pytest.mark.parametrize("strength", [0.3, 3.0])
def test_scores_are_those_of_scikit_learn(classifier, labels, strength):
    names = [str(label) for label in sorted(set(labels))]
    model, made = fitted(task_of(names), labels, orders=(1, 2, 3), classifier=classifier, C=strength)
    features = TfidfVectorizer(analyzer="char", lowercase=False, ngram_range=(1, 3)).fit_transform(TEXTS)
    scores = []
    for own in [1] if len(names) == 2 else range(3):
        oracle = (
            LinearSVC(C=strength, tol=1e-9, max_iter=100_000, random_state=0)
            if classifier == "svm"
            else LogisticRegression(C=strength, solver="liblinear", tol=1e-9, max_iter=10_000, random_state=0)
        )
        scores.append(oracle.fit(features, np.array(labels) == own).decision_function(features))
    found = torch.cat([model.classify(batch) for batch in made]).double().numpy()
    if len(names) == 2:
        np.testing.assert_allclose(found[:, 1] - found[:, 0], scores[0], atol=1e-3)
    else:
        wanted = np.stack(scores, axis=1)
        expected = -np.logaddexp(0, -wanted) if classifier == "logistic" else wanted
        np.testing.assert_allclose(found, expected, atol=1e-3)


@pytest.mark.parametrize("classifier", ["svm", "logistic"])
def test_two_classes_in_balance_are_those_of_scikit_learn(classifier):
    labels = [int(label == 2) for label in LABELS]
    model, made = fitted(task_of("01"), labels, orders=(1, 2), classifier=classifier, class_weights="balanced")
    features = TfidfVectorizer(analyzer="char", lowercase=False, ngram_range=(1, 2)).fit_transform(TEXTS)
    oracle = (
        LinearSVC(class_weight="balanced", tol=1e-9, max_iter=100_000, random_state=0)
        if classifier == "svm"
        else LogisticRegression(class_weight="balanced", solver="liblinear", tol=1e-9, max_iter=10_000, random_state=0)
    )
    wanted = oracle.fit(features, labels).decision_function(features)
    found = torch.cat([model.classify(batch) for batch in made])
    np.testing.assert_allclose((found[:, 1] - found[:, 0]).numpy(), wanted, atol=1e-3)


@pytest.mark.usefixtures("bag_kernels")
def test_naive_bayes_scales_the_features_of_an_svm():
    labels = np.array([label % 2 for label in LABELS])
    model, made = fitted(task_of("01"), labels.tolist(), orders=(1, 2), naive_bayes=True, C=2.0)
    features = TfidfVectorizer(analyzer="char", lowercase=False, ngram_range=(1, 2)).fit_transform(TEXTS)
    occurs = features.toarray() > 0
    p, q = 1 + occurs[labels == 1].sum(axis=0), 1 + occurs[labels == 0].sum(axis=0)
    ratios = np.log((p / p.sum()) / (q / q.sum()))
    scaled = features.multiply(ratios).tocsr()
    oracle = LinearSVC(C=2.0, tol=1e-9, max_iter=100_000, random_state=0).fit(scaled, labels)
    found = torch.cat([model.classify(batch) for batch in made])
    np.testing.assert_allclose((found[:, 1] - found[:, 0]).numpy(), oracle.decision_function(scaled), atol=2e-3)


def test_several_labels_are_a_classifier_each():
    sets = [[k for k in range(3) if (number + k) % (k + 2) == 0] for number in range(len(TEXTS))]
    assert [] in sets and any(len(each) > 1 for each in sets)
    model, made = fitted(task_of("abc", kind="multi"), [np.array(each, dtype=int) for each in sets], C=5.0)
    assert not model.is_exclusive
    features = TfidfVectorizer(analyzer="char", lowercase=False, ngram_range=(1, 2)).fit_transform(TEXTS)
    found = torch.cat([model.classify(batch) for batch in made]).numpy()
    for k in range(3):
        oracle = LinearSVC(C=5.0, tol=1e-9, max_iter=100_000, random_state=0).fit(features, [k in own for own in sets])
        np.testing.assert_allclose(found[:, k], oracle.decision_function(features), atol=1e-3)


SENTENCES = st.lists(
    st.text(alphabet=st.sampled_from("가나다한글é́👍👨‍👩‍👧🇰🇷 ab.\n"), max_size=15) | st.text(max_size=10),
    min_size=2,
    max_size=6,
)


@settings(deadline=None, max_examples=50)
@given(texts=SENTENCES, buckets=st.sampled_from([0, 64]))
def test_any_texts_can_be_learned_and_padding_changes_nothing(texts, buckets):
    texts = [unicodedata.normalize("NFC", text.encode("utf-8", "ignore").decode()) for text in texts]
    labels = [number % 2 for number in range(len(texts))]
    task = task_of("01", texts=[*texts, "x"])
    model, made = fitted(task, labels, texts, orders=(1, 2, 3), buckets=buckets, values="counts", normalize=False)
    if not buckets:
        wanted = [
            {text[i : i + n]: text.count(text[i : i + n]) for n in (1, 2, 3) for i in range(len(text) - n + 1)}
            for text in texts
        ]
        for found, row, text in zip(named_features(model, made), wanted, texts, strict=True):
            assert set(found) == set(row)
            assert sum(found.values()) == sum(max(0, len(text) - n + 1) for n in (1, 2, 3))
    together = torch.cat([model.classify(batch) for batch in made])
    assert together.isfinite().all()
    alone = torch.cat([model.classify(batch) for batch in batches(task, labels, texts, size=1)])
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-5)
    for batch in made:
        filled = model.classify(Shapes(256, multiple=16).fill(batch))[: len(batch)]
        torch.testing.assert_close(filled, model.classify(batch))


def test_an_unknown_text_has_the_score_of_the_bias():
    task = task_of("01")
    model, _ = fitted(task, [label % 2 for label in LABELS])
    found = torch.cat([model.classify(batch) for batch in batches(task, [0, 0], ["", "ㅎㅎ"])])
    torch.testing.assert_close(found[0, 1] - found[0, 0], model.bias[0])


def test_boundaries_are_ngrams_of_their_own():
    task = task_of("01")
    model, made = fitted(task, [label % 2 for label in LABELS], boundaries=True, values="counts", normalize=False)
    features = named_features(model, made)
    assert {"<s>보", "요</s>"} & set(features[7]) == {"<s>보", "요</s>"}
    assert features[4] == {"<s>": 1.0, "</s>": 1.0, "<s></s>": 1.0}


@pytest.mark.parametrize(
    "wrong, what",
    [
        ({"orders": ()}, "orders"),
        ({"orders": (0,)}, "orders"),
        ({"buckets": 1000}, "power of two"),
        ({"C": 0.0}, "C must be above 0"),
        ({"tolerance": float("nan")}, "tolerance must be above 0"),
        ({"values": "binary", "sublinear": True}, "sublinear has no effect"),
        ({"buckets": 64, "min_count": 2}, "min_count = 2 has no effect"),
    ],
)
def test_wrong_options_are_refused(wrong, what):
    with pytest.raises(ValueError, match=what):
        Config(**wrong)


def test_ngrams_that_cannot_be_numbered_are_refused_with_a_way_out():
    task = task_of("01")
    with pytest.raises(UserError, match="cannot be numbered in 63 bits") as error:
        task.build(find("models", "bag_of_words"), Config(orders=(16,)))
    assert "model.buckets" in str(error.value)


def test_texts_without_classes_are_refused():
    task = task_of("01")
    model = task.build(find("models", "bag_of_words"), Config())
    with pytest.raises(UserError, match="learns classes"):
        list(model.fit([Batch(tokens=torch.ones(1, 2, dtype=torch.long), lengths=torch.tensor([2]))]))
    with pytest.raises(UserError, match="no text to learn from"):
        list(model.fit([]))


@pytest.mark.parametrize("changes", [[], ["model.buckets=4096"], ["model.values=counts", "model.classifier=logistic"]])
def test_a_loaded_run_classifies_as_the_trained_model(changes, tmp_path):
    """Arrays of any length come back from disk, and texts are classified alike together and alone."""
    recipe = read("bag-of-words-miniworld", changes).build()
    run = train(recipe, Options(folder=tmp_path / "run", quiet=True))
    model = mallang.load(run.folder)
    rows = list(open_corpus(recipe.data, ("text", "label")).splits["valid"])
    validated = json.loads((run.folder / "metrics.jsonl").read_text("utf-8").splitlines()[-1])
    scores = {score.name: score.value for score in model.evaluate(rows)[0]}
    assert scores["accuracy"] == pytest.approx(validated["accuracy"]) and scores["accuracy"] > 80
    texts = [rows[0][0], "", "👍 unknown"]
    for text, found in zip(texts, model.classify(texts), strict=True):
        alone = model.classify(text)
        assert (alone.label, alone.probability) == (found.label, pytest.approx(found.probability))
        assert sum(found.probabilities.values()) == pytest.approx(1.0)
