import json
import multiprocessing
import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.data import prepared, storage
from mallang.data.corpus import Config, Rows, open_corpus
from mallang.data.filters import Filters
from mallang.data.prepared import open_prepared, prepare
from mallang.errors import UserError
from mallang.text.vocabulary import SPECIALS, Vocabulary

PAIR = ("source", "target")
ALL = Filters(min_length=0, max_length=0, max_ratio=0.0, drop_empty=False)


class Characters:
    """A token a character; it counts how often it is asked."""

    def __init__(self, size=60_000, fingerprint="characters"):
        self.vocabulary = Vocabulary(SPECIALS + tuple(str(i) for i in range(size - 4)))
        self.fingerprint, self.asked = fingerprint, 0

    def encode_batch(self, texts):
        self.asked += len(texts)
        return [[ord(mark) % len(self.vocabulary) for mark in text] for text in texts]


def ids(text, size=60_000):
    return [ord(mark) % size for mark in text]


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def make(rows, cache, filters=ALL, tokenizer=None):
    tokenizer = tokenizer or Characters()
    columns = PAIR[: len(rows[0])] if rows else PAIR
    return prepare(Rows.of(rows, columns), [tokenizer] * len(columns), filters, cache)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.text(max_size=6), st.text(max_size=6)), min_size=1, max_size=12))
def test_what_was_prepared_is_what_the_tokenizer_said(tmp_path_factory, rows):
    made = make(rows, tmp_path_factory.mktemp("cache"))
    assert [tuple(list(column) for column in made[i]) for i in range(len(made))] == [(ids(a), ids(b)) for a, b in rows]
    assert made.lengths.tolist() == [[len(a), len(b)] for a, b in rows]
    assert len(made) == len(rows)


def test_chunks_leave_no_seams(cache, monkeypatch):
    monkeypatch.setattr(prepared, "CHUNK", 7)
    rows = [(f"줄 {i}", "x" * (i % 5)) for i in range(50)]
    made = make(rows, cache)
    assert [list(made[i][0]) for i in range(50)] == [ids(f"줄 {i}") for i in range(50)]
    assert made.lengths[:, 1].tolist() == [i % 5 for i in range(50)]


def test_arrays_are_copies_of_plain_integers(cache):
    made = make([("ab", "c")], cache)
    row = made[0][0]
    assert row.dtype == np.int64 and row.flags.writeable and made.lengths.dtype == np.int32
    row[0] = 1
    assert made[0][0][0] == ids("a")[0]
    assert [list(column) for column in made[-1]] == [ids("ab"), ids("c")]
    with pytest.raises(IndexError):
        made[1]
    assert len(list(made)) == 1  # iteration ends


@pytest.mark.parametrize(("size", "width"), [(65_536, 2), (65_537, 4)])
def test_ids_take_two_bytes_while_they_fit(cache, size, width):
    top = chr(size - 1)
    made = make([(top, top)], cache, tokenizer=Characters(size))
    assert (made.folder / "0.tokens").stat().st_size == width and int(made[0][0][0]) == size - 1


def test_the_second_time_nothing_is_tokenized(cache):
    tokenizer = Characters()
    rows = [("물", "water")]
    first = make(rows, cache, tokenizer=tokenizer)
    asked = tokenizer.asked
    second = make(rows, cache, tokenizer=tokenizer)
    assert asked and tokenizer.asked == asked and second.fingerprint == first.fingerprint
    assert str(second.account) == str(first.account) == "rows: 1 read, 1 kept (100.0%)"


@pytest.mark.parametrize(
    "other",
    [
        {"rows": [("물", "waters")]},
        {"filters": Filters()},
        {"tokenizer": Characters(fingerprint="another")},
    ],
)
def test_other_rows_filters_or_tokenizers_are_another_entry(cache, other):
    usual = {"rows": [("물", "water")], "filters": ALL}
    assert make(cache=cache, **usual).folder != make(cache=cache, **{**usual, **other}).folder


def damage_nothing(folder):
    (folder / "manifest.json").unlink()


