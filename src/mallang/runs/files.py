"""Files of run folders: written atomically, read with clear errors, checked by their sha256 sums."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from mallang.console import is_utf8
from mallang.errors import UserError

PATIENCE = 60.0
"""Seconds until a file that one machine wrote must be visible on another."""


def load_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file; raises a UserError where it is missing or damaged."""
    try:
        if not is_utf8(str(path)):  # safetensors cannot open such a path
            return dict(safetensors.torch.load(path.read_bytes()))
        return dict(safetensors.torch.load_file(path))
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing", todo="train the model again, or restore the file") from error
    except (safetensors.SafetensorError, OSError) as error:
        raise UserError(f"{path} is damaged: {error}", todo="train the model again, or restore the file") from error


def write_file(path: Path, content: bytes) -> None:
    """Write a file and sync it to disk."""
    with path.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def replace_file(path: Path, content: bytes) -> None:
    """Replace the content of a file atomically: a reader sees the old or the new content, never a part."""
    draft = path.with_name(f".draft-{path.name}")
    try:
        write_file(draft, content)
        draft.rename(path)
        sync_folder(path.parent)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise unwritable(path.parent, error) from error


def unwritable(folder: Path, error: OSError) -> UserError:
    """The error for a full disk or a folder that is not writable."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        todo = "free some space, then give the same command again: it continues from the last checkpoint"
        return UserError(f"cannot write: {error.strerror}", where=str(folder), todo=todo)
    return UserError(f"cannot write: {error.strerror or error}", where=str(folder), todo="choose another with --runs")


def is_read_only(error: UserError) -> bool:
    """Whether a file could not be written for lack of permission, not because the disk is full."""
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in (errno.EACCES, errno.EPERM, errno.EROFS)


def to_json(value: Any) -> bytes:
    """JSON as in run folders: indented, floats exact, bytes that are not UTF-8 (in file names) as `\\udcb0`."""
    return (json.dumps(value, ensure_ascii=False, indent=1) + "\n").encode("utf-8", "backslashreplace")


def sha256(path: Path) -> str:
    """The sha256 sum of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sync_folder(folder: Path) -> None:
    """Sync the directory entries of a folder to disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
