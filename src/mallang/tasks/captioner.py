"""The verbs of a trained captioner: a caption for an image, the score of a given one, evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mallang.data.batch import Batch
from mallang.data.images import data_uri
from mallang.decoding import contract as decoding
from mallang.decoding.contract import Hypothesis
from mallang.decoding.options import change_search
from mallang.decoding.scoring import score
from mallang.decoding.search import search
from mallang.errors import UserError
from mallang.evaluation.captions import caption_scores
from mallang.evaluation.perplexity import perplexities
from mallang.evaluation.score import Score
from mallang.tasks.contract import Compared, Evaluated, Written
from mallang.tasks.translator import Scored, Translation
from mallang.text.vocabulary import BOS, EOS

if TYPE_CHECKING:
    from mallang.tasks.captioning import Task

BATCH_TOKENS = 4096
"""Padded tokens per batch of given captions."""
TOGETHER = 64
"""Images of a batch, counted for every hypothesis of the beam."""


class Verbs:
    """A trained model that writes captions."""

    task_name = "captioning"
    verbs = ("caption", "evaluate")
    compared_by: Compared | None = ("CIDEr-D", "BLEU-4")
    evaluated: Evaluated = "texts"

    def __init__(self, task: Task, model: Any, config: decoding.Config, max_length: int) -> None:
        self.task, self.model, self.config, self.max_length = task, model, config, max_length
        self.device = next(model.parameters()).device

    def caption(self, images: Any, **options: Any) -> Any:
        """A caption of one image, or of each; `beam=5`, `nbest=3` and the like change the search.

        An image is the path of its file, a data URI, or its pixels; with given features, the path of their file.
        """
        alone = isinstance(images, str | Path | np.ndarray) or not isinstance(images, Iterable)
        cells = [as_cell(each) for each in ([images] if alone else images)]
        found = [self.told(cell, nbest) for cell, nbest in zip(cells, self.search(cells, **options), strict=True)]
        return found[0] if alone else found

    def search(self, cells: Sequence[str], **options: Any) -> list[list[Hypothesis]]:
        """The n-best captions of every image, as tokens."""
        config = change_search(self.config, options)
        width = config.beam if config.method == "beam" else max(1, config.nbest)
        size = max(1, TOGETHER // width)
        found: list[list[Hypothesis]] = []
        for start in range(0, len(cells), size):
            batch = self.read(cells[start : start + size])
            found += search(self.model, batch.to(self.device), config, list(range(start, start + len(batch))))
        return found

    def read(self, cells: Sequence[str]) -> Batch:
        """A batch of images without captions."""
        ones = torch.ones(len(cells), dtype=torch.long)
        return Batch(tokens=torch.full((len(cells), 1), BOS), lengths=ones, **self.task.pictures(self.packed(cells)))

    def packed(self, cells: Sequence[str]) -> list[np.ndarray]:
        """The integers of images; an image that cannot be read is named in the error."""
        return [np.array(self.task.picture.encode_batch([cell])[0], np.int64) for cell in cells]

    def told(self, cell: str, nbest: Sequence[Hypothesis]) -> Translation:
        """The caption of an image, and the n-best captions."""
        best, decode = nbest[0], self.task.caption.decode
        return Translation(
            input=short(cell),
            output=decode(best.tokens),
            score=best.score,
            tokens=tuple(self.task.caption.vocabulary.tokens[token] for token in best.tokens),
            nbest=tuple((decode(each.tokens), each.score, each.normalized) for each in nbest),
            note="" if best.finished else "cut off at the length limit",
            is_cut=not best.finished,
            token_scores=tuple(best.token_scores),
        )

    def score(self, pairs: Sequence[Any]) -> list[Scored]:
        """The log-probability of given captions, for pairs of an image and a caption."""
        if any(not isinstance(pair, tuple | list) or len(pair) != 2 for pair in pairs):
            raise UserError("a pair is an image and its caption", todo='give [("dog.png", "a dog"), …]')
        ids = self.task.caption.encode_batch([caption for _, caption in pairs])
        names, found = self.task.caption.vocabulary.tokens, list[Scored]()
        for start in range(0, len(pairs), TOGETHER):
            part = range(start, min(start + TOGETHER, len(pairs)))
            packed = self.packed([pairs[i][0] for i in part])
            rows = [((picture, np.array(ids[i], np.int64)),) for picture, i in zip(packed, part, strict=True)]
            batch = self.task.prepare(rows, np.random.default_rng(0))
            for i, values in zip(part, score(self.model, batch.to(self.device)), strict=True):
                tokens = tuple(names[token] for token in [*ids[i], EOS])
                found.append(Scored(short(pairs[i][0]), pairs[i][1], sum(values), tokens, tuple(values)))
        return found

    def write_rows(self, rows: Sequence[Sequence[str]], domains: Sequence[str | None]) -> Written:
        """The caption of every image."""
        results = self.caption_rows(rows)
        return Written(
            [short(row[0]) for row in rows],
            [each.output for each in results],
            [row[1] for row in rows],
            [each.is_cut for each in results],
        )

    def caption_rows(self, rows: Sequence[Sequence[str]], **options: Any) -> list[Translation]:
        """The caption of every row; an image with several captions is read once."""
        cells = list(dict.fromkeys(row[0] for row in rows))
        found = dict(zip(cells, self.caption(cells, **options), strict=True))
        return [found[row[0]] for row in rows]

    def evaluate(
        self, rows: Sequence[tuple[str, str]], *, domain: str | None = None, **options: Any
    ) -> tuple[list[Score], list[str]]:
        """BLEU-1 to 4, CIDEr, exact match and perplexities, each with its signature; and the caption of every row.

        All captions of one image are its references.
        """
        if domain is not None:
            raise UserError("captions have no domain", todo="leave it out")
        written = self.caption_rows(rows, **options)
        references: dict[str, list[str]] = {}
        for cell, caption in rows:
            references.setdefault(cell, []).append(caption)
        outputs = {row[0]: each.output for row, each in zip(rows, written, strict=True)}
        scores = caption_scores([outputs[cell] for cell in references], list(references.values()))
        scored = self.score(rows)
        by_unit = perplexities(
            [each.score for each in scored],
            tokens=[len(each.tokens) - 1 for each in scored],
            words=[len(caption.split()) for _, caption in rows],
            bytes=[len(caption.encode()) for _, caption in rows],
            tokenizer=self.task.caption.config.unit,
        )
        return [*scores, *by_unit.values()], [each.output for each in written]


def as_cell(image: Any) -> str:
    """An image as a cell of a column."""
    if isinstance(image, np.ndarray):
        if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
            raise UserError(
                f"pixels are uint8 of shape (height, width, 3), but this is {image.dtype} {image.shape}",
                todo="convert the image to RGB first",
            )
        return data_uri(image)
    if not isinstance(image, str | Path):
        raise UserError(f"{type(image).__name__} is no image", todo="give the path of a file, or an array of pixels")
    return str(image)


def short(cell: str) -> str:
    """What is shown of an image: its path, or the beginning of a data URI."""
    return cell if not cell.startswith("data:") else f"{cell[:32]}…"
