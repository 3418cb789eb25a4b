import gzip
import io
import os
import sys
import threading

import pytest

from mallang.data import local
from mallang.data.corpus import Config, open_corpus
from mallang.errors import UserError

PAIR = ("source", "target")


def rows(config, roles=PAIR):
    return list(open_corpus(config, roles).split("train"))


def note(config, roles=PAIR):
    return open_corpus(config, roles).split("train").note


def failure(config, roles=PAIR):
    with pytest.raises(UserError) as caught:
        rows(config, roles)
    return str(caught.value)


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(name, text):
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return name

    return write


def test_a_table_of_two_columns_needs_no_words(file):
    path = file("my.tsv", "물\twater\n밥\trice\n")
    assert rows(Config(train=path)) == [("물", "water"), ("밥", "rice")]
    assert note(Config(train=path)) == "the first line is data, not a header; source = 1, target = 2 of 2 columns"


def test_a_header_is_seen_by_the_names_that_are_wanted(file):
    path = file("my.csv", "en,note,ko\nwater,x,물\n")
    assert rows(Config(train=path)) == [("물", "water")]
    assert note(Config(train=path)) == "the first line names the columns; source = ko, target = en of 3 columns"
    assert rows(Config(train=path, columns=["note", "ko"])) == [("x", "물")]
    assert rows(Config(train=path, columns=["3", 1])) == [("ko", "en"), ("물", "water")]
    assert rows(Config(train=path, columns=["3", 1], header=True)) == [("물", "water")]


def test_a_header_can_be_denied_or_asserted(file):
    path = file("my.tsv", "ko\ten\n물\twater\n")
    assert rows(Config(train=path, header=False)) == [("ko", "en"), ("물", "water")]
    other = file("other.tsv", "Korean\tEnglish\n물\twater\n")
    assert rows(Config(train=other, header=True)) == [("물", "water")]


def test_more_columns_than_needed_leave_the_first_two(file):
    path = file("deu.tsv", "Go.\tGeh.\tCC-BY\nHi.\tHallo.\tCC-BY\n")
    assert rows(Config(train=path)) == [("Go.", "Geh."), ("Hi.", "Hallo.")]
    assert "of 3 columns" in note(Config(train=path))


def test_a_wrong_column_is_answered_with_the_near_one(file):
    path = file("my.tsv", "korean\tenglish\n물\twater\n")
    said = failure(Config(train=path, columns=["koraen", "english"]))
    assert "my.tsv has no column 'koraen'" in said and "did you mean korean" in said
    assert "it has 2 columns" in failure(Config(train=path, columns=[1, 3]))
    assert "names 1 column, but 2 are needed: source, target" in failure(Config(train=path, columns=[1]))


def test_too_few_columns_are_told(file):
    assert "has 1 column, but 2 are needed" in failure(Config(train=file("one.tsv", "물\n밥\n")))
    assert "plain text, one column" in failure(Config(train=file("one.txt", "물\n밥\n")))


def test_plain_text_is_one_column_and_a_table_if_it_has_tabs(file):
    path = file("ratings.txt", "id\tdocument\tlabel\n1\t좋다\t1\n")
    assert rows(Config(train=path, columns=["document", "label"]), ("text", "label")) == [("좋다", "1")]
    assert rows(Config(train=file("t.txt", "하나\n둘\n")), ("text",)) == [("하나",), ("둘",)]
    assert rows(Config(train=file("wiki.tokens", "하나\n")), ("text",)) == [("하나",)]


def test_a_stem_stands_for_parallel_files(file):
    file("train.ko", "물\n")
    file("train.en.gz", gzip.compress(b"water\n"))
    assert rows(Config(train="train")) == [("물", "water")]
    assert rows(Config(train="train", source="en", target="ko")) == [("water", "물")]
    assert rows(Config(train="train", columns=["en", "ko"])) == [("water", "물")]
    assert "there is train.ko, but no train.de" in failure(Config(train="train", target="de"))
    assert "no file tran, nor tran.ko or tran.en" in failure(Config(train="tran"))


