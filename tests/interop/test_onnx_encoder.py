"""Classifiers, taggers and encoders in ONNX Runtime give our logits, for any batch and length."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mallang.data.batch import Batch
from mallang.data.columns import LabelSet
from mallang.errors import UserError
from mallang.find import find
from mallang.interop import onnx_encoder, onnx_encoder_script, onnx_graph
from mallang.interop.onnx_recurrent import in_order
from mallang.tasks import classification, encoding, tagging
from mallang.text import tokenizer as text_tokenizer
from mallang.text.words import split_words

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
TEXTS = ["the cat sat on the mat", "a dog", "mat", "the dog ran and the cat sat and ran"]
LABELS = LabelSet(("good", "bad", "neither"))
TAGS = LabelSet(("O", "B-X", "I-X"), "tags", scheme="iob2")


def text_of(model: str) -> text_tokenizer.Tokenizer:
    special = ("cls", "sep", "mask") if model == "bert" else ()
    unit = "wordpiece" if model == "bert" else "word"
    return text_tokenizer.Tokenizer.train(TEXTS * 2, text_tokenizer.Config(unit=unit, vocabulary=60), special=special)


def classifier(model: str, options: dict[str, Any] | None = None, **task_options: Any) -> classification.Verbs:
    task = classification.Task(
        classification.Config(**task_options), {"text": text_of(model)},
        {"label": LabelSet(LABELS.names, "labels") if task_options.get("kind") == "multi" else LABELS},
    )  # fmt: skip
    return classification.Verbs(task, built(task, model, options), None, 0)


def tagger(model: str, options: dict[str, Any] | None = None, **task_options: Any) -> tagging.Verbs:
    task = tagging.Task(tagging.Config(**task_options), {"words": text_of(model)}, {"tags": TAGS})
    return tagging.Verbs(task, built(task, model, options), None, 0)


def test_the_graph_of_a_tagger_reads_the_mix_of_layers() -> None:
    verbs = tagger("bert", head="softmax", scheme="same", split="spaces", mix_layers=True)
    with torch.no_grad():
        verbs.model.mix.scores.copy_(torch.tensor([1.0, -1.0]))
    tokens, mask = onnx_graph.example(verbs, 2, 5)
    layers = verbs.model.model.encode(Batch(tokens=tokens, lengths=mask.sum(dim=1))).layers
    shares = torch.tensor([1.0, -1.0]).softmax(dim=0)
    wanted = verbs.model.head(shares[0] * layers[0] + shares[1] * layers[1])
    torch.testing.assert_close(onnx_graph.Reader(verbs)(tokens, mask), (wanted,))


def built(task: Any, name: str, options: dict[str, Any] | None) -> Any:
    """A small model with weights large enough that its outputs differ."""
    torch.manual_seed(5)
    module = find("models", name)
    model = task.build(module, module.Config(**{**module.SIZES["tiny"], **(options or {})})).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad and weight.dim() > 1:
                weight.mul_(2.0)
    return model


def script_of(folder: Path) -> Any:
    spec = importlib.util.spec_from_file_location("predict", folder / "predict.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Predictor(folder)


def check_logits(verbs: Any, folder: Path) -> None:
    """One text, several of other lengths than those it was traced with."""
    session, reader = script_of(folder).session, onnx_graph.Reader(verbs)
    for rows, width in ((1, 1), (2, 19), (6, 4)):
        tokens, mask = onnx_graph.example(verbs, rows, width)
        with torch.no_grad():
            (wanted,) = reader(tokens, mask)
        (found,) = session.run(None, {"tokens": tokens.numpy(), "mask": mask.numpy()})
        seen = mask.numpy().astype(bool) if verbs.task_name == "tagging" else slice(None)
        np.testing.assert_allclose(found[seen], wanted.numpy()[seen], atol=1e-5, rtol=1e-5)


SLOW = pytest.mark.slow
CLASSIFIERS = [
    pytest.param("bert", {"layers": 1}, {}, id="bert", marks=SLOW),
    pytest.param("rnn_classifier", {"layers": 2}, {}, id="lstm", marks=SLOW),
    pytest.param(
        "rnn_classifier", {"cell": "gru", "pooling": "last", "bidirectional": False}, {}, id="gru", marks=SLOW
    ),
    pytest.param("cnn", {}, {"kind": "multi"}, id="cnn", marks=SLOW),
    pytest.param("transformer_encoder", {"pooling": "first"}, {"kind": "ordinal"}, id="transformer", marks=SLOW),
    pytest.param("self_attentive", {}, {}, id="self_attentive", marks=SLOW),
    pytest.param("bag_of_means", {}, {}, id="bag_of_means"),
]


@pytest.mark.parametrize(("model", "options", "task"), CLASSIFIERS)
def test_a_classifier_gives_our_logits_and_its_script_our_probabilities(
    model: str, options: dict[str, Any], task: dict[str, Any], tmp_path: Path
) -> None:
    verbs = classifier(model, options, **task)
    onnx_encoder.write(verbs, tmp_path / "out")
    check_logits(verbs, tmp_path / "out")
    found = script_of(tmp_path / "out").predict(TEXTS)
    for shares, wanted in zip(found, verbs.classify(TEXTS), strict=True):
        assert shares == pytest.approx(wanted.probabilities, abs=1e-4)
    with pytest.raises(UserError, match="is there already"):
        onnx_encoder.write(verbs, tmp_path / "out")


@pytest.mark.slow
@pytest.mark.parametrize("model", ["bert", "rnn_tagger"])
def test_a_tagger_gives_our_logits_and_its_script_our_tags(model: str, tmp_path: Path) -> None:
    verbs = tagger(model, head="softmax", scheme="same", split="spaces", mix_layers=model == "bert")
    onnx_encoder.write(verbs, tmp_path / "out")
    check_logits(verbs, tmp_path / "out")
    for pairs, wanted in zip(script_of(tmp_path / "out").predict(TEXTS), verbs.tag(TEXTS), strict=True):
        assert [tag for _, tag in pairs] == list(wanted.tags)
    verbs.task.config = dataclasses.replace(verbs.task.config, split="words")
    onnx_encoder.write(verbs, tmp_path / "words")
    (pairs,) = script_of(tmp_path / "words").predict(["the cat, (a dog)."])
    assert [tag for _, tag in pairs] == list(verbs.tag("the cat, (a dog).").tags) and len(pairs) == 8


@pytest.mark.parametrize("split", ["words", "treebank", "spaces", "characters", "morphemes"])
def test_the_script_splits_words_as_we_do(split: Any, tmp_path: Path) -> None:
    verbs = tagger("rnn_tagger", head="softmax", scheme="same", split=split)
    onnx_encoder.write_rest(verbs, tmp_path, 50)
    script = onnx_encoder_script.Predictor.__new__(onnx_encoder_script.Predictor)
    script.about = json.loads((tmp_path / "export.json").read_text("utf-8"))
    for text in ("I don't, Mr. O'Neil\u2019s 3.14 (AL-AIN)!  민수는  🙂 왔다.", " ", ""):
        wanted = text.split() if split == "morphemes" else [word.text for word in split_words(text, split)]
        assert script.words(text) == wanted
    assert ("Words are morphemes here" in (tmp_path / "README.md").read_text("utf-8")) == (split == "morphemes")


@pytest.mark.slow
def test_an_encoder_gives_our_vectors(tmp_path: Path) -> None:
    task = encoding.Task(encoding.Config(), {"text": text_of("bert")})
    verbs = encoding.Verbs(
        task, built(task, "bert", {"pooling": "mean", "normalized": True, "max_length": 12}), None, 0
    )
    onnx_encoder.write(verbs, tmp_path / "out")
    found = script_of(tmp_path / "out").predict(TEXTS)
    np.testing.assert_allclose(np.stack(found), verbs.embed(TEXTS), atol=1e-4)
    assert json.loads((tmp_path / "out" / "export.json").read_text())["max_tokens"] == 10
    script_of(tmp_path / "out").predict(["the cat " * 30])


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: classifier("bert", bag_buckets=64), "this BERT cannot be exported to ONNX: it reads more than"),
        (lambda: classifier("han", documents=True), "this HAN .* it reads documents sentence by sentence"),
        (lambda: tagger("rnn_tagger", head="crf"), "this RNNTagger .* the search through its CRF is no graph"),
        (lambda: tagger("lstm_crf"), "this LSTMCRF .* CRF"),
        (lambda: classifier("bag_of_words"), "this BagOfWords .* it was fitted without gradients"),
        (lambda: classifier("char_cnn"), "this CharCNN .* torch cannot trace it for texts of any length"),
        (lambda: classifier("elmo"), "this ELMo .* texts of any length"),
        (lambda: tagger("deep_srl", head="softmax", scheme="same"), "this DeepSRL .* texts of any length"),
    ],
)
def test_what_cannot_be_exported_is_named(
    make: Any, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_encoder, "trace", None)  # they are refused before
    with pytest.raises(UserError, match=reason) as told:
        onnx_encoder.write(make(), tmp_path / "out")
    other = "rnn_tagger" if "RNN" in reason or "LSTM" in reason or "DeepSRL" in reason else "cnn"
    assert told.value.todo is not None and f"such as {other} or" in told.value.todo
    assert not (tmp_path / "out").exists()


def test_a_graph_that_computes_something_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison is no formality: a graph of another model is told from this one."""
    verbs = classifier("bag_of_means")
    onnx_encoder.trace(verbs, tmp_path / "model.onnx", 100)
    onnx_encoder.compare(verbs, tmp_path / "model.onnx")
    with torch.no_grad():
        verbs.model.head.linear.bias += 0.01
    with pytest.raises(UserError, match="its graph computes something else"):
        onnx_encoder.compare(verbs, tmp_path / "model.onnx")


def test_a_missing_package_is_told_with_its_install_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(UserError, match="onnxscript") as told:
        onnx_encoder.write(classifier("bag_of_means"), tmp_path / "out")
    assert told.value.todo == "pip install -e '.[export]'"


def test_gates_are_put_in_the_order_of_onnx() -> None:
    assert in_order(torch.tensor([[1.0], [2.0], [3.0], [4.0]]), "lstm").flatten().tolist() == [1.0, 4.0, 2.0, 3.0]
    assert in_order(torch.tensor([[1.0], [2.0], [3.0]]), "gru").flatten().tolist() == [2.0, 1.0, 3.0]
