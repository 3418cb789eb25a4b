"""Concepts that texts mention."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mallang.data.grounding import Grounder
from mallang.text.lemmas import words_of

NAMES = ("revolving door", "door", "bank", "book", "books", "play on ice", "the", "hockey", "바다", "go to bed", "bed")


def concepts(text: str) -> list[str]:
    return [NAMES[number] for number in Grounder(NAMES).concepts(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A revolving door is convenient at a bank.", ["revolving door", "bank"]),
        ("Doors, banks, and doors!", ["door", "bank"]),
        ("The child is playing on ice", ["play on ice"]),
        ("books", ["books", "book"]),
        ("BOOK", ["book", "books"]),
        ("the the", []),
        ("They went to bed", ["go to bed"]),
        ("바다에서 놀아요", ["바다"]),
        ("", []),
    ],
)
def test_the_longest_names_are_found_by_their_lemmas(text: str, expected: list[str]) -> None:
    assert concepts(text) == expected


@given(
    st.text(alphabet="abz 바다.", max_size=30), st.lists(st.text(alphabet="ab z", min_size=1, max_size=6), max_size=6)
)
def test_what_is_found_is_in_the_text(text: str, names: list[str]) -> None:
    """Without endings that a rule could change a name is found if, and only if, its words are in the text."""
    known = tuple(dict.fromkeys(name for name in names if words_of(name)))
    words = words_of(text)
    found = Grounder(known).concepts(text)
    assert len(set(found)) == len(found)
    for number in found:
        wanted = words_of(known[number])
        assert any(words[place : place + len(wanted)] == wanted for place in range(len(words)))
    for number, name in enumerate(known):
        alone = len(words_of(name)) == 1 and words_of(name)[0] in words and name.strip() not in ("a",)
        longer = any(len(words_of(other)) > 1 for other in known)
        if alone and not longer and len({tuple(words_of(other)) for other in known}) == len(known):
            assert number in found
