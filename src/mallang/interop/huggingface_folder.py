"""Folders of `transformers`: config.json, weights and tokenizer. Nothing of a folder is run.

A name such as `org/model` is looked up in the local cache of the hub; nothing is downloaded. Weights are read from
safetensors, in one file or several. Pickled weights (.bin) are read only where that is asked for, by torch's restricted
reader, which builds tensors and nothing else.
"""

from __future__ import annotations

import json
import os
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from mallang.errors import UserError
from mallang.runs.files import load_tensors, sha256, to_json, unwritable

CONFIG, WEIGHTS, INDEX, PICKLED = (
    "config.json",
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
)
FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
IDS = ("position_ids", "token_type_ids", "attn.bias", "attn.masked_bias")
"""Ends of names of tensors that are no weights: numbers of positions, causal masks."""
DEQUANTIZE = "take the model as it was before it was quantized"
HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


def locate(source: Path) -> Path:
    """The folder of a model: the path itself, or the snapshot of that name in the local cache of the hub."""
    if source.is_dir():
        return source
    name, cache = source.as_posix(), cache_folder()
    if HUB_NAME.fullmatch(name):
        home = cache / f"models--{name.replace('/', '--')}"
        try:
            commit = (home / "refs" / "main").read_text("utf-8").strip()
        except (OSError, ValueError):
            commit = ""
        if commit and (found := home / "snapshots" / commit).is_dir():
            return found
    raise UserError(
        f"there is no folder {source}, and no model of that name in {cache}",
        todo=(f"download it first: hf download {name}; or " if HUB_NAME.fullmatch(name) else "")
        + "give the folder that save_pretrained wrote",
    )


def cache_folder() -> Path:
    """Where the hub keeps what was downloaded."""
    home = os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface"
    return Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file of their folder, or one clear message."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        todo = f"the folder of a model holds {CONFIG}, {WEIGHTS} and tokenizer.json; save it with save_pretrained"
        raise UserError(f"{path} is missing", todo=todo) from error
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise UserError(f"{path} does not hold what it should: a JSON object")
    return found


def maybe_json(path: Path) -> dict[str, Any]:
    """A JSON file that a folder may lack."""
    return read_json(path) if path.exists() else {}


def read_weights(
    folder: Path, about: Mapping[str, Any], *, allow_bin: bool = False
) -> tuple[dict[str, Tensor], list[Path]]:
    """The tensors of a folder in 32 bits, and the files that they are in; quantized ones are refused."""
    if (quantized := about.get("quantization_config")) is not None:
        method = quantized.get("quant_method", "?") if isinstance(quantized, dict) else "?"
        raise UserError(f"the weights are quantized ({method})", where=str(folder / CONFIG), todo=DEQUANTIZE)
    files = weight_files(folder, allow_bin)
    found: dict[str, Tensor] = {}
    for path in files:
        found |= read_pickled(path) if path.suffix == ".bin" else read_safetensors(path)
    for name, value in found.items():
        if value.dtype not in FLOATS and not name.endswith(IDS):
            kind = str(value.dtype).removeprefix("torch.")
            raise UserError(f"the weights are quantized: {name} is {kind}", where=str(folder), todo=DEQUANTIZE)
    return {name: value.float() if value.is_floating_point() else value for name, value in found.items()}, files


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file of theirs."""
    try:
        return load_tensors(path)
    except UserError as error:
        raise UserError(error.what, where=error.where, todo="download or save it again: it is not whole") from error


def check_shapes(about: Mapping[str, Any], found: Mapping[str, int], where: Path) -> None:
    """Refuse a config.json that states other sizes than the weights have, before a model of its sizes is built."""
    for key, size in found.items():
        if (said := about.get(key, size)) != size:
            raise UserError(
                f"the weights do not fit {CONFIG}: it says {key} = {said}, and they have {size}", where=str(where)
            )


def weight_files(folder: Path, allow_bin: bool) -> list[Path]:
    """The files that hold the weights of a folder."""
    if (folder / WEIGHTS).exists():
        return [folder / WEIGHTS]
    if (folder / INDEX).exists():
        names = read_json(folder / INDEX).get("weight_map")
        if not isinstance(names, dict) or not all(Path(str(name)).name == name for name in names.values()):
            raise UserError(f"{folder / INDEX} does not name the files of the weights")
        return [folder / name for name in sorted(set(names.values()))]
    if not (folder / PICKLED).exists():
        raise UserError(f"{folder / WEIGHTS} is missing", todo="save the model with save_pretrained")
    if not allow_bin:
        raise UserError(
            f"{folder} holds its weights as {PICKLED} alone, a pickle, which may run code when it is opened",
            todo="--allow-bin reads it by torch's restricted reader; better: save it as safetensors",
        )
    return [folder / PICKLED]


def read_pickled(path: Path) -> dict[str, Tensor]:
    """The tensors of a pickled file; anything else in it is refused."""
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, OSError, EOFError, ValueError) as error:
        raise UserError(f"{path} holds more than tensors, or is damaged", todo="save it as safetensors") from error
    if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
        raise UserError(f"{path} does not hold tensors by name", todo="save it as safetensors")
    return found


def checked(about: Mapping[str, Any], expected: Mapping[str, Any], where: Path) -> None:
    """Refuse a configuration with other values than these, which are the only ones that are supported."""
    for key, value in expected.items():
        if (given := about.get(key, value)) != value:
            raise UserError(f"{key} = {given!r} is not supported, only {value!r}", where=str(where))


def sums(paths: list[Path]) -> dict[str, str]:
    """The SHA-256 of every file that was read, for run.json."""
    return {path.name: sha256(path) for path in paths if path.is_file()}


def write_folder(folder: Path, weights: Mapping[str, Tensor], files: Mapping[str, Any]) -> None:
    """Write weights and JSON files as a folder of theirs."""
    plain = {name: value.detach().cpu().contiguous().clone() for name, value in weights.items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / WEIGHTS).write_bytes(safetensors.torch.save(plain, metadata={"format": "pt"}))
        for name, content in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(to_json(content))
    except OSError as error:
        raise unwritable(folder, error) from error
