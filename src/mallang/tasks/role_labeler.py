"""The verbs of a trained role labeler: predicates, given or found, the roles of words for each, and scores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from torch import nn

from mallang import notebook
from mallang.data.columns import split_cell
from mallang.data.role_files import NONE
from mallang.data.roles import Sentence
from mallang.data.sampler import by_length
from mallang.decoding.contract import device_of, inference
from mallang.errors import UserError
from mallang.evaluation.roles import (
    Labeled,
    by_tree,
    predicate_statistics,
    role_statistics,
    scores_by_role,
)
from mallang.evaluation.score import Score
from mallang.evaluation.spans import read_spans
from mallang.tasks.contract import Evaluated
from mallang.tasks.out_of_vocabulary import forget_oov, ids_to_read
from mallang.tasks.role_examples import RoleExample
from mallang.tasks.tag_reading import encoder_of, flattened
from mallang.text.words import Word, joined, split_words

if TYPE_CHECKING:
    from mallang.tasks.semantic_roles import Task

BATCH_TOKENS = 4096
"""Padded tokens per batch of inference."""


@dataclass(frozen=True)
class RoleSpan:
    """Words with a role for a predicate, and where they are in the text."""

    role: str
    text: str
    start: int
    end: int
    """The first character, and the first one after it."""
    first: int
    last: int
    """The first word, and the last one; the same for a head word."""
    confidence: float
    """The probability of the role at all of these words, each by itself."""


@dataclass(frozen=True)
class Proposition:
    """A predicate and its arguments."""

    predicate: str
    lemma: str
    """The lemma that the predicate has in the training data; the word in lower case if it is not there."""
    place: int
    """The word that is the predicate."""
    start: int
    end: int
    """Its first character, and the first one after it."""
    confidence: float
    """The probability that it is a predicate; 1 if it was given."""
    roles: tuple[str, ...]
    """The role of every word, as the data writes them."""
    arguments: tuple[RoleSpan, ...]

    def __str__(self) -> str:
        told = [f"{each.role}={each.text}" for each in self.arguments]
        return f"{self.predicate}: {', '.join(told)}" if told else self.predicate


@dataclass(frozen=True)
class RoleLabeling:
    """The words of a text, and who does what to whom in it."""

    input: str
    words: tuple[str, ...]
    offsets: tuple[tuple[int, int], ...]
    """Where each word is in the text: the first character, and the first one after it."""
    propositions: tuple[Proposition, ...]
    are_given: bool
    """Whether the predicates were given; otherwise the model found them."""

    def __str__(self) -> str:
        return "; ".join(map(str, self.propositions))

    def _repr_html_(self) -> str:
        tables = []
        for each in self.propositions:
            rows = [(f"{one.role} · {one.text}", one.confidence) for one in each.arguments]
            tables.append(notebook.note(each.predicate) + notebook.bars(rows))
        return notebook.block(self.input, *tables)


class Verbs:
    """A trained role labeler."""

    task_name = "semantic_roles"
    verbs = ("roles", "evaluate")
    compared_by = ("role F1",)

    def __init__(self, task: Task, model: Any, config: None, max_length: int) -> None:
        self.task, self.model, self.config, self.max_length = task, model, config, max_length

    def roles(
        self,
        texts: str | Iterable[str | Sequence[str]],
        *,
        predicates: Sequence[str | int] | None = None,
        pretokenized: bool = False,
    ) -> Any:
        """Who does what to whom in a text, or in each of several; a list of words is read as it is.

        `predicates` names those of a text, as words or by number from 1; without it the model finds them.
        """
        alone = isinstance(texts, str)
        given = [texts] if isinstance(texts, str) else list(texts)
        split = "spaces" if pretokenized else self.task.config.split
        sentences = [split_words(each, split) if isinstance(each, str) else joined(list(each)) for each in given]
        plain = [[word.text for word in words] for words in sentences]
        shares = self.predicate_shares(plain)
        if predicates is None:
            chosen = [{place: share for place, share in enumerate(own) if share > 0.5} for own in shares]
        else:
            chosen = [dict.fromkeys(places_named(words, predicates), 1.0) for words in plain]
        found = self.label(plain, [[*own] for own in chosen])
        inputs = [each if isinstance(each, str) else " ".join(each) for each in given]
        results = [
            self.result(text, words, own, rows, are_given=predicates is not None)
            for text, words, own, rows in zip(inputs, sentences, chosen, found, strict=True)
        ]
        return results[0] if alone else results

    def result(
        self,
        text: str,
        words: list[Word],
        chosen: Mapping[int, float],
        rows: Sequence[tuple[list[str], Float[np.ndarray, "words roles"]]],
        *,
        are_given: bool,
    ) -> RoleLabeling:
        """What is known of a text, from the roles for each of its predicates."""
        made = []
        for (place, share), (roles, probabilities) in zip(chosen.items(), rows, strict=True):
            word = words[place]
            arguments = tuple(self.arguments(text, words, roles, probabilities))
            lemma = self.task.lemmas.guess(word.text)
            made.append(Proposition(word.text, lemma, place, word.start, word.end, share, tuple(roles), arguments))
        offsets = tuple((word.start, word.end) for word in words)
        return RoleLabeling(text, tuple(word.text for word in words), offsets, tuple(made), are_given)

    def arguments(
        self, text: str, words: list[Word], roles: list[str], probabilities: Float[np.ndarray, "words roles"]
    ) -> Iterator[RoleSpan]:
        """The arguments that the roles of a predicate spell."""
        if self.task.roles.are_spans:
            found = [(span.type, span.start, span.end) for span in read_spans(roles)]
        else:
            found = [(role, place, place + 1) for place, role in enumerate(roles) if role != NONE]
        ids = self.task.roles.encode(roles)
        for role, first, after in found:
            inside = words[first:after]
            start, end = min(word.start for word in inside), max(word.end for word in inside)
            share = float(np.prod([probabilities[place, ids[place]] for place in range(first, after)]))
            yield RoleSpan(role, text[start:end], start, end, first, after - 1, share)

    # ---- predictions ----

    def predicate_shares(self, sentences: Sequence[Sequence[str]]) -> list[list[float]]:
        """The probability of every word of being a predicate."""
        found, _ = read(self.task, self.model, examples_of(self.task, self.model, sentences))
        return [own.tolist() for own in found]

    def label(
        self,
        sentences: Sequence[Sequence[str]],
        places: Sequence[Sequence[int]],
        lemmas: Sequence[Sequence[str]] | None = None,
    ) -> list[list[tuple[list[str], Float[np.ndarray, "words roles"]]]]:
        """For every predicate of every sentence the roles of all words, and the probability of each role.

        `lemmas` are those of the words of each sentence; without them they are looked up.
        """
        return label(self.task, self.model, sentences, places, lemmas)

    # ---- scores ----

    @property
    def evaluated(self) -> Evaluated:
        """What `evaluate` gives for each row."""
        return "roles"

    def evaluate(self, rows: Sequence[tuple[str, ...]], **options: Any) -> tuple[list[Score], list[str]]:
        """Labeled F1, precision and recall with given predicates, of each role, and with the predicates it finds."""
        if options := {name: value for name, value in options.items() if value is not None}:
            raise UserError(f"{next(iter(options))} has no effect on a role labeler", todo="leave it out")
        sentences = []
        for number, row in enumerate(rows, start=1):
            try:
                sentences.append(Sentence.of(row))
            except UserError as error:
                raise UserError(error.what, where=f"row {number}", todo=error.todo) from error
        spans, golds = self.task.roles.are_spans, [gold_of(each) for each in sentences]
        outputs = with_given(self.task, self.model, sentences)
        found = with_found(self.task, self.model, sentences)
        scores = [each.score() for each in role_statistics(outputs, golds, spans=spans).values()]
        scores.append(predicate_statistics(found, golds).score())
        scores.append(role_statistics(found, golds, spans=spans, found=True)["F1"].score())
        scores += scores_by_role(outputs, golds, spans=spans)
        return scores, [told(each.words, own) for each, own in zip(sentences, outputs, strict=True)]

    def derived_span_scores(self, rows: Sequence[tuple[str, ...]]) -> list[Score]:
        """The F1, precision and recall of spans that a tree makes of roles on head words, with given predicates.

        Rows are words, predicates, roles and the head of every word. The tree is that of the data for both sides, so
        that these are scores of spans that nobody predicts without a parser.
        """
        if self.task.roles.are_spans:
            raise UserError("this run labels spans, and needs no tree for them", todo="evaluate it")
        sentences = [Sentence.of(row) for row in rows]
        trees = [[int(head) for head in split_cell(row[3], "tags")] for row in rows]
        pairs = list(zip(with_given(self.task, self.model, sentences), trees, strict=True))
        outputs = [by_tree(labeled, tree) for labeled, tree in pairs]
        golds = [by_tree(gold_of(each), tree) for each, tree in zip(sentences, trees, strict=True)]
        return [each.score() for each in role_statistics(outputs, golds, spans=True).values()]


def gold_of(sentence: Sentence) -> Labeled:
    """The predicates and roles of the data."""
    return Labeled(sentence.predicates, sentence.roles)


def told(words: Sequence[str], labeled: Labeled) -> str:
    """The roles of a sentence as a line: for each predicate the words that have one."""
    parts = []
    for place, roles in zip(labeled.predicates, labeled.roles, strict=True):
        own = [f"{word}/{role}" for word, role in zip(words, roles, strict=True) if role not in (NONE, "O")]
        parts.append(f"{words[place]}: {' '.join(own)}".rstrip())
    return " | ".join(parts)


def places_named(words: Sequence[str], wanted: Sequence[str | int]) -> list[int]:
    """The places of predicates that are named as words, all of that spelling, or by number from 1."""
    found: set[int] = set()
    for each in wanted:
        if isinstance(each, int) or each.isdecimal():
            if not 1 <= int(each) <= len(words):
                raise UserError(f"there is no word {each}: the text has {len(words)} words", todo="count from 1")
            found.add(int(each) - 1)
            continue
        places = [place for place, word in enumerate(words) if word == each]
        if not places:
            raise UserError(
                f"the predicate {each!r} is no word of the text: {' '.join(words)}", todo="give one of them"
            )
        found.update(places)
    return sorted(found)


def examples_of(
    task: Task,
    model: nn.Module,
    sentences: Sequence[Sequence[str]],
    asked: Sequence[Sequence[tuple[int, int]]] | None = None,
) -> list[RoleExample]:
    """Sentences as the model reads them: once without a predicate, or once for each place and lemma that is asked for.

    Words outside the vocabulary are read from their characters by models that can do that.
    """
    encoder = encoder_of(model)
    forget_oov(encoder)
    words = list(dict.fromkeys(word for sentence in sentences for word in sentence))
    known = task.segments.ids_of([words])[0]
    read = ids_to_read(encoder, task.text, words, [ids[:1] for ids in known])
    ids_of = {word: ids[0] for word, ids in zip(words, read, strict=True)}
    features = [[]] * len(sentences) if task.features is None else task.features.ids_of(sentences)
    made = []
    for number, sentence in enumerate(sentences):
        ids = np.array([ids_of[word] for word in sentence], dtype=np.int64)
        more = () if task.features is None else flattened(features[number])
        wanted = [(-1, 0)] if asked is None else asked[number]
        made += [RoleExample(ids, place, lemma, features=more) for place, lemma in wanted]
    return made


def read(
    task: Task, model: nn.Module, examples: Sequence[RoleExample]
) -> tuple[list[Float[np.ndarray, " words"]], list[Float[np.ndarray, "words roles"]]]:
    """For every example the probability of each word of being a predicate, and the log-probabilities of roles."""
    device, frame = device_of(model), task.text.vocabulary.frame_length
    shares: list[Any] = [np.zeros(0)] * len(examples)
    roles: list[Any] = [np.zeros((0, len(task.roles)))] * len(examples)
    full = [place for place, each in enumerate(examples) if len(each.ids)]
    with inference(model):
        for group in by_length([len(examples[place].ids) + frame for place in full], BATCH_TOKENS) if full else ():
            places = [full[number] for number in group]
            batch = task.collate([examples[place] for place in places]).to(device)
            found, _ = task.scores(model, batch)
            sure = found.predicates.float().sigmoid().cpu().numpy()
            logs = found.roles.float().log_softmax(dim=-1).cpu().double().numpy()
            for row, place in enumerate(places):
                size = len(examples[place].ids)
                shares[place], roles[place] = sure[row, :size], logs[row, :size]
    return shares, roles


def label(
    task: Task,
    model: nn.Module,
    sentences: Sequence[Sequence[str]],
    places: Sequence[Sequence[int]],
    lemmas: Sequence[Sequence[str]] | None = None,
) -> list[list[tuple[list[str], Float[np.ndarray, "words roles"]]]]:
    """For every predicate of every sentence the roles of all words, and the probability of each role."""
    known = [[task.lemmas.guess(word) for word in words] for words in sentences] if lemmas is None else lemmas
    asked = [
        [(place, task.lemmas.id(own[place])) for place in wanted] for wanted, own in zip(places, known, strict=True)
    ]
    _, logs = read(task, model, examples_of(task, model, sentences, asked))
    rows = iter(logs)
    return [
        [
            (task.roles.decode(each, constrained=task.config.constraints), np.exp(each))
            for each in (next(rows) for _ in wanted)
        ]
        for wanted in places
    ]


def with_given(task: Task, model: nn.Module, sentences: Sequence[Sentence]) -> list[Labeled]:
    """The roles for the predicates of the data, whose lemmas are given too."""
    places = [each.predicates for each in sentences]
    rows = label(task, model, [each.words for each in sentences], places, [each.lemmas for each in sentences])
    return [Labeled(own, [roles for roles, _ in made]) for own, made in zip(places, rows, strict=True)]


def with_found(task: Task, model: nn.Module, sentences: Sequence[Sentence]) -> list[Labeled]:
    """The roles for the predicates that the model finds; their lemmas are looked up, as in a plain text."""
    words = [each.words for each in sentences]
    shares, _ = read(task, model, examples_of(task, model, words))
    places = [np.flatnonzero(own > 0.5).tolist() for own in shares]
    rows = label(task, model, words, places)
    return [Labeled(own, [roles for roles, _ in made]) for own, made in zip(places, rows, strict=True)]


def validation_scores(task: Task, model: nn.Module, sentences: Sequence[Sentence]) -> list[Score]:
    """The loss, and F1 without intervals: of roles for given predicates, of predicates, of roles for found ones."""
    golds = [gold_of(each) for each in sentences]
    outputs = with_given(task, model, sentences)
    found = with_found(task, model, sentences)
    loss = held_out_loss(task, model, sentences)
    # Captured CUDA graphs read the tables of the vocabulary, so these are put back before training continues.
    forget_oov(encoder_of(model), 0)
    if task.features is not None:
        task.features.forget()
    scores = {
        "f1": role_statistics(outputs, golds, spans=task.roles.are_spans)["F1"],
        "predicate_f1": predicate_statistics(found, golds),
        "end_to_end_f1": role_statistics(found, golds, spans=task.roles.are_spans, found=True)["F1"],
    }
    return [
        Score("loss", loss, "nats per word: roles + predicates", count=len(golds)),
        *(Score(name, each.value, each.signature, count=len(golds)) for name, each in scores.items()),
    ]


def held_out_loss(task: Task, model: nn.Module, sentences: Sequence[Sentence]) -> float:
    """The loss of roles and that of predicates, both per word."""
    words = [each.words for each in sentences]
    asked = [[(place, task.lemmas.id(each.lemmas[place])) for place in each.predicates] for each in sentences]
    _, logs = read(task, model, examples_of(task, model, words, asked))
    shares, _ = read(task, model, examples_of(task, model, words))
    ids = [np.array(task.roles.encode(roles)) for each in sentences for roles in each.roles]
    lost = [-each[np.arange(len(own)), own][own >= 0] for each, own in zip(logs, ids, strict=True)]
    marks = [np.array([lemma != NONE for lemma in each.lemmas]) for each in sentences]
    missed = [
        -np.log(np.clip(np.where(own, each, 1 - each), 1e-12, 1)) for each, own in zip(shares, marks, strict=True)
    ]
    return sum(float(np.concatenate(part).mean()) if part else 0.0 for part in (lost, missed))
