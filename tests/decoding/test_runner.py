"""Plain, reserved and captured steps give the same outputs, for every model and every search."""

from __future__ import annotations

import gc
import itertools
import os
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from contracts.test_decoding import KINDS, Kind, same
from contracts.toy_models import GRU, Table, empty_batch, random_gru, random_table, source_batch, tiny_vocabulary
from mallang.data.batch import Batch
from mallang.decoding import capture, precision, runner
from mallang.decoding.contract import METHODS, Config, Hypothesis, begin, inference, is_in_training
from mallang.decoding.ensemble import Ensemble
from mallang.decoding.prompted import Prompted, prompt_batch
from mallang.decoding.search import search
from mallang.errors import UserError
from mallang.layers.cache import State
from mallang.layers.quantization import quantize
from mallang.models import transformer
from mallang.text.vocabulary import Vocabulary

SOURCES = [[4, 5], [5], [4, 4, 5, 1, 4, 4, 5, 1, 5, 5, 5, 5], [], [5, 5, 5]]


def ensemble(vocabulary: Vocabulary, seed: int) -> Ensemble:
    kinds = ("toy gru", "transformer", "toy table")
    return Ensemble([KINDS[kind].build(vocabulary, seed + place) for place, kind in enumerate(kinds)])


def restricted(vocabulary: Vocabulary, seed: int) -> transformer.Transformer:
    """Every option that the cache has to do with: a window, learned positions, norms first, uneven heads."""
    torch.manual_seed(seed)
    shape = {"layers": 2, "dim": 12, "heads": 3, "hidden_dim": 16, "key_dim": 3, "value_dim": 5}
    options: dict[str, Any] = {
        "window": 2,
        "norm": "pre",
        "positions": "learned",
        "max_length": 17,
        "tie_weights": "none",
    }
    return transformer.Transformer(transformer.Config(**shape, **options), vocabulary, vocabulary)


class Forgetful(nn.Module):
    """Says the same whatever was said: its moving state is empty."""

    def __init__(self, vocabulary: Vocabulary, seed: int) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        logits = torch.randn(len(vocabulary), len(vocabulary), generator=torch.Generator().manual_seed(seed))
        self.register_buffer("logits", logits)

    def start(self, batch: Batch) -> State:
        return State(fixed=self.logits[batch.source[:, 0]], moving=())

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        width = len(tokens) // len(state.fixed)
        return state.fixed.repeat_interleave(width, 0)[:, None].expand(-1, tokens.shape[1], -1), state


EVERY: dict[str, Kind] = {
    **KINDS,
    "ensemble": Kind(ensemble),
    "restricted": Kind(restricted),
    "forgetful": Kind(Forgetful),
}
every_kind = pytest.mark.parametrize("kind", EVERY.values(), ids=EVERY.keys())
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@dataclass
class FakeGraph:
    """What a CUDA graph does, as slowly as before; what cannot be captured is refused."""

    run: Callable[[], None]

    def replay(self) -> None:
        with WithoutHost():
            self.run()


class WithoutHost(TorchDispatchMode):
    """No operation may read a value on the host, or copy one from it."""

    REFUSED = ("aten._local_scalar_dense", "aten.nonzero", "aten.lift_fresh", "aten.equal", "aten.is_nonzero")

    def __torch_dispatch__(self, operation: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        assert not str(operation).startswith(self.REFUSED), operation
        return operation(*arguments, **(options or {}))


@contextmanager
def pretend_to_capture(first_steps: int = 3) -> Iterator[list[Callable[[], None]]]:
    """Everything of the captured runner but the capture: cached graphs, bucketed shapes, counters that are tensors."""
    captured: list[Callable[[], None]] = []

    def remember(run: Callable[[], None], pool: capture.Pool) -> FakeGraph:
        captured.append(run)
        return FakeGraph(run)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "captures", lambda device: True)
        patch.setattr(runner, "CHECK_EVERY", {"cpu": 3})
        patch.setattr(runner, "FIRST_STEPS", first_steps)
        patch.setattr(runner, "ALIGN", 4)
        patch.setattr(capture, "capture", remember)
        yield captured


