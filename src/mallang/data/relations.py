"""Sentences with a head, a tail and the relation between them, as FewRel has them (Han et al. 2018, arXiv:1810.10147)."""

from __future__ import annotations

import json
from itertools import accumulate
from typing import Any

from mallang.data.source import Row


def row(record: dict[str, Any]) -> Row:
    """Text, mentions, links and relation of one object of a FewRel file; the words are joined by spaces.

    Head and tail are marked where they stand first. Both are linked, to the entities that the file names.
    """
    words = record["tokens"]
    starts = [0, *accumulate(len(word) + 1 for word in words)]
    links = []
    for _, entity, places in (record["h"], record["t"]):
        first, last = places[0][0], places[0][-1]
        links.append([entity, starts[first], starts[last] + len(words[last])])
    return " ".join(words), json.dumps([link[1:] for link in links]), json.dumps(links), record["relation"]
