"""Unpaired text: no sentence beside its translation, files of unequal length, and two files in one language."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mallang.data.corpus import Config, Joined, open_corpus
from mallang.data.sampler import UnpairedBuckets
from mallang.data.unpaired import Unpaired, check_languages
from mallang.errors import UserError

PAIRS = [(f"문장 {number}번", f"sentence {number}") for number in range(200)]
COLUMNS = ("source", "target")


def write(path: Path, rows: list[str]) -> str:
    path.write_text("\n".join(rows) + "\n", "utf-8")
    return str(path)


def table(folder: Path) -> str:
    return write(folder / "pairs.tsv", ["\t".join(pair) for pair in PAIRS])


def test_halves_are_disjoint_and_complete(tmp_path: Path) -> None:
    corpus = open_corpus(Config(train=table(tmp_path), valid=table(tmp_path), unpaired="halves"), COLUMNS)
    for split in ("train", "valid"):
        rows = list(corpus.split(split))
        sources, targets = [row[0] for row in rows if row[0]], [row[1] for row in rows if row[1]]
        assert all(bool(source) != bool(target) for source, target in rows)
        translations = dict(PAIRS)
        assert not {translations[source] for source in sources} & set(targets)
        assert sorted([*(translations[source] for source in sources), *targets]) == sorted(translations.values())
        assert 70 < len(sources) < 130


def test_a_repeated_source_is_in_one_half_with_all_its_translations(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", [f"같은 말\tword {number}" for number in range(20)] + ["다른 말\tother"] * 20)
    rows = list(open_corpus(Config(train=path, valid=path, unpaired="halves"), COLUMNS).split("train"))
    kept = {source for source, _ in rows if source}
    assert not [target for _, target in rows if target.startswith("word") and "같은 말" in kept]
    assert not [target for _, target in rows if target.startswith("other") and "다른 말" in kept]


def test_test_sets_stay_paired_and_several_corpora_are_read_apart(tmp_path: Path) -> None:
    corpus = open_corpus(Config(corpus="miniworld", unpaired="halves"), COLUMNS)
    assert all(all(row) for row in list(corpus.split("test"))[:50])
    other = tmp_path / "other.tsv"
    write(other, ["\t".join(pair) for pair in PAIRS])
    several = open_corpus(Config(corpora={"miniworld": 1.0, str(other): 1.0}, unpaired="halves"), COLUMNS)
    source = several.split("train").source
    assert isinstance(source, Joined) and all(isinstance(each.rows.source, Unpaired) for each in source.members)
    assert not any(all(row) for row in several.split("train"))


def test_two_files_need_not_be_parallel_and_blank_lines_are_left_out(tmp_path: Path) -> None:
    one = write(tmp_path / "a.txt", [source for source, _ in PAIRS[:50]] + ["", "  "])
    other = write(tmp_path / "b.txt", [target for _, target in PAIRS])
    config = Config(train=[one, other], columns=["1", "2"], unpaired="all", hold_out=0.1)
    corpus = open_corpus(config, COLUMNS)
    train, valid = list(corpus.split("train")), list(corpus.split("valid"))
    assert sorted(train + valid) == sorted([(s, "") for s, _ in PAIRS[:50]] + [("", t) for _, t in PAIRS])
    assert not set(train) & set(valid) and valid


def test_the_fingerprint_tells_how_text_is_read(tmp_path: Path) -> None:
    path = table(tmp_path)
    found = {how: open_corpus(Config(train=path, unpaired=how), COLUMNS).split("train").fingerprint
             for how in ("no", "halves", "all")}  # fmt: skip
    assert len(set(found.values())) == 3


def test_two_files_in_one_language_are_refused(tmp_path: Path) -> None:
    lines = [f"the cat number {number} sat on the mat and saw a dog" for number in range(60)]
    one, other = write(tmp_path / "a.txt", lines[:30]), write(tmp_path / "b.txt", lines[30:])
    rows = open_corpus(Config(train=[one, other], columns=["1", "2"], unpaired="all"), COLUMNS).split("train")
    assert isinstance(rows.source, Unpaired)
    with pytest.raises(UserError, match="seem to be in one language: 100%"):
        check_languages(rows.source, rows.name)
    german = write(
        tmp_path / "c.txt", [f"die Katze {number} saß auf der Matte und sah einen Hund" for number in range(30)]
    )
    rows = open_corpus(Config(train=[one, german], columns=["1", "2"], unpaired="all"), COLUMNS).split("train")
    assert isinstance(rows.source, Unpaired)
    check_languages(rows.source, rows.name)


def test_options_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="neither domains, exclude nor documents"):
        Config(train="a.txt", unpaired="all", documents="blank-lines")
    with pytest.raises(UserError, match="two languages"):
        open_corpus(Config(corpus="miniworld", source="ko", target="ko", unpaired="halves"), COLUMNS)


def test_every_sentence_of_the_larger_side_is_read_once_an_epoch() -> None:
    import numpy as np

    random = np.random.default_rng(1)
    lengths = np.zeros((70, 2), np.int32)
    lengths[:20, 0], lengths[20:, 1] = random.integers(1, 12, 20), random.integers(1, 12, 50)
    plans = [UnpairedBuckets(lengths, tokens=64, seed=3, epoch=epoch) for epoch in (0, 0, 1)]
    rows = [[row for place in range(len(plan)) for row in plan[place]] for plan in plans]
    assert rows[0] == rows[1] != rows[2]
    for each in rows:
        assert sorted(other for _, other in each) == list(range(20, 70))
        assert {one for one, _ in each} == set(range(20))
    widths = [len(batch) * max(max(lengths[i, 0], lengths[j, 1]) + 1 for i, j in batch)
              for batch in (plans[0][place] for place in range(len(plans[0])))]  # fmt: skip
    assert max(widths) <= 64
    with pytest.raises(UserError, match="has no text"):
        UnpairedBuckets(lengths[:20], tokens=64, seed=3, epoch=0)


@pytest.mark.parametrize(
    "given", [{"domains": {"a": "a.tsv", "b": "b.tsv"}}, {"exclude": ["multi30k:test"]}, {"documents": "blank-lines"}]
)
def test_what_unpaired_text_does_not_go_with(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="goes with neither domains, exclude nor documents"):
        Config(unpaired="halves", **given)