def damage_manifest(folder):
    text = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(text.replace('"rows": 3', '"rows": 2'))


def damage_json(folder):
    (folder / "manifest.json").write_text("{")


def damage_tokens(folder):
    data = (folder / "1.tokens").read_bytes()
    (folder / "1.tokens").write_bytes(data[:-1])


def damage_offsets(folder):
    data = bytearray((folder / "0.offsets").read_bytes())
    data[8] ^= 1
    (folder / "0.offsets").write_bytes(bytes(data))


def damage_missing(folder):
    (folder / "0.tokens").unlink()


@pytest.mark.parametrize(
    "damage", [damage_nothing, damage_manifest, damage_json, damage_tokens, damage_offsets, damage_missing]
)
def test_a_damaged_entry_is_made_anew(cache, damage):
    rows = [("물", "water"), ("밥", "rice"), ("집", "house")]
    made = make(rows, cache)
    damage(made.folder)
    assert open_prepared(made.folder) is None
    again = make(rows, cache)
    assert [list(column) for column in again[2]] == [ids("집"), ids("house")]
    assert [path.name for path in made.folder.parent.iterdir()] == [made.folder.name]


def test_the_first_of_equal_rows_is_kept(cache):
    rows = [("가", "a"), ("나", "b"), ("가", "a"), ("가", "b"), ("나", "b"), ("", ""), ("", "")]
    made = make(rows, cache, Filters(drop_duplicates=True))
    assert [list(made[i][0]) + list(made[i][1]) for i in range(len(made))] == [ids("가a"), ids("나b"), ids("가b")]
    assert made.account.dropped == {"empty": 2, "duplicate": 2}


def test_where_a_row_is_split_matters_for_equality():
    assert prepared.row_sum(("ab", "c")) != prepared.row_sum(("a", "bc"))
    assert prepared.row_sum(("1:a", "")) != prepared.row_sum(("", "1:a"))


def test_rows_are_dropped_for_the_reason_that_is_told(cache):
    rows = [("가", "a"), (" ", "b"), ("가" * 9, "a" * 9), ("가", "a" * 5), ("가나", "ab")]
    made = make(rows, cache, Filters(max_length=8, max_ratio=3.0))
    assert made.account.dropped == {"empty": 1, "long": 1, "ratio": 1} and len(made) == 2
    assert made.lengths.tolist() == [[1, 1], [2, 2]]


def test_when_no_row_is_left_the_account_is_told(cache):
    with pytest.raises(UserError, match="no row is left") as caught:
        make([("가", ""), ("나" * 99, "b")], cache, Filters(max_length=50))
    assert "2 read, 0 kept" in str(caught.value) and "1 empty, 1 longer than 50 tokens" in str(caught.value)
    assert list((cache / "prepared").iterdir()) == []


def test_rows_without_a_single_token_can_be_kept(cache):
    made = make([("",), ("",)], cache)
    assert len(made) == 2 and made[1][0].tolist() == [] and made.lengths.tolist() == [[0], [0]]


def test_a_column_without_a_tokenizer_is_a_mistake_of_the_caller(cache):
    with pytest.raises(ValueError, match="1 tokenizers for the columns source, target"):
        prepare(Rows.of([("a", "b")], PAIR), [Characters()], ALL, cache)


