"""A trained Transformer as two ONNX graphs: the encoder, and a decode step with a KV cache.

    encoder.onnx   source[batch, source], lengths[batch] → mask, memory.0.keys, memory.0.values, memory.1.keys, …
    step.onnx      tokens[batch, time], mask, memory.…, past.0.keys, past.0.values, … → logits, next.0.keys, …

The outputs `next.…` of a step are the inputs `past.…` of the following one; at the start the cache has length 0. Batch
and lengths are dynamic axes. The folder also holds the tokenizers and a script `translate.py`: greedy search in numpy.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mallang.errors import require
from mallang.interop.folder import transformer_of, write_folder
from mallang.interop.positions import position_table, positions_of
from mallang.layers.attention import Mask, padding_mask
from mallang.layers.block import Block
from mallang.layers.embedding import Embedding
from mallang.models.transformer import Transformer
from mallang.tasks.translator import Verbs

OPSET = 18
"""The version of ONNX's operators: old enough for runtimes of the last years."""
LARGEST = 1_500_000_000
"""Bytes of weights that one file may hold; ONNX allows 2 GB. Those of larger models lie beside the graph."""


def write(model: Verbs, folder: Path) -> None:
    """Write a folder with the graphs of a trained Transformer and all that is needed to use them."""
    for package in ("onnx", "onnxscript", "onnxruntime"):
        require(package, "export")
    transformer = transformer_of(model)
    with write_folder(model, folder, kind="onnx", positions=positions_of(transformer)) as draft:
        parts = [f"{layer}.{side}" for layer in range(len(transformer.decoder)) for side in ("keys", "values")]
        memory, past, grown = ([f"{name}.{part}" for part in parts] for name in ("memory", "past", "next"))
        batch, source, time, before = (torch.export.Dim(name) for name in ("batch", "source", "time", "past"))
        with exporting(transformer) as device:
            read = Reader(transformer)
            given: tuple[Any, ...] = (torch.full((3, 4), 5, device=device), torch.tensor([4, 3, 2], device=device))
            mask, *remembered = read(*given)
            shapes: tuple[Any, ...] = ({0: batch, 1: source}, {0: batch})
            save(draft / "encoder.onnx", read, given, shapes, (["source", "lengths"], ["mask", *memory]))
            # What was said before has another length than the source, or their axes would be taken for one.
            said = [tensor.repeat(1, 1, 2, 1)[:, :, :7].contiguous() for tensor in remembered]
            given = (torch.full((3, 2), 5, device=device), mask, remembered, said)
            over = [{0: batch, 2: source}] * len(parts), [{0: batch, 2: before}] * len(parts)
            shapes = ({0: batch, 1: time}, {0: batch, 1: source}, *over)
            names = ["tokens", "mask", *memory, *past], ["logits", *grown]
            save(draft / "step.onnx", Writer(transformer), given, shapes, names)


class Reader(nn.Module):
    """The encoder, and the cross-attention keys and values of every decoder layer."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model.eval()
        self.positions = position_table(model.source_embedding)
        self.eval()

    def forward(self, source: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        """The source mask, and the projected keys and values of the source for each decoder layer."""
        places = torch.arange(source.shape[1], device=source.device)
        real = places < lengths[:, None]
        mask = padding_mask(real, self.model.config.window)
        x = embed(self.model.source_embedding, source, self.positions[places])
        for block in self.model.encoder:
            x = feed(block, look_around(block, x, None, mask)[0])
        memory = self.model.encoder_norm(x)
        return real, *(tensor for block in self.model.decoder for tensor in block.remember(memory))


class Writer(nn.Module):
    """One step of the decoder, over one token or several."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model.eval()
        self.positions = position_table(model.embedding)
        self.eval()

    def forward(self, tokens: Tensor, real: Tensor, memory: list[Tensor], past: list[Tensor]) -> tuple[Tensor, ...]:
        """The logits after each token, and the extended KV cache."""
        before, time, window = past[0].shape[2], tokens.shape[1], self.model.config.window
        places = torch.arange(before + time, device=tokens.device)
        back = places[before:, None] - places[None, :]
        seen = (back >= 0) if window is None else (back >= 0) & (back <= window)
        x = embed(self.model.embedding, tokens, self.positions[places[before:]])
        grown: list[Tensor] = []
        for number, block in enumerate(self.model.decoder):
            here = slice(2 * number, 2 * number + 2)
            x, own = look_around(block, x, past[here], seen[None, None])
            x = feed(block, look_back(block, x, memory[here], padding_mask(real)))
            grown += own
        return self.model.output(self.model.decoder_norm(x)), *grown


