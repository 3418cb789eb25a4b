"""A kernel is tried once before it is relied on, and none is where MALLANG_KERNELS=off."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from mallang.errors import UserError
from mallang.kernels import c_library, dispatch
from mallang.kernels.dispatch import is_left_out, is_off, tried_once


@pytest.fixture(autouse=True)
def on(monkeypatch):
    """Whatever the tests around these run with."""
    monkeypatch.delenv("MALLANG_KERNELS", raising=False)


def test_a_trial_is_made_once():
    tries = []

    @tried_once("top-k")
    def works():
        tries.append(1)
        return True

    assert works() and works() and len(tries) == 1


def test_what_raises_does_not_work():
    @tried_once("top-k")
    def works():
        raise RuntimeError("no compiler")

    assert works() is False


def test_compiled_code_takes_the_answer_as_a_constant(monkeypatch):
    def trial():
        torch._dynamo.graph_break()  # what no compiler could look into
        return True

    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: True)
        works = tried_once("top-k")(trial)

    def run(x):
        return x + 1 if works() else x - 1

    assert torch.compile(run, backend="eager", fullgraph=True)(torch.zeros(1)).item() == 1


def test_where_kernels_are_off_none_is_tried(monkeypatch):
    tries = []

    def trial():
        tries.append(1)
        return True

    monkeypatch.setenv("MALLANG_KERNELS", "off")
    assert is_off() and is_off("top-k") and not tried_once("top-k")(trial)() and tries == []
    assert tried_once(None)(trial)() and tries == [1], "what is no kernel of ours stays as it is"
    assert not is_left_out("top-k"), "all of them are"


@pytest.mark.parametrize("value", ["", "on"])
def test_kernels_are_on_unless_told(monkeypatch, value):
    monkeypatch.setenv("MALLANG_KERNELS", value)
    assert not is_off()


def test_one_kernel_can_be_left_out(monkeypatch):
    monkeypatch.setenv("MALLANG_KERNELS", "-top-k")
    assert is_off("top-k") and is_left_out("top-k") and not tried_once("top-k")(lambda: True)()
    assert not is_off() and not is_off("argmax") and tried_once("argmax")(lambda: True)()


@pytest.mark.parametrize("value", ["-topk", "-", "top-k", "xtop-k"])
def test_kernels_that_there_are_not_cannot_be_left_out(monkeypatch, value):
    monkeypatch.setenv("MALLANG_KERNELS", value)
    with pytest.raises(UserError, match=f"MALLANG_KERNELS is '{value}'"):
        is_off("top-k")


def test_another_word_for_it_is_refused(monkeypatch):
    monkeypatch.setenv("MALLANG_KERNELS", "Off")
    with pytest.raises(UserError, match="MALLANG_KERNELS is 'Off', but must be on, off, or a kernel to leave out"):
        tried_once("top-k")(lambda: True)()


USE = """
import ctypes, sys
sys.path[:0] = {paths!r}
loaded, load = [], ctypes.CDLL
ctypes.CDLL = lambda name, *more, **options: loaded.append(str(name)) or load(name, *more, **options)
from dataclasses import replace
import torch
from contracts.test_models import build, some_text
from mallang.decoding.contract import Config
from mallang.decoding.search import search
from mallang.kernels import c_library
from mallang.layers.head import cross_entropy_of
from mallang.layers.quantization import quantize
text = some_text()
model = build("transformer", text.words)
batch = text.batch()
hidden = model.train()(batch)
cross_entropy_of(model, hidden[batch.mask], batch.labels[batch.mask], 0.1)[0].backward()
for weights in (model.eval(), quantize(model.eval())):
    search(weights, replace(batch, tokens=batch.tokens[:, :1], labels=None), Config(max_length=4))
print(sum("kernels-" in name for name in loaded), c_library.state())
"""


def use(monkeypatch, value):
    """What a training step and searches load, and what is said of it, in a process of their own."""
    monkeypatch.setenv("MALLANG_KERNELS", value)
    code = USE.format(paths=[str(path) for path in sys.path if path])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_where_kernels_are_off_none_is_used(monkeypatch):
    assert use(monkeypatch, "off") == "0 none: MALLANG_KERNELS=off"


@pytest.mark.skipif(not set(c_library.processor_flags()) >= c_library.NEEDED, reason="not such a processor")
def test_where_they_are_on_the_same_uses_them(monkeypatch):
    """Or the test above could not fail."""
    assert use(monkeypatch, "on") == "1 compiled"


def test_every_kernel_is_also_tried_by_the_interpreter():
    """`make test` runs what `needs_kernels` marks on a CPU."""
    tests = Path(__file__).parent
    kernels = [
        path.stem for path in Path(dispatch.__file__).parent.glob("*.py") if "@triton.jit" in path.read_text("utf-8")
    ]
    assert len(kernels) >= 7
    for name in kernels:
        assert "@needs_kernels" in (tests / f"test_{name}.py").read_text("utf-8"), name
