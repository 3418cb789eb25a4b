"""What the import and the export of encoders of `transformers` share beyond BERT: a table of names does the rest.

A family says how its parameters are called there and how its configuration is written; queries, keys and values are
three matrices there, and one here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mallang.data.passages import Pairing
from mallang.errors import UserError
from mallang.interop import huggingface_tokenizer as their_tokenizer
from mallang.interop.huggingface_bert import ACTIVATIONS, JOINED, check_fit, named, renamed_norm, unlabeled
from mallang.interop.huggingface_folder import (
    CONFIG,
    check_shapes,
    checked,
    read_json,
    read_weights,
    sums,
    write_folder,
)
from mallang.interop.huggingface_heads import CHOICE, TAGGING, head_of, kind_of, label_names, task_alone, write_run
from mallang.layers.head import ClassificationHead, Headed, TaggingHead
from mallang.runs.folder import Run
from mallang.runs.weights import own_weights, set_weights

ENCODER = {"is_decoder": False, "add_cross_attention": False, "position_embedding_type": "absolute"}
"""What a configuration must say where it says anything of it."""
REPEATED = ("position_ids", "decoder.weight", "decoder.bias", "vocab_projector.weight", "generator_lm_head.weight")
"""Ends of names of tensors that repeat others, or can be computed."""
SUMMARY_LAYER = ("sequence_summary.summary.", "classifier.dense.")
"""What the layer before the head is called in ELECTRA's head of multiple choice, and in its classifiers."""
TABLE = "embeddings.word_embeddings.weight"
SIZED = {
    "max_position_embeddings": "embeddings.position_embeddings.weight",
    "type_vocab_size": "embeddings.token_type_embeddings.weight",
}
"""The keys of config.json that state the number of rows of an embedding."""


@dataclass(frozen=True)
class Family:
    """One family of encoders there."""

    kind: str
    """Its model_type, which is also the prefix of the encoder's names where there is a head."""
    model: type[nn.Module]
    names: Mapping[str, str]
    """Their names of our modules, with {} for the number of a layer."""
    parts: tuple[str, ...]
    """Their names of the queries, keys and values of a layer."""
    heads: tuple[str, ...]
    """What the names of our heads begin with: they have no prefix there."""
    special: Mapping[str, str]
    """The special tokens, where a folder names no others."""
    config_of: Callable[[Mapping[str, Any], Mapping[str, Tensor]], Any]
    """Our configuration of theirs and of the weights."""
    pairs: Pairing = "none"
    """What its head for two texts tells, if there is one."""

    def their_names(self, name: str) -> list[str]:
        """What one of our parameters is called there, without a prefix; three names for queries, keys and values."""
        part, kind = name.rsplit(".", 1)
        number = re.search(r"\.(\d+)\.", name)
        layer = "" if number is None else number[1]
        if JOINED in name:
            return [f"{each.format(layer)}.{kind}" for each in self.parts]
        return [f"{self.names[part.replace(f'.{layer}.', '.{}.', 1) if layer else part].format(layer)}.{kind}"]


def import_encoder(
    family: Family,
    source: Path,
    folder: Path,
    *,
    allow_bin: bool = False,
    fresh: bool = False,
    as_pairs: bool = False,
    more: tuple[Mapping[str, Any], Mapping[str, Tensor]] = ({}, {}),
) -> Run:
    """A finished run with the weights and the tokenizer of a folder of theirs, and with its head.

    `more` is a configuration and weights that are not in its files, such as those of ELECTRA's generator.
    """
    about = {**read_json(source / CONFIG), **more[0]}
    kind = kind_of(about, source / CONFIG)
    weights, files = read_weights(source, about, allow_bin=allow_bin)
    given = plain_names(weights, family.kind, source) | dict(more[1])
    checked(about, {**ENCODER, "tie_word_embeddings": True}, source / CONFIG)
    config = read_config(family, about, given, source)
    head = head_of(kind, about, given, source, as_pairs=as_pairs)
    check_shapes(about, shapes_of(family, given), source / CONFIG)
    tokenizer = their_tokenizer.read_tokenizer(source, family.special, family.kind, spaced=kind == TAGGING)
    check_fit(tokenizer, about, given, source)
    model = family.model(config, tokenizer.vocabulary)
    ours, left = to_ours(family, given, model)
    set_weights(model, ours, files[0])
    told = f" Not read: {', '.join(left)}." if left else ""
    card = f"A {family.kind} that was imported from {source.name}, not trained here.{told}"
    known = sums([source / CONFIG, *files, *their_tokenizer.files_of(source)])
    alone = task_alone(model, family.pairs)
    return write_run(folder, model, head, tokenizer, alone=alone, about=card, sources=known, fresh=fresh)


