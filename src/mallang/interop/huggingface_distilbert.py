"""DistilBERT of `transformers` as a run of ours, and back.

Its classifiers have a layer of their own before the head, relu of a linear layer over [CLS]: here `pooling = "pooler"`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from mallang.interop.huggingface_encoders import EMBEDDING, Family, import_encoder, their_activation, write_encoder
from mallang.interop.huggingface_tokenizer import BERT
from mallang.layers.head import Headed
from mallang.models.distilbert import Config, DistilBERT
from mallang.runs.folder import Run
from mallang.runs.weights import own_weights

LAYER = "transformer.layer.{}"
NAMES = {
    **EMBEDDING,
    "encoder.{}.self_attention.output": f"{LAYER}.attention.out_lin",
    "encoder.{}.self_norm": f"{LAYER}.sa_layer_norm",
    "encoder.{}.feedforward.up_proj": f"{LAYER}.ffn.lin1",
    "encoder.{}.feedforward.down_proj": f"{LAYER}.ffn.lin2",
    "encoder.{}.feedforward_norm": f"{LAYER}.output_layer_norm",
    "pooler": "pre_classifier",
    "masked_lm.transform": "vocab_transform",
    "masked_lm.norm": "vocab_layer_norm",
    "masked_lm.decoder": "vocab_projector",
}


def config_of(about: Mapping[str, Any], given: Mapping[str, Tensor]) -> Config:
    """Our configuration of theirs, with the head that the weights hold."""
    if about.get("sinusoidal_pos_embds", False) and "embeddings.position_embeddings.weight" not in given:
        raise ValueError("positions that are computed are not supported")
    return Config(
        layers=about["n_layers"], dim=about["dim"], heads=about["n_heads"], hidden_dim=about["hidden_dim"],
        max_length=about["max_position_embeddings"], dropout=about.get("dropout", 0.1),
        attention_dropout=about.get("attention_dropout", 0.1), activation=about["hidden_act"],
        pooling="pooler" if "pre_classifier.weight" in given else "first",
        pretraining_heads="masked-lm" if "vocab_projector.bias" in given else "none",
    )  # fmt: skip


FAMILY = Family(
    "distilbert", DistilBERT, NAMES,
    (f"{LAYER}.attention.q_lin", f"{LAYER}.attention.k_lin", f"{LAYER}.attention.v_lin"),
    ("masked_lm.", "pooler."), BERT, config_of,
)  # fmt: skip


def import_distilbert(
    source: Path, folder: Path, *, allow_bin: bool = False, fresh: bool = False, as_pairs: bool = False
) -> Run:
    """A finished run of a folder of DistilBERT."""
    return import_encoder(FAMILY, source, folder, allow_bin=allow_bin, fresh=fresh, as_pairs=as_pairs)


def export_distilbert(verbs: Any, folder: Path) -> str:
    """Write a DistilBERT so that `transformers` loads it; returns the name of the class there."""
    model: Any = verbs.model.model if isinstance(verbs.model, Headed) else verbs.model
    config: Config = model.config
    about = {
        "n_layers": config.layers, "dim": config.dim, "n_heads": config.heads,
        "hidden_dim": config.hidden_dim or 4 * config.dim, "max_position_embeddings": config.max_length,
        "dropout": config.dropout, "attention_dropout": config.attention_dropout, "sinusoidal_pos_embds": False,
        "activation": their_activation(config.activation), "seq_classif_dropout": 0.0,
    }  # fmt: skip
    return write_encoder(FAMILY, verbs, folder, own_weights(model), about, "DistilBert")
