"""How often greedy and beam search miss the best output of a trained Multi30k model, and how often it can be known.

python -m benchmarks.search_error RUN                   # prints the tables
python -m benchmarks.search_error RUN --write           # and writes results/search-error-….json

The 100 shortest sources of test2016, at most 2,000 expansions each, beams of 1, 2, 4, 8 and 16; without a length
penalty, as Stahlberg and Byrne (2019, arXiv:1908.10090) define search error, and with each of the others.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.report import Result, show, versions, write_result, write_tables

BEAMS = "1,2,4,8,16"
PENALTIES = ("none", "gnmt", "average")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.search_error",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", type=Path, help="the folder of a finished run")
    parser.add_argument("--split", default="test2016", help="test2016 if not given")
    parser.add_argument("--shortest", type=int, default=100, metavar="N", help="100 if not given")
    parser.add_argument("--expansions", type=int, default=2000, metavar="N", help="2,000 if not given")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:1")
    parser.add_argument("--write", action="store_true", help="write the values into results/")
    arguments = parser.parse_args()
    for name, result in measured(arguments).items():
        if arguments.write:
            print(f"  {write_result(name, result)}")
    if arguments.write:
        write_tables()


def measured(arguments: argparse.Namespace) -> dict[str, Result]:
    """All values by file name, with every length penalty."""
    results: dict[str, Result] = {}
    for penalty in PENALTIES:
        began = time.monotonic()
        found = search_error(arguments, penalty)
        rows = [
            (f"beam {row['beam']}", row["errors"], row["cut"], dash(row["share"], 100), dash(row["loss"]))
            for row in found["rows"]
        ]
        title = f"length penalty {penalty}: best output known of {found['solved']} of {found['sentences']}"
        show(f"{title}, empty for {found['empty']}", [("", "worse", "cut", "% of known", "mean loss"), *rows])
        results |= as_results(arguments, penalty, found, round(time.monotonic() - began, 1))
    return results


def search_error(arguments: argparse.Namespace, penalty: str) -> dict[str, Any]:
    """The output of the real command."""
    command = [sys.executable, "-m", "mallang", "search-error", str(arguments.run), "--json", "--beams", BEAMS]
    command += ["--split", arguments.split, "--shortest", str(arguments.shortest), "--device", arguments.device]
    command += ["--expansions", str(arguments.expansions), "--search", f"length_penalty={penalty}"]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, Any] = json.loads(said)
    return found


def as_results(arguments: argparse.Namespace, penalty: str, found: dict[str, Any], seconds: float) -> dict[str, Result]:
    """The share solved, and for each beam the share of errors and the mean loss."""
    from mallang.runs.folder import Run

    run = Run.open(arguments.run)
    data = run.recipe().data
    about: dict[str, Any] = {
        "system": str(run.info["model"]).replace("_", "-"), "recipe": arguments.run.name, "corpus": data.corpus,
        "direction": f"{data.source}-{data.target}", "split": arguments.split, "seed": run.info.get("seed"),
        "seconds": seconds, "signature": versions("mallang", "torch"),
    }  # fmt: skip
    how = (
        f"{found['sentences']} sources with the fewest tokens, length penalty {penalty}, "
        f"at most {arguments.expansions:,} expansions each, float32"
    )
    stem = f"search-error-{arguments.run.name}-{penalty}"
    known = f"{how}; best output known of {found['solved']}, empty for {found['empty']} of them"
    results = {
        f"{stem}-solved": Result(
            **about, protocol=how, metric="best output known, % of sentences",
            value=round(100 * found["solved"] / found["sentences"], 2),
        )
    }  # fmt: skip
    for row in found["rows"]:
        if row["share"] is None:
            continue
        beam = {**about, "system": f"{about['system']}, beam {row['beam']}", "protocol": known}
        name = f"{stem}-beam{row['beam']}"
        results[name] = Result(
            **beam, metric="search error, % of sentences whose best output is known", value=round(100 * row["share"], 2)
        )
        if row["loss"] is not None:
            results[f"{name}-loss"] = Result(
                **beam,
                metric="search error, mean loss of normalised score",  # words: ok, a key of stored results
                value=round(row["loss"], 5),
            )
    return results


def dash(value: float | None, times: float = 1.0) -> float | str:
    """A number, or a dash where there is none."""
    return "–" if value is None else value * times


if __name__ == "__main__":
    main()
