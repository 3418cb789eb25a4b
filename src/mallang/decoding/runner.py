"""Who runs the steps of a search, and when the host looks at them.

`Plain` steps with memory that grows, and lets finished sentences go as soon as it sees them: short, and right for any
model. `Static` reserves memory and steps in it, shapes unchanged; on a GPU the whole step, from reading the tokens to
reordering the hypotheses, is captured once as a CUDA graph and then replayed, so that no kernel waits for Python.

    seat    memory of one shape, and the captured step that works in it
    sit     copy a search into the seat of its shape; what is left of a batch moves to a smaller seat, a long output to
            a larger one

Shapes come from a short list, so few seats serve all batches; a place without a sentence is filled by a copy of one,
of which nothing is heard. A seat is kept for the next batch. The weights are read where they lie: changed in place,
they work at once; moved, all seats are given up.

Both give the same outputs. A model whose memory changes its shape from step to step cannot be captured and is run
plainly, unless the static runner was asked for by name.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from mallang.data.batch import Batch
from mallang.decoding.contract import Autoregressive, Config, Hypothesis, Rules, inference
from mallang.decoding.progress import Progress, Room, Search
from mallang.errors import UserError
from mallang.layers.cache import Nest, map_nest

LOOK_EVERY = {"cuda": 8}
"""After how many steps the host looks which sentences are done, by device; 1 on others. Looking makes a GPU wait."""
SEATS = 24
"""Seats kept for a model: the least recently used one goes first."""
FIRST_STEPS = 32
"""Steps that memory is reserved for at first; when they are used up, for twice as many."""
ALIGN = 16
"""On a GPU slots and source positions come in multiples of this: the attention kernels need not pad their masks."""


def run(
    model: Autoregressive, batch: Batch, search: Search, config: Config, rules: Rules | None = None
) -> list[list[Hypothesis]]:
    """The outputs of every sentence, by the runner that the configuration asks for."""
    if config.runner == "plain" or (config.runner == "auto" and growing(model)):
        return drive(Plain(model, config), batch, search, rules)
    with seats_of(model) as seats:
        try:
            return drive(Static(model, config, seats), batch, search, rules)
        except NotStaticError as error:
            if config.runner == "static":
                raise UserError(
                    f"the static runner cannot run {type(model).__name__}: {error}", todo="decoding.runner = plain"
                ) from error
            seats.growing = True
    return drive(Plain(model, config), batch, search, rules)


def drive(runner: Plain | Static, batch: Batch, search: Search, rules: Rules | None) -> list[list[Hypothesis]]:
    """Step by step to the end; every few steps see which sentences are done."""
    found: dict[int, list[Hypothesis]] = {}
    vocabulary, config = runner.model.vocabulary, runner.config
    device, most = batch.tokens.device, search.said.shape[1]
    with inference(runner.model):
        progress = runner.begin(batch, search, rules)
        for step in range(1, most):
            if step % look_every(device) == 0:
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
    """Memory grows; nothing is kept."""

    def __init__(self, model: Autoregressive, config: Config) -> None:
        self.model, self.config = model, config

    def begin(self, batch: Batch, search: Search, rules: Rules | None) -> Progress:
        """Read the source and choose the first tokens."""
        return Progress.begin(self.model, batch, search, self.config, rules)

    def advance(self, progress: Progress) -> Progress:
        """One step."""
        return progress.advance(self.model, self.config)

    def worth(self, staying: int, places: int) -> bool:
        """Always."""
        return True

    def keep(self, progress: Progress, staying: list[int]) -> Progress:
        """Go on with these sentences only."""
        return progress.keep(torch.tensor(staying, device=progress.tokens.device))


class Static:
    """Memory is reserved; steps are captured where there is a GPU."""

    def __init__(self, model: Autoregressive, config: Config, seats: Seats) -> None:
        self.model, self.config, self.seats = model, config, seats
        self.steps, self.taken = FIRST_STEPS, 0
        self.seat: Seat

    def begin(self, batch: Batch, search: Search, rules: Rules | None) -> Progress:
        """Read the source and choose the first tokens, in shapes from the short list."""
        align = 1
        if batch.tokens.is_cuda:
            batch, search, rules = filled_up(batch, search, rules)
            align = ALIGN
        return self.sit(Progress.begin(self.model, batch, search, self.config, rules, Room(self.steps, align)))

    def advance(self, progress: Progress) -> Progress:
        """One step, in more room if the room is used up."""
        if self.taken == self.steps:
            self.steps *= 2
            progress = self.sit(replace(progress, state=progress.state.enlarge(self.steps)))
        self.taken += 1
        return self.seat.step(self.taken)

    def worth(self, staying: int, places: int) -> bool:
        """On a GPU if a smaller seat is large enough; elsewhere if copying the memory costs less than it saves."""
        if self.seat.captures:
            return short_list(staying) < places
        return 8 * staying <= 7 * places

    def keep(self, progress: Progress, staying: list[int]) -> Progress:
        """Go on with these sentences only, in a smaller seat."""
        kept = progress.keep(torch.tensor(filled(staying, self.seat.captures), device=progress.tokens.device))
        return self.sit(replace(kept, search=hushed(kept.search, len(staying))))

    def sit(self, progress: Progress) -> Progress:
        """Copy a search into the seat of its shape."""
        self.seat = self.seats.seat_for(progress, self.model, self.config)
        return self.seat.progress


class Seat:
    """Memory of one shape, and the step that works in it; the second step is captured, the first warms up."""

    def __init__(self, progress: Progress, model: Autoregressive, config: Config, pool: Any) -> None:
        self.captures = progress.tokens.is_cuda
        self.progress = map_nest(progress, torch.clone) if self.captures else progress
        self.model, self.config, self.pool = model, config, pool
        self.warm = False
        self.graph: Any = None

    def fill(self, progress: Progress) -> None:
        """Take over another search of the same shape."""
        write(self.progress, progress)

    def step(self, taken: int) -> Progress:
        """One step, the search's `taken`th since room was reserved."""
        if not self.captures:
            self.progress = replace(self.progress, state=self.progress.state.look(taken))
            self.run()
        elif self.graph is not None:
            self.graph.replay()
        elif not self.warm:
            self.warm = True
            self.run()
        else:
            self.graph = capture(self.run, self.pool)
            self.graph.replay()
        return self.progress

    def run(self) -> None:
        """The step itself: everything stays where it is."""
        write(self.progress, self.progress.advance(self.model, self.config))


