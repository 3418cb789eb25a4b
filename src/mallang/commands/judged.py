"""What `mallang evaluate` scores: outputs beside what they should say, of a run or of files, and how it is shown."""

from __future__ import annotations

import json as json_format
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mallang.commands.options import load_for, read_search
from mallang.errors import UserError

if TYPE_CHECKING:
    from mallang.evaluation.explanation import Explanation
    from mallang.evaluation.score import Score
    from mallang.evaluation.significance import Comparison
    from mallang.inspection.reports import Report
    from mallang.tasks.contract import Evaluating


@dataclass(frozen=True)
class Asked:
    """What is asked of a run."""

    split: str | None
    data: str | None
    corpus: str | None
    domain: str | None
    search: list[str] | None
    others: list[Path] | None
    replace_unknown: bool
    lexicon: Path | None
    device: str
    int8: bool
    reading: dict[str, int]
    """How a language model reads the text."""
    columns: list[str] | None = None
    """The columns of a file of the user, by name or number."""
    report: Path | None = None
    """The folder that a report is written to."""
    reverse: bool = False
    """Whether a run for both directions translates from the second text of each pair."""


@dataclass(frozen=True)
class Judged:
    """Outputs beside what they should say."""

    rows: list[tuple[Any, ...]]
    """The source, where it is known, and the reference, or several of them."""
    outputs: list[str]
    scores: list[Score]
    corpus: str = ""
    domain: str | None = None
    is_of_run: bool = True
    report: Report | None = None
    """All that is known of labels or tags."""

    @property
    def references(self) -> list[Any]:
        """What the outputs should say."""
        return [row[-1] for row in self.rows]

    @property
    def told(self) -> list[str]:
        """The source of a single sentence."""
        return [f"source     {self.rows[0][0]}"] if len(self.rows) == 1 and len(self.rows[0]) > 1 else []


def read_files(outputs: Path | None, references: list[Path], asked: Asked, sentence: int) -> Judged:
    """Outputs and references from files, a text a line, scored."""
    from mallang.evaluation.quality import quality

    if outputs is None or not references:
        missing = "--references FILE" if outputs is not None else "--outputs FILE" if references else None
        raise UserError(
            f"{missing} is missing" if missing else "there is nothing to score",
            todo="give the folder of a run, or --outputs FILE and --references FILE",
        )
    usual = {"device": "auto"}
    for name, value in vars(asked).items():
        if value and value != usual.get(name):
            option = {"others": "with", "reading": "stride or --rows"}.get(name, name.replace("_", "-"))
            raise UserError(f"--{option} has no effect on files of outputs", todo="leave it out, or give a run")
    texts = read_lines(outputs)
    columns = [read_lines(path, like=texts) for path in references]
    golds: list[Any] = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
    if sentence:
        texts, golds = [pick(texts, sentence)], [pick(golds, sentence)]
    return Judged([(gold,) for gold in golds], texts, quality(texts, golds), is_of_run=False)


def read_lines(path: Path, like: list[str] | None = None) -> list[str]:
    """The lines of a file, as many as others."""
    from mallang.data.readers import lines

    found = list(lines(path))
    if like is not None and len(found) != len(like):
        raise UserError(f"there are {len(like)} outputs, but {path} has {len(found)} lines", todo="line i goes with i")
    if not found:
        raise UserError(f"{path} is empty", todo="give a file with at least one line")
    return found


def explained(judged: Judged, sentence: int) -> Explanation:
    """Where the BLEU of one sentence comes from, or with 0 that of all."""
    from mallang.evaluation.explanation import explain, explain_corpus
    from mallang.evaluation.quality import are_trees

    if are_trees(judged.references):
        raise UserError("--explain is about BLEU, but here the references are parse trees", todo="leave it out")
    if not sentence:
        return explain_corpus(judged.outputs, judged.references)
    return explain(judged.outputs[0], judged.references[0])


def compared(judged: Judged, other: Path, asked: Asked) -> list[Comparison]:
    """Whether the outputs differ from those of another run, or file, by more than chance."""
    from mallang.evaluation.quality import suited
    from mallang.evaluation.significance import paired_bootstrap

    if other.is_dir():
        if not judged.is_of_run:
            raise UserError(f"{other} is a run, but here are only outputs", todo=f"{other}/outputs/test.txt")
        model = load_for(other, None, "evaluate", asked.device, int8=asked.int8)
        check_texts(model, other, "--against")
        rows = [row[::-1] for row in judged.rows] if asked.reverse else judged.rows
        reversed_ = {"reverse": True} if asked.reverse else {}
        _, theirs = model.evaluate(rows, domain=judged.domain, **reversed_, **read_search(asked.search))
    else:
        theirs = read_lines(other, like=judged.outputs)
    names = suited(judged.references)
    return [paired_bootstrap(judged.outputs, theirs, judged.references, name) for name in names]


def check_texts(model: Evaluating, run: Path, option: str | None) -> None:
    """Refuse an option that compares texts where the outputs are none: numbers, or bags of words."""
    if option is not None and model.evaluated == "log-probabilities":
        raise UserError(
            f"{option} compares outputs, but what {run} gives is how probable a text is",
            todo="mallang compare RUN RUN lays language models side by side",
        )
    if option is not None and model.evaluated == "bags of words":
        raise UserError(
            f"{option} compares texts, but what {run} gives are words without their order",
            todo=f"leave {option} out: the scores are those of bags of words",
        )
    if option is not None and model.evaluated in (
        "labels",
        "tags",
        "numbers",
        "answers",
        "choices",
        "masked tokens",
        "ranks",
        "clusters",
        "roles",
    ):
        raise UserError(
            f"{option} compares texts, but what {run} gives are {model.evaluated}", todo=f"leave {option} out"
        )


def show_json(judged: list[Judged], found: list[list[Score] | Explanation], tests: list[list[Comparison]]) -> None:
    """Scores as a list, or beside the tests; an explanation or a report as an object; several corpora by name."""
    from mallang.inspection.comparison_tables import finite

    plain: dict[str, Any] = {}
    for each, result, differences in zip(judged, found, tests, strict=True):
        if not isinstance(result, list):
            source = {"source": each.rows[0][0]} if each.told else {}
            plain[each.corpus] = source | result.to_json()
            continue
        if each.report is not None:
            plain[each.corpus] = finite(each.report.to_json())
            continue
        scores = [score.to_json() for score in result]
        tested = [difference.to_json() for difference in differences]
        plain[each.corpus] = {"scores": scores, "against": tested} if tested else scores
    print(json_format.dumps(plain.get("", plain), ensure_ascii=False))


def read_columns(columns: str | None, data: str | None) -> list[str] | None:
    """The columns in `review,stars`."""
    if columns is None:
        return None
    if data is None:
        raise UserError("--columns has no effect without --data", todo="--data FILE")
    return [name.strip() for name in columns.split(",")]


def sentence_of(explain: str | None) -> int:
    """The number of the sentence to explain, from 1; 0 is all of them."""
    if explain in (None, "all"):
        return 0
    if not str(explain).isdecimal() or not int(str(explain)):
        raise UserError(f"--explain {explain!r} is no sentence", todo="give a number, from 1, or all")
    return int(str(explain))


def pick(rows: Sequence[Any], sentence: int) -> Any:
    """One of the rows, by its number from 1."""
    if sentence > len(rows):
        raise UserError(f"--explain {sentence}: there are only {len(rows)} sentences")
    return rows[sentence - 1]
