"""Stand-ins of label corpora: every column is filled as its name says, and readers take it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu import stand_ins
from mallang.data.corpus import Config, Corpus, open_corpus

LABELLED = {
    "nsmc": ("document", "label", {"negative", "positive"}),
    "klue/ynat": ("title", "label_name", set("0123")),
    "sst-sentence/sst5": ("sentence", "label", set("0123")),
    "trec": ("question", "coarse", set("0123")),
    "imdb-subset": ("text", "rating", {str(number) for number in range(1, 11)}),
    "agnews-subset": ("text", "label", {"World", "Sports", "Business", "Sci/Tech"}),
    "bbc-news": ("article", "label", set("0123")),
    "klue/nli": ("premise", "label", set("0123")),
}
TAGGED = {"conll2003": "word pos chunk ner", "kmou-ner": "morpheme pos ner", "klue/ner": "token tag"}


@pytest.fixture(scope="module", autouse=True)
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Every stand-in of this file, written once."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MALLANG_CACHE", str(folder))
        patch.delenv("MALLANG_DATA", raising=False)
        entries = stand_ins.write([*LABELLED, *TAGGED, "klue/sts"], stand_ins.SMALL)
        with stand_ins.in_registry(entries):
            yield folder


def opened(name: str, *columns: str) -> Corpus:
    return open_corpus(Config(corpus=name, columns=list(columns)), columns)


@pytest.mark.parametrize("name", LABELLED)
def test_labels_are_few_and_follow_from_the_text(name: str) -> None:
    text, label, names = LABELLED[name]
    corpus = opened(name, text, label)
    for split in ("train", "valid"):
        rows = list(corpus.split(split))
        assert len(rows) > 10 and {found for _, found in rows} <= names
        assert all(len(told.split()) >= stand_ins.SHORTEST for told, _ in rows)
    rows = list(corpus.split("train"))
    assert {found for _, found in rows} == names
    assert max(Counter(found for _, found in rows).values()) < 0.7 * len(rows)
    first = {told.split()[0].rstrip("."): found for told, found in rows}
    assert all(first[told.split()[0].rstrip(".")] == found for told, found in rows)


@pytest.mark.parametrize("name", TAGGED)
def test_tags_stand_for_tokens_and_are_well_formed(name: str) -> None:
    columns = TAGGED[name].split()
    for split in ("train", "valid"):
        rows = list(opened(name, *columns).split(split))
        assert len(rows) > 10
        for row in rows:
            tokens, *tags = (cell.split("\t") for cell in row)
            assert all(len(found) == len(tokens) for found in tags)
            for before, tag in zip(["O", *tags[-1]], tags[-1], strict=False):
                assert tag == "O" or tag[:2] == "B-" or (tag[:2] == "I-" and before[2:] == tag[2:])
    seen = Counter(tag for row in opened(name, *columns).split("train") for tag in row[-1].split("\t"))
    assert {tag[:1] for tag in seen} == {"B", "I", "O"} and seen["O"] < 0.8 * sum(seen.values())


def test_scores_are_numbers_and_ids_are_different() -> None:
    rows = list(opened("klue/sts", "sentence1", "sentence2", "score").split("train"))
    scores = [float(score) for _, _, score in rows]
    assert 0.0 <= min(scores) < 1.0 and 4.0 < max(scores) <= 5.0
    names = [name for (name,) in opened("nsmc", "id").split("train")]
    assert len(set(names)) == len(names)


def test_documents_have_sentences() -> None:
    counts = Counter(text.count(".") for text, _ in opened("imdb-subset", "text", "label").split("train"))
    assert set(counts) == set(range(1, stand_ins.LONGEST // stand_ins.SENTENCE + 1))