def capture(run: Callable[[], None], pool: Any) -> Any:
    """What `run` does as a CUDA graph; a step that needs the host cannot be captured."""
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, pool=pool):
            run()
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise NotStaticError(str(error)) from error
    return graph


@dataclass
class Seats:
    """The seats of one model."""

    kept: OrderedDict[Any, Seat] = field(default_factory=OrderedDict)
    weights: tuple[int, ...] = ()
    growing: bool = False
    """Whether the model's memory was seen to change its shape."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    pool: Any = None

    def seat_for(self, progress: Progress, model: Autoregressive, config: Config) -> Seat:
        """The seat of this shape with the search in it; on a CPU, where nothing is captured, always a new one."""
        if not progress.tokens.is_cuda:
            return Seat(progress, model, config, None)
        self.pool = self.pool or torch.cuda.graph_pool_handle()
        key = (config, shape_of(progress))
        if key in self.kept:
            self.kept.move_to_end(key)
            self.kept[key].fill(progress)
        else:
            while len(self.kept) >= SEATS:
                self.kept.popitem(last=False)
            self.kept[key] = Seat(progress, model, config, self.pool)
        return self.kept[key]

    def check(self, model: object) -> None:
        """Give up all seats if the weights lie elsewhere than they did."""
        tensors = [*model.parameters(), *model.buffers()] if isinstance(model, nn.Module) else []
        weights = tuple(tensor.data_ptr() for tensor in tensors)
        if weights != self.weights:
            self.kept.clear()
        self.weights = weights


SEATS_OF: WeakKeyDictionary[Any, Seats] = WeakKeyDictionary()


@contextmanager
def seats_of(model: Autoregressive) -> Iterator[Seats]:
    """The seats of a model, for one search at a time; none are kept while it is in training."""
    if not isinstance(model, nn.Module):
        yield Seats()
        return
    seats, training = SEATS_OF.setdefault(model, Seats()), model.training
    with seats.lock:
        seats.check(model)
        yield seats
        if training:
            seats.kept.clear()


def growing(model: Autoregressive) -> bool:
    """Whether the model's memory was seen to change its shape."""
    return isinstance(model, nn.Module) and model in SEATS_OF and SEATS_OF[model].growing