def test_a_cache_that_refuses_names_the_remedy(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("MALLANG_CACHE", str(tmp_path / "file"))
    with pytest.raises(UserError, match="cannot write to the cache folder") as caught:
        prepare(Rows.of([("a",)], ("text",)), [Characters()], ALL)
    assert "MALLANG_CACHE" in caught.value.todo


def test_a_full_disk_leaves_the_cache_as_it_was(cache, monkeypatch):
    def full(self, ids):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(prepared.Writer, "add", full)
    with pytest.raises(UserError, match="No space left"):
        make([("a", "b")], cache)
    assert list((cache / "prepared").iterdir()) == []


def test_an_error_in_the_text_is_not_blamed_on_the_cache(tmp_path, cache):
    (tmp_path / "bad.txt").write_bytes(b"fine\n\xff\xfe\n")
    rows = open_corpus(Config(train=str(tmp_path / "bad.txt")), ("text",)).split("train")
    with pytest.raises(UserError, match="not UTF-8") as caught:
        prepare(rows, [Characters()], ALL, cache)
    assert caught.value.where.endswith("bad.txt, line 2")
    assert list((cache / "prepared").iterdir()) == []


def prepare_slowly(cache, barrier):
    """What one of two processes does that start the same work at once."""
    tokenizer = Characters()
    barrier.wait()
    made = make([("물", "water")] * 50, cache, tokenizer=tokenizer)
    return tokenizer.asked, total(made)


def test_of_two_processes_one_does_the_work(cache):
    context = multiprocessing.get_context("fork")
    with context.Manager() as manager, context.Pool(2) as pool:
        barrier = manager.Barrier(2)
        results = pool.starmap(prepare_slowly, [(cache, barrier)] * 2, chunksize=1)
    assert sorted(asked for asked, _ in results) == [0, 100]
    assert results[0][1] == results[1][1] == 50 * sum(ids("물water"))


def test_where_locks_are_missing_the_work_is_still_done(cache, monkeypatch):
    def refuse(*given):
        raise OSError("no locks here")

    monkeypatch.setattr(storage.fcntl, "flock", refuse)
    assert list(make([("물", "water")], cache)[0][0]) == ids("물")


def total(made):
    return int(sum(column.sum() for row in made for column in row))


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_read_the_same_files(cache, start):
    made = make([(f"줄 {i}", f"row {i}") for i in range(100)], cache)
    expected = total(made)
    assert len(pickle.dumps(made)) < 2000
    worker = textwrap.dedent("""
        import pickle, sys
        made = pickle.load(sys.stdin.buffer)
        print(sum(int(column.sum()) for row in made for column in row))
    """)
    if start == "spawn":  # a fresh interpreter gets nothing but the pickle
        done = subprocess.run([sys.executable, "-c", worker], input=pickle.dumps(made), capture_output=True, check=True)
        assert int(done.stdout) == expected
        return
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(total, [made, made]) == [expected, expected]


def test_progress_is_told(cache, monkeypatch):
    monkeypatch.setattr(prepared, "CHUNK", 4)
    seen = []
    prepare(Rows.of([(str(i),) for i in range(10)], ("text",)), [Characters()], ALL, cache, seen.append)
    assert seen == [4, 8, 10]


def test_the_manifest_is_plain(cache):
    made = make([("물", "water")], cache)
    manifest = json.loads((made.folder / "manifest.json").read_text())
    assert manifest["rows"] == 1 and manifest["fingerprint"] == made.fingerprint and len(manifest["columns"]) == 2


MANY = """
import resource, sys
from pathlib import Path
from mallang.data.corpus import Config, open_corpus
from mallang.data.filters import Filters
from mallang.data.prepared import prepare
from mallang.text.vocabulary import Vocabulary

class Short:
    vocabulary, fingerprint = Vocabulary(("a",) * 300), "short"
    def encode_batch(self, texts):
        return [[len(text)] * 20 for text in texts]

folder, rows = Path(sys.argv[1]), int(sys.argv[2])
with (folder / "big.tsv").open("w") as stream:
    for i in range(rows):
        stream.write(f"{i} 번째 문장은 이렇게 길게 가다가 끝난다\\tthe sentence {i} goes on and on and ends\\n")
read = open_corpus(Config(train=str(folder / "big.tsv")), ("source", "target")).split("train")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
made = prepare(read, [Short(), Short()], Filters(drop_duplicates=True), folder / "cache")
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(len(made), made.lengths.shape[0], (after - before) // 1024)
"""


@pytest.mark.slow
def test_many_rows_need_little_memory(tmp_path):
    """Without the type checks of the tests, which remember what they see."""
    command = [sys.executable, "-c", MANY, str(tmp_path), "500000"]
    made, lengths, megabytes = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert made == lengths == "500000"
    assert int(megabytes) < 80  # the rows as Python objects would take 200
