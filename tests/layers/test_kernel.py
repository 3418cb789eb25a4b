"""A kernel is tried once before it is relied on."""

import torch

from mallang.layers.kernel import tried_once


def test_a_trial_is_made_once():
    tries = []

    @tried_once
    def works():
        tries.append(1)
        return True

    assert works() and works() and len(tries) == 1


def test_what_raises_does_not_work():
    @tried_once
    def works():
        raise RuntimeError("no compiler")

    assert works() is False


def test_compiled_code_takes_the_answer_as_a_constant(monkeypatch):
    def trial():
        torch._dynamo.graph_break()  # what no compiler could look into
        return True

    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: True)
        works = tried_once(trial)

    def run(x):
        return x + 1 if works() else x - 1

    assert torch.compile(run, backend="eager", fullgraph=True)(torch.zeros(1)).item() == 1
