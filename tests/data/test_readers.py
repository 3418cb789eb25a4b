import csv
import gzip
import json
import lzma
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.data import readers
from mallang.data.readers import Files
from mallang.errors import UserError

LINE = st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), max_size=30)
CELL = st.text(st.characters(exclude_characters="\n\r\t", exclude_categories=["Cs"]), max_size=12)
OPEN = {"": open, ".gz": gzip.open, ".xz": lzma.open}
quick = settings(deadline=None, max_examples=60)


def write(path, data):
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def read(kind, path, columns, picks=None, **options):
    paths = tuple(path) if isinstance(path, list) else (path,)
    return list(Files(kind, paths, tuple(columns), **options).rows(picks or columns))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("readers")


@quick
@given(
    texts=st.lists(LINE, min_size=1, max_size=8),
    packed=st.sampled_from(["", ".gz", ".xz"]),
    end=st.sampled_from(["\n", "\r\n"]),
    is_ended=st.booleans(),
)
def test_any_text_comes_back_line_by_line(folder, texts, packed, end, is_ended):
    path = folder / f"text.txt{packed}"
    is_ended = is_ended or not texts[-1]  # an empty last line needs its end to be one
    with OPEN[packed](path, "wb") as stream:
        stream.write(b"\xef\xbb\xbf" + end.join(texts).encode() + (end.encode() if is_ended else b""))
    assert [row for (row,) in read("text", path, ["text"])] == texts


@quick
@given(rows=st.lists(st.tuples(CELL, CELL, CELL), min_size=1, max_size=6))
def test_any_table_comes_back_in_the_columns_asked_for(folder, rows):
    rows = [("a", "b", "c"), *rows]  # the first line decides nothing here but the byte order mark
    path = write(folder / "table.tsv", "".join("\t".join(row) + "\n" for row in rows))
    assert read("tsv", path, ["1", "2", "3"]) == rows
    assert read("tsv", path, ["1", "2", "3"], ["3", "1"]) == [(c, a) for a, _, c in rows]
    assert read("tsv", path, ["a", "b", "c"], ["b"], header=True) == [(b,) for _, b, _ in rows[1:]]


@quick
@given(
    rows=st.lists(
        st.tuples(LINE, st.text(st.characters(exclude_characters="\r", exclude_categories=["Cs"]))), min_size=1
    )
)
def test_any_csv_comes_back_with_quotes_and_line_breaks(folder, rows):
    path = folder / "table.csv"
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows([("x", "y"), *rows])
    assert read("csv", path, ["x", "y"], header=True) == rows


@quick
@given(records=st.lists(st.fixed_dictionaries({"ko": LINE, "deep": st.fixed_dictionaries({"en": LINE})}), min_size=1))
def test_any_json_lines_come_back(folder, records):
    path = write(folder / "lines.jsonl", "\n".join(json.dumps(record, ensure_ascii=False) for record in records))
    assert read("jsonl", path, ["ko", "deep.en"]) == [(r["ko"], r["deep"]["en"]) for r in records]


def test_a_line_ends_at_its_end_and_nowhere_else(tmp_path):
    odd = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\x1dh\x1ei\rj"
    path = write(tmp_path / "odd.txt", odd + "\nnext\n")
    assert list(readers.lines(path)) == [odd, "next"]


def test_bytes_that_are_not_utf8_are_told_with_file_and_line(tmp_path):
    path = write(tmp_path / "euc.txt", "하나\n".encode() + "둘\n".encode("cp949"))
    with pytest.raises(UserError, match="not UTF-8") as caught:
        list(readers.lines(path))
    assert caught.value.where == f"{path}, line 2" and "iconv" in caught.value.todo
    assert len(list(readers.lines(path, strict=False))) == 2
    rows = write(tmp_path / "euc.jsonl", b'{"a": 1}\n' + '{"a": "둘"}\n'.encode("cp949"))
    for read in (readers.json_lines, readers.json_records):
        with pytest.raises(UserError, match="not UTF-8"):
            list(read(rows))


