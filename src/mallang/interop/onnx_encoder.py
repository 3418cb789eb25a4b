"""A trained model that reads texts as one ONNX graph: what classifies, tags, encodes, compares, answers or chooses.

The inputs and outputs of each task are in onnx_graph.py. In the mask 1 is a token and 0 is padding; batch and time are
dynamic axes. The folder also holds the tokenizer and a script `predict.py`, of which there are two: one for single
texts, one for pairs, questions and choices. Every graph is run once in ONNX Runtime, on other shapes than it was traced
with, and compared.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn

import mallang
from mallang.errors import UserError, require
from mallang.find import ROOT
from mallang.interop.folder import draft_of
from mallang.interop.onnx import exporting, save
from mallang.interop.onnx_graph import (
    Paired,
    Reader,
    Verbs,
    below_head,
    example,
    inputs_of,
    is_by_token,
    most_of,
    outputs_of,
    reading_of,
)
from mallang.interop.onnx_recurrent import as_operators
from mallang.layers import pooling
from mallang.layers.head import Headed, OrdinalHead
from mallang.layers.position import SinusoidalPositions
from mallang.layers.quantization import Int8Linear
from mallang.models.char_cnn import CharCNN
from mallang.models.contract import Fitted, Tagger
from mallang.models.deep_srl import DeepSRL
from mallang.models.elmo import ELMo
from mallang.tasks import (
    classification,
    encoding,
    multiple_choice,
    pairs,
    question_answering,
    similarity,
    tagging,
)
from mallang.text.words import PATTERNS

GRAPH, ABOUT, SCRIPT, README = "model.onnx", "export.json", "predict.py", "README.md"
TASKS = (
    "classification", "distilled_classification", "tagging", "encoding", "pairs", "distilled_pairs", "similarity",
    "question_answering", "multiple_choice",
)  # fmt: skip
"""The tasks whose runs are exported as one graph."""
SHAPES = ((1, 3), (4, 7))
"""Rows and tokens of the texts that a graph is compared on."""
CLOSE = 1e-4
USES = {
    "pairs": '"the first text" "the second text"',
    "distilled_pairs": '"the first text" "the second text"',
    "similarity": '"the first text" "the second text"',
    "question_answering": '"a question" "the context that holds its answer"',
    "multiple_choice": '"a question" "a choice" "another choice"',
}
"""The arguments of the script; of other tasks any number of texts."""
TEXT = """\
# A model for {task} in ONNX

Written by mallang {version}. To use it, neither mallang nor torch is needed:

    pip install onnxruntime tokenizers numpy
    python predict.py {use}
    python predict.py < texts.txt{tabs}

