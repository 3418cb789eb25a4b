"""BPE-dropout: the library's BPE when nothing is dropped, the paper's distribution when something is."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from functools import cache
from itertools import pairwise, product

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.text import dropout as dropout_module
from mallang.text.dropout import Dropout
from mallang.text.pieces import Unit
from mallang.text.tokenizer import Config, Tokenizer

LINES = [
    "나는 학교에서 사과를 먹었다. 우리는 학교에 갔다!",
    "the newest and lowest of the quick brown foxes, the newest.",
    "banana bandana <s> <b>banana</b> a<b 3.14 it's",
    "학생은 학교에서 책을 읽었다… 👍🏽 👨‍👩‍👧",
]
WORDS = [word for line in LINES for word in line.split()]
TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs", "Cn"]), max_size=30),
    st.lists(st.sampled_from([*WORDS, "<", " ", "  ", "\n", "가나다라", "🇰🇷", "éé", "nana"]), max_size=12).map(
        " ".join
    ),
    st.lists(st.sampled_from([*WORDS, "<", "ban", "…"]), max_size=8).map("".join),
)


@cache
def trained(unit: Unit) -> Tokenizer:
    return Tokenizer.train(LINES * 5, Config(unit=unit, vocabulary=500))


def rebuilt(dropout: Dropout, ids: list[int]) -> list[int]:
    """The text put together from its letters, no merge dropped."""
    starts = dropout.words(np.array(ids, dtype=np.int64), np.array([0, len(ids)])).tolist()
    words = [tuple(ids[start:end]) for start, end in pairwise([*starts, len(ids)])]
    return [piece for word in words for piece in dropout.join(word, [0] * 100)]


def cut(dropout: Dropout, ids: list[int], random: np.random.Generator) -> list[int]:
    """One text cut again."""
    (pieces,) = dropout.cut([np.array(ids, dtype=np.int64)], lambda counts: random.random(int(counts.sum())))
    return pieces.tolist()


@settings(deadline=None, max_examples=80)
@given(text=TEXTS)
def test_words_end_where_the_tokenizer_ends_them(text: str) -> None:
    tokenizer = trained("bpe")
    ids = tokenizer.encode(text).ids
    if 1 in ids:
        return  # an unknown character may be a letter or a mark
    dropout = Dropout(tokenizer, 0.1)
    starts = dropout.words(np.array(ids, dtype=np.int64), np.array([0, len(ids)])).tolist()
    words = ["".join(tokenizer.backend.id_to_token(i) for i in ids[a:b]) for a, b in pairwise([*starts, len(ids)])]
    normal = tokenizer.backend.normalizer.normalize_str(text)
    assert words == [part for part, _ in tokenizer.backend.pre_tokenizer.pre_tokenize_str(normal)]


@pytest.mark.parametrize("unit", ["bpe", "byte-bpe"])
@settings(deadline=None, max_examples=80)
@given(text=TEXTS)
def test_without_drops_it_is_the_librarys_own_bpe(unit: Unit, text: str) -> None:
    tokenizer = trained(unit)
    library = tokenizers.Tokenizer.from_str(tokenizer.files[0])
    library.encode_special_tokens = True
    ids = library.encode(text, add_special_tokens=False).ids
    assert rebuilt(Dropout(tokenizer, 0.5), ids) == ids
    assert cut(Dropout(tokenizer, 0.0), ids, np.random.default_rng(0)) == ids


@pytest.mark.parametrize("unit", ["bpe", "byte-bpe"])
@settings(deadline=None, max_examples=40)
@given(text=TEXTS, seed=st.integers(0, 1000), probability=st.sampled_from([0.1, 0.5, 0.99]))
def test_the_text_stays_the_same(unit: Unit, text: str, seed: int, probability: float) -> None:
    tokenizer = trained(unit)
    ids = tokenizer.encode(text).ids
    again = cut(Dropout(tokenizer, probability), ids, np.random.default_rng(seed))
    assert len(again) >= len(ids)
    assert tokenizer.decode(again) == tokenizer.decode(ids)
    assert cut(Dropout(tokenizer, probability), ids, np.random.default_rng(seed)) == again


@pytest.mark.parametrize("unit", ["bpe", "byte-bpe"])
@settings(deadline=None, max_examples=30)
@given(texts=st.lists(TEXTS, max_size=5))
def test_texts_are_cut_together_as_they_are_alone(unit: Unit, texts: list[str]) -> None:
    tokenizer = trained(unit)
    dropout = Dropout(tokenizer, 0.3)
    ids = tokenizer.encode_batch(texts)
    alone, together = np.random.default_rng(1), np.random.default_rng(1)
    found = dropout.cut(
        [np.array(row, dtype=np.int64) for row in ids], lambda counts: together.random(int(counts.sum()))
    )
    assert [row.tolist() for row in found] == [cut(dropout, row, alone) for row in ids]


def exactly(merges: dict[tuple[str, str], int], pieces: tuple[str, ...], p: float) -> dict[tuple[str, ...], float]:
    """The probability of every cut, by trying every set of drops at every step."""
    places = [i for i, pair in enumerate(pairwise(pieces)) if pair in merges]
    ends: dict[tuple[str, ...], float] = defaultdict(float)
    for kept in product((True, False), repeat=len(places)):
        chance = math.prod(1 - p if keep else p for keep in kept)
        left = [place for place, keep in zip(places, kept, strict=True) if keep]
        if not left:
            ends[pieces] += chance
            continue
        best = min(left, key=lambda i: (merges[pieces[i], pieces[i + 1]], i))
        after = (*pieces[:best], pieces[best] + pieces[best + 1], *pieces[best + 2 :])
        for end, share in exactly(merges, after, p).items():
            ends[end] += chance * share
    return ends


@pytest.mark.parametrize(("word", "probability"), [("banana", 0.1), ("학교에서", 0.3), ("newest", 0.5)])
def test_every_cut_is_as_frequent_as_the_paper_has_it(word: str, probability: float) -> None:
    tokenizer = trained("bpe")
    model = json.loads(tokenizer.files[0])["model"]
    merges = {(left, right): rank for rank, (left, right) in enumerate(model["merges"])}
    expected = exactly(merges, tuple(" " + word), probability)
    assert len(expected) > 5 and sum(expected.values()) == pytest.approx(1)
    dropout, random = Dropout(tokenizer, probability), np.random.default_rng(1)
    ids, draws = tokenizer.encode(word).ids, 6_000
    names = [name.replace("▁", " ") for name in tokenizer.vocabulary.tokens]
    found = Counter(tuple(names[i] for i in cut(dropout, ids, random)) for _ in range(draws))
    assert set(found) <= set(expected)
    for pieces, chance in expected.items():
        error = math.sqrt(draws * chance * (1 - chance))
        assert abs(found[pieces] - draws * chance) < 5 * error + 1, pieces


@pytest.mark.parametrize("probability", [0.1, 0.4])
def test_as_many_pieces_as_the_library_makes(probability: float) -> None:
    # In words without repeated letters no merge makes another impossible: there the library drops as the paper does.
    words = ["abcdefgh", "ijklmnop", "다람쥐챗바퀴"]
    tokenizer = Tokenizer.train(words * 20, Config(vocabulary=200))
    library = tokenizers.Tokenizer.from_str(tokenizer.files[0])
    library.model.dropout = probability
    dropout, random, draws = Dropout(tokenizer, probability), np.random.default_rng(2), 1500
    for word in words:
        ids = tokenizer.encode(word).ids
        ours = np.array([len(cut(dropout, ids, random)) for _ in range(draws)])
        theirs = np.array([len(library.encode(word).ids) for _ in range(draws)])
        error = math.sqrt((ours.var() + theirs.var()) / draws)
        assert ours.mean() > 1.2 and abs(ours.mean() - theirs.mean()) < 6 * error


def test_forgetting_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = trained("bpe")
    ids = [tokenizer.encode(line).ids for line in LINES] * 20

    def cuts() -> list[list[int]]:
        dropout, random = Dropout(tokenizer, 0.3), np.random.default_rng(3)
        return [cut(dropout, row, random) for row in ids]

    remembered = cuts()
    monkeypatch.setattr(dropout_module, "MOST", 10)
    assert cuts() == remembered


def test_what_cannot_be_dropped_is_refused() -> None:
    with pytest.raises(ValueError, match="word has no merges"):
        Dropout(trained("word"), 0.1)
    for probability in (-0.1, 1.0):
        with pytest.raises(ValueError, match=str(probability)):
            Dropout(trained("bpe"), probability)
