"""Pairs, similarity, questions and choices in ONNX Runtime give our outputs, for any batch and length."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from interop.test_onnx_encoder import LABELS, TEXTS, built, script_of, text_of
from mallang.data.columns import LabelSet
from mallang.errors import UserError
from mallang.evaluation.label_predictions import Calibration
from mallang.find import find
from mallang.interop import onnx_encoder, onnx_graph, onnx_pair_script
from mallang.text import tokenizer as text_tokenizer

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
PAIRS = [
    ("the cat sat on the mat", "a dog"),
    ("mat", "the dog ran and the cat sat and ran " * 4),
    ("the dog ran " * 5, "the cat sat " * 6),
    ("a cat", "a dog"),
]
QUESTIONS = [
    ("the cat", "the dog ran and the cat sat and ran on a mat"),
    ("a dog", "  the cat  sat on the mat and a dog ran " * 4),
    ("mat", "dog"),
]
SLOW = pytest.mark.slow
COLUMNS = {
    "pairs": ("first", "second"),
    "similarity": ("first", "second"),
    "question_answering": ("question", "context"),
    "multiple_choice": ("question", "choices"),
}


def verbs_of(name: str, model: str, options: dict[str, Any] | None = None, **config: Any) -> Any:
    """A small model for a task, with random weights."""
    module = find("tasks", name)
    labels = {"label": LabelSet(LABELS.names, "labels" if config.get("kind") == "multi" else "label")}
    task = module.Task(
        module.Config(**config), dict.fromkeys(COLUMNS[name], text_of(model)), labels if name == "pairs" else {}
    )
    return module.Verbs(task, built(task, model, options), None, 0)


def check_outputs(verbs: Any, folder: Path) -> None:
    """One row, and batches with padding, of other shapes than it was traced with."""
    session, reader = script_of(folder).session, onnx_graph.Reader(verbs)
    names = onnx_graph.inputs_of(verbs)
    assert [each.name for each in session.get_outputs()] == onnx_graph.outputs_of(verbs)
    for rows, width in ((1, 2), (2, 19), (6, 4)):
        given = onnx_graph.example(verbs, rows, width)
        with torch.no_grad():
            wanted = reader(*given)
        found = session.run(None, {name: each.numpy() for name, each in zip(names, given, strict=True)})
        seen = given[-1].bool().numpy() if onnx_graph.is_by_token(verbs) else slice(None)
        for own, right in zip(found, wanted, strict=True):
            np.testing.assert_allclose(own[seen], right.numpy()[seen], atol=1e-5, rtol=1e-5)


CLASSIFIERS = [
    pytest.param("bert", {"max_length": 24}, {}, id="bert"),
    pytest.param("bert", {}, {"kind": "ordinal", "read": "second", "max_tokens": 9}, id="control", marks=SLOW),
    pytest.param("rnn_classifier", {"cell": "gru", "pooling": "last", "bidirectional": False}, {"kind": "multi"},
                 id="gru", marks=SLOW),
]  # fmt: skip


@pytest.mark.parametrize(("model", "options", "task"), CLASSIFIERS)
def test_pairs_give_our_logits_and_the_script_our_probabilities(
    model: str, options: dict[str, Any], task: dict[str, Any], tmp_path: Path
) -> None:
    verbs = verbs_of("pairs", model, options, **task)
    onnx_encoder.write(verbs, tmp_path / "out")
    check_outputs(verbs, tmp_path / "out")
    for shares, wanted in zip(script_of(tmp_path / "out").predict(PAIRS), verbs.classify(PAIRS), strict=True):
        assert shares == pytest.approx(wanted.probabilities, abs=1e-5)


@pytest.mark.slow
def test_a_gpt_reads_pairs_in_both_orders(tmp_path: Path) -> None:
    """Apart, without the checks of types that tests add: they do not take a tracer's symbolic sizes for ints."""
    of = "test_pairs_give_our_logits_and_the_script_our_probabilities"
    code = f"import sys, pathlib; from interop.test_onnx_pairs import {of} as run; "
    code += "run('gpt', {}, {'both_orders': True}, pathlib.Path(sys.argv[1]))"
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], env={**os.environ, **path}, check=True)
    assert '"orders"' in (tmp_path / "out" / "export.json").read_text("utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(
    "task",
    [
        {"activation": "identity"},
        {"kind": "cross"},
        {"kind": "cross", "lowest": -1.0, "highest": 1.0, "both_orders": True},
        {"kind": "bi"},
    ],
    ids=["linear", "cross", "cross-both-orders", "bi"],
)
def test_similarity_gives_our_scores(task: dict[str, Any], tmp_path: Path) -> None:
    verbs = verbs_of("similarity", "bert", {"pooling": "mean"}, **task)
    onnx_encoder.write(verbs, tmp_path / "out")
    check_outputs(verbs, tmp_path / "out")
    found = script_of(tmp_path / "out").predict(PAIRS)
    assert found == pytest.approx([each.score for each in verbs.similarity(PAIRS)], abs=1e-4)
    assert len({round(score, 3) for score in found}) == len(PAIRS)
    assert script_of(tmp_path / "out").predict([]) == []


