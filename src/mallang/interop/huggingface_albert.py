"""ALBERT of `transformers` as a run of ours, and back.

num_hidden_groups = 1         sharing = "all"
one group for each layer      sharing = "none"; an export of "attention" or "feed-forward" repeats what is shared
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from mallang.errors import UserError
from mallang.interop.huggingface_encoders import EMBEDDING, Family, import_encoder, their_activation, write_encoder
from mallang.layers.head import Headed
from mallang.models.albert import ALBERT, Config
from mallang.runs.folder import Run
from mallang.runs.weights import own_weights

GROUP = "encoder.albert_layer_groups.{}.albert_layers.0"
NAMES = {
    **EMBEDDING,
    "projection": "encoder.embedding_hidden_mapping_in",
    "attention.{}.self_attention.output": f"{GROUP}.attention.dense",
    "attention.{}.norm": f"{GROUP}.attention.LayerNorm",
    "feedforward.{}.feedforward.up_proj": f"{GROUP}.ffn",
    "feedforward.{}.feedforward.down_proj": f"{GROUP}.ffn_output",
    "feedforward.{}.norm": f"{GROUP}.full_layer_layer_norm",
    "pooler": "pooler",
    "masked_lm.transform": "predictions.dense",
    "masked_lm.norm": "predictions.LayerNorm",
    "masked_lm.decoder": "predictions",
    "sentence_order": "sop_classifier.classifier",
}
SPECIAL = {"pad": "<pad>", "unk": "<unk>", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}


def config_of(about: Mapping[str, Any], given: Mapping[str, Tensor]) -> Config:
    """Our configuration of theirs, with the heads that the weights hold."""
    layers, groups, pooler = about["num_hidden_layers"], about.get("num_hidden_groups", 1), "pooler.weight" in given
    if groups not in (1, layers) or about.get("inner_group_num", 1) != 1:
        raise ValueError(f"{layers} layers in {groups} groups: all must share their weights, or none")
    heads = "both" if "sop_classifier.classifier.weight" in given else "masked-lm"
    return Config(
        layers=layers, dim=about["hidden_size"], heads=about["num_attention_heads"],
        hidden_dim=about["intermediate_size"], embedding_dim=about.get("embedding_size", 128),
        sharing="all" if groups == 1 else "none", max_length=about["max_position_embeddings"],
        token_types=about.get("type_vocab_size", 2), dropout=about.get("hidden_dropout_prob", 0.0),
        attention_dropout=about.get("attention_probs_dropout_prob", 0.0),
        norm_epsilon=about.get("layer_norm_eps", 1e-12), activation=about["hidden_act"],
        pooling="pooler" if pooler else "first", pooler=pooler,
        pretraining_heads=heads if "predictions.bias" in given else "none",  # type: ignore[arg-type]
    )  # fmt: skip


FAMILY = Family(
    "albert", ALBERT, NAMES, (f"{GROUP}.attention.query", f"{GROUP}.attention.key", f"{GROUP}.attention.value"),
    ("masked_lm.", "sentence_order."), SPECIAL, config_of, "order",
)  # fmt: skip


def import_albert(
    source: Path, folder: Path, *, allow_bin: bool = False, fresh: bool = False, as_pairs: bool = False
) -> Run:
    """A finished run of a folder of ALBERT."""
    return import_encoder(FAMILY, source, folder, allow_bin=allow_bin, fresh=fresh, as_pairs=as_pairs)


def export_albert(verbs: Any, folder: Path) -> str:
    """Write an ALBERT so that `transformers` loads it; returns the name of the class there."""
    model: Any = verbs.model.model if isinstance(verbs.model, Headed) else verbs.model
    config: Config = model.config
    if config.embedding_dim is None:
        raise UserError(
            "an ALBERT of transformers has a factorized embedding, and this one has not",
            todo=f"train with model.embedding_dim={config.dim}",
        )
    groups = 1 if config.sharing == "all" else config.layers
    about = {
        "num_hidden_layers": config.layers, "num_hidden_groups": groups, "inner_group_num": 1,
        "hidden_size": config.dim, "embedding_size": config.embedding_dim, "num_attention_heads": config.heads,
        "intermediate_size": config.hidden_dim or 4 * config.dim, "max_position_embeddings": config.max_length,
        "type_vocab_size": config.token_types, "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout, "layer_norm_eps": config.norm_epsilon,
        "hidden_act": their_activation(config.activation),
    }  # fmt: skip
    return write_encoder(FAMILY, verbs, folder, repeated(own_weights(model), groups), about, "Albert")


def repeated(weights: Mapping[str, Tensor], groups: int) -> dict[str, Tensor]:
    """The weights with those that all layers share in every layer."""
    found: dict[str, Tensor] = {}
    numbers = {kind: {name.split(".")[1] for name in weights if name.startswith(f"{kind}.")} for kind in SHARED}
    for name, value in weights.items():
        kind, *rest = name.split(".")
        if kind in SHARED and len(numbers[kind]) < groups:
            found |= {".".join([kind, str(layer), *rest[1:]]): value for layer in range(groups)}
        else:
            found[name] = value
    return found


SHARED = ("attention", "feedforward")
"""The modules that layers may share."""
