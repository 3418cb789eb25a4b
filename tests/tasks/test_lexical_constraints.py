"""What is asked of translations, of a model that knows a few sentences by heart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from mallang.decoding.contract import Config as Search
from mallang.errors import UserError
from mallang.models import transformer
from mallang.tasks.lexical_constraints import Request
from mallang.tasks.translation import Config, Task, Verbs
from mallang.text.tokenizer import Config as TextConfig
from mallang.text.tokenizer import Tokenizer

PAIRS = [
    ("민수는 사과를 먹었다.", "Minsu ate an apple."),
    ("민수는 물을 마셨다.", "Minsu drank water."),
    ("고양이가 물을 마신다.", "The cat drinks water."),
    ("나는 책을 읽는다.", "I read a book."),
    ("그는 학교에 갔다.", "He went to school."),
    ("개가 공원에서 잔다.", "The dog sleeps in the park."),
]
TEXT = PAIRS[0][0]


def trained(unit: Any, seed: int = 1, steps: int = 50) -> Verbs:
    """A tiny Transformer that has seen the pairs so often."""
    lines = [text for pair in PAIRS for text in pair]
    tokenizer = Tokenizer.train(lines, TextConfig(unit=unit, vocabulary=320))
    task = Task(Config(label_smoothing=0.0), {"source": tokenizer, "target": tokenizer})
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = task.build(transformer, transformer.Config(**transformer.SIZES["tiny"], dropout=0.0, norm="pre"))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        ids = [tuple(map(np.array, tokenizer.encode_batch(pair))) for pair in PAIRS]
        batch = task.prepare([(pair,) for pair in ids], np.random.default_rng(0))
        for _ in range(steps):
            loss = task.loss(model, batch, None).sums["loss"] / task.counts(batch)["loss"]
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return Verbs(task, model.eval(), Search(beam=4), max_length=50)


@pytest.fixture(scope="module")
def translator() -> Verbs:
    return trained("bpe")


def test_nothing_asked_is_nothing_changed(translator: Verbs) -> None:
    assert [str(one) for one in translator.translate([pair[0] for pair in PAIRS])] == [pair[1] for pair in PAIRS]
    assert translator.translate({"text": TEXT}) == translator.translate(Request(TEXT)) == translator.translate(TEXT)


def test_an_output_that_was_cut_off_is_marked(translator: Verbs) -> None:
    whole, cut = translator.translate(TEXT), translator.translate(TEXT, max_length=2)
    assert (whole.is_cut, whole.note) == (False, "")
    assert (cut.is_cut, cut.note) == (True, "cut off at the length limit")


@pytest.mark.parametrize("method", ["greedy", "beam", "sampling"])
def test_an_output_begins_with_the_prefix(translator: Verbs, method: str) -> None:
    result = translator.translate(TEXT, prefix="The cat", method=method)
    assert str(result).startswith("The cat ") or str(result) == "The cat"
    (again,) = translator.score([(TEXT, str(result))])
    if result.tokens == again.tokens[:-1]:
        assert result.score == pytest.approx(again.score, abs=1e-3)  # the prefix counts
    assert str(translator.translate(TEXT, prefix="Minsu", method=method)).startswith("Minsu")


def test_a_prefix_is_whole_words(translator: Verbs) -> None:
    """After "The ca" no "t" may come, though nothing is more probable."""
    result = translator.translate(PAIRS[2][0], prefix="The ca")
    assert str(result).startswith("The ca") and not str(result).startswith("The cat")


@pytest.mark.parametrize("method", ["greedy", "beam", "sampling"])
def test_a_forbidden_word_does_not_occur(translator: Verbs, method: str) -> None:
    result = translator.translate(TEXT, forbid=["apple"], method=method)
    assert "apple" not in str(result).replace(".", " ").split() and "forbidden" not in result.note
    other = translator.translate(TEXT, forbid=["app"], method=method)  # "apple" is another word
    assert method == "sampling" or str(other) == PAIRS[0][1]
    assert "app" not in str(translator.translate(TEXT, forbid=["app*"], method=method))


def test_what_is_forbidden_does_not_occur_in_any_spelling(translator: Verbs) -> None:
    """The model is asked again and again for what it knows: each time it would spell the word another way."""
    found = translator.translate(TEXT, forbid="Minsu", beam=20, nbest=20)
    assert len(found.nbest) > 10
    assert not any("Minsu" in output.replace(".", " ").split() for output, _, _ in found.nbest)


@pytest.mark.parametrize("unit", ["bpe", "char", "byte-bpe", "wordpiece", "unigram", "word", "jamo"])
def test_required_words_are_there_in_every_unit(unit: str) -> None:
    """Even of a model that has learned nothing."""
    translator = trained(unit, steps=0)
    for result in translator.translate([pair[0] for pair in PAIRS[:2]], require=["water", "the park"], beam=3):
        assert "water" in str(result) and "the park" in str(result), str(result)
        assert "required" not in result.note


def test_demands_of_one_text_come_on_top(translator: Verbs) -> None:
    texts = [
        {"text": TEXT, "require": ["book"]},
        TEXT,
        Request(TEXT, prefix="He", forbid=("went",)),
        {"text": "  ", "require": ["book"]},
    ]
    first, second, third, empty = translator.translate(texts, forbid=["apple"])
    assert "book" in str(first) and "apple" not in str(first)
    assert "apple" not in str(second)
    assert str(third).startswith("He") and "went" not in str(third)
    assert str(empty) == "" and empty.note == ""


def test_the_batch_changes_nothing(translator: Verbs) -> None:
    texts = [
        {"text": TEXT, "require": ["book", "dog"]},
        {"text": PAIRS[1][0], "prefix": "The dog"},
        {"text": PAIRS[2][0], "forbid": ["cat", "water"]},
        PAIRS[3][0],
    ]
    for alone, together in zip(
        [translator.translate(text) for text in texts], translator.translate(texts), strict=True
    ):
        assert str(alone) == str(together) and alone.score == pytest.approx(together.score, abs=1e-4)


def test_what_could_not_be_done_is_told(translator: Verbs) -> None:
    assert "cannot spell" in translator.translate(TEXT, require=["漢字"]).note
    assert "no room" in translator.translate(TEXT, require=["sleeps in the park"], max_length=3).note
    assert "cannot spell all of the prefix" in translator.translate(TEXT, prefix="漢字").note
    long = " ".join(pair[0] for pair in PAIRS * 4)
    result = translator.translate(long, require=["parks"], forbid=["apple"], prefix="He")
    assert "split into" in result.note and "required 'parks' is missing: the text was split" in result.note
    assert str(result).startswith("He") and "apple" not in str(result)


def test_what_cannot_be_asked_is_refused(translator: Verbs) -> None:
    for asked, message in (
        ({"require": ["water"], "method": "greedy"}, "required words need beam search"),
        ({"prefix": "The cat", "forbid": ["cat"]}, "the prefix 'The cat' holds 'cat'"),
        ({"require": ["apple"], "forbid": ["apple"]}, "the required 'apple' holds 'apple', which is forbidden"),
        ({"require": ["apple"], "forbid": ["pear", "app*"]}, "the required 'apple' holds 'app*', which is forbidden"),
        ({"require": ["an apple"], "forbid": ["an"]}, "the required 'an apple' holds 'an'"),
        ({"require": ["water"], "runner": "static"}, "runner = static has no effect on required words"),
        ({"require": ["water"], "compile": True}, "compile = True has no effect on required words"),
        ({"forbid": [""]}, "forbid must be a list of words"),
        ({"require": ["*"]}, "is not a word to match"),
        ({"lexicon": {"a": "b"}}, "no effect without replace_unknown"),
        ({"replace_unknown": True}, "has no effect on the unit bpe"),
    ):
        with pytest.raises(UserError, match=message.replace("*", r"\*")):
            translator.translate(TEXT, **asked)
    for wrong, message in (({"require": [3]}, "require must be a list of words"), ({"prefix": 3}, "must be a text")):
        with pytest.raises(UserError, match=message):
            translator.translate({"text": TEXT, **wrong})
    with pytest.raises(UserError, match="did you mean require"):
        translator.translate({"text": TEXT, "requires": ["water"]})
    with pytest.raises(UserError, match="is no text to translate"):
        translator.translate([{"require": ["water"]}])


def test_coverage_is_part_of_what_outputs_are_ranked_by(translator: Verbs) -> None:
    plain = translator.translate(TEXT, nbest=3)
    covered = translator.translate(TEXT, nbest=3, coverage=0.5)
    assert str(plain) == str(covered) and covered.nbest[0][1] == pytest.approx(plain.nbest[0][1], abs=1e-4)
    assert covered.nbest[0][2] < plain.nbest[0][2]
    assert "water" in str(translator.translate(TEXT, require=["water"], coverage=0.5))


def test_an_ensemble_translates_and_scores(translator: Verbs) -> None:
    joined = translator.ensemble([trained("bpe", seed=2)])
    result = joined.translate(TEXT, require=["water"])
    assert "water" in str(result)
    plain = joined.translate(TEXT)
    assert str(plain) == PAIRS[0][1]
    (scored,) = joined.score([(TEXT, str(plain))])
    assert scored.score == pytest.approx(plain.score, abs=1e-4)
    with pytest.raises(UserError, match="the tokenizers of their source differ"):
        translator.ensemble([trained("char")])
