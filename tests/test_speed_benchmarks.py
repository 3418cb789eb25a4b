"""The parts of the speed benchmarks that need nobody else's packages, at a shape that takes no time."""

from __future__ import annotations

import fcntl
import sys
from contextlib import nullcontext
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from mallang.kernels.c_attention import TrainingAttention
from mallang.kernels.cross_entropy import Chunked
from mallang.kernels.linear import TrainingLinear
from mallang.layers.attention import record_attention

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the benchmarks are not installed
from benchmarks import (  # noqa: E402
    contest,
    decoding_entrants,
    decoding_speed,
    epoch_entrants,
    epoch_speed,
    profile_training,
    revisions,
    training_entrants,
    training_speed,
)
from benchmarks.contest import Entrant, Outcome, python_with, race  # noqa: E402
from benchmarks.shape import Shape  # noqa: E402

TINY = Shape(layers=1, dim=8, hidden_dim=16, heads=2, words=40, dropout=0.1, sentences=3, source=5, target=6)


def test_the_profile_knows_what_our_kernels_compute() -> None:
    known = {TrainingLinear: "matrix products", Chunked: "loss over the vocabulary", TrainingAttention: "attention"}
    for function, kind in known.items():
        for event in (function.__name__, f"{function.__name__}Backward"):
            assert profile_training.kind_of(event) == kind
    assert profile_training.kind_of("aten::copy_") == "other passes over memory"


def test_operations_are_those_that_torch_counts() -> None:
    model = decoding_entrants.our_model(TINY)
    source, target = training_entrants.random_ids(TINY)
    batch = replace(decoding_entrants.our_batch(source.tolist()), tokens=target[:, :-1])
    # Attention in plain steps: torch does not count in the fused kernel of a CPU.
    with FlopCounterMode(display=False) as counter, torch.no_grad(), record_attention(model):
        model.output(model(batch))
    hidden = TINY.target * (TINY.target - 1) / 2  # torch counts what causal attention does not see
    assert counter.get_total_flops() == TINY.operations() + 4 * TINY.sentences * TINY.layers * TINY.dim * hidden


def test_a_wider_search_writes_more_and_reads_the_same() -> None:
    one, two, three = (TINY.operations(width) for width in (1, 2, 3))
    assert three - two == two - one
    assert two < 2 * one


@pytest.mark.parametrize("beam", [1, 2])
@pytest.mark.parametrize("weights", ["float32", "int8"])
def test_ours_decodes(beam: int, weights: str) -> None:
    turn = decoding_entrants.ours(TINY.options(), beam, batches=2, weights=weights, device="cpu")
    assert turn() == 6


@pytest.mark.parametrize("name", ["ours", "torch_transformer"])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_training_entrants_train(name: str) -> None:
    turn = getattr(training_entrants, name)(TINY.options(), 2, "cpu", "eager")
    assert turn() == 2 * 3 * 6


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_the_transformer_of_torch_trains_plain_bfloat16_weights() -> None:
    turn = training_entrants.torch_transformer(TINY.options(), 2, "cpu", "eager", weights="bfloat16")
    assert turn() == 2 * 3 * 6
    labels = [entrant.label for entrant in training_speed.entrants_of(TINY, 2, "cuda")]
    assert "torch.nn.Transformer compiled bfloat16" in labels


def test_a_captured_update_is_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What capturing does is CUDA's; here only that the update runs before and while it is recorded."""
    ran: list[str] = []
    graph = type("Graph", (), {"replay": lambda self: ran.append("replay")})
    stream = type("Stream", (), {"wait_stream": lambda *_: None})
    for name, stand_in in {
        "Stream": stream, "current_stream": stream, "stream": nullcontext, "CUDAGraph": graph, "graph": nullcontext,
    }.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, stand_in)
    replay = training_entrants.captured(lambda: ran.append("update"))
    replay()
    assert ran == ["update"] * 4 + ["replay"]


def test_random_batches_hold_every_example_once() -> None:
    plan = epoch_entrants.random_plan(10, 4, epoch=0)
    assert [len(rows) for rows in plan] == [4, 4, 2]
    assert sorted(place for rows in plan for (place,) in rows) == list(range(10))
    assert plan != epoch_entrants.random_plan(10, 4, epoch=1)


