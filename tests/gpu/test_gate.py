"""The gate for the GPU, on the CPU: it passes what works, and reports what fails, crashes or hangs."""

import multiprocessing
import os
import re
import time
from functools import partial

import pytest

from gpu import gate, stand_ins
from gpu.gate import TESTS, Result, Worker
from mallang import recipe


@pytest.fixture
def little_text():
    with stand_ins.shortened(train=200):
        yield


def test_a_recipe_is_stopped_resumed_and_used(tmp_path, little_text):
    result = gate.try_recipe("transformer-miniworld", tmp_path, "cpu", {})
    assert not result.error, result.trace
    assert result.corpus == "built in" and len(result.losses) == 2 and result.output.startswith("translate: ")


def test_a_recipe_that_cannot_resume_fails(tmp_path, monkeypatch, little_text):
    from mallang.training.loop import Loop

    monkeypatch.setattr(Loop, "resume", lambda loop: None)
    result = gate.try_recipe("transformer-miniworld", tmp_path, "cpu", {})
    assert "resumed from the updates [0]" in result.error


def test_what_a_recipe_raises_is_reported_with_exit_code_1(tmp_path, monkeypatch, capsys):
    def broken(*given):
        raise RuntimeError("no such kernel\nwith details")

    monkeypatch.setattr(gate, "exercise", broken)
    result = gate.try_recipe("bahdanau-multi30k", tmp_path, "cpu", {"multi30k": None})
    assert (result.error, result.corpus) == ("RuntimeError: no such kernel", "stand-in")
    fine = Result("gpt-ptb", 2.0, "real", (5.0, 4.0), "generate: a b")
    assert gate.report([fine], [], "here") == 0
    assert gate.report([fine], ["GPU tests"], "here") == 1
    capsys.readouterr()
    assert gate.report([result, fine], [], "here") == 1
    printed = capsys.readouterr().out
    assert "1 of 2 recipes passed" in printed
    assert gate.with_trace(result).startswith(gate.row_of(result)) and "with details" in gate.with_trace(result)
    assert gate.with_trace(fine) == gate.row_of(fine)
    assert re.search(r"^bahdanau-multi30k +FAILED .* RuntimeError: no such kernel$", printed, re.MULTILINE)
    assert re.search(r"^gpt-ptb +ok .* 5.000 → 4.000 +generate: a b$", printed, re.MULTILINE)


def serve_badly(line, start_method):
    """A worker that does what the name of a recipe says."""
    gate.settle(line, start_method)
    while (name := line.recv()) is not None:
        if name == "crash":
            os._exit(3)
        if name == "hang":
            time.sleep(600)
        line.send(Result(name, output=multiprocessing.get_start_method()))


def test_crashes_and_hangs_cost_one_recipe_each():
    names = ["first", "crash", "hang", "last"]
    found = gate.sweep(names, partial(Worker, (), timeout=2.0, target=serve_badly), workers=1)
    assert [result.recipe for result in found] == names
    assert found[0].output == multiprocessing.get_start_method(), "loaders are started as in any training"
    errors = [result.error for result in found]
    assert errors == ["", "the process died with exit code 3", "hung: no result after 2 s", ""]


def test_shards_share_out_all_recipes():
    shards = [gate.chosen_recipes({"SHARD": f"{number}/3"}) for number in (1, 2, 3)]
    assert sorted(name for shard in shards for name in shard) == recipe.names() == gate.chosen_recipes({})
    assert gate.chosen_recipes({"RECIPES": "gpt-ptb,ngram-miniworld"}) == ["gpt-ptb", "ngram-miniworld"]
    for wrong in ("3/2", "0/2", "2", "a/b"):
        with pytest.raises(SystemExit, match="k/n"):
            gate.chosen_recipes({"SHARD": wrong})


def test_every_test_that_asks_for_a_gpu_is_chosen():
    asking = re.compile(r"skipif\(\s*not torch\.cuda\.is_available\(\), reason=\"([^\"]*)\"")
    reasons = {path: asking.findall(path.read_text("utf-8")) for path in TESTS.rglob("test_*.py")}
    assert {reason for found in reasons.values() for reason in found} == {"needs a GPU"}
    assert all(gate.needs_gpu(path) for path, found in reasons.items() if found)
    assert gate.needs_gpu(TESTS / "kernels/test_fused_cross_entropy.py")


@pytest.mark.skipif(False, reason="needs a GPU")
def test_the_marker_comes_from_the_reason(request):
    assert request.node.get_closest_marker("gpu")
