"""The runs of a comparison: opened, checked to be comparable, each with its outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from mallang.data.corpus import SPLITS
from mallang.decoding.options import change_search
from mallang.errors import UserError, nearest
from mallang.evaluation.lengths import Bucket
from mallang.evaluation.quality import MEASURES, suited
from mallang.evaluation.score import Score, Statistics
from mallang.find import find
from mallang.inspection.cost import LONGEST, Speed, decoding_speed, writing_speed
from mallang.inspection.outputs import Scorable, keep, kept, read_parts, stamp_of
from mallang.loading import load
from mallang.recipe import Recipe
from mallang.runs.folder import Run
from mallang.tasks.contract import Compared

UNITS = {"word": "perplexity per word", "token": "perplexity per token", "byte": "bits per byte"}
"""The metrics by which language models can be compared."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a comparison."""

    split: str = "test"
    """The split of the runs' corpus."""
    data: str | None = None
    """A file with your own pairs instead."""
    metric: str | None = None
    """The main metric: bleu, chrf, words, exact or brackets; not given: bleu, or brackets where references are trees.

    For language models: word, token or byte; not given: perplexity per word. For others: the name of any score that
    `evaluate` gives; not given: accuracy of labels, F1 of spans, and so on, as the task declares."""
    baseline: Path | str | None = None
    """The run that the others are compared with; not given: the worst system."""
    search: Mapping[str, Any] = field(default_factory=dict)
    """Search options for all runs; for others each run uses its own."""
    lengths: Sequence[int] | None = None
    """The upper ends of all ranges of source lengths but the last, in words; not given: chosen from the data.

    For language models: the upper ends of the ranges of positions, in words before a word."""
    speed: int = 100
    """Number of sentences translated, or texts generated, to measure speed; 0: speed is not measured."""
    samples: int = 2
    """Language models: number of samples per prompt, or without a prompt where none is given."""
    prompts: Sequence[str] = ()
    """Language models: the prompts of the samples."""
    context: int = 128
    """Language models: window in words for the loss by position, and length in tokens to measure the state."""
    device: str = "auto"
    """Where the models run."""
    say: Callable[[str], None] = lambda text: None
    """Called with a message about each slow step."""

    def __post_init__(self) -> None:
        if self.speed < 0:
            raise UserError(f"speed cannot be measured on {self.speed} sentences", todo="give 0 to leave it out")
        if self.samples < 0:
            raise UserError(f"{self.samples} samples cannot be generated", todo="give 0 to leave them out")
        if self.context < 1:
            raise UserError(f"context = {self.context} is too small", todo="give a number from 1")


