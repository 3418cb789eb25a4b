"""ARPA files: out and in again, as KenLM reads and writes them, and what is said of damaged ones."""

from __future__ import annotations

import gzip
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.data.streams import lines_batch
from mallang.decoding.scoring import score
from mallang.errors import UserError
from mallang.interop import arpa
from mallang.layers.ngram_table import LOG_ZERO, Ngrams
from mallang.models.ngram import Config, NGram
from mallang.text.vocabulary import SPECIALS, Vocabulary

HERE = Path(__file__).parent
TEXT = """the cat sat on the mat
the dog sat on the mat
the cat saw the dog
a dog saw a cat on the mat
the cat sat
이 고양이 가 앉았다"""
"""What lmplz made lmplz.arpa of: lmplz -o 3 --discount_fallback; the other with --prune 0 0 1."""
OTHERS = ["the dog sat on the cat", "a cat", "", "이 dog 가 sat", "zebra on the zebra", "the the the mat mat"]
LINES = TEXT.splitlines()
VOCABULARY = Vocabulary((*SPECIALS, *sorted(set(TEXT.split()))))
LN10 = math.log(10)


def ids(lines: list[str], vocabulary: Vocabulary = VOCABULARY) -> list[list[int]]:
    return [[vocabulary.id(word) for word in line.split()] for line in lines]


def fitted(**options: Any) -> NGram:
    model = NGram(Config(**options), VOCABULARY)
    list(model.fit([lines_batch(ids(LINES))]))
    return model


def from_file(path: Path) -> NGram:
    tokens, ngrams = arpa.read(path)
    model = NGram(Config(order=len(ngrams.sizes), smoothing="imported"), Vocabulary(tokens))
    model.keep(ngrams)
    return model


def log10s(model: NGram, lines: list[str]) -> list[list[float]]:
    return [[number / LN10 for number in row] for row in score(model, lines_batch(ids(lines, model.vocabulary)))]


SMOOTHINGS: dict[str, dict[str, Any]] = {
    "kneser-ney": {"order": 4},
    "kneser-ney-cut": {"order": 4, "min_counts": (1, 1, 2)},
    "katz": {"smoothing": "katz", "order": 4},
    "add-k": {"smoothing": "add-k", "alpha": 0.1},
    "interpolation": {"smoothing": "interpolation", "weights": (0.1, 0.2, 0.3, 0.4)},
    "words": {"order": 1},
    "mle": {"smoothing": "mle"},
}


