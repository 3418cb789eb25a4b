"""The model of a run folder is opened without its task, with the weights and the vocabularies it was trained with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import mallang
from mallang.errors import UserError
from mallang.find import find, names
from mallang.models.contract import Encoder, Tagger
from mallang.runs.folder import Run
from mallang.runs.model import arguments_of, open_model
from mallang.runs.weights import own_weights
from runs.small_runs import run_of, write_lines, write_names, write_reviews


def forget(run: Run, key: str) -> Run:
    """The run as an earlier version would have written it: without this key of run.json."""
    info = {name: value for name, value in run.info.items() if name != key}
    (run.folder / "run.json").write_text(json.dumps(info), "utf-8")
    return Run.open(run.folder)


def test_an_encoder_under_a_head_is_opened_without_it(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", "rnn_classifier", write_reviews(tmp_path))
    assert run.info["vocabularies"] == {"vocabulary": "text"}
    opened, loaded = open_model(run), mallang.load(run.folder)
    weights, expected = own_weights(opened.model), own_weights(loaded.model.model)
    assert isinstance(opened.model, Encoder) and not opened.model.training
    assert weights.keys() == expected.keys() and all(weights[name].equal(expected[name]) for name in weights)
    assert opened.tokenizer.fingerprint == loaded.task.text.fingerprint


def test_a_model_of_two_vocabularies_gets_each_by_its_name(tmp_path: Path) -> None:
    pairs = "".join(f"{n} 하나\tone two three {n}\n" for n in range(20))
    (tmp_path / "pairs.tsv").write_text("source\ttarget\n" + pairs, encoding="utf-8")
    changes = ("text.shared=false", "text.unit=char", "model.tie_weights=target")
    run = run_of(tmp_path / "run", "transformer", tmp_path / "pairs.tsv", *changes)
    assert run.info["vocabularies"] == {"vocabulary": "target", "source_vocabulary": "source"}
    for each in (run, forget(run, "vocabularies")):
        opened, loaded = open_model(each), mallang.load(run.folder)
        model = opened.model
        assert model.vocabulary == loaded.model.vocabulary != model.source_vocabulary
        assert model.source_vocabulary == opened.tokenizer.vocabulary
        theirs = own_weights(loaded.model)
        assert all(tensor.equal(theirs[name]) for name, tensor in own_weights(model).items())


def test_a_tagger_with_a_crf_of_its_own_is_an_encoder_without_it(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", "lstm_crf", write_names(tmp_path))
    opened, loaded = open_model(run), mallang.load(run.folder)
    assert isinstance(opened.model, Tagger) and any(name.startswith("crf.") for name in own_weights(loaded.model))
    theirs = own_weights(loaded.model)
    assert {*own_weights(opened.model)} < {*theirs}
    assert all(tensor.equal(theirs[name]) for name, tensor in own_weights(opened.model).items())


def test_a_language_model_is_opened_with_its_output(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", "rnn_lm", write_lines(tmp_path))
    opened, loaded = open_model(forget(run, "vocabularies")), mallang.load(run.folder)
    assert torch.equal(opened.model.head.weight, loaded.model.head.weight)


def test_what_is_nothing_below_its_output_is_refused(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", "bag_of_words", write_reviews(tmp_path))
    with pytest.raises(UserError, match="bag_of_words is a classifier as a whole"):
        open_model(run)


def test_every_constructor_takes_its_vocabularies_by_these_names() -> None:
    """What run.json names are arguments that every model has."""
    assert arguments_of(["source", "target"], reads_source=True) == {
        "vocabulary": "target", "source_vocabulary": "source",
    }  # fmt: skip
    assert arguments_of(["text"], reads_source=True) == {"vocabulary": "text", "source_vocabulary": "text"}
    assert arguments_of(["text"], reads_source=False) == {"vocabulary": "text"}
    for name in names("models"):
        kind = find("models", name).Model
        arguments = kind.__init__.__annotations__
        assert set(arguments_of(["a", "b"], reads_source=kind.reads_source)) <= set(arguments), name