def shapes_of(family: Family, given: Mapping[str, Tensor]) -> dict[str, int]:
    """The sizes that the weights have, by the keys that config.json may state them by."""
    [up_proj] = [
        theirs for ours, theirs in family.names.items() if ours.endswith("up_proj") and "generator" not in ours
    ]
    sized = {**SIZED, "dim": f"{family.parts[0]}.weight", "hidden_dim": f"{up_proj}.weight"}
    sized |= {"hidden_size": sized["dim"], "intermediate_size": sized["hidden_dim"]}
    found = {key: len(given[name.format(0)]) for key, name in sized.items() if name.format(0) in given}
    before, after = sized["dim"].split("{}")
    layers = sum(name.startswith(before) and name.endswith(after) for name in given)
    found |= {"n_layers": layers, "num_hidden_groups" if family.kind == "albert" else "num_hidden_layers": layers}
    return {**found, "vocab_size": len(given[TABLE]), "embedding_size": given[TABLE].shape[-1]}


def plain_names(weights: Mapping[str, Tensor], kind: str, source: Path) -> dict[str, Tensor]:
    """Their weights without the name of the encoder before them."""
    found = {
        renamed_norm(name.removeprefix(f"{kind}.")).replace(*SUMMARY_LAYER): value for name, value in weights.items()
    }
    if TABLE not in found:
        raise UserError(f"the weights hold no word embeddings of a {kind}", where=str(source))
    return found


def read_config(family: Family, about: Mapping[str, Any], given: Mapping[str, Tensor], source: Path) -> Any:
    """Our configuration of theirs; what we do not have is refused."""
    where = str(source / CONFIG)
    activation = about.get("hidden_act", about.get("activation", "gelu"))
    if activation not in ACTIVATIONS:
        raise UserError(f"the activation {activation!r} is not supported", where=where)
    try:
        return family.config_of({**about, "hidden_act": ACTIVATIONS[activation]}, given)
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise UserError(f"the shape of the model cannot be read: {error}", where=where) from error


def to_ours(family: Family, given: Mapping[str, Tensor], model: nn.Module) -> tuple[dict[str, Tensor], list[str]]:
    """Their weights by our names, and the names of those that were not read."""
    ours: dict[str, Tensor] = {}
    read: set[str] = set()
    for name in own_weights(model):
        theirs = family.their_names(name)
        if all(each in given for each in theirs):
            ours[name] = torch.cat([given[each] for each in theirs])
            read |= set(theirs)
    for name, value in given.items():
        if name.endswith(REPEATED[1:]) and value.dim() == 2 and not torch.equal(value, given[TABLE]):
            raise UserError(f"{name} is not tied to the word embeddings, which is not supported")
    return ours, [name for name in given if name not in read and not name.endswith(REPEATED)]


