"""BERT and RoBERTa of `transformers` as runs of ours, and a BERT of ours as a folder that `transformers` loads.

    theirs                                   ours
    BertModel, RobertaModel                  the encoder; its task is encoding, its verb embed
    …ForPreTraining, …ForMaskedLM            the encoder with its heads; its task is masked_lm, its verb fill
    …For… with the head of a task            a run for that task (huggingface_heads.py)

The pooling of a folder of sentence-transformers is read as well (1_Pooling, 2_Normalize), and its max_seq_length, where
the run cuts texts as they do.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from mallang.errors import UserError
from mallang.interop import huggingface_tokenizer as their_tokenizer
from mallang.interop.huggingface_folder import (
    CONFIG,
    check_shapes,
    checked,
    maybe_json,
    read_json,
    read_weights,
    sums,
    write_folder,
)
from mallang.interop.huggingface_heads import TAGGING, head_of, kind_of, label_names, task_alone, write_run
from mallang.layers.head import ChoiceHead, ClassificationHead, Headed, SpanHead, TaggingHead
from mallang.models.bert import BERT, Config
from mallang.runs.folder import Run
from mallang.runs.weights import own_weights, set_weights
from mallang.tasks import chooser
from mallang.tasks.text_windows import ReadsLongTexts
from mallang.text.tokenizer import Tokenizer

ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh", "relu": "relu"}
ROBERTA_TYPES = ("roberta", "xlm-roberta", "camembert")
TYPES = ("bert", *ROBERTA_TYPES)
"""The values of model_type that can be imported."""
NAMES = {
    "embedding.words": "embeddings.word_embeddings",
    "embedding.positions.table": "embeddings.position_embeddings",
    "embedding.token_types": "embeddings.token_type_embeddings",
    "embedding.norm": "embeddings.LayerNorm",
    "encoder.{}.self_attention.output": "encoder.layer.{}.attention.output.dense",
    "encoder.{}.self_norm": "encoder.layer.{}.attention.output.LayerNorm",
    "encoder.{}.feedforward.up_proj": "encoder.layer.{}.intermediate.dense",
    "encoder.{}.feedforward.down_proj": "encoder.layer.{}.output.dense",
    "encoder.{}.feedforward_norm": "encoder.layer.{}.output.LayerNorm",
    "pooler": "pooler.dense",
}
"""The names of the encoder's modules there; queries, keys and values are three matrices there, and one here."""
HEADS = {
    "bert": {
        "masked_lm.transform": "cls.predictions.transform.dense",
        "masked_lm.norm": "cls.predictions.transform.LayerNorm",
        "masked_lm.decoder": "cls.predictions",
        "next_sentence": "cls.seq_relationship",
    },
    "roberta": {
        "masked_lm.transform": "lm_head.dense",
        "masked_lm.norm": "lm_head.layer_norm",
        "masked_lm.decoder": "lm_head",
    },
}
"""The names of the heads of the pre-training."""
WITHOUT_POOLER = ("ForMaskedLM", "ForTokenClassification", "ForQuestionAnswering")
"""The classes there that have no pooler."""
JOINED = "self_attention.query_key_value"
PARTS = ("query", "key", "value")
SIZED = {
    "max_position_embeddings": "embeddings.position_embeddings.weight",
    "type_vocab_size": "embeddings.token_type_embeddings.weight",
    "intermediate_size": "encoder.layer.0.intermediate.dense.weight",
}
"""The keys of config.json that state the number of rows of a tensor."""
SENTENCES = "sentence_bert_config.json"
"""The file of sentence-transformers that says how long a text may be."""
REPEATED = ("position_ids", "decoder.weight", "decoder.bias")
"""Ends of names of tensors that repeat others, or can be computed."""


def import_bert(
    source: Path, folder: Path, *, allow_bin: bool = False, fresh: bool = False, as_pairs: bool = False
) -> Run:
    """A finished run with the weights and the tokenizer of a folder of BERT or RoBERTa, and with its head."""
    about = read_json(source / CONFIG)
    kind = kind_of(about, source / CONFIG)
    weights, files = read_weights(source, about, allow_bin=allow_bin)
    family = "bert" if about.get("model_type") == "bert" else "roberta"
    given = plain_names(weights, source)
    head = head_of(kind, about, given, source, as_pairs=as_pairs)
    config = config_of(about, given, source)
    check_shapes(about, shapes_of(given), source / CONFIG)
    is_wordpiece = family == "bert" or their_tokenizer.files_of(source) == [source / "vocab.txt"]
    usual = their_tokenizer.BERT if is_wordpiece else their_tokenizer.ROBERTA
    tokenizer = their_tokenizer.read_tokenizer(source, usual, about["model_type"], spaced=kind == TAGGING)
    check_fit(tokenizer, about, given, source)
    encoder = BERT(config, tokenizer.vocabulary)
    ours, left = to_ours(given, encoder, family)
    set_weights(encoder, ours, files[0])
    known = sums([source / CONFIG, *files, *their_tokenizer.files_of(source)])
    told = f" Not read: {', '.join(left)}." if left else ""
    card = f"A {about['model_type']} that was imported from {source.name}, not trained here.{told}"
    alone = task_alone(encoder, "next", max_tokens_of(source, config.max_length))
    return write_run(folder, encoder, head, tokenizer, alone=alone, about=card, sources=known, fresh=fresh)


