"""The verbs of a trained model of similarity: the score of a pair, vectors of texts, correlations with gold numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float32

from mallang import notebook
from mallang.data.columns import Numbers, bits_to_number
from mallang.errors import UserError
from mallang.evaluation.correlation import correlation_scores
from mallang.evaluation.score import Score
from mallang.layers.head import Headed
from mallang.tasks.attribution import Method
from mallang.tasks.contract import Evaluated
from mallang.tasks.embedding import text_vectors, word_vectors
from mallang.tasks.pair_layout import as_pairs, is_pair, lengths_of
from mallang.tasks.text_windows import TextWindows

if TYPE_CHECKING:
    from mallang.tasks.similarity import Task


@dataclass(frozen=True)
class Similarity:
    """How alike two texts are."""

    input: tuple[str, str]
    score: float

    def __str__(self) -> str:
        return f"{self.score:.4f}"

    def _repr_html_(self) -> str:
        """In a notebook: both texts and their score."""
        return notebook.block("", notebook.bars([(" ↔ ".join(self.input), self.score)]))


class Verbs:
    """A trained model of similarity."""

    task_name = "similarity"
    verbs = ("similarity", "embed", "evaluate")
    compared_by = ("Pearson",)
    reads_pairs = True
    evaluated: Evaluated = "numbers"

    def __init__(self, task: Task, model: Any, config: None, max_length: int) -> None:
        self.task, self.model, self.config, self.max_length = task, model, config, max_length

    @property
    def windows(self) -> TextWindows:
        """How a bi-encoder reads texts that are longer than the model's positions."""
        return self.task.windows

    @windows.setter
    def windows(self, windows: TextWindows) -> None:
        self.task.windows = windows

    def note_long(self, texts: Sequence[str]) -> str:
        """A sentence about the texts that are longer than a window; empty where none is."""
        return self.windows.note(list(map(len, self.task.text.encode_batch(list(texts))))) if self.windows.most else ""

    @property
    def encoder(self) -> Any:
        """The model without its head."""
        return self.model.model if isinstance(self.model, Headed) else self.model

    @property
    def control(self) -> tuple[str, ...]:
        """The recipe values that make the control of this run, the same without the first text.

        There is none for a control itself, and for the cosine of two vectors.
        """
        config = self.task.config
        if config.kind == "bi" or config.read != "both":
            return ()
        orders = [f"task.{name}=false" for name in ("symmetric", "both_orders") if getattr(config, name)]
        return ("task.read=second", *orders)

    def similarity(self, pairs: Any) -> Any:
        """The score of a pair of texts, or of each."""
        given = as_pairs(pairs)
        scores = self.task.predict(self.model, self.examples(given)).tolist() if given else []
        found = [Similarity(pair, score) for pair, score in zip(given, scores, strict=True)]
        return found[0] if is_pair(pairs) else found

    def examples(self, pairs: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Pairs as examples; their number is not known."""
        given, nothing = as_pairs(pairs), np.array([np.nan], dtype=np.float32).view(np.int32).astype(np.int64)
        sides = [self.task.text.encode_batch([pair[place] for pair in given]) for place in (0, 1)]
        arrays = [[np.array(ids, dtype=np.int64) for ids in side] for side in sides]
        return [(first, second, nothing) for first, second in zip(*arrays, strict=True)]

    def note_cut(self, pairs: Sequence[Any]) -> str:
        """A sentence about the pairs that the model cannot read to their ends; empty where it can."""
        if self.windows.most:
            return self.windows.note([max(map(len, each[:2])) for each in self.examples(pairs)])
        return self.task.layout.note_cut(lengths_of([each[:2] for each in self.examples(pairs)])) if pairs else ""

    def embed(self, texts: str | Iterable[str], *, words: bool = False) -> Float32[np.ndarray, "*texts dim"]:
        """The vector of a text, or one row per text, whose cosines are the scores; with `words` those of words."""
        given = [texts] if isinstance(texts, str) else list(texts)
        if not words and self.task.config.kind == "cross":
            raise UserError(
                "this run reads both texts of a pair in one row, so a text alone has no vector",
                todo="train with task.kind=bi",
            )
        if words:
            found = word_vectors(self.encoder, self.task.text, given)
        else:
            found = text_vectors(self.encoder, self.task.text, given, windows=self.windows)
        return found[0] if isinstance(texts, str) else found

    def attribution(self, texts: Any, *, method: Method = "integrated", label: str | None = None) -> Any:
        """How much every token of both texts of a pair, or of each, adds to their similarity."""
        from mallang.tasks.similarity_attribution import similarity_attributions

        if label is not None:
            raise UserError("a similarity is a number, so there is no label to explain", todo="leave out the label")
        found = similarity_attributions(self, as_pairs(texts), method)
        return found[0] if is_pair(texts) else found

    def evaluate(self, rows: Sequence[tuple[str, ...]], **options: Any) -> tuple[list[Score], list[str]]:
        """The correlations and the squared error, and the score of every row."""
        if options := {name: value for name, value in options.items() if value is not None}:
            raise UserError(f"{next(iter(options))} has no effect on similarity", todo="leave it out")
        numbers = Numbers(self.task.config.lowest, self.task.config.highest)
        return similarity_scores(self.similarity([row[:2] for row in rows]), [row[2] for row in rows], numbers)


def similarity_scores(
    found: Sequence[Similarity], cells: Sequence[str], numbers: Numbers
) -> tuple[list[Score], list[str]]:
    """The correlations with gold numbers, the squared error, and the scores as texts."""
    golds = np.array([read_gold(cell, number, numbers) for number, cell in enumerate(cells, start=1)])
    scores = np.array([each.score for each in found])
    error = float(((scores - golds) ** 2).mean())
    signature = f"lowest:{numbers.lowest:g}|highest:{numbers.highest:g}"
    told = [*correlation_scores(scores, golds).values(), Score("MSE", error, signature, count=len(golds))]
    return told, [str(each) for each in found]


def read_gold(cell: str, number: int, numbers: Numbers) -> float:
    """The gold number of a row; one that is none is refused with its row."""
    try:
        return bits_to_number(numbers.encode_batch([cell])[0])
    except UserError as error:
        raise UserError(error.what, where=f"row {number}", todo=error.todo) from error


def cosines(model: Any, pairs: Any) -> Any:
    """The cosine of the vectors of both texts, for any model that embeds texts: what a bi-encoder starts from."""
    given = as_pairs(pairs)
    texts = list(dict.fromkeys(text for pair in given for text in pair))
    vectors = dict(zip(texts, model.embed(texts).astype(np.float64), strict=True)) if texts else {}
    found = []
    for pair in given:
        first, second = (vectors[text] for text in pair)
        size = float(np.linalg.norm(first) * np.linalg.norm(second))
        found.append(Similarity(pair, float(first @ second) / size if size else 0.0))
    return found[0] if is_pair(pairs) else found
