"""Mentions and links: how cells are read, what is refused, where they are among the tokens, and the marks."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mallang.data.linked_text import (
    Link,
    LinkedTokens,
    Links,
    Mentions,
    as_cells,
    read_links,
    read_markup,
    read_mentions,
    with_marks,
)
from mallang.data.relations import row
from mallang.errors import UserError
from mallang.text.sentences import split_sentences
from mallang.text.tokenizer import Config as TextConfig
from mallang.text.tokenizer import Tokenizer

TEXT = "Paris is the capital of France. It is large."
WORDS = Tokenizer.train([TEXT], TextConfig(unit="word", vocabulary=100))
ENTITIES = Tokenizer.train(["Q90 Q142 New␣York"], TextConfig(unit="space"))


def entity(name: str) -> int:
    return ENTITIES.vocabulary.ids[name]


@pytest.mark.parametrize("cell", ["0 5", "0\t5", "[0, 5]", "[[0, 5]]"])
def test_a_mention_in_all_its_spellings(cell: str) -> None:
    assert read_mentions(cell, TEXT, 1) == [(0, 5)]


@pytest.mark.parametrize(
    ("cell", "count", "message"),
    [
        ("", 1, "has 0 mentions, and 1 are asked for"),
        ("[[0, 5], [24, 30]]", 1, "has 2 mentions, and 1 are asked for"),
        ("0 5", 2, "has 1 mentions, and 2 are asked for"),
        ("5 5", 1, "the mention from character 5 to 5 is not within its text"),
        ("40 45", 1, "which has 44 characters: 'Paris is"),
        ("-1 5", 1, "from character -1 to 5 is not within"),
        ("zero five", 1, "'zero five' is no mention"),
        ("[0.5, 5]", 1, "is no mention"),
        ("[[0, 5, 6]]", 1, "is no mention"),
        ("[{}]", 1, "is no mention"),
        ("[true, 5]", 1, "is no mention"),
    ],
)
def test_a_wrong_mention_is_refused(cell: str, count: int, message: str) -> None:
    with pytest.raises(UserError) as caught:
        read_mentions(cell, TEXT, count)
    assert message in caught.value.what and caught.value.todo


def test_links() -> None:
    cell = json.dumps([["Q90", 0, 5], ["Q142", 24, 30, 0.25]])
    assert read_links(cell, TEXT) == [Link("Q90", 0, 5), Link("Q142", 24, 30, 0.25)]
    assert read_links("", TEXT) == read_links("[]", TEXT) == read_links("  ", TEXT) == []


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ('[["Q90", 0, 99]]', "the link to Q90 from character 0 to 99 is not within its text, which has 44 characters"),
        ('[["Q90", 6, 5]]', "from character 6 to 5"),
        ('[["Q90", 0]]', "is no list of links"),
        ('[["", 0, 5]]', "is no list of links"),
        ("[[90, 0, 5]]", "is no list of links"),
        ('[["Q90", 0, 5, 1.5]]', "is no list of links"),
        ('[["Q90", 0, 5, 0.5, 0.5]]', "is no list of links"),
        ("Q90", "is no list of links"),
        ("90", "is no list of links"),
        ('{"Q90": 0}', "is no list of links"),
    ],
)
def test_wrong_links_are_refused(cell: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        read_links(cell, TEXT)
    assert message in caught.value.what and caught.value.todo


def test_mentions_and_links_on_tokens() -> None:
    ids = WORDS.encode(TEXT).ids
    first, last = Mentions(WORDS, 1).encode_rows([("24 30", TEXT)])[0]
    assert WORDS.decode(ids[first : last + 1]).startswith("France")
    cell = json.dumps([["Q142", 24, 30, 0.5], ["Q1", 0, 5], ["New York", 32, 34, 0.9], ["Q90", 0, 5, 0.4]])
    links = Links(WORDS, ENTITIES).encode_rows([(cell, TEXT), ("", TEXT)])
    table = np.reshape(links[0], (-1, 3))
    assert links[1] == [] and table[:, 2].tolist() == [entity("Q90"), entity("Q142"), entity("New␣York")]
    assert table[0, 0] == 0 and table[1, 0] == first  # Q1 is not in the graph, and gives its place to Q90
    assert np.reshape(Links(WORDS, ENTITIES, 0.5).encode(cell, TEXT), (-1, 3))[:, 2].tolist() == table[1:, 2].tolist()
    assert Links(WORDS, None).encode(cell, TEXT) == []
    with pytest.raises(UserError, match="holds no token"):
        Mentions(WORDS, 1).encode("5 6", TEXT)


def test_of_links_at_one_token_the_most_confident_is_kept() -> None:
    cell = json.dumps([["Q90", 0, 5, 0.4], ["Q142", 0, 8, 0.6]])
    assert Links(WORDS, ENTITIES).encode(cell, TEXT)[2] == entity("Q142")


def test_the_fingerprint_follows_from_the_text_the_graph_and_the_confidence() -> None:
    other = Tokenizer.train(["Q90"], TextConfig(unit="space"))
    every = [Links(WORDS, ENTITIES), Links(WORDS, ENTITIES, 0.5), Links(WORDS, other), Links(WORDS, None)]
    assert len({each.fingerprint for each in every}) == len(every)
    assert Mentions(WORDS, 1).fingerprint != Mentions(WORDS, 2).fingerprint


def test_links_of_documents_lie_on_the_tokens_of_their_sentences() -> None:
    encoder = LinkedTokens(Links(WORDS, ENTITIES), split_sentences)
    cell = json.dumps([["Q142", 24, 30], ["Q90", 32, 34], ["Q90", 0, 5, 0.5]])
    [found] = encoder.encode_rows([(cell, TEXT)])
    sentences = split_sentences(TEXT)
    lengths = [len(WORDS.encode_batch([sentence])[0]) for sentence in sentences]
    assert len(sentences) == 2 and len(found) == sum(lengths)
    assert found[0] == entity("Q90") + 1 and found[lengths[0]] == entity("Q90") + 1
    assert sorted(number for number in found if number) == sorted([entity("Q90") + 1] * 2 + [entity("Q142") + 1])
    assert encoder.encode(json.dumps([["Q90", 24, 36]]), TEXT) == [0] * len(found)  # across two sentences


@given(length=st.integers(1, 9), data=st.data(), count=st.integers(0, 2))
def test_marks_stand_around_mentions_and_every_token_is_found_again(
    length: int, data: st.DataObject, count: int
) -> None:
    ids = np.arange(100, 100 + length)
    ends = [sorted(data.draw(st.tuples(*[st.integers(0, length - 1)] * 2))) for _ in range(count)]
    marks = [7, 8][:count]
    tokens, places = with_marks(ids, np.array(ends, dtype=np.int64).reshape(-1), marks)
    assert len(tokens) == length + 2 * count and tokens[places].tolist() == ids.tolist()
    for mark, (first, last) in zip(marks, ends, strict=True):
        opened, closed = np.flatnonzero(tokens == mark).tolist()
        inside = [token for token in tokens[opened + 1 : closed] if token >= 100]
        assert inside == ids[first : last + 1].tolist()


def test_a_text_that_is_written_with_its_mentions_and_links() -> None:
    text = "[[Paris|Q90]] is the capital of {{France|Q142}}. It is large."
    assert read_markup(text) == (TEXT, [(0, 5)], [Link("Q90", 0, 5), Link("Q142", 24, 30)])
    turned = "[[tail:France|Q142]] has the capital [[head:Paris]]."
    plain, mentions, links = read_markup(turned)
    assert plain == "France has the capital Paris." and mentions == [(23, 28), (0, 6)] and links == [Link("Q142", 0, 6)]
    assert read_markup("[[a]] and [[b]]")[1] == [(0, 1), (6, 7)]
    assert read_markup("no [brackets] here")[0] == "no [brackets] here"
    cells = as_cells(text)
    assert read_mentions(cells[1], cells[0], 1) == [(0, 5)] and len(read_links(cells[2], cells[0])) == 2


def test_a_row_of_fewrel() -> None:
    words = ["The", "tower", "of", "New", "York", "and", "Paris"]
    record = {"relation": "P1", "tokens": words, "h": ["new york", "Q60", [[3, 4]]], "t": ["paris", "Q90", [[6], [0]]]}
    text, mentions, links, relation = row(record)
    assert text == "The tower of New York and Paris" and relation == "P1"
    assert [text[start:end] for start, end in read_mentions(mentions, text, 2)] == ["New York", "Paris"]
    assert [(link.entity, text[link.start : link.end]) for link in read_links(links, text)] == [
        ("Q60", "New York"), ("Q90", "Paris"),
    ]  # fmt: skip