def shapes_of(given: Mapping[str, Tensor]) -> dict[str, int]:
    """The sizes that the weights have, by the keys of config.json."""
    table = given["embeddings.word_embeddings.weight"]
    found = {"vocab_size": len(table), "hidden_size": table.shape[-1], "num_hidden_layers": layers_of(given)}
    for key, name in SIZED.items():
        if name in given:
            found[key] = len(given[name])
    return found


def layers_of(given: Mapping[str, Tensor]) -> int:
    """The number of layers that the weights have."""
    return len({name.split(".")[2] for name in given if name.startswith("encoder.layer.")})


def plain_names(weights: Mapping[str, Tensor], source: Path) -> dict[str, Tensor]:
    """Their weights without the name of the encoder before them, and by today's names of a norm's two vectors.

    The first layer of the head of RoBERTa's classifiers is our pooler.
    """
    found: dict[str, Tensor] = {}
    for name, value in weights.items():
        plain = name.removeprefix("bert.").removeprefix("roberta.")
        found[renamed_norm(plain).replace("classifier.dense.", "pooler.dense.")] = value
    if "embeddings.word_embeddings.weight" not in found:
        raise UserError("the weights hold no word embeddings of a BERT", where=str(source))
    return found


def renamed_norm(name: str) -> str:
    """The name of a weight with today's names of a norm's two vectors."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def config_of(about: Mapping[str, Any], given: Mapping[str, Tensor], source: Path) -> Config:
    """Our configuration of theirs, with the heads that the weights hold; what we do not have is refused."""
    where, family = source / CONFIG, str(about.get("model_type"))
    if family not in TYPES:
        raise UserError(f"the model is of type {family!r}, and not one of {', '.join(TYPES)}", where=str(where))
    expected = {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False}
    checked(about, {**expected, "tie_word_embeddings": True}, where)
    if (activation := about.get("hidden_act", "gelu")) not in ACTIVATIONS:
        raise UserError(f"the activation {activation!r} is not supported", where=str(where))
    try:
        offset = int(about.get("pad_token_id", 1)) + 1 if family != "bert" else 0
        pooler = "pooler.dense.weight" in given
        return Config(
            layers=about["num_hidden_layers"], dim=about["hidden_size"], heads=about["num_attention_heads"],
            hidden_dim=about["intermediate_size"], max_length=about["max_position_embeddings"] - offset,
            token_types=about.get("type_vocab_size", 2), position_offset=offset,
            dropout=about.get("hidden_dropout_prob", 0.1),
            attention_dropout=about.get("attention_probs_dropout_prob", 0.1),
            norm_epsilon=about.get("layer_norm_eps", 1e-12), activation=ACTIVATIONS[activation],  # type: ignore[arg-type]
            pooler=pooler, pretraining_heads=heads_of(given, pooler=pooler), **pooling_of(source, pooler=pooler),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"the shape of the model cannot be read: {error}", where=str(where)) from error


def heads_of(given: Mapping[str, Tensor], *, pooler: bool) -> Literal["none", "masked-lm", "both"]:
    """The heads of the pre-training that the weights hold."""
    if "cls.predictions.bias" not in given and "lm_head.bias" not in given:
        return "none"
    return "both" if pooler and "cls.seq_relationship.weight" in given else "masked-lm"


def pooling_of(source: Path, *, pooler: bool) -> dict[str, Any]:
    """How the vector of a text is made: as sentence-transformers says, else by the pooler, if there is one."""
    about = maybe_json(source / "1_Pooling" / CONFIG)
    if not about:
        return {"pooling": "pooler" if pooler else "first"}
    modes = {
        key.removeprefix("pooling_mode_"): value for key, value in about.items() if key.startswith("pooling_mode_")
    }
    on = [key for key, value in modes.items() if value is True] or [str(about.get("pooling_mode"))]
    known = {"mean_tokens": "mean", "mean": "mean", "cls_token": "first", "cls": "first"}
    if len(on) != 1 or on[0] not in known:
        where = str(source / "1_Pooling" / CONFIG)
        raise UserError(f"the pooling {' + '.join(on)} is not supported, only mean and cls", where=where)
    modules = source / "modules.json"
    normalized = modules.exists() and "Normalize" in modules.read_text("utf-8", errors="replace")
    return {"pooling": known[on[0]], "normalized": normalized}


def max_tokens_of(source: Path, most: int) -> int:
    """The number of tokens at which sentence-transformers cuts a text, at most that of the positions; 0: not said."""
    found = maybe_json(source / SENTENCES).get("max_seq_length")
    if found is None:
        return 0
    if not isinstance(found, int) or found < 1:
        raise UserError(f"max_seq_length = {found!r} is no number of tokens", where=str(source / SENTENCES))
    return min(found, most)


def check_fit(tokenizer: Tokenizer, about: Mapping[str, Any], given: Mapping[str, Tensor], source: Path) -> None:
    """Refuse a tokenizer that does not fit the weights: another number of words, or another pad id."""
    rows, words = len(given["embeddings.word_embeddings.weight"]), len(tokenizer.vocabulary)
    if rows != words:
        raise UserError(
            f"the tokenizer does not fit the weights: it has {words:,} tokens, and the weights have {rows:,}",
            where=str(source),
            todo="take the tokenizer that the model was trained with",
        )
    pad = about.get("pad_token_id")
    if pad is not None and pad != tokenizer.vocabulary.pad:
        raise UserError(
            f"the tokenizer does not fit the weights: it pads with id {tokenizer.vocabulary.pad}, {CONFIG} with {pad}",
            where=str(source),
            todo="take the tokenizer that the model was trained with",
        )


def their_name(name: str, family: str) -> str:
    """What one of our parameters is called there, without a prefix."""
    part, kind = name.rsplit(".", 1)
    number = next((piece for piece in part.split(".") if piece.isdigit()), None)
    key = part if number is None else part.replace(f".{number}.", ".{}.", 1)
    return f"{(NAMES | HEADS[family])[key].format(number)}.{kind}"


def part_names(name: str) -> list[str]:
    """The names of the three tensors there that are one of ours."""
    _, number, rest = name.split(".", 2)
    return [f"encoder.layer.{number}.attention.self.{part}.{rest.rsplit('.', 1)[1]}" for part in PARTS]


def to_ours(given: Mapping[str, Tensor], model: BERT, family: str) -> tuple[dict[str, Tensor], list[str]]:
    """Their weights by our names, and the names of those that were not read."""
    ours: dict[str, Tensor] = {}
    read: set[str] = set()
    for name in own_weights(model):
        theirs = part_names(name) if JOINED in name else [their_name(name, family)]
        if all(each in given for each in theirs):
            ours[name] = torch.cat([given[each] for each in theirs])
            read |= set(theirs)
    table = given["embeddings.word_embeddings.weight"]
    for name, value in given.items():
        if name.endswith("decoder.weight") and model.masked_lm is not None and not torch.equal(value, table):
            raise UserError(f"{name} is not tied to the word embeddings, which is not supported")
    return ours, [name for name in given if name not in read and not name.endswith(REPEATED)]


def to_theirs(weights: Mapping[str, Tensor], family: str, prefix: str) -> dict[str, Tensor]:
    """Our weights by their names; those of the encoder get a prefix where there is a head."""
    theirs: dict[str, Tensor] = {}
    for name, value in weights.items():
        if JOINED in name:
            theirs |= {f"{prefix}{each}": part for each, part in zip(part_names(name), value.chunk(3), strict=True)}
        else:
            is_head = name.startswith(("masked_lm.", "next_sentence."))
            theirs[("" if is_head else prefix) + their_name(name, family)] = value
    return theirs


def export_bert(verbs: Any, folder: Path) -> str:
    """Write a BERT so that `transformers` loads it; returns the name of the class there."""
    whole, tokenizer = verbs.model, verbs.task.text
    model: Any = whole.model if isinstance(whole, Headed) else whole
    config: Config = model.config
    family = "roberta" if config.position_offset else "bert"
    if family == "roberta" and tokenizer.vocabulary.pad != config.position_offset - 1:
        raise UserError(
            f"a RoBERTa of transformers counts positions from its pad id + 1, which is "
            f"{tokenizer.vocabulary.pad + 1} here, but position_offset is {config.position_offset}",
            todo=f"train with model.position_offset={tokenizer.vocabulary.pad + 1}, or 0 for a BERT",
        )
    kind, head = head_for(verbs, whole, family)
    prefix = "" if kind == "Model" else f"{family}."
    weights = to_theirs(own_weights(model), family, prefix) | head
    if family == "roberta" and kind == "ForSequenceClassification":  # their head holds what is our pooler
        for part in ("weight", "bias"):
            weights[f"classifier.dense.{part}"] = weights.pop(f"{prefix}pooler.dense.{part}")
    if kind in WITHOUT_POOLER:
        weights = {name: value for name, value in weights.items() if not name.startswith(f"{prefix}pooler.")}
    name = f"{'Bert' if family == 'bert' else 'Roberta'}{kind}"
    about = {"architectures": [name], **config_for(config, tokenizer, family), **label_names(verbs, kind)}
    files = {CONFIG: about, **their_tokenizer.files_for(tokenizer, max_length=config.max_length)}
    write_folder(folder, weights, {**files, **sentence_files(config, verbs)})
    return name


def head_for(verbs: Any, whole: Any, family: str) -> tuple[str, dict[str, Tensor]]:
    """The end of the name of their class, and the weights of a task's head by their names."""
    if not isinstance(whole, Headed):
        return {"none": "Model", "masked-lm": "ForMaskedLM", "both": "ForPreTraining"}[
            whole.config.pretraining_heads
        ], {}
    head = whole.head
    if whole.features is not None:
        raise UserError("transformers has no head that reads given.features", todo="export another run")
    if whole.mix is not None:
        raise UserError("transformers has no head that reads a mix of layers", todo="train with task.mix_layers=false")
    if isinstance(head, ClassificationHead) and head.bag is None:
        if whole.config.pooling != "pooler" or whole.config.normalized:
            raise UserError("their classifier reads the pooler", todo="train with model.pooling=pooler")
        inner = "classifier.out_proj" if family == "roberta" else "classifier"
        return "ForSequenceClassification", named(head.linear, inner)
    if isinstance(head, TaggingHead) and head.crf is None:
        return "ForTokenClassification", named(head.scores.linear, "classifier")
    if (found := unlabeled(verbs, head, whole.config)) is not None:
        return found
    raise UserError(f"transformers has no head like the {verbs.task_name} head of this run", todo="export another run")


