"""Classifiers and taggers of `transformers` with their heads: imported they predict the same, without any training."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

import mallang
from interop.test_huggingface_bert import command, load_tokenizer, randomize, save, some_batch
from mallang.data.choices import Choices
from mallang.errors import UserError
from mallang.interop.huggingface_heads import scheme_of
from mallang.interop.huggingface_models import export_model, import_model
from mallang.tasks.question_reading import cut, read

transformers = pytest.importorskip("transformers")
TEXTS = ["The cat sat on the mat.", "나는 물을 마신다.", "unaffable mats", "cat"]
TAGS = ("O", "I-PER", "B-PER", "B-LOC", "I-LOC")


def changed(folder: Path, **changes: Any) -> None:
    """Change config.json; what is None there is left out."""
    path = folder / "config.json"
    about = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in about.items() if value is not None}))


def with_labels(folder: Path, family: str, kind: str, names: tuple[str, ...], **options: Any) -> Any:
    """A small random model with a head for these labels, as a folder of theirs."""
    save(folder, family)
    config = transformers.AutoConfig.from_pretrained(folder)
    config.id2label, config.label2id = dict(enumerate(names)), {name: place for place, name in enumerate(names)}
    for key, value in options.items():
        setattr(config, key, value)
    config._attn_implementation = "eager"
    model = getattr(transformers, f"{'Bert' if family == 'bert' else 'Roberta'}{kind}")(config).eval()
    randomize(model)
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("family", ["bert", "roberta"])
@torch.no_grad()
def test_logits_of_a_classifier_are_equal_with_padding_segments_and_positions(family: str, tmp_path: Path) -> None:
    theirs = with_labels(tmp_path / "theirs", family, "ForSequenceClassification", ("good", "bad", "neither"))
    import_model(tmp_path / "theirs", tmp_path / "run")
    verbs = mallang.load(tmp_path / "run", device="cpu")
    vocabulary = verbs.task.text.vocabulary
    batch, inputs = some_batch(len(vocabulary), vocabulary.pad, verbs.model.config.token_types)
    logits, _ = verbs.task.logits(verbs.model, batch)
    torch.testing.assert_close(logits, theirs(**inputs).logits, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(logits, theirs(**{**inputs, "position_ids": None}).logits, atol=1e-5, rtol=1e-5)
    expected = theirs(**load_tokenizer(tmp_path / "theirs")(TEXTS, padding=True, return_tensors="pt")).logits.softmax(1)
    for found, shares in zip(verbs.classify(TEXTS), expected, strict=True):
        assert [*found.probabilities] == ["good", "bad", "neither"]
        assert [*found.probabilities.values()] == pytest.approx(shares.tolist(), abs=1e-5)
        assert found.label == theirs.config.id2label[int(shares.argmax())]


@pytest.mark.parametrize("family", ["bert", "roberta"])
@pytest.mark.parametrize("kind", ["ForSequenceClassification", "ForTokenClassification"])
@torch.no_grad()
def test_a_head_goes_back_and_computes_the_same(family: str, kind: str, tmp_path: Path) -> None:
    theirs = with_labels(tmp_path / "theirs", family, kind, TAGS)
    import_model(tmp_path / "theirs", tmp_path / "run")
    assert export_model(mallang.load(tmp_path / "run", device="cpu"), tmp_path / "back") == type(theirs).__name__
    again = type(theirs).from_pretrained(tmp_path / "back").eval()
    inputs = load_tokenizer(tmp_path / "theirs")(TEXTS[:1], return_tensors="pt")
    order = [again.config.label2id[name] for name in TAGS]
    torch.testing.assert_close(again(**inputs).logits[..., order], theirs(**inputs).logits, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_tagger_predicts_the_same_tags_and_reads_their_spans(tmp_path: Path) -> None:
    theirs = with_labels(tmp_path / "theirs", "bert", "ForTokenClassification", TAGS)
    import_model(tmp_path / "theirs", tmp_path / "run")
    verbs, tokenizer = mallang.load(tmp_path / "run", device="cpu"), load_tokenizer(tmp_path / "theirs")
    sentences = [["The", "cat", "sat", "unaffable", "."], ["mats", "물을"], ["나는"]]
    for words, found in zip(sentences, verbs.tag(sentences), strict=True):
        inputs = tokenizer([words], is_split_into_words=True, return_tensors="pt")
        shares = theirs(**inputs).logits[0].softmax(1)
        firsts = [inputs.word_ids(0).index(number) for number in range(len(words))]
        assert found.tags == tuple(TAGS[int(shares[place].argmax())] for place in firsts)
        assert found.probabilities == pytest.approx([float(shares[place].max()) for place in firsts], abs=1e-5)
        assert all(span.type in ("PER", "LOC") for span in found.spans)
        assert bool(found.spans) == any(tag != "O" for tag in found.tags)


@torch.no_grad()
def test_a_tagger_of_byte_level_tokens_reads_every_word_with_the_space_before_it(tmp_path: Path) -> None:
    theirs = with_labels(tmp_path / "theirs", "roberta", "ForTokenClassification", ("ADJ", "NOUN", "VERB"))
    import_model(tmp_path / "theirs", tmp_path / "run")
    verbs = mallang.load(tmp_path / "run", device="cpu")
    words = ["the", "cat", "sat", "on", "mats"]
    ids = [load_tokenizer(tmp_path / "theirs")(f" {word}", add_special_tokens=False)["input_ids"] for word in words]
    logits = theirs(torch.tensor([[0, *(token for word in ids for token in word), 2]])).logits[0].softmax(1)
    starts = [1 + sum(map(len, ids[:number])) for number in range(len(words))]
    found = verbs.tag([words])[0]
    assert found.tags == tuple(theirs.config.id2label[int(logits[place].argmax())] for place in starts)
    assert found.probabilities == pytest.approx([float(logits[place].max()) for place in starts], abs=1e-5)
    assert found.spans == ()


@torch.no_grad()
def test_several_labels_per_text_and_a_missing_tag(tmp_path: Path) -> None:
    theirs = with_labels(
        tmp_path / "theirs", "bert", "ForSequenceClassification", ("a", "b"), problem_type="multi_label_classification"
    )
    import_model(tmp_path / "theirs", tmp_path / "run")
    found = mallang.load(tmp_path / "run", device="cpu").classify(TEXTS[0])
    logits = theirs(**load_tokenizer(tmp_path / "theirs")(TEXTS[0], return_tensors="pt")).logits[0]
    assert [*found.probabilities.values()] == pytest.approx(logits.sigmoid().tolist(), abs=1e-5)
    with_labels(tmp_path / "tags", "bert", "ForTokenClassification", ("O", "B-X", "B-Y", "I-Y"))
    import_model(tmp_path / "tags", tmp_path / "tagger")
    verbs = mallang.load(tmp_path / "tagger", device="cpu")
    assert verbs.task.tags.names == ("O", "B-X", "I-X", "B-Y", "I-Y")
    assert all("I-X" not in found.tags for found in verbs.tag(TEXTS))


@pytest.mark.parametrize("family", ["bert", "roberta"])
@torch.no_grad()
def test_an_imported_head_finds_the_same_answers_and_goes_back(family: str, tmp_path: Path) -> None:
    theirs = with_labels(tmp_path / "theirs", family, "ForQuestionAnswering", ("a", "b"))
    import_model(tmp_path / "theirs", tmp_path / "run")
    verbs = mallang.load(tmp_path / "run", device="cpu")
    question, context = "the cat", "The cat sat on the mat."
    batch = verbs.task.collate([cut(verbs.task, read(verbs.task, question, context, {}), None)[0][1:]])
    inputs = {"input_ids": batch.tokens, "attention_mask": batch.mask.long()}
    inputs |= {"token_type_ids": batch.token_types} if family == "bert" else {}
    ours = verbs.task.logits(verbs.model, batch)[0]
    expected = theirs(**inputs)
    is_candidate = batch.candidates[0]
    for found, wanted in zip(ours[0], (expected.start_logits[0], expected.end_logits[0]), strict=True):
        torch.testing.assert_close(
            found[is_candidate].log_softmax(0), wanted[is_candidate].log_softmax(0), atol=1e-5, rtol=1e-5
        )
    assert verbs.answer(question, context).answer in context
    assert export_model(verbs, tmp_path / "back").endswith("ForQuestionAnswering")
    again = transformers.AutoModelForQuestionAnswering.from_pretrained(tmp_path / "back")(**inputs)
    for name in ("start_logits", "end_logits"):  # the bias, which changes no probability, is zero
        torch.testing.assert_close(again[name].log_softmax(1), expected[name].log_softmax(1), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", ["bert", "roberta"])
@torch.no_grad()
def test_an_imported_head_chooses_the_same_and_goes_back(family: str, tmp_path: Path) -> None:
    theirs = with_labels(tmp_path / "theirs", family, "ForMultipleChoice", ("a", "b"))
    import_model(tmp_path / "theirs", tmp_path / "run")
    verbs = mallang.load(tmp_path / "run", device="cpu")
    question, choices = "the cat", ("sat", "on the mat.", "cat")
    batch = verbs.task.collate(verbs.examples([question], [Choices(choices)]))
    inputs = {"input_ids": batch.tokens[None], "attention_mask": batch.mask.long()[None]}
    inputs |= {"token_type_ids": batch.token_types[None]} if family == "bert" else {}
    expected = theirs(**inputs).logits[0].softmax(0)
    found = verbs.choose(question, choices)
    assert [dict(found.nbest)[choice] for choice in choices] == pytest.approx(expected.tolist(), abs=1e-5)
    assert export_model(verbs, tmp_path / "back").endswith("ForMultipleChoice")
    again = transformers.AutoModelForMultipleChoice.from_pretrained(tmp_path / "back")(**inputs).logits[0]
    torch.testing.assert_close(again.softmax(0), expected, atol=1e-5, rtol=1e-5)


def test_labels_without_names_and_texts_that_are_too_long(tmp_path: Path) -> None:
    model = with_labels(tmp_path / "theirs", "bert", "ForSequenceClassification", ("a", "b"))
    changed(tmp_path / "theirs", id2label=None, label2id=None)
    import_model(tmp_path / "theirs", tmp_path / "run")
    verbs = mallang.load(tmp_path / "run", device="cpu")
    long = verbs.classify("the cat sat on the mat " * 20)
    assert [*long.probabilities] == ["LABEL_0", "LABEL_1"]
    inputs = load_tokenizer(tmp_path / "theirs")("the cat sat on the mat " * 20, truncation=True, max_length=40)
    assert len(inputs["input_ids"]) == 40 and verbs.windows.most == 38
    verbs.windows = replace(verbs.windows, how="cut")
    with torch.no_grad():
        theirs = model(**inputs.convert_to_tensors("pt", prepend_batch_axis=True)).logits.softmax(1)[0]
    found = verbs.classify("the cat sat on the mat " * 20)
    assert [*found.probabilities.values()] == pytest.approx(theirs.tolist(), abs=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["BertForNextSentencePrediction"]}, "the weights hold no classifier"),
        ({"architectures": ["BertForQuestionAnswering"]}, "the weights hold no head of it"),
        ({"architectures": ["BertLMHeadModel"]}, "the head of BertLMHeadModel"),
        ({"problem_type": "regression"}, "a head for regression with 2 outputs cannot be imported"),
        ({"id2label": {"0": "a", "1": "b", "2": "c"}}, "it names 3 labels, and the head has 2 outputs"),
        ({"id2label": {"0": "a", "1": "a"}}, "holds a name twice"),
        ({"id2label": {"first": "a"}}, "id2label cannot be read"),
        ({"classifier_dropout": "high"}, "classifier_dropout = 'high' is no probability"),
        ({"quantization_config": {"quant_method": "bitsandbytes"}}, r"the weights are quantized \(bitsandbytes\)"),
        ({"hidden_size": 1_000_000, "num_attention_heads": 1}, "it says hidden_size = 1000000, and they have 16"),
        ({"intermediate_size": 99}, "it says intermediate_size = 99, and they have 24"),
        ({"max_position_embeddings": 512}, "it says max_position_embeddings = 512, and they have 40"),
        ({"vocab_size": 7}, "it says vocab_size = 7"),
        ({"model_type": "longformer"}, "of type 'longformer', which cannot be imported"),
    ],
)
def test_what_cannot_be_imported_is_named(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with_labels(tmp_path / "theirs", "bert", "ForSequenceClassification", ("a", "b"))
    changed(tmp_path / "theirs", **changes)
    with pytest.raises(UserError, match=message):
        import_model(tmp_path / "theirs", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_weights_that_are_damaged_quantized_or_without_a_head_are_refused(tmp_path: Path) -> None:
    with_labels(tmp_path / "theirs", "bert", "ForSequenceClassification", ("a", "b"))
    path = tmp_path / "theirs" / "model.safetensors"
    whole = path.read_bytes()
    weights = safetensors.torch.load(whole)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="is damaged") as caught:
        import_model(tmp_path / "theirs", tmp_path / "run")
    assert "download or save it again" in (caught.value.todo or "")
    without = {name: value for name, value in weights.items() if not name.startswith("classifier")}
    safetensors.torch.save_file(without, path)
    with pytest.raises(UserError, match="the weights hold no classifier"):
        import_model(tmp_path / "theirs", tmp_path / "run")
    safetensors.torch.save_file({**weights, "classifier.weight": weights["classifier.weight"].to(torch.int8)}, path)
    with pytest.raises(UserError, match=r"the weights are quantized: classifier.weight is int8"):
        import_model(tmp_path / "theirs", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_head_of_gpt2_is_refused(tmp_path: Path) -> None:
    config = transformers.GPT2Config(vocab_size=300, n_positions=16, n_embd=8, n_layer=1, n_head=2, num_labels=2)
    transformers.GPT2ForSequenceClassification(config).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="GPT2ForSequenceClassification cannot be imported: it reads the last"):
        import_model(tmp_path, tmp_path / "run")


def test_the_scheme_of_tags_is_told_from_their_names() -> None:
    assert scheme_of(("O", "B-PER", "I-PER")) == "iob2" and scheme_of(("O", "S-X", "B-X", "I-X", "E-X")) == "bioes"
    assert scheme_of(("O", "I-PER")) == "iob1"
    assert (
        scheme_of(("NOUN", "VERB")) is None and scheme_of(("O", "B-X", "[PAD]")) is None and scheme_of(("O",)) is None
    )


def test_the_commands_classify_and_tag_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with_labels(tmp_path / "theirs", "bert", "ForSequenceClassification", ("good", "bad"))
    with_labels(tmp_path / "tagger", "bert", "ForTokenClassification", TAGS)
    for name in ("theirs", "tagger"):
        command(monkeypatch, "import", name)
    capsys.readouterr()
    command(monkeypatch, "classify", "runs/theirs", "The cat sat.", "--device", "cpu")
    assert "good" in (said := capsys.readouterr().out) or "bad" in said
    command(monkeypatch, "tag", "runs/tagger", "The cat sat.", "--device", "cpu")
    assert "cat" in capsys.readouterr().out
    (tmp_path / "texts.tsv").write_text("the cat sat\tgood\nthe mat on\tbad\n" * 4, "utf-8")
    command(
        monkeypatch, "train", "bert", "--from", "runs/theirs", "--name", "mine", "train.steps=2",
        "data.train=texts.tsv", "data.valid=texts.tsv", "--device", "cpu", "-q",
    )  # fmt: skip