def test_two_files_are_told_apart_by_their_endings(file):
    ko, en = file("a.ko", "물\n"), file("b.en", "water\n")
    assert rows(Config(train=[en, ko])) == rows(Config(train=[ko, en])) == [("물", "water")]
    one, two = file("one.txt", "물\n"), file("two.txt", "water\n")
    assert rows(Config(train=[one, two])) == [("물", "water")]
    assert note(Config(train=[one, two])) == "taken in order: source = one.txt, target = two.txt"
    assert rows(Config(train=[one, two], columns=[2, 1])) == [("water", "물")]
    assert "there is no file three.txt" in failure(Config(train=[one, "three.txt"]))
    assert "1 files are given, but 2 are needed" in failure(Config(train=[one]))


def test_json_lines_are_read_by_name_and_path(file):
    path = file("my.jsonl", '{"translation": {"ko": "물", "en": "water"}, "id": 7}\n')
    assert rows(Config(train=path, columns=["translation.ko", "translation.en"])) == [("물", "water")]
    assert rows(Config(train=path, columns=["translation", "id"])) == [('{"ko": "물", "en": "water"}', "7")]
    said = failure(Config(train=path))
    assert "no column 'ko' for the source" in said and "translation.ko, translation.en, id" in said
    assert rows(Config(train=file("flat.jsonl", '{"en": "water", "ko": "물"}'))) == [("물", "water")]


def test_parquet_is_read_like_json_lines(file):
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    pyarrow.parquet.write_table(arrow.table({"ko": ["물"], "en": ["water"]}), "my.parquet")
    assert rows(Config(train="my.parquet")) == [("물", "water")]


def test_a_column_file_gives_tokens_and_the_last_column(file):
    path = file("my.conll", "EU NNP B-ORG\nrejects VBZ O\n\n")
    assert rows(Config(train=path), ("tokens", "tags")) == [("EU\trejects", "B-ORG\tO")]
    assert rows(Config(train=path, columns=[1, 2]), ("tokens", "tags")) == [("EU\trejects", "NNP\tVBZ")]


@pytest.mark.parametrize(
    ("roles", "text", "expected"),
    [(PAIR, "물\twater\n", [("물", "water")]), (("text",), "물\twater\n", [("물\twater",)])],
)
def test_standard_input_can_be_read_again_and_again(monkeypatch, roles, text, expected):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    monkeypatch.setattr(local, "spooled", {})
    read = open_corpus(Config(train="-"), roles).split("train")
    assert read.name == "standard input" and list(read) == list(read) == expected
    assert len(read.fingerprint) == 64


def test_pipes_can_be_read_again_and_again(monkeypatch, tmp_path):
    monkeypatch.setattr(local, "spooled", {})
    texts = {
        "pipe": "물\twater\n",
        "pipe.jsonl": '{"source": "물", "target": "water"}\n',
        "ko": "물\n",
        "en": "water\n",
    }
    for name, text in texts.items():
        os.mkfifo(tmp_path / name)
        threading.Thread(target=(tmp_path / name).write_text, args=(text,), daemon=True).start()
    given = {name: str(tmp_path / name) for name in texts}
    for train in (given["pipe"], given["pipe.jsonl"], [given["ko"], given["en"]]):
        read = open_corpus(Config(train=train), PAIR).split("train")
        assert list(read) == list(read) == [("물", "water")]
        assert list(open_corpus(Config(train=train), PAIR).split("train")) == [("물", "water")]
    for spool in local.spooled.values():
        spool.close()


@pytest.mark.parametrize("name", ["empty.txt", "empty.tsv", "empty.jsonl", "empty.conll", "empty.txt.gz"])
def test_an_empty_file_is_told(file, name):
    roles = ("text",) if ".txt" in name else PAIR
    path = file(name, gzip.compress(b"") if name.endswith(".gz") else "")
    assert f"{name} is empty" in failure(Config(train=path), roles)


def test_a_missing_file_and_a_folder_are_told(file, tmp_path):
    file("valid.tsv", "a\tb\n")
    said = failure(Config(train="vlaid.tsv"))
    assert "there is no file vlaid.tsv" in said and "did you mean valid.tsv" in said
    assert "is a folder" in failure(Config(train=str(tmp_path)))
    assert "the folder none does not exist" in failure(Config(train="none/x.tsv"))


def test_all_columns_come_when_no_role_is_named(file):
    path = file("my.tsv", "a\tb\tc\n")
    read = open_corpus(Config(train=path), ()).split("train")
    assert read.columns == ("1", "2", "3") and list(read) == [("a", "b", "c")]
    assert rows(Config(train=path, columns=[3]), ()) == [("c",)]
