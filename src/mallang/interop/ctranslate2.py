"""A trained Transformer as a CTranslate2 model: the same weights under other names, and what is needed to run it.

CTranslate2 (https://github.com/OpenNMT/CTranslate2) is a runtime in C++ that needs neither torch nor mallang. The
folder that is written holds its model, our tokenizers and a script `translate.py` that puts them together.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from mallang.errors import UserError, require
from mallang.interop.folder import transformer_of, write_folder
from mallang.interop.positions import position_table, positions_of
from mallang.models.transformer import Config, Transformer
from mallang.tasks.translator import Verbs
from mallang.text.tokenizer_files import names

BLOCK = (
    ("self_attention/layer_norm", "self_norm"),
    ("self_attention/linear_0", "self_attention.query_key_value"),
    ("self_attention/linear_1", "self_attention.output"),
    ("ffn/layer_norm", "feedforward_norm"),
    ("ffn/linear_0", "feedforward.up_proj"),
    ("ffn/linear_1", "feedforward.down_proj"),
)
"""Their name and ours for each part of a block. Both keep W^Q, W^K and W^V in one matrix, in this order."""
CROSS = (
    ("attention/layer_norm", "cross_norm"),
    ("attention/linear_0", "cross_attention.query"),
    ("attention/linear_1", "cross_attention.key_value"),
    ("attention/linear_2", "cross_attention.output"),
)
"""Their name and ours for each additional part of a decoder block."""


def write(model: Verbs, folder: Path, *, int8: bool = False) -> None:
    """Write a folder that CTranslate2 opens; with `int8` its matrices are whole numbers, a quarter of the size."""
    transformer = transformer_of(model)
    check(transformer.config)
    specification = specify(transformer, names(model.task.source.backend), names(model.task.target.backend), int8=int8)
    with write_folder(model, folder, kind="ctranslate2", positions=positions_of(transformer)) as draft:
        specification.save(os.fspath(draft))


def check(config: Config) -> None:
    """Refuse what CTranslate2 has no word for."""
    share = config.dim // config.heads
    key_dim, value_dim = config.key_dim or share, config.value_dim or share
    if config.window is not None:
        raise UserError(
            f"CTranslate2 has no restricted self-attention, but the model has window = {config.window}",
            todo="mallang export --to onnx, or train with model.window=none",
        )
    if config.norm == "none":
        raise UserError(
            'CTranslate2 has no Transformer without layer normalization, but the model has norm = "none"',
            todo="mallang export --to onnx, or train with model.norm=pre",
        )
    if key_dim != value_dim:
        raise UserError(
            f"CTranslate2 has one size for keys and values, but the model has key_dim {key_dim} and "
            f"value_dim {value_dim}",
            todo="mallang export --to onnx, or train with model.key_dim and model.value_dim alike",
        )


def specify(model: Transformer, source: Sequence[str], target: Sequence[str], *, int8: bool = False) -> Any:
    """The model as a specification of CTranslate2, ready to be saved."""
    specs = require("ctranslate2.specs", "export")
    config = model.config
    shape = {
        "num_heads": config.heads,
        "pre_norm": config.norm == "pre",
        "activation": getattr(specs.Activation, {"relu": "RELU", "gelu": "GELU"}[config.activation]),
        "head_dim": config.key_dim,
    }
    encoder = specs.TransformerEncoderSpec(len(model.encoder), **shape)
    decoder = specs.TransformerDecoderSpec(len(model.decoder), **shape)
    specification = specs.TransformerSpec(encoder, decoder)
    fill_stack(encoder, model.encoder, model.encoder_norm, BLOCK)
    fill_stack(decoder, model.decoder, model.decoder_norm, BLOCK + CROSS)
    encoder.embeddings[0].weight = array(model.source_embedding.table.weight)
    encoder.position_encodings.encodings = array(position_table(model.source_embedding))
    decoder.embeddings.weight = array(model.embedding.table.weight)
    decoder.position_encodings.encodings = array(position_table(model.embedding))
    decoder.projection.weight = array(model.head.weight)
    specification.register_source_vocabulary(list(source))
    specification.register_target_vocabulary(list(target))
    specification.config.add_source_eos = True
    specification.config.layer_norm_epsilon = model.encoder[0].self_norm.eps  # type: ignore[union-attr]
    specification.validate()
    specification.optimize(quantization="int8" if int8 else "float32")
    return specification


def fill_stack(spec: Any, blocks: nn.ModuleList, last: nn.Module, table: Sequence[tuple[str, str]]) -> None:
    """Give every layer of a stack its weights, and the norm at its end if there is one."""
    index = require("ctranslate2.specs.model_spec", "export").index_spec
    for layer, block in zip(spec.layer, blocks, strict=True):
        for theirs, ours in table:
            fill(index(layer, theirs), block.get_submodule(ours))
    if isinstance(last, nn.LayerNorm):
        fill(spec.layer_norm, last)


def fill(spec: Any, module: nn.Module) -> None:
    """One matrix with its bias, or one norm."""
    weight, bias = (array(getattr(module, name)) for name in ("weight", "bias"))
    if isinstance(module, nn.LayerNorm):
        spec.gamma, spec.beta = weight, bias
    else:
        spec.weight, spec.bias = weight, bias


def array(tensor: Tensor) -> Any:
    """A tensor as CTranslate2 takes it."""
    return tensor.detach().float().cpu().numpy()
