"""Questions of miniworld: the answer is in the context where it is said to be, and one statement alone gives it."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence

import pytest

from mallang.data import miniworld, miniworld_choices, miniworld_questions
from mallang.data.corpus import Config, open_corpus
from mallang.data.miniworld_views import VIEWS
from mallang.errors import UserError

NAMES = {"miniworld-questions": miniworld_questions, "miniworld-choices": miniworld_choices}
FROZEN = {"miniworld-questions": "671d03e293b11243", "miniworld-choices": "5618b465fa76cc89"}


def rows(name: str, split: str) -> list[tuple[str, ...]]:
    return list(open_corpus(Config(corpus=name, columns=list(VIEWS[name].columns)), ()).split(split))


@pytest.mark.parametrize("language", ["ko", "en"])
def test_answers_stand_in_the_statement_that_the_question_is_about(language: str) -> None:
    first = VIEWS["miniworld-questions"].columns.index(f"{language}-context")
    for row in rows("miniworld-questions", "test"):
        context, question, cell = row[first : first + 3]
        (answer,) = json.loads(cell)
        assert context[answer["answer_start"] :].startswith(answer["text"]) and answer["text"] == answer["text"].strip()
        statements = [f"{each}." for each in context.removesuffix(".").split(". ")]
        assert len(statements) == 3 and all(miniworld.is_grammatical(each, language) for each in statements)
        assert miniworld.is_grammatical(question, language) and question.endswith("?")


def test_the_question_with_its_answer_put_in_is_the_statement() -> None:
    """Of all three statements only the one with the answer has the verb of the question."""
    for row in rows("miniworld-questions", "test")[:200]:
        context, question, cell = row[3:6]
        start = json.loads(cell)[0]["answer_start"]
        (asked,) = miniworld.parse(question, "en").clauses  # type: ignore[union-attr]
        place, found = 0, []
        for text in (f"{each}." for each in context.removesuffix(".").split(". ")):
            (clause,) = miniworld.parse(text, "en").clauses  # type: ignore[union-attr]
            if clause.verb.english == asked.verb.english:
                found.append(place <= start < place + len(text))
            place += len(text) + 1
        assert found == [True]


def test_every_part_is_asked_for_as_often() -> None:
    assert set(Counter(row[-1] for row in rows("miniworld-questions", "test")).values()) == {125}


def test_right_choices_go_with_the_verb_and_wrong_ones_do_not() -> None:
    for korean, ko_choices, english, en_choices, letter in rows("miniworld-choices", "test"):
        assert miniworld.is_grammatical(korean, "ko") and miniworld.is_grammatical(english, "en")
        (clause,) = miniworld.parse(english, "en").clauses  # type: ignore[union-attr]
        named = {noun.english for noun in clause.verb.objects}
        choices = json.loads(en_choices)
        assert [choice in named for choice in choices].index(True) == "ABCDE".index(letter)
        assert sum(choice in named for choice in choices) == 1 and len(json.loads(ko_choices)) == len(choices)


@pytest.mark.parametrize("name", NAMES)
def test_splits_are_of_their_size_and_share_nothing(name: str) -> None:
    held_out = {row[:2] for split in ("valid", "test") for row in rows(name, split)}
    assert len(held_out) == VIEWS[name].rows["valid"] + VIEWS[name].rows["test"]
    kept = what_is_held_out(name, rows(name, "test"))
    assert kept.isdisjoint(what_is_held_out(name, NAMES[name].rows("train", 500)))


def what_is_held_out(name: str, found: Sequence[tuple[str, ...]]) -> set[str]:
    """The statements of contexts; the questions of choices with their answers put beside them."""
    if name == "miniworld-questions":
        return {statement for row in found for statement in row[0].split(". ")}
    return {f"{row[0]} {json.loads(row[1])['ABCDE'.index(row[4])]}" for row in found}


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_frozen(name: str) -> None:
    """Whoever changes a row changes VERSION, by which prepared data is told apart, and then this sum."""
    lines = "\n".join(cell for row in rows(name, "test") for cell in row)
    assert (NAMES[name].VERSION, hashlib.sha256(lines.encode()).hexdigest()[:16]) == (1, FROZEN[name])


def test_columns_of_miniworld_are_not_joined() -> None:
    with pytest.raises(UserError, match="cannot be joined"):
        open_corpus(Config(corpus="miniworld-choices", columns=["en-question", "ko-choices+en-choices"]), ("a", "b"))
