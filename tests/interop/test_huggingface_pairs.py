"""Pairs of texts beside `transformers`: the same ids, segments and logits; exported runs give the same there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import mallang
from interop.test_huggingface_bert import load_tokenizer, ours_of, randomize, save, small_config, wordpiece
from mallang.data.columns import LabelSet
from mallang.errors import UserError
from mallang.interop.huggingface_models import export_model
from mallang.layers.head import Headed
from mallang.models import bert
from mallang.recipe import read
from mallang.runs.weights import own_weights, set_weights
from mallang.tasks import comparer, pairs, similarity
from mallang.training.train import Options, train

transformers = pytest.importorskip("transformers")
PAIRS = [("the cat sat", "on the mat."), ("cat", "the unaffable cat sat on the mat. " * 9), ("", "mats")]
LABELS = ("contradiction", "entailment", "neutral")


def verbs_of(theirs: Any, encoder: Any, name: str = "pairs", **config: Any) -> Any:
    """Our verbs of their encoder, with the head of theirs."""
    both = dict.fromkeys(("first", "second"), encoder.task.text)
    module = {"pairs": pairs, "similarity": similarity}[name]
    task = module.Task(module.Config(**config), both, {"label": LabelSet(LABELS)} if name == "pairs" else {})
    model = task.build(bert, encoder.model.config)
    whole: Any = model.model if isinstance(model, Headed) else model
    set_weights(whole, own_weights(encoder.model), "theirs")
    if isinstance(model, Headed):
        model.head.linear.load_state_dict(theirs.classifier.state_dict())
    return module.Verbs(task, model.eval(), None, 0)


def head_of(folder: Path, labels: int) -> Any:
    """Their classifier with the weights of the encoder in a folder."""
    config = small_config("bert", wordpiece().get_vocab_size())
    config.num_labels = labels
    model = transformers.BertForSequenceClassification(config).eval()
    randomize(model)
    model.bert.save_pretrained(folder)
    return model


@torch.no_grad()
def test_logits_of_pairs_are_those_of_their_classifier_and_go_back_unchanged(tmp_path: Path) -> None:
    save(tmp_path / "theirs", "bert")
    theirs = head_of(tmp_path / "theirs", 3)
    verbs = verbs_of(theirs, ours_of(tmp_path / "theirs", tmp_path / "run"))
    tokenizer = load_tokenizer(tmp_path / "theirs")
    for first, second in PAIRS:
        how = {"truncation": "longest_first", "max_length": 40, "return_token_type_ids": True}
        inputs = tokenizer(first, second, return_tensors="pt", **how)
        batch = verbs.task.collate(verbs.examples([(first, second)]))
        assert batch.tokens.tolist() == inputs["input_ids"].tolist()
        assert batch.token_types.tolist() == inputs["token_type_ids"].tolist()
        torch.testing.assert_close(
            verbs.task.logits(verbs.model, batch)[0], theirs(**inputs).logits, atol=1e-5, rtol=1e-5
        )
    assert "1 of 3 pairs are longer than 40 tokens" in verbs.note_cut(PAIRS)
    assert export_model(verbs, tmp_path / "back") == "BertForSequenceClassification"
    again = transformers.BertForSequenceClassification.from_pretrained(tmp_path / "back").eval()
    torch.testing.assert_close(again(**inputs).logits, theirs(**inputs).logits)
    assert again.config.id2label == dict(enumerate(LABELS))
    verbs.task.layout.layout = "orders"  # as task.both_orders=true makes it
    with pytest.raises(UserError, match="no head that reads a pair in both orders"):
        export_model(verbs, tmp_path / "both")


@torch.no_grad()
def test_a_cross_encoder_goes_there_as_a_regression_and_a_bi_encoder_as_an_encoder(tmp_path: Path) -> None:
    save(tmp_path / "theirs", "bert")
    theirs = head_of(tmp_path / "theirs", 1)
    encoder, tokenizer = ours_of(tmp_path / "theirs", tmp_path / "run"), load_tokenizer(tmp_path / "theirs")
    verbs = verbs_of(theirs, encoder, "similarity")
    inputs = tokenizer(*PAIRS[0], return_tensors="pt", return_token_type_ids=True)
    logit = theirs(**inputs).logits[0, 0]
    assert verbs.similarity(PAIRS[0]).score == pytest.approx(5 * float(logit.sigmoid()), abs=1e-4)
    export_model(verbs, tmp_path / "back")
    again = transformers.BertForSequenceClassification.from_pretrained(tmp_path / "back").eval()
    assert again.config.problem_type == "regression" and again.config.num_labels == 1
    torch.testing.assert_close(again(**inputs).logits[0, 0], logit)
    bi = verbs_of(theirs, encoder, "similarity", kind="bi")
    assert export_model(bi, tmp_path / "vectors") == "BertModel"
    one, two = (theirs.bert(**tokenizer(text, return_tensors="pt")).pooler_output[0] for text in PAIRS[0])
    cosine = float(torch.nn.functional.cosine_similarity(one, two, dim=0))
    assert bi.similarity(PAIRS[0]).score == pytest.approx(5 * cosine, abs=1e-4)
    assert comparer.cosines(encoder, PAIRS[0]).score == pytest.approx(cosine, abs=1e-5)
    assert mallang.load(tmp_path / "run").embed(PAIRS[0][0]) == pytest.approx(bi.embed(PAIRS[0][0]), abs=1e-6)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_pairs_have_the_ids_of_their_tokenizer(family: str, tmp_path: Path) -> None:
    save(tmp_path / "theirs", family)
    encoder, tokenizer = ours_of(tmp_path / "theirs", tmp_path / "run"), load_tokenizer(tmp_path / "theirs")
    both = dict.fromkeys(("first", "second"), encoder.task.text)
    task = pairs.Task(pairs.Config(), both, {"label": LabelSet(LABELS)})
    verbs = pairs.Verbs(task, task.build(bert, encoder.model.config), None, 0)
    for pair in PAIRS:
        batch = task.collate(verbs.examples([pair]))
        found = tokenizer(*pair, truncation="longest_first", max_length=task.layout.most)["input_ids"]
        assert batch.tokens.tolist() == [found]


def test_a_bi_encoder_leaves_the_pooler_of_its_start_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(tmp_path / "theirs", "bert")
    ours_of(tmp_path / "theirs", tmp_path / "run")
    rows = ["sentence1\tsentence2\tscore", *["cat\tcat\t5", "cat\tmat\t1", "the cat\tsat\t2"] * 2]
    (tmp_path / "sts.tsv").write_text("\n".join(rows) + "\n", "utf-8")
    changes = [
        "model.dim=16", "model.layers=2", "model.heads=4", "model.hidden_dim=24", "model.max_length=40",
        f"data.train={tmp_path / 'sts.tsv'}", f"data.valid={tmp_path / 'sts.tsv'}", "train.steps=1",
        "train.workers=0", f"text.vocabulary={len(wordpiece().get_vocab())}", "schedule.warmup=0",
    ]  # fmt: skip
    recipe = read("bert-bi-glue-small-sts-b", changes).build()
    train(recipe, Options(folder=tmp_path / "bi", start=tmp_path / "run", device="cpu"))
    assert "left out: pooler.bias, pooler.weight" in capsys.readouterr().err
    assert set(mallang.load(tmp_path / "bi").model.state_dict()) == {
        name for name in mallang.load(tmp_path / "run").model.state_dict() if "pooler" not in name
    }
    smaller = read("bert-bi-glue-small-sts-b", [*changes, "model.dim=8"]).build()
    with pytest.raises(UserError, match="do not fit"):
        train(smaller, Options(folder=tmp_path / "small", start=tmp_path / "run", device="cpu", quiet=True))
