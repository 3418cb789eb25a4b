"""Captions of OpenMoji: a captioner that sees the drawing, one that sees white, and the nearest training drawing.

python -m benchmarks.drawings run --out lines.jsonl --work FOLDER       # trains what the file has not
python -m benchmarks.drawings show lines.jsonl                          # by group, with paired intervals
python -m benchmarks.drawings collect lines.jsonl                       # results/

Drawings that differ in gender, skin tone or direction alone are in one split. `image` is the recipe
show-attend-tell-openmoji36; `no-image` is the same, trained and scored on white squares in place of all drawings, so
that it knows what captions look like and nothing more; `nearest` takes the caption of the training drawing with the
smallest distance between pixels, and has no seed. Settings are chosen on valid (`--set`), the test split is scored
once.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.report import Result
from benchmarks.understanding_results import read_lines
from mallang.data.corpus import Config, open_corpus
from mallang.data.images import data_uri, fitted, read_image
from mallang.evaluation.captions import MEASURES, cider_values
from mallang.evaluation.score import interval

RECIPE, CORPUS, SIZE = "show-attend-tell-openmoji36", "openmoji36", 36
SYSTEMS = {"image": "that sees the drawing", "no-image": "that sees white", "nearest": "of the nearest drawing"}
COLUMNS = ("image", "caption", "group", "subgroup")
CHIEF = ("bleu1", "cider", "exact")
"""The measures that go into results/."""


def rows_of(split: str) -> list[tuple[str, ...]]:
    """Image, caption, group and subgroup of every drawing of a split."""
    return list(open_corpus(Config(corpus=CORPUS, columns=list(COLUMNS)), ("image", *COLUMNS[1:])).split(split))


def run(arguments: argparse.Namespace) -> None:
    """Train and score what is not in the file yet."""
    out: Path = arguments.out
    done = {(line["system"], line["seed"]) for line in read_lines(out)} if out.exists() else set()
    jobs = [(system, seed) for system in ("image", "no-image") for seed in arguments.seeds]
    for system, seed in [("nearest", None), *jobs]:
        if (system, seed) not in done:
            began = time.monotonic()
            told = nearest() if seed is None else trained(system, seed, arguments)
            line = {
                "system": system, "seed": seed, "set": list(arguments.set), **told,
                "wall": round(time.monotonic() - began, 1), "commit": report.commit(), "hardware": report.hardware(),
            }  # fmt: skip
            with out.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(line, ensure_ascii=False) + "\n")
            print(f"{system} seed {seed}: {scores(line)}", flush=True)


def nearest() -> dict[str, Any]:
    """For every drawing the caption of the most similar training drawing."""
    known = rows_of("train")
    table = np.stack([pixels(row[0]) for row in known])
    return {
        split: [known[int(((table - pixels(row[0])) ** 2).sum(axis=1).argmin())][1] for row in rows_of(split)]
        for split in ("valid", "test")
    }


def pixels(cell: str) -> np.ndarray:
    """The values of an image in a row."""
    return fitted(read_image(cell), SIZE).reshape(-1).astype(np.float32)


def trained(system: str, seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """The captions of a trained system for valid and test."""
    import mallang
    from mallang import recipe as recipes
    from mallang.training.train import Options, train

    white = data_uri(np.full((SIZE, SIZE, 3), 255, np.uint8))
    overrides = [*arguments.set, f"seed={seed}"]
    if system == "no-image":
        overrides += [f"data.{split}={whitened(split, white, arguments.work)}" for split in ("train", "valid", "test")]
    built = recipes.read(RECIPE, overrides).build()
    options = Options(folder=arguments.work / f"{system}-seed{seed}", device=arguments.device, quiet=True, fresh=True)
    info = train(built, options).info
    model = mallang.load(options.folder, device=arguments.device)
    found: dict[str, Any] = {"steps": info.get("steps"), "parameters": info.get("parameters")}
    for split in ("valid", "test"):
        cells = [row[0] if system == "image" else white for row in rows_of(split)]
        found[split] = [each.output for each in model.caption_rows([(cell, "") for cell in cells])]
    return found


def whitened(split: str, white: str, folder: Path) -> Path:
    """A table with the captions of a split and white images."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"white-{split}.tsv"
    lines = ["image\tcaption", *(f"{white}\t{row[1]}" for row in rows_of(split))]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def scores(line: dict[str, Any], split: str = "test") -> dict[str, float]:
    """The chief measures of a line."""
    golds = [row[1] for row in rows_of(split)]
    return {name: round(MEASURES[name](line[split], golds).value, 4) for name in CHIEF}


