"""What the runs of a list wrote, scored by every protocol: a table, or files in results/."""

from __future__ import annotations

import json
import lzma
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.protocols import Reference, read_reference, score_all
from benchmarks.report import Result
from benchmarks.translation_runs import FORMAT
from mallang import recipe as recipes
from mallang.data.readers import lines
from mallang.errors import UserError
from mallang.evaluation.score import Score

HYPOTHESES = report.RESULTS / "hypotheses"
PUBLISHED = {
    ("transformer", "en-de", "test2016"): 41.02,
    ("transformer", "en-de", "test2017"): 33.36,
    **{(system, "en-de", "test2016"): 35.16 for system in ("bahdanau", "luong")},
    **{(system, "de-en", "test2016"): 38.38 for system in ("bahdanau", "luong")},
    **{(system, "en-fr", "test2016"): 56.83 for system in ("bahdanau", "luong")},
    ("lample", "en-fr", "test2016"): 32.76,
    ("lample", "fr-en", "test2016"): 32.07,
    ("lample", "de-en", "test2016"): 26.26,
    ("lample", "en-de", "test2016"): 22.74,
}
"""On Multi30k by moses-lc-tok, by system, direction and split: the text-only Transformer-Tiny of Wu et al. 2021
(arXiv:2105.14462), and of Lample et al. 2018 (arXiv:1711.00043) the LSTM with attention, searched greedily, and the
unsupervised system, which has word vectors of Wikipedia and ours has not."""
ROUND_TRIP = "round_trip"
ENDED = "; ended by"
"""What begins the part of a protocol that says why a run has fewer updates than its recipe asks for."""
LABELS = {("moses-lc-tok", "BLEU"): "moses-lc-tok", ("sacrebleu", "BLEU"): "bleu", ("sacrebleu", "chrF2"): "chrf"}
"""What a protocol and its metric are called in file names and tables."""


@dataclass(frozen=True)
class Scored:
    """One set of hypotheses with all its scores."""

    file: dict[str, Any]
    run: dict[str, Any]
    output: dict[str, Any]
    scores: dict[str, Score]
    """By label."""

    @property
    def base(self) -> str:
        """What its files are called, without the seed."""
        where = self.output["corpus"].replace("/", "-")
        way, name = f"{self.run['source']}-{self.run['target']}", self.run["name"]
        if self.direction != way:
            name = name.replace(way, self.direction) if way in name else f"{name}-{self.direction}"
        return "-".join(filter(None, [name, where, self.output["split"], self.output["search"]]))

    @property
    def direction(self) -> str:
        """From which language into which, such as en-de."""
        ends = [self.run["source"], self.run["target"]]
        return "-".join(ends[::-1] if self.output.get("reversed") else ends)

    @property
    def corpus(self) -> str:
        """Where the split is from."""
        return str(self.output["corpus"] or self.run["corpus"])

    @property
    def table(self) -> str:
        """What its numbers are comparable with: the same texts, the same search."""
        return " ".join(filter(None, [self.corpus, self.direction, self.output["split"], self.output["search"]]))

    def published(self, direction: str) -> float | None:
        """What others reached there with such a system."""
        return (
            PUBLISHED.get((self.run["system"], direction, self.output["split"])) if self.corpus == "multi30k" else None
        )

    def result(self, label: str) -> Result:
        """One of its values with all that is known of it."""
        score, run, output = self.scores[label], self.run, self.output
        protocol = next(name for name, _ in (key for key, value in LABELS.items() if value == label))
        direction = self.direction
        return Result(
            system=run["system"],
            recipe=run["recipe"],
            overrides=[*run["overrides"], *(f"decoding.{option}" for option in output["options"])],
            corpus=self.corpus,
            direction=direction,
            split=output["split"],
            protocol=f"{protocol}, {search_of(run, output)}{ended_early(run, self.file['at_once'])}",
            metric=f"{score.name}, {protocol}",
            value=round(score.value, 2),
            published=self.published(direction) if protocol == "moses-lc-tok" else None,
            seed=run["seed"],
            commit=self.file["commit"],
            hardware=self.file["hardware"],
            seconds=run["seconds"],
            signature=score.signature,
        )


def sweep(files: Sequence[Path]) -> None:
    """Score every set of hypotheses by every protocol and print a table."""
    opened = list(read_files(files))
    show(opened, list(scored(opened)))


