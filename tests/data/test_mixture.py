"""Several corpora as one: what an epoch draws of each, and the tags of domains."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mallang.data.corpus import Config, Member, Rows, open_corpus
from mallang.data.filters import Filters
from mallang.data.loader import Position, Source, requests
from mallang.data.mixture import Mixture, Part, draw, prepare_split, tag_of
from mallang.data.prepared import Prepared, prepare
from mallang.data.sampler import Buckets
from mallang.errors import UserError
from mallang.text.tokenizer import Config as TextConfig
from mallang.text.tokenizer import Tokenizer

COLUMNS = ("source", "target")
TOKENIZER = Tokenizer.train([], TextConfig(unit="byte", vocabulary=260), ["left", "right"])
TAGS = TOKENIZER.domains


def prepared(folder: Path, name: str, count: int) -> Prepared:
    """Rows whose source and target name them."""
    rows = [(f"{name}{number:03}", name.upper() * (1 + number % 3)) for number in range(count)]
    return prepare(Rows.of(rows, COLUMNS, name), [TOKENIZER, TOKENIZER], Filters(), folder)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[Part]:
    """One part that is read twice, one of which a third is read, one that is read once and has no domain."""
    folder = tmp_path_factory.mktemp("cache")
    a, b, c = (prepared(folder, name, count) for name, count in (("a", 5), ("b", 30), ("c", 4)))
    return [Part(a, 2.0, "left", TAGS["left"]), Part(b, 1 / 3, "right", TAGS["right"]), Part(c)]


def text(ids: np.ndarray) -> str:
    """What a source says, less its tag."""
    return TOKENIZER.decode(ids.tolist())


@given(st.integers(1, 60), st.floats(0.01, 4.0), st.integers(0, 9), st.integers(0, 3))
def test_a_weight_is_how_often_a_row_is_read(rows: int, weight: float, seed: int, part: int) -> None:
    """An epoch reads each row floor(weight) times or once more, and over many epochs all rows equally often."""
    epochs = [draw(rows, weight, seed=seed, epoch=epoch, part=part) for epoch in range(rows)]
    for drawn in epochs:
        counts = np.bincount(drawn, minlength=rows)
        assert len(counts) == rows
        assert set(counts) <= {int(weight), int(weight) + 1}
        assert len(drawn) == pytest.approx(weight * rows, abs=1)
    in_all = np.bincount(np.concatenate(epochs), minlength=rows)
    assert in_all.max() == in_all.min()


def test_an_epoch_depends_on_the_seed_and_its_number_alone() -> None:
    drawn = {(seed, epoch): tuple(draw(30, 0.4, seed=seed, epoch=epoch, part=0)) for seed in (1, 2) for epoch in (0, 1)}
    assert len(set(drawn.values())) == 4
    assert drawn[1, 1] == tuple(draw(30, 0.4, seed=1, epoch=1, part=0))
    assert drawn[1, 0] != tuple(draw(30, 0.4, seed=1, epoch=0, part=1))


def test_rows_and_lengths_of_an_epoch_belong_together(parts: list[Part]) -> None:
    mixture = Mixture(parts)
    assert len(mixture) == 39
    for epoch in range(4):
        drawn = mixture.epoch(1, epoch)
        assert len(drawn) == 2 * 5 + 10 + 4
        rows = [drawn[number] for number in range(len(drawn))]
        assert np.array_equal(drawn.lengths, [[len(column) for column in row] for row in rows])
        for source, target in rows:
            name = text(source)[0]
            assert target[0] == TOKENIZER.encode(name.upper()).ids[0]
            tag = {"a": TAGS["left"], "b": TAGS["right"]}.get(name)
            assert (source[0] == tag) if tag else not set(source) & set(TAGS.values())
        assert Counter(text(source)[0] for source, _ in rows) == {"a": 10, "b": 10, "c": 4}
    read = [text(row[0]) for epoch in range(3) for row in mixture.epoch(1, epoch) if text(row[0])[0] == "b"]
    assert len(set(read)) == 30  # three epochs of a third are all of it


def test_tags_are_left_out_of_a_share(parts: list[Part]) -> None:
    everything = Mixture([Part(part.rows, 50.0, part.domain, part.tag) for part in parts], untagged=0.2)
    drawn = everything.epoch(1, 0)
    tagged = [int(row[0][0]) in TAGS.values() for row in drawn if text(row[0])[0] != "c"]
    assert np.mean(tagged) == pytest.approx(0.8, abs=0.05)
    assert all(
        len(row[column]) <= drawn.lengths[number, column] for number, row in enumerate(drawn) for column in (0, 1)
    )
    assert not np.array_equal(drawn.is_tagged, everything.epoch(1, 1).is_tagged)
    assert np.array_equal(drawn.is_tagged, everything.epoch(1, 0).is_tagged)


def test_a_position_means_the_same_after_a_resumption(parts: list[Part]) -> None:
    mixture = pickle.loads(pickle.dumps(Mixture(parts, untagged=0.5)))
    source = Source(
        examples=lambda epoch: mixture.epoch(7, epoch),
        plan=lambda epoch: Buckets(mixture.epoch(7, epoch).lengths + 1, tokens=20, seed=7, epoch=epoch),
        prepare=lambda rows, random: None,  # type: ignore[arg-type, return-value]
        seed=7,
    )
    stream = requests(source, Position())
    first = [next(stream) for _ in range(40)]
    for at in (3, 12, 25):
        again = requests(source, first[at][1])
        assert [next(again)[0] for _ in range(10)] == [order for order, _ in first[at + 1 : at + 11]]


def test_the_fingerprint_knows_rows_weights_and_tags(parts: list[Part]) -> None:
    a, b, _ = parts
    kinds = [[a, b], [b, a], [a], [a, Part(b.rows, 1.0, b.domain, b.tag)], [a, Part(b.rows, b.weight)]]
    assert len({Mixture(kind).fingerprint for kind in kinds} | {Mixture([a, b], 0.1).fingerprint}) == 6
    assert Mixture([a, b]).fingerprint == Mixture([a, b]).fingerprint


def test_a_split_of_several_corpora(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLANG_CACHE", str(tmp_path))
    rows = [Rows.of([(f"{name} {i}", "x" * i) for i in range(4)], COLUMNS, name) for name in ("one", "two")]
    joined = Rows.joined([Member("one", rows[0], 2.0, "left"), Member("two", rows[1])], COLUMNS)
    assert list(joined) == [*rows[0], *rows[1]]
    found = prepare_split(joined, [TOKENIZER, TOKENIZER], Filters(), TAGS)
    assert [text(found[i][0]) for i in range(len(found))] == [source for source, target in joined if target]
    assert found.domains == ["left"] * 4 + [None] * 4  # the rows without a target were read as well
    assert found.account.to_json() == {"read": 8, "kept": 6, "dropped": {"empty": 2}}
    told = str(found.account)
    assert "one: 4 read, 3 kept" in told and "read 2 times an epoch" in told and "domain: left" in told
    with pytest.raises(IndexError):
        found[6]
    with pytest.raises(UserError, match="without domains"):
        prepare_split(joined, [TOKENIZER, TOKENIZER], Filters(), {})


def test_an_unknown_domain_names_the_known_ones() -> None:
    with pytest.raises(UserError, match="left, right") as caught:
        tag_of("rigth", TAGS)
    assert caught.value.todo == "did you mean right?"


# Which corpora, from a configuration


def test_named_corpora_and_files_together(shop, tmp_path: Path) -> None:
    shop.put_folder()
    mine = tmp_path / "mine.tsv"
    mine.write_text("나\tI\n", "utf-8")
    for ending, words in (("ko", "너\n"), ("en", "you\n")):
        tmp_path.joinpath(f"pair.{ending}").write_text(words, "utf-8")
    names = {"small/pairs": 0.5, str(mine): 3.0, str(tmp_path / "pair"): 1.0}
    corpus = open_corpus(Config(corpora=names, domains={str(mine): "mine"}, untagged=0.1), COLUMNS)
    assert list(corpus.split("train")) == [
        ("안녕", "hello"),
        ("물", "water"),
        ("밥", "rice"),
        ("나", "I"),
        ("너", "you"),
    ]
    assert list(corpus.split("dev")) == [("집", "house")]
    source = corpus.split("train").source
    assert [(member.weight, member.domain) for member in source.members] == [(0.5, None), (3, "mine"), (1, None)]
    assert (source.untagged, corpus.split("valid").source.untagged) == (0.1, 0.0)
    assert "small/pairs: CC0" in corpus.license
    assert any("mine.tsv" in note for note in corpus.notes)
    held_out = open_corpus(Config(corpora=names, valid=str(mine)), COLUMNS)
    assert list(held_out.split("valid")) == [("나", "I")]
    only_held_out = open_corpus(Config(corpora={**names, "small/pairs": 0.0}), COLUMNS)
    assert len(list(only_held_out.split("train"))) == 2
    assert len(list(only_held_out.split("valid"))) == 1


def test_what_cannot_be_together(shop, tmp_path: Path) -> None:
    shop.put_folder()
    mine = tmp_path / "mine.tsv"
    mine.write_text("나\tI\n", "utf-8")
    with pytest.raises(UserError, match="no use here"):
        open_corpus(Config(corpora={"small/pairs": 1.0, str(mine): 0.0}), COLUMNS)
    with pytest.raises(UserError, match="no corpus 'small/pears'"):
        open_corpus(Config(corpora={"small/pears": 1.0}), COLUMNS)
    with pytest.raises(UserError, match=r"there is no file yours\.tsv"):
        open_corpus(Config(corpora={"yours.tsv": 1.0}), COLUMNS)
    with pytest.raises(UserError, match="has no split 'valid'") as caught:
        open_corpus(Config(corpora={str(mine): 1.0}), COLUMNS).split("valid")
    assert caught.value.todo == "give data.valid=FILE"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"corpora": {"a": -1.0}}, "0 or more"),
        ({"corpora": {"a": float("inf")}}, "0 or more"),
        ({"corpora": {"a": 0.0}}, "at least one weight"),
        ({"corpora": {}}, "at least one weight"),
        ({"corpora": {"a": 1.0}, "train": "x.tsv"}, "corpora and train"),
        ({"corpora": {"a": 1.0}, "corpus": "multi30k"}, "corpora and corpus"),
        ({"domains": {"a": "x"}}, "corpora only"),
        ({"corpora": {"bible": 1.0}, "domains": {"bibel": "x"}}, "did you mean bible"),
        ({"corpora": {"a": 1.0}, "domains": {"a": "<s>"}}, "cannot be a domain"),
        ({"corpora": {"a": 1.0}, "domains": {"a": "none"}}, "cannot be a domain"),
        ({"corpora": {"a": 1.0}, "domains": {"a": "_"}}, "cannot be a domain"),
        ({"corpora": {"a": 1.0}, "untagged": 0.5}, "untagged"),
        ({"corpora": {"a": 1.0}, "domains": {"a": "x"}, "untagged": 1.5}, "untagged"),
    ],
)
def test_a_wrong_configuration_is_told(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Config(**wrong)  # type: ignore[arg-type]