@st.composite
def configs(draw: st.DrawFn) -> Config:
    common = {
        "max_length": draw(st.integers(1, 19)),
        "max_ratio": draw(st.sampled_from([0.0, 1.0, 3.0])),
        "length_penalty": draw(st.sampled_from(["average", "none", "gnmt"])),
    }
    common["min_length"] = draw(st.integers(1, common["max_length"]))
    method = draw(st.sampled_from(["greedy", "beam", "beam", "sampling"]))
    if method == "beam":
        beam = draw(st.integers(1, 5))
        own = {
            "beam": beam,
            "nbest": draw(st.integers(1, beam)),
            "stop": draw(st.sampled_from(["optimal", "complete"])),
        }
    elif method == "sampling":
        own = {
            "nbest": draw(st.integers(1, 3)),
            "seed": draw(st.integers(0, 99)),
            "top_k": draw(st.sampled_from([0, 3])),
            "top_p": draw(st.sampled_from([1.0, 0.7])),
        }
    else:
        own = {}
    return Config(method=method, **common, **own)


def some(sources: list[list[int]], kind: Kind, data: st.DataObject) -> Batch:
    return kind.batch(data.draw(st.lists(st.sampled_from(sources), min_size=1, max_size=7)))


@every_kind
@given(seed=st.integers(0, 1000), config=configs(), data=st.data())
@settings(deadline=None, max_examples=4)
def test_reserved_memory_gives_what_plain_steps_do(kind: Kind, seed: int, config: Config, data: st.DataObject) -> None:
    model, batch = kind.build(tiny_vocabulary(5), seed), some(SOURCES, kind, data)
    expected = search(model, batch, replace(config, runner="plain"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "FIRST_STEPS", data.draw(st.integers(1, 32)))
        same(search(model, batch, replace(config, runner="static")), expected)


@every_kind
@given(seed=st.integers(0, 1000), config=configs(), data=st.data())
@settings(deadline=None, max_examples=3)
def test_captured_steps_give_what_plain_steps_do(kind: Kind, seed: int, config: Config, data: st.DataObject) -> None:
    """Three batches one after another, so that graphs are used again, and weights changed in place between them."""
    model = kind.build(tiny_vocabulary(5), seed)
    static = replace(config, runner="static")
    with pretend_to_capture(first_steps=data.draw(st.sampled_from([1, 3, 32]))):
        for _ in range(3):
            batch = some(SOURCES, kind, data)
            same(search(model, batch, static), search(model, batch, replace(config, runner="plain")))
            with torch.no_grad():
                for weight in itertools.chain(model.parameters(), model.buffers()):
                    if weight.is_floating_point():  # what must be zero stays so, and a probability above it
                        weight.mul_(2 * torch.rand(weight.shape, generator=torch.Generator().manual_seed(seed)))


@needs_gpu
@every_kind
@given(seed=st.integers(0, 1000), config=configs(), data=st.data())
@settings(deadline=None, max_examples=6)
def test_a_gpu_gives_what_plain_steps_do(kind: Kind, seed: int, config: Config, data: st.DataObject) -> None:
    model = kind.build(tiny_vocabulary(5), seed)
    exact = replace(config, precision="fp32")
    expected, batches = [], [some(SOURCES, kind, data) for _ in range(3)]
    for batch in batches:
        expected.append(search(model, batch, replace(exact, runner="plain")))
    model.cuda()
    how = "auto" if kind is KINDS["ngram"] else "static"  # how many n-grams begin with a history is asked of the host
    for batch, want in zip(batches, expected, strict=True):
        same(search(model, batch.to("cuda"), replace(exact, runner=how)), want)


def test_graphs_are_dropped_where_weights_have_moved_or_grown() -> None:
    table, model, graphs = torch.zeros(4, 2), nn.Module(), runner.GraphCache()
    for rows, kept in ((3, False), (3, True), (4, False), (4, True)):  # the same place all the time
        model.register_buffer("rows", table[:rows])
        graphs.kept["key"] = "graph"
        graphs.check(model)
        assert ("key" in graphs.kept) == kept
    model.register_buffer("rows", table.clone())
    graphs.check(model)
    assert not graphs.kept


@needs_gpu
def test_a_gpu_captures_again_after_all_graphs_are_gone() -> None:
    model, batch = KINDS["toy gru"].build(tiny_vocabulary(5), 1).cuda(), source_batch(SOURCES).to("cuda")
    for _ in range(3):
        search(model, batch, Config(runner="static", precision="fp32"))
        graphs = runner.GRAPHS_OF[model]
        graphs.kept.clear()
        assert not graphs.pool.graphs and not graphs.unsupported


def test_without_memory_for_graphs_it_runs_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: Any) -> Any:
        raise torch.OutOfMemoryError("none left")

    model, batch = KINDS["toy gru"].build(tiny_vocabulary(5), 1), source_batch(SOURCES)
    expected = search(model, batch, Config(runner="plain"))
    monkeypatch.setattr(runner, "DecodeGraph", no_room)
    with pretend_to_capture():
        same(search(model, batch, Config()), expected)