@pytest.mark.slow
@pytest.mark.parametrize("model", ["bert", "rnn_tagger"])
@pytest.mark.parametrize("no_answer", [False, True])
def test_questions_have_our_answers_in_windows_too(model: str, no_answer: bool, tmp_path: Path) -> None:
    verbs = verbs_of("question_answering", model, window=20, stride=6, max_answer=4, no_answer=no_answer)
    if no_answer:  # the middle of the margins: some of these questions have an answer, and some have none
        margins = sorted(each.margin for each in scored(verbs))
        verbs.calibration = Calibration(1.0, (sum(margins[:2]) / 2,))
    onnx_encoder.write(verbs, tmp_path / "out")
    check_outputs(verbs, tmp_path / "out")
    found = script_of(tmp_path / "out").predict(QUESTIONS)
    wanted = verbs.answer(*map(list, zip(*QUESTIONS, strict=True)))
    for own, right in zip(found, wanted, strict=True):
        assert (own["answer"], own["start"], own["end"]) == (right.answer, right.start, right.end)
        assert own["probability"] == pytest.approx(right.probability, abs=1e-5)
    assert {bool(own["answer"]) for own in found} == ({True, False} if no_answer else {True})


def scored(verbs: Any) -> Any:
    """What a model says of the questions."""
    module = find("tasks", "question_reading")
    readings = [module.read(verbs.task, *pair, {}) for pair in QUESTIONS]
    return module.score_spans(verbs.task, verbs.model, readings)


@pytest.mark.slow
@pytest.mark.parametrize("read", ["both", "choices"])
def test_choices_have_our_probabilities(read: str, tmp_path: Path) -> None:
    verbs = verbs_of("multiple_choice", "bert", {"max_length": 24}, read=read)
    onnx_encoder.write(verbs, tmp_path / "out")
    check_outputs(verbs, tmp_path / "out")
    found = script_of(tmp_path / "out").predict([("the cat", *TEXTS), ("a dog", "mat", "the cat ran")])
    asked = [("the cat", TEXTS), ("a dog", ["mat", "the cat ran"])]
    for shares, (question, choices) in zip(found, asked, strict=True):
        wanted = dict(verbs.choose(question, choices).nbest)
        assert dict(zip(choices, shares, strict=True)) == pytest.approx(wanted, abs=1e-5)
    with pytest.raises(ValueError, match="there is room for"):
        script_of(tmp_path / "out").predict([("the cat", "a dog " * 20, "mat")])


