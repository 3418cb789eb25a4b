"""Sentences of miniworld with links: parts of the text, names of one split alone, types and relations that hold."""

from __future__ import annotations

import json

import pytest

from mallang.data.corpus import Config, open_corpus
from mallang.data.linked_text import read_links, read_mentions
from mallang.data.miniworld_links import LANGUAGES, ROLES, VERSION, rows
from mallang.data.miniworld_triples import triples
from mallang.data.miniworld_views import VIEWS

COLUMNS = VIEWS["miniworld-links"].columns
FACTS = {(head[0], relation, tail[0]) for head, relation, tail in triples()}
SOME = 300


@pytest.mark.parametrize("split", ["train", "valid"])
def test_links_lead_to_the_graph_and_types_and_relations_are_true_there(split: str) -> None:
    for cells in rows(split, SOME if split == "train" else 200):
        row = dict(zip(COLUMNS, cells, strict=True))
        for language in LANGUAGES:
            text = row[language]
            [mention] = read_mentions(row[f"{language}-mention"], text, 1)
            head, tail = read_mentions(row[f"{language}-pair"], text, 2)
            entities = {(link.start, link.end): link.entity for link in read_links(row[f"{language}-links"], text)}
            assert tail == mention and {head, tail} <= entities.keys()
            assert (entities[head], row["relation"], entities[tail]) in FACTS
            group, *qualities = row["types"].split("\t")
            assert (entities[mention], "is a", group) in FACTS
            assert all((entities[mention], "can be", quality) in FACTS for quality in qualities)


def names(split: str, count: int) -> set[str]:
    found = set()
    for cells in rows(split, count):
        row = dict(zip(COLUMNS, cells, strict=True))
        [(start, end)] = read_mentions(row["en-mention"], row["en"], 1)
        found.add(row["en"][start:end].removesuffix("s"))
    return found


def test_the_names_of_a_split_are_in_no_other() -> None:
    train, valid, test = names("train", 1000), names("valid", 200), names("test", 200)
    assert len(train) > 500 and not train & valid and not train & test and not valid & test


def test_the_rows_stay_as_they_are() -> None:
    assert VERSION == 1
    first = dict(zip(COLUMNS, rows("train", 1)[0], strict=True))
    assert first["en"] == "Last night, Eunji's tagusota walked." and first["types"].split("\t")[0] == "animal"
    assert json.loads(first["en-links"]) == [["dog", 20, 28], ["walk", 29, 35]]


def test_it_is_a_corpus() -> None:
    columns = ["ko", "ko-pair", "ko-links", "relation"]
    opened = open_corpus(Config(corpus="miniworld-links", columns=columns), ("text", "mentions", "links", "label"))
    found = list(opened.split("test"))
    assert len(found) == 200 and {row[3] for row in found} == set(ROLES.values())