@pytest.fixture(autouse=True)
def lock_of_our_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Tests do not wait for a benchmark that runs beside them."""
    monkeypatch.setattr(contest, "LOCK", tmp_path / "lock")
    return tmp_path / "lock"


def test_turns_are_taken_while_nobody_gets_ready(lock_of_our_own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[bool] = []

    def try_lock() -> float:
        with lock_of_our_own.open("w") as other:
            try:
                fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                held.append(True)
            else:
                held.append(False)
        return 1.0

    monkeypatch.setattr(contest.Runner, "get_ready", lambda self: try_lock())
    monkeypatch.setattr(contest.Runner, "turn", lambda self: self.rates.append(try_lock()))
    monkeypatch.setattr(contest.Runner, "ask", lambda self, word: {"peak": 1})
    race([Entrant("one", "benchmarks.contest:matmul", {"device": "cpu", "dtype": "float32"})], rounds=2)
    assert held == [False, True, True]


def test_a_race_times_those_who_are_there(capsys: pytest.CaptureFixture[str]) -> None:
    options = {"shape": TINY.options(), "updates": 1, "device": "cpu", "engine": "eager"}
    found = race(
        [
            Entrant("ours", "benchmarks.training_entrants:ours", options),
            Entrant("absent", "benchmarks.training_entrants:marian", options, ("no_such_package",)),
        ],
        rounds=1,
    )
    assert list(found) == ["ours"]
    assert found["ours"].rate > 0
    assert found["ours"].peak > 2**24
    assert f"torch {version('torch')}" in found["ours"].signature
    assert "absent is not measured: no_such_package" in capsys.readouterr().err
    assert python_with(()) == sys.executable


def test_an_older_commit_runs_its_own_code(tmp_path: Path) -> None:
    (tmp_path / "benchmarks").symlink_to(ROOT / "benchmarks")
    (tmp_path / "src" / "mallang").mkdir(parents=True)
    (tmp_path / "src" / "mallang" / "__init__.py").write_text("")
    (tmp_path / "turns.py").write_text(
        "import os\nimport mallang\n\n\ndef older():\n"
        "    assert mallang.__file__.startswith(os.getcwd())\n    return lambda: 1.0\n"
    )
    now, before, peer = revisions.entrants_of(tmp_path, {"beam": 1, "batches": 2, "weights": "float32"})
    assert now.tree == peer.tree == ROOT and before.tree == tmp_path and now.options == before.options
    turn = Entrant("before", "turns:older", {}, environment=before.environment, tree=before.tree)
    with contest.Runner(turn, sys.executable) as runner:
        runner.get_ready()
        runner.turn()
    assert runner.rates[0] > 0
    assert revisions.measure() == {}, "nothing without an older commit"


def test_a_ratio_of_commits_names_its_rates() -> None:
    rates = {revisions.NOW: Outcome(90.0, 1, ""), revisions.BEFORE: Outcome(100.0, 1, "")}
    assert revisions.protocol_of(rates, "8ebacd7", 3) == (
        "older commit 8ebacd7; sentences/s: this code 90.0, the older commit 100.0; "
        "each in a process of its own, by turns, median of 3"
    )


def test_an_entrant_that_fails_is_named() -> None:
    with pytest.raises(RuntimeError, match="broken ended with code 1"):
        race([Entrant("broken", "benchmarks.contest:no_such_function", {})], rounds=1)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_entrant_names_a_function_and_its_options(device: str) -> None:
    import inspect
    from importlib import import_module

    entrants = [*decoding_speed.entrants_of(TINY, 5, 2, device), *training_speed.entrants_of(TINY, 2, device)]
    assert entrants[0].label.startswith("mallang")
    for each in entrants:
        module, _, function = each.place.partition(":")
        inspect.signature(getattr(import_module(module), function)).bind(**each.options)


def test_the_figures_beside_a_speed() -> None:
    outcome = Outcome(rate=10.0, peak=3 * 2**20, signature="")
    (row,) = decoding_speed.rows_of({"x": outcome}, TINY, 2, rate=TINY.operations(2) * 10, per_token=True)
    assert row == ("x", 60.0, 3.0, pytest.approx(1 / 3))


def test_what_joeynmt_is_told_is_the_same_model() -> None:
    told = epoch_speed.joeynmt_settings("folder", 100)["model"]
    assert told["encoder"] == told["decoder"]
    assert (told["encoder"]["num_layers"], told["encoder"]["hidden_size"]) == (3, 256)