@pytest.mark.parametrize("name", ["cut.txt.gz", "cut.txt.xz"])
def test_a_file_that_was_cut_off_is_told(tmp_path, name):
    whole = OPEN[Path(name).suffix]
    with whole(tmp_path / name, "wb") as stream:
        stream.write(b"".join(b"%d %d\n" % (i, i * i) for i in range(5000)))
    cut = write(tmp_path / f"half-{name}", (tmp_path / name).read_bytes()[:-2000])
    with pytest.raises(UserError, match="cannot be unpacked"):
        list(readers.lines(cut))
    with pytest.raises(UserError, match="cannot be unpacked"):
        list(readers.lines(write(tmp_path / f"no-{name}", b"plain text")))


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(UserError, match="No such file"):
        list(readers.lines(tmp_path / "none.txt"))


@pytest.mark.parametrize(("left", "right"), [(3, 5), (5, 3), (0, 2)])
def test_parallel_files_of_unequal_length_give_both_counts(tmp_path, left, right):
    a, b = write(tmp_path / "a.ko", "가\n" * left), write(tmp_path / "b.en", "b\n" * right)
    with pytest.raises(UserError, match="differ in length") as caught:
        read("parallel", [a, b], ["ko", "en"])
    assert f"a.ko has {left} lines" in str(caught.value) and f"b.en has {right} lines" in str(caught.value)


def test_parallel_files_are_read_in_the_order_asked_for(tmp_path):
    a, b, c = (write(tmp_path / n, f"{n}1\n{n}2\n") for n in "abc")
    assert read("parallel", [a, b, c], ["a", "b", "c"], ["c", "a"]) == [("c1", "a1"), ("c2", "a2")]


def test_a_row_of_another_width_is_told_with_its_line(tmp_path):
    path = write(tmp_path / "wide.tsv", "a\tb\nc\td\n\ne\tf\tg\n")
    with pytest.raises(UserError, match="3 columns where the first line has 2") as caught:
        read("tsv", path, ["1", "2"])
    assert caught.value.where == f"{path}, line 4"


def test_an_empty_line_of_a_table_is_an_empty_row(tmp_path):
    assert read("tsv", write(tmp_path / "a.tsv", "a\tb\n\n"), ["1", "2"]) == [("a", "b"), ("", "")]
    assert read("csv", write(tmp_path / "a.csv", "a,b\n\n"), ["1", "2"]) == [("a", "b"), ("", "")]


def test_an_unbalanced_quote_in_a_csv_is_told(tmp_path):
    with pytest.raises(UserError, match="not well-formed CSV"):
        read("csv", write(tmp_path / "q.csv", 'a,b\n"c,d\ne,f\n'), ["1", "2"])


@pytest.mark.parametrize(
    ("line", "message"), [("{oops", "not JSON"), ("[1]", "not a JSON object"), ('{"b": 1}', "there is no 'a'")]
)
def test_a_bad_line_of_json_is_told_with_its_number(tmp_path, line, message):
    path = write(tmp_path / "bad.jsonl", '{"a": "x"}\n' + line + "\n")
    with pytest.raises(UserError, match=message) as caught:
        read("jsonl", path, ["a"])
    assert caught.value.where == f"{path}, line 2"


def test_json_values_become_text(tmp_path):
    path = write(tmp_path / "v.jsonl", '{"a": 1, "b": null, "c": ["가"], "d": true, "e.f": 2.5}\n')
    assert read("jsonl", path, ["a", "b", "c", "d", "e.f"]) == [("1", "", '["가"]', "true", "2.5")]