class Entrant:
    """One run of a comparison."""

    def __init__(self, path: Path, run: Run, options: Options) -> None:
        self.path, self.run, self.options = path, run, options
        self.outputs: list[str] = []
        self.scores: dict[str, Score] = {}

    @cached_property
    def recipe(self) -> Recipe:
        """The recipe that it was trained with."""
        return self.run.recipe()

    @cached_property
    def parts(self) -> list[Scorable]:
        """The rows of each corpus to score."""
        try:
            return read_parts(self.path, self.options.split, self.options.data, None)
        except UserError as error:
            raise UserError(error.what, where=error.where or str(self.path), todo=error.todo) from error

    @cached_property
    def rows(self) -> list[tuple[str, ...]]:
        """The rows of all parts."""
        return [row for part in self.parts for row in part.rows]

    @cached_property
    def domains(self) -> list[str | None]:
        """The domain of every row."""
        return [part.domain for part in self.parts for _ in part.rows]

    @property
    def text(self) -> str:
        """What it is scored on, in words."""
        return f"{self.origin}, {self.recipe.data.source} → {self.recipe.data.target}"

    @property
    def origin(self) -> str:
        """The origin of the rows: a file, or a split of a corpus."""
        data, split = self.recipe.data, self.options.split
        file = self.options.data or (getattr(data, split) if split in SPLITS else None)
        corpus = " + ".join(data.corpora) if data.corpora is not None else data.corpus
        return str(file or f"{corpus} {split}")

    @cached_property
    def search(self) -> Any:
        """All search options of the run."""
        assert self.recipe.decoding is not None  # translations are compared here
        return change_search(self.recipe.decoding, self.options.search)

    @property
    def is_lower_better(self) -> bool:
        """Whether the lower one of two main scores is better."""
        return False

    @property
    def is_share(self) -> bool:
        """Whether the main score is a percentage, so that the distance from 100 is an error."""
        return True

    @property
    def can_be_tested(self) -> bool:
        """Whether the main score can be computed for any of the rows, which a paired test needs."""
        return True

    def check(self) -> None:
        """Refuse options that mean nothing here."""
        if self.options.metric in UNITS:
            what = f"translations are not compared by {UNITS[self.options.metric]}"
            raise UserError(what, todo=f"--metric {' or '.join(MEASURES)}")
        check_metric(self.options.metric)
        self.refuse(("samples", "prompts", "context"), "translations; it is for language models")

    def refuse(self, names: Sequence[str], others: str) -> None:
        """Refuse options that are for other kinds of runs."""
        usual = Options()
        for name in names:
            if getattr(self.options, name) != getattr(usual, name):
                raise UserError(f"{name} has no effect on {others}", todo="leave it out")

    def load(self) -> Any:
        """The model, with the verbs of its task."""
        return load(self.path, self.options.device)

    def keep(self, *made: Any) -> None:
        """Write outputs and scores into the run folder; if it is read-only, report that they were not kept."""
        if not keep(self.path, *made):
            self.options.say(f"note: {self.path} is read-only: its outputs and scores were not kept")

    def write(self) -> None:
        """Load the outputs of all rows and their scores, or generate them."""
        stamps = [stamp_of(self.run, part.rows, self.search, {"domain": part.domain}) for part in self.parts]
        pairs = zip(self.parts, stamps, strict=True)
        found = [kept(self.path, part.name, stamp, len(part.rows)) for part, stamp in pairs]
        if None in found:
            self.options.say(f"{self.path}: translating {len(self.rows):,} rows")
            model = self.load()
            for place, (part, stamp) in enumerate(zip(self.parts, stamps, strict=True)):
                if found[place] is None:
                    scores, outputs = model.evaluate(part.rows, domain=part.domain, **self.options.search)
                    self.keep(part.name, outputs, scores, dict(self.options.search), stamp)
                    found[place] = (outputs, scores)
        known = [each for each in found if each is not None]
        self.outputs = [output for outputs, _ in known for output in outputs]
        self.scores = {score.name: score for score in known[0][1]} if len(known) == 1 else {}
        # Scores of parts do not give the score of the whole, and a run may have kept fewer scores than are wanted.
        for name in dict.fromkeys((*suited(self.references), self.measure)):
            statistics = MEASURES[name](self.outputs, self.references)
            if statistics.name not in self.scores:
                self.scores[statistics.name] = statistics.score()

    @cached_property
    def references(self) -> list[str]:
        """The references of the outputs."""
        return [row[-1] for row in self.rows]

    @cached_property
    def measure(self) -> str:
        """The main metric by its option name: the given one, or the one that suits the references."""
        return self.options.metric or suited(self.references)[0]

    @cached_property
    def metric(self) -> str:
        """The name of the score that decides."""
        return MEASURES[self.measure](self.outputs[:1], self.references[:1]).name

    def statistics(self, bucket: Bucket) -> Statistics:
        """The statistics of the main score on some of the rows."""
        return MEASURES[self.measure](bucket.take(self.outputs), bucket.take(self.references))

    def speed(self) -> Speed | None:
        """The decoding speed, on sentences sampled evenly from the text."""
        wanted = min(self.options.speed, len(self.rows))
        if not wanted:
            return None
        self.options.say(f"{self.path}: measuring speed on {wanted} sentences")
        places = [place * len(self.rows) // wanted for place in range(wanted)]
        texts, domains = [self.rows[place][0] for place in places], [self.domains[place] for place in places]
        return decoding_speed(self.load(), texts, domains, **self.options.search)


class LanguageEntrant(Entrant):
    """One language model of a comparison: its output for a line is the log-probability of the line."""

    @property
    def text(self) -> str:
        """What it is scored on, in words."""
        return f"{self.origin}, {self.recipe.data.source}" if self.origin.startswith("miniworld ") else self.origin

    def check(self) -> None:
        """Refuse options that mean nothing here."""
        check_metric(self.options.metric)
        if self.options.metric is not None and self.options.metric not in UNITS:
            raise UserError(f"language models have no {self.options.metric}", todo=f"--metric {' or '.join(UNITS)}")

    @cached_property
    def model(self) -> Any:
        """The model, with its verbs."""
        return self.load()

    def write(self) -> None:
        """Load the log-probability of every line and the perplexities of the text, or compute them."""
        name, rows = self.parts[0].name if len(self.parts) == 1 else "all", self.rows
        stamp = stamp_of(self.run, rows, self.recipe.decoding, {})
        found = kept(self.path, name, stamp, len(rows))
        if found is None:
            self.options.say(f"{self.path}: reading {len(rows):,} lines")
            scores, outputs = self.model.evaluate(rows)
            self.keep(name, outputs, scores, {}, stamp)
            found = outputs, scores
        self.outputs, scores = found
        self.scores = {score.name: score for score in scores}

    @cached_property
    def references(self) -> list[str]:
        """The lines themselves."""
        return [row[0] for row in self.rows]

    @cached_property
    def metric(self) -> str:
        """The name of the score that decides."""
        return UNITS[self.options.metric or "word"]

    def speed(self) -> Speed | None:
        """The generation speed."""
        if not self.options.speed:
            return None
        self.options.say(f"{self.path}: measuring speed on {self.options.speed} texts")
        return writing_speed(self.model, self.options.speed, **self.sampling)

    @property
    def sampling(self) -> dict[str, Any]:
        """The search options of samples: sampling, unless another method is given."""
        return {"method": "sampling", **self.options.search}

    def write_samples(self) -> list[list[str]]:
        """Generated texts for each prompt, or for the empty prompt."""
        if not self.options.samples:
            return []
        prompts = [prompt for prompt in self.options.prompts or [""] for _ in range(self.options.samples)]
        texts = [str(written) for written in self.model.generate(prompts, **{"max_length": LONGEST, **self.sampling})]
        size = self.options.samples
        return [texts[first : first + size] for first in range(0, len(texts), size)]


def check_metric(metric: str | None) -> None:
    """Refuse what is no metric of any translation or language model."""
    if metric is not None and metric not in (known := [*MEASURES, *UNITS]):
        raise UserError(f"there is no metric {metric!r} to compare by", todo=nearest(metric, known))


def compared_by(run: Run) -> Compared | None:
    """The criterion of comparison of the run's task."""
    found: Compared | None = find("tasks", run.task).Verbs.compared_by
    return found


def listed(pairs: Iterable[tuple[str, Entrant]]) -> dict[str, list[Entrant]]:
    """Entrants grouped by a text."""
    found: dict[str, list[Entrant]] = {}
    for key, entrant in pairs:
        found.setdefault(key, []).append(entrant)
    return found


def different(what: str, kinds: Mapping[str, Sequence[Entrant]], todo: str) -> UserError:
    """A message that lists which runs are of which kind."""
    lines = [f"\n  {kind}: {', '.join(str(entrant.path) for entrant in found)}" for kind, found in kinds.items()]
    return UserError(f"{what}, so they cannot be in one table:{''.join(lines)}", todo=todo)