def show(opened: Sequence[dict[str, Any]], found: Sequence[Any], known: Iterable[str] = LABELS.values()) -> None:
    """A table a split and search, and below them what did not come to its end."""
    labels = [label for label in known if any(label in each.scores for each in found)]
    for table in dict.fromkeys(each.table for each in found):
        mine = [each for each in found if each.table == table]
        rows: list[Sequence[object]] = [("run", *labels, "valid nll", "steps", "seconds", "parameters")]
        for name in dict.fromkeys(each.run["name"] for each in mine):
            same = [each for each in mine if each.run["name"] == name]
            rows += [row(f"{name} seed {each.run['seed']}", [each], labels) for each in same]
            rows += [row(f"{name} mean of {len(same)}", same, labels)] if len(same) > 1 else []
        report.show(table, rows)
    show_round_trips(opened)
    for run in (run for file in opened for run in file["runs"] if run["status"] != "finished"):
        last = run.get("validations", [])[-1:]
        print(f"\n{run['name']} seed {run['seed']}: {run['status']}; last validation {last}\n{run.get('said', '')}")


def show_round_trips(opened: Sequence[dict[str, Any]]) -> None:
    """The round-trip BLEU that chose the checkpoint of every unsupervised run: settings are chosen by its mean too."""
    runs = [run for file in opened for run in file["runs"] if round_trip(run) is not None]
    values = {
        name: [value for run in runs if run["name"] == name and (value := round_trip(run)) is not None]
        for name in dict.fromkeys(run["name"] for run in runs)
    }
    if values:
        rows = [(name, f"{statistics.mean(each):.2f}", len(each)) for name, each in values.items()]
        report.show("round-trip BLEU on valid", [("run", "mean", "seeds"), *rows])


def round_trip(run: dict[str, Any]) -> float | None:
    """The best round-trip BLEU of a run; none where it was chosen by something else."""
    value = (run.get("best") or {}).get(ROUND_TRIP)
    return None if value is None else float(value)


def round_trip_results(file: dict[str, Any]) -> Iterator[tuple[str, Result]]:
    """The round-trip BLEU of all runs of a file, with the names of their files."""
    for run in file["runs"]:
        if (value := round_trip(run)) is not None and run["status"] == "finished":
            yield f"{run['name']}-valid-round-trip-seed{run['seed']}", Result(
                system=run["system"], recipe=run["recipe"], overrides=list(run["overrides"]), corpus=run["corpus"],
                direction=f"{run['source']}-{run['target']}", split="valid", metric="BLEU of round trips",
                protocol=f"held-out text of each language translated and back, at update {run['best']['step']:,}",
                value=round(value, 2), seed=run["seed"], commit=file["commit"], hardware=file["hardware"],
                seconds=run["seconds"],
            )  # fmt: skip


def row(name: str, same: Sequence[Any], labels: Iterable[str]) -> list[object]:
    """A line of the table: one run, or the mean of several."""

    def mean(values: Iterable[float]) -> float:
        return statistics.mean(values)

    nll = mean(min(entry.get("nll", entry.get("loss")) for entry in each.run["validations"]) for each in same)
    values = [
        f"{mean(each.scores[label].value for each in same):.2f}" if label in same[0].scores else "" for label in labels
    ]
    means = (mean(each.run[key] for each in same) for key in ("steps", "seconds", "parameters"))
    return [name, *values, f"{nll:.3f}", *(f"{value:,.0f}" for value in means)]


def collect(files: Sequence[Path], folder: Path = report.RESULTS) -> None:
    """Print the table and write every value into results/, with the hypotheses it was counted on."""
    opened = committed(read_files(files))
    found = list(scored(opened))
    show(opened, found)
    for each in found:
        keep(folder / HYPOTHESES.name / f"{each.base}-seed{each.run['seed']}.txt.xz", each.output["hypotheses"])
    for name, result in (each for file in opened for each in round_trip_results(file)):
        report.write_result(name, result, folder)
    write_values(found, folder)


