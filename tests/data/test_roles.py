"""Rows of semantic roles: files with clear errors, columns as integers, lemmas of forms, and spans of a tree."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mallang.data.columns import LabelSet, split_cell
from mallang.data.corpus import Config, open_corpus
from mallang.data.role_files import NAMES, read_sentences, rows, subtree_spans, without_verbs
from mallang.data.roles import Lemmas, Sentence, lemma_forms, split_roles
from mallang.errors import UserError
from mallang.tasks.role_set import UNSEEN, RoleSet

GAVE = """1\tGrandma\tNNP\t2\tnsubj\t_\tARG0\tARG0
2\tgave\tVBD\t0\troot\tgive.01\tV\t_
3\tup\tRP\t2\tcompound\t_\tC-V\t_
4\tthe\tDT\t5\tdet\t_\t_\t_
5\tidea\tNN\t2\tobj\t_\tARG1\t_
6\tto\tTO\t7\tmark\t_\t_\t_
7\twin\tVB\t5\tacl\twin.LV\t_\tV

"""
NONE = "1\tHello\tUH\t0\troot\t_\t\n2\t!\t.\t1\tpunct\t\t\n\n"
PLACE = Path("my.srl")


def read(text: str) -> list[dict[str, str]]:
    return [dict(zip(NAMES, row, strict=True)) for row in rows(text.splitlines(), PLACE)]


def test_a_file_becomes_rows_and_sentences_without_predicates_stay() -> None:
    found, empty = read("# a comment\n" + GAVE + NONE)
    assert found["words"] == "Grandma\tgave\tup\tthe\tidea\tto\twin"
    assert found["predicates"].split("\t") == ["_", "give", "_", "_", "_", "_", "win"]
    assert found["senses"].split("\t")[1] == "give.01" and found["heads"].split("\t")[0] == "2"
    roles = [list(own) for own in Sentence.of([found["words"], found["predicates"], found["roles"]]).roles]
    assert roles == [["ARG0", "_", "_", "_", "ARG1", "_", "_"], ["ARG0", *["_"] * 6]], "V and C-V are no roles"
    assert empty["words"] == "Hello\t!" and empty["predicates"] == "_\t_" and empty["roles"] == ""
    assert Sentence.of([empty["words"], empty["predicates"], empty["roles"]]).predicates == []


def test_spans_are_the_words_below_a_head() -> None:
    found = read(GAVE)[0]
    spans = split_roles(found["role-spans"], 7, 2)
    assert spans[0] == ["B-ARG0", "O", "O", "B-ARG1", "I-ARG1", "I-ARG1", "I-ARG1"]
    assert spans[1] == ["B-ARG0", *["O"] * 6]
    heads = [2, 0, 2, 3, 3]
    # The predicate, with what is below it, cuts a span; so does another argument; a span is unbroken.
    assert subtree_spans(["ARG1", "_", "_", "_", "_"], heads, 2) == ["B-ARG1", "O", "O", "O", "O"]
    assert subtree_spans(["_", "ARG1", "_", "_", "_"], heads, 0) == ["O", "B-ARG1", "I-ARG1", "I-ARG1", "I-ARG1"]
    assert subtree_spans(["_", "_", "ARG1", "_", "ARG2"], heads, 1) == ["O", "O", "B-ARG1", "I-ARG1", "B-ARG2"]
    assert subtree_spans(["_", "ARG0", "_"], [2, 3, 2], 0) == ["O", "B-ARG0", "I-ARG0"], "a circle ends"
    without = read(GAVE.replace("\t2\t", "\t_\t"))[0]
    assert without["role-spans"] == "" and without["roles"] == found["roles"], "no tree, no spans"


@pytest.mark.parametrize(
    ("old", "new", "message", "where"),
    [
        ("\t2\tnsubj\t_\tARG0\tARG0", "", "3 columns where at least 6 are expected: number, word, pos", "line 1"),
        ("3\tup", "4\tup", "the word has the number '4' where 3 is expected", "line 3"),
        ("5\tidea\t", "5\t\t", "there is no word", "line 5"),
        ("ARG1\t_\n6", "ARG1\n6", "7 columns where the first word of the sentence has 8", "line 5"),
        ("win.LV", "_", "1 words have a sense, but there are 2 columns of roles", "lines 1 to 7"),
        ("\t5\tacl", "\t9\tacl", "the head of word 7 is '9', which is no word of the sentence", "lines 1 to 7"),
        ("\t5\tacl", "\tx\tacl", "the head of word 7 is 'x'", "lines 1 to 7"),
    ],
)
def test_malformed_lines_are_refused(old: str, new: str, message: str, where: str) -> None:
    assert old in GAVE
    with pytest.raises(UserError) as caught:
        read(GAVE.replace(old, new, 1))
    assert message in caught.value.what and caught.value.where is not None and where in caught.value.where
    assert caught.value.todo


def test_the_last_sentence_needs_no_blank_line() -> None:
    assert len(list(read_sentences((GAVE + NONE).rstrip("\n").splitlines(), PLACE))) == 2
    with pytest.raises(UserError, match="1 words have a sense, but there are 2 columns") as caught:
        read(NONE + GAVE.replace("give.01", "_").rstrip("\n"))
    assert "from line 4 to its end" in str(caught.value.where)


def test_own_files_are_read_by_their_names(tmp_path: Path) -> None:
    tmp_path.joinpath("my.srl").write_text(GAVE + NONE, "utf-8")
    lists = {"words": ["He", "ate"], "predicates": ["_", "eat"], "roles": [["ARG0", "V"]]}
    tmp_path.joinpath("my.jsonl").write_text(json.dumps(lists) + "\n", "utf-8")
    columns = ("words", "predicates", "roles")
    first = list(open_corpus(Config(train=str(tmp_path / "my.srl")), columns).split("train"))
    assert len(first) == 2 and Sentence.of(first[0]).predicates == [1, 6]
    spans = Config(train=str(tmp_path / "my.srl"), columns=["words", "predicates", "role-spans"])
    assert "B-ARG1" in next(iter(open_corpus(spans, columns).split("train")))[2]
    [row] = open_corpus(Config(train=str(tmp_path / "my.jsonl")), columns).split("train")
    assert Sentence.of(row) == Sentence(("He", "ate"), ("_", "eat"), (("ARG0", "_"),))


def test_rows_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UserError, match="2 words but 1 marks of predicates"):
        Sentence.of(["a b", "_", ""])
    with pytest.raises(UserError, match="there are 3 roles, but 2 words and 1 predicates"):
        Sentence.of(["a b", "_ b", "ARG0 _ _"])
    assert [without_verbs(tag) for tag in ("V", "C-V", "B-V", "I-C-V", "ARG0", "B-ARG0", "")] == [
        "_", "_", "O", "O", "ARG0", "B-ARG0", "_",
    ]  # fmt: skip


def test_the_lemma_of_a_form_is_its_most_frequent_one() -> None:
    cells = [
        lemma_forms("He saw it", "_ see _"),
        lemma_forms("They Saw wood", "_ saw _"),
        lemma_forms("I saw", "_ see"),
    ]
    assert cells[0] == "_\tsee|saw\t_" and lemma_forms("saw", "see") == "see|saw"
    lemmas = Lemmas(LabelSet.learn(cells, "predicates", "predicates"))
    assert lemmas.guess("SAW") == "see" and lemmas.guess("Ran") == "ran"
    assert len(lemmas) == 3 and {lemmas.id("see"), lemmas.id("saw")} == {1, 2} and lemmas.id("run") == 0
    assert lemmas.encode_batch(["_\tsee\t_", "_\trun"]) == [[-1, lemmas.id("see"), -1], [-1, 0]]
    assert lemmas.counts == {"see": 2, "saw": 1}


def test_roles_are_numbers_predicate_after_predicate() -> None:
    heads = RoleSet(LabelSet.learn(["ARG0 _ ARG1 _", "", '[["ARG0", "V"]]'], "roles", "roles"))
    assert heads.names == ("ARG0", "ARG1", "_") and not heads.are_spans and heads.nothing == "_"
    assert heads.encode_rows([("ARG0 _ _ ARG9", "a b", "x y"), ("", "a", "_")]) == [[0, 2, 2, UNSEEN], []]
    assert split_cell('[["ARG0", "V"], ["_", "_"]]', "roles") == ["ARG0", "V", "_", "_"]
    bioes = RoleSet(LabelSet.learn(["S-ARG0 O B-ARG1 E-ARG1"], "roles", "roles"))
    assert bioes.are_spans and bioes.names == ("O", "B-ARG1", "I-ARG1", "B-ARG0", "I-ARG0")
    ids = bioes.encode(["S-ARG0", "O", "B-ARG1", "E-ARG1"])
    assert [bioes.names[each] for each in ids] == ["B-ARG0", "O", "B-ARG1", "I-ARG1"]
    with pytest.raises(UserError, match="unique_roles names 'ARG7', which is no role of the training data"):
        RoleSet(bioes.labels, ("ARG7",))
