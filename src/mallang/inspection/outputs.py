"""The outputs of runs for the rows of a split: kept in RUN/outputs and RUN/scores, and reused.

Kept outputs are valid while weights, search options, rows and other options are the same; a stamp beside the scores
records them. Some imports are inside functions, because every `--help` loads this file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mallang.errors import UserError, nearest

if TYPE_CHECKING:
    from mallang.data.corpus import Config, Rows
    from mallang.evaluation.score import Score
    from mallang.runs.folder import Run


@dataclass(frozen=True)
class Scorable:
    """Pairs to score together: their name, the corpus where the run has several, and its domain."""

    name: str
    rows: list[tuple[str, ...]]
    corpus: str = ""
    domain: str | None = None
    origin: str = ""
    """The file or the split of a corpus that they come from."""


def read_parts(
    run: Path, split: str, data: str | None, corpus: str | None, columns: Sequence[str] | None = None
) -> list[Scorable]:
    """The pairs of each corpus of the run, of one of them, or of these columns of a file of the user."""
    from mallang.data.corpus import Joined

    rows, name = open_rows(run, split, data, columns)
    members = rows.source.members if isinstance(rows.source, Joined) else ()
    known = [member.name for member in members]
    if corpus is not None and corpus not in known:
        if not known:
            raise UserError(f"--corpus {corpus}: there is only one corpus to score here", todo="leave --corpus out")
        raise UserError(f"the run has no corpus {corpus!r} in its split {split}", todo=nearest(corpus, known))
    if not members:
        return [Scorable(name, list(rows), origin=rows.name)]
    return [
        Scorable(
            f"{member.name.replace('/', '-')}-{name}", list(member.rows), member.name, member.domain, member.rows.name
        )
        for member in members
        if corpus in (None, member.name)
    ]


def read_rows(run: Path, split: str, data: str | None) -> tuple[list[tuple[str, ...]], str]:
    """The pairs to score, of all corpora together, and their name."""
    rows, name = open_rows(run, split, data)
    return list(rows), name


def open_rows(run: Path, split: str, data: str | None, columns: Sequence[str] | None = None) -> tuple[Rows, str]:
    """The rows to score, opened but not yet read, and their name; `columns` are those of a file of the user."""
    from mallang.data.corpus import open_corpus
    from mallang.find import find
    from mallang.runs.folder import Run

    opened = Run.open(run)
    roles = find("tasks", opened.task).Task.columns
    if data is not None:
        config = of_file(opened.recipe().data, data)
        config = config if columns is None else replace(config, columns=list(columns))
        return open_corpus(config, roles).split("test"), f"data-{Path(data).stem}"
    corpus = open_corpus(opened.data(), roles)
    if split not in corpus.splits and split == "test" and corpus.kind == "own":
        raise UserError(
            f"{run} was trained on files without a test split", todo="--data FILE to test on, or --split valid"
        )
    return corpus.split(split), split


def of_file(config: Config, data: str) -> Config:
    """How a file of the user is read as a test split: as the data of a run, but alone."""
    alone = replace(config, corpora=None, domains=None, untagged=0.0)
    return replace(alone, corpus=None, train=None, valid=None, hold_out=0.0, test=data)


def split_to_score(run: Path) -> tuple[str, str]:
    """The default split to score a run on, and a note where that is not `test`."""
    from mallang.data.corpus import open_corpus
    from mallang.find import find
    from mallang.runs.folder import Run

    opened = Run.open(run)
    corpus = open_corpus(opened.data(), find("tasks", opened.task).Task.columns)
    if corpus.has("test") or not corpus.has("valid"):
        return "test", ""
    chose = ", which chose the best weights" if opened.recipe().train.final == "best" else ""
    return "valid", f"{corpus.name} has no test split: this is the valid split{chose}"


def stamp_of(run: Run, rows: Sequence[tuple[str, ...]], search: Any, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What outputs depend on: the weights, the rows, all search options, and other options."""
    text = json.dumps([list(row) for row in rows], ensure_ascii=False)
    return {
        "weights": run.info.get("weights"),
        "rows": hashlib.sha256(text.encode()).hexdigest(),
        "search": {} if search is None else asdict(search),
        "asked": {key: value for key, value in asked.items() if value},
    }


def keep(
    run: Path,
    name: str,
    outputs: list[str],
    scores: list[Score],
    options: dict[str, Any],
    stamp: Mapping[str, Any] | None = None,
    report: Mapping[str, Any] | None = None,
) -> bool:
    """Write outputs, one per line, and scores into the run folder; with a stamp they can be reused.

    A report on labels or tags is written beside the scores. An output with line ends is written without them, and
    unchanged beside the scores. False where the folder is read-only: then nothing is kept.
    """
    from mallang.runs.files import is_read_only, replace_file, to_json, unwritable

    lines = [" ".join(output.splitlines()) for output in outputs]
    written = "".join(f"{line}\n" for line in lines).encode()
    whole = {str(row): output for row, (output, line) in enumerate(zip(outputs, lines, strict=True)) if output != line}
    kept: dict[str, Any] = {"split": name, "search": options, "scores": [score.to_json() for score in scores]}
    kept |= {"with_line_ends": whole} if whole else {}
    kept |= {} if report is None else {"report": report}
    if stamp is not None:
        kept["made_of"] = {**stamp, "outputs": hashlib.sha256(written).hexdigest()}
    try:
        for folder in ("outputs", "scores"):
            try:
                (run / folder).mkdir(exist_ok=True)
            except OSError as error:
                raise unwritable(run, error) from error
        replace_file(run / "outputs" / f"{name}.txt", written)
        replace_file(run / "scores" / f"{name}.json", to_json(kept))
    except UserError as error:
        if not is_read_only(error):
            raise
        return False
    return True


def kept(run: Path, name: str, stamp: Mapping[str, Any], count: int) -> tuple[list[str], list[Score]] | None:
    """The outputs and scores in the run folder, if their stamp is this one and they have `count` rows."""
    from mallang.evaluation.score import Score

    try:
        written = (run / "outputs" / f"{name}.txt").read_bytes()
        about = json.loads((run / "scores" / f"{name}.json").read_text("utf-8"))
        now = {**stamp, "outputs": hashlib.sha256(written).hexdigest()}
        if about["made_of"] != json.loads(json.dumps(now)):
            return None
        scores = [Score.from_json(score) for score in about["scores"]]
        outputs = written.decode().split("\n")[:-1]
        if len(outputs) != count:
            return None
        for row, output in about.get("with_line_ends", {}).items():
            outputs[int(row)] = output
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return None  # missing, of an older version, or damaged: they can be generated again
    return outputs, scores
