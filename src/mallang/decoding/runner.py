"""Runs decode steps with a dynamic KV cache, a static one, or as captured CUDA graphs; the host reads results rarely.

`Plain` uses a dynamic KV cache and drops finished sentences as soon as it sees them: short code, correct for any model.
`Reserved` uses a static KV cache, allocated for many steps and never reordered in memory. `Captured` runs the whole
search at fixed addresses: a step, from reading the tokens to reordering the hypotheses, is captured once as a CUDA
graph and then replayed, so that no kernel waits for Python.

    DecodeGraph   the buffers of one shape, and the decode step captured over them
    PrefillGraph  the captured prefill, for sources of one shape
    load          copy a search into the buffers of its shape: the unfinished rest of a batch moves to a smaller graph,
                  a long output to a larger one

Shapes are padded to a few bucket sizes, so that few graphs serve all batches; a padding row is a copy of a sentence
whose output is discarded. Graphs are cached for later batches, one prefill graph per prompt length, within a memory
budget. Graphs read the weights at their addresses: an update in place takes effect at once; when the weights move,
all graphs are dropped.

All three runners give the same outputs. A model whose state changes its shape from step to step, or which needs the
host, cannot be captured: it runs with the static KV cache, unless the static runner was requested by name.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from mallang.data.batch import Batch
from mallang.decoding.capture import NotStaticError, Pool, Replay, captures, leaves_of, shape_of, write
from mallang.decoding.compiling import compiled
from mallang.decoding.contract import Autoregressive, Config, Hypothesis, Rules, inference, is_in_training
from mallang.decoding.progress import CacheCapacity, Progress, Search
from mallang.errors import UserError
from mallang.kernels import decode_attention
from mallang.kernels.prepacked import PrepackedWeights
from mallang.layers.cache import map_nest

CHECK_EVERY = {"cuda": 8}
"""Steps between two checks for finished sentences, by device; 1 on others. A check makes the host wait for the GPU."""
MOST_GRAPHS = 32
"""Decode and prefill graphs cached per model: the least recently used one is evicted first."""
SHARE = 1 / 8
"""The fraction of a GPU's memory for all graphs of a model; the last prefill graph and its decode graph always stay."""
FIRST_STEPS = 32
"""The initial capacity of the static KV cache in steps; it doubles when it is full."""
FIRST_SLOTS = 2**14
"""Up to this many hypotheses × steps the KV cache is allocated for all steps, if attention reads valid slots only."""
ALIGN = 16
"""On a GPU slots and source positions are multiples of this, so that attention kernels need not pad their masks."""


def run(
    model: Autoregressive, batch: Batch, search: Search, config: Config, rules: Rules | None = None
) -> list[list[Hypothesis]]:
    """Search a batch with the runner that the configuration names: the outputs of every sentence."""
    device = batch.tokens.device
    on_gpu = captures(device)
    if config.compile and not on_gpu:
        raise UserError("decoding.compile has an effect on GPUs only, and this is a CPU", todo="leave it out")
    if config.runner == "plain":
        return drive(Plain(model, config), batch, search, rules)
    if on_gpu:
        with graphs_of(model) as graphs:
            full = False
            try:
                if not graphs.unsupported:
                    return drive(Captured(model, config, graphs), batch, search, rules)
            except torch.OutOfMemoryError:
                full = True  # many cached graphs fill the memory; a search without them needs far less
            except NotStaticError as error:
                graphs.unsupported = True
                if config.runner == "static":
                    raise UserError(
                        f"the steps of {type(model).__name__} cannot be captured: {error}",
                        todo="decoding.runner = auto",
                    ) from error
            if full:
                graphs.kept.clear()
                torch.cuda.empty_cache()
    return drive(Reserved(model, config), batch, search, rules)