`predict.py` is short and meant to be read: it shows all that a program of your own has to do. `model.onnx` takes
{inputs} (mask: 1 for a token, 0 for padding{types}), all {axes} in 64-bit integers, and gives
{outputs}.
"""
MORPHEMES = """
Words are morphemes here, and the analyzer is not in this folder: give them with spaces between.
"""


def write(verbs: Verbs, folder: Path) -> None:
    """Write a folder with the graph of a trained model and all that is needed to use it."""
    for package in ("onnx", "onnxscript", "onnxruntime"):
        require(package, "export")
    check(verbs)
    most = most_of(verbs)
    with draft_of(folder) as draft:
        trace(verbs, draft / GRAPH, most)
        compare(verbs, draft / GRAPH)
        write_rest(verbs, draft, most)


def check(verbs: Verbs) -> None:
    """Refuse by name what cannot be a graph from ids to outputs."""
    model, reason = verbs.model, None
    if verbs.task_name not in TASKS:
        reason = f"it was trained for {verbs.task_name.replace('_', ' ')}"
    elif verbs.task.text.config.unit == "morpheme":
        reason = "its tokens are cut by an analyzer, which tokenizer.json does not hold"
    elif any(isinstance(part, Int8Linear) for part in model.modules()):
        reason = "it was loaded with int8 weights"
    elif isinstance(below_head(model), Fitted):
        reason = "it was fitted without gradients, and its n-grams are looked up in a table, which is no graph"
    elif has_one_length(below_head(model)):
        reason = "torch cannot trace it for texts of any length"
    elif reads_documents(verbs):
        reason = "it reads documents sentence by sentence"
    elif isinstance(verbs, classification.Verbs) and verbs.task.config.bag_buckets:
        reason = "it reads more than the tokens of a text: hashed n-grams"
    elif isinstance(verbs, tagging.Verbs) and (isinstance(model, Tagger) or model.head.crf is not None):
        reason = "the search through its CRF is no graph"
    elif not isinstance(verbs, encoding.Verbs | similarity.Verbs | multiple_choice.Verbs) and verbs.task.features:
        reason = "it reads more than the tokens of a text: given.features"
    if reason is not None:
        raise refused(verbs, reason)


def has_one_length(model: nn.Module) -> bool:
    """Whether torch traces a model for texts of one length only."""
    return isinstance(model, DeepSRL | ELMo) or (isinstance(model, CharCNN) and max(model.config.pools) > 1)


def reads_documents(verbs: Verbs) -> bool:
    """Whether a model has a level of sentences."""
    if isinstance(verbs, pairs.Verbs | similarity.Verbs):
        return verbs.task.layout.as_documents
    return isinstance(verbs, classification.Verbs) and verbs.task.config.documents


def trace(verbs: Verbs, path: Path, most: int) -> None:
    """Trace the graph and write it."""
    batch, time = torch.export.Dim("batch"), torch.export.Dim("time", max=most)
    with exporting(verbs.model), any_number_of_texts():
        reader = Reader(verbs)
        as_operators(reader.model)
        grow_positions(reader.model, most)
        given = example(verbs, 3, 5)
        axes = tuple({0: batch, each.dim() - 1: time} for each in given)
        try:
            # One entry for `*given`, which holds them all.
            save(path, reader, given, (axes,), (inputs_of(verbs), outputs_of(verbs)))
        except Exception as error:  # the exporter raises whatever its passes raise
            raise refused(verbs, "torch cannot trace it") from error


@contextmanager
def any_number_of_texts() -> Iterator[None]:
    """Let the vector of the last token be traced for any number of texts: len() of a tensor is a constant there."""
    known = pooling.last_seen

    def last_seen(vectors: Tensor, mask: Tensor) -> Tensor:
        places = (mask.long().sum(dim=1) - 1).clamp(min=0)
        return vectors.gather(1, places[:, None, None].expand(-1, -1, vectors.shape[2])).squeeze(1)

    ours = [each for name, each in list(sys.modules.items()) if name.startswith("mallang.")]
    holders = [each for each in ours if vars(each).get("last_seen") is known]
    patches = [mock.patch.object(each, "last_seen", last_seen) for each in holders]
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in patches:
            patch.stop()


def grow_positions(model: nn.Module, most: int) -> None:
    """Let tables of positions be as long as the longest text: a graph cannot grow them."""
    for part in model.modules():
        if isinstance(part, SinusoidalPositions):
            part(most)


def compare(verbs: Verbs, path: Path) -> None:
    """Run a graph on other shapes than it was traced with, and refuse one that computes something else."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    reader, names = Reader(verbs), inputs_of(verbs)
    for rows, width in SHAPES:
        given = example(verbs, rows, width)
        with torch.no_grad():
            wanted = [each.numpy() for each in reader(*given)]
        try:
            found = session.run(None, {name: each.numpy() for name, each in zip(names, given, strict=True)})
        except Exception as error:  # onnxruntime has no narrower class
            raise refused(verbs, "its graph takes one shape only") from error
        seen = given[-1].numpy().astype(bool) if is_by_token(verbs) else slice(None)
        for own, right in zip(found, wanted, strict=True):
            if own.shape != right.shape or not np.allclose(own[seen], right[seen], atol=CLOSE, rtol=CLOSE):
                raise refused(verbs, "its graph computes something else")


