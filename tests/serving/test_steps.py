"""Requests that share decode steps: each gets what the library gives it alone, whenever it joins."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import random
import threading
from pathlib import Path
from typing import Any

import pytest

import mallang
from mallang.errors import UserError
from mallang.serving.messages import Continue, Done, Part
from mallang.serving.replies import Replies
from mallang.serving.steps import Steps
from mallang.serving.worker import serve
from serving.serving import TEXTS, write_run


@pytest.fixture(scope="module")
def verbs(writer: Path) -> Any:
    return mallang.load(writer, "cpu")


REQUESTS: list[tuple[list[str], dict[str, Any]]] = [
    ([TEXTS[0]], {"method": "greedy", "max_length": 9}),
    ([""], {"method": "greedy", "max_length": 30}),
    (TEXTS[:3], {"method": "sampling", "seed": 5, "nbest": 2, "max_length": 12}),
    ([TEXTS[1]], {"method": "sampling", "seed": 5, "temperature": 0.7, "top_k": 4, "max_length": 5}),
    ([TEXTS[1]], {"method": "sampling", "seed": 6, "top_p": 0.5, "max_length": 40}),
    (["", TEXTS[2]], {"method": "sampling", "seed": 7, "min_length": 20, "max_length": 20}),
    ([TEXTS[2]], {"method": "greedy", "min_length": 15, "max_length": 16}),
    ([TEXTS[3]], {"method": "sampling", "seed": 9, "stop": ["a", "사"], "max_length": 25}),
    ([""], {"method": "sampling", "seed": 10, "max_length": 2}),
]


@pytest.fixture(scope="module")
def alone(verbs: Any) -> list[Any]:
    return [verbs.generate(prompts, **options) for prompts, options in REQUESTS]


@pytest.mark.parametrize(("order", "together"), [(0, 1), (1, 1), (2, 1), (3, 8), (4, 5)])
def test_requests_that_join_at_any_step_get_what_they_get_alone(
    verbs: Any, alone: list[Any], order: int, together: int
) -> None:
    """Also where the host looks at several tokens at a time, as on a GPU: what was chosen after an end is dropped."""
    dice, steps = random.Random(order), Steps(verbs, together)
    waiting = dice.sample(range(len(REQUESTS)), len(REQUESTS))
    done: dict[int, Any] = {}
    while waiting or not steps.is_empty:
        while waiting and (steps.is_empty or dice.random() < 0.4):
            number = waiting.pop()
            steps.add(Continue(number, "writer", *REQUESTS[number]))
        done |= {event.job: event.results for event in steps.step() if isinstance(event, Done)}
    for number, (prompts, options) in enumerate(REQUESTS):
        for found, own in zip(done[number], alone[number], strict=True):
            assert found["result"]["output"] == own.output, (prompts, options)
            assert math.isclose(found["result"]["score"], own.score, abs_tol=1e-4)
            assert [each["output"] for each in found["result"]["nbest"]] == [each[0] for each in own.nbest]


@pytest.mark.parametrize("together", [1, 8])
def test_parts_of_a_stream_add_up(verbs: Any, together: int) -> None:
    steps, texts = Steps(verbs, together), {0: "", 1: ""}
    steps.add(Continue(1, "writer", ["", TEXTS[0]], {"method": "sampling", "seed": 3, "max_length": 30}, stream=True))
    results: Any = None
    while not steps.is_empty:
        for event in steps.step():
            if isinstance(event, Part):
                texts[event.content["place"]] += event.content["text"]
            else:
                results = event.results
    assert [texts[0], texts[1]] == [each["outputs"][0]["text"] for each in results]


def test_a_canceled_request_leaves_and_changes_nothing(verbs: Any, alone: list[Any]) -> None:
    steps = Steps(verbs)
    for number in (0, 1, 2):
        steps.add(Continue(number, "writer", *REQUESTS[number]))
    list(steps.step())
    steps.cancel(1)
    done = {}
    while not steps.is_empty:
        done |= {event.job: event.results for event in steps.step() if isinstance(event, Done)}
    assert set(done) == {0, 2}
    assert [each["result"]["output"] for each in done[2]] == [each.output for each in alone[2]]


def test_a_prompt_beyond_the_vocabulary_is_refused(verbs: Any) -> None:
    with pytest.raises(UserError, match="vocabulary has"):
        Steps(verbs).add(Continue(1, "writer", [[1, 10**6]], {}))


def test_what_else_was_probable_is_that_of_every_token(verbs: Any) -> None:
    found = []
    for together in (1, 8):
        steps = Steps(verbs, together)
        steps.add(Continue(1, "writer", [TEXTS[0]], {"method": "greedy", "max_length": 13}, alternatives=3))
        steps.add(Continue(2, "writer", [""], {"method": "sampling", "seed": 4, "max_length": 20}, alternatives=2))
        done = {}
        while not steps.is_empty:
            done |= {event.job: event.results[0]["outputs"][0] for event in steps.step() if isinstance(event, Done)}
        found.append(done)
    one, several = found
    for job, count in ((1, 3), (2, 2)):
        assert one[job]["tokens"] == several[job]["tokens"]
        assert len(one[job]["alternatives"]) == len(one[job]["tokens"])
        for each, other in zip(one[job]["alternatives"], several[job]["alternatives"], strict=True):
            assert [name for name, _ in each] == [name for name, _ in other] and len(each) == count
    greedy = [best[0][0] for best in one[1]["alternatives"]]
    assert greedy == one[1]["tokens"]


def test_a_reply_that_ends_first_takes_no_step_beyond_the_positions(tmp_path: Path) -> None:
    """Also where several tokens are taken at a time, as on a GPU."""
    positions = ("model.positions=learned", "model.max_length=12")
    run = write_run(tmp_path / "bot", "transformer-miniworld", "task.name=dialogue", *positions)
    verbs = mallang.load(run, "cpu")
    replies, options = Replies(verbs), {"method": "greedy", "min_length": 12, "max_length": 12}
    replies.together = 8
    replies.add(Continue(1, "bot", [TEXTS[0]], options))
    done: dict[int, Any] = {}
    while not replies.is_empty:
        done |= {event.job: event.results for event in replies.step() if isinstance(event, Done)}
        if replies.outputs and replies.outputs[0].said == 8:
            replies.add(Continue(2, "bot", [TEXTS[1]], options))
    for number, text in ((1, TEXTS[0]), (2, TEXTS[1])):
        assert done[number][0]["outputs"][0]["text"] == verbs.reply(text, **options).output


def test_a_run_that_cannot_take_steps_is_an_answer_and_ends_no_worker(tmp_path: Path) -> None:
    run = write_run(tmp_path / "rough", "gpt-miniworld", "decoding.precision=bf16")
    verbs = mallang.load(run, "cpu", weights="int8")
    ours, theirs = multiprocessing.Pipe()

    def work() -> None:
        with contextlib.suppress(EOFError):
            serve(theirs, {"rough": verbs})

    worker = threading.Thread(target=work)
    worker.start()
    for number in (3, 4):
        ours.send([Continue(number, "rough", [TEXTS[0]], {"method": "greedy"})])
        assert ours.poll(60)
        (failed,) = ours.recv()
        assert (failed.job, failed.status) == (number, 400) and "8-bit" in failed.message
    ours.close()
    worker.join()
