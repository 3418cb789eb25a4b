"""Rows kept for validation where there is one file."""

from __future__ import annotations

from pathlib import Path

import pytest

from mallang.data.corpus import Config, open_corpus
from mallang.data.held_out import is_held_out

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
    assert any(len({is_held_out(tuple(f"{cell}{n}" for cell in row), 0.5) for row in rows}) == 2 for n in range(20))


def test_fingerprints_know_the_side_and_the_share(tmp_path: Path) -> None:
    path = write(tmp_path / "all.tsv", 100)
    corpora = [open_corpus(Config(train=str(path), hold_out=share), PAIR) for share in (0.0, 0.1, 0.2)]
    sums = [corpus.split(name).fingerprint for corpus in corpora for name in corpus.splits]
    assert len(set(sums)) == 5


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
