"""The models that a live page can run, and their configurations as its JavaScript reads them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

from torch import nn

from mallang.models import bahdanau, cho, gpt, luong, modern_gpt, rnn_lm, sutskever, transformer


@cache
def kinds() -> Mapping[type[nn.Module], str]:
    """The classes of models, and their names in the page."""
    files = (transformer, gpt, modern_gpt, rnn_lm, sutskever, cho, bahdanau, luong)
    return {file.Model: file.__name__.rpartition(".")[2] for file in files}


def config_of(model: Any) -> dict[str, Any]:
    """What the page must know of a model beside its weights."""
    if isinstance(model, transformer.Model | gpt.Model | modern_gpt.Model):
        shown = attending(model)
    else:
        shown = recurrent(model)
    return {"kind": kinds()[type(model)], **shown}


def attending(model: Any) -> dict[str, Any]:
    """A model of attention alone; a GPT has the keys of a Transformer's decoder."""
    config = model.config
    found = {key: getattr(config, key) for key in ("dim", "heads", "layers", "norm", "activation", "window")}
    if isinstance(model, transformer.Model):
        found |= {
            "decoder_layers": config.decoder_layers or config.layers,
            "key_dim": config.key_dim,
            "value_dim": config.value_dim,
            "positions": config.positions,
            "windowed": "all",
        }
        return {**found, "scale": model.embedding.scale}
    found |= {"decoder_layers": config.layers, "key_dim": None, "value_dim": None}
    if isinstance(model, gpt.Model):
        return {**found, "positions": "learned", "windowed": config.windowed, "scale": model.embedding.scale}
    own = {key: getattr(config, key) for key in ("positions", "qk_norm", "soft_cap")}
    return {**found, **own, "norm": "pre", "normed": config.norm, "windowed": "all", "scale": 1.0}


def recurrent(model: Any) -> dict[str, Any]:
    """A recurrent model; the sizes of its layers are those of its weights."""
    config = model.config
    if isinstance(model, rnn_lm.Model):
        return {"cell": config.activation if config.cell == "elman" else config.cell, "scale": 1.0, "heads": 0}
    if isinstance(model, luong.Model):
        return {"dim": config.dim, "input_feeding": config.input_feeding, "scale": 1.0, "heads": 1}
    if isinstance(model, bahdanau.Model):
        return {"scale": 1.0, "heads": 1}
    scale = math.sqrt(config.embedding_dim)
    reversed_source = {"reverse_source": config.reverse_source} if isinstance(model, sutskever.Model) else {}
    return {**reversed_source, "scale": scale, "heads": 0}
