"""Results as plain values, the same for `--json` and for the server."""

from __future__ import annotations

import json

import pytest

from mallang.tasks import surprisal
from mallang.tasks.completer import Completion
from mallang.tasks.generation import Generated
from mallang.tasks.result_json import AS_JSON, EMPTY, KEYS, as_json, is_empty, note_on


@pytest.mark.parametrize("is_cut", [False, True])
def test_an_output_says_whether_it_is_finished(is_cut: bool) -> None:
    made = Generated("a", " b", "a b", -1.5, ("▁b",), ((" b", -1.5, -0.5),), is_cut=is_cut, token_scores=(-1.5,))
    found = as_json("generate", made)
    assert found["finished"] is not is_cut and "note" not in found
    assert found["nbest"] == [{"output": " b", "score": -1.5, "normalized": -0.5}] and found["text"] == "a b"
    assert set(KEYS["generate"]) == set(found)


def test_words_without_a_token_are_named_where_there_are_some() -> None:
    known = surprisal.Scored("a b", -2.0, ("▁a", "▁b", "</s>"), (-1.0, -0.5, -0.5))
    assert "unknown" not in as_json("score", known) and set(KEYS["score"]) <= set(as_json("score", known))
    strange = surprisal.Scored("a b", -2.0, ("▁a", "▁b", "</s>"), (-1.0, -0.5, -0.5), unknown=("b",))
    assert as_json("score", strange)["unknown"] == ["b"]
    assert as_json("score", strange)["bits"] == pytest.approx(sum(strange.surprisals))


@pytest.mark.parametrize(("known", "said"), [((), [None, None]), ((True, False), [True, False])])
def test_what_is_in_the_graph_already_is_marked_where_the_graph_is_there(
    known: tuple[bool, ...], said: list[bool | None]
) -> None:
    found = as_json("complete", Completion("a", "r", True, (("b", 1.0), ("c", 0.5)), known))
    assert [each["known"] for each in found["nbest"]] == said and found["input"] == ["a", "r", "heads"]
    assert json.loads(json.dumps(found)) == found


def test_texts_of_white_space_are_noted() -> None:
    assert note_on(" \n") == note_on(("a", "")) == {"note": EMPTY}
    assert note_on("a") == note_on(("a", "b")) == {} and not is_empty(3)


def test_every_verb_has_its_keys() -> None:
    assert set(AS_JSON) <= set(KEYS)