def drive(runner: Plain, batch: Batch, search: Search, rules: Rules | None) -> list[list[Hypothesis]]:
    """Run a search to its end; every few steps, collect the finished sentences."""
    found: dict[int, list[Hypothesis]] = {}
    vocabulary, config = runner.model.vocabulary, runner.config
    device, most = batch.tokens.device, search.said.shape[1]
    # Custom kernels run on torch's current device, not on the device of their tensors.
    here = torch.cuda.device(device.index if device.type == "cuda" else -1)
    with inference(runner.model), here, PrepackedWeights().in_use():
        progress = runner.begin(batch, search, rules)
        for step in range(1, most):
            if step % check_every(device) == 0:
                stopped = progress.search.stopped.tolist()
                staying = [place for place, over in enumerate(stopped) if not over]
                if not staying:
                    break
                if len(staying) < len(stopped) and runner.worth(len(staying), len(stopped)):
                    done = progress.search.keep(places(stopped, device))
                    found.update(done.outputs(vocabulary, config))
                    progress = runner.keep(progress, staying)
            progress = runner.advance(progress)
        found.update(progress.search.outputs(vocabulary, config))
    return [found[number] for number in range(len(batch))]


class Plain:
    """Steps with a dynamic KV cache; nothing is kept for later batches."""

    def __init__(self, model: Autoregressive, config: Config) -> None:
        self.model, self.config = model, config

    def begin(self, batch: Batch, search: Search, rules: Rules | None) -> Progress:
        """Read the source and choose the first tokens."""
        return Progress.begin(self.model, batch, search, self.config, rules)

    def advance(self, progress: Progress) -> Progress:
        """One decode step."""
        return progress.advance(self.model, self.config)

    def worth(self, staying: int, places: int) -> bool:
        """Whether to drop finished sentences when `staying` of `places` are unfinished: always."""
        return True

    def keep(self, progress: Progress, staying: list[int]) -> Progress:
        """Keep these sentences only."""
        return progress.keep(torch.tensor(staying, device=progress.tokens.device))


class Reserved(Plain):
    """Steps with a static KV cache, allocated for many steps at once."""

    def __init__(self, model: Autoregressive, config: Config) -> None:
        super().__init__(model, config)
        self.steps, self.taken = FIRST_STEPS, 0

    def begin(self, batch: Batch, search: Search, rules: Rules | None) -> Progress:
        """Read the source and choose the first tokens, with a static KV cache."""
        return Progress.begin(self.model, batch, search, self.config, rules, CacheCapacity(self.steps))

    def advance(self, progress: Progress) -> Progress:
        """One decode step, in a larger cache if this one is full; attention reads the valid slots only."""
        progress = self.ensure_capacity(progress)
        self.taken += 1
        return replace(progress, state=progress.state.look(self.taken)).advance(self.model, self.config)

    def ensure_capacity(self, progress: Progress) -> Progress:
        """The progress, with a KV cache of twice the capacity if its own is full."""
        if self.taken < self.steps:
            return progress
        self.steps *= 2
        return replace(progress, state=progress.state.enlarge(self.steps))

    def worth(self, staying: int, places: int) -> bool:
        """Whether dropping the finished sentences saves more than copying the cache costs."""
        return 8 * staying <= 7 * places


