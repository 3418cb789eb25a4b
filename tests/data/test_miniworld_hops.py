"""Questions of two steps: the graph answers each of them, and nothing else does."""

import json
from collections import Counter, defaultdict

import pytest

from mallang.data import miniworld_hops as hops
from mallang.data.miniworld_triples import rows as triples

SIZES = {"train": 900, "valid": 150, "test": 150}
STEPS = {template.english.split("{}")[0]: template for template in hops.TEMPLATES}


def neighbors(name: str, relation: str) -> set[str]:
    """What a relation leads to, read from the rows of the corpus."""
    back = relation.startswith("^")
    place, other = (2, 0) if back else (0, 2)
    return {row[other] for row in triples("train", 9999) if row[1] == relation.removeprefix("^") and row[place] == name}


@pytest.mark.parametrize("split", SIZES)
def test_one_choice_is_two_steps_away_and_no_other_is(split: str) -> None:
    for _, _, question, choices, letter in hops.rows(split, SIZES[split])[::7]:
        begin, asked, _ = question.split('"')
        template = STEPS[f'{begin}"']
        reached = {end for middle in neighbors(asked, template.first) for end in neighbors(middle, template.second)}
        right = [each for each in json.loads(choices) if each in reached]
        assert right == [json.loads(choices)["ABC".index(letter)]]


@pytest.mark.parametrize("split", SIZES)
def test_every_choice_of_three_questions_is_right_once(split: str) -> None:
    right = defaultdict[tuple[str, ...], Counter[str]](Counter)
    for _, _, question, choices, letter in hops.rows(split, SIZES[split]):
        texts = json.loads(choices)
        right[question.split('"')[0], *sorted(texts)][texts["ABC".index(letter)]] += 1
    even = sum(len(counts) == 3 for counts in right.values())
    assert even > 0.9 * len(right)


def test_held_out_concepts_occur_nowhere_in_the_text_of_training() -> None:
    seen = " ".join(row[2] + row[3] for row in hops.rows("train", SIZES["train"]))
    for split in ("valid", "test"):
        for row in hops.rows(split, SIZES[split]):
            asked = row[2].split('"')[1]
            assert f'"{asked}"' not in seen


def test_korean_and_english_say_the_same() -> None:
    names = {row[0]: row[3] for row in triples("train", 9999)} | {row[2]: row[4] for row in triples("train", 9999)}
    for korean, texts, english, choices, _ in hops.rows("test", 60):
        assert [names[each] for each in json.loads(choices)] == json.loads(texts)
        assert korean.startswith(names[english.split('"')[1]])


def test_the_rows_are_frozen() -> None:
    assert hops.rows("train", 3)[0][2:] == (
        'What is used in the same way as "hat"?', '["coat", "egg", "coffee"]', "A",
    )  # fmt: skip
    assert len(set(hops.rows("train", 900))) == 900
