"""The corpora of classifiers and taggers as they are on this machine: splits, labels and tags, read whole."""

from __future__ import annotations

from functools import cache

import pytest

from mallang.data import registry
from mallang.data.corpus import Config, Rows, open_corpus

LABELLED = {
    # name: text and label columns, rows of train, valid and test, labels
    "nsmc": ("document label", (135295, 14705, 50000), 2),
    "klue/ynat": ("title label_name", (36643, 4503, 4508), 7),
    "sst-sentence/sst2": ("sentence label", (6250, 670, 872), 2),
    "sst-sentence/sst5": ("sentence label", (7699, 845, 1101), 5),
    "trec": ("question coarse", (4880, 572, 500), 6),
    "trec 50": ("question class", (4880, 572, 500), 50),
    "imdb-subset": ("text label", (8000, 1000, 5000), 2),
    "agnews-subset": ("text label", (7965, 1054, 974), 4),
    "bbc-news": ("article label", (1808, 223, 194), 5),
    "korean-small/3i4k": ("sentence label", (49632, 5502, 6121), 7),
}
TAGGED = {
    # name: token and tag columns, rows of train, valid and test, types of entities
    "klue/ner": ("token tag", (4032, 479, 489), 6),
    "kmou-ner": ("morpheme ner", (15978, 2662, 5324), 10),
    "conll2003": ("word ner", (14041, 3250, 3453), 4),
}
ALL = {**LABELLED, **TAGGED}
SPLITS = ("train", "valid", "test")


@pytest.mark.parametrize("name", ALL)
def test_the_registry_names_these_splits(name: str) -> None:
    columns, counts, _ = ALL[name]
    entry = registry.entry(name.split()[0])
    assert tuple(entry.splits[split].rows for split in SPLITS) == counts and set(entry.splits) == set(SPLITS)
    assert set(columns.split()) <= set(entry.columns)
    assert entry.text in entry.columns


@cache
def rows_of(name: str) -> dict[str, list[tuple[str, ...]]]:
    corpus_name = name.split()[0]
    if registry.state(registry.entry(corpus_name)) != "here":
        pytest.skip(f"{corpus_name} is not on this machine")
    config = Config(corpus=corpus_name, columns=list(ALL[name][0].split()))
    splits: dict[str, Rows] = dict(open_corpus(config, ("text", "label")).splits)
    return {split: list(rows) for split, rows in splits.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_splits_have_the_rows_that_the_registry_names(name: str) -> None:
    found = rows_of(name)
    assert tuple(len(found[split]) for split in SPLITS) == ALL[name][1]


@pytest.mark.slow
@pytest.mark.parametrize("name", LABELLED)
def test_training_has_every_label(name: str) -> None:
    found = rows_of(name)
    labels = {split: {label for _, label in rows} for split, rows in found.items()}
    assert len(labels["train"]) == LABELLED[name][2]
    assert labels["valid"] <= labels["train"] and labels["test"] <= labels["train"]
    if name != "sst-sentence/sst5":  # its labels are ordered numbers
        assert not any(label.isdecimal() for label in labels["train"])


@pytest.mark.slow
@pytest.mark.parametrize("name", TAGGED)
def test_every_token_has_a_tag(name: str) -> None:
    found = rows_of(name)
    for rows in found.values():
        assert all(tokens.count("\t") == tags.count("\t") for tokens, tags in rows)
    tags = {tag for _, row in found["train"] for tag in row.split("\t")}
    assert len({tag[2:] for tag in tags - {"O"}}) == TAGGED[name][2]
    assert {tag[:2] for tag in tags - {"O"}} == {"B-", "I-"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "column", "held_out"),
    [
        ("nsmc", "document", ("valid",)),
        ("sst-sentence/sst2", "sentence", ("valid",)),
        ("sst-sentence/sst5", "sentence", ("valid",)),
        ("trec", "question", ("valid",)),
        ("korean-small/3i4k", "sentence", ("valid",)),
        ("agnews-subset", "description", ("valid", "test")),
        ("klue/ner", "token", ("valid", "test")),
    ],
)
def test_a_split_by_hash_has_no_text_of_another(name: str, column: str, held_out: tuple[str, ...]) -> None:
    rows_of(name)  # skips what is not here
    corpus = open_corpus(Config(corpus=name, columns=[column]), ())
    seen = set(corpus.split("train"))
    for split in held_out:
        assert seen.isdisjoint(corpus.split(split))
        seen |= set(corpus.split(split))
