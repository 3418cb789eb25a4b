"""A trained model as one HTML file that runs it in the browser: the weights as int8, the model in plain JavaScript.

The file needs no network and no server. It holds the models that a page can run (live_model.js and the files beside
it), what a person sees and touches (live_view.js, live_page.html), and two texts of data: a header in JSON, and the
weights, compressed, in base64. live_models.py says which models those are.

A matrix becomes integers from −127 to 127 with one scale per row; biases, norms and n-grams stay float32. `rounded`
puts these values into the model itself, whose outputs are then those of the page.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mallang.errors import UserError
from mallang.inspection.live_models import config_of, kinds, weights_of
from mallang.inspection.page import safe_json
from mallang.kernels.int8 import quantize_rows
from mallang.models.contract import is_probability, longest_of
from mallang.tasks import generation, translator
from mallang.tasks.contract import Directed
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import Vocabulary

FOLDER = Path(__file__).parent
UNITS = ("word", "space", "char", "syllable", "jamo", "byte", "bpe", "byte-bpe")
"""The units whose tokenizers the page knows."""
SCRIPTS = ("live_model", "live_transformers", "live_recurrent", "live_convolutional", "live_ngram")
"""The files of the page's models, in the order in which they name each other."""
MOST = 50_000_000
"""The maximum number of bytes of all weights; a page takes up to four times as much memory to run."""


@dataclass(frozen=True)
class LivePage:
    """What was written."""

    path: Path
    bytes: int
    weights: int
    """The number of weights."""


def write_live_page(path: Path, verbs: Any, name: str, examples: Sequence[str] = ()) -> LivePage:
    """One HTML file with the model of a run."""
    page = whole_page(live_parts(verbs, name, examples))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, "utf-8", errors="replace", newline="\n")
    return LivePage(path, path.stat().st_size, sum(each.numel() for each in verbs.model.parameters()))


def whole_page(data: Mapping[str, str]) -> str:
    """The page of a model: its header and weights, and all that runs and shows them."""
    parts = {**data, "model": model_script(), "view": (FOLDER / "live_view.js").read_text("utf-8")}
    template = (FOLDER / "live_page.html").read_text("utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], template)


def model_script() -> str:
    """The models of the page, without what is shown of them."""
    files = [FOLDER / f"{name}.js" for name in SCRIPTS]
    return "\n".join(file.read_text("utf-8").removeprefix('"use strict";\n') for file in files)


def live_parts(verbs: Any, name: str, examples: Sequence[str] = ()) -> dict[str, str]:
    """The data of a page: the header in JSON, and the weights, compressed, in base64."""
    check(verbs, name)
    tensors, packed = pack(weights_of(verbs.model))
    longest = longest_of(verbs.model)
    header = {
        "name": name,
        "model": type(verbs.model).__name__,
        "weights": sum(each.numel() for each in verbs.model.parameters()),
        "config": config_of(verbs.model),
        "special": special_of(verbs.model.vocabulary),
        "limit": {
            "output": min(verbs.config.max_length, longest or verbs.config.max_length),
            "ratio": verbs.config.max_ratio,
            "positions": longest,
        },
        "tokenizers": {role: tokenizer_of(each) for role, each in tokenizers_of(verbs).items()},
        "tensors": tensors,
        "examples": list(examples),
    }
    return {
        "header": safe_json(header),
        "weights": base64.b64encode(gzip.compress(packed, 9, mtime=0)).decode("ascii"),
    }


def check(verbs: Any, name: str) -> None:
    """Refuse what the page cannot run."""
    model, otherwise = (
        verbs.model,
        "give a translator or a language model; without --live, mallang inspect RUN TEXT shows any model that attends",
    )
    if not isinstance(verbs, generation.Verbs | translator.Verbs):
        raise UserError(
            f"a live page translates or continues a text, and {name} was trained for something else", todo=otherwise
        )
    if type(model) not in kinds():
        kind = type(model).__module__.rpartition(".")[2]
        raise UserError(
            f"a live page cannot run {kind}, the model of {name}; it runs {', '.join(kinds().values())}", todo=otherwise
        )
    if not is_probability(model):
        raise UserError(
            f"a live page shows probabilities, and the scores of {name} are none",
            todo="fit an n-gram model with another model.smoothing, kneser-ney for instance",
        )
    if isinstance(verbs.task, Directed) and verbs.task.backward:
        raise UserError(f"{name} reads its texts backward, and a live page reads forward", todo="leave out --live")
    for tokenizer in tokenizers_of(verbs).values():
        if tokenizer.config.unit not in UNITS:
            raise UserError(
                f"a live page cannot tokenize by {tokenizer.config.unit}", todo=f"units that it can: {', '.join(UNITS)}"
            )
        if tokenizer.domains:
            raise UserError("a live page has no choice of a domain, and this run was trained with data.domains")
    if (size := sum(each.numel() * (1 if each.dim() > 1 else 4) for each in weights_of(model).values())) > MOST:
        raise UserError(f"the weights of {name} take {size / 1e6:.0f} MB, and a live page holds {MOST / 1e6:.0f} MB")


def tokenizers_of(verbs: Any) -> Mapping[str, Tokenizer]:
    """The tokenizers of the model by role: of what it generates, and of the source if it has one."""
    if verbs.model.reads_source:
        return {"source": verbs.task.source, "target": verbs.task.target}
    return {"target": verbs.task.text}


def special_of(vocabulary: Vocabulary) -> dict[str, int]:
    """The ids of the special tokens that the page names."""
    return {name: getattr(vocabulary, name) for name in ("pad", "unk", "bos", "eos")}


def tokenizer_of(tokenizer: Tokenizer) -> dict[str, Any]:
    """A tokenizer as the page reads it: its tokens by id, and the merges in their order, as ids."""
    model = json.loads(tokenizer.backend.to_str())["model"]
    tokens = [tokenizer.backend.id_to_token(number) for number in range(len(tokenizer.vocabulary))]
    ids = {token: number for number, token in enumerate(tokens)}
    merges = [(ids[left], ids[right], ids[left + right]) for left, right in model.get("merges", ())]
    return {
        "unit": tokenizer.config.unit,
        "normalization": tokenizer.config.normalization,
        "lowercase": tokenizer.config.lowercase,
        "tokens": tokens,
        "merges": merges,
        "special": special_of(tokenizer.vocabulary),
    }


def pack(weights: Mapping[str, Tensor]) -> tuple[list[dict[str, Any]], bytes]:
    """The names and shapes of the weights, and their bytes one after the other, each tensor at a multiple of four."""
    about, parts = [], []
    for name, weight in weights.items():
        is_matrix = weight.dim() > 1
        about.append({"name": name, "shape": list(weight.shape), "int8": is_matrix})
        if is_matrix:
            integers, scales = quantize_rows(weight)
            parts.append(scales.flatten().numpy().astype("<f4").tobytes())
            whole = integers.contiguous().numpy().astype(np.int8).tobytes()
            parts.append(whole + b"\0" * (-len(whole) % 4))
        else:
            parts.append(weight.numpy().astype("<f4").tobytes())
    return about, b"".join(parts)


@torch.no_grad()
def rounded(model: nn.Module) -> nn.Module:
    """The model with the weights that its page has, in place."""
    for weight in model.parameters():
        if weight.dim() > 1:
            integers, scales = quantize_rows(weight.detach().float())
            weight.copy_(integers.float() * scales)
    return model
