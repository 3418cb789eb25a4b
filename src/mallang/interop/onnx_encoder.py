"""A trained classifier, tagger or encoder as one ONNX graph.

    model.onnx   tokens[batch, time], mask[batch, time] → logits[batch, classes]          classification
                                                          logits[batch, time, tags]       tagging
                                                          vectors[batch, dim]             encoding

The mask is 1 for a token and 0 for padding. Batch and time are dynamic axes. The folder also holds the tokenizer and a
script `predict.py`. Every graph is run once in ONNX Runtime, on other shapes than it was traced with, and compared.
"""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import mallang
from mallang.data.batch import Batch, lengths_to_mask
from mallang.errors import UserError, require
from mallang.find import ROOT
from mallang.interop.folder import draft_of
from mallang.interop.onnx import exporting, save
from mallang.interop.onnx_recurrent import as_operators
from mallang.layers.head import Headed, OrdinalHead
from mallang.layers.position import SinusoidalPositions
from mallang.layers.quantization import Int8Linear
from mallang.models.contract import Tagger, encode_text, longest_of
from mallang.tasks import classification, encoding, tagging
from mallang.tasks.contract import ReadsPairs
from mallang.tasks.finetuning import read_layers

Verbs = classification.Verbs | tagging.Verbs | encoding.Verbs
GRAPH, ABOUT, SCRIPT, README = "model.onnx", "export.json", "predict.py", "README.md"
LONGEST = 2048
"""Tokens of a text where the model has no limit."""
SHAPES = ((1, 3), (4, 7))
"""Rows and tokens of the texts that a graph is compared on."""
CLOSE = 1e-4
TEXT = """\
# A model for {task} in ONNX

Written by mallang {version}. To use it, neither mallang nor torch is needed:

    pip install onnxruntime tokenizers numpy
    python predict.py "a text" "another text"
    python predict.py < texts.txt

`predict.py` is short and meant to be read: it shows all that a program of your own has to do. `model.onnx` takes
`tokens` and `mask` (1 for a token, 0 for padding), both [batch, time] in 64-bit integers, and gives `{output}`.
"""


class Reader(nn.Module):
    """What is traced: from ids and mask to logits or vectors."""

    def __init__(self, verbs: Verbs) -> None:
        super().__init__()
        self.model = copy.deepcopy(verbs.model).eval().requires_grad_(False)
        self.verbs = (verbs,)
        self.eval()

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Logits of classes, of the tags of every token, or the vector of the text."""
        (verbs,) = self.verbs
        batch = Batch(tokens=tokens, lengths=mask.sum(dim=1))
        if isinstance(verbs, classification.Verbs):
            return verbs.task.logits(self.model, batch)[0]
        if isinstance(verbs, encoding.Verbs):
            return encode_text(self.model, batch).pooled
        scores: Tensor = self.model.head(read_layers(self.model, batch).layers[-1])
        return scores


def write(verbs: Verbs, folder: Path) -> None:
    """Write a folder with the graph of a trained model and all that is needed to use it."""
    for package in ("onnx", "onnxscript", "onnxruntime"):
        require(package, "export")
    check(verbs)
    most = longest_of(below_head(verbs.model)) or LONGEST
    with draft_of(folder) as draft:
        trace(verbs, draft / GRAPH, most)
        compare(verbs, draft / GRAPH)
        write_rest(verbs, draft, most)


def check(verbs: Verbs) -> None:
    """Refuse by name what cannot be a graph from ids to logits."""
    model, reason = verbs.model, None
    if isinstance(verbs, ReadsPairs):
        reason = "it reads pairs of texts, and a graph reads one text"
    elif verbs.task.text.config.unit == "morpheme":
        reason = "its tokens are cut by an analyzer, which tokenizer.json does not hold"
    elif any(isinstance(part, Int8Linear) for part in model.modules()):
        reason = "it was loaded with int8 weights"
    elif isinstance(verbs, classification.Verbs):
        config = verbs.task.config
        if config.documents:
            reason = "it reads documents sentence by sentence"
        elif config.bag_buckets or verbs.task.features is not None:
            reason = "it reads more than the tokens of a text: hashed n-grams or given.features"
    elif isinstance(verbs, tagging.Verbs):
        if isinstance(model, Tagger) or model.head.crf is not None:
            reason = "the search through its CRF is no graph"
        elif verbs.task.features is not None:
            reason = "it reads given.features beside the tokens"
    if reason is not None:
        raise refused(verbs, reason)


def below_head(model: nn.Module) -> nn.Module:
    """The model below the head of a task."""
    return model.model if isinstance(model, Headed) else model


def trace(verbs: Verbs, path: Path, most: int) -> None:
    """Trace the graph and write it."""
    batch, time = torch.export.Dim("batch"), torch.export.Dim("time", max=most)
    with exporting(verbs.model):
        reader = Reader(verbs)
        as_operators(reader.model)
        given = example(verbs, 3, 5)
        axes = ({0: batch, 1: time}, {0: batch, 1: time})
        try:
            save(path, reader, given, axes, (["tokens", "mask"], [output_of(verbs)]))
        except Exception as error:  # the exporter raises whatever its passes raise
            raise refused(verbs, "torch cannot trace it") from error


def grow_positions(model: nn.Module, most: int) -> None:
    """Let tables of positions be as long as the longest text: a graph cannot grow them."""
    for part in model.modules():
        if isinstance(part, SinusoidalPositions):
            part(most)


def compare(verbs: Verbs, path: Path) -> None:
    """Run a graph on other shapes than it was traced with, and refuse one that computes something else."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    reader = Reader(verbs)
    for rows, width in SHAPES:
        tokens, mask = example(verbs, rows, width)
        with torch.no_grad():
            wanted = reader(tokens, mask).numpy()
        try:
            (found,) = session.run(None, {"tokens": tokens.numpy(), "mask": mask.numpy()})
        except Exception as error:  # onnxruntime has no narrower class
            raise refused(verbs, "its graph takes one shape only") from error
        seen = mask.numpy().astype(bool) if isinstance(verbs, tagging.Verbs) else slice(None)
        if found.shape != wanted.shape or not np.allclose(found[seen], wanted[seen], atol=CLOSE, rtol=CLOSE):
            raise refused(verbs, "its graph computes something else")


