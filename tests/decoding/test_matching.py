"""Words in text that is written token by token, against regular expressions on the text itself."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.decoding.matching import FOUND, NEVER, START, Spelling, look_for, look_for_required
from mallang.errors import UserError
from mallang.text.tokenizer import Config, Tokenizer
from mallang.text.vocabulary import SPECIALS, Vocabulary

TEXTS = ["a cat sat.", "the cat and a dog", "concatenate cats", "사과를 먹는다", "나는 사과 한 개", "don't, é!"]


def spelling_of(pieces: list[str]) -> Spelling:
    vocabulary = Vocabulary((*SPECIALS, *(f"t{number}" for number in range(len(pieces)))))
    return Spelling(vocabulary, ("",) * len(SPECIALS) + tuple(pieces))


def occurs(phrase: str, text: str, ended: bool) -> bool:
    """Whether the phrase stands in the text, as a regular expression sees it; what follows it must have been seen."""
    core = phrase.removeprefix("*").removesuffix("*")
    before = "" if phrase.startswith("*") or not re.match(r"\w", core[0]) else r"(?<!\w)"
    after = "" if phrase.endswith("*") or not re.match(r"\w", core[-1]) else r"(?=\W|$)" if ended else r"(?=\W)"
    return re.search(before + re.escape(core) + after, text) is not None


letters = st.text("ab -", min_size=1, max_size=3)
phrases = st.builds(
    lambda core, first, last: first + core + last,
    st.text("ab -", min_size=1, max_size=3).filter(lambda text: text == text.strip() and text),
    st.sampled_from(["", "*"]),
    st.sampled_from(["", "*"]),
)


@given(
    pieces=st.lists(letters, min_size=2, max_size=5, unique=True),
    wanted=st.lists(phrases, min_size=1, max_size=3),
    said=st.lists(st.integers(0, 4), max_size=8),
)
@settings(deadline=None, max_examples=150)
def test_a_matcher_finds_what_a_regular_expression_finds(pieces: list[str], wanted: list[str], said: list[int]) -> None:
    spelling = spelling_of(pieces)
    matcher = look_for(tuple(wanted), spelling)
    state, text = START, ""
    for number in said:
        token = len(SPECIALS) + number % len(pieces)
        state, text = int(matcher.table[state, token]), text + spelling.texts[token]
        assert (state == FOUND) == any(occurs(phrase, text, ended=False) for phrase in wanted)
    ended = int(matcher.table[state, spelling.vocabulary.eos]) == FOUND
    assert ended == any(occurs(phrase, text, ended=True) for phrase in wanted)


@given(
    pieces=st.lists(st.text("ab .'(-\"\ufffd", min_size=1, max_size=3), min_size=2, max_size=5, unique=True),
    word=st.sampled_from(["a", "ab", "a b", "*a", "a*", "(a", "a."]),
    said=st.lists(st.integers(0, 4), max_size=8),
)
@settings(deadline=None, max_examples=150)
def test_a_required_word_is_set_off_from_what_stands_before_it(pieces: list[str], word: str, said: list[int]) -> None:
    spelling, core = spelling_of(pieces), word.strip("*")
    before = "" if word[0] in "*(" else r"(?:^|(?<=[ (-]))[\"']?(?:[ab]{1,2}')?"
    after = "" if word[-1] in "*." else r"(?=[^ab\ufffd]|$)"
    state, text = START, ""
    for number in said:
        token = len(SPECIALS) + number % len(pieces)
        state = int(look_for_required(word, spelling).table[state, token])
        text += spelling.texts[token]
    ended = int(look_for_required(word, spelling).table[state, spelling.vocabulary.eos]) == FOUND
    assert ended == (re.search(before + re.escape(core) + after, text) is not None), text


@pytest.mark.parametrize(
    ("text", "is_there"),
    [
        ("I saw a zebra.", True), ("zebra, he said", True), ("(zebra)", True), ('say "zebra" now', True),
        ("“zebra”", True), ("책.zebra.", False), ("I read a book.zebra.", False), ("the ship'zebra", False),
        ("zebras", False), ("a book, zebra", True), ("。「zebra」", True),
    ],
)  # fmt: skip
def test_where_a_required_word_counts(text: str, is_there: bool) -> None:
    tokenizer = Tokenizer.train([text, "I saw a zebra."], Config(unit="char", vocabulary=60))
    matcher, state = look_for_required("zebra", Spelling.of(tokenizer)), START
    for token in (*tokenizer.encode(text).ids, tokenizer.vocabulary.eos):
        state = int(matcher.table[state, token])
    assert (state == FOUND) == is_there


@pytest.mark.parametrize(
    ("word", "text", "is_there"),
    [
        ("eau", "l'eau", True), ("eau", "de l\u2019eau.", True), ("accord", 'il dit "d\'accord"', True),
        ("ici", "jusqu'ici", True), ("acqua", "dell'acqua", True), ("mail", "e-mail", True),
        ("art", "state-of-the-art", True), ("eau", "¿eau?", True), ("eau", "¡eau!", True), ("水", "火，水", True),
        ("eau", "ship'eau", False), ("eau", "book.l'eau", False), ("eau", "火,eau", False), ("eau", "l'beau", False),
    ],
)  # fmt: skip
def test_a_required_word_after_an_elision_a_hyphen_or_an_opening_mark(word: str, text: str, is_there: bool) -> None:
    spelling = spelling_of(sorted(set(text + word)))
    matcher, state = look_for_required(word, spelling), START
    for character in text:
        state = int(matcher.table[state, spelling.texts.index(character)])
    assert (int(matcher.table[state, spelling.vocabulary.eos]) == FOUND) == is_there
    if is_there:
        forbidden, state = look_for((word,), spelling), START
        for token in (*map(spelling.texts.index, text), spelling.vocabulary.eos):
            state = int(forbidden.table[state, token])
        assert state == FOUND


@given(pieces=st.lists(letters, min_size=2, max_size=4, unique=True), phrase=phrases)
@settings(deadline=None, max_examples=50)
def test_steps_are_the_fewest_tokens_that_spell_a_phrase(pieces: list[str], phrase: str) -> None:
    """Against trying all outputs of up to four tokens."""
    spelling = spelling_of(pieces)
    matcher = look_for((phrase,), spelling)
    texts = {"": 0}
    fewest = NEVER
    for length in range(1, 5):
        texts = {text + piece: length for text in texts for piece in pieces}
        if any(occurs(phrase, text, ended=False) for text in texts):
            fewest = length
            break
    found = int(matcher.steps[START])
    assert found == fewest or (fewest == NEVER and found > 4)


@given(
    phrase=phrases,
    other=phrases,
    before=st.text("ab -", max_size=2),
    after=st.text("ab -", max_size=2),
)
@settings(deadline=None, max_examples=300)
def test_what_a_phrase_implies_is_wherever_it_is(phrase: str, other: str, before: str, after: str) -> None:
    text = before + phrase.removeprefix("*").removesuffix("*") + after
    if spelling_of(["a"]).implies(phrase, other) and occurs(phrase, text, ended=True):
        assert occurs(other, text, ended=True)


@pytest.mark.parametrize(
    ("phrase", "other", "expected"),
    [
        ("apple", "apple", True),
        ("apple", "app*", True),
        ("apple", "*p*", True),
        ("an apple", "an", True),
        ("an apple", "apple", True),
        ("apple*", "apple*", True),
        ("apple*", "apple", False),
        ("apple", "app", False),
        ("apple", "apples", False),
        ("apple", "an apple", False),
        ("don't", "don", True),
    ],
)
def test_which_phrases_hold_others(phrase: str, other: str, expected: bool) -> None:
    assert spelling_of(["a"]).implies(phrase, other) == expected


@pytest.mark.parametrize(
    "unit", ["word", "char", "syllable", "jamo", "byte", "bpe", "byte-bpe", "wordpiece", "unigram"]
)
def test_tokens_spell_the_text_in_every_unit(unit: str) -> None:
    config = Config(unit=unit, vocabulary=600 if "byte" in unit else 120)
    tokenizer = Tokenizer.train(TEXTS * 3, config)
    spelling = Spelling.of(tokenizer)
    for text in TEXTS:
        spelled = "".join(spelling.texts[number] for number in tokenizer.encode(text).ids)
        assert spelled.strip() == spelling.normalize(text)
    for phrase, expected in (
        ("cat", [True, True, False, False, False, False]),
        ("*cat*", [True, True, True, False, False, False]),
        ("a dog", [False, True, False, False, False, False]),
        ("사과*", [False, False, False, True, True, False]),
        (".", [True, False, False, False, False, False]),
    ):
        matcher = look_for((phrase,), spelling)
        found = []
        for text in TEXTS:
            state = START
            for token in [*tokenizer.encode(text).ids, spelling.vocabulary.eos]:
                state = int(matcher.table[state, token])
            found.append(state == FOUND)
        assert found == expected, phrase


@given(
    pieces=st.lists(letters, min_size=1, max_size=3, unique=True),
    wanted=st.lists(phrases, min_size=1, max_size=3),
)
@settings(deadline=None, max_examples=60)
def test_forbidden_phrases_close_every_way_that_cannot_end_without_one(pieces: list[str], wanted: list[str]) -> None:
    matcher = look_for(tuple(wanted), spelling_of(pieces))
    table, eos = matcher.table.tolist(), matcher.eos
    can_end = {state for state in range(len(table)) if state != FOUND and table[state][eos] != FOUND}
    for _ in table:
        can_end |= {
            state
            for state, row in enumerate(table)
            if state != FOUND and any(after in can_end for token, after in enumerate(row) if token != eos)
        }
    closed = [
        [after if after in can_end or token == eos else FOUND for token, after in enumerate(row)] for row in table
    ]
    assert matcher.avoiding.table.tolist() == closed


def test_of_bytes_only_ascii_letters_belong_to_a_word() -> None:
    spelling = Spelling.of(Tokenizer.train(TEXTS, Config(unit="byte", vocabulary=260)))
    assert spelling.is_letter("a") and not spelling.is_letter("\xec")
    assert spelling.pattern("사과") == tuple("사과".encode().decode("latin-1"))


def test_what_makes_a_word_longer() -> None:
    spelling = Spelling.of(Tokenizer.train(TEXTS * 3, Config(unit="bpe", vocabulary=120)))
    continues = {text: longer for text, longer in zip(spelling.texts, spelling.continues, strict=True) if text}
    assert continues["a"] and continues["를"] and not continues["."] and not continues[" cat"]


@pytest.mark.parametrize("phrase", ["", "  ", "*", "**"])
def test_an_empty_phrase_is_refused(phrase: str) -> None:
    with pytest.raises(UserError, match="is not a word to match"):
        spelling_of(["a"]).pattern(phrase)


def test_too_many_phrases_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mallang.decoding.matching.MOST_CELLS", 20)
    with pytest.raises(UserError, match="too many for a vocabulary"):
        look_for(("abc",), spelling_of(["a"]))
