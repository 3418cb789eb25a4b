import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mallang.data.check import check, troubles_of
from mallang.data.corpus import Config, Corpus, Rows, open_corpus
from mallang.data.seen import seen

PAIR = ("source", "target")


def corpus(**splits):
    return Corpus("mine", "", {name: Rows.of(rows, PAIR, name) for name, rows in splits.items()})


def pairs(count, prefix="문장"):
    return [(f"{prefix} {i}번은 이렇게 끝난다", f"{prefix} number {i} ends like this") for i in range(count)]


def leaks(report):
    return {(leak.split, leak.other, leak.column): (leak.count, leak.first) for leak in report.leaks}


def test_a_clean_corpus_gives_no_findings():
    report = check(corpus(train=pairs(30), valid=pairs(5, "다른 문장")), True)
    assert report.findings == [] and report.leaks == ()
    assert [split.rows for split in report.splits] == [30, 5]


def test_leaks_are_found_as_rows_and_by_each_side():
    train = pairs(30)
    (ko0, en0), (ko1, _), (_, en2) = train[0], train[1], train[2]
    test = [*pairs(3, "다른"), (ko0, en0), (ko1, "another translation"), ("다른 원문", en2)]
    report = check(corpus(train=train, valid=pairs(4, "또"), test=test), True)
    assert leaks(report) == {
        ("test", "train", None): (1, 4),
        ("test", "train", "source"): (2, 4),
        ("test", "train", "target"): (2, 4),
    }
    assert "test: 1 of 6 rows (16.7%) are in train as well; the first is row 4" in report.findings


def test_repeats_inside_a_split_are_counted():
    rows = [*pairs(20), *pairs(3), ("문장 0번은 이렇게 끝난다", "something else entirely here")]
    report = check(corpus(train=rows), True)
    (split,) = report.splits
    assert split.repeated == 3 and [column.repeated for column in split.columns] == [4, 3]
    assert "train: 3 of 24 rows repeat an earlier row" in report.findings


@pytest.mark.parametrize(
    ("text", "troubles"),
    [
        ("한국어와 English, emoji 🙂 and a\ttab", []),
        ("", ["empty"]),
        (" \u3000 ", ["empty"]),
        ("\u1112\u1161\u11ab", ["not_nfc"]),
        ("e\u0301", ["not_nfc"]),
        ("bell \x07", ["control"]),
        ("next\x85line", ["control"]),
        ("line\u2028separator", ["control"]),
        ("lost \ufffd", ["replacement"]),
        ("bad \udcff", ["invalid"]),
        ("\udcff\ufffd\x00", ["invalid", "replacement", "control"]),
    ],
)
def test_what_is_wrong_with_characters(text, troubles):
    assert troubles_of(text) == troubles


def test_bytes_that_are_not_utf8_are_counted_not_refused(tmp_path):
    (tmp_path / "a.txt").write_bytes("하나\n".encode() + b"\xff\xfe\n" + "둘\n".encode("cp949"))
    report = check(open_corpus(Config(train=str(tmp_path / "a.txt")), ("text",)), False)
    trouble = report.splits[0].columns[0].troubles["invalid"]
    assert (trouble.count, trouble.first) == (2, 2)
    assert "train text: 2 rows with bytes that are not UTF-8; the first is row 2" in report.findings


def test_lengths_name_the_longest_row():
    rows = [("a b c", "x"), ("a " * 50, "y z"), ("a", "x y z w")]
    columns = check(corpus(train=rows), False).splits[0].columns
    assert columns[0].words == {"50%": 3, "95%": 3, "99%": 3, "longest": 50}
    assert columns[0].longest == 2 and columns[0].characters["longest"] == 100 and columns[1].longest == 3


def test_pairs_of_equal_or_unlike_sides_are_found():
    rows = [*pairs(30), ("Copyright Oracle and others", "Copyright Oracle and others"), ("서울", "서울")]
    rows += [("짧다", "this English sentence is much too long to be the translation of so short a Korean one")]
    split = check(corpus(train=rows), True).splits[0]
    assert (split.identical.count, split.identical.first) == (1, 31)  # a name of one word may stay as it is
    assert (split.ratio.count, split.ratio.first) == (1, 33)
    unpaired = check(corpus(train=rows), False).splits[0]
    assert unpaired.identical is None and unpaired.ratio is None


