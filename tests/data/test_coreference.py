"""Documents with clusters: cells and column files, what is read of them, and what wrong ones are told."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.data.coreference import (
    Mentions,
    SentenceStarts,
    documents,
    read_clusters,
    read_sentences,
    word_and_marks,
)
from mallang.data.corpus import Config, open_corpus
from mallang.data.filters import Filters
from mallang.data.prepared import prepare
from mallang.errors import UserError
from mallang.tasks.document_parts import Parts, grouped, part_of

CONLL = """\
#begin document (a); part 0
0\tThe\t(0
1\tcat\t0)
2\tsaw\t_
3\tits\t(1|(0)
4\ttail\t1)
5\t.\t_

0\tIt\t(0)|(2)
1\tran\t_

#end document
#begin document (b); part 001
bb b 0 He NN - (3)
bb b 1 left VB - -
#end document
"""


def rows_of(text):
    return list(documents(text.splitlines(), "x.conll"))


def test_a_column_file_is_read():
    (name, sentences, clusters), second = rows_of(CONLL)
    assert name == "a" and json.loads(sentences) == [["The", "cat", "saw", "its", "tail", "."], ["It", "ran"]]
    assert json.loads(clusters) == [[[0, 1], [3, 3], [6, 6]], [[3, 4]], [[6, 6]]]
    assert second == ("b/1", '[["He", "left"]]', "[[[0, 0]]]")


@pytest.mark.parametrize(
    ("change", "line", "told"),
    [
        (("\t0)", "\t_"), 12, "the document a ends, but a mention of cluster 0 is still open: it began in line 2"),
        (("\t1)", "\t7)"), 6, "cluster 7 is closed, but not open"),
        (("(0)|(2)", "(0)|2"), 9, "'2' is no bracket"),
        (("(0)|(2)", "x"), 9, "'x' is no bracket"),
        (("#end document\n#begin", "#begin"), 12, "the document a has no end"),
        (("#begin document (a); part 0\n", ""), 1, "a word outside of a document"),
        (("(a); part 0", ""), 1, "the document has no name"),
        (("0\tIt\t(0)|(2)", "It"), 9, "one column"),
        (("0\tIt", "0\t"), 9, "the word is empty"),
    ],
)
def test_a_malformed_column_file_is_refused_with_its_line(change, line, told):
    with pytest.raises(UserError, match=told.replace("(", r"\(")) as raised:
        rows_of(CONLL.replace(*change))
    assert raised.value.where == f"x.conll, line {line}"
    with pytest.raises(UserError, match="has no end"):
        rows_of(CONLL.rpartition("#end document")[0])
    with pytest.raises(UserError, match="has not begun"):
        rows_of("#end document\n")


def test_the_word_is_found_in_files_of_several_widths():
    assert word_and_marks("cat (0)") == ("cat", "(0)") and word_and_marks("1990 -") == ("1990", "-")
    assert word_and_marks("3\tcat\t_") == ("cat", "_")
    of_2012 = "bc/cctv/00/cctv_0000 0 0 In IN (TOP(S(PP* - - - Speaker#1 * (ARGM* -"
    assert word_and_marks(of_2012) == ("In", "-")


def test_cells_are_read():
    assert read_sentences('[["a", "b"], [], ["c"]]') == [["a", "b"], ["c"]] == read_sentences("a b\n\nc")
    assert read_sentences('["a", "b"]') == [["a", "b"]] and read_sentences("[ a") == [["[", "a"]]
    assert read_clusters("", 3) == read_clusters("[]", 3) == ()
    assert read_clusters("[[[0, 1], [2, 2], [2, 2]], []]", 3) == (((0, 1), (2, 2)),)
    assert SentenceStarts().encode_batch(["a b\nc d e\nf"]) == [[0, 2, 5]]
    assert Mentions().encode_rows([("[[[0, 1], [5, 5]], [[2, 2]]]", "a b\nc d e\nf")]) == [[0, 1, 0, 5, 5, 0, 2, 2, 1]]


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        ("[[[0, 3]]]", r"\[0, 3\] is not inside the document, which has 3 words"),
        ("[[[-1, 0]]]", r"\[-1, 0\] is not inside"),
        ("[[[2, 1]]]", r"\[2, 1\] is not inside"),
        ("[[[0, 0]], [[0, 0]]]", "is in two clusters"),
        ("[[0, 0]]", "lists of mentions"),
        ("[[[0]]]", "lists of mentions"),
        ('[[["a", "b"]]]', "lists of mentions"),
        ('[[[0, "1"]]]', "lists of mentions"),
        ("[[[0, 1.0]]]", "lists of mentions"),
        ("[[[0, 0]", "lists of mentions"),
        ("{}x", "lists of mentions"),
    ],
)
def test_wrong_clusters_are_refused(cell, told):
    with pytest.raises(UserError, match=told):
        read_clusters(cell, 3)


@pytest.mark.parametrize(
    ("cell", "told"), [('[["a b"]]', "white space"), ('[[""]]', "empty"), ("[[1]]", "lists of words")]
)
def test_wrong_sentences_are_refused(cell, told):
    with pytest.raises(UserError, match=told):
        read_sentences(cell)


def test_own_files_are_found_by_their_content(tmp_path: Path):
    (tmp_path / "x.conll").write_text(CONLL, "utf-8")
    line = {"doc_key": "a", "sentences": [["He", "ran"], ["It"]], "clusters": [[[0, 0], [2, 2]]]}
    (tmp_path / "x.jsonl").write_text(json.dumps(line) + "\n", "utf-8")
    for name, first in (("x.conll", '[["The"'), ("x.jsonl", '[["He"')):
        corpus = open_corpus(Config(train=str(tmp_path / name)), ("sentences", "clusters"))
        (sentences, _), *_ = corpus.split("train")
        assert sentences.startswith(first)
    (tmp_path / "y.jsonl").write_text(json.dumps({**line, "clusters": [[[0, 9]]]}) + "\n", "utf-8")
    rows = open_corpus(Config(train=str(tmp_path / "y.jsonl")), ("sentences", "clusters")).split("train")
    from mallang.tasks.coreference import Config as Options
    from mallang.tasks.coreference import Task
    from mallang.text.tokenizer import Config as Text
    from mallang.text.tokenizer import Tokenizer

    task = Task(Options(), {"sentences": Tokenizer.train(["He ran It"], Text(unit="space", vocabulary=20))})
    with pytest.raises(UserError, match="not inside the document") as raised:
        prepare(rows, task.arrays(), Filters(), tmp_path)
    assert raised.value.where == f"{tmp_path / 'y.jsonl'}, row 1"


@settings(deadline=None, max_examples=80)
@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=8),
    most=st.integers(0, 12),
    window=st.integers(0, 9),
    seed=st.integers(0, 99),
)
def test_parts_hold_every_sentence_once_and_every_mention_inside_them(sizes, most, window, seed):
    random = np.random.default_rng(seed)
    words, starts = np.arange(sum(sizes)) + 100, np.cumsum([0, *sizes])[:-1]
    firsts = random.integers(0, len(words), 6)
    triples = [(int(f), min(int(f) + 1, len(words) - 1), n) for n, f in enumerate(firsts)]
    mentions = np.array(triples, dtype=np.int64).ravel()
    tokens = np.repeat(words, 2)
    document = (words, starts, mentions, tokens, np.arange(len(words)) * 2)
    parts = Parts([document], most, window)
    assert np.concatenate([part.words for part in parts]).tolist() == words.tolist()
    assert parts.rows.tolist() == [len(part.bounds) for part in parts]
    begin = 0
    for number, part in enumerate(parts):
        count = len(part.words)
        assert len(part.starts) == 1 or not most or count <= most
        assert [(a - begin, b - begin, c) for a, b, c in triples if a >= begin and b < begin + count] == [
            tuple(each) for each in part.mentions.tolist()
        ]
        assert np.concatenate(list(part.row_words())).tolist() == part.words.tolist()
        assert parts.widths[number, 0] == max(map(len, part.row_words()))
        edges = {*part.starts.tolist(), count}
        assert all({a, b} <= edges for a, b in part.bounds)
        assert all(b - a <= window or sum(a <= s < b for s in part.starts) == 1 for a, b in part.bounds)
        rows = list(part.row_words())
        assert [int(rows[row - 3][at]) for row, at in part.places(3)] == part.words.tolist()
        for (own, firsts_of), row in zip(part.row_features(), rows, strict=True):
            assert own[firsts_of].tolist() == row.tolist() and len(own) == 2 * len(row)
        begin += count
    assert part_of(document, window).words.tolist() == words.tolist()


def test_groups_are_as_large_as_they_can_be():
    assert grouped(np.array([3, 2, 9, 1, 1]), 5) == [(0, 2), (2, 3), (3, 5)]
    assert grouped(np.array([], dtype=np.int64), 5) == []
