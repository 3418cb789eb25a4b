"""Attributions of answers, choices and similarity: scores, completeness, and finite differences along the line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from mallang.errors import UserError
from mallang.evaluation.label_predictions import Calibration
from mallang.find import find
from mallang.tasks import (
    answerer,
    attribution,
    chooser,
    comparer,
    multiple_choice,
    question_answering,
    question_reading,
    similarity,
)
from mallang.text.tokenizer import Config as Text
from mallang.text.tokenizer import Tokenizer

from .test_attribution import along_the_line

CONTEXT = "b c d a c b a d c b d a b c"
QUESTION = ("a b", CONTEXT)
CHOICES = ("c a", "b", "d d a", "c")
METHODS = ("gradient", "integrated")


def tokenizer() -> Tokenizer:
    return Tokenizer.train(["a b c d"], Text(unit="space", vocabulary=50), (), ("cls", "sep", "mask"))


def built(task: Any, name: str = "bert", scale: float = 0.3, **options: Any) -> Any:
    torch.manual_seed(2)
    module = find("models", name)
    tiny = {"layers": 1, "dim": 8, "heads": 2, "max_length": 64} if name == "bert" else module.SIZES["tiny"]
    model = task.build(module, module.Config(**tiny | options)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * scale)
    return model


def answers(**config: Any) -> answerer.Verbs:
    shared = tokenizer()
    options: Any = {"window": 12, "stride": 3, "max_answer": 3, **config}
    task = question_answering.Task(question_answering.Config(**options), {"question": shared, "context": shared})
    return answerer.Verbs(task, built(task), None, 0)


def choices(**config: Any) -> chooser.Verbs:
    task = multiple_choice.Task(multiple_choice.Config(**config), dict.fromkeys(("question", "choices"), tokenizer()))
    return chooser.Verbs(task, built(task), None, 0)


def similar(kind: Any, **config: Any) -> comparer.Verbs:
    tokenizers = dict.fromkeys(("first", "second"), tokenizer())
    task = similarity.Task(similarity.Config(kind=kind, **config), tokenizers, {})
    return comparer.Verbs(task, built(task, pooling="mean"), None, 0)


def check(found: attribution.Attribution, method: str) -> None:
    """Scores are explained completely, and nothing is constant."""
    assert np.abs(found.weights).max() > 1e-3
    if method == "gradient":
        assert (found.baseline_score, found.steps) == (None, 1)
        return
    assert sum(found.weights) == pytest.approx(found.difference, rel=0.01, abs=2e-4)
    assert found.error is not None and found.error <= attribution.TOLERANCE


@pytest.mark.parametrize("method", METHODS)
def test_an_answer_has_the_logits_of_its_ends_in_its_most_probable_window(method: Any) -> None:
    verbs = answers()
    found = verbs.attribution(QUESTION, method=method)
    answered = verbs.answer(*QUESTION)
    assert found.label == answered.answer and found.probability == pytest.approx(answered.probability, abs=1e-6)
    check(found, method)
    reading = question_reading.read(verbs.task, *QUESTION, {})
    spans = np.flatnonzero((reading.offsets[:, 0] == answered.start) | (reading.offsets[:, 1] == answered.end))
    first, last = int(spans[0]), int(spans[-1])
    scores = []
    for start, *window in question_reading.cut(verbs.task, reading, None):
        if start <= first and last < start + len(window[1]):
            with torch.no_grad():
                logits = verbs.task.logits(verbs.model, verbs.task.collate([tuple(window)]))[0][0]
            before = 4 - start  # <cls> a b <sep>
            share = logits.log_softmax(1)
            both = float(share[0, before + first] + share[1, before + last])
            scores.append((both, float(logits[0, before + first] + logits[1, before + last])))
    assert len(scores) > 1 and found.score == pytest.approx(max(scores)[1], abs=1e-5)
    tokens = found.tokens
    assert tokens[:4] == ("<cls>", "a", "b", "<sep>") and len(tokens) == 12 and found.baseline == "<mask>"


def test_answers_choices_and_pairs_have_the_weights_of_finite_differences() -> None:
    verbs = answers(window=30)
    batch = verbs.task.collate(
        [question_reading.cut(verbs.task, question_reading.read(verbs.task, *QUESTION, {}), None)[0][1:]]
    )
    quoted = verbs.attribution(QUESTION, label="c d a")
    compare(quoted, verbs, batch, lambda: float(verbs.task.logits(verbs.model, batch)[0][0, [0, 1], [5, 7]].sum()))
    chooses = choices()
    (example,) = chooses.examples([CHOICES[0]], [chooser.as_choices(CHOICES[1:])])
    alone = chooses.task.collate([(example[0], example[1][-1:], example[2][:1], example[3])])  # the last choice
    third = chooses.attribution(CHOICES, label="C")
    assert third.label == "c"
    compare(third, chooses, alone, lambda: float(chooses.task.scores(chooses.model, alone)[0][0, 0]))
    cross = similar("cross")
    pair = cross.task.collate(cross.examples([("a b", "c d d")]))
    found = cross.attribution(("a b", "c d d"))
    compare(found, cross, pair, lambda: float(cross.task.outputs(cross.model, pair)[0][0]))


def compare(found: attribution.Attribution, verbs: Any, batch: Any, score: Any) -> None:
    vocabulary, tokens = verbs.task.text.vocabulary, batch.tokens[0]
    (embedding,) = attribution.token_lookups(verbs.model.model)
    specials = torch.tensor(sorted(vocabulary.specials - {vocabulary.unk}))
    baseline = torch.where(torch.isin(tokens, specials), tokens, attribution.baseline_token(vocabulary))
    with torch.no_grad():
        expected = along_the_line(score, embedding, tokens, baseline)
        assert found.score == pytest.approx(score(), abs=1e-5)
    assert np.abs(expected).max() > 0.01, "the model must not be constant"
    assert found.weights == pytest.approx(expected.tolist(), abs=0.03 * np.abs(expected).sum())


def test_no_answer_is_explained_in_the_window_that_finds_it_least_probable() -> None:
    verbs = answers(no_answer=True)
    verbs.calibration = Calibration(1.0, (-1e9,))
    found = verbs.attribution(QUESTION)
    assert found.label == "no answer" and verbs.answer(*QUESTION).answer == ""
    assert found.probability == pytest.approx(verbs.answer(*QUESTION).no_answer, abs=1e-6)
    scores = []
    for _, *window in question_reading.cut(verbs.task, question_reading.read(verbs.task, *QUESTION, {}), None):
        with torch.no_grad():
            logits = verbs.task.logits(verbs.model, verbs.task.collate([tuple(window)]))[0][0]
        scores.append((float(logits.log_softmax(1)[:, 0].sum()), float(logits[:, 0].sum())))
    assert found.score == pytest.approx(min(scores)[1], abs=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_a_choice_has_its_own_score(method: Any) -> None:
    for config in ({}, {"read": "choices"}):
        verbs = choices(**config)
        chosen = verbs.choose(CHOICES[0], CHOICES[1:])
        found = verbs.attribution(CHOICES, method=method)
        assert (found.label, found.input) == (chosen.choice, CHOICES)
        assert found.probability == pytest.approx(chosen.probability, abs=1e-6)
        check(found, method)
        shown = [word for word in found.tokens if not word.startswith("<")]
        assert shown == [*(CHOICES[0].split() if not config else []), *chosen.choice.split()]
        several = verbs.attribution([CHOICES, CHOICES], method=method, label="b")
        assert [each.label for each in several] == ["b", "b"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("options", [{"kind": "cross"}, {"kind": "cross", "both_orders": True}, {"kind": "bi"}])
def test_a_similarity_is_explained_in_all_rows(options: dict[str, Any], method: Any) -> None:
    verbs = similar(**options)
    found = verbs.attribution(("a b", "c d d"), method=method)
    check(found, method)
    assert len(found.rows) == (1 if options == {"kind": "cross"} else 2)
    assert (found.label, found.probability) == ("similarity", verbs.similarity(("a b", "c d d")).score)
    share = found.score if options["kind"] == "bi" else 1 / (1 + np.exp(-found.score))
    assert 5 * share == pytest.approx(found.probability, abs=1e-4)


def test_what_cannot_be_explained_is_refused() -> None:
    verbs = answers()
    with pytest.raises(UserError, match="the context does not hold 'x'"):
        verbs.attribution(QUESTION, label="x")
    with pytest.raises(UserError, match="longer than the 3 tokens of an answer"):
        verbs.attribution(QUESTION, label="b c d a")
    with pytest.raises(UserError, match="none of the 3 choices"):
        choices().attribution(CHOICES, label="x")
    with pytest.raises(UserError, match="there is no label to explain"):
        similar("bi").attribution(("a", "b"), label="x")
    with pytest.raises(UserError, match="longer than a window of 62 tokens"):
        similar("bi").attribution(("a " * 70, "b"))
