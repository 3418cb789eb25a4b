"""Import of an ARPA file as an n-gram run, and export of n-gram runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mallang.errors import UserError
from mallang.interop import arpa, arpa_words
from mallang.interop.imported_run import write_imported
from mallang.layers.ngram_table import Ngrams
from mallang.models.ngram import Config, NGram
from mallang.recipe import Recipe
from mallang.runs.files import sha256
from mallang.runs.folder import Run
from mallang.tasks import language_modeling
from mallang.text import tokenizer as text
from mallang.text.vocabulary import SPECIALS

MARK = "mallang text "
"""How the comment begins that says how text is tokenized into the words of a file."""
TOKENIZING = ("unit", "normalization", "lowercase")
WHOLE_WORDS = ("word", "space")
"""Units that need nothing but their vocabulary and these settings; for others the file is made of pieces."""


def import_arpa(path: Path, folder: Path, *, fresh: bool = False) -> Run:
    """A finished run that speaks by the n-grams of a file.

    Its tokens are what stands between spaces, unless a comment of ours says how text was tokenized.
    """
    words, ngrams, comments = arpa.read_all(path)
    tokenizer = tokenizer_of(words, path, comments)
    recipe = Recipe.make(
        name=folder.name,
        task=language_modeling.Config(),
        model=Config(order=len(ngrams.sizes), smoothing="imported"),
        text=tokenizer.config,
    )
    model = NGram(recipe.model, tokenizer.vocabulary)
    model.keep(ngrams)
    sources = {"file": path.name, "sha256": sha256(path)}
    about = description(path, ngrams)
    return write_imported(folder, recipe, tokenizer, model, about=about, sources=sources, fresh=fresh)


def tokenizer_of(words: tuple[str, ...], path: Path, comments: Sequence[str] = ()) -> text.Tokenizer:
    """What tokenizes text into these words."""
    options: dict[str, Any] = {"unit": "space", "normalization": "none", **text_options(comments, path)}
    config = text.Config(vocabulary=max(len(words), len(SPECIALS) + 1), **options)
    if odd := [word for word in words if word.split() != [word]]:
        raise UserError(f"the word {odd[0]!r} holds white space, where text is split into tokens", where=str(path))
    return text.Tokenizer.of_words(arpa_words.tokens_of(words) if config.unit == "word" else words, config)


def text_options(comments: Sequence[str], path: Path) -> dict[str, Any]:
    """How text is tokenized, as the comment that `export_arpa` wrote says it; nothing in files of others."""
    for comment in comments:
        if not comment.startswith(MARK):
            continue
        try:
            found = json.loads(comment.removeprefix(MARK))
            text.Config(**found)
            is_ours = found["unit"] in WHOLE_WORDS and set(found) <= set(TOKENIZING)
        except (ValueError, TypeError, KeyError, RecursionError, UserError):
            is_ours = False
        if not is_ours:
            raise UserError(
                f"the comment {comment[:60]!r} does not say how text is tokenized",
                where=str(path),
                todo="remove the line: then a token is what stands between spaces",
            )
        return dict(found)
    return {}


def description(path: Path, ngrams: Ngrams) -> str:
    """A description of the imported model."""
    sizes = ", ".join(f"{size:,} {order}-grams" for order, size in enumerate(ngrams.sizes, start=1))
    return f"N-grams that were imported from {path.name}, not trained here: {sizes}."


def export_arpa(verbs: language_modeling.Verbs, path: Path) -> None:
    """Write the n-grams of a run to a file."""
    model = verbs.model
    if not isinstance(model, NGram):
        raise UserError(
            f"ARPA files hold n-grams, and this run is a {type(model).__name__}", todo="train one: ngram-miniworld"
        )
    if not model.is_probability:
        raise UserError(
            f"smoothing = {model.config.smoothing!r} gives scores, and ARPA files hold probabilities",
            todo="train with another smoothing, such as model.smoothing=katz",
        )
    tokenizer = verbs.tokenizer
    tokenizing = {name: getattr(tokenizer.config, name) for name in TOKENIZING}
    comment = MARK + json.dumps(tokenizing) if tokenizer.config.unit in WHOLE_WORDS else ""
    arpa.write(model.table.ngrams(), arpa_words.written(tokenizer), path, comment)
