"""The roles of miniworld: by hand, one for every phrase of a scene, and rows that the task reads."""

from __future__ import annotations

import hashlib

import pytest

from mallang.data import miniworld
from mallang.data.corpus import Config, open_corpus
from mallang.data.miniworld_roles import ROLES, Proposition, on_heads, propositions
from mallang.data.miniworld_tags import tagged
from mallang.data.roles import Sentence
from mallang.evaluation.spans import read_spans

BY_HAND = {
    "Junho lent a bag to Minsu.": ["lent(lend): AGENT=Junho, PATIENT=a bag, RECIPIENT=to Minsu"],
    "Does Sujin want to ride a bicycle at school?": ["ride(ride): AGENT=Sujin, PATIENT=a bicycle, PLACE=at school"],
    "There is a new book on the desk.": ["is(be): THEME=a new book, PLACE=on the desk"],
    "Minsu accepted Jiyeong's apology.": ["accepted(accept): AGENT=Minsu, PATIENT=Jiyeong 's apology"],
    "Minsu was hungry, so he ate bread.": ["hungry(hungry): EXPERIENCER=Minsu", "ate(eat): AGENT=he, PATIENT=bread"],
    "When will Seongmin go to Seoul?": ["go(go): TIME=When, AGENT=Seongmin, GOAL=to Seoul"],
    "Minsu's stomach hurts.": ["hurts(hurt): EXPERIENCER=Minsu 's"],
    "민수는 사과를 먹었다.": ["먹었다(먹다): AGENT=민수는, PATIENT=사과를"],
    "어제 수진은 물 두 잔을 마셨다.": ["마셨다(마시다): TIME=어제, AGENT=수진은, PATIENT=물 두 잔을"],
    "나는 목이 말라서 차 한 잔을 마셨다.": ["말라서(마르다): EXPERIENCER=나는", "마셨다(마시다): PATIENT=차 한 잔을"],
    "민수는 학생이다.": ["학생이다(이다): THEME=민수는"],
}  # fmt: skip


def told(found: Proposition, words: list[str]) -> str:
    spans = [f"{span.type}={' '.join(words[span.start : span.end])}" for span in read_spans(found.roles)]
    return f"{words[found.place]}({found.lemma}): {', '.join(spans)}"


@pytest.mark.parametrize("text", BY_HAND)
def test_roles_by_hand(text: str) -> None:
    language = "en" if text.isascii() else "ko"
    scene = miniworld.parse(text, language)
    assert scene is not None
    words = [token.text for token in tagged(scene, language)]
    assert [told(each, words) for each in propositions(scene, language)] == BY_HAND[text]


@pytest.mark.parametrize("language", ["ko", "en"])
def test_every_phrase_has_one_role_and_no_role_is_there_twice(language: str) -> None:
    fields = {"recipient": "RECIPIENT", "means": "MEANS", "time": "TIME"}
    for scene in miniworld.scenes("valid"):
        made = propositions(scene, language)
        assert len(made) == len(scene.clauses)
        for found, clause in zip(made, scene.clauses, strict=True):
            roles = [span.type for span in read_spans(found.roles)]
            assert found.roles[found.place] == "O" and set(roles) <= set(ROLES) and len(roles) == len(set(roles))
            for field, role in fields.items():
                assert (getattr(clause, field) is not None) == (role in roles), (scene.korean, role)
            assert (clause.place is not None) == bool({"PLACE", "GOAL"} & set(roles))


def test_the_columns_are_rows_that_the_task_reads() -> None:
    columns = ("words", "predicates", "roles")
    for language in ("ko", "en"):
        corpus = open_corpus(Config(corpus="miniworld", source=language), columns)
        row = next(iter(corpus.split("test")))
        assert len(Sentence.of(row).predicates) == len(miniworld.scene("test", 0).clauses)
        names = [f"{language}-tokens", f"{language}-predicates", f"{language}-head-roles"]
        heads = Config(corpus="miniworld", columns=names)
        first = Sentence.of(next(iter(open_corpus(heads, columns).split("test"))))
        spans = Sentence.of(row)
        assert [on_heads(own) for own in spans.roles] == [list(own) for own in first.roles]
    assert on_heads(("B-A", "I-A", "O", "B-B", "B-B")) == ["_", "A", "_", "B", "B"]


def test_the_roles_are_frozen() -> None:
    lines = [repr(propositions(scene, language)) for language in ("ko", "en") for scene in miniworld.scenes("valid")]
    assert hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16] == "e19350e1c833502f"
