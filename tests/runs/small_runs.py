"""Small runs, trained in a moment, to be opened by other runs."""

from __future__ import annotations

from pathlib import Path

from mallang.recipe import read
from mallang.runs.folder import Run
from mallang.training.train import Options, train

QUICK = ["train.steps=2", "train.workers=0", "train.precision=fp32"]
GOOD, BAD = ("good", "great", "fine"), ("bad", "poor", "weak")


def write_reviews(folder: Path, count: int = 48) -> Path:
    """A file of texts whose label is decided by one word."""
    lines = [
        f"the {(GOOD if n % 2 else BAD)[n // 2 % 3]} film {n % 7}\t{'yes' if n % 2 else 'no'}" for n in range(count)
    ]
    (folder / "reviews.tsv").write_text("text\tlabel\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return folder / "reviews.tsv"


def write_names(folder: Path, count: int = 24) -> Path:
    """A file of tagged sentences: names of people, whatever they are, stand after the word mr."""
    names = ("Kim", "Lee", "Park", "Choi")
    lines = [f"mr O\n{names[n % 4]} B-PER\nran O\nin O\nSeoul B-LOC\n" for n in range(count)]
    (folder / "names.conll").write_text("\n".join(lines), encoding="utf-8")
    return folder / "names.conll"


def write_lines(folder: Path, count: int = 40) -> Path:
    """A file of plain text."""
    lines = [f"the {(*GOOD, *BAD)[n % 6]} film {n % 7} of mr Kim in Seoul" for n in range(count)]
    (folder / "lines.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / "lines.txt"


def run_of(folder: Path, recipe: str, data: Path, *changes: str, fresh: bool = True, start: Path | None = None) -> Run:
    """A run of a recipe on this file."""
    quick = [] if recipe == "bag_of_words" else QUICK  # it is fitted
    given = [f"data.train={data}", f"data.valid={data}", "train.batch_tokens=256", "model.size=tiny", *quick, *changes]
    return train(read(recipe, given).build(), Options(folder=folder, fresh=fresh, quiet=True, start=start))
