"""Heads of `transformers` for pairs and choices: scores, the next sentence, NLI, ELECTRA's choices; there and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

import mallang
from interop.test_huggingface_bert import command, load_tokenizer, some_batch
from interop.test_huggingface_families import NAMES, same_weights
from interop.test_huggingface_families import save as save_family
from interop.test_huggingface_heads import changed, with_labels
from interop.test_onnx_encoder import classifier
from mallang.data.choices import Choices
from mallang.errors import UserError
from mallang.interop.huggingface_models import export_model, import_model
from mallang.tasks import classification, multiple_choice, pairs, similarity

transformers = pytest.importorskip("transformers")
PAIRS = [("the cat sat", "on the mat."), ("cat", "the unaffable cat sat on the mat. " * 9), ("", "mats")]
HOW = {"truncation": "longest_first", "max_length": 38, "padding": True, "return_tensors": "pt"}
SIGMOID = {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid"}}


def import_(tmp_path: Path, **options: Any) -> Any:
    import_model(tmp_path / "theirs", tmp_path / "run", **options)
    return mallang.load(tmp_path / "run", device="cpu")


def inputs_for(verbs: Any, segments: bool = True) -> tuple[Any, dict[str, Any]]:
    """A batch with padding, and with segments where the model has them."""
    vocabulary = verbs.task.text.vocabulary
    batch, inputs = some_batch(len(vocabulary), vocabulary.pad, 2 if segments else 1)
    return batch, inputs


def tokens_of(folder: Path, family: str, texts: list[tuple[str, str]]) -> Any:
    """Pairs by their tokenizer, with segments where the model has them."""
    both = map(list, zip(*texts, strict=True))
    return load_tokenizer(folder)(*both, **HOW, return_token_type_ids=family == "bert")


def same_head(before: Path, after: Path) -> None:
    """All tensors, bit by bit."""
    old, new = (safetensors.torch.load_file(folder / "model.safetensors") for folder in (before, after))
    assert old.keys() == new.keys() and all(torch.equal(old[name], new[name]) for name in old)


@pytest.mark.parametrize("family", ["bert", "roberta"])
@pytest.mark.parametrize("config", [{"problem_type": "regression"}, SIGMOID, {}], ids=["regression", "sigmoid", "none"])
@torch.no_grad()
def test_a_head_with_one_output_scores_pairs_and_goes_back(family: str, config: Any, tmp_path: Path) -> None:
    theirs = with_labels(tmp_path / "theirs", family, "ForSequenceClassification", ("score",))
    changed(tmp_path / "theirs", **config)
    verbs = import_(tmp_path)
    assert isinstance(verbs, similarity.Verbs)
    batch, inputs = inputs_for(verbs, family == "bert")
    expected = theirs(**inputs).logits[:, 0]
    torch.testing.assert_close(verbs.task.outputs(verbs.model, batch)[0], expected, atol=1e-5, rtol=1e-5)
    logits = theirs(**tokens_of(tmp_path / "theirs", family, PAIRS)).logits[:, 0]
    wanted = logits.sigmoid() if config is SIGMOID else logits
    verbs.task.layout.most = HOW["max_length"]
    assert [each.score for each in verbs.similarity(PAIRS)] == pytest.approx(wanted.tolist(), abs=1e-5)
    assert export_model(verbs, tmp_path / "back") == type(theirs).__name__
    same_head(tmp_path / "theirs", tmp_path / "back")
    again = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "back").eval()
    assert again.config.num_labels == 1 and again.config.problem_type == "regression"
    torch.testing.assert_close(again(**inputs).logits[:, 0], expected)
    import_model(tmp_path / "back", tmp_path / "twice")
    twice = mallang.load(tmp_path / "twice", device="cpu")
    assert twice.task.config == verbs.task.config
    assert twice.task.config.activation == ("sigmoid" if config is SIGMOID else "identity")


@pytest.mark.parametrize("family", sorted({*NAMES} - {"albert-apart"}))
@torch.no_grad()
def test_other_families_score_pairs_too(family: str, tmp_path: Path) -> None:
    theirs = save_family(
        tmp_path / "theirs", family, "ForSequenceClassification", id2label={0: "score"}, label2id={"score": 0}
    )
    verbs = import_(tmp_path)
    batch, inputs = inputs_for(verbs)
    if family == "distilbert":
        inputs.pop("token_type_ids")
    expected = theirs(**inputs).logits[:, 0]
    torch.testing.assert_close(verbs.task.outputs(verbs.model, batch)[0], expected, atol=1e-5, rtol=1e-5)
    assert export_model(verbs, tmp_path / "back") == type(theirs).__name__
    same_weights(tmp_path / "theirs", tmp_path / "back")


@torch.no_grad()
def test_the_range_of_our_scores_comes_back(tmp_path: Path) -> None:
    with_labels(tmp_path / "theirs", "bert", "ForSequenceClassification", ("score",))
    changed(tmp_path / "theirs", score_range=[-1.0, 3.0], **SIGMOID)
    verbs = import_(tmp_path)
    logit = verbs.task.outputs(verbs.model, verbs.task.collate(verbs.examples(PAIRS[:1])))[0]
    assert verbs.similarity(PAIRS[0]).score == pytest.approx(-1 + 4 * float(logit.sigmoid()), abs=1e-5)
    export_model(verbs, tmp_path / "back")
    assert json.loads((tmp_path / "back" / "config.json").read_text())["score_range"] == [-1.0, 3.0]


@torch.no_grad()
def test_the_head_for_the_next_sentence_classifies_pairs(tmp_path: Path) -> None:
    theirs = with_labels(tmp_path / "theirs", "bert", "ForNextSentencePrediction", ("a", "b"))
    verbs = import_(tmp_path)
    assert isinstance(verbs, pairs.Verbs) and verbs.task.labels.names == ("next", "random")
    batch, inputs = inputs_for(verbs)
    torch.testing.assert_close(verbs.task.logits(verbs.model, batch)[0], theirs(**inputs).logits, atol=1e-5, rtol=1e-5)
    inputs = load_tokenizer(tmp_path / "theirs")(*PAIRS[0], return_tensors="pt", return_token_type_ids=True)
    shares = theirs(**inputs).logits[0].softmax(0)
    assert [*verbs.classify(PAIRS[0]).probabilities.values()] == pytest.approx(shares.tolist(), abs=1e-5)
    assert export_model(verbs, tmp_path / "back") == "BertForSequenceClassification"
    again = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "back").eval()
    torch.testing.assert_close(again(**inputs).logits, theirs(**inputs).logits)


@pytest.mark.parametrize("family", ["bert", "roberta"])
@torch.no_grad()
def test_a_classifier_of_pairs_is_imported_as_one(family: str, tmp_path: Path) -> None:
    labels = ("contradiction", "neutral", "entailment")
    theirs = with_labels(tmp_path / "theirs", family, "ForSequenceClassification", labels)
    verbs = import_(tmp_path, as_pairs=True)
    assert isinstance(verbs, pairs.Verbs)
    verbs.task.layout.most = HOW["max_length"]
    inputs = tokens_of(tmp_path / "theirs", family, PAIRS)
    for found, shares in zip(verbs.classify(PAIRS), theirs(**inputs).logits.softmax(1), strict=True):
        assert [*found.probabilities] == list(labels)
        assert [*found.probabilities.values()] == pytest.approx(shares.tolist(), abs=1e-5)
    assert export_model(verbs, tmp_path / "back") == type(theirs).__name__
    same_head(tmp_path / "theirs", tmp_path / "back")
    import_model(tmp_path / "theirs", tmp_path / "single")
    single = mallang.load(tmp_path / "single", device="cpu")
    assert isinstance(single, classification.Verbs) and not isinstance(single, pairs.Verbs)


@torch.no_grad()
def test_the_choices_of_electra_come_and_go(tmp_path: Path) -> None:
    theirs = save_family(tmp_path / "theirs", "electra", "ForMultipleChoice", summary_last_dropout=0.25)
    with torch.no_grad():
        theirs.classifier.bias.zero_()
    theirs.save_pretrained(tmp_path / "theirs")
    verbs = import_(tmp_path)
    assert isinstance(verbs, multiple_choice.Verbs) and verbs.task.config.head_dropout == 0.25
    choices = ("sat", "on the mat.", "cat")
    batch = verbs.task.collate(verbs.examples(["the cat"], [Choices(choices)]))
    given = {"input_ids": batch.tokens, "attention_mask": batch.mask.long(), "token_type_ids": batch.token_types}
    expected = theirs(**{name: each[None] for name, each in given.items()}).logits[0]
    torch.testing.assert_close(verbs.task.scores(verbs.model, batch)[0][0], expected, atol=1e-5, rtol=1e-5)
    assert export_model(verbs, tmp_path / "back") == "ElectraForMultipleChoice"
    same_weights(tmp_path / "theirs", tmp_path / "back")
    again = transformers.AutoModelForMultipleChoice.from_pretrained(tmp_path / "back").eval()
    torch.testing.assert_close(again(**{name: each[None] for name, each in given.items()}).logits[0], expected)
    changed(tmp_path / "theirs", summary_activation="tanh")
    with pytest.raises(UserError, match="summary_activation = 'tanh', and only 'gelu' is supported"):
        import_model(tmp_path / "theirs", tmp_path / "other")


@pytest.mark.parametrize(
    ("labels", "changes", "as_pairs", "message"),
    [
        (("a", "b"), {"problem_type": "regression"}, False, "a head for regression with 2 outputs cannot be imported"),
        (("a",), {}, True, "--pairs is for a head that classifies"),
        (("a",), {"sentence_transformers": {"activation_fn": "torch.nn.Tanh"}}, False, "'torch.nn.Tanh' of a score"),
        (("a",), {"score_range": [3, 1]}, False, r"score_range = \[3, 1\] is no range of scores"),
    ],
)
def test_what_cannot_be_imported_is_named(
    labels: tuple[str, ...], changes: dict[str, Any], as_pairs: bool, message: str, tmp_path: Path
) -> None:
    with_labels(tmp_path / "theirs", "bert", "ForSequenceClassification", labels)
    changed(tmp_path / "theirs", **changes)
    with pytest.raises(UserError, match=message):
        import_model(tmp_path / "theirs", tmp_path / "run", as_pairs=as_pairs)
    assert not (tmp_path / "run").exists()


def test_a_classifier_on_a_gpt_is_refused_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no GPT-2 with the classification head of this run"):
        export_model(classifier("gpt"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_command_imports_a_model_of_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with_labels(tmp_path / "theirs", "bert", "ForSequenceClassification", ("entailment", "neutral"))
    command(monkeypatch, "import", "theirs", "--pairs", "--name", "nli")
    (tmp_path / "nli.tsv").write_text("the cat sat\ta cat\tentailment\ncat\tmat\tneutral\n", "utf-8")
    capsys.readouterr()
    command(monkeypatch, "evaluate", "runs/nli", "--data", "nli.tsv", "--device", "cpu")
    assert "accuracy" in capsys.readouterr().out
