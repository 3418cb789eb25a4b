"""Classification of documents: from texts to batches of sentences, within the budget, and back."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mallang.data.batch import IGNORE, Shapes
from mallang.data.columns import LabelSet
from mallang.data.corpus import Rows
from mallang.data.filters import Filters
from mallang.data.loader import gather
from mallang.data.prepared import Prepared, prepare
from mallang.errors import UserError
from mallang.find import find
from mallang.tasks.classification import Config, Task, Verbs
from mallang.text.sentences import split_sentences
from mallang.text.tokenizer import Config as TextConfig
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import EOS, UNK

WORDS = ["물", "밥", "집", "책", "길", "꽃", "배", "산"]
TOKENIZER = Tokenizer.train([" ".join(WORDS)], TextConfig(unit="word", vocabulary=20))
LABELS = LabelSet(("bad", "good"), counts=(1, 1))
sentences = st.lists(st.sampled_from(WORDS), min_size=1, max_size=9).map(lambda words: " ".join(words) + ".")
corpora = st.lists(
    st.tuples(st.lists(sentences, min_size=1, max_size=7).map(" ".join), st.sampled_from(LABELS.names)),
    min_size=1,
    max_size=12,
)
some = settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])


def task_of(**options: Any) -> Task:
    return Task(Config(documents=True, **options), {"text": TOKENIZER}, {"label": LABELS})


def verbs_of(task: Task, **model: Any) -> Verbs:
    torch.manual_seed(5)
    module = find("models", "han")
    built = task.build(module, module.Config(**module.SIZES["tiny"], **model)).eval()
    return Verbs(task, built, None, 0)


def prepared(task: Task, rows: list[tuple[str, str]], folder: Path) -> Prepared:
    return prepare(Rows.of(rows, task.columns), task.arrays(), Filters(max_length=0), folder)


@some
@given(rows=corpora, most=st.integers(2, 10), kept=st.integers(1, 9), tokens=st.integers(30, 120))
def test_every_document_is_read_once_and_says_what_it_said(
    tmp_path: Path, rows: list[tuple[str, str]], most: int, kept: int, tokens: int
) -> None:
    """Texts come back from the rows of all batches, up to `max_sentences`, and no batch exceeds the budget."""
    task = task_of(max_words=most, max_sentences=kept)
    corpus = prepared(task, rows, tmp_path)
    plan = task.plan(corpus, tokens=tokens, seed=1, epoch=0)
    examples, random, seen = task.examples(corpus, 1, 0), np.random.default_rng(1), []
    for number in range(len(plan)):
        batch = task.prepare(gather(examples, plan[number]), random)
        assert batch.sentences is not None and batch.classes is not None
        assert batch.tokens.numel() <= tokens or len(batch.sentences) == 1
        assert batch.tokens.shape[1] <= most + 1 and batch.sentences.shape[1] <= kept
        assert sorted(place for place in batch.sentences.flatten().tolist() if place >= 0) == list(range(len(batch)))
        assert task.counts(batch) == {"loss": len(batch.sentences), "tokens": int(batch.lengths.sum())}
        for (place,), own, label in zip(plan[number], batch.sentences, batch.classes, strict=True):
            seen.append(place)
            text, name = rows[place]
            assert LABELS.names[int(label)] == name
            expected = [TOKENIZER.encode(sentence).ids for sentence in split_sentences(text)]
            found = [batch.tokens[row, : batch.lengths[row]].tolist() for row in own.tolist() if row >= 0]
            assert all(row.pop() == EOS for row in found)
            flat, whole = [*chain(*found)], [*chain(*expected)]
            assert flat == whole[: len(flat)]
            assert len(found) == min(kept, sum(-(-len(each) // most) for each in expected))
    assert sorted(seen) == list(range(len(rows)))


@some
@given(rows=corpora, tokens=st.sampled_from((64, 200)))
@torch.no_grad()
def test_filling_a_batch_changes_neither_losses_nor_counts(
    tmp_path: Path, rows: list[tuple[str, str]], tokens: int
) -> None:
    task = task_of()
    model = verbs_of(task).model
    corpus = prepared(task, rows, tmp_path)
    shapes = Shapes(tokens)
    plan = task.plan(corpus, tokens=tokens, multiple=shapes.multiple, seed=1, epoch=0)
    for number in range(len(plan)):
        batch = task.prepare(gather(corpus, plan[number]), np.random.default_rng(1))
        filled = shapes.fill(batch)
        assert filled.classes is not None and batch.classes is not None and filled.sentences is not None
        assert (filled.classes[len(batch.classes) :] == IGNORE).all()
        assert len(filled) * filled.tokens.shape[1] <= max(tokens, 2 * batch.tokens.numel() + 8 * 8)
        assert task.counts(filled)["loss"] == task.counts(batch)["loss"]
        plain, padded = task.loss(model, batch, None), task.loss(model, filled, None)
        torch.testing.assert_close(padded.sums["loss"], plain.sums["loss"], rtol=1e-5, atol=1e-5)
        assert padded.report["accuracy"] == plain.report["accuracy"]


def test_batches_have_few_shapes(tmp_path: Path) -> None:
    """Engines that capture each shape need the same ones again and again."""
    draw = np.random.default_rng(1)
    rows = [
        (" ".join(" ".join(draw.choice(WORDS, draw.integers(1, 9))) + "." for _ in range(draw.integers(1, 40))), "bad")
        for _ in range(400)
    ]
    task, shapes = task_of(), Shapes(1024)
    corpus = prepared(task, rows, tmp_path)
    plan = task.plan(corpus, tokens=1024, multiple=8, seed=1, epoch=0)
    found = set()
    for number in range(len(plan)):
        batch = shapes.fill(task.prepare(gather(corpus, plan[number]), draw))
        assert batch.sentences is not None
        found.add((*batch.tokens.shape, *batch.sentences.shape))
    assert len(found) <= 12 < len(plan)


def test_predictions_and_vectors_do_not_depend_on_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    verbs = verbs_of(task_of(max_words=4, max_sentences=5))
    texts = ["물 밥.", "집 책 길. 꽃 배 산 물 밥 집. 배.", "산. " * 9, ""]
    together, vectors = verbs.classify(texts), verbs.embed(texts)
    assert vectors.shape == (4, 16) and len({tuple(row) for row in vectors.tolist()}) == 4
    monkeypatch.setattr("mallang.tasks.classifier.BATCH_TOKENS", {"cpu": 1})
    for text, found, vector in zip(texts, together, vectors, strict=True):
        alone = verbs.classify(text)
        assert alone.label == found.label and alone.probability == pytest.approx(found.probability, abs=1e-6)
        np.testing.assert_allclose(verbs.embed(text), vector, atol=1e-6)
    np.testing.assert_allclose(verbs.embed(texts), vectors, atol=1e-6)
    assert verbs.embed([]).shape == (0, 16)


def test_the_order_of_sentences_matters_and_what_is_cut_off_does_not() -> None:
    verbs = verbs_of(task_of(max_sentences=2))
    assert not np.allclose(verbs.embed("물 밥. 집."), verbs.embed("집. 물 밥."), atol=1e-5)
    np.testing.assert_allclose(verbs.embed("물 밥. 집."), verbs.embed("물 밥. 집. 책 길."), atol=1e-6)


def test_word_dropout_keeps_sentences_apart() -> None:
    task = task_of(word_dropout=0.9)
    (example,) = verbs_of(task).examples(["물 밥 집. 책 길 꽃 배."])
    batch = task.prepare([(example,)], np.random.default_rng(1))
    assert batch.lengths.tolist() == [5, 6] and (batch.tokens == UNK).sum() > 4


def test_models_without_sentences_are_refused() -> None:
    module = find("models", "bag_of_means")
    with pytest.raises(UserError, match="models with a level of sentences, and bag_of_means has none"):
        task_of().build(module, module.Config())


def test_tags_of_domains_are_refused() -> None:
    tagged = Tokenizer.train([" ".join(WORDS)], TextConfig(unit="word", vocabulary=20), ["film"])
    with pytest.raises(UserError, match=r"data\.domains puts a tag before a text"):
        Task(Config(documents=True), {"text": tagged}, {"label": LABELS})
