"""Few-shot prompting: a language model does a task from a few examples before the question, without training.

    prompter = Prompter(mallang.load("runs/gpt"), read_template("{text} → {label}"), labels=("good", "bad"))
    prompter.choose(["What a film!"], shots=[Example("I slept through it.", "bad")], count=1)[0].label

`choose` appends each label to the prompt and takes the label with the highest log-probability (Brown et al. 2020,
arXiv:2005.14165). Some labels are probable after any question: `calibration="prior"` subtracts the log-probability of
the label after the same examples and an empty question (contextual calibration, Zhao et al. 2021, arXiv:2102.09690);
`"length"` takes the mean over the tokens of a label, so that long labels are not penalized. `write` generates an answer
after the prompt and stops where the next example would begin.

With `relabel` the labels of every question are replaced by randomly drawn words: the model can then know them only from
the examples, which measures in-context learning (Wei et al. 2023, arXiv:2303.03846).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean as mean
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

from mallang.data.batch import Batch, pad_rows
from mallang.data.sampler import by_length
from mallang.decoding.matching import Spelling
from mallang.decoding.scoring import score
from mallang.decoding.stop_strings import stop_at
from mallang.errors import UserError, nearest
from mallang.evaluation.quality import quality
from mallang.evaluation.score import RESAMPLES, SEED, Score, Statistics
from mallang.tasks.templates import Template
from mallang.text.vocabulary import PAD, UNK

if TYPE_CHECKING:
    from mallang.tasks.generation import Verbs

__all__ = ["Answer", "Example", "Prompter", "accuracy"]

Calibration = Literal["none", "length", "prior"]
BATCH_TOKENS = {"cpu": 8192, "cuda": 65536}
"""Tokens per batch."""

ROOM = 32
"""Tokens of the context reserved for a generated answer; at most a quarter of the context."""


class Example(NamedTuple):
    """A text and its label, or its answer."""

    text: str
    label: str


@dataclass(frozen=True)
class Answer:
    """A chosen label or a generated answer; `str()` gives the label or the text alone."""

    text: str
    label: str
    """The label as the caller named it, or the generated text."""
    prompt: str
    """The prompt of the model."""
    shots: int
    """Number of examples in the prompt."""
    dropped: int
    """Number of examples left out because they did not fit into the context."""
    scores: Mapping[str, float]
    """The ranking score of each label; empty where the answer was generated."""
    words: Mapping[str, str]
    """The word for each label in the prompt."""
    unknown: tuple[str, ...] = ()
    """Words or characters of the prompt that the model can only read as `<unk>`."""

    def __str__(self) -> str:
        return self.label


class Prompter:
    """A language model, a template and the labels to choose from."""

    def __init__(
        self,
        model: Verbs,
        template: Template,
        labels: Iterable[str] = (),
        *,
        calibration: Calibration = "none",
        relabel: Sequence[str] = (),
        seed: int = 1,
    ) -> None:
        self.model, self.template, self.labels = model, template, tuple(dict.fromkeys(labels))
        self.calibration, self.relabel, self.seed = calibration, tuple(dict.fromkeys(relabel)), seed
        if calibration not in get_args(Calibration):
            raise UserError(
                f"there is no calibration {calibration!r}", todo=nearest(calibration, get_args(Calibration))
            )
        if relabel and len(self.relabel) < len(self.labels):
            raise UserError(
                f"{len(self.labels)} labels need as many other words, but there are {len(self.relabel)}",
                todo="give more words to --relabel",
            )

    def choose(self, texts: Sequence[str], shots: Sequence[Example] = (), count: int = 0) -> list[Answer]:
        """The label of each text, with `count` examples in the prompt, which are drawn again for every text."""
        if len(self.labels) < 2:
            raise UserError(
                f"there must be two labels to choose from, not {len(self.labels)}", todo="--labels good,bad"
            )
        asked = [self.ask(number, text, shots, count) for number, text in enumerate(texts)]
        scores = self.rank(asked)
        if self.calibration == "prior":
            empty = [replace(one, question=self.template.question("")) for one in asked]
            scores = [
                {label: value - prior[label] for label, value in one.items()}
                for one, prior in zip(scores, self.rank(empty), strict=True)
            ]
        return [
            replace(self.answer(one), label=max(found, key=found.__getitem__), scores=found)
            for one, found in zip(asked, scores, strict=True)
        ]

    def write(
        self, texts: Sequence[str], shots: Sequence[Example] = (), count: int = 0, **options: Any
    ) -> list[Answer]:
        """The generated answer for each text after `count` examples; `options` are those of `generate`."""
        for name, value in (("relabel", self.relabel), ("calibration", self.calibration != "none")):
            if value:
                raise UserError(f"{name} has no effect where answers are written", todo="leave it out")
        asked = [self.fitted(self.ask(number, text, shots, count)) for number, text in enumerate(texts)]
        # The space before an answer belongs to its first word.
        prompts = [one.prompt(self.template).rstrip(" ") for one in asked]
        options = {"method": "greedy", **({"stop": stops} if (stops := self.stops()) else {}), **options}
        written = self.model.generate(prompts, **options)
        return [
            replace(self.answer(one), label=found.output.strip()) for one, found in zip(asked, written, strict=True)
        ]

    def answer(self, question: Question) -> Answer:
        """An `Answer` without a label yet, with the unknown words of its prompt."""
        begun = question.answer(self.template)
        return replace(begun, unknown=self.model.reader.prompt(begun.prompt).unknown)

    def stops(self) -> list[str]:
        """The stop strings of a generated answer, without line ends that are needless or cannot be generated."""
        if self.model.reader.is_stream:
            return [found for stop in self.template.stops if (found := stop.strip())]
        return [stop for stop in self.template.stops if stop.strip() or can_say(stop, self.model.spelling)]

    def ask(self, number: int, text: str, shots: Sequence[Example], count: int) -> Question:
        """The question for one text. The first n of the drawn examples do not depend on `count`, for comparability."""
        random = np.random.default_rng([self.seed, number])
        words = dict(zip(self.labels, random.permutation(self.relabel).tolist(), strict=False)) if self.relabel else {}
        others = [place for place, shot in enumerate(shots) if shot.text != text]
        if count > len(others):
            raise UserError(f"{count} examples are asked for, but there are {len(others)}", todo="lower --shots")
        drawn = [shots[others[place]] for place in random.permutation(len(others))[:count]]
        name = self.template.called
        filled = [
            self.template.shot_of(shot.text, words.get(shot.label, name(shot.label)), name(shot.label))
            for shot in drawn
        ]
        called = {label: words.get(label, name(label)) for label in self.labels}
        return Question(text, self.template.question(text), tuple(filled), called)

    def rank(self, asked: list[Question]) -> list[dict[str, float]]:
        """The ranking score of each label for every question: the log-probability of its words after the prompt."""
        asked[:] = [self.fitted(question) for question in asked]
        rows = [row for question in asked for row in self.candidates(question)]
        found = iter(self.label_scores(rows))
        value = mean if self.calibration == "length" else math.fsum
        return [{label: value(next(found)) for label in one.words} for one in asked]

    def candidates(self, question: Question) -> list[tuple[list[int], int]]:
        """The ids of the prompt with each label after it, and the length of their common prefix.

        Prompt and label are tokenized as one text, because a label may change the tokens before it.
        """
        prompt = question.prompt(self.template)
        rows = [self.model.reader.prompt(prompt + word).ids for word in question.words.values()]
        shared = common_prefix(rows)
        for word, ids in zip(question.words.values(), rows, strict=True):
            if any(token == UNK or token >= len(self.model.tokenizer.vocabulary) for token in ids[shared:]):
                raise UserError(f"the model has no token for the label {word!r}", todo="choose words that it knows")
            if rows.count(ids) > 1:
                raise UserError(f"to the model the label {word!r} is the same as another", todo="choose other words")
        return [(ids, shared) for ids in rows]

    def fitted(self, question: Question) -> Question:
        """The question without its first examples, as many as must be dropped to fit the context."""
        longest = self.model.reader.context
        while longest is not None:
            texts = [question.prompt(self.template) + word for word in question.words.values() or ("",)]
            length = max(len(self.model.reader.prompt(text).ids) for text in texts)
            # The last token of a label is predicted, not read; a generated answer needs free context.
            if length <= (longest + 1 if question.words else longest - min(ROOM, longest // 4)):
                break
            if not question.shots:
                raise UserError(
                    f"the question has {length} tokens, but the model reads {longest}: {question.text[:60]!r}",
                    todo="ask something shorter, or a model with a longer context",
                )
            question = replace(question, shots=question.shots[1:], dropped=question.dropped + 1)
        return question

    def label_scores(self, rows: Sequence[tuple[list[int], int]]) -> list[list[float]]:
        """The log-probabilities of the ids of each row from a position on; rows of similar length share a batch."""
        budget = BATCH_TOKENS.get(self.model.device.type, 8192)
        found: list[list[float]] = [[] for _ in rows]
        for group in by_length([len(ids) for ids, _ in rows], budget):
            tokens, lengths = pad_rows([rows[place][0][:-1] for place in group])
            labels, _ = pad_rows([[PAD] * (first - 1) + ids[first:] for ids, first in (rows[place] for place in group)])
            batch = Batch(tokens=tokens, lengths=lengths, labels=labels)
            for place, numbers in zip(group, score(self.model.model, batch.to(self.model.device)), strict=True):
                found[place] = numbers
        return found


@dataclass(frozen=True)
class Question:
    """A question with its examples and the words for its labels."""

    text: str
    question: str
    shots: tuple[str, ...]
    words: dict[str, str]
    dropped: int = 0

    def prompt(self, template: Template) -> str:
        """The whole prompt: examples and question."""
        return template.joined(self.shots, self.question)

    def answer(self, template: Template) -> Answer:
        """An `Answer` without a label yet."""
        return Answer(self.text, "", self.prompt(template), len(self.shots), self.dropped, {}, self.words)


def can_say(stop: str, spelling: Spelling) -> bool:
    """Whether tokens can spell a stop string."""
    try:
        stop_at([stop], spelling)
    except UserError:
        return False
    return True


def common_prefix(rows: Sequence[Sequence[int]]) -> int:
    """The length of the common prefix of all rows; at least one id of every row is left out of it."""
    shortest = min(map(len, rows)) - 1
    return next((place for place in range(shortest) if len({row[place] for row in rows}) > 1), shortest)


def accuracy(answers: Sequence[Answer], labels: Sequence[str], signature: str = "") -> Score:
    """Accuracy: the percentage of correctly chosen labels."""
    table = np.array([(answer.label == label, 1) for answer, label in zip(answers, labels, strict=True)])

    def share(sums: np.ndarray) -> float:
        return float(100 * sums[0] / sums[1])

    return Statistics("accuracy", table, share, f"{signature}|bs:{RESAMPLES}|seed:{SEED}".lstrip("|")).score()


def written_quality(answers: Sequence[Answer], references: Sequence[str]) -> list[Score]:
    """Exact match, BLEU and chrF of generated answers against references."""
    return quality([answer.label for answer in answers], list(references))