WRONG = [
    ("pairs", ["one"], "", "example 1 has 1 text, and 2 are needed"),
    ("similarity", ["a", "b", "c"], "", "example 1 has 3 texts, and 2 are needed"),
    ("pairs", [], "", "there is no text"),
    ("pairs", [], "a\tb\n\nc\td\n", "example 2 is blank"),
    ("question_answering", [], "a\tb\nc\n", "example 2 has 1 text, and 2 are needed"),
    ("question_answering", ["", "b"], "", "the question is empty"),
    ("multiple_choice", ["a question"], "", "example 1 has 1 text, and a question and its choices are needed"),
]


class Scripted:
    """A predictor that says the same of all examples."""

    def __init__(self, task: str, output: Any) -> None:
        self.about, self.output = {"task": task}, output

    def predict(self, examples: Any) -> list[Any]:
        if not examples[0][0]:
            raise ValueError("the question is empty")
        return [self.output] * len(examples)


@pytest.mark.parametrize(("task", "arguments", "lines", "reason"), WRONG)
def test_the_script_says_which_texts_it_needs(
    task: str, arguments: list[str], lines: str, reason: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(onnx_pair_script, "Predictor", lambda _: Scripted(task, 0.5))
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    assert onnx_pair_script.main(arguments) == 2
    out, told = capsys.readouterr()
    use = onnx_encoder.USES[task].split()[0]
    assert out == "" and told.splitlines()[0].startswith(f"error: {reason}")
    assert told.splitlines()[1].startswith(f"usage: python predict.py {use}")


def test_the_script_prints_every_choice_with_its_share(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    predictor = Scripted("multiple_choice", [0.25, 0.5, 0.25])
    monkeypatch.setattr(onnx_pair_script, "Predictor", lambda _: predictor)
    assert onnx_pair_script.main(["which", "same", "other", "same"]) == 0
    assert capsys.readouterr().out == "other 0.500  same 0.250  same 0.250\n"


@pytest.mark.parametrize("unit", ["wordpiece", "bpe", "char", "byte-bpe", "word"])
def test_the_script_finds_tokens_in_the_text_where_we_do(unit: str) -> None:
    from mallang.data.answers import offsets_of
    from mallang.interop.onnx_pair_script import places_of

    texts = ["  한국어 문장과 \t 영어 text. ", "가나 é 다", "🙂 말랑", " ", ""]
    tokenizer = text_tokenizer.Tokenizer.train(texts * 3, text_tokenizer.Config(unit=unit, vocabulary=300))
    for text in texts:
        encoded = tokenizer.backend.encode(text, add_special_tokens=False)
        first = tokenizer.backend.id_to_token(encoded.ids[0]) if encoded.ids else ""
        found = places_of(text, encoded.offsets, first, unit)
        np.testing.assert_array_equal(found, offsets_of(tokenizer, text)[1])


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: verbs_of("pairs", "han"), "this HAN cannot be exported to ONNX: it reads documents sentence by"),
        (lambda: verbs_of("similarity", "han"), "this HAN .* sentence by sentence"),
    ],
)
def test_what_cannot_be_exported_is_named(make: Any, reason: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=reason):
        onnx_encoder.write(make(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["pairs", "question_answering"])
def test_vectors_of_another_encoder_are_named(name: str, tmp_path: Path) -> None:
    verbs = verbs_of(name, "bert", **({"window": 20} if name == "question_answering" else {}))
    verbs.task.features = object()  # as given.features makes it
    with pytest.raises(UserError, match=r"it reads more than the tokens of a text: given\.features"):
        onnx_encoder.write(verbs, tmp_path / "out")


def test_a_task_without_a_graph_is_named(tmp_path: Path) -> None:
    verbs = verbs_of("multiple_choice", "bert")
    verbs.task_name = "graph_choice"
    with pytest.raises(UserError, match="this BERT cannot be exported to ONNX: it was trained for graph choice"):
        onnx_encoder.write(verbs, tmp_path / "out")
