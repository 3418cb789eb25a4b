"""Pretrained word vectors (`model.vectors`): where they are found, the words that they add, the embedding they fill.

They are read when a run starts. A trained run holds its own embedding and needs them no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from mallang.data.word_vectors import PACKAGES, Keep, Vectors, distinct, packaged, read_vectors
from mallang.decoding.contract import inference
from mallang.errors import UserError
from mallang.find import find
from mallang.layers.embedding import Coverage, Spellings, load_vectors, spellings_of
from mallang.layers.head import Headed, OutputProjection
from mallang.layers.words import SharedEmbedding
from mallang.models.contract import InputEmbedding, SpelledVectors, WordVectors
from mallang.recipe import Recipe
from mallang.runs.folder import Run
from mallang.runs.own_files import INFO, WEIGHTS
from mallang.runs.weights import set_weights
from mallang.tasks.contract import text_columns
from mallang.tasks.word_lookup import WordLookup
from mallang.text.added_words import with_words
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import Vocabulary
from mallang.training import checkpoint as checkpoints


@dataclass(frozen=True)
class Source:
    """Vectors of a file, of a package or of a run."""

    name: str
    read: Callable[[Keep], Vectors]
    """The vectors of the words that are kept."""
    spell: Callable[[list[str]], Vectors] | None = None
    """The vectors of other words, from their spelling, where the model of a run computes them."""

    @classmethod
    def open(cls, name: str) -> Source:
        """The vectors that a recipe names."""
        if name in PACKAGES:
            return cls(name, lambda keep: read_vectors(packaged(name), keep))
        path = Path(name).expanduser()
        if (path / INFO).is_file():
            return of_run(path)
        if not path.exists():
            raise UserError(
                f"there are no word vectors {name!r}",
                todo=f"give a file (.txt, .vec, .bin, .npy), a run of word vectors, or {' or '.join(PACKAGES)}",
            )
        return cls(name, lambda keep: read_vectors(path, keep))

    def words(self, most: int) -> list[str]:
        """The first words, at most so many."""
        found: list[str] = []

        def collect(word: str) -> bool:
            if len(found) < most:
                found.append(word)
            return False  # no vector is kept

        self.read(collect)
        return found

    def of_words(self, words: Iterable[str]) -> Vectors:
        """The vectors of these words, in any case."""
        wanted = dict.fromkeys(words)
        lower = {word.lower() for word in wanted}
        found = self.read(lambda word: word.lower() in lower)
        if self.spell is None:
            return found
        known = {word.lower() for word in found.words}
        others = self.spell([word for word in wanted if word.lower() not in known])
        return found.joined(others)


def of_run(folder: Path) -> Source:
    """The vectors of a run of word vectors."""
    run = Run.open(folder)
    recipe = run.recipe()
    kind = find("models", recipe.model_name).Model
    if not issubclass(kind, WordVectors):
        raise UserError(
            f"{folder} is a run for {run.task.replace('_', ' ')}, which has no vectors of words alone",
            todo="give a run of word2vec, glove or fasttext, or a file of word vectors",
        )
    (tokenizer,) = run.tokenizers(text_columns(find("tasks", run.task).Task, recipe.task)).values()
    model: Any = kind(recipe.model, tokenizer.vocabulary)
    set_weights(model, run.read_weights(), folder / WEIGHTS)
    lookup = WordLookup(model.eval(), tokenizer)

    def read(keep: Keep) -> Vectors:
        names = enumerate(lookup.names)
        kept = [number for number, name in names if number not in lookup.specials and keep(name)]
        return distinct([lookup.names[number] for number in kept], lookup.vectors[kept].numpy())

    def spell(words: list[str]) -> Vectors:
        assert isinstance(model, SpelledVectors)
        with inference(model):
            rows = model.spelled_vectors(words).float().cpu()
        kept = [number for number, row in enumerate(rows) if row.any()]
        return distinct([words[number] for number in kept], rows[kept].numpy())

    return Source(str(folder), read, spell if isinstance(model, SpelledVectors) else None)


def with_extra_words(recipe: Recipe, tokenizers: Mapping[str, Tokenizer]) -> dict[str, Tokenizer]:
    """The tokenizers of a new run, with the words that its vectors add to the vocabulary."""
    given = recipe.vectors
    if given is None or given.vectors is None or not given.extra_words:
        return dict(tokenizers)
    if issubclass(find("models", recipe.model_name).Model, OutputProjection):
        raise UserError(
            f"model.extra_words = {given.extra_words}: {recipe.model_name} predicts words, but never sees these",
            todo="leave extra_words out",
        )
    words = Source.open(given.vectors).words(given.extra_words)
    extended = {id(each): with_words(each, words) for each in tokenizers.values()}  # columns may share a tokenizer
    return {column: extended[id(each)] for column, each in tokenizers.items()}


def load_pretrained(
    model: nn.Module, recipe: Recipe, run: Run, vocabulary: Vocabulary, start: Path | None, say: Callable[[str], None]
) -> Coverage | None:
    """Initialize the embedding of a model from the vectors of its recipe; freeze it if the recipe says so.

    They are not read if other weights follow, those of a checkpoint or of another run. `vocabulary` is that of the text
    that the model reads.
    """
    given = recipe.vectors
    if given is None or given.vectors is None:
        return None
    embedding, spellings = embedding_of(model, vocabulary)
    coverage = None
    if start is not None:
        say(f"from {start}: its weights take the place of the vectors of {given.vectors}")
    elif not is_begun(run):
        vectors = Source.open(given.vectors).of_words(word for words in spellings for word in words)
        if (dim := vectors.values.shape[1]) != embedding.embedding_dim:
            key = "embedding_dim" if "embedding_dim" in vars(recipe.model) else "dim"
            raise UserError(
                f"the vectors of {given.vectors} have {dim} numbers, but those of the model {embedding.embedding_dim}",
                todo=f"model.{key}={dim}",
            )
        coverage = load_vectors(embedding, spellings, vectors, scaled=given.scale_vectors)
        if not coverage.found:
            raise UserError(
                f"none of the {coverage.words:,} words of the vocabulary has a vector in {given.vectors}",
                todo="take vectors of the language of the text; their words are whole words: text.unit=word or space",
            )
        say(f"{given.vectors}: {coverage}; the others start at random")
    if given.freeze_vectors:
        embedding.weight.requires_grad_(False)
    return coverage


def is_begun(run: Run) -> bool:
    """Whether a run has a checkpoint that it resumes from."""
    found = checkpoints.found(run.folder / "checkpoints")
    return any(checkpoints.damage(path) is None for path in reversed(found))


def embedding_of(model: nn.Module, vocabulary: Vocabulary) -> tuple[nn.Embedding, Spellings]:
    """The embedding that vectors fill, and the words of its rows."""
    encoder = model.model if isinstance(model, Headed) else model
    if isinstance(encoder, SharedEmbedding):
        return encoder.shared_embedding(), encoder.shared_spellings()
    assert isinstance(encoder, InputEmbedding)
    embedding = encoder.input_embedding()
    assert embedding.num_embeddings == len(vocabulary)
    return embedding, spellings_of(vocabulary)