@pytest.mark.parametrize("name", ["model.arpa", "model.arpa.gz"])
@pytest.mark.parametrize("options", SMOOTHINGS.values(), ids=SMOOTHINGS)
def test_out_and_in_again_is_the_same(options: dict[str, Any], name: str, tmp_path: Path) -> None:
    model = fitted(**options)
    arpa.write(model.table.ngrams(), VOCABULARY.tokens, tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    tokens, found = arpa.read(tmp_path / name)
    ours = model.table.ngrams()
    assert tokens == VOCABULARY.tokens
    for left, right in zip((*found.log_probs, *found.backoffs), (*ours.log_probs, *ours.backoffs), strict=True):
        np.testing.assert_allclose(left, right, rtol=0, atol=1e-6)
    for left, right in zip(found.keys, ours.keys, strict=True):
        np.testing.assert_array_equal(left, right)


@settings(deadline=None, max_examples=30)
@given(numbers=st.lists(st.floats(-30, 0, width=32) | st.just(LOG_ZERO), min_size=4, max_size=40))
def test_numbers_come_back_to_the_seventh_place(numbers: list[float], tmp_path_factory: Any) -> None:
    path = tmp_path_factory.mktemp("arpa") / "numbers.arpa"
    told = np.array([LOG_ZERO, numbers[0], LOG_ZERO, *numbers[1:]], dtype=np.float32)
    weights = np.array([0.0, *-told[1:]], dtype=np.float32)  # back-off weights may be above 1
    weights[told <= LOG_ZERO] = 0.0
    keys = np.array([len(told) * 3 + 4])
    tokens = (*SPECIALS, *(chr(0xAC00 + place) for place in range(len(told) - 4)))
    if len(tokens) < 5:
        tokens, told, weights = (*tokens, "가"), np.append(told, told[-1:]), np.append(weights, weights[-1:])
    arpa.write(Ngrams(len(tokens), [keys], [told, told[3:4]], [weights]), tokens, path)
    _, found = arpa.read(path)
    np.testing.assert_allclose(found.log_probs[0], told, rtol=1e-7, atol=1.2e-7)
    np.testing.assert_allclose(found.backoffs[0][1:], weights[1:], rtol=1e-7, atol=1.2e-7)


@pytest.mark.parametrize(("name", "least"), [("lmplz.arpa", (1, 1, 1)), ("lmplz-pruned.arpa", (1, 1, 2))])
def test_files_of_kenlm_are_read_and_say_what_we_estimate(name: str, least: tuple[int, ...]) -> None:
    ours, theirs = fitted(min_counts=least), from_file(HERE / name)
    assert theirs.table.sizes.tolist()[1:] == ours.table.sizes.tolist()[1:]
    lines = LINES + OTHERS
    for line, found, expected in zip(lines, log10s(theirs, lines), log10s(ours, lines), strict=True):
        assert found == pytest.approx(expected, abs=2e-6), line


@pytest.mark.parametrize("options", [SMOOTHINGS[name] for name in ("kneser-ney", "kneser-ney-cut", "katz", "add-k")])
def test_kenlm_reads_our_files_and_says_what_we_say(options: dict[str, Any], tmp_path: Path) -> None:
    kenlm = pytest.importorskip("kenlm", reason="kenlm is not there: it has no wheel, and building it needs g++")
    model = fitted(**options)
    arpa.write(model.table.ngrams(), VOCABULARY.tokens, tmp_path / "model.arpa")
    theirs = kenlm.Model(str(tmp_path / "model.arpa"))
    for line, ours in zip(LINES + OTHERS, log10s(model, LINES + OTHERS), strict=True):
        assert [number for number, _, _ in theirs.full_scores(line)] == pytest.approx(ours, abs=1e-4), line


def test_a_word_of_one_order_may_be_missing_in_the_next(tmp_path: Path) -> None:
    """A file without <unk>, with its numbers parted by spaces: what is not told has no probability."""
    path = tmp_path / "plain.arpa"
    path.write_text("\\data\\\nngram 1=3\n\n\\1-grams:\n-99 <s>\n-0.30103 </s>\n-0.30103 a\n\n\\end\\\n")
    model = from_file(path)
    assert model.table.order == 1
    assert log10s(model, ["a a", "b"]) == [
        pytest.approx([math.log10(0.5)] * 3, abs=1e-6),
        [-math.inf, pytest.approx(-0.30103)],
    ]
    with torch.no_grad():
        assert model.output(torch.zeros(1, 1)).isfinite().all()


GOOD = (HERE / "lmplz.arpa").read_text("utf-8").splitlines(keepends=True)
"""Line 1 is \\data\\; 7 the first word, 24 the first pair."""


def line(number: int, text: str) -> Callable[[list[str]], list[str]]:
    return lambda lines: [*lines[: number - 1], text + "\n", *lines[number:]]


DAMAGED: dict[str, tuple[Callable[[list[str]], list[str]], str]] = {
    "nothing": (lambda lines: [], "no line \\data\\"),
    "no-head": (lambda lines: lines[5:], "no line \\data\\"),
    "head": (line(2, "ngram 1=many"), "line 2"),
    "head-beyond-numbers": (line(2, "ngram 1=99999999999999999999"), "line 2"),
    "head-of-many-digits": (line(2, "ngram 1=" + "9" * 5000), "line 2"),
    "head-beyond-the-file": (line(2, "ngram 1=" + "9" * 15), "line 22"),
    "order-left-out": (line(2, "ngram 2=15"), "line 2"),
    "no-words": (line(2, "ngram 1=0"), "no words"),
    "section": (line(6, "\\2-grams:"), "line 6"),
    "number": (line(8, "zero\t<s>\t0"), "line 8"),
    "not-a-number": (line(8, "nan\t<s>\t0"), "line 8"),
    "above-one": (line(8, "0.5\t<s>\t0"), "line 8"),
    "weight": (line(9, "-1\t</s>\tinf"), "line 9"),
    "weight-beyond-writing": (line(9, "-1\t</s>\t150"), "line 9"),
    "weight-just-beyond": (line(9, "-1\t</s>\t99"), "line 9"),
    "too-many-words": (line(25, "-1\tmat </s> the cat\t0"), "line 25"),
    "too-few-words": (line(25, "-1\tmat"), "line 25"),
    "unknown-word": (line(25, "-1\tmat zebra\t0"), "line 25"),
    "twice": (line(26, GOOD[24].rstrip()), "line 26"),
    "word-twice": (line(10, "-1\t</s>\t0"), "line 10"),
    "no-history": (line(50, "-1\tthe the the"), "line 50"),
    "cut-short": (lambda lines: lines[:30], "ends after"),
    "cut-in-a-line": (lambda lines: [*lines[:60], "-0."], "line 61"),
    "no-end": (lambda lines: lines[:-1], "no \\end\\"),
    "one-too-few": (lambda lines: [*lines[:9], *lines[10:]], "here they end after 14"),
    "one-too-many": (lambda lines: [*lines[:9], "-1\tzebra\t0\n", *lines[9:]], "should stand"),
}


@pytest.mark.parametrize(("damage", "words"), DAMAGED.values(), ids=DAMAGED)
def test_what_is_wrong_with_a_file_is_said_with_its_line(damage: Any, words: str, tmp_path: Path) -> None:
    path = tmp_path / "damaged.arpa"
    path.write_text("".join(damage(GOOD)), "utf-8")
    with pytest.raises(UserError) as caught:
        arpa.read(path)
    assert words in str(caught.value) and f"{path}, line" in str(caught.value), str(caught.value)


def test_files_that_are_no_text_or_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no file"):
        arpa.read(tmp_path / "none.arpa")
    whole = gzip.compress("".join(GOOD).encode())
    for name, content in (("half.gz", whole[: len(whole) // 2]), ("plain.gz", "".join(GOOD).encode())):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match="damaged"):
            arpa.read(tmp_path / name)
    latin = "".join(GOOD).replace("cat", "kätzchen").encode("latin-1", errors="replace")
    (tmp_path / "latin.arpa").write_bytes(latin)
    with pytest.raises(UserError, match="not UTF-8.*(?s:.*)line 11"):
        arpa.read(tmp_path / "latin.arpa")


@pytest.mark.parametrize("told", ["-99", "-150", "-inf"])
def test_what_stands_for_nothing_is_read_and_written_as_minus_99(told: str, tmp_path: Path) -> None:
    changed = line(9, f"{told}\t</s>\t{told}")(line(10, "-1\ta\t98.5")(GOOD))
    word = GOOD[9].split()[1]
    (tmp_path / "in.arpa").write_text("".join(changed).replace("-1\ta\t", f"-1\t{word}\t"), "utf-8")
    tokens, ngrams = arpa.read(tmp_path / "in.arpa")
    arpa.write(ngrams, tokens, tmp_path / "out.arpa")
    rows = [row.split() for row in (tmp_path / "out.arpa").read_text("utf-8").splitlines()]
    assert ["-99.0000000", "</s>", "-99.0000000"] in rows
    assert float(next(row[2] for row in rows if len(row) == 3 and row[1] == word)) == pytest.approx(98.5, abs=1e-5)


def test_nothing_is_left_behind_where_writing_fails(tmp_path: Path) -> None:
    ngrams = fitted().table.ngrams()
    ngrams.backoffs[0][4] = 150 * LN10  # more than has a place in a line
    (tmp_path / "model.arpa").write_text("what was there")
    with pytest.raises(IndexError):
        arpa.write(ngrams, VOCABULARY.tokens, tmp_path / "model.arpa")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["what was there"]


def test_tokens_with_white_space_cannot_be_written(tmp_path: Path) -> None:
    ngrams = NGram(Config(order=1), Vocabulary((*SPECIALS, "a b"))).table.ngrams()
    with pytest.raises(UserError, match="'a b' holds white space"):
        arpa.write(ngrams, (*SPECIALS, "a b"), tmp_path / "model.arpa")
    with pytest.raises(UserError, match="cannot write"):
        arpa.write(ngrams, (*SPECIALS, "ab"), Path("/proc/none") / "model.arpa")
    assert list(tmp_path.iterdir()) == []
