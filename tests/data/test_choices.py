"""Choices and which of them is right: every way to write them."""

from __future__ import annotations

import pytest

from mallang.data.choices import Choices, RightChoice, plain_text, read_choices
from mallang.errors import UserError

FORMS = {
    '["bread", "a letter"]': Choices(("bread", "a letter")),
    '[{"label": "X", "text": "bread"}, {"label": "Y", "text": "a letter"}]': Choices(("bread", "a letter"), ("X", "Y")),
    '{"text": ["bread", "a letter"], "label": ["1", "2"]}': Choices(("bread", "a letter"), ("1", "2")),
    "bread\ta letter": Choices(("bread", "a letter")),
    "[1\t2]": Choices(("[1", "2]")),
}


@pytest.mark.parametrize("cell", FORMS)
def test_every_form_is_read(cell: str) -> None:
    assert read_choices(cell) == FORMS[cell]
    assert plain_text(cell) == " ".join(FORMS[cell].texts)


@pytest.mark.parametrize(
    ("answer", "number"), [("a letter", 1), ("A", 0), ("B", 1), ("0", 0), ("1", 1), (" bread ", 0)]
)
def test_an_answer_is_a_text_a_letter_or_a_number_from_0(answer: str, number: int) -> None:
    assert Choices(("bread", "a letter")).number(answer) == number


def test_labels_come_before_letters_and_numbers() -> None:
    assert Choices(("x", "y"), ("1", "2")).number("1") == 0
    assert Choices(("2", "1")).number("1") == 1
    assert RightChoice().encode_rows([("B", '["x", "y"]'), ("x", '["x", "y"]')]) == [[1], [0]]


@pytest.mark.parametrize("answer", ["C", "2", "", "-1", "bred"])
def test_an_answer_out_of_range_is_refused(answer: str) -> None:
    with pytest.raises(UserError, match="is none of the 2 choices") as caught:
        Choices(("bread", "a letter")).number(answer)
    assert "A, B" in (caught.value.todo or "")


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("", "there are 1 choices, and at least 2"),
        ('["bread"]', "there are 1 choices"),
        ("[]", "there are 0 choices"),
        ('["bread", ""]', "choice B is empty"),
        ('[{"label": "A", "text": "x"}, {"label": "A", "text": "y"}]', "two choices have one label"),
        ('[{"label": "A", "text": "x"}, {"text": "y"}]', "some choices have a label"),
        ('{"text": ["x", "y"], "label": ["A"]}', "as many labels as choices"),
    ],
)
def test_bad_choices_are_refused(cell: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_choices(cell)


def test_many_choices_are_called_by_numbers() -> None:
    many = Choices(tuple(f"w{place}" for place in range(30)))
    assert many.names[29] == "29" and many.number("29") == 29
