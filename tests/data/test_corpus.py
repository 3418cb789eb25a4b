import pickle
import subprocess
import sys

import pytest

from mallang.data import miniworld, storage
from mallang.data.corpus import Config, Corpus, Rows, open_corpus
from mallang.errors import UserError

PAIR = ("source", "target")


def test_a_named_corpus_gives_rows_in_the_order_of_the_task(shop):
    shop.put_folder()
    corpus = open_corpus(Config(corpus="small/pairs"), PAIR)
    assert corpus.license == "CC0" and corpus.kind == "translation" and list(corpus.splits) == ["train", "valid"]
    train = corpus.split("train")
    assert train.columns == PAIR and train.name == "small/pairs train"
    assert list(train) == list(train) == [("안녕", "hello"), ("물", "water"), ("밥", "rice")]
    assert list(open_corpus(Config(corpus="small/pairs", source="en", target="ko"), PAIR).split("dev")) == [
        ("house", "집")
    ]
    assert list(open_corpus(Config(corpus="small/pairs"), ("text",)).split("val")) == [("집",)]


def test_a_table_is_read_by_its_column_names(shop):
    shop.put_folder()
    assert list(open_corpus(Config(corpus="small/talk"), ("text", "label")).split("train")) == [("좋다", "1")]
    assert list(open_corpus(Config(corpus="small/talk"), ()).split("train")) == [("1", "좋다", "1")]
    chosen = Config(corpus="small/talk", columns=["label", 2])
    assert list(open_corpus(chosen, ("a", "b")).split("train")) == [("1", "좋다")]


def test_the_first_rows_alone_are_trained_on(shop):
    shop.put_folder()
    whole = open_corpus(Config(corpus="small/pairs"), PAIR)
    few = open_corpus(Config(corpus="small/pairs", first=2), PAIR)
    assert list(few.split("train")) == list(whole.split("train"))[:2]
    assert few.split("train").fingerprint != whole.split("train").fingerprint
    assert few.split("valid").fingerprint == whole.split("valid").fingerprint
    assert len(list(open_corpus(Config(corpus="small/pairs", first=9), PAIR).split("train"))) == 3
    for wrong in ({"first": 0}, {"first": 2, "corpora": {"small/pairs": 1.0}}):
        with pytest.raises(ValueError, match="first"):
            Config(**{"corpus": "small/pairs", **wrong})


def test_a_run_of_the_first_rows_is_tested_on_a_file(tmp_path):
    """`mallang evaluate --data` keeps the options of the run, and has nothing to train on."""
    path = tmp_path / "test.tsv"
    path.write_text("물\twater\n밥\trice\n", "utf-8")
    opened = open_corpus(Config(corpus=None, test=str(path), first=1), PAIR)
    assert list(opened.split("test")) == [("물", "water"), ("밥", "rice")]


def test_a_language_it_does_not_have_is_told(shop):
    shop.put_folder()
    with pytest.raises(UserError, match="no column 'de' for the source") as caught:
        open_corpus(Config(corpus="small/pairs", source="de"), PAIR)
    assert caught.value.todo == "set data.source; there are ko, en"


def test_the_same_text_has_the_same_fingerprint_wherever_it_lies(shop, monkeypatch):
    shop.put_folder()
    inside = open_corpus(Config(corpus="small/pairs"), PAIR).split("train").fingerprint
    (shop.data / "small").rename(shop.folder / "elsewhere")
    shop.put_archive()
    assert open_corpus(Config(corpus="small/pairs"), PAIR).split("train").fingerprint == inside
    own = open_corpus(Config(train=str(shop.folder / "elsewhere" / "train")), PAIR)
    assert own.split("train").fingerprint == inside
    turned = open_corpus(Config(corpus="small/pairs", source="en", target="ko"), PAIR)
    assert turned.split("train").fingerprint != inside


def test_splits_that_cannot_be_had_are_told_when_asked_for(shop, monkeypatch):
    monkeypatch.setattr(storage, "open_https", shop.serving(shop.files))
    corpus = open_corpus(Config(corpus="small/pairs"), PAIR)
    assert len(list(corpus.split("train"))) == 3
    with pytest.raises(UserError, match="at no public address"):
        corpus.split("valid")
    with pytest.raises(UserError, match="at no public address"):
        open_corpus(Config(corpus="small/talk"), ())


