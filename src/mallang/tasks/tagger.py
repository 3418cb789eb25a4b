"""The verbs of a trained tagger: the tag of every word, spans with their places in the text, and scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

from mallang import notebook
from mallang.data.columns import split_cell
from mallang.errors import UserError
from mallang.evaluation.score import Score
from mallang.evaluation.spans import Span
from mallang.evaluation.tag_predictions import TagPredictions
from mallang.tasks.attribution import Method
from mallang.tasks.contract import Evaluated
from mallang.tasks.out_of_vocabulary import forget_oov
from mallang.tasks.tag_reading import Part, Read, Several, batches, encoder_of, examples_of, parts_of, predict
from mallang.tasks.tag_scores import all_scores, quick_scores
from mallang.text.words import Word, joined, split_words

if TYPE_CHECKING:
    from mallang.tasks.tagging import Task


@dataclass(frozen=True)
class TaggedSpan:
    """Words of one type, such as a name, and where they are in the text."""

    type: str
    text: str
    start: int
    end: int
    """The first character, and the first one after it."""
    confidence: float
    """The probability that these words, and none beside them, are a span of this type."""


@dataclass(frozen=True)
class Tagging:
    """The words of a text and their tags."""

    input: str
    words: tuple[str, ...]
    offsets: tuple[tuple[int, int], ...]
    """Where each word is in the text: the first character, and the first one after it."""
    tags: tuple[str, ...]
    probabilities: tuple[float, ...]
    """The probability of the tag of each word, whatever the tags of the others are."""
    spans: tuple[TaggedSpan, ...] = ()
    nbest: tuple[Several, ...] = ()
    """The most probable tag sequences; only if they were asked for, and of a text that is read at once."""

    def __str__(self) -> str:
        return " ".join(f"{word}/{tag}" for word, tag in zip(self.words, self.tags, strict=True))

    def _repr_html_(self) -> str:
        """In a notebook: a row per word."""
        return notebook.block(
            "",
            notebook.table(("word", "tag", "probability"), zip(self.words, self.tags, self.probabilities, strict=True)),
        )


class Verbs:
    """A trained tagger."""

    task_name = "tagging"
    verbs = ("tag", "evaluate")
    compared_by = ("span F1", "tag accuracy")

    def __init__(self, task: Task, model: Any, config: None, max_length: int) -> None:
        self.task, self.model, self.config, self.max_length = task, model, config, max_length

    def tag(self, texts: str | Iterable[str | Sequence[str]], *, nbest: int = 1, pretokenized: bool = False) -> Any:
        """The tags of a text, or of each of several; a list of words is tagged as it is.

        A text is split into words as `task.split` says, and with `pretokenized` at white space alone.
        """
        alone = isinstance(texts, str)
        given = [texts] if isinstance(texts, str) else list(texts)
        split = "spaces" if pretokenized else self.task.config.split
        sentences = [split_words(each, split) if isinstance(each, str) else joined(list(each)) for each in given]
        inputs = [each if isinstance(each, str) else " ".join(each) for each in given]
        found = self.tag_words(inputs, sentences, nbest)
        return found[0] if alone else found

    def tag_words(self, inputs: Sequence[str], sentences: Sequence[list[Word]], nbest: int) -> list[Tagging]:
        """The tags of texts that are split into words."""
        whole = self.parts([[word.text for word in words] for words in sentences], nbest)
        return [tagging(text, words, own) for text, words, own in zip(inputs, sentences, whole, strict=True)]

    def parts(self, sentences: Sequence[Sequence[str]], nbest: int = 1) -> list[list[Part]]:
        """The tags of every sentence, in as many parts as the model reads it in."""
        examples = examples_of(self.task, self.model, sentences)
        found: dict[int, Part] = {}
        for group, read in batches(self.task, self.model, examples):
            sizes = [examples[place].words for place in group]
            found |= dict(zip(group, parts_of(self.task, read, sizes, nbest), strict=True))
        whole: list[list[Part]] = [[] for _ in sentences]
        for place, example in enumerate(examples):
            whole[example.sentence].append(found[place])
        return whole

    def only_part(self, read: Read, words: int) -> Part:
        """The tags of a sentence that is a batch by itself."""
        (found,) = parts_of(self.task, read, [words], 1)
        return found

    def attribution(
        self, texts: str | Iterable[str], *, method: Method = "integrated", label: str | None = None
    ) -> Any:
        """How much every word of a text adds to the score of each predicted tag: a list of one attribution per word.

        Several texts have a list each. A tag cannot be chosen: `label` must be None.
        """
        from mallang.tasks.tag_attribution import tag_attributions

        if label is not None:
            raise UserError("every word has a tag of its own, so no label can be chosen", todo="leave out the label")
        given = [texts] if isinstance(texts, str) else list(texts)
        found = [tag_attributions(self, text, method) for text in given]
        return found[0] if isinstance(texts, str) else found

    def tag_predictions(self, rows: Sequence[tuple[str, ...]]) -> TagPredictions:
        """The predicted tags of rows beside their gold tags, with probabilities."""
        sentences = [self.sentence(row, number) for number, row in enumerate(rows, start=1)]
        whole = self.parts([words for words, _ in sentences])
        outputs = [[tag for part in own for tag in part.tags] for own in whole]
        shares = [[share for part in own for share in part.probabilities] for own in whole]
        words, golds = [words for words, _ in sentences], [tags for _, tags in sentences]
        spans = [span_confidences(own) for own in whole]
        return TagPredictions(words, golds, outputs, shares, spans, self.task.tags.labels.scheme)

    @property
    def evaluated(self) -> Evaluated:
        """What `evaluate` gives for each row."""
        return "tags"

    def evaluate(self, rows: Sequence[tuple[str, ...]], **options: Any) -> tuple[list[Score], list[str]]:
        """Accuracy, precision, recall and F1, also of each type; and the tags of every row."""
        if options := {name: value for name, value in options.items() if value is not None}:
            raise UserError(f"{next(iter(options))} has no effect on a tagger", todo="leave it out")
        sentences = [self.sentence(row, number) for number, row in enumerate(rows, start=1)]
        gold = [tags for _, tags in sentences]
        found, _ = predict(self.task, self.model, [words for words, _ in sentences])
        return all_scores(found, gold, self.task.tags.labels.scheme), [" ".join(tags) for tags in found]

    def sentence(self, row: tuple[str, ...], number: int) -> tuple[list[str], list[str]]:
        """The words and tags of a row."""
        words, tags = split_cell(row[0], "words"), split_cell(row[1], "tags")
        if len(words) != len(tags):
            raise UserError(
                f"there are {len(words)} words but {len(tags)} tags",
                where=f"row {number}",
                todo="give every word exactly one tag",
            )
        try:
            self.task.tags.encode(tags)
        except UserError as error:
            raise UserError(error.what, where=f"row {number}", todo=error.todo) from error
        return words, tags


def span_confidences(parts: Sequence[Part]) -> dict[Span, float]:
    """The confidence of every span of a sentence."""
    found, place = dict[Span, float](), 0
    for part in parts:
        found |= {Span(kind, place + first, place + after): share for kind, first, after, share in part.spans}
        place += len(part.tags)
    return found


def tagging(text: str, words: list[Word], parts: list[Part]) -> Tagging:
    """The result for a text from those of its parts."""
    spans, place = list[TaggedSpan](), 0
    for part in parts:
        for kind, first, after, share in part.spans:
            inside = words[place + first : place + after]
            start, end = min(word.start for word in inside), max(word.end for word in inside)
            spans.append(TaggedSpan(kind, text[start:end], start, end, share))
        place += len(part.tags)
    return Tagging(
        text,
        tuple(word.text for word in words),
        tuple((word.start, word.end) for word in words),
        tuple(tag for part in parts for tag in part.tags),
        tuple(share for part in parts for share in part.probabilities),
        tuple(spans),
        tuple(parts[0].nbest) if len(parts) == 1 else (),
    )


def validation_scores(task: Task, model: nn.Module, sentences: Sequence[tuple[list[str], list[str]]]) -> list[Score]:
    """The loss per word, accuracy and F1 of held-out sentences."""
    gold = [tags for _, tags in sentences]
    found, loss = predict(task, model, [words for words, _ in sentences], [task.tags.encode(tags) for tags in gold])
    # Captured CUDA graphs read the tables of the vocabulary, so these are put back before training continues.
    forget_oov(encoder_of(model), 0)
    if task.features is not None:
        task.features.forget()
    words = sum(map(len, gold))
    scores = quick_scores(found, gold, task.tags.labels.scheme)
    return [Score("loss", loss / max(1, words), "nats per word", count=len(gold)), *scores]
