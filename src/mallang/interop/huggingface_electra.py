"""ELECTRA of `transformers` as a run of ours, and back: the discriminator, with its generator in a folder in it.

    FOLDER/              the discriminator: ElectraModel, ElectraForPreTraining or a head of fine-tuning
    FOLDER/generator/    the generator, ElectraForMaskedLM; its embeddings must be those of the discriminator

Its classifiers have a layer of their own before the head, gelu of a linear layer over [CLS]: here `pooling = "pooler"`.
The layer has another name in its head of multiple choice (sequence_summary).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mallang.errors import UserError
from mallang.interop import huggingface_encoders as encoders
from mallang.interop.huggingface_encoders import EMBEDDING, Family, layer_names
from mallang.interop.huggingface_folder import CONFIG, read_json, read_weights, write_folder
from mallang.interop.huggingface_tokenizer import BERT
from mallang.layers.head import ChoiceHead, Headed
from mallang.models.electra import ELECTRA, Config
from mallang.runs.folder import Run
from mallang.runs.weights import own_weights

SUMMARY = {"summary_type": "first", "summary_use_proj": True, "summary_activation": "gelu"}
"""What config.json says of the layer before the head of multiple choice."""
GENERATOR = "generator"
"""The folder of the generator in that of the discriminator."""
APART = "generator:"
"""What is put before the names of the generator's weights."""
NAMES = {
    **EMBEDDING,
    "discriminator.projection": "embeddings_project",
    **layer_names("discriminator.encoder", "encoder.layer"),
    "replaced_head.transform": "discriminator_predictions.dense",
    "replaced_head.output": "discriminator_predictions.dense_prediction",
    "pooler": "classifier.dense",
}
OF_GENERATOR = {
    "generator.projection": "embeddings_project",
    **layer_names("generator.encoder", "encoder.layer"),
    "masked_lm.transform": "generator_predictions.dense",
    "masked_lm.norm": "generator_predictions.LayerNorm",
    "masked_lm.decoder": "generator_lm_head",
}
QUERY_KEY_VALUE = tuple(f"encoder.layer.{{}}.attention.self.{part}" for part in ("query", "key", "value"))


def config_of(about: Mapping[str, Any], given: Mapping[str, Tensor]) -> Config:
    """Our configuration of theirs, with the heads that the weights hold."""
    if "generator_lm_head.bias" in given:
        raise ValueError(f"it is a generator alone; put its folder as {GENERATOR}/ into that of its discriminator")
    if about.get("architectures") == ["ElectraForMultipleChoice"]:
        for key, value in SUMMARY.items():
            if about.get(key, value) != value:
                raise ValueError(f"{key} = {about[key]!r}, and only {value!r} is supported")
    width = about.get(GENERATOR, {"hidden_size": about["hidden_size"]})["hidden_size"] / about["hidden_size"]
    has_head = "discriminator_predictions.dense.weight" in given
    return Config(
        layers=about["num_hidden_layers"], dim=about["hidden_size"], heads=about["num_attention_heads"],
        hidden_dim=about["intermediate_size"], embedding_dim=about.get("embedding_size", 128), generator_width=width,
        max_length=about["max_position_embeddings"], token_types=about.get("type_vocab_size", 2),
        dropout=about.get("hidden_dropout_prob", 0.1),
        attention_dropout=about.get("attention_probs_dropout_prob", 0.1),
        norm_epsilon=about.get("layer_norm_eps", 1e-12), activation=about["hidden_act"],
        pooling="pooler" if "classifier.dense.weight" in given else "first",
        pretraining_heads="both" if GENERATOR in about and has_head else "discriminator" if has_head else "none",
    )  # fmt: skip


class Electra(Family):
    """The names of both networks: those of the generator's own folder have a mark before them."""

    def their_names(self, name: str) -> list[str]:
        """What one of our parameters is called there."""
        found = super().their_names(name)
        return [f"{APART}{each}" for each in found] if name.startswith(("generator.", "masked_lm.")) else found


FAMILY = Electra(
    "electra", ELECTRA, NAMES | OF_GENERATOR, QUERY_KEY_VALUE, ("replaced_head.", "pooler.", "masked_lm."), BERT,
    config_of,
)  # fmt: skip


