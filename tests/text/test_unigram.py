import json
import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, trainers

from mallang.text import unigram

WORDS = st.dictionaries(st.text("abc", min_size=1, max_size=7), st.integers(1, 5), min_size=1, max_size=6)


def ways(word: str, scores: dict[str, float]) -> Iterator[tuple[float, list[str]]]:
    """Every way to cut a word, by trying them all."""
    if not word:
        yield 0.0, []
    for end in range(1, len(word) + 1):
        if word[:end] in scores:
            for score, rest in ways(word[end:], scores):
                yield scores[word[:end]] + score, [word[:end], *rest]


@settings(deadline=None, max_examples=50)
@given(WORDS, st.integers(0, 2**32))
def test_uses_and_best_cuts_are_those_of_trying_every_way(words: dict[str, int], seed: int) -> None:
    strings, counts = unigram.cut_long(words)
    candidates, _, lattice = unigram.find_candidates(list("abc"), strings, counts, least=2, most=100)
    scores = unigram.log_shares(np.random.default_rng(seed).uniform(0.1, 1.0, len(candidates)))
    table = dict(zip(candidates, scores.tolist(), strict=True))
    expected: defaultdict[str, float] = defaultdict(float)
    for word, count in words.items():
        cuts = list(ways(word, table))
        total = sum(math.exp(score) for score, _ in cuts)
        for score, pieces in cuts:
            for piece in pieces:
                expected[piece] += count * math.exp(score) / total
    uses = lattice.expected_uses(scores, counts)
    assert uses.tolist() == pytest.approx([expected[text] for text in candidates])
    best = [max(score for score, _ in ways(string, table)) for string in strings]
    assert lattice.best(scores).tolist() == pytest.approx(best)

    inner = unigram.Lattice.inside(candidates).best(scores)
    for text, found in zip(candidates, inner.tolist(), strict=True):
        others = [score for score, pieces in ways(text, table) if len(pieces) > 1]
        assert found == pytest.approx(max(others, default=-math.inf))


@settings(deadline=None, max_examples=50)
@given(WORDS, st.integers(2, 3))
def test_candidates_are_the_frequent_substrings(words: dict[str, int], least: int) -> None:
    strings, counts = unigram.cut_long(words)
    candidates, weights, _ = unigram.find_candidates(list("abc"), strings, counts, least=least, most=1000)
    occurs: Counter[str] = Counter()
    for word, count in words.items():
        for start in range(len(word)):
            for end in range(start + 2, len(word) + 1):
                occurs[word[start:end]] += count
    assert sorted(candidates[3:]) == sorted(text for text in occurs if occurs[text] >= least)
    assert weights[3:].tolist() == [occurs[text] * len(text) for text in candidates[3:]]
    few, _, _ = unigram.find_candidates(list("abc"), strings, counts, least=least, most=2)
    cover = sorted((occurs[text] * len(text) for text in candidates[3:]), reverse=True)
    assert [occurs[text] * len(text) for text in few[3:]] == cover[:2]


def corpus(seed: int = 1) -> dict[str, int]:
    """Many stems, few endings."""
    chance = random.Random(seed)
    stems = ["".join(chance.choice("가나다라마바abcd") for _ in range(chance.randint(2, 4))) for _ in range(150)]
    ends = ["에서는", "까지도", "이지만", "ing", "ness", ""]
    return dict(Counter(f" {chance.choice(stems)}{chance.choice(ends)}" for _ in range(1500)))


def likelihood(words: dict[str, int], pieces: dict[str, float]) -> float:
    """The log probability of the words, each cut in the best way."""
    total = 0.0
    for word, count in words.items():
        best = [0.0]
        for end in range(1, len(word) + 1):
            best.append(max(best[start] + pieces.get(word[start:end], -math.inf) for start in range(end)))
        total += count * best[-1]
    return total


def test_pieces_are_shared_parts_of_words_and_no_less_likely_than_those_of_the_library() -> None:
    words = corpus()
    alphabet = sorted(set("".join(words)))
    pieces = dict(unigram.learn(words, alphabet, size=100, min_count=1))
    assert len(pieces) == 100
    assert set(alphabet) <= set(pieces)
    assert {"에서는", "까지도", "이지만", "ing", "ness"} <= set(pieces)
    assert sum(math.exp(score) for score in pieces.values()) == pytest.approx(1.0, abs=1e-3)

    library = Tokenizer(models.Unigram())
    trainer = trainers.UnigramTrainer(vocab_size=101, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False)
    library.train_from_iterator(([word] * count for word, count in words.items()), trainer)
    theirs = {text: score for text, score in json.loads(library.to_str())["model"]["vocab"] if text != "<unk>"}
    assert likelihood(words, pieces) > likelihood(words, theirs)


def test_the_order_of_the_words_does_not_matter() -> None:
    words = list(corpus().items())
    alphabet = set("".join(word for word, _ in words))
    first = unigram.learn(dict(words), sorted(alphabet), size=40, min_count=1)
    assert unigram.learn(dict(reversed(words)), sorted(alphabet, reverse=True), size=40, min_count=1) == first


def test_rare_substrings_do_not_compete() -> None:
    words = {"abcd": 5, "efgh": 4}
    pieces = {text for text, _ in unigram.learn(words, "abcdefgh", size=20, min_count=5)}
    assert "abcd" in pieces
    assert pieces - set("abcdefgh") <= {"abcd"[i:j] for i in range(4) for j in range(i + 2, 5)}


def test_long_and_odd_words_are_learned_from() -> None:
    words = {"a" * 1000: 3, "\0\0b": 2, "\U0010ffff": 1}
    pieces = dict(unigram.learn(words, ["a", "b", "\0", "\U0010ffff"], size=12, min_count=1))
    assert {"a", "b", "\0", "\U0010ffff"} <= set(pieces) and len(pieces) <= 12
    assert max(map(len, pieces)) <= unigram.LONGEST


def test_without_words_the_letters_are_left() -> None:
    pieces = dict(unigram.learn({}, ["b", "a"], size=5, min_count=1))
    assert pieces == pytest.approx({"a": -math.log(2), "b": -math.log(2)}, abs=1e-6)


def test_more_letters_than_pieces_are_refused() -> None:
    with pytest.raises(ValueError, match="3 letters"):
        unigram.learn({"abc": 1}, "abc", size=2, min_count=1)
