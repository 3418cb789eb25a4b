"""Loss by position: the same numbers as scoring gives, sorted by how much stands before a word."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.test_inspection import verbs_of
from mallang.decoding.contract import Config as Search
from mallang.errors import UserError
from mallang.inspection.loss_by_position import (
    Curve,
    Range,
    fitting,
    loss_by_position,
    ranges_of,
    read,
    streamed,
    tokens_by_word,
)
from mallang.models.gpt import GPT
from mallang.models.gpt import Config as GPTConfig
from mallang.models.nplm import NPLM, SIZES, Config
from mallang.tasks import language_modeling
from mallang.text.tokenizer import Config as Text
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import BOS, EOS

LINES = ["나는 책을 읽는다.", "그는 물을 마신다.", "우리는 학교에 간다.", "", "나는 물을 본다. 정말로 그렇다."]
few = settings(deadline=None, max_examples=15)


@pytest.fixture(autouse=True, scope="module")
def few_draws():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mallang.evaluation.score.RESAMPLES", 40)
        yield


def tokenizer(unit):
    return Tokenizer.train(LINES, Text(unit=unit, vocabulary=400 if "byte" in unit else 60))


def a_model(unit="bpe", model=None, **layout):
    task = language_modeling.Task(language_modeling.Config(**layout), {"text": tokenizer(unit)})
    torch.manual_seed(1)
    model = model or NPLM(Config(**SIZES["tiny"]), task.text.vocabulary)
    return language_modeling.Verbs(task, model.eval(), Search(), 256)


@pytest.mark.parametrize("unit", ["word", "space", "char", "syllable", "jamo", "byte", "bpe", "byte-bpe", "unigram"])
def test_every_token_belongs_to_one_word(unit):
    cut = tokenizer(unit)
    for line in [*LINES, "  나는  책을 ", "나는", "😀 책", " "]:
        words = tokens_by_word(cut, line)
        assert [token for word in words for token in word] == [*cut.encode(line).ids, EOS]
        if line.strip():
            assert len(words) == len(line.split()) + 1
        if line in LINES:
            assert [cut.decode(word).strip() for word in words[:-1]] == line.split()


@pytest.mark.parametrize("unit", ["bpe", "char", "space"])
def test_by_lines_it_is_what_scoring_gives(unit):
    model = a_model(unit)
    curve = loss_by_position(model, LINES)
    assert curve.nats.shape == (5, 6) and "layout:lines" in curve.signature
    for row, (line, scored) in enumerate(zip(LINES, model.score(LINES), strict=True)):
        words = tokens_by_word(model.tokenizer, line)
        bounds = np.cumsum([0, *map(len, words)])
        sums = [-sum(scored.token_scores[low:high]) for low, high in itertools.pairwise(bounds)]
        np.testing.assert_allclose(curve.nats[row, : len(words)], sums, rtol=1e-5)
        assert np.isnan(curve.nats[row, len(words) :]).all()
    _, outputs = model.evaluate([(line,) for line in LINES])
    assert np.nansum(curve.nats) == pytest.approx(-sum(map(float, outputs)), rel=1e-5)


def test_a_stream_is_cut_into_windows_that_begin_with_a_line():
    model = a_model(layout="stream", context=8)
    curve = loss_by_position(model, LINES, width=6)
    assert "layout:stream|context:6" in curve.signature
    # 4 + 4 words, the end of line counted, and then 4 + 1 + 6: what is left of the line a window ends in is skipped
    assert curve.counts().tolist() == [2, 2, 2, 2, 2, 2]
    ids = [[token for word in tokens_by_word(model.tokenizer, line) for token in word] for line in LINES]
    first = model.score(LINES[:1])[0].score
    assert curve.nats[0, :4].sum() == pytest.approx(-first, rel=1e-5)
    # the last words of the window are read after the line before them, which scoring by lines does not know
    assert read(np.array(ids[0] + ids[1])).tolist() == [BOS, *ids[0][:-1], BOS, *ids[1][:-1]]


def test_a_model_with_a_longest_text_is_asked_for_no_more():
    cut = tokenizer("char")
    gpt = GPT(GPTConfig(layers=1, dim=16, heads=2, max_length=9), cut.vocabulary)
    curve = loss_by_position(a_model("char", gpt), LINES)
    for row, line in enumerate(LINES):
        words = tokens_by_word(cut, line)
        fits = int((np.cumsum([len(word) for word in words]) <= 9).sum())
        assert (~np.isnan(curve.nats[row])).sum() == fits == len(fitting(words, 9))
    assert "longest:9 tokens" in curve.signature


def test_a_window_of_four_words_uses_four_words():
    """A model of order 3 cannot tell what lies further back: the same words after other ones cost the same."""
    model = a_model("space")
    told = [loss_by_position(model, [line]).nats[0] for line in ("나는 책을 읽는다. 물을", "그는 책을 읽는다. 물을")]
    far = tokens_by_word(model.tokenizer, "나는")
    assert len(far) == 2
    assert told[0][1] != told[1][1]
    assert told[0][-1] == pytest.approx(told[1][-1], rel=1e-6)


@few
@given(
    lines=st.lists(st.integers(1, 6), max_size=12),
    width=st.integers(1, 9),
)
def test_windows_are_whole_beginnings_of_lines(lines, width):
    numbered = [[[number * 100 + word] for word in range(count)] for number, count in enumerate(lines)]
    windows = list(streamed(numbered, width))
    assert all(len(window) == width for window in windows[:-1]) and all(len(window) <= width for window in windows)
    starts = [window[0][0] for window in windows]
    assert all(start % 100 == 0 for start in starts) and starts == sorted(set(starts))
    flat = [word[0] for line in numbered for word in line]
    for window in windows:
        at = flat.index(window[0][0])
        assert [word[0] for word in window] == flat[at : at + len(window)]


def test_ranges_double_or_end_where_they_are_told():
    nats = np.ones((3, 9))
    nats[1:, 5:] = np.nan
    curve = Curve(nats, "")
    assert [(some.name, len(some)) for some in ranges_of([curve])] == [
        ("0", 3), ("1", 3), ("2-3", 6), ("4-7", 6), ("8", 1),
    ]  # fmt: skip
    assert [some.name for some in ranges_of([curve], [3, 5])] == ["0-3", "4-5", "6-8"]
    assert [some.name for some in ranges_of([Curve(nats[:, :2], ""), curve], [20])] == ["0-8"]


def test_a_range_is_the_mean_of_its_words():
    curve = Curve(np.array([[1.0, 2.0, np.nan], [3.0, 5.0, 6.0]]), "how")
    found = curve.of(Range(1, 2))
    assert found.value == pytest.approx(13 / 3) and found.signature == "how" and found.count == 2
    assert found.low <= found.value <= found.high
    nothing = curve.of(Range(3, 4))
    assert math.isnan(nothing.value) and nothing.count == 0


@pytest.mark.parametrize("ends", [[], [3, 3], [5, 2], [-1]])
def test_ends_that_do_not_rise(ends):
    with pytest.raises(UserError, match="do not rise"):
        ranges_of([Curve(np.ones((1, 4)), "")], ends)


def test_a_window_of_nothing():
    with pytest.raises(UserError, match="is too small"):
        loss_by_position(verbs_of("gpt"), LINES, width=0)