def test_a_wrong_file_is_told_at_once(shop):
    shop.put_folder(**{"dev.en": "mouse\n"})
    with pytest.raises(UserError, match="damaged or another version"):
        open_corpus(Config(corpus="small/pairs"), PAIR)


def test_files_of_ones_own_replace_the_corpus(shop):
    shop.put_folder()
    (shop.folder / "my.tsv").write_text("a\tb\n")
    own = open_corpus(Config(corpus="small/pairs", train=str(shop.folder / "my.tsv")), PAIR)
    assert list(own.splits) == ["train"] and own.license == "own data" and len(own.notes) == 1
    with pytest.raises(UserError, match="has no split 'valid'") as caught:
        own.split("valid")
    assert caught.value.todo == "give data.valid=FILE"
    mixed = open_corpus(Config(corpus="small/pairs", test=str(shop.folder / "my.tsv")), PAIR)
    assert list(mixed.splits) == ["train", "valid", "test"] and list(mixed.split("test")) == [("a", "b")]


def test_no_data_at_all_is_told():
    with pytest.raises(UserError, match="there is no data"):
        open_corpus(Config(corpus=None), PAIR)


def test_an_unknown_split_names_the_known_ones():
    corpus = Corpus("x", "", {"train": Rows.of([("a",)], ("text",)), "test2016": Rows.of([("b",)], ("text",))}, "text")
    assert corpus.split("test") is corpus.splits["test2016"]
    with pytest.raises(UserError, match=r"no split 'tset2016' \(it has train, test2016\)") as caught:
        corpus.split("tset2016")
    assert "test2016" in caught.value.todo


def test_miniworld_is_the_default(monkeypatch):
    # The real one takes a while to draw while the tests check types; the command's test reads all of it.
    world = [("물이 차다", "The water is cold"), ("밥이 맛있다", "The rice is good")]
    monkeypatch.setattr(miniworld, "rows", lambda split: world if split == "valid" else [])
    monkeypatch.setattr(miniworld, "fingerprint", lambda: "f" * 64)
    corpus = open_corpus(Config(), PAIR)
    rows = corpus.split("valid")
    assert list(corpus.splits) == ["train", "valid", "test"] and list(rows) == list(rows) == world
    turned = open_corpus(Config(source="en", target="ko"), PAIR).split("valid")
    assert list(turned) == [row[::-1] for row in world] and turned.fingerprint != rows.fingerprint
    assert corpus.split("test").fingerprint != rows.fingerprint
    assert list(open_corpus(Config(source="en"), ("text",)).split("valid")) == [(en,) for _, en in world]
    with pytest.raises(UserError, match="miniworld has no column 'de'"):
        open_corpus(Config(target="de"), PAIR)


def test_rows_at_hand_have_a_fingerprint_and_can_be_sent():
    rows = Rows.of([("물", "water"), ("밥", "rice")], PAIR)
    assert list(pickle.loads(pickle.dumps(rows))) == list(rows)
    assert rows.fingerprint == Rows.of([("물", "water"), ("밥", "rice")], PAIR, "other").fingerprint
    assert rows.fingerprint != Rows.of([("물", "water")], PAIR).fingerprint
    with pytest.raises(UserError, match="is empty"):
        list(Rows.of([], PAIR))


@pytest.mark.parametrize(
    "wrong", [{"min_length": 300}, {"min_length": -1}, {"max_ratio": 0.5}, {"max_ratio": -1.0}, {"max_length": -1}]
)
def test_impossible_bounds_are_refused(wrong):
    with pytest.raises(ValueError):
        Config(**wrong)


def test_no_bound_on_length_allows_any_minimum():
    assert Config(max_length=0, min_length=300).min_length == 300


def test_texts_of_one_length_alone_may_be_asked_for():
    assert Config(max_length=12, min_length=12).max_length == 12


def test_opening_a_corpus_needs_neither_torch_nor_numpy():
    code = "import sys, mallang.data.corpus; print([m for m in ('torch', 'numpy', 'jaxtyping') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