def test_a_ratio_is_measured_against_what_is_usual():
    """Korean takes half as many characters as English: that alone is no finding."""
    rows = [("가" * 10 + chr(ord("가") + i), "a" * 50 + chr(ord("a") + i)) for i in range(20)]
    assert check(corpus(train=rows), True).splits[0].ratio is None


def test_labels_do_not_leak_and_are_no_translations():
    train = Rows.of([(f"글 {i} " + "길다 " * (i % 9), str(i % 2)) for i in range(20)], ("text", "label"))
    test = Rows.of([(f"말 {i}", str(i % 2)) for i in range(20)], ("text", "label"))
    report = check(Corpus("mine", "", {"train": train, "test": test}), True)
    assert report.findings == [] and report.splits[0].columns[1].repeated is None


def test_splits_of_other_columns_are_compared_by_those_they_share():
    train = Rows.of([(f"글 {i}", str(i)) for i in range(20)], ("text", "label"))
    test = Rows.of([("글 3",), ("말",)], ("text",))
    assert leaks(check(Corpus("mine", "", {"train": train, "test": test}), False)) == {}
    wider = Rows.of([("x", "글 3"), ("y", "말")], ("id", "text"))
    assert leaks(check(Corpus("mine", "", {"train": train, "test": wider}), False)) == {
        ("test", "train", "text"): (1, 1)
    }


def test_a_report_is_plain_json():
    report = check(corpus(train=[*pairs(3), *pairs(1)], test=pairs(1)), True)
    told = json.loads(json.dumps(report.to_json()))
    assert told["splits"][0]["rows"] == 4 and told["leaks"][0]["count"] == 1 and len(told["findings"]) == 4


def test_test_texts_that_are_in_train_are_found_whatever_their_label():
    columns = ("id", "text", "label")
    train = [(str(i), f"이 영화 {i}번 좋다 Good", "01"[i % 2]) for i in range(40)]
    test = [(str(i), f"다른 영화 {i}번", "01"[i % 2]) for i in range(16)]
    test += [("16", "이 영화 4번 좋다 Good", "0"), ("17", " 이  영화 5번 좋다 GOOD", "1"), ("18", train[7][1], "0")]
    splits = {"train": Rows.of(train, columns), "test": Rows.of(test, columns)}
    (leak,) = check(Corpus("mine", "", splits), False).leaks
    assert (leak.column, leak.count, leak.first, leak.rows, leak.relabeled) == ("text", 3, 17, 19, 1)
    (finding,) = check(Corpus("mine", "", splits), False).findings
    told = "(15.8%) are in the column text of train as well, 1 of them with another label; the first is row 17"
    assert finding == f"test: 3 of 19 rows {told}"


def test_a_text_with_several_labels_in_train_is_not_relabeled():
    train = Rows.of([("글", "0"), ("글", "1"), *((f"말 {i}", "01"[i % 2]) for i in range(10))], ("text", "label"))
    test = Rows.of([("글", "1"), ("말 1", "0"), *((f"새 {i}", "01"[i % 2]) for i in range(10))], ("text", "label"))
    found = check(Corpus("mine", "", {"train": train, "test": test}), False).leaks
    assert {leak.column: (leak.count, leak.relabeled) for leak in found} == {None: (1, None), "text": (2, 1)}


def test_tags_alike_are_no_leak_but_sentences_are(tmp_path):
    sentences = [
        ("Kim lives", "B-PER O"),
        ("Lee lives", "B-PER O"),
        ("Seoul is big", "B-LOC O O"),
        ("a b c d", "O O O O"),
    ]
    for name, rows in (("train", sentences), ("test", [("Lee LIVES", "B-PER O"), ("Busan is big", "B-LOC O O")])):
        told = ["\n".join(map(" ".join, zip(words.split(), tags.split(), strict=True))) for words, tags in rows]
        (tmp_path / f"{name}.conll").write_text("\n\n".join(told) + "\n")
    config = Config(train=str(tmp_path / "train.conll"), test=str(tmp_path / "test.conll"))
    (leak,) = check(open_corpus(config, ("text", "tags")), False).leaks
    assert (leak.column, leak.count, leak.first, leak.relabeled) == ("text", 1, 1, None)


@given(st.lists(st.text("aB \t가", max_size=4)), st.lists(st.text("aB \t가", max_size=4)))
def test_seen_texts_are_those_that_are_alike_in_training(texts, training):
    known = {" ".join(text.casefold().split()) for text in training}
    assert seen(texts, training).tolist() == [" ".join(text.casefold().split()) in known for text in texts]
