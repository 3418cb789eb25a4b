"""N-grams of others as a run of ours, and ours as a file of theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mallang.errors import UserError
from mallang.interop import arpa
from mallang.interop.imported_run import write_imported
from mallang.layers.ngram_table import Ngrams
from mallang.models.ngram import Config, NGram
from mallang.recipe import Recipe
from mallang.tasks import language_modeling
from mallang.text import tokenizer as text
from mallang.text.vocabulary import SPECIALS
from mallang.training.checkpoint import sha256
from mallang.training.run import Run


def import_arpa(path: Path, folder: Path, *, fresh: bool = False) -> Run:
    """A finished run that speaks by the n-grams of a file; its tokens are what stands between spaces."""
    tokens, ngrams = arpa.read(path)
    tokenizer = tokenizer_of(tokens, path)
    recipe = Recipe.make(
        name=folder.name,
        task=language_modeling.Config(),
        model=Config(order=len(ngrams.sizes), smoothing="imported"),
        text=tokenizer.config,
    )
    model = NGram(recipe.model, tokenizer.vocabulary)
    model.keep(ngrams)
    sources = {"file": path.name, "sha256": sha256(path)}
    told = told_of(path, ngrams)
    return write_imported(folder, recipe, tokenizer, model, told=told, sources=sources, fresh=fresh)


def tokenizer_of(tokens: tuple[str, ...], path: Path) -> text.Tokenizer:
    """What cuts text into these tokens."""
    config = text.Config(unit="space", vocabulary=max(len(tokens), len(SPECIALS) + 1), normalization="none")
    made = text.Tokenizer.train([" ".join(tokens[len(SPECIALS) :])], config)
    if made.vocabulary.tokens != tokens:
        odd = sorted(set(tokens) - set(made.vocabulary.tokens))
        raise UserError(f"the word {odd[0]!r} holds white space, which text is cut at", where=str(path))
    return made


def told_of(path: Path, ngrams: Ngrams) -> str:
    """What the model is, in words."""
    sizes = ", ".join(f"{size:,} {order}-grams" for order, size in enumerate(ngrams.sizes, start=1))
    return f"N-grams that were imported from {path.name}, not trained here: {sizes}."


def export_arpa(verbs: Any, path: Path) -> None:
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
    arpa.write(model.table.ngrams(), model.vocabulary.tokens, path)
