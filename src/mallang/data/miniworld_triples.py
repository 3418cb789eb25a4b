"""What miniworld knows as a graph: triples of what is of which kind, who can do what, where and with what.

    apple  is a  food        eat  takes  apple        eat  done by  cat        swim  done at  beach

They are all that scenes are drawn from. A hash of the triple puts a tenth of them into each of the held-out splits,
but none whose entities the rest does not have.
"""

from __future__ import annotations

import hashlib
from functools import cache

from mallang.data.miniworld_scene import MEANS_TO
from mallang.data.miniworld_verbs import ACTIONS
from mallang.data.miniworld_words import ADJECTIVES, NOUNS, PLACES, Noun, Place

VERSION = 1
"""Changes whenever any triple does."""
LEFT_OUT = ("pronoun", "listener", "question")
"""Groups of nouns that name nothing by themselves."""
Name = tuple[str, str]
"""What something is called in English and in Korean."""


@cache
def rows(split: str, count: int) -> tuple[tuple[str, ...], ...]:
    """The triples of a split: head, relation and tail, then head and tail in Korean."""
    found: tuple[tuple[str, ...], ...] = tuple(
        (head[0], relation, tail[0], head[1], tail[1])
        for (head, relation, tail), its_split in split_of().items()
        if its_split == split
    )
    return found[:count]


@cache
def split_of() -> dict[tuple[Name, str, Name], str]:
    """The split of every triple."""
    every = triples()
    splits = {each: {0: "valid", 1: "test"}.get(bucket(each), "train") for each in every}
    known = {end[0] for (head, _, tail), split in splits.items() if split == "train" for end in (head, tail)}
    return {
        (head, relation, tail): split if {head[0], tail[0]} <= known else "train"
        for (head, relation, tail), split in splits.items()
    }


def bucket(triple: tuple[Name, str, Name]) -> int:
    """A number from 0 to 9 that follows from a triple."""
    (head, _), relation, (tail, _) = triple
    return hashlib.sha256(f"{VERSION}\t{head}\t{relation}\t{tail}".encode()).digest()[0] % 10


@cache
def triples() -> tuple[tuple[Name, str, Name], ...]:
    """Everything that is true in miniworld, each once, by its English name."""
    found: dict[tuple[str, str, str], tuple[Name, str, Name]] = {}

    def add(head: Name, relation: str, tail: Name) -> None:
        found.setdefault((head[0], relation, tail[0]), (head, relation, tail))

    for noun in dict.fromkeys(NOUNS.values()):
        if noun.group not in LEFT_OUT:
            add(named(noun), "is a", (noun.group, noun.group))
    for adjective in ADJECTIVES:
        for noun in adjective.nouns:
            if noun.group not in LEFT_OUT:
                add(named(noun), "can be", (adjective.english, adjective.attribute))
    for verb in ACTIONS:
        action = (verb.english[0], verb.stem.plain + "다")
        for relation, nouns in (("takes", verb.objects), ("done by", verb.subjects)):
            for noun in nouns:
                if noun.group not in LEFT_OUT:
                    add(action, relation, named(noun))
        for place in verb.places:
            add(action, "done at", place_name(place))
    for korean, means in MEANS_TO.items():
        for noun in means:
            add(place_name(PLACES[korean]), "reached by", named(noun))
    return tuple(found.values())


def named(noun: Noun) -> Name:
    """The name of a noun in both languages."""
    return noun.english, noun.korean


def place_name(place: Place) -> Name:
    """The name of a place in both languages: that of `at the beach` is `beach`."""
    return place.at.split(" ")[-1], place.korean