class NotStaticError(Exception):
    """A step changed the shape of its memory, or needed the host."""


def write(held: Nest, new: Nest) -> None:
    """Copy every tensor of a nest to its place in another of the same shapes."""
    targets, sources = leaves_of(held), leaves_of(new)
    if [described(leaf) for leaf in targets] != [described(leaf) for leaf in sources]:
        raise NotStaticError("its memory changes from step to step")
    pairs = [(a, b) for a, b in zip(targets, sources, strict=True) if isinstance(a, Tensor) and a is not b]
    # What is a view of the memory itself must be read before anything is written there.
    memory = {a.untyped_storage().data_ptr() for a, _ in pairs}
    pairs = [(a, b.clone() if b.untyped_storage().data_ptr() in memory else b) for a, b in pairs]
    for a, b in pairs:
        a.copy_(b)


def shape_of(nest: Nest) -> tuple[Any, ...]:
    """What two nests must have in common to use the same memory."""
    return tuple(described(leaf) for leaf in leaves_of(nest))


def described(leaf: Any) -> Any:
    """A tensor's shape and type; anything else as it is."""
    return (leaf.shape, leaf.dtype) if isinstance(leaf, Tensor) else leaf


def leaves_of(nest: Nest) -> list[Any]:
    """All tensors, numbers and names in a nest, in order."""
    if isinstance(nest, dict):
        return [leaf for key, value in nest.items() for leaf in (key, *leaves_of(value))]
    if isinstance(nest, tuple | list):
        return [leaf for value in nest for leaf in leaves_of(value)]
    if is_dataclass(nest) and not isinstance(nest, type):
        return [type(nest), *(leaf for each in fields(nest) for leaf in leaves_of(getattr(nest, each.name)))]
    return [nest]


def filled_up(batch: Batch, search: Search, rules: Rules | None) -> tuple[Batch, Search, Rules | None]:
    """As many sentences, source positions and tokens as the short lists have, the last sentence repeated."""
    sentences = len(batch)
    index = torch.tensor(filled(list(range(sentences)), True), device=batch.tokens.device)
    batch = batch.map(lambda tensor: tensor.index_select(0, index))
    if batch.source is not None:
        batch = replace(batch, source=pad(batch.source, (0, -batch.source.shape[1] % ALIGN)))
    search = hushed(search.keep(index), sentences)
    limit = search.said.shape[1]
    longer = short_list(limit, ALIGN) - limit
    # What has a column per token gets more columns.
    search = map_nest(search, lambda tensor: pad(tensor, (0, longer)) if tensor.ndim == 3 else tensor)
    return batch, search, None if rules is None else rules.keep(index)


def hushed(search: Search, sentences: int) -> Search:
    """The same with nothing heard of what lies after so many sentences."""
    spare = torch.arange(len(search.numbers), device=search.numbers.device) >= sentences
    changed = {"numbers": search.numbers.masked_fill(spare, -1), "stopped": search.stopped | spare}
    return replace(search, **changed)


def filled(places: list[int], captures: bool) -> list[int]:
    """The places with the last repeated up to a number from the short list, where shapes matter."""
    return places + places[-1:] * (short_list(len(places)) - len(places)) if captures else places


def short_list(number: int, multiple: int = 1) -> int:
    """The next of 1, 2, 3, 4, 6, 8, 12, 16, 24 … times `multiple`."""
    units, power = -(-number // multiple), 1
    while power < units:
        power *= 2
    return multiple * (power * 3 // 4 if power >= 4 and units <= power * 3 // 4 else power)


def places(chosen: list[bool], device: torch.device) -> Tensor:
    """The numbers of the chosen."""
    return torch.tensor([place for place, one in enumerate(chosen) if one], device=device)


def look_every(device: torch.device) -> int:
    """After how many steps the host looks which sentences are done."""
    return LOOK_EVERY.get(device.type, 1)
