"""Train language models side by side on one device, and measure each on whole texts.

python -m benchmarks.language_models plan benchmarks/language-models.toml           # which runs, and what is wrong
python -m benchmarks.language_models run benchmarks/language-models.toml --out FOLDER --only ptb
python -m benchmarks.language_models sweep FOLDER/runs.json                         # print a table
python -m benchmarks.language_models collect FOLDER/runs.json                       # the same, and write results/

A list is that of benchmarks/translation.py, where `searches` say how a text is read:

    [[experiments]]
    name = "gpt-ptb"
    recipe = "gpt-ptb"
    splits = ["valid", "test"]
    searches.stride-32 = ["stride=32"]        # one more reading beside the recipe's own: mallang evaluate --stride 32

A perplexity has no outputs that could be scored again: what is kept is the value with its signature, which names the
unit, the layout, the context and the stride.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import report, translation, translation_results
from benchmarks.report import Result
from mallang.evaluation.score import Score

LABELS = {
    "perplexity per word": "word",
    "perplexity per token": "token",
    "bits per byte": "byte",
    "nats per token": "nats",
}
"""What a score is called in file names and tables."""
PUBLISHED = {
    ("katz5", "ptb"): 162.3, ("kneser-ney5", "ptb"): 141.2, ("nplm", "ptb"): 140.2, ("elman", "ptb"): 124.7,
    ("lstm-medium", "ptb"): 82.7, ("lstm-large", "ptb"): 78.4, ("char-aware-small", "ptb"): 92.3,
    ("char-aware-large", "ptb"): 78.9, ("awd-lstm", "ptb"): 58.8, ("lstm", "wikitext-2"): 99.3,
    ("awd-lstm", "wikitext-2"): 65.6, ("gpt", "tinyshakespeare"): 1.4697,
}  # fmt: skip
"""Perplexity per word of the test text: Mikolov et al. 2011 (n-grams, NPLM, Elman), Zaremba et al. 2014, Kim et al.
2015, Merity et al. 2017 (what their code gives without fine-tuning or a cache), Grave et al. 2016 (the LSTM on
WikiText-2). Of characters the nats of the held-out text: what nanoGPT's page gives."""
NATS = "nats per token"
"""The metric of character-level models."""


class Experiment(translation.Experiment):
    """One training run of a language model with one seed, and the texts it is measured on."""

    def words(self, options: Sequence[str]) -> list[str]:
        """Options as arguments of `mallang evaluate`: `stride=32` is `--stride 32`."""
        return [word for option in options for word in (f"--{option.partition('=')[0]}", option.partition("=")[2])]

    def about(self) -> dict[str, Any]:
        """What it is; the system is what its recipe is called, without the corpus."""
        about = super().about()
        corpus = str(about["corpus"]).replace("/", "-")
        names = (corpus, corpus.removeprefix("tiny"))
        system = next(
            (self.recipe.removesuffix(f"-{name}") for name in names if self.recipe.endswith(f"-{name}")), None
        )
        return {**about, "system": system or about["system"]}


@dataclass(frozen=True)
class Scored:
    """One text, measured."""

    file: dict[str, Any]
    run: dict[str, Any]
    output: dict[str, Any]
    scores: dict[str, Score]
    """By label."""

    @property
    def base(self) -> str:
        """What its files are called, without the seed."""
        return "-".join(filter(None, [self.run["name"], self.output["split"], self.output["search"]]))

    @property
    def table(self) -> str:
        """What its numbers are comparable with: the same text."""
        return f"{self.run['corpus']} {self.output['split']}"

    def result(self, label: str) -> Result:
        """One of its values with all that is known of it."""
        score, run = self.scores[label], self.run
        is_published = (label, self.output["split"]) in (("word", "test"), ("nats", "valid"))
        return Result(
            system=run["system"],
            recipe=run["recipe"],
            overrides=list(run["overrides"]),
            corpus=run["corpus"],
            split=self.output["split"],
            protocol=f"whole text, {reading_of(score.signature)}"
            + translation_results.ended_early(run, self.file["at_once"]),
            metric=score.name,
            value=round(score.value, 4 if label in ("byte", "nats") else 2),
            published=PUBLISHED.get((run["system"], run["corpus"])) if is_published else None,
            seed=run["seed"],
            commit=self.file["commit"],
            hardware=self.file["hardware"],
            seconds=run["seconds"],
            signature=score.signature,
        )


def reading_of(signature: str) -> str:
    """How a text was read, in words."""
    parts = dict(part.split(":", 1) for part in signature.split("|"))
    if parts["layout"] == "lines":
        whole = "line by line"
        return whole if parts["context"] == "line" else f"{whole}, windows of {parts['context']}"
    if parts["context"] == "carried":
        rows = "" if parts["rows"] == "1" else f" in {parts['rows']} rows"
        return f"as one stream{rows}, the state carried"
    return f"as one stream, windows of {parts['context']}, stride {parts['stride']}"


def scored(files: Iterable[dict[str, Any]]) -> Iterator[Scored]:
    """Every measured text, in the order of names and seeds."""
    for file in files:
        for run in sorted(file["runs"], key=lambda run: (run["name"], run["seed"])):
            for output in run["outputs"]:
                scores = [Score.from_json(score) for score in output["scores"]]
                if run["corpus"] == "tinyshakespeare":
                    scores += [nats_of(score) for score in scores if score.name == "perplexity per token"]
                yield Scored(file, run, output, {LABELS[score.name]: score for score in scores})


def nats_of(score: Score) -> Score:
    """The logarithm of a perplexity."""
    low, high = (None if end is None else math.log(end) for end in (score.low, score.high))
    return Score(NATS, math.log(score.value), score.signature, low, high, score.count)


def sweep(files: Sequence[Path]) -> None:
    """Print a table a text."""
    opened = list(translation_results.read_files(files))
    translation_results.show(opened, list(scored(opened)), LABELS.values())


def collect(files: Sequence[Path], folder: Path = report.RESULTS) -> None:
    """Print the tables and write every value into results/."""
    opened = translation_results.committed(translation_results.read_files(files))
    found = list(scored(opened))
    translation_results.show(opened, found, LABELS.values())
    translation_results.write_values(found, folder)


def parser() -> argparse.ArgumentParser:
    """What may be typed."""
    whole = argparse.ArgumentParser(
        prog="python -m benchmarks.language_models",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = whole.add_subparsers(required=True, metavar="VERB")
    translation.add_runs(verbs, Experiment)
    for verb, do in (("sweep", sweep), ("collect", collect)):
        one = verbs.add_parser(verb, help=do.__doc__)
        one.set_defaults(do=lambda arguments, do=do: do(arguments.files))
        one.add_argument("files", type=Path, nargs="+", help="what `run` wrote")
    return whole


def main() -> None:
    """The command."""
    report.do_what_is_asked(parser())


if __name__ == "__main__":
    main()
