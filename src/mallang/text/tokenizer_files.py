"""The two files of a tokenizer: `tokenizer.json`, which the `tokenizers` library reads, and `text.json` about it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import tokenizers

from mallang.errors import UserError
from mallang.text.vocabulary import SPECIALS, Vocabulary


def paths(folder: Path, name: str) -> tuple[Path, Path]:
    """The two files of a tokenizer."""
    return folder / f"{name}.json", folder / ("text.json" if name == "tokenizer" else f"{name}.text.json")


def read(path: Path) -> str:
    """The content of a tokenizer file."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"the tokenizer cannot be read: {error.strerror}", where=str(path)) from error
    except ValueError as error:
        raise damaged(str(path), error) from error


def read_special(about: str, where: str) -> dict[str, str]:
    """The special tokens by name that are not as usual: further ones, or those of an import."""
    found = json.loads(about).get("special", {})
    if not isinstance(found, dict) or not all(isinstance(token, str) for token in found.values()):
        raise damaged(where, "its special tokens are not named")
    return found


def read_pipeline(pipeline: str, where: str, *, has_usual: bool) -> tokenizers.Tokenizer:
    """The tokenizer of the library, checked to begin with the special tokens if it has the usual ones."""
    try:
        backend = tokenizers.Tokenizer.from_str(pipeline)
    except Exception as error:  # the library raises no narrower one
        raise damaged(where, error) from error
    vocabulary = backend.get_vocab()
    if sorted(vocabulary.values()) != list(range(len(vocabulary))):
        raise damaged(where, "ids are missing or occur twice")
    if has_usual and tuple(names(backend)[: len(SPECIALS)]) != SPECIALS:
        raise damaged(where, f"the first tokens are not {' '.join(SPECIALS)}")
    return backend


def names(backend: tokenizers.Tokenizer) -> list[str]:
    """The tokens in the order of their ids."""
    vocabulary = backend.get_vocab()
    return sorted(vocabulary, key=vocabulary.__getitem__)


def with_separators(vocabulary: Vocabulary, backend: tokenizers.Tokenizer) -> Vocabulary:
    """The vocabulary with the number of separators between two texts that an imported tokenizer puts there."""
    of_pair, of_text = (backend.num_special_tokens_to_add(is_pair) for is_pair in (True, False))
    return replace(vocabulary, pair_separators=max(1, of_pair - of_text))


def damaged(where: str, why: object) -> UserError:
    """The error for a damaged tokenizer file."""
    return UserError(f"the tokenizer is damaged: {why}", where=where, todo="restore the file, or train again")