def unlabeled(verbs: Any, head: Any, config: Any) -> tuple[str, dict[str, Tensor]] | None:
    """The class and the weights of a head that finds answers, or scores choices; none for other heads."""
    if isinstance(head, SpanHead):
        return "ForQuestionAnswering", with_bias(head.linear, "qa_outputs")
    if not isinstance(head, ChoiceHead) or not isinstance(verbs, chooser.Verbs) or verbs.task.config.read != "both":
        return None
    if config.pooling != "pooler":
        raise UserError("their head of choices reads the pooler", todo="train with model.pooling=pooler")
    return "ForMultipleChoice", with_bias(head.linear, "classifier")


def with_bias(linear: torch.nn.Linear, name: str) -> dict[str, Tensor]:
    """The weights of a linear layer without a bias by another name, with one of zeros."""
    return {f"{name}.weight": linear.weight, f"{name}.bias": torch.zeros(linear.out_features)}


def named(linear: torch.nn.Linear, name: str) -> dict[str, Tensor]:
    """The weights of a linear layer by another name."""
    return {f"{name}.weight": linear.weight, f"{name}.bias": linear.bias}


def config_for(config: Config, tokenizer: Tokenizer, family: str) -> dict[str, Any]:
    """Their description of our model."""
    known = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    vocabulary = tokenizer.vocabulary
    return {
        "model_type": family, "num_hidden_layers": config.layers, "hidden_size": config.dim,
        "num_attention_heads": config.heads, "intermediate_size": config.hidden_dim or 4 * config.dim,
        "max_position_embeddings": config.max_length + config.position_offset, "vocab_size": len(vocabulary),
        "type_vocab_size": config.token_types, "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout, "layer_norm_eps": config.norm_epsilon,
        "hidden_act": known[config.activation], "position_embedding_type": "absolute",
        "pad_token_id": vocabulary.pad, "bos_token_id": vocabulary.bos, "eos_token_id": vocabulary.eos,
    }  # fmt: skip


def sentence_files(config: Config, verbs: Any) -> dict[str, Any]:
    """The files that tell sentence-transformers how texts are cut and pooled; none where the pooler does it."""
    if isinstance(verbs.model, Headed) or config.pooling == "pooler":
        return {}
    most = config.max_length
    if isinstance(verbs, ReadsLongTexts):
        most = verbs.windows.most + verbs.task.text.vocabulary.frame_length
    names = ["Transformer", "Pooling", *(["Normalize"] if config.normalized else [])]
    kind = "sentence_transformers.models"
    modules = [
        {"idx": number, "name": str(number), "path": f"{number}_{name}" if number else "", "type": f"{kind}.{name}"}
        for number, name in enumerate(names)
    ]
    pooling = {"word_embedding_dimension": config.dim, "pooling_mode_cls_token": config.pooling == "first"}
    pooling |= {"pooling_mode_mean_tokens": config.pooling == "mean"}
    about = {"max_seq_length": most, "do_lower_case": False}
    return {"modules.json": modules, "1_Pooling/config.json": pooling, SENTENCES: about}
