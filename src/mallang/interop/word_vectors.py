"""Word vectors of others as runs of ours, and ours in the text and binary formats of word2vec.

gensim, spaCy, fastText and most others read these formats.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from contextlib import suppress
from io import BufferedIOBase
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32

from mallang.data.word_vectors import Vectors, read_vectors
from mallang.errors import UserError
from mallang.interop.imported_run import write_imported
from mallang.models.word2vec import Config, Word2Vec
from mallang.recipe import Recipe
from mallang.runs.files import sha256
from mallang.runs.folder import Run
from mallang.tasks import word_vectors
from mallang.text import tokenizer as text
from mallang.text.vocabulary import SPECIALS

__all__ = ["export_vectors", "import_vectors", "read_vectors", "write_vectors"]

ROWS = 4096
"""Vectors that are written at once."""


def import_vectors(path: Path, folder: Path, *, fresh: bool = False) -> Run:
    """A finished run with the vectors of a file; words with white space, which no text can spell, are left out."""
    found = read_vectors(path)
    kept = [number for number, word in enumerate(found.words) if word.split() == [word] and word not in SPECIALS]
    if not kept:
        raise UserError("no word of the file can be a token", where=str(path))
    words = (*SPECIALS, *(found.words[number] for number in kept))
    config = text.Config(unit="space", normalization="none", vocabulary=max(len(words), len(SPECIALS) + 1))
    tokenizer = text.Tokenizer.of_words(words, config)
    recipe = Recipe.make(
        name=folder.name, task=word_vectors.Config(), model=Config(dim=found.values.shape[1]), text=tokenizer.config
    )
    model = Word2Vec(recipe.model, tokenizer.vocabulary)
    fill(model, found, kept)
    named = path if path.is_file() else next(path.glob("*.npy"))
    about = (
        f"Word vectors that were imported from {named.name}, not trained here: {len(kept):,} words of "
        f"{found.values.shape[1]} numbers; {len(found) - len(kept)} others of the file were left out."
    )
    sources = {"file": named.name, "sha256": sha256(named)}
    return write_imported(folder, recipe, tokenizer, model, about=about, sources=sources, fresh=fresh)


def fill(model: Word2Vec, found: Vectors, kept: Sequence[int]) -> None:
    """Put vectors into a model: those of special tokens, if the file has them, into their rows, else zeros."""
    weight = model.embedding.weight
    weight.zero_()
    weight[len(SPECIALS) :] = torch.from_numpy(found.values[list(kept)])
    numbers = {word: number for number, word in enumerate(found.words) if word in SPECIALS}
    for place, word in enumerate(SPECIALS):
        if word in numbers:
            weight[place] = torch.from_numpy(found.values[numbers[word]])


def export_vectors(verbs: Any, path: Path) -> None:
    """Write the vectors of a run: binary if the name ends in .bin, else text, packed if it ends in .gz.

    A word that the tokenizer spells in two ways, with a space before it and without, is written once.
    """
    lookup = verbs.lookup
    kept: dict[str, int] = {}
    for number, name in enumerate(lookup.names):
        if number not in lookup.specials:
            kept.setdefault(name, number)
    write_vectors(path, tuple(kept), lookup.vectors.numpy()[list(kept.values())])


def write_vectors(path: Path, words: Sequence[str], values: Float32[np.ndarray, "words dim"]) -> None:
    """Write word vectors in the text or binary format of word2vec; the file is whole or not there."""
    for word in words:
        if word.split() != [word]:
            raise UserError(
                f"the word {word!r} holds white space, which parts words from numbers in the file",
                todo="use a unit whose tokens hold none, such as text.unit=word",
            )
    draft = path.with_name(f".draft-{path.name}")
    packed = path.suffix == ".gz"
    is_binary = (path.with_suffix("") if packed else path).suffix == ".bin"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(draft, "wb", compresslevel=6) if packed else draft.open("wb") as stream:
            write_to(stream, words, values, is_binary=is_binary)
        draft.rename(path)
    except OSError as error:
        raise UserError(f"cannot write: {error.strerror or error}", where=str(path), todo="-o FILE") from error
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def write_to(
    stream: BufferedIOBase,
    words: Sequence[str],
    values: Float32[np.ndarray, "words dim"],
    *,
    is_binary: bool,
) -> None:
    """The header, then the words; numbers as text are as short as they can be read back exactly."""
    stream.write(b"%d %d\n" % values.shape)
    for first in range(0, len(words), ROWS):
        rows = zip(words[first : first + ROWS], values[first : first + ROWS], strict=True)
        if is_binary:
            stream.write(b"".join(word.encode() + b" " + row.astype("<f4").tobytes() + b"\n" for word, row in rows))
        else:
            stream.write("".join(f"{word} {' '.join(map(str, row))}\n" for word, row in rows).encode())
