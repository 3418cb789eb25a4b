"""Shapes in signatures are checked while the tests run, before anything of mallang is imported."""

import os
import signal

# A shell that runs the tests in the background lets them ignore Ctrl-C, and the commands they start would too.
signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Threads that wait by spinning take the time of the tests beside them; it must be said before torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import checking

checking.install()

import pytest
import torch

torch.set_num_threads(1)
# As mallang does before it computes on a GPU: recurrent layers would be rounded there to 10 bits otherwise.
torch.backends.cudnn.allow_tf32 = False


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Tests that are skipped where there is no GPU have the marker `gpu`, by which `make test-gpu` chooses them."""
    for item in items:
        if any(mark.kwargs.get("reason") == "needs a GPU" for mark in item.iter_markers("skipif")):
            item.add_marker("gpu")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    checking.begin_test()


@pytest.fixture(params=["C", "numpy"])
def bag_kernels(request, monkeypatch):
    """Runs a test with the C functions of bags of n-grams, and in plain numpy."""
    from mallang.kernels import c_bag

    if request.param == "numpy":
        monkeypatch.setattr(c_bag, "library", lambda: None)
    elif c_bag.library() is None:
        pytest.skip("there are no C functions here")