class Captured(Reserved):
    """Steps replayed as CUDA graphs, over buffers with fixed addresses."""

    def __init__(self, model: Autoregressive, config: Config, graphs: GraphCache) -> None:
        super().__init__(model, config)
        self.graphs = graphs
        self.graph: DecodeGraph

    def begin(self, batch: Batch, search: Search, rules: Rules | None) -> Progress:
        """Read the source and choose the first tokens, in padded shapes, by a prefill graph."""
        inputs = pad_to_buckets(batch, search, rules)
        rows, limit = inputs[1].said.shape
        if search.width <= decode_attention.MOST and decode_attention.works():
            self.steps = min(limit, max(FIRST_STEPS, FIRST_SLOTS // rows))
        key = ("prefill", self.config, *shape_of(inputs))
        prefill = self.graphs.get(key)
        if prefill is None:
            prefill = self.graphs.put(key, PrefillGraph(self, inputs))
        else:
            prefill.run(inputs)
        self.graph = prefill.graph
        return self.graph.progress

    def advance(self, progress: Progress) -> Progress:
        """One decode step: replay its graph."""
        if (enlarged := self.ensure_capacity(progress)) is not progress:
            self.load(enlarged)
        self.taken += 1
        self.graph.replay()
        return self.graph.progress

    def worth(self, staying: int, places: int) -> bool:
        """Whether the unfinished sentences fit into a graph with fewer rows."""
        return bucket(staying) < places

    def keep(self, progress: Progress, staying: list[int]) -> Progress:
        """Keep these sentences only, in a smaller graph."""
        kept = super().keep(progress, pad_to_bucket(staying))
        return self.load(replace(kept, search=mark_padding(kept.search, len(staying))))

    def load(self, progress: Progress) -> Progress:
        """Copy a search into the buffers of the decode graph of its shape."""
        key = ("decode", self.config, *shape_of(progress))
        graph = self.graphs.get(key)
        if graph is None:
            graph = self.graphs.put(key, DecodeGraph(self, progress))
        else:
            write(graph.progress, progress)
        self.graph = graph
        return self.graph.progress


class PrefillGraph:
    """The captured prefill: reads sources of one shape and writes the first tokens into a decode graph's buffers."""

    def __init__(self, runner: Captured, inputs: tuple[Batch, Search, Rules | None]) -> None:
        model, config, room = held_weakly(runner.model), runner.config, CacheCapacity(runner.steps, ALIGN)
        batch, search, rules = held = map_nest(inputs, torch.clone)

        def begin() -> Progress:
            return Progress.begin(model(), batch, search, config, rules, room)

        runner.load(begin())
        self.inputs, self.graph = held, (graph := runner.graph)
        # The closure must not refer to `self`: a reference cycle would hold GPU memory until garbage collection.
        self.replay = Replay(lambda: write(graph.progress, begin()), runner.graphs.pool, warm_ups=0)

    def run(self, inputs: tuple[Batch, Search, Rules | None]) -> None:
        """Prefill another batch of the same shapes."""
        write(self.inputs, inputs)
        self.replay()


class DecodeGraph:
    """A decode step captured over the buffers of one shape."""

    def __init__(self, runner: Captured, progress: Progress) -> None:
        self.progress: Progress = map_nest(progress, torch.clone)
        held = self.progress
        self.size = sum(leaf.nbytes for leaf in leaves_of(held) if isinstance(leaf, Tensor))
        model, config = held_weakly(runner.model), runner.config
        step = compiled(len(held.tokens)) if config.compile else Progress.advance
        # The first step may extend the position table, and then the second is compiled again.
        warm_ups = 2 if config.compile else 1
        self.replay = Replay(lambda: write(held, step(held, model(), config)), runner.graphs.pool, warm_ups)


def held_weakly(model: Autoregressive) -> Callable[[], Any]:
    """A weak reference to the model, so that its graphs are freed together with it."""
    return weakref.ref(model) if isinstance(model, nn.Module) else lambda: model


@dataclass
class GraphCache:
    """The captured graphs of one model, least recently used first."""

    kept: OrderedDict[Any, Any] = field(default_factory=OrderedDict)
    weights: tuple[tuple[int, torch.Size], ...] = ()
    """The addresses and shapes of the weights when the graphs were captured."""
    unsupported: bool = False
    """Whether a capture of this model has failed: its state changes its shape, or it needs the host."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    pool: Pool = field(default_factory=Pool)

    def get(self, key: Any) -> Any:
        """The graph with this key, or None."""
        if key in self.kept:
            self.kept.move_to_end(key)
        return self.kept.get(key)

    def put(self, key: Any, value: Any) -> Any:
        """Add a graph, and evict the least recently used ones while there are too many."""
        self.kept[key] = value
        while len(self.kept) > MOST_GRAPHS or (len(self.kept) > 2 and not self.fit()):
            self.kept.popitem(last=False)
        return value

    def fit(self) -> bool:
        """Whether all graphs are within the memory budget, including decode graphs that only a prefill graph holds."""
        graphs = {each.graph if isinstance(each, PrefillGraph) else each for each in self.kept.values()}
        device = next(iter(graphs)).progress.tokens.device
        return sum(graph.size for graph in graphs) <= memory_budget(device)

    def check(self, model: object) -> None:
        """Drop all graphs if the weights have moved in memory or changed their shapes."""
        tensors = [*model.parameters(), *model.buffers()] if isinstance(model, nn.Module) else []
        weights = tuple((tensor.data_ptr(), tensor.shape) for tensor in tensors)
        if weights != self.weights:
            self.kept.clear()
        self.weights = weights


def memory_budget(device: torch.device) -> float:
    """The bytes that the graphs of one model may use on a device."""
    return SHARE * torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else math.inf


GRAPHS_OF: weakref.WeakKeyDictionary[Any, GraphCache] = weakref.WeakKeyDictionary()


@contextmanager
def graphs_of(model: Autoregressive) -> Iterator[GraphCache]:
    """The graphs of a model, locked for one search at a time; those of a model in training mode are dropped after."""
    if not isinstance(model, nn.Module):
        yield GraphCache()
        return
    graphs, training = GRAPHS_OF.setdefault(model, GraphCache()), is_in_training(model)
    with graphs.lock:
        graphs.check(model)
        try:
            yield graphs
        finally:
            if training:
                graphs.kept.clear()


def pad_to_buckets(batch: Batch, search: Search, rules: Rules | None) -> tuple[Batch, Search, Rules | None]:
    """Pad sentences, source positions and tokens to bucket sizes; padding rows repeat the last sentence."""
    sentences = len(batch)
    index = torch.tensor(pad_to_bucket(list(range(sentences))), device=batch.tokens.device)
    batch = batch.map(lambda tensor: tensor.index_select(0, index))
    if batch.source is not None:
        batch = replace(batch, source=pad(batch.source, (0, -batch.source.shape[1] % ALIGN)))
    search = mark_padding(search.keep(index), sentences)
    limit = search.said.shape[1]
    columns = torch.arange(bucket(limit, ALIGN), device=index.device).clamp(max=limit - 1)
    search = map_nest(search, lambda tensor: tensor.index_select(2, columns) if tensor.ndim == 3 else tensor)
    return batch, search, None if rules is None else rules.keep(index)


def mark_padding(search: Search, sentences: int) -> Search:
    """A search whose rows after the first `sentences` are padding: stopped, and without output."""
    spare = torch.arange(len(search.numbers), device=search.numbers.device) >= sentences
    changed = {"numbers": search.numbers.masked_fill(spare, -1), "stopped": search.stopped | spare}
    return replace(search, **changed)


def pad_to_bucket(places: list[int]) -> list[int]:
    """The places, with the last one repeated up to a bucket size."""
    return places + places[-1:] * (bucket(len(places)) - len(places))


def bucket(number: int, multiple: int = 1) -> int:
    """The bucket size of a number: the next of 1, 2, 3, 4, 6, 8, 12, 16, 24 … times `multiple`."""
    units, power = -(-number // multiple), 1
    while power < units:
        power *= 2
    return multiple * (power * 3 // 4 if power >= 4 and units <= power * 3 // 4 else power)


def places(chosen: list[bool], device: torch.device) -> Tensor:
    """The indices of the chosen."""
    return torch.tensor([place for place, one in enumerate(chosen) if one], device=device)


def check_every(device: torch.device) -> int:
    """The number of steps between two checks for finished sentences."""
    return CHECK_EVERY.get(device.type, 1)
