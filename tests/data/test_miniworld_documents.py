"""Documents of miniworld: the writer's own sentences decide the label, and all sentences together do not."""

from __future__ import annotations

import hashlib
import re
from collections import Counter

import pytest

from mallang.data import miniworld
from mallang.data import miniworld_documents as made
from mallang.data import miniworld_labels as labels
from mallang.data.corpus import Config, open_corpus
from mallang.data.miniworld_views import VIEWS

NAME = "miniworld-documents"
OWN = {
    "ko": re.compile(r"(?<!\S)(나는|우리는)(?!\S)"),
    "en": re.compile(r"(^|, )(I|we|(my|our) (stomach|head|leg)) ", re.IGNORECASE),
}
COLUMNS = VIEWS[NAME].columns


def documents(split: str) -> list[tuple[str, ...]]:
    return list(open_corpus(Config(corpus=NAME, columns=list(COLUMNS)), ()).split(split))


def scores(language: str, split: str) -> dict[str, int]:
    """What each sentence of a split is worth."""
    scenes = miniworld.scenes(split)
    return {text: labels.score(scene) for text, scene in zip(miniworld.text(split, language), scenes, strict=True)}


def rating(worth: int) -> str:
    return str(3 + max(-2, min(2, worth)))


@pytest.mark.parametrize("language", ["ko", "en"])
def test_the_writers_own_sentences_decide(language: str) -> None:
    for split in VIEWS[NAME].rows:
        worth = scores(language, split)
        for row in documents(split):
            sentences = row[COLUMNS.index(language)].split("\n")
            own = [place for place, text in enumerate(sentences) if OWN[language].search(text)]
            assert [str(place) for place in own] == row[4].split("\t")
            total = sum(worth[sentences[place]] for place in own)
            assert row[3] == rating(total)
            assert row[2] == ("positive" if total > 0 else "negative" if total < 0 else "neutral")


def test_all_sentences_together_do_not_tell_the_label() -> None:
    worth = scores("ko", "test")
    rows = documents("test")
    right = sum(rating(sum(worth[text] for text in row[0].split("\n"))) == row[3] for row in rows)
    assert 0.2 < right / len(rows) < 0.55


@pytest.mark.parametrize("split", VIEWS[NAME].rows)
def test_labels_lengths_and_places_vary(split: str) -> None:
    rows = documents(split)
    ratings, lengths = Counter(row[3] for row in rows), Counter(row[0].count("\n") + 1 for row in rows)
    assert set(ratings) == set(labels.RATINGS) and max(ratings.values()) < 0.3 * len(rows)
    assert set(lengths) == set(range(made.SHORTEST, made.LONGEST + 1))
    assert all(row[0].count("\n") == row[1].count("\n") for row in rows)
    places = Counter(place for row in rows for place in row[4].split("\t"))
    assert set(places) == {str(place) for place in range(made.LONGEST)}
    assert max(places.values()) < 0.3 * sum(places.values())
    assert Counter(row[4].count("\t") for row in rows).keys() == {0, 1}


def test_documents_are_different_and_made_of_the_sentences_of_their_split() -> None:
    for split in VIEWS[NAME].rows:
        known, rows = set(miniworld.text(split, "en")), documents(split)
        assert len({row[0] for row in rows}) == len(rows) == VIEWS[NAME].rows[split]
        for row in rows:
            sentences = row[1].split("\n")
            assert set(sentences) <= known and len(set(sentences)) == len(sentences)


def test_documents_are_frozen() -> None:
    """Whoever changes a document changes VERSION, by which prepared data is told apart, and then this sum."""
    lines = "\n".join(cell for row in documents("test") for cell in row)
    assert (made.VERSION, hashlib.sha256(lines.encode()).hexdigest()[:16]) == (1, "8918a20d8083ca61")
