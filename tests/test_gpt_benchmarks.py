"""The parts of the GPT benchmarks at a shape that takes no time."""

from __future__ import annotations

import inspect
import itertools
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from mallang.data.batch import Batch
from mallang.kernels import fp8
from mallang.layers.attention import record_attention

sys.path.insert(0, str(Path(__file__).parents[1]))  # the benchmarks are not installed
from benchmarks import contest, generation_entrants, generation_speed, gpt_entrants, gpt_models, gpt_speed
from benchmarks.contest import Outcome

TINY = gpt_models.Shape(layers=2, dim=8, heads=2, words=40, context=12)


def test_operations_are_those_that_torch_counts() -> None:
    tokens = gpt_entrants.batch(TINY, 3, 0, "cpu")[:, 1:]
    batch, model = Batch(tokens=tokens, lengths=torch.full((3,), 12)), gpt_models.ours(TINY).requires_grad_(False)
    with FlopCounterMode(display=False) as counter, record_attention(model):
        model.output(model(batch))
    assert counter.get_total_flops() == 3 * 12 * TINY.operations(seen=12)  # torch counts what is not seen, too


def test_the_text_can_be_learned_and_is_always_the_same() -> None:
    first, again, other = (gpt_entrants.batch(TINY, 5, number, "cpu") for number in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    losses = gpt_entrants.losses("mallang", TINY.options(), 8, 100, device="cpu", engine="eager")
    assert sum(losses[-10:]) < sum(losses[:10]) - 1


def test_others_with_our_weights_compute_and_learn_the_same() -> None:
    pytest.importorskip("transformers")
    options = {"device": "cpu", "engine": "eager"}
    ours, theirs = (gpt_entrants.losses(who, TINY.options(), 3, 5, **options) for who in ("mallang", "hugging face"))
    assert ours == pytest.approx(theirs, abs=1e-5)


def test_a_turn_counts_its_tokens() -> None:
    turn = gpt_entrants.turn("mallang", TINY.options(), 3, 2, device="cpu", engine="eager")
    assert turn() == 2 * 3 * 12


@pytest.mark.parametrize("weights", ["float32", "int8"])
def test_ours_generates(weights: str) -> None:
    texts = generation_entrants.ours(TINY.options(), 2, 6, 3, weights, "cpu")() / 12
    assert texts == int(texts) > 0


def test_a_short_turn_is_taken_for_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(step=0.4)
    monkeypatch.setattr(contest, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    assert contest.for_a_second(lambda: 5.0)() == 10.0


@pytest.mark.parametrize("has_fp8", [True, False])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_entrant_names_a_function_and_its_options(
    device: str, has_fp8: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fp8, "is_supported", lambda device: has_fp8)
    training = gpt_speed.entrants_of(TINY, 2, 2, device, "model.py")
    entrants = [*training, *generation_speed.entrants_of(TINY, 1, 4, 2, device)]
    assert {"nanogpt", "hugging face"} <= {each.label.removesuffix(" compiled") for each in training}
    for each in entrants:
        module, _, function = each.place.partition(":")
        inspect.signature(getattr(import_module(module), function)).bind(**each.options)
    for each in training:
        assert each.options["system"] in gpt_entrants.UPDATES
    own = gpt_speed.entrants_of(TINY, 2, 2, device, "", peers=False)
    assert ("fp8" in {each.options.get("precision") for each in own}) == (has_fp8 and device == "cuda")
    assert own == [each for each in training if each.options["system"] == "mallang"]


def test_the_share_of_the_matmul() -> None:
    each = 3 * TINY.operations(6.5)
    (row,) = gpt_speed.rows_of({"x": Outcome(10.0, 3 * 2**20, "")}, TINY, rate=20 * each)
    assert row == ("x", 10.0, 3.0, pytest.approx(0.5))