def to_theirs(family: Family, weights: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Our weights by their names; those of the encoder get a prefix where there is a head."""
    theirs: dict[str, Tensor] = {}
    for name, value in weights.items():
        names = family.their_names(name)
        before = "" if name.startswith(family.heads) else prefix
        theirs |= {f"{before}{each}": part for each, part in zip(names, value.chunk(len(names)), strict=True)}
    return theirs


def write_encoder(
    family: Family, verbs: Any, folder: Path, weights: Mapping[str, Tensor], about: Mapping[str, Any], classes: str
) -> str:
    """Write a run as their class of its head; `classes` is the beginning of the names of these classes."""
    whole, tokenizer = verbs.model, verbs.task.text
    kind, head = "Model", dict[str, Tensor]()
    if isinstance(whole, Headed):
        kind, head = task_head(verbs, whole, "classifier.out_proj" if family.kind == "electra" else "classifier")
    elif (own := whole.config.pretraining_heads) != "none":
        kind = "ForMaskedLM" if own == "masked-lm" else "ForPreTraining"
    prefix = "" if kind == "Model" else f"{family.kind}."
    theirs = to_theirs(family, weights, prefix) | head
    if kind == CHOICE:
        theirs = {name.replace(*SUMMARY_LAYER[::-1]): value for name, value in theirs.items()}
    if kind in ("ForMaskedLM", "ForTokenClassification", "ForQuestionAnswering"):
        theirs = {name: value for name, value in theirs.items() if "pooler" not in name}
    vocabulary = tokenizer.vocabulary
    config = {
        "architectures": [f"{classes}{kind}"], "model_type": family.kind, "vocab_size": len(vocabulary), **about,
        "pad_token_id": vocabulary.pad, "bos_token_id": vocabulary.bos, "eos_token_id": vocabulary.eos,
        **label_names(verbs, kind),
    }  # fmt: skip
    files = their_tokenizer.files_for(tokenizer, max_length=about["max_position_embeddings"])
    write_folder(folder, theirs, {CONFIG: config, **files})
    return f"{classes}{kind}"


def task_head(verbs: Any, whole: Headed, inner: str) -> tuple[str, dict[str, Tensor]]:
    """The end of the name of their class, and the weights of a task's head by their names."""
    head = whole.head
    if whole.features is not None:
        raise UserError("transformers has no head that reads given.features", todo="export another run")
    if whole.mix is not None:
        raise UserError("transformers has no head that reads a mix of layers", todo="train with task.mix_layers=false")
    if isinstance(head, ClassificationHead) and head.bag is None:
        if whole.config.pooling != "pooler":
            raise UserError(
                "a classifier of transformers has a layer between [CLS] and its head, which this run has not",
                todo="train with model.pooling=pooler",
            )
        return "ForSequenceClassification", named(head.linear, inner)
    if isinstance(head, TaggingHead) and head.crf is None:
        return "ForTokenClassification", named(head.scores.linear, "classifier")
    if (found := unlabeled(verbs, head, whole.config)) is not None:
        return found
    raise UserError(f"transformers has no head like the {verbs.task_name} head of this run", todo="export another run")


def their_activation(ours: str) -> str:
    """Their name of an activation."""
    known = {own: theirs for theirs, own in reversed(ACTIVATIONS.items())}
    return known[ours]


def layer_names(ours: str, theirs: str) -> dict[str, str]:
    """The names of the modules of a BERT's layers."""
    return {
        f"{ours}.{{}}.self_attention.output": f"{theirs}.{{}}.attention.output.dense",
        f"{ours}.{{}}.self_norm": f"{theirs}.{{}}.attention.output.LayerNorm",
        f"{ours}.{{}}.feedforward.up_proj": f"{theirs}.{{}}.intermediate.dense",
        f"{ours}.{{}}.feedforward.down_proj": f"{theirs}.{{}}.output.dense",
        f"{ours}.{{}}.feedforward_norm": f"{theirs}.{{}}.output.LayerNorm",
    }


EMBEDDING = {
    "embedding.words": "embeddings.word_embeddings",
    "embedding.positions.table": "embeddings.position_embeddings",
    "embedding.token_types": "embeddings.token_type_embeddings",
    "embedding.norm": "embeddings.LayerNorm",
}
