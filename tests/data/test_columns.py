"""Typed columns: cells to integers, sets of labels, words and sentences with the places where they start."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mallang.data.columns import Column, LabelSet, Numbers, Segments, Starts, bits_to_number, split_cell
from mallang.data.corpus import Rows
from mallang.data.filters import Filters
from mallang.data.prepared import prepare
from mallang.errors import UserError
from mallang.text.sentences import split_sentences
from mallang.text.tokenizer import Config, Tokenizer

ANYTHING = Filters(min_length=0, max_length=0, max_ratio=0.0, drop_empty=False)
names = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=6)


def tokenizer(*lines, unit="char"):
    return Tokenizer.train(lines, Config(unit=unit, vocabulary=400))


def test_numbers_are_sorted_by_value_and_names_by_the_alphabet():
    assert LabelSet.learn(["10", "9", "2", "10"], "label").names == ("2", "9", "10")
    assert LabelSet.learn(["나", "b", "a"], "label").names == ("a", "b", "나")
    assert LabelSet.learn(["b", "a", "b"], "label").counts == (1, 2)
    assert LabelSet.learn(["z", "inf", "a", "7"], "label").names == ("7", "a", "inf", "z"), "infinity is a name"


def test_a_label_that_training_did_not_see_is_named():
    labels = LabelSet.learn(["positive", "negative"], "label")
    with pytest.raises(UserError, match="'positiv' does not occur in the training data") as raised:
        labels.encode_batch(["positiv"])
    assert "positive" in raised.value.todo


@pytest.mark.parametrize("cells", [["same", "same"], ["", " "]])
def test_one_class_is_refused(cells):
    with pytest.raises(UserError, match="nothing to tell apart"):
        LabelSet.learn(cells, "label", "rating")


def test_a_column_of_texts_is_no_column_of_labels():
    with pytest.raises(UserError, match="10,001 different values and more"):
        LabelSet.learn((str(number) for number in range(10_001)), "label")


def test_several_labels_per_cell_and_none():
    labels = LabelSet.learn(["a|b", "", "c", '["b", "c"]'], "labels")
    assert labels.encode_batch(["c|a", "", "a\tb", '["c"]']) == [[2, 0], [], [0, 1], [2]]


@given(found=st.lists(names, min_size=2, max_size=20, unique=True), kind=st.sampled_from(["label", "labels", "tags"]))
def test_saving_and_loading_a_label_set(tmp_path_factory, found, kind):
    folder = tmp_path_factory.mktemp("labels")
    labels = LabelSet(tuple(found), kind, tuple(range(len(found))))
    labels.save(folder, "label")
    again = LabelSet.load(folder, "label")
    assert again == labels and again.counts == labels.counts and again.fingerprint == labels.fingerprint
    assert [path.name for path in folder.iterdir()] == ["labels.label.json"]


def test_a_label_file_can_be_read_by_people(tmp_path):
    LabelSet(("긍정", "부정")).save(tmp_path, "label")
    assert "긍정" in (tmp_path / "labels.label.json").read_text("utf-8")


@pytest.mark.parametrize(
    "content", ["", "[]", '{"format": 1, "kind": "label", "names": []}', '{"format": 9, "names": ["a"]}']
)
def test_a_damaged_label_set_is_named(tmp_path, content):
    (tmp_path / "labels.label.json").write_text(content)
    with pytest.raises(UserError, match="labels.label.json is damaged"):
        LabelSet.load(tmp_path, "label")
    with pytest.raises(UserError, match="labels.tags.json is missing"):
        LabelSet.load(tmp_path, "tags")


@given(value=st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_numbers_come_back_exactly(value):
    (bits,) = Numbers().encode_batch([repr(value)])
    assert bits_to_number(bits) == value


@pytest.mark.parametrize("text", ["", "three", "nan", "inf", "1,5"])
def test_what_is_no_number_is_refused(text):
    with pytest.raises(UserError, match="is no number"):
        Numbers().encode_batch([text])


@given(words=st.lists(names, min_size=1, max_size=8), unit=st.sampled_from(["char", "byte", "syllable"]))
def test_every_word_starts_where_its_own_tokens_start(words, unit):
    encoder = Segments(tokenizer("ab cd", unit=unit), "words")
    cell = json.dumps(words)  # a word may be anything, even white space
    (ids,), (starts,) = encoder.encode_batch([cell]), Starts(encoder).encode_batch([cell])
    assert len(starts) == len(words)
    for word, part in zip(words, np.split(np.array(ids), starts[1:]), strict=True):
        alone = encoder.tokenizer.encode_batch([word])[0]
        assert part.tolist() == (alone or [encoder.tokenizer.vocabulary.unk])


def test_tabs_part_words_and_line_breaks_part_sentences():
    assert split_cell("New York\tis", "words") == ["New York", "is"]
    assert split_cell("New York is", "words") == ["New", "York", "is"]
    assert split_cell("[sic] a", "words") == ["[sic]", "a"]
    assert split_cell("One.\nTwo! Three?", "document") == ["One.", "Two!", "Three?"]


def test_sentences_of_a_review():
    assert split_sentences('It was "good." I think so.<br /><br />좋았다. 정말!') == [
        'It was "good."', "I think so.", "좋았다.", "정말!",
    ]  # fmt: skip
    assert split_sentences("no end mark") == ["no end mark"]
    assert split_sentences("  ") == [""]


def test_only_text_counts_for_filters(tmp_path):
    labels = LabelSet(("a", "b"))
    rows = Rows.of([("xy", "a"), ("x" * 9, "b")], ("text", "label"))
    columns = [Column(0, tokenizer("xyz")), Column(1, labels, is_text=False)]
    found = prepare(rows, columns, Filters(min_length=2, max_length=5, max_ratio=1.5), cache=tmp_path)
    assert len(found) == 1 and found[0][1].tolist() == [0]


def test_a_row_without_labels_is_kept_and_one_without_its_label_is_not(tmp_path):
    rows = Rows.of([("x", ""), ("y", "a")], ("text", "label"))
    some = Filters(min_length=0, max_length=0, max_ratio=0.0)
    several = [Column(0, tokenizer("xy")), Column(1, LabelSet(("a", "b"), "labels"), is_text=False)]
    assert len(prepare(rows, several, some, cache=tmp_path)) == 2
    one = [Column(0, tokenizer("xy")), Column(1, LabelSet(("a", "b")), is_text=False)]
    assert len(prepare(rows, one, some, cache=tmp_path)) == 1


def test_a_row_with_more_tags_than_words_is_named(tmp_path):
    encoder = Segments(tokenizer("xy"), "words")
    tags = LabelSet(("O", "B"), "tags")
    columns = [Column(0, encoder), Column(1, tags, is_text=False, like=2), Column(0, Starts(encoder), is_text=False)]
    rows = Rows.of([("x\ty", "O\tB"), ("x\ty", "O\tB\tO")], ("words", "tags"), "my.conll")
    with pytest.raises(UserError, match="2 words but 3 tags") as raised:
        prepare(rows, columns, ANYTHING, cache=tmp_path)
    assert raised.value.where == "my.conll, row 2"


def test_brackets_with_tabs_between_are_words_and_a_json_list_is_one():
    assert split_cell("[\t1\t]", "words") == ["[", "1", "]"]
    assert split_cell('["New York", "won"]', "words") == ["New York", "won"] and split_cell("[x]", "words") == ["[x]"]


@pytest.mark.parametrize(
    ("cells", "scheme"),
    [
        (["I-PER\tO\tI-LOC\tB-LOC"], "iob1"),
        (["B-PER\tI-PER\tO", "O\tB-LOC"], "iob2"),
        (["B-PER\tE-PER", "O\tS-LOC"], "bioes"),
        (["DT\tNN", "NN"], None),
    ],
)
def test_a_set_of_tags_knows_its_scheme_and_keeps_it(cells, scheme, tmp_path):
    labels = LabelSet.learn(cells, "tags", "tags")
    assert labels.scheme == scheme
    labels.save(tmp_path, "tags")
    again = LabelSet.load(tmp_path, "tags")
    assert again.scheme == scheme and again.fingerprint == labels.fingerprint
    assert (LabelSet(labels.names, "tags").fingerprint == labels.fingerprint) == (scheme is None)


def test_a_label_that_cannot_be_encoded_is_told_with_its_row(tmp_path):
    rows = Rows.of([("1", "good"), ("2", "so-so")], ("number", "label"), "my.tsv")
    columns = [Column(0, Numbers()), Column(1, LabelSet(("bad", "good")), is_text=False)]
    with pytest.raises(UserError, match="'so-so' does not occur") as caught:
        prepare(rows, columns, Filters(), tmp_path)
    assert caught.value.where == "my.tsv, row 2"


def test_schemes_of_the_same_tags_have_fingerprints_of_their_own():
    """B-X and I-X spell other spans in each; what was prepared with one is not read with another."""
    names = ("B-X", "I-X", "O")
    found = {LabelSet(names, "tags", scheme=scheme).fingerprint for scheme in (None, "iob1", "iob2", "bioes")}
    assert len(found) == 4


@pytest.mark.parametrize(
    ("kind", "cells", "todo"),
    [
        ("label", ["good", "good"], "rows of at least two classes"),
        ("tags", ["O\tO", "O"], "sentences with at least two tags"),
    ],
)
def test_a_column_with_a_single_label_says_what_to_give(kind, cells, todo):
    with pytest.raises(UserError, match="there is nothing to tell apart") as caught:
        LabelSet.learn(cells, kind)
    assert caught.value.todo.startswith(f"give {todo}, or name")
