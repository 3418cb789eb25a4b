"""The models that a live page can run, and their configurations as its JavaScript reads them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from mallang.layers.ngram_table import NO_KEY
from mallang.models import (
    bahdanau,
    char_aware,
    cho,
    conv_lm,
    convs2s,
    gpt,
    luong,
    modern_gpt,
    ngram,
    nplm,
    rnn_lm,
    sutskever,
    transformer,
)


@cache
def kinds() -> Mapping[type[nn.Module], str]:
    """The classes of models, and their names in the page."""
    writers = (gpt, modern_gpt, rnn_lm, char_aware, conv_lm, nplm, ngram)
    files = (transformer, convs2s, sutskever, cho, bahdanau, luong, *writers)
    return {file.Model: file.__name__.rpartition(".")[2] for file in files}


def config_of(model: Any) -> dict[str, Any]:
    """What the page must know of a model beside its weights."""
    if isinstance(model, transformer.Model | gpt.Model | modern_gpt.Model):
        shown = attending(model)
    elif isinstance(model, convs2s.Model | conv_lm.Model | nplm.Model):
        shown = windowed(model)
    elif isinstance(model, ngram.Model):
        shown = {"sizes": model.table.sizes.tolist(), "begin": model.config.begin, "heads": 0}
    elif isinstance(model, char_aware.Model):
        shown = spelling(model)
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


def windowed(model: Any) -> dict[str, Any]:
    """A model of convolutions, or of one window; the sizes of its windows are those of its weights."""
    config = model.config
    if isinstance(model, convs2s.Model):
        layers = {"layers": config.layers, "decoder_layers": config.decoder_layers or config.layers}
        return {**layers, "scale": 1.0, "heads": 1}
    blocks = ("gated", "blocks", "block_layers", "bottleneck", "dilation")
    own = blocks if isinstance(model, conv_lm.Model) else ("direct",)
    return {**{key: getattr(config, key) for key in own}, "scale": 1.0, "heads": 0}


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


def spelling(model: Any) -> dict[str, Any]:
    """A model of characters: their ids in order, and how words are spelled."""
    table = model.characters
    return {"letters": [*table.letter_ids], "longest": table.spelling.shape[1], "jamo": table.jamo, "heads": 0}


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """The weights that the page needs, by name; for an n-gram model also its n-grams, by history and last word."""
    found = {name: each.detach().float().cpu() for name, each in model.named_parameters()}
    if isinstance(model, ngram.Model):
        keys, words = model.table.keys.cpu(), model.table.words
        keys = torch.where(keys == NO_KEY, 0, keys)
        found |= {"table.histories": (keys // words).float(), "table.last": (keys % words).float()}
    return found
