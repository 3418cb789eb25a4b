"""Rows kept for validation where there is one file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mallang.data.check import check
from mallang.data.corpus import Config, open_corpus
from mallang.data.held_out import place_of
from mallang.errors import UserError

PAIR = ("source", "target")


def write(path: Path, rows: int) -> Path:
    path.write_text("".join(f"source {row}\ttarget {row}\n" for row in range(rows)), "utf-8")
    return path


def splits(path: Path, share: float) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    corpus = open_corpus(Config(train=str(path), hold_out=share), PAIR)
    return list(corpus.split("train")), list(corpus.split("valid"))


@pytest.mark.parametrize("share", [0.05, 0.1, 0.5])
def test_the_two_sides_are_the_whole_file_and_share_nothing(tmp_path: Path, share: float) -> None:
    path = write(tmp_path / "all.tsv", 2000)
    train, valid = splits(path, share)
    whole = list(open_corpus(Config(train=str(path)), PAIR).split("train"))
    assert sorted(train + valid) == sorted(whole) and not set(train) & set(valid)
    assert len(valid) == pytest.approx(share * 2000, rel=0.2)


def test_a_row_stays_on_its_side_when_the_file_grows_and_equal_rows_stay_together(tmp_path: Path) -> None:
    _, before = splits(write(tmp_path / "short.tsv", 300), 0.1)
    longer = write(tmp_path / "long.tsv", 600)
    longer.write_text(longer.read_text("utf-8") * 2, "utf-8")
    train, valid = splits(longer, 0.1)
    assert set(before) <= set(valid) and not set(train) & set(valid)
    assert len(valid) == 2 * len(set(valid))


def test_the_columns_are_told_apart() -> None:
    """A row is its cells, not the text they make together."""
    rows = [("a b", "c"), ("a", "b c")]
    assert any(len({place_of(tuple(f"{cell}{n}" for cell in row)) < 0.5 for row in rows}) == 2 for n in range(20))


def test_fingerprints_know_the_side_and_the_share(tmp_path: Path) -> None:
    path = write(tmp_path / "all.tsv", 100)
    corpora = [open_corpus(Config(train=str(path), hold_out=share), PAIR) for share in (0.0, 0.1, 0.2)]
    sums = [corpus.split(name).fingerprint for corpus in corpora for name in corpus.splits]
    assert len(set(sums)) == 5


@pytest.mark.parametrize("asked", [("target",), ("target", "source"), ("note",), ("note", "source")])
def test_whichever_columns_are_asked_for_the_sides_are_the_same(tmp_path: Path, asked: tuple[str, ...]) -> None:
    path, names = tmp_path / "all.tsv", ("source", "target", "note")
    lines = [f"source {row}\ttarget {row}\tnote {row}" for row in range(300)]
    path.write_text("\n".join(["\t".join(names), *lines]) + "\n", "utf-8")
    corpus = open_corpus(Config(train=str(path), hold_out=0.1), PAIR)
    for side in ("train", "valid"):
        rows = corpus.split(side)
        others = replace(rows, columns=asked, picks=asked)
        numbers = [source.split()[1] for source, _ in rows]
        assert list(others) == [tuple(f"{name} {number}" for name in asked) for number in numbers]
        assert others.fingerprint != rows.fingerprint


def test_invalid_bytes_are_counted_on_both_sides(tmp_path: Path) -> None:
    path = write(tmp_path / "all.tsv", 40)
    path.write_bytes(path.read_bytes().replace(b"target", b"targ\xe9t"))
    report = check(open_corpus(Config(train=str(path), hold_out=0.3), PAIR), are_pairs=True)
    found = [split.columns[1].troubles["invalid"].count for split in report.splits]
    assert len(found) == 2 and sum(found) == 40


def test_lone_surrogates_are_on_a_side_too(tmp_path: Path) -> None:
    path = tmp_path / "all.jsonl"
    path.write_text("".join(json.dumps({"source": f"\ud800{n}", "target": "t"}) + "\n" for n in range(40)), "utf-8")
    train, valid = splits(path, 0.3)
    assert train and valid and len(train) + len(valid) == 40


@pytest.mark.parametrize(("share", "purpose"), [(1e-9, "validate"), (0.5, "train")])
def test_an_empty_side_is_told_by_its_cause(tmp_path: Path, share: float, purpose: str) -> None:
    path = tmp_path / "all.tsv"
    row = next(row for n in range(100) if place_of(row := (f"source {n}", "t")) < 0.5)
    path.write_text("\t".join(row) + "\n", "utf-8")
    with pytest.raises(UserError, match=f"data.hold_out = {share:g} leaves no row of .* to {purpose} on"):
        splits(path, share)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"hold_out": 0.1}, "with train and without valid"),
        ({"hold_out": 0.1, "train": "a", "valid": "b"}, "with train and without valid"),
        ({"hold_out": 0.6, "train": "a"}, "between 0 and 0.5"),
    ],
)
def test_what_a_share_cannot_mean_is_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Config(**given)  # type: ignore[arg-type]