def committed(files: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The files, if what they hold was made by code that can be found again."""
    opened = list(files)
    for commit in (file["commit"] for file in opened):
        if not commit or commit.endswith("-dirty"):
            raise UserError(f"the runs were made by code of no commit ({commit})", todo="run … --commit SUM")
    return opened


def write_values(found: Sequence[Any], folder: Path) -> None:
    """Every value as a file, one per seed: means over seeds are taken by the report."""
    written: list[Path] = []
    for each in found:
        for label in each.scores:
            name = f"{each.base}-{label}-seed{each.run['seed']}"
            written.append(report.write_result(name, each.result(label), folder))
    if folder == report.RESULTS:
        report.write_tables()
    print(f"\n{len(written)} values written to {folder}")


def check(folder: Path = report.RESULTS) -> None:
    """Score the hypotheses in results/ again and hold them against the values beside them."""
    wrong, counted = [], 0
    for path in sorted((folder / HYPOTHESES.name).glob("*.txt.xz")):
        base, _, seed = path.name.removesuffix(".txt.xz").rpartition("-seed")
        beside = {label: folder / f"{base}-{label}-seed{seed}.json" for label in LABELS.values()}
        results = {label: json.loads(file.read_text("utf-8")) for label, file in beside.items() if file.exists()}
        if not results:
            raise UserError(f"no value in {folder} belongs to {path}")
        about = next(iter(results.values()))
        reference = reference_of(about["corpus"], about["split"], about["direction"].partition("-")[2])
        again = labeled(list(lines(path)), reference)
        for label, result in results.items():
            counted += 1
            if abs(again[label].value - result["value"]) > 0.005 + 1e-9:
                wrong.append(f"{beside[label]}: {result['value']}, but {again[label].value:.2f} now")
    if wrong:
        raise UserError("these values are not those of the hypotheses beside them:\n  " + "\n  ".join(wrong))
    print(f"{counted} values are those of the hypotheses beside them")


def scored(files: Iterable[dict[str, Any]]) -> Iterator[Scored]:
    """Every set of hypotheses with its scores, in the order of names and seeds."""
    for file in files:
        for run in sorted(file["runs"], key=lambda run: (run["name"], run["seed"])):
            for output in run["outputs"]:
                language = run["source" if output.get("reversed") else "target"]
                reference = reference_of(output["corpus"] or run["corpus"], output["split"], language)
                yield Scored(file, run, output, labeled(output["hypotheses"], reference))


def labeled(hypotheses: Sequence[str], reference: Reference) -> dict[str, Score]:
    """All scores, by label."""
    found = score_all(hypotheses, reference)
    return {LABELS[protocol, score.name]: score for protocol, scores in found.items() for score in scores}


@cache
def reference_of(corpus: str, split: str, language: str) -> Reference:
    """A reference, read once."""
    return read_reference(corpus, split, language)


def search_of(run: dict[str, Any], output: dict[str, Any]) -> str:
    """The search in words: beam 5, or the options that were given."""
    options = dict(option.split("=", 1) for option in output["options"])
    method = options.pop("method", run["decoding"]["method"])
    beam = options.pop("beam", run["decoding"]["beam"])
    words = [f"beam {beam}" if method == "beam" else method, *(f"{key} {value}" for key, value in options.items())]
    return ", ".join(words)


def ended_early(run: dict[str, Any], at_once: int) -> str:
    """What ended a training run before its last update, in words; empty where nothing did.

    Early stopping is named first: a run that it ends would have ended there with any amount of time.
    """
    planned = recipes.read(run["recipe"], run["overrides"]).resolved()["train"]
    steps, patience, seconds = (planned[key] for key in ("steps", "patience", "seconds"))
    if steps is None or run["steps"] >= steps or (patience is None and seconds is None):
        return ""
    later = sum(entry["step"] > run["best"]["step"] for entry in run["validations"])
    is_stopped = patience is not None and later >= patience
    cause, shared = (
        ("early stopping", "") if is_stopped else ("train.seconds", f", {at_once} runs at once on one device")
    )
    return f"{ENDED} {cause} after {run['steps']:,} of {steps:,} updates{shared}"


def read_files(files: Iterable[Path]) -> Iterator[dict[str, Any]]:
    """What `run` wrote."""
    for path in files:
        try:
            file = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(f"{path} cannot be read: {error}") from error
        if not isinstance(file, dict) or file.get("format") != FORMAT:
            raise UserError(f"{path} was not written by the `run` of a benchmark")
        yield file


def keep(path: Path, hypotheses: Sequence[str]) -> None:
    """Write hypotheses, compressed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with lzma.open(path, "wt", encoding="utf-8", preset=9) as stream:
        stream.writelines(f"{line}\n" for line in hypotheses)
