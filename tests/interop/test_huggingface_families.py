"""ALBERT, ELECTRA and DistilBERT of `transformers`: imported they compute the same, exported they open again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from interop.test_huggingface_bert import close, load_tokenizer, ours_of, randomize, some_batch, wordpiece
from mallang.data.columns import LabelSet
from mallang.errors import UserError
from mallang.find import find
from mallang.interop.huggingface_models import export_model, import_model
from mallang.layers.attention import record_attention
from mallang.models.albert import ALBERT
from mallang.models.albert import Config as AlbertConfig
from mallang.tasks import classification
from mallang.text.tokenizer import Config as TextConfig
from mallang.text.tokenizer import Tokenizer

transformers = pytest.importorskip("transformers")
SHAPE = {
    "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 24, "embedding_size": 8,
    "max_position_embeddings": 40, "attn_implementation": "eager",
}  # fmt: skip
DISTILBERT = {
    "dim": 16, "n_layers": 3, "n_heads": 4, "hidden_dim": 24, "max_position_embeddings": 40,
    "attn_implementation": "eager",
}  # fmt: skip
NAMES = {"albert": "Albert", "albert-apart": "Albert", "electra": "Electra", "distilbert": "DistilBert"}


def config_of(family: str, words: int, **changes: Any) -> Any:
    kind = getattr(transformers, f"{NAMES[family]}Config")
    if family == "distilbert":
        return kind(vocab_size=words, **{**DISTILBERT, **changes})
    groups = {"num_hidden_groups": 3 if family == "albert-apart" else 1} if family != "electra" else {}
    return kind(vocab_size=words, type_vocab_size=2, **{**SHAPE, **groups, **changes})


def save(folder: Path, family: str, kind: str = "Model", **changes: Any) -> Any:
    """A small random model and its tokenizer, as a folder of theirs."""
    backend = wordpiece()
    model = getattr(transformers, f"{NAMES[family]}{kind}")(
        config_of(family, backend.get_vocab_size(), **changes)
    ).eval()
    randomize(model)
    model.save_pretrained(folder)
    backend.save(str(folder / "tokenizer.json"))
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "cls", "sep", "unk", "mask")}
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **names}))
    return model


def inputs_of(verbs: Any, family: str) -> tuple[Any, dict[str, Any]]:
    vocabulary = verbs.task.text.vocabulary
    batch, inputs = some_batch(len(vocabulary), vocabulary.pad, 2)
    if family == "distilbert":
        inputs.pop("token_type_ids")
    return batch, inputs


def same_weights(theirs: Path, back: Path) -> None:
    before, after = (safetensors.torch.load_file(folder / "model.safetensors") for folder in (theirs, back))
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    about, again = (json.loads((folder / "config.json").read_text()) for folder in (theirs, back))
    kept = [key for key in about if key in again and key not in ("bos_token_id", "eos_token_id")]
    kept = [key for key in kept if "classif" not in key]
    assert {"model_type", "architectures", "vocab_size", "max_position_embeddings"} <= set(kept)
    assert [about[key] for key in kept] == [again[key] for key in kept]


@pytest.mark.parametrize("family", NAMES)
@torch.no_grad()
def test_hidden_states_attentions_and_files_are_equal(family: str, tmp_path: Path) -> None:
    theirs, verbs = save(tmp_path / "theirs", family), ours_of(tmp_path / "theirs", tmp_path / "run")
    batch, inputs = inputs_of(verbs, family)
    expected = theirs(**inputs, output_hidden_states=True, output_attentions=True)
    fused = verbs.model.encode(batch)
    with record_attention(verbs.model) as maps:
        layers = verbs.model.layers_of(batch)
    real = batch.mask
    assert len(layers) == len(expected.hidden_states) == 4 and len(maps) == len(expected.attentions) == 3
    for found, wanted in zip(layers, expected.hidden_states, strict=True):
        if found.shape == wanted.shape:
            close(found[real], wanted[real])
    for found, wanted in zip(fused.layers, expected.hidden_states[1:], strict=True):
        close(found[real], wanted[real])
    for found, wanted in zip(maps.values(), expected.attentions, strict=True):
        close(found.transpose(1, 2)[real], wanted.transpose(1, 2)[real])
    close(fused.pooled, expected.pooler_output if "albert" in family else expected.last_hidden_state[:, 0])
    assert export_model(verbs, tmp_path / "back") == f"{NAMES[family]}Model"
    same_weights(tmp_path / "theirs", tmp_path / "back")
    again, tokenizer = (
        transformers.AutoModel.from_pretrained(tmp_path / "back").eval(),
        load_tokenizer(tmp_path / "back"),
    )
    close(again(**inputs).last_hidden_state, expected.last_hidden_state)
    begin, end = verbs.task.text.vocabulary.frame
    assert tokenizer("The cat sat.")["input_ids"] == [begin, *verbs.task.text.encode("The cat sat.").ids, end]


@pytest.mark.parametrize(
    ("family", "kind"),
    [("albert", "ForPreTraining"), ("albert-apart", "ForMaskedLM"), ("distilbert", "ForMaskedLM"),
     ("electra", "ForPreTraining")],
)  # fmt: skip
@torch.no_grad()
def test_logits_of_the_pre_training_are_equal_and_go_back_unchanged(family: str, kind: str, tmp_path: Path) -> None:
    theirs, verbs = save(tmp_path / "theirs", family, kind), ours_of(tmp_path / "theirs", tmp_path / "run")
    batch, inputs = inputs_of(verbs, family)
    expected, hidden, real = theirs(**inputs), verbs.model(batch), batch.mask
    if family == "electra":
        close(verbs.model.replaced_logits(hidden)[real], expected.logits[real])
    else:
        logits = expected.prediction_logits if kind == "ForPreTraining" else expected.logits
        close(verbs.model.output(hidden[real]), logits[real])
    if family == "albert":
        close(verbs.model.next_sentence_logits(hidden), expected.sop_logits)
    assert export_model(verbs, tmp_path / "back") == f"{NAMES[family]}{kind}"
    same_weights(tmp_path / "theirs", tmp_path / "back")


@torch.no_grad()
def test_both_networks_of_an_electra_come_and_go(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    discriminator = save(folder, "electra", "ForPreTraining")
    half = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 12}
    generator = transformers.ElectraForMaskedLM(config_of("electra", discriminator.config.vocab_size, **half)).eval()
    randomize(generator)
    with pytest.raises(UserError, match="is not that of the discriminator, but here both share") as caught:
        generator.save_pretrained(folder / "generator")
        import_model(folder, tmp_path / "apart")
    assert "move generator/ away" in (caught.value.todo or "")
    generator.electra.embeddings.load_state_dict(discriminator.electra.embeddings.state_dict())
    generator.save_pretrained(folder / "generator")
    verbs = ours_of(folder, tmp_path / "run")
    batch, inputs = inputs_of(verbs, "electra")
    real, model = batch.mask, verbs.model
    close(model.generator_logits(model.generator_hidden(batch))[real], generator(**inputs).logits[real])
    close(model.replaced_logits(model(batch))[real], discriminator(**inputs).logits[real])
    assert verbs.task_name == "replaced_token"
    assert export_model(verbs, tmp_path / "back") == "ElectraForPreTraining"
    same_weights(folder, tmp_path / "back")
    same_weights(folder / "generator", tmp_path / "back" / "generator")
    again = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "back" / "generator").eval()
    close(again(**inputs).logits, generator(**inputs).logits)
    (folder / "generator" / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    with pytest.raises(UserError, match="it is a generator alone"):
        import_model(folder / "generator", tmp_path / "alone")


@pytest.mark.parametrize("family", ["albert", "distilbert", "electra"])
@pytest.mark.parametrize("kind", ["ForSequenceClassification", "ForTokenClassification"])
@torch.no_grad()
def test_heads_of_classifiers_and_taggers_come_and_go(family: str, kind: str, tmp_path: Path) -> None:
    names = {"id2label": {0: "O", 1: "B-PER", 2: "I-PER"}, "label2id": {"O": 0, "B-PER": 1, "I-PER": 2}}
    theirs = save(tmp_path / "theirs", family, kind, **names)
    verbs = ours_of(tmp_path / "theirs", tmp_path / "run")
    batch, inputs = inputs_of(verbs, family)
    expected = theirs(**inputs).logits
    if kind == "ForSequenceClassification":
        assert verbs.task_name == "classification" and verbs.model.config.pooling == "pooler"
        close(verbs.task.logits(verbs.model, batch)[0], expected)
        assert verbs.task.labels.names == ("O", "B-PER", "I-PER")
    else:
        order = [{"O": 0, "B-PER": 1, "I-PER": 2}[name] for name in verbs.task.tags.names]
        close(verbs.model.head(verbs.model.model.encode(batch).layers[-1])[batch.mask], expected[batch.mask][:, order])
    assert export_model(verbs, tmp_path / "back") == f"{NAMES[family]}{kind}"
    again = type(theirs).from_pretrained(tmp_path / "back").eval()
    places = [again.config.label2id[name] for name in ("O", "B-PER", "I-PER")]
    close(again(**inputs).logits[..., places], expected)


@pytest.mark.parametrize(
    ("family", "kind", "task", "pairs"),
    [("albert", "ForPreTraining", "masked_lm", "order"), ("albert", "ForMaskedLM", "masked_lm", "none"),
     ("distilbert", "ForMaskedLM", "masked_lm", "none"), ("electra", "ForPreTraining", "encoding", None)],
)  # fmt: skip
def test_a_model_with_the_heads_of_its_pre_training_is_a_run_of_that(
    family: str, kind: str, task: str, pairs: str | None, tmp_path: Path
) -> None:
    save(tmp_path / "theirs", family, kind)
    verbs = ours_of(tmp_path / "theirs", tmp_path / "run")
    assert verbs.task_name == task
    if pairs is not None:
        assert verbs.task.config.pairs == pairs and len(verbs.fill("the <mask> sat", count=2).gaps[0]) == 2


@pytest.mark.parametrize("name", ["bert", "distilbert"])
def test_a_head_over_a_mix_of_layers_is_not_written_as_another_one(name: str, tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(["a b"], TextConfig(unit="space", vocabulary=20), special=("cls", "sep", "mask"))
    task = classification.Task(
        classification.Config(mix_layers=True), {"text": tokenizer}, {"label": LabelSet(("x", "y"))}
    )
    module = find("models", name)
    model = task.build(module, module.Config(**{**module.SIZES["tiny"], "pooling": "pooler"}))
    with pytest.raises(UserError, match="no head that reads a mix of layers"):
        export_model(classification.Verbs(task, model, None, 0), tmp_path / "back")


@pytest.mark.parametrize("sharing", ["attention", "feed-forward"])
@torch.no_grad()
def test_half_shared_layers_of_an_albert_are_written_for_every_layer(sharing: Any, tmp_path: Path) -> None:
    save(tmp_path / "theirs", "albert")
    verbs = ours_of(tmp_path / "theirs", tmp_path / "run")
    config = AlbertConfig(layers=3, dim=16, heads=4, hidden_dim=24, embedding_dim=8, sharing=sharing, max_length=40)
    verbs.model = ALBERT(config, verbs.task.text.vocabulary).eval()
    randomize(verbs.model)
    batch, inputs = inputs_of(verbs, "albert")
    export_model(verbs, tmp_path / "back")
    again = transformers.AutoModel.from_pretrained(tmp_path / "back").eval()
    close(again(**inputs).last_hidden_state[batch.mask], verbs.model(batch)[batch.mask])


def test_what_is_not_supported_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    save(folder, "albert-apart")
    about = json.loads((folder / "config.json").read_text())
    for key, value, message in (
        ("num_hidden_groups", 2, "3 layers in 2 groups: all must share their weights, or none"),
        ("hidden_act", "silu", "the activation 'silu' is not supported"),
        ("num_attention_heads", 5, "cannot be divided among 5 heads"),
        ("position_embedding_type", "relative_key", "is not supported, only 'absolute'"),
        ("vocab_size", 10**9, "it says vocab_size = 1000000000, and they have"),
        ("intermediate_size", 10**9, "it says intermediate_size = 1000000000, and they have 24"),
        ("architectures", ["AlbertForCausalLM"], "the head of AlbertForCausalLM cannot be imported"),
    ):
        (folder / "config.json").write_text(json.dumps({**about, key: value}))
        with pytest.raises(UserError, match=message):
            import_model(folder, tmp_path / "run")
    verbs = ours_of(save_plain(tmp_path), tmp_path / "plain")
    verbs.model = ALBERT(AlbertConfig(layers=1, dim=16, heads=2, embedding_dim=None), verbs.task.text.vocabulary)
    with pytest.raises(UserError, match="an ALBERT of transformers has a factorized embedding"):
        export_model(verbs, tmp_path / "back")


def save_plain(folder: Path) -> Path:
    save(folder / "again", "albert")
    return folder / "again"