def refused(verbs: Verbs, why: str) -> UserError:
    """The error for a model that no graph can be made of."""
    name = type(below_head(verbs.model)).__name__
    others = "bert"
    if isinstance(verbs, tagging.Verbs):
        others = "rnn_tagger or bert with task.head=softmax"
    elif isinstance(verbs, classification.Verbs):
        others = "cnn or transformer_encoder"
    todo = f"mallang serve RUN, which serves it as it is, or train a model that can be exported, such as {others}"
    return UserError(f"this {name} cannot be exported to ONNX: {why}", todo=todo)


def write_rest(verbs: Verbs, folder: Path, most: int) -> None:
    """Everything but the graph."""
    text = verbs.task.text
    text.save(folder)
    begin, end = text.vocabulary.frame
    about: dict[str, Any] = {
        "format": 1, "task": verbs.task_name, "mallang": mallang.__version__, "pad": text.vocabulary.pad,
        "begin": begin, "end": end, "unk": text.vocabulary.unk, **labels_of(verbs),
    }  # fmt: skip
    paired = isinstance(verbs, Paired)
    if paired:
        about |= {"reading": reading_of(verbs), "max_tokens": most, **pair_facts(verbs)}
    else:
        about |= {"max_tokens": text_tokens(verbs, most - text.vocabulary.frame_length)}
    (folder / ABOUT).write_text(json.dumps(about, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    script = "onnx_pair_script.py" if paired else "onnx_encoder_script.py"
    shutil.copyfile(ROOT / "interop" / script, folder / SCRIPT)
    names = [[f"`{name}`" for name in part] for part in (inputs_of(verbs), outputs_of(verbs))]
    readme = TEXT.format(
        task=verbs.task_name.replace("_", " "), version=mallang.__version__,
        use=use_of(verbs),
        tabs="    # tabs between the texts of a line" if paired else "",
        inputs=", ".join(names[0]), outputs=" and ".join(names[1]),
        types="; types: 1 for the second text" if "types" in inputs_of(verbs) else "",
        axes="[batch, 2, time]" if paired and reading_of(verbs) == "orders" else "[batch, time]",
    )  # fmt: skip
    if isinstance(verbs, tagging.Verbs) and verbs.task.config.split == "morphemes":
        readme += MORPHEMES
    (folder / README).write_text(readme, encoding="utf-8")


def use_of(verbs: Verbs) -> str:
    """The arguments of the script, as its readme shows them."""
    return USES.get(verbs.task_name, '"a text" "another text"')


def labels_of(verbs: Verbs) -> dict[str, Any]:
    """The labels and their kind, or the tags and what a word is."""
    if isinstance(verbs, tagging.Verbs):
        split = verbs.task.config.split
        return {"labels": verbs.task.tags.names, "split": split, "words": PATTERNS.get(split, PATTERNS["spaces"])}
    if not isinstance(verbs, classification.Verbs):
        return {}
    head = verbs.model.head if isinstance(verbs.model, Headed) else None
    kind = "ordinal" if isinstance(head, OrdinalHead) else verbs.task.config.kind
    return {"kind": kind, "labels": verbs.task.labels.names}


def text_tokens(verbs: Verbs, room: int) -> int:
    """The number of tokens of a text that are read, special tokens left out."""
    if isinstance(verbs, encoding.Verbs) and verbs.windows.most:
        return verbs.windows.most
    limit = verbs.task.config.max_tokens if isinstance(verbs, classification.Verbs) else 0
    return min(limit, room) if limit else room


def pair_facts(verbs: Verbs) -> dict[str, Any]:
    """What the script must know of how several texts are read, and of what the outputs mean."""
    vocabulary, task = verbs.task.text.vocabulary, verbs.task
    found: dict[str, Any] = {"between": [vocabulary.between] * vocabulary.pair_separators}
    if isinstance(verbs, similarity.Verbs):
        config = verbs.task.config
        found |= {"kind": config.kind, "lowest": config.lowest, "highest": config.highest}
    if isinstance(verbs, question_answering.Verbs):
        windows = verbs.task.windows
        found |= {
            "unit": task.text.config.unit, "stride": windows.stride, "max_answer": windows.most,
            "max_question": windows.max_question, "no_answer": verbs.task.config.no_answer,
            "threshold": verbs.threshold,
        }  # fmt: skip
    return found