def import_electra(
    source: Path, folder: Path, *, allow_bin: bool = False, fresh: bool = False, as_pairs: bool = False
) -> Run:
    """A finished run of a folder of ELECTRA, with its generator if that is in it."""
    more: tuple[dict[str, Any], dict[str, Tensor]] = ({}, {})
    if (source / GENERATOR).is_dir():
        more = read_generator(source, allow_bin)
    return encoders.import_encoder(
        FAMILY, source, folder, allow_bin=allow_bin, fresh=fresh, as_pairs=as_pairs, more=more
    )


def read_generator(source: Path, allow_bin: bool) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The configuration and the weights of the generator, if it fits to the discriminator."""
    place = source / GENERATOR
    about, whole = read_json(place / CONFIG), read_json(source / CONFIG)
    weights, _ = read_weights(place, about, allow_bin=allow_bin)
    found = encoders.plain_names(weights, "electra", place)
    theirs = encoders.plain_names(read_weights(source, whole, allow_bin=allow_bin)[0], "electra", source)
    apart = [name for name, value in theirs.items() if name.startswith("embeddings.") and not same(found, name, value)]
    if apart:
        raise UserError(
            f"{apart[0]} is not that of the discriminator, but here both share their embeddings",
            where=str(place),
            todo=f"move {GENERATOR}/ away: the discriminator alone can be imported",
        )
    try:
        shares = [about.get(key, 0) / whole.get(key, 1) for key in SCALED]
    except (TypeError, ArithmeticError) as error:
        raise UserError(f"the sizes of the generator cannot be read: {error}", where=str(place / CONFIG)) from error
    if about.get("num_hidden_layers") != whole.get("num_hidden_layers") or len(set(shares)) > 1:
        raise UserError(
            "the generator must have as many layers as the discriminator, and its size, heads and intermediate_size "
            "must be the same share of those of the discriminator",
            where=str(place / CONFIG),
        )
    kept = {name: value for name, value in found.items() if not name.startswith("embeddings.")}
    return {GENERATOR: about}, {f"{APART}{name}": value for name, value in kept.items()}


SCALED = ("hidden_size", "num_attention_heads", "intermediate_size")
"""The sizes of a generator that are a share of those of its discriminator."""


def same(found: Mapping[str, Tensor], name: str, value: Tensor) -> bool:
    """Whether both networks have the same tensor of this name."""
    return name in found and torch.equal(found[name], value)


def export_electra(verbs: Any, folder: Path) -> str:
    """Write an ELECTRA so that `transformers` loads it, its generator beside it; returns the class there."""
    model: Any = verbs.model.model if isinstance(verbs.model, Headed) else verbs.model
    config: Config = model.config
    weights = own_weights(model)
    of_generator = {name for name in weights if name.startswith(("generator.", "masked_lm."))}
    about = {
        "num_hidden_layers": config.layers, "hidden_size": config.dim, "num_attention_heads": config.heads,
        "intermediate_size": config.hidden_dim or 4 * config.dim, "embedding_size": config.embedding_dim or config.dim,
        "max_position_embeddings": config.max_length, "type_vocab_size": config.token_types,
        "hidden_dropout_prob": config.dropout, "attention_probs_dropout_prob": config.attention_dropout,
        "layer_norm_eps": config.norm_epsilon, "hidden_act": encoders.their_activation(config.activation),
        "classifier_dropout": 0.0,
    }  # fmt: skip
    if isinstance(verbs.model, Headed) and isinstance(verbs.model.head, ChoiceHead):
        about |= {**SUMMARY, "summary_last_dropout": verbs.model.head.dropout.p}
    kept = {name: value for name, value in weights.items() if name not in of_generator}
    name = encoders.write_encoder(FAMILY, verbs, folder, kept, about, "Electra")
    if of_generator and not isinstance(verbs.model, Headed):
        narrow = {n: value for n, value in weights.items() if n in of_generator or n.startswith("embedding.")}
        theirs = {n.replace(APART, ""): value for n, value in encoders.to_theirs(FAMILY, narrow, "electra.").items()}
        sizes = dict(zip(SCALED, config.generator_shape, strict=True))
        whole = read_json(folder / CONFIG)
        write_folder(folder / GENERATOR, theirs, {CONFIG: {**whole, **sizes, "architectures": ["ElectraForMaskedLM"]}})
    return name