@needs_gpu
def test_a_gpu_replays_what_it_captured() -> None:
    check_replaying(compile=False)


@needs_gpu
@pytest.mark.slow
def test_a_gpu_replays_what_it_compiled() -> None:
    """Apart from the rest, since shapes in signatures are checked here and a compiler cannot look through that."""
    folder = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, __file__],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


@needs_gpu
def test_a_gpu_replays_a_single_row() -> None:
    check_single_row(compile=False)


def check_single_row(compile: bool) -> None:
    model = Prompted(KINDS["gpt"].build(tiny_vocabulary(501), 1).cuda().eval())
    batch = prompt_batch([[2, 4, 5, 6]]).to("cuda")
    config = Config(method="greedy", max_length=40, min_length=40, precision="fp32", runner="static", compile=compile)
    for _ in range(3):
        same(search(model, batch, config), search(model, batch, replace(config, runner="plain", compile=False)))


def check_replaying(compile: bool) -> None:
    model = KINDS["transformer"].build(tiny_vocabulary(500), 1).cuda().eval()
    batch = source_batch([[4, 5, 6, 7]] * 6).to("cuda")
    config = Config(max_length=12, min_length=12, precision="fp32", runner="static", compile=compile)
    plain = replace(config, runner="plain", compile=False)
    for _ in range(3):
        same(search(model, batch, config), search(model, batch, plain))
    kept = runner.GRAPHS_OF[model].kept
    assert len(kept) == 2 and all(each.replay.graph is not None for each in kept.values())
    with torch.no_grad():
        model.head.weight.mul_(-1.0)
    same(search(model, batch, config), search(model, batch, plain))


@needs_gpu
def test_a_gpu_decodes_in_bfloat16() -> None:
    model, batch = KINDS["transformer"].build(tiny_vocabulary(500), 1).cuda().eval(), source_batch(SOURCES).to("cuda")
    assert precision.usual(model) == "bf16"
    assert precision.at_precision(model, Config(method="best-first")) is model
    rough, exact = (
        search(model, batch, Config(max_length=9)),
        search(model, batch, Config(max_length=9, precision="fp32")),
    )
    for one, other in zip(itertools.chain(*rough), itertools.chain(*exact), strict=True):
        assert one.normalized == pytest.approx(other.normalized, abs=0.2)


def test_nothing_is_captured_twice_and_memory_stays_where_it_is() -> None:
    model, config = KINDS["transformer"].build(tiny_vocabulary(5), 1), Config(max_length=9, min_length=9)
    model.eval()
    with pretend_to_capture() as captured:
        search(model, source_batch([[4, 5]] * 3), config)
        search(model, source_batch([[5, 4, 4]] * 3), config)
        graphs = runner.GRAPHS_OF[model].kept
        pointers = sorted(leaf.data_ptr() for graph in graphs.values() for leaf in tensors_of(graph))
        count = len(captured)
        assert 0 < count <= len(graphs)
        search(model, source_batch([[5], [4], [4, 5, 4]]), config)
        assert len(captured) == count
        assert pointers == sorted(leaf.data_ptr() for graph in graphs.values() for leaf in tensors_of(graph))


def test_containers_of_models_keep_graphs_as_models_do() -> None:
    prompted = Prompted(KINDS["gpt"].build(tiny_vocabulary(5), 1).eval())
    members = [KINDS["transformer"].build(tiny_vocabulary(5), seed).eval() for seed in (1, 2)]
    for model, batch in ((prompted, prompt_batch([[2, 4]])), (Ensemble(members), source_batch([[4, 5]]))):
        with pretend_to_capture() as captured:
            for _ in range(2):
                search(model, batch, Config(max_length=9, min_length=9))
            count = len(captured)
            search(model, batch, Config(max_length=9, min_length=9))
            assert 0 < len(captured) == count
    assert not is_in_training(prompted)
    assert is_in_training(Prompted(KINDS["gpt"].build(tiny_vocabulary(5), 1).train()))