def show(arguments: argparse.Namespace) -> None:
    """Print every measure, CIDEr-D by group, and the paired differences from the two baselines."""
    lines = [line for path in arguments.files for line in read_lines(path)]
    rows = rows_of("test")
    golds = [row[1] for row in rows]
    table: list[Sequence[object]] = [("", "seeds", "valid cider", *MEASURES)]
    values: dict[str, np.ndarray] = {}
    for system in SYSTEMS:
        mine = [line for line in lines if line["system"] == system]
        if not mine:
            continue
        means = [statistics.mean(measure(line["test"], golds).value for line in mine) for measure in MEASURES.values()]
        table.append((system, len(mine), statistics.mean(scores(line, "valid")["cider"] for line in mine), *means))
        values[system] = np.mean([cider_values(line["test"], [[gold] for gold in golds]) for line in mine], axis=0)
    report.show("OpenMoji, test", table)
    for place, name in ((2, "group"), (3, "subgroup")):
        known = sorted({row[place] for row in rows})
        shown: list[Sequence[object]] = [(name, "drawings", *values)]
        for one in known:
            inside = np.array([row[place] == one for row in rows])
            shown.append((one, int(inside.sum()), *(float(each[inside].mean()) for each in values.values())))
        report.show(f"CIDEr-D by {name}", shown)
    for other in ("no-image", "nearest"):
        if other in values and "image" in values:
            print(f"image − {other}: CIDEr-D {difference(values['image'], values[other])}")


def difference(ours: np.ndarray, theirs: np.ndarray) -> str:
    """The mean difference over drawings, with its paired interval."""
    low, high = interval(np.stack((ours - theirs, np.ones(len(ours))), axis=1), lambda sums: float(sums[0] / sums[1]))
    return f"{(ours - theirs).mean():+.4f} [{low:+.4f}, {high:+.4f}]"


def collect(arguments: argparse.Namespace) -> None:
    """Write results/."""
    lines = (line for path in arguments.files for line in read_lines(path))
    report.write_results(named for line in lines for named in results(line))


def results(line: dict[str, Any]) -> Iterable[tuple[str, Result]]:
    """The values of a line: the chief measures of all drawings, and CIDEr-D of every group."""
    rows = rows_of("test")
    golds = [row[1] for row in rows]
    found = {label: MEASURES[label](line["test"], golds).score() for label in CHIEF}
    by_image = np.array(cider_values(line["test"], [[gold] for gold in golds]))
    groups = {group: by_image[[row[2] == group for row in rows]] for group in sorted({row[2] for row in rows})}
    about = {
        "system": "show-attend-tell" if line["seed"] else "nearest", "corpus": CORPUS, "split": "test",
        "recipe": RECIPE if line["seed"] else None, "overrides": line["set"], "seed": line["seed"],
        "commit": line["commit"], "hardware": line["hardware"], "seconds": line["wall"],
    }  # fmt: skip
    ending = f"-seed{line['seed']}" if line["seed"] else ""
    for label, score in found.items():
        told = f"caption {SYSTEMS[line['system']]}, {len(rows)} drawings"
        told += "" if score.low is None else f", 95 % interval {score.low:.3f} to {score.high:.3f}"
        yield (
            f"captions-openmoji-{line['system']}-{label}{ending}",
            Result(**about, metric=score.name, value=round(score.value, 4), protocol=told, signature=score.signature),
        )
    for group, values in groups.items():
        yield f"captions-openmoji-{line['system']}-{group}-cider{ending}", Result(
            **about, metric=f"CIDEr-D, {group}", value=round(float(values.mean()), 4),
            signature=found["cider"].signature,
            protocol=f"caption {SYSTEMS[line['system']]}, {len(values)} drawings of this group",
        )  # fmt: skip


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("run")
    one.add_argument("--work", type=Path, required=True, help="folder of runs")
    one.add_argument("--out", type=Path, required=True)
    one.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3])
    one.add_argument("--device", default="cpu")
    one.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="recipe values of all runs")
    one.set_defaults(do=run)
    for name, function in (("show", show), ("collect", collect)):
        other = verbs.add_parser(name)
        other.add_argument("files", type=Path, nargs="+")
        other.set_defaults(do=function)
    arguments = parser.parse_args()
    arguments.do(arguments)


if __name__ == "__main__":
    main()