def test_parquet_is_read_by_column_and_path(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    table = arrow.table({"id": [1, 2], "pair": [{"ko": "가", "en": "a"}, {"ko": "나", "en": None}]})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    assert read("parquet", tmp_path / "t.parquet", ["pair.en", "pair.ko", "id"]) == [("a", "가", "1"), ("", "나", "2")]
    with pytest.raises(UserError, match="has no column 'pairs'"):
        read("parquet", tmp_path / "t.parquet", ["pairs.en"])
    with pytest.raises(UserError, match="not a Parquet file"):
        read("parquet", write(tmp_path / "no.parquet", "text"), ["a"])


def test_column_files_give_a_row_a_sentence(tmp_path):
    path = write(tmp_path / "a.conll", "-DOCSTART- -X- O\n\nEU NNP B-ORG\n## NN O\n\n\nJa UH O")
    assert read("conll", path, ["w", "p", "t"], ["w", "t"]) == [("EU\t##", "B-ORG\tO"), ("Ja", "O")]
    spaced = write(tmp_path / "b.conll", "## a note\n경\tB-OG\n \tO\n은\tO\n")
    assert read("conll", spaced, ["c", "t"], comment="## ") == [("경\t \t은", "B-OG\tO\tO")]
    with pytest.raises(UserError, match="2 columns where 3") as caught:
        read("conll", write(tmp_path / "c.conll", "a b c\nd e\n"), ["1", "2", "3"])
    assert caught.value.where.endswith("line 2")


def test_questions_analogies_and_captions(tmp_path):
    asked = {"id": "q1", "question": "누구?", "answers": [{"text": "나", "answer_start": 0}]}
    whole = {"data": [{"title": "T", "paragraphs": [{"context": "나는", "qas": [asked]}]}]}
    path = write(tmp_path / "s.json", json.dumps(whole))
    columns = ["id", "title", "context", "question", "answers"]
    assert read("squad", path, columns) == [("q1", "T", "나는", "누구?", '[{"text": "나", "answer_start": 0}]')]
    words = write(tmp_path / "w.txt", ": capitals\nRome Italy Seoul Korea\n")
    assert read("analogy", words, ["section", "a", "b", "c", "d"], ["section", "d"]) == [("capitals", "Korea")]
    told = write(tmp_path / "c.txt", "1.jpg#0\tA dog .\n2.jpg#0\tA cat .\n2.jpg#1\tCat .\n")
    images = write(tmp_path / "i.txt", "2.jpg\n")
    assert read("captions", [told, images], ["image", "number", "caption"], ["number", "caption"]) == [
        ("0", "A cat ."),
        ("1", "Cat ."),
    ]


def test_a_span_of_a_file_cuts_lines_where_it_says(tmp_path):
    path = write(tmp_path / "t.txt", "one\ntwo\nthree\n")
    parts = [read("text", path, ["text"], span=span) for span in [(0, 5), (5, 10), (10, 14)]]
    assert parts == [[("one",), ("t",)], [("wo",), ("th",)], [("ree",)]]


def test_rows_can_be_chosen_by_a_column(tmp_path):
    path = write(tmp_path / "t.tsv", "split\tx\ntrain\t1\ndev\t2\n")
    assert read("tsv", path, ["split", "x"], ["x"], header=True, where=("split", "dev")) == [("2",)]


def test_rows_are_shared_out_by_a_hash_of_one_column(folder):
    texts = [f"text {number}" for number in range(300)]
    path = write(folder / "shared.tsv", "".join(f"{text}\tx\n" for text in texts))
    parts = [read("tsv", path, ["a", "b"], ["a"], share=("a", *ends)) for ends in ((0, 80), (80, 90), (90, 100))]
    assert sorted(text for part in parts for (text,) in part) == sorted(texts)
    assert 210 < len(parts[0]) < 270
    write(path, "Is it you?\tx\nis it  YOU\ty\n")  # marks, spaces and capitals do not part what is alike
    found = [read("tsv", path, ["a", "b"], share=("a", place, place + 1)) for place in range(100)]
    assert sorted(len(rows) for rows in found)[-2:] == [0, 2]
    sums = {Files("tsv", (path,), ("a", "b"), share=share).fingerprint(["a"]) for share in (None, ("a", 0, 5))}
    assert len(sums) == 2


def test_a_fingerprint_is_of_the_content_and_of_the_choice(tmp_path):
    (tmp_path / "b").mkdir()
    here, there = write(tmp_path / "x.tsv", "a\tb\n"), write(tmp_path / "b" / "y.tsv", "a\tb\n")
    other = write(tmp_path / "z.tsv", "a\tc\n")
    one = Files("tsv", (here,), ("1", "2"))
    assert one.fingerprint(["1", "2"]) == Files("tsv", (there,), ("ko", "en")).fingerprint(["ko", "en"])
    assert one.fingerprint(["1", "2"]) != one.fingerprint(["2", "1"]) != one.fingerprint(["2"])
    assert one.fingerprint(["1", "2"]) != Files("tsv", (other,), ("1", "2")).fingerprint(["1", "2"])
    assert one.fingerprint(["1"]) != Files("tsv", (here,), ("1", "2"), header=True).fingerprint(["1"])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.tsv", "tsv"),
        ("a.CSV", "csv"),
        ("a.jsonl.gz", "jsonl"),
        ("a.txt", None),
        ("a", None),
        ("a.conll.xz", "conll"),
    ],
)
def test_a_name_says_how_a_file_is_read(name, kind):
    assert readers.kind_of(Path(name)) == kind