def tensors_of(graph: Any) -> list[Tensor]:
    nest = graph.progress if isinstance(graph, runner.DecodeGraph) else graph.inputs
    return [leaf for leaf in capture.leaves_of(nest) if isinstance(leaf, Tensor)]


def test_keys_and_values_are_never_moved_while_nobody_leaves() -> None:
    model = KINDS["transformer"].build(tiny_vocabulary(5), 1).eval()
    seen: list[list[int]] = []
    step = model.step

    def watched(tokens: Tensor, state: State) -> tuple[Tensor, State]:
        logits, after = step(tokens, state)
        seen.append([part.data_ptr() for layer in after.moving.layers for part in layer])
        return logits, after

    model.step = watched
    search(model, source_batch([[4, 5]] * 3), Config(max_length=18, min_length=18, runner="static"))
    assert len(seen) == 18 and len({tuple(pointers) for pointers in seen[1:]}) == 1


def test_graphs_are_few_and_are_freed_with_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "MOST_GRAPHS", 4)
    model, config = KINDS["transformer"].build(tiny_vocabulary(5), 1), Config(max_length=6)
    model.eval()
    with pretend_to_capture():
        for count in (1, 2, 3, 5, 7):
            search(model, source_batch([[4, 5]] * count), config)
        assert len(runner.GRAPHS_OF[model].kept) == 4
        search(model.train(), source_batch([[4, 5]]), config)
        assert not runner.GRAPHS_OF[model].kept, "training needs the memory"
        search(model.eval(), source_batch([[4, 5]]), config)
    alive = weakref.ref(model)
    del model
    gc.collect()
    assert alive() is None


def test_graphs_stay_within_the_memory_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    model, config = Prompted(KINDS["gpt"].build(tiny_vocabulary(5), 1).eval()), Config(max_length=6, min_length=6)

    def kept_after(*lengths: int) -> dict[Any, Any]:
        for length in lengths:
            search(model, prompt_batch([[2] * length]), config)
        return runner.GRAPHS_OF[model].kept

    with pretend_to_capture(first_steps=6):
        one = kept_after(1)
        most = sum(graph.size for graph in one.values() if isinstance(graph, runner.DecodeGraph))
        assert len(one) == 2 and most > 0
        assert len(kept_after(2, 3)) == 6
        monkeypatch.setattr(runner, "memory_budget", lambda device: 3 * most)
        assert len(kept_after(9)) == 4, "prompts of 3 and of 9 tokens"
        monkeypatch.setattr(runner, "memory_budget", lambda device: 0)
        assert len(kept_after(10)) == 2, "the last one stays"


def test_weights_that_moved_are_followed() -> None:
    model, batch = KINDS["transformer"].build(tiny_vocabulary(5), 1).eval(), source_batch(SOURCES)
    other = KINDS["transformer"].build(tiny_vocabulary(5), 2)
    config = Config(max_length=6)
    with pretend_to_capture():
        search(model, batch, config)
        model.load_state_dict(other.state_dict(), assign=True)
        same(search(model, batch, config), search(other, batch, replace(config, runner="plain")))


class Growing(Table):
    """Remembers all tokens by itself: what it remembers changes its shape."""

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        logits, after = super().step(tokens, State(state.fixed, state.moving[:, -2:]))
        return logits, State(after.fixed, torch.cat([state.moving, tokens], dim=1))


class Counting(GRU):
    """Counts its steps in a plain number, which a captured graph could not."""

    def start(self, batch: Batch) -> State:
        state = super().start(batch)
        return State(state.fixed, {**state.moving, "steps": 0})

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        logits, after = super().step(tokens, state)
        return logits + state.moving["steps"], State(after.fixed, {**after.moving, "steps": state.moving["steps"] + 1})


