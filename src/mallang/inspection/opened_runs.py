"""The runs of a comparison opened, and refused where they cannot be in one table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from mallang.errors import UserError
from mallang.find import find, no_run
from mallang.inspection.entrants import Entrant, LanguageEntrant, Options, compared_by, different, listed
from mallang.inspection.scored_entrant import ScoredEntrant, shared_scores
from mallang.runs.folder import Run
from mallang.runs.own_files import INFO, has_checkpoint


def open_all(paths: Sequence[Path], options: Options) -> tuple[list[Entrant], list[str]]:
    """All runs that can be scored; a folder that is no run, or not finished, is left out with a note."""
    entrants: dict[Path, Entrant] = {}
    notes = []
    for path in paths:
        if not path.exists():
            raise no_run(path)
        if not (path / INFO).exists():
            notes.append(f"{path} was left out: it is no run folder")
            continue
        run = Run.open(path)
        if not run.is_finished:
            how = "resumes it" if has_checkpoint(path) else "starts it over: nothing is learned yet"
            notes.append(f"{path} was left out: it is not finished; the command that trains it {how}")
        else:
            entrants.setdefault(path.resolve(), entrant_of(path, run, options))
    if options.baseline is not None and Path(options.baseline).resolve() not in entrants:
        raise UserError(f"the baseline {options.baseline} is no finished run", todo="--baseline RUN")
    if len(entrants) < 2:
        left_out = "".join(f"\n  {note}" for note in notes)
        raise UserError(
            f"{len(entrants) or 'no'} run{'' if len(entrants) == 1 else 's'} to compare{left_out}",
            todo="give two finished runs or more",
        )
    return list(entrants.values()), notes


def entrant_of(path: Path, run: Run, options: Options) -> Entrant:
    """The run as an entrant of its kind."""
    criterion = compared_by(run)
    if isinstance(criterion, tuple):
        return ScoredEntrant(path, run, options)
    return (LanguageEntrant if criterion == "perplexity" else Entrant)(path, run, options)


def check_task(entrants: Sequence[Entrant]) -> None:
    """Refuse runs of different tasks, and of a task that has no score."""
    tasks = listed((evaluated_task(entrant.run).replace("_", " "), entrant) for entrant in entrants)
    if len(tasks) > 1:
        raise different("these runs are for different tasks", tasks, "give runs of one task")
    first = entrants[0]
    if compared_by(first.run) is None:
        raise UserError(
            f"runs for {next(iter(tasks))} have no score on held-out rows by which they can be compared",
            todo="fine-tune them on one task, and compare what comes out",
        )
    first.check()


def evaluated_task(run: Run) -> str:
    """The task by whose `evaluate` a run is scored: that of a distilled classifier is classification."""
    kind = find("tasks", run.task).Verbs
    if not isinstance(kind.compared_by, tuple):  # replies and translations are compared as texts, but not together
        return run.task
    defining = next((each for each in kind.__mro__ if "evaluate" in vars(each)), kind)
    return str(defining.task_name)


def check_rows(entrants: Sequence[Entrant]) -> None:
    """Refuse runs that would be scored on different text."""
    texts = listed((json.dumps(entrant.rows, ensure_ascii=False), entrant) for entrant in entrants)
    if len(texts) > 1:
        named = {
            f"text {number}, {len(found[0].rows):,} rows of {found[0].text}": found
            for number, found in enumerate(texts.values(), 1)
        }
        todo = "give runs of one corpus and one direction, or --data FILE: text of your own for all of them"
        raise different("these runs would not be scored on the same rows", named, todo)


def check_main_scores(entrants: Sequence[Entrant]) -> None:
    """Refuse runs with different main scores, such as those with one label per text and with several."""
    metrics = listed((entrant.metric, entrant) for entrant in entrants)
    if len(metrics) > 1:
        shared = shared_scores(entrants)
        todo = f"--metric {shared[0]!r}" if shared else "give runs of one kind"
        raise different("these runs have different main scores", metrics, todo)
