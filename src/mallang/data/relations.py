"""Sentences with a head, a tail and the relation between them; triples whose entities get other names."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any

from mallang.data.source import Row


def row(record: dict[str, Any]) -> Row:
    """Text, mentions, links and relation of an object of a FewRel file (Han et al. 2018, arXiv:1810.10147).

    The words are joined by spaces. Head and tail are marked where they stand first. Both are linked, to the entities
    that the file names.
    """
    words = record["tokens"]
    starts = [0, *accumulate(len(word) + 1 for word in words)]
    links = []
    for _, entity, places in (record["h"], record["t"]):
        first, last = places[0][0], places[0][-1]
        links.append([entity, starts[first], starts[last] + len(words[last])])
    return " ".join(words), json.dumps([link[1:] for link in links]), json.dumps(links), record["relation"]


def renamed(triples: Iterable[Row], table: Iterable[tuple[int, list[str]]]) -> Iterator[Row]:
    """Triples with the names that the second column of a table gives the entities of its first one.

    What has no other name there keeps its own.
    """
    names = {cells[0]: cells[1] for _, cells in table}
    for head, relation, tail in triples:
        yield names.get(head, head), relation, names.get(tail, tail)