@pytest.mark.parametrize("growing", [True, False])
def test_a_model_that_cannot_be_captured_is_run_otherwise(growing: bool) -> None:
    vocabulary, table, gru = tiny_vocabulary(5), random_table(tiny_vocabulary(5), 3), random_gru(tiny_vocabulary(5), 3)
    model: Any = Growing(vocabulary, table.logits, table.source) if growing else Counting(vocabulary)
    if not growing:
        model.load_state_dict(gru.state_dict())
    batch, config = source_batch(SOURCES), Config(max_length=8, min_length=3)
    expected = search(table if growing else gru, batch, replace(config, runner="plain"))
    same(search(model, batch, replace(config, runner="static")), expected)  # on a CPU nothing is captured
    with pretend_to_capture():
        same(search(model, batch, config), expected)
        assert runner.GRAPHS_OF[model].unsupported
        same(search(model, batch, config), expected)
        runner.GRAPHS_OF[model].unsupported = False
        with pytest.raises(UserError, match="cannot be captured: its state changes its shape"):
            search(model, batch, replace(config, runner="static"))


def test_a_model_need_not_be_a_module() -> None:
    table = random_table(tiny_vocabulary(5), 3)

    class Bare:
        vocabulary = table.vocabulary
        start, step = staticmethod(table.start), staticmethod(table.step)

    config = Config(max_length=8)
    with pretend_to_capture():
        same(search(Bare(), source_batch(SOURCES), config), search(table, source_batch(SOURCES), config))
    with pytest.raises(UserError, match="not a torch module"):
        search(Bare(), source_batch(SOURCES), replace(config, precision="bf16"))


