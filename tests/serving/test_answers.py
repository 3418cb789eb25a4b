"""The page draws what the server answers: for every verb, out of the keys that it really has."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import mallang.serving
from mallang.evaluation.minimal_pairs import Preference
from mallang.serving.requests import REQUESTS
from mallang.tasks import surprisal, translator
from mallang.tasks.answerer import Answered
from mallang.tasks.answerer import Candidate as Span
from mallang.tasks.chooser import Chosen
from mallang.tasks.classifier import Classification
from mallang.tasks.comparer import Similarity
from mallang.tasks.completer import Completion
from mallang.tasks.filler import Candidate, Filled, Filling
from mallang.tasks.generation import Generated
from mallang.tasks.resolver import MentionSpan, Resolution
from mallang.tasks.result_json import EMPTY, KEYS, as_json, compared, embedded
from mallang.tasks.role_labeler import Proposition, RoleLabeling, RoleSpan
from mallang.tasks.tagger import TaggedSpan, Tagging
from mallang.tasks.word_lookup import Neighbors

SCRIPT = Path(mallang.serving.__file__).parent / "page" / "answers.js"
PLACES = ((0, 4), (5, 8))
FOUND = translator.Translation(
    "in", "out", -1.0, ("out",), (("out", -1.0, -1.0), ("other", -2.0, -2.0)), "", False, (-1.0,)
)
TRIPLE = Completion("land", "speaks", True, (("tongue", -1.0), ("hand", -2.0)), (True, False))
RESULTS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    **{verb: (as_json(verb, FOUND), ("out", "other")) for verb in ("translate", "reply", "reconstruct", "caption")},
    "generate": (as_json("generate", Generated("a", "b", "a b", -1.0, ("b",))), ("b",)),
    "score": (as_json("score", surprisal.Scored("good", -1.0, ("good",), (-1.0,))), ("good", "-1.0000")),
    "classify": (
        as_json("classify", Classification("fun", "good", 0.9, {"bad": 0.1, "good": 0.9})),
        ("good", "10.0 %"),
    ),
    "tag": (
        as_json(
            "tag",
            Tagging(
                "Anna ran", ("Anna", "ran"), PLACES, ("B-PER", "O"), (0.9, 0.8), (TaggedSpan("PER", "Anna", 0, 4, 0.9),)
            ),
        ),
        ("B-PER", "Anna · PER", "90.0 %"),
    ),
    "coref": (
        as_json("coref", Resolution("🎉 Anna ran", ("Anna",), ((2, 6),), ((MentionSpan("Anna", 2, 6, (0, 1)),),))),
        ("1: Anna",),
    ),
    "roles": (
        as_json(
            "roles",
            RoleLabeling(
                "Anna ran",
                ("Anna", "ran"),
                PLACES,
                (Proposition("ran", "run", 1, 5, 8, 0.9, ("A0", "V"), (RoleSpan("A0", "Anna", 0, 4, 0, 0, 0.8),)),),
                False,
            ),
        ),
        ("ran", "A0 · Anna", "80.0 %"),
    ),
    "answer": (
        as_json("answer", Answered("Who?", "🎉 Anna ran", "Anna", 2, 6, 0.7, None, (Span("Anna", 2, 6, 0.7),))),
        ("Who?", "Anna", "70.0 %"),
    ),
    "choose": (
        as_json("choose", Chosen("Which?", "tea", "A", 1, 0.6, (("tea", 0.6), ("ham", 0.4)))),
        ("tea", "ham", "40.0 %"),
    ),
    "fill": (
        as_json("fill", Filled("a [MASK]", ((Candidate("b", 0.5),),), (Filling("a b", ("b",), -0.7),))),
        ("a b", "50.0 %"),
    ),
    "neighbors": (as_json("neighbors", Neighbors("cat", (("dog", 0.75),))), ("cat", "dog", "0.750")),
    "complete": (as_json("complete", TRIPLE), ("? · speaks · land", "tongue", "hand")),
    "similarity": (as_json("similarity", Similarity(("a", "b"), 0.25)), ("a · b", "0.2500")),
    "prefer": (compared(Preference("worse text", "better text", -2.0, -1.0), "total"), ("better better text",)),
    "embed": (embedded("a", [0.5, -1.0]), ("a", "0.5000 -1.0000")),
}
"""A result of every verb, and what is shown of it."""


def test_every_verb_has_a_result_with_its_keys() -> None:
    assert set(RESULTS) == set(REQUESTS) == set(KEYS)
    for verb, (result, _) in RESULTS.items():
        assert set(KEYS[verb]) <= set(result), verb
        json.dumps(result, allow_nan=False)


def test_results_of_empty_texts_say_so() -> None:
    assert as_json("classify", Classification(("a", " "), "same", 0.9, {}))["note"] == EMPTY
    assert as_json("tag", Tagging("\n", (), (), (), ()))["note"] == EMPTY
    assert as_json("similarity", Similarity(("", "b"), 0.0))["note"] == EMPTY
    assert all("note" not in result for result, _ in RESULTS.values())


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node to run the page's script")
def test_the_page_draws_the_result_of_every_verb() -> None:
    given = [(verb, result, "🎉 Anna ran") for verb, (result, _) in RESULTS.items()]
    drawn = dict(zip(RESULTS, drawn_by_page(given), strict=True))
    for verb, (_, parts) in RESULTS.items():
        words = " ".join(drawn[verb].split())
        assert all(part in words for part in parts), (verb, words)
        assert "undefined" not in words and "NaN" not in words, (verb, words)
    assert "🎉  Anna  ran" in drawn["answer"]  # marked by characters, of which the first is two units of JavaScript
    assert "🎉  Anna 1  ran" in drawn["coref"]


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node to run the page's script")
def test_the_page_shows_notes() -> None:
    (drawn,) = drawn_by_page([("classify", as_json("classify", Classification(" ", "good", 0.9, {})), "")])
    assert EMPTY in drawn


def drawn_by_page(given: list[tuple[str, dict[str, Any], str]]) -> list[str]:
    """The text that the page draws for each verb with its result and context."""
    command = ["node", str(Path(__file__).with_name("answers.mjs")), str(SCRIPT)]
    done = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)
    return found
