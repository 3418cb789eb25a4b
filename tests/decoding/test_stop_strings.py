"""Stop strings: found in the text, however it is cut into tokens, and paid for by no score."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.toy_models import Table, random_table
from mallang.decoding.contract import Config
from mallang.decoding.matching import Spelling
from mallang.decoding.prompted import prompt_batch
from mallang.decoding.scoring import score, with_labels
from mallang.decoding.search import search
from mallang.decoding.stop_strings import StopStrings, spelled, stop_at
from mallang.errors import UserError
from mallang.text.tokenizer import Config as TextConfig
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import SPECIALS, Vocabulary

PIECES = ("a", "b", "ab", "ba", " ")
VOCABULARY = Vocabulary((*SPECIALS, *PIECES))
SPELLING = Spelling(VOCABULARY, ("", "\ufffd", "", "", *PIECES))
SEARCHES = {
    "greedy": Config(method="greedy", max_length=8),
    "beam": Config(beam=5, nbest=3, max_length=8),
    "sampling": Config(method="sampling", nbest=3, max_length=8),
    "best-first": Config(method="best-first", max_length=5),
    "exhaustive": Config(method="exhaustive", max_length=5, nbest=3),
}


def text(tokens: Any) -> str:
    return "".join(SPELLING.texts[token] for token in tokens)


@pytest.mark.parametrize("config", SEARCHES.values(), ids=SEARCHES.keys())
@given(seed=st.integers(0, 10_000), stops=st.lists(st.text("ab ", min_size=1, max_size=4), min_size=1, max_size=2))
@settings(deadline=None, max_examples=5)
def test_outputs_end_with_the_token_that_completes_a_stop_string(config: Config, seed: int, stops: list[str]) -> None:
    model = Table(VOCABULARY, random_table(VOCABULARY, seed).logits)
    batch = prompt_batch([[2], [2]])
    for one in itertools.chain(*search(model, batch, config, rules=stop_at(stops, SPELLING))):
        said = text(one.tokens)
        found = any(stop in said for stop in stops)
        assert not any(stop in text(one.tokens[:-1]) for stop in stops)
        labels = list(one.tokens) if found else list(one.labels(3))
        (expected,) = score(model, with_labels(prompt_batch([[2]]), [labels], VOCABULARY)) if labels else ([],)
        assert one.score == pytest.approx(sum(expected), abs=1e-4)


def test_a_beam_compares_generated_tokens() -> None:
    """Ending after `ab` costs nothing, so the likelier beginning wins, though the model would hardly end there."""
    logits = torch.full((9, 9, 9), -30.0)
    logits[:, 2, 4], logits[:, 2, 5] = 1.0, 0.0  # a, else b
    logits[:, 4, 5], logits[:, 5, 3] = 0.0, 0.0  # a b, b </s>
    logits[4, 5] = torch.full((9,), -30.0)
    logits[4, 5, 4] = 0.0  # after a b it would go on
    model, config = Table(VOCABULARY, logits), Config(beam=2, length_penalty="none", max_length=6)
    ((best, *_),) = search(model, prompt_batch([[2]]), config, rules=stop_at(["ab"], SPELLING))
    assert text(best.tokens) == "ab" and best.finished


def test_what_no_token_can_spell_is_refused() -> None:
    for stop in ("c", "a\n"):
        with pytest.raises(UserError, match="cannot spell"):
            stop_at(["a", stop], SPELLING)
    with pytest.raises(UserError, match="must be a text"):
        stop_at([""], SPELLING)


LINES = ["나는 사과를 먹었다.", "그는 책을 읽었다. 끝", "Hello, world. The end"] * 3
UNITS = ["word", "char", "syllable", "jamo", "byte", "bpe", "byte-bpe", "wordpiece", "unigram"]


@pytest.mark.parametrize("unit", UNITS)
def test_every_unit_spells_them(unit: Any) -> None:
    """The rule fires after exactly the token with which the decoded text first holds the stop string."""
    tokenizer = Tokenizer.train(LINES, TextConfig(unit=unit, vocabulary=300 if "byte" in unit else 90))
    spelling = Spelling.of(tokenizer)
    for stop in ("었다.", "책을", "world"):
        rule = stop_at([stop], spelling)
        assert isinstance(rule, StopStrings)
        for line in LINES[:3]:
            ids = tokenizer.encode(line).ids
            labels = torch.tensor([[*ids, 0]])
            states = [int(rule.states(labels, torch.tensor(said))[0]) for said in range(len(ids) + 1)]
            there = [stop in tokenizer.decode(ids[:said]) for said in range(len(ids) + 1)]
            assert (0 in states) == (True in there), (unit, stop, line)
            if 0 in states:
                assert states.index(0) == there.index(True)


def test_a_syllable_that_may_still_grow_is_left_to_the_text() -> None:
    tokenizer = Tokenizer.train(["가간다 나"], TextConfig(unit="jamo", vocabulary=90))
    spelling = Spelling.of(tokenizer)
    assert stop_at(["가"], spelling) is None
    assert isinstance(stop_at(["가", "간"], spelling), StopStrings)
    assert spelled(" 나", tokenizer) == " \u1102\u1161"