@dataclass(frozen=True)
class Forbidden:
    """One word of each sentence is not to be said, and none twice running."""

    word: Tensor

    def apply(self, log_probs: Tensor, labels: Tensor, said: Tensor) -> Tensor:
        words = self.word.repeat_interleave(len(log_probs) // len(self.word))[:, None]
        last = labels.gather(1, (said - 1).clamp(min=0).expand(len(labels), 1))
        return log_probs.scatter(1, words, -torch.inf).scatter(1, last, -torch.inf)

    def keep(self, sentences: Tensor) -> Forbidden:
        return Forbidden(self.word[sentences])


@pytest.mark.parametrize("method", ["greedy", "beam", "sampling"])
@pytest.mark.parametrize("static", [False, True])
def test_rules_are_obeyed(method: Any, static: bool) -> None:
    model, batch = random_gru(tiny_vocabulary(6), seed=5), source_batch(SOURCES)
    words = [4, 5, 6, 7, 8]
    config = Config(method=method, max_length=14, min_length=4, runner="static" if static else "plain")

    def check() -> list[list[Hypothesis]]:
        found = search(model, batch, config, rules=Forbidden(torch.tensor(words)))
        for (one, *_), word in zip(found, words, strict=True):
            assert word not in one.tokens and len(one.tokens) >= 3
            assert all(left != right for left, right in itertools.pairwise(one.tokens))
        return found

    found = check()
    if static:
        with pretend_to_capture():
            same(check(), found)
            same(check(), found)


@pytest.mark.parametrize("method", METHODS)
def test_outputs_have_their_least_length(method: Any) -> None:
    model = random_table(tiny_vocabulary(1), 3)
    model.logits[:, :, 3] += 3.0  # it would rather end
    for least in (1, 3, 5):
        config = Config(method=method, max_length=5, min_length=least)
        lengths = [len(one.token_scores) for found in search(model, source_batch([[4], []]), config) for one in found]
        assert min(lengths) >= least
    assert all(len(one[0].token_scores) == 1 for one in search(model, empty_batch(2), Config(method="greedy")))


@pytest.mark.parametrize("method", METHODS)
def test_the_least_length_forbids_no_more_than_it_says(method: Any) -> None:
    """A model that would end at once ends as soon as it may: `</s>` counts as a token."""
    model = random_table(tiny_vocabulary(1), 3)
    model.logits[:, :, 3] += 40.0
    for least in (1, 2, 3, 5):
        found = search(model, source_batch([[4], []]), Config(method=method, max_length=6, min_length=least))
        assert [len(one.token_scores) for (one,) in found] == [least, least]
        assert all(one.finished for (one,) in found)


def test_bfloat16_is_close_and_follows_the_weights() -> None:
    model, batch = KINDS["transformer"].build(tiny_vocabulary(5), 1), source_batch(SOURCES)
    for _ in range(2):
        rough = precision.at_precision(model, Config(precision="bf16"))
        assert {weight.dtype for weight in rough.parameters()} == {torch.bfloat16}
        with inference(model), inference(rough):
            exact, near = begin(model, batch)[0], begin(rough, batch)[0]
        assert near.dtype == torch.float32
        seen = exact > -torch.inf
        assert 0 < (near - exact)[seen].abs().max() < 0.1
        with torch.no_grad():
            model.head.weight.mul_(-2.0)
    assert precision.at_precision(model, Config(precision="fp32")) is model
    assert precision.at_precision(model, Config()) is model, "a CPU is exact unless told otherwise"
    found = search(model, batch, Config(precision="bf16", max_length=8))
    assert found[2][0].score == pytest.approx(search(model, batch, Config(max_length=8))[2][0].score, abs=1.0)


def test_one_copy_serves_however_long_outputs_become() -> None:
    model: Any = KINDS["transformer"].build(tiny_vocabulary(5), 1)
    config = Config(precision="bf16")
    rough: Any = precision.at_precision(model, config)
    rough.embedding.positions(2000)  # a long output
    assert precision.at_precision(model, config) is rough
    model.embedding.positions(9000)
    assert precision.at_precision(model, config) is rough
    assert len(rough.embedding.positions.table) == 4000 and rough.embedding.positions.table.dtype == torch.bfloat16
    assert {id(each) for each in precision.weights_of(model)} >= {id(each) for each in model.parameters()}
    with torch.no_grad():
        model.embedding.table.weight.add_(1.0)
    assert precision.at_precision(model, config) is rough
    assert torch.equal(rough.embedding.table.weight, model.embedding.table.weight.bfloat16())


def test_other_weights_are_copied_anew() -> None:
    model = random_table(tiny_vocabulary(5), 1)
    rough = precision.at_precision(model, Config(precision="bf16"))
    model.logits = torch.cat([model.logits, model.logits])
    assert precision.at_precision(model, Config(precision="bf16")) is not rough


def test_integers_are_not_made_bfloat16() -> None:
    model = quantize(KINDS["transformer"].build(tiny_vocabulary(5), 1))
    with pytest.raises(UserError, match="8-bit integers"):
        search(model, source_batch(SOURCES), Config(precision="bf16", max_length=4))
    assert search(model, source_batch(SOURCES), Config(max_length=4))


def test_no_graphs_are_left_where_a_search_fails_in_training() -> None:
    model = KINDS["transformer"].build(tiny_vocabulary(5), 1).train()
    with pretend_to_capture(), pytest.raises(KeyError), runner.graphs_of(model) as graphs:
        graphs.put("graph", "memory")
        raise KeyError
    assert not runner.GRAPHS_OF[model].kept


def test_compiling_is_for_gpus() -> None:
    with pytest.raises(UserError, match="compile has an effect on GPUs only"):
        search(random_table(tiny_vocabulary(2), 1), source_batch([[4]]), Config(compile=True))


@pytest.mark.parametrize(("number", "multiple", "expected"), [(1, 1, 1), (3, 1, 3), (5, 1, 6), (7, 1, 8), (9, 1, 12)])
def test_the_short_list(number: int, multiple: int, expected: int) -> None:
    assert runner.bucket(number, multiple) == expected
    assert runner.bucket(100, 16) == 128 and runner.bucket(90, 16) == 96 and runner.bucket(128) == 128


def test_a_view_of_the_memory_is_read_before_it_is_overwritten() -> None:
    held = {"a": torch.tensor([1, 2]), "b": torch.tensor([3, 4])}
    capture.write(held, {"a": held["b"], "b": held["a"]})
    assert held["a"].tolist() == [3, 4] and held["b"].tolist() == [1, 2]
    with pytest.raises(capture.NotStaticError):
        capture.write(held, {"a": torch.tensor([1]), "b": held["a"]})


if __name__ == "__main__":
    check_replaying(compile=True)
    check_single_row(compile=True)


@pytest.mark.parametrize("name", ["gpt", "rnn_lm", "conv_lm"])
def test_captured_steps_go_on_from_prompts(name: str) -> None:
    """Prompts of other lengths and other numbers of them, through the same graphs."""
    vocabulary = tiny_vocabulary(5)
    model = Prompted(KINDS[name].build(vocabulary, 3))
    config = Config(method="greedy", max_length=9, min_length=9, runner="static")
    batches = [prompt_batch([[2, *row] for row in rows]) for rows in ([[4, 5]], [[5, 5, 4]] * 3, [[], []], [[5, 4]])]
    with pretend_to_capture() as captured:
        for batch in (*batches, *batches):
            same(search(model, batch, config), search(model, batch, replace(config, runner="plain")))
    assert captured