def embed(embedding: Embedding, tokens: Tensor, positions: Tensor) -> Tensor:
    """The vectors of tokens that stand at these positions."""
    vectors: Tensor = embedding.table(tokens) * embedding.scale + positions
    return vectors


def look_around(block: Block, x: Tensor, past: list[Tensor] | None, mask: Mask) -> tuple[Tensor, list[Tensor]]:
    """The self-attention of a block, and the keys and values it saw.

    Written out here with plain tensors: whatever the search keeps its keys and values in is not for a graph.
    """
    attention = block.self_attention
    packed = attention.query_key_value(block.enter(x, block.self_norm))
    queries, keys, values = map(attention.split_heads, packed.split(attention.sizes, dim=-1))
    if past is not None:
        keys, values = (torch.cat(pair, dim=2) for pair in zip(past, (keys, values), strict=True))
    return block.leave(x, attention.attend(queries, keys, values, mask), block.self_norm), [keys, values]


def look_back(block: Block, x: Tensor, memory: list[Tensor], mask: Mask) -> Tensor:
    """The cross-attention of a block."""
    attention = block.cross_attention
    queries = attention.split_heads(attention.query(block.enter(x, block.cross_norm)))
    keys, values = memory
    return block.leave(x, attention.attend(queries, keys, values, mask), block.cross_norm)


def feed(block: Block, x: Tensor) -> Tensor:
    """The feed-forward network of a block."""
    return block.leave(x, block.feedforward(block.enter(x, block.feedforward_norm)), block.feedforward_norm)


def save(
    path: Path, module: nn.Module, given: tuple[Any, ...], shapes: tuple[Any, ...], names: tuple[list[str], list[str]]
) -> None:
    """Trace one graph with free axes and write it."""
    size = sum(weight.numel() * weight.element_size() for weight in module.parameters())
    program = torch.onnx.export(
        module, given, dynamo=True, verbose=False, opset_version=OPSET, dynamic_shapes=shapes,
        input_names=names[0], output_names=names[1],
    )  # fmt: skip
    assert program is not None
    program.save(path, external_data=size > LARGEST)


@contextmanager
def exporting(model: nn.Module) -> Iterator[torch.device]:
    """Without gradients, in evaluation mode, and without what torch's exporter says to its own developers.

    On the CPU: on a GPU a step has kernels of our own, which no other program knows.
    """
    log = logging.getLogger("torch.onnx._internal.exporter._registration")
    level, training, device = log.level, model.training, next(model.parameters()).device
    log.setLevel(logging.ERROR)  # that torchvision, which we do not use, is not installed
    try:
        with torch.no_grad(), warnings.catch_warnings():
            # torch 2.13 asks its own tree of arguments in a way that it has itself declared old.
            warnings.filterwarnings("ignore", "`isinstance\\(treespec, LeafSpec\\)` is deprecated", FutureWarning)
            # An axis that several inputs share is named by the first of them, which is what we want.
            warnings.filterwarnings("ignore", "# The axis name: (\\w+) will not be used.*axis: \\1\\.$", UserWarning)
            yield next(model.cpu().parameters()).device
    finally:
        log.setLevel(level)
        model.to(device).train(training)
