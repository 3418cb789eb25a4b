"""What should be measured again or more often, with the commands: `python -m benchmarks.report --stale`, `--seeds`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.ages import age_of
from benchmarks.kinds import command_of, kind_of
from benchmarks.results_page import SEEDS, Row, Value, found, is_there, questions, spread_of


def stale(values: Sequence[Value]) -> Iterator[str]:
    """Results of changed code or of no commit, by the command that measures them."""
    by_command: dict[str, list[Value]] = {}
    for value in values:
        if age_of(value).stale:
            by_command.setdefault(f"{kind_of(value['file']).name}\n  {command_of(value)}", []).append(value)
    for command, mine in by_command.items():
        ages = {str(age_of(value)).replace("`", "").replace("*", "") for value in mine}
        yield f"{len(mine)} of {command}\n  {'; '.join(sorted(ages))}"
    yield f"{sum(map(len, by_command.values()))} of {len(values)} results are stale"
    if all(age_of(value).date is None for value in values):
        yield "There is no git history here, so that the age of the code is unknown."


def seeds(values: Sequence[Value]) -> Iterator[str]:
    """Headlines of trained systems with too few seeds, by the command that trains the missing ones."""
    by_command: dict[str, list[Row]] = {}
    tuned = [row for question in questions() if question.tuned for row in question.rows]
    for row in (row for row in tuned if is_there(row, values)):
        mine = found(row.ours, values)
        if not row.deterministic and not row.one_seed and (spread_of(mine).seeds or 0) < SEEDS:
            by_command.setdefault(seeds_command(mine), []).append(row)
    for command, rows in by_command.items():
        mine = found(rows[0].ours, values)
        missing = SEEDS - (spread_of(mine).seeds or 0)
        seconds = sum(value["seconds"] or 0 for value in mine) / len(mine) * missing
        labels = "; ".join(dict.fromkeys(row.label for row in rows))
        yield f"{labels}: {missing} more seeds, about {seconds:,.0f} s in all\n  {command}"
    yield f"{len(by_command)} systems have fewer than {SEEDS} seeds"


def seeds_command(mine: Sequence[Value]) -> str:
    """What trains the seeds that are not there, and writes their results."""
    there = {value["seed"] for value in mine}
    missing = [str(seed) for seed in range(1, SEEDS + 1) if seed not in there]
    command, option = command_of(mine[0]), kind_of(mine[0]["file"]).seed_option
    if option:
        return " && ".join(f"{command} {option} {seed}" for seed in missing)
    if " run " not in command:
        return command  # it trains all seeds
    module, out = command.split()[2], command.split()[-1]
    if out.endswith(".jsonl"):  # such a list says which seeds it trains
        return f"{command} && python -m {module} collect {out}"
    return f"{command} --seeds {','.join(missing)} && python -m {module} collect {out}/runs.json"