def refused(verbs: Verbs, why: str) -> UserError:
    """The error for a model that no graph can be made of."""
    name = type(below_head(verbs.model)).__name__
    return UserError(f"this {name} cannot be exported to ONNX: {why}", todo="export another run")


def example(verbs: Verbs, rows: int, width: int) -> tuple[Tensor, Tensor]:
    """Some ids with padding, and their mask."""
    vocabulary = verbs.task.text.vocabulary
    lengths = torch.tensor([max(1, width - row) for row in range(rows)])
    mask = lengths_to_mask(lengths, width)
    random = torch.Generator().manual_seed(1)
    tokens = torch.randint(len(vocabulary), (rows, width), generator=random)
    return torch.where(mask, tokens, vocabulary.pad), mask.long()


def output_of(verbs: Verbs) -> str:
    """The name of what the graph gives."""
    return "vectors" if isinstance(verbs, encoding.Verbs) else "logits"


def write_rest(verbs: Verbs, folder: Path, most: int) -> None:
    """Everything but the graph."""
    text = verbs.task.text
    text.save(folder)
    begin, end = text.vocabulary.frame
    frame = text.vocabulary.frame_length
    about: dict[str, Any] = {
        "format": 1, "task": verbs.task_name, "mallang": mallang.__version__, "pad": text.vocabulary.pad,
        "begin": begin, "end": end, "unk": text.vocabulary.unk, "max_tokens": most - frame,
    }  # fmt: skip
    if isinstance(verbs, classification.Verbs):
        head = verbs.model.head if isinstance(verbs.model, Headed) else None
        about |= {"kind": "ordinal" if isinstance(head, OrdinalHead) else verbs.task.config.kind}
        about |= {"labels": verbs.task.labels.names}
        if limit := verbs.task.config.max_tokens:
            about["max_tokens"] = min(limit, most - frame)
    if isinstance(verbs, encoding.Verbs) and verbs.windows.most:
        about["max_tokens"] = verbs.windows.most
    if isinstance(verbs, tagging.Verbs):
        about |= {"labels": verbs.task.tags.names}
    (folder / ABOUT).write_text(json.dumps(about, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    shutil.copyfile(ROOT / "interop" / "onnx_encoder_script.py", folder / SCRIPT)
    readme = TEXT.format(task=verbs.task_name, version=mallang.__version__, output=output_of(verbs))
    (folder / README).write_text(readme, encoding="utf-8")
