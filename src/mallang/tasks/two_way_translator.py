"""The verbs of a trained translator of both directions: those of a translator, each with `reverse=True` too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mallang.decoding import contract as decoding
from mallang.errors import UserError
from mallang.evaluation.score import Score
from mallang.tasks import translation, translator
from mallang.tasks.translator import Text, Translation

if TYPE_CHECKING:
    from mallang.tasks.unsupervised_translation import Task


class Verbs(translator.Verbs):
    """A model of two languages; it translates from the source to the target unless it is reversed."""

    task_name = "unsupervised_translation"

    def __init__(
        self, task: Task, model: Any, config: decoding.Config, max_length: int, *, is_reversed: bool = False
    ) -> None:
        self.given = task, model
        self.is_reversed = is_reversed
        sides = task.sides[::-1] if is_reversed else task.sides
        pairs = translation.Task(translation.Config(), {"source": sides[0], "target": sides[1]})
        super().__init__(pairs, model.between(*((1, 0) if is_reversed else (0, 1))), config, max_length)

    @cached_property
    def reversed(self) -> Verbs:
        """A translator in the other direction, by this model."""
        task, model = self.given
        return type(self)(task, model, self.config, self.max_length, is_reversed=not self.is_reversed)

    def translate(self, texts: Text | Iterable[Text], *, reverse: bool = False, **options: Any) -> Any:
        """Translate one text or many; with `reverse` from the target's language into the source's."""
        return self.reversed.translate(texts, **options) if reverse else super().translate(texts, **options)

    def stream(self, texts: Iterable[Text], *, reverse: bool = False, **options: Any) -> Iterator[Translation]:
        """Translations in the order of the texts, as soon as each chunk is done."""
        return self.reversed.stream(texts, **options) if reverse else super().stream(texts, **options)

    def evaluate(
        self, rows: Sequence[tuple[str, str]], *, reverse: bool = False, **options: Any
    ) -> tuple[list[Score], list[str]]:
        """All scores on pairs of texts; with `reverse` of translations from the second text of each into the first."""
        if any(not text for row in rows for text in row) and not any(all(row) for row in rows):
            raise UserError(
                "these rows have one side each: the split was read without pairs, so nothing can be compared",
                todo="evaluate on pairs: --split test, or --data pairs.tsv",
            )
        if reverse:
            return self.reversed.evaluate([(target, source) for source, target in rows], **options)
        return super().evaluate(rows, **options)

    def ensemble(self, others: Sequence[translator.Verbs]) -> Any:
        """Refused: the members would have to be joined in both directions."""
        raise UserError("runs for unsupervised translation cannot be joined", todo="load them one by one")
