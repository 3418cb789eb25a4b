"""Who runs the steps of a search, and when the host looks at them.

`Plain` steps with memory that grows, and lets finished sentences go as soon as it sees them: short, and right for any
model. `Reserved` allocates the memory of growing caches beforehand and moves nothing in it. `Captured` does all of a
search in memory that stays where it is: the whole step, from reading the tokens to reordering the hypotheses, is
captured once as a CUDA graph and then replayed, so that no kernel waits for Python.

    seat     memory of one shape, and the captured step that works in it
    opening  the captured beginning, for sources of one shape
    sit      copy a search into the seat of its shape: what is left of a batch moves to a smaller one, a long output to
             a larger one

Shapes come from a short list, so few seats serve all batches; a place without a sentence is filled by a copy of one,
of which nothing is heard. A seat is kept for the next batch, prompts of each length having their own, as long as there
is room for it. The weights are read where they lie: changed in place, they work at once; moved, all seats are given up.

All three give the same outputs. A model whose memory changes its shape from step to step, or which asks the host,
cannot be captured and is run with reserved memory, unless the static runner was asked for by name.
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

LOOK_EVERY = {"cuda": 8}
"""After how many steps the host looks which sentences are done, by device; 1 on others. Looking makes a GPU wait."""
SEATS = 32
"""Seats and openings kept for a model: the least recently used one goes first."""
SHARE = 1 / 8
"""Of a GPU's memory, that they may take up together; the last opening and its seat may in any case."""
FIRST_STEPS = 32
"""Steps that memory is reserved for at first; when they are used up, for twice as many."""
FIRST_SLOTS = 2**14
"""Hypotheses × steps up to which memory is reserved for all steps at once, where looking costs what is filled."""
ALIGN = 16
"""On a GPU slots and source positions come in multiples of this: the attention kernels need not pad their masks."""


def run(
    model: Autoregressive, batch: Batch, search: Search, config: Config, rules: Rules | None = None
) -> list[list[Hypothesis]]:
    """The outputs of every sentence, by the runner that the configuration asks for."""
    device = batch.tokens.device
    on_gpu = captures(device)
    if config.compile and not on_gpu:
        raise UserError("decoding.compile is for GPUs: on a CPU it makes nothing faster", todo="leave it out")
    if config.runner == "plain":
        return drive(Plain(model, config), batch, search, rules)
    if on_gpu:
        with seats_of(model) as seats:
            full = False
            try:
                if not seats.useless:
                    return drive(Captured(model, config, seats), batch, search, rules)
            except torch.OutOfMemoryError:
                full = True  # seats are many: memory that grows, and is let go again, is far less
            except NotStaticError as error:
                seats.useless = True
                if config.runner == "static":
                    raise UserError(
                        f"the steps of {type(model).__name__} cannot be captured: {error}",
                        todo="decoding.runner = auto",
                    ) from error
            if full:
                seats.kept.clear()
                torch.cuda.empty_cache()
    return drive(Reserved(model, config), batch, search, rules)


def drive(runner: Plain, batch: Batch, search: Search, rules: Rules | None) -> list[list[Hypothesis]]:
    """Step by step to the end; every few steps see which sentences are done."""
    found: dict[int, list[Hypothesis]] = {}
    vocabulary, config = runner.model.vocabulary, runner.config
    device, most = batch.tokens.device, search.said.shape[1]
    # Kernels of our own run where torch is told to be, not where their tensors lie.
    here = torch.cuda.device(device.index if device.type == "cuda" else -1)
    with inference(runner.model), here, PrepackedWeights().in_use():
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


class Reserved(Plain):
    """Memory is allocated for many steps at once, and nothing in it is moved."""

    def __init__(self, model: Autoregressive, config: Config) -> None:
        super().__init__(model, config)
        self.steps, self.taken = FIRST_STEPS, 0

    def begin(self, batch: Batch, search: Search, rules: Rules | None) -> Progress:
        """Read the source and choose the first tokens."""
        return Progress.begin(self.model, batch, search, self.config, rules, CacheCapacity(self.steps))

    def advance(self, progress: Progress) -> Progress:
        """One step, in more room if the room is used up; attention looks no further than it is filled."""
        progress = self.make_room(progress)
        self.taken += 1
        return replace(progress, state=progress.state.look(self.taken)).advance(self.model, self.config)

    def make_room(self, progress: Progress) -> Progress:
        """The same, with twice the room if it is used up."""
        if self.taken < self.steps:
            return progress
        self.steps *= 2
        return replace(progress, state=progress.state.enlarge(self.steps))

    def worth(self, staying: int, places: int) -> bool:
        """If moving the memory costs less than it saves."""
        return 8 * staying <= 7 * places


class Captured(Reserved):
    """All memory stays where it is; steps are replayed."""

    def __init__(self, model: Autoregressive, config: Config, seats: Seats) -> None:
        super().__init__(model, config)
        self.seats = seats
        self.seat: Seat

    def begin(self, batch: Batch, search: Search, rules: Rules | None) -> Progress:
        """Read the source and choose the first tokens, in shapes from the short list."""
        inputs = filled_up(batch, search, rules)
        rows, limit = inputs[1].said.shape
        if search.width <= decode_attention.MOST and decode_attention.works():
            self.steps = min(limit, max(FIRST_STEPS, FIRST_SLOTS // rows))
        key = ("opening", self.config, *shape_of(inputs))
        opening = self.seats.get(key)
        if opening is None:
            opening = self.seats.put(key, Opening(self, inputs))
        else:
            opening.open(inputs)
        self.seat = opening.seat
        return self.seat.progress

    def advance(self, progress: Progress) -> Progress:
        """One step."""
        if (roomier := self.make_room(progress)) is not progress:
            self.sit(roomier)
        self.taken += 1
        self.seat.replay()
        return self.seat.progress

    def worth(self, staying: int, places: int) -> bool:
        """If a smaller seat is large enough."""
        return short_list(staying) < places

    def keep(self, progress: Progress, staying: list[int]) -> Progress:
        """Go on with these sentences only, in a smaller seat."""
        kept = super().keep(progress, filled(staying))
        return self.sit(replace(kept, search=hushed(kept.search, len(staying))))

    def sit(self, progress: Progress) -> Progress:
        """Copy a search into the seat of its shape."""
        key = ("seat", self.config, *shape_of(progress))
        seat = self.seats.get(key)
        if seat is None:
            seat = self.seats.put(key, Seat(self, progress))
        else:
            write(seat.progress, progress)
        self.seat = seat
        return self.seat.progress


class Opening:
    """Reading sources of one shape and choosing the first tokens, in place."""

    def __init__(self, runner: Captured, inputs: tuple[Batch, Search, Rules | None]) -> None:
        model, config, room = held_weakly(runner.model), runner.config, CacheCapacity(runner.steps, ALIGN)
        batch, search, rules = held = map_nest(inputs, torch.clone)

        def begin() -> Progress:
            return Progress.begin(model(), batch, search, config, rules, room)

        runner.sit(begin())
        self.inputs, self.seat = held, (seat := runner.seat)
        # Not by way of `self`: what holds itself is let go only when Python next looks for such circles.
        self.replay = Replay(lambda: write(seat.progress, begin()), runner.seats.pool, warm_ups=0)

    def open(self, inputs: tuple[Batch, Search, Rules | None]) -> None:
        """The same for another batch."""
        write(self.inputs, inputs)
        self.replay()


class Seat:
    """Memory of one shape, and the step that works in it."""

    def __init__(self, runner: Captured, progress: Progress) -> None:
        self.progress: Progress = map_nest(progress, torch.clone)
        held = self.progress
        self.size = sum(leaf.nbytes for leaf in leaves_of(held) if isinstance(leaf, Tensor))
        model, config = held_weakly(runner.model), runner.config
        step = compiled(len(held.tokens)) if config.compile else Progress.advance
        # A table of positions that the first step makes longer changes what the second is compiled to.
        warm_ups = 2 if config.compile else 1
        self.replay = Replay(lambda: write(held, step(held, model(), config)), runner.seats.pool, warm_ups)


def held_weakly(model: Autoregressive) -> Callable[[], Any]:
    """A way to the model that does not keep it alive: its seats go when it goes."""
    return weakref.ref(model) if isinstance(model, nn.Module) else lambda: model


@dataclass
class Seats:
    """The seats of one model."""

    kept: OrderedDict[Any, Any] = field(default_factory=OrderedDict)
    weights: tuple[tuple[int, torch.Size], ...] = ()
    """Where the weights lay when the seats were made, and their shapes."""
    useless: bool = False
    """Whether the model was seen not to fit: its memory changes its shape, or it asks the host."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    pool: Pool = field(default_factory=Pool)

    def get(self, key: Any) -> Any:
        """What is kept under this key, if anything."""
        if key in self.kept:
            self.kept.move_to_end(key)
        return self.kept.get(key)

    def put(self, key: Any, value: Any) -> Any:
        """Keep it, and let those go that were not used for longest."""
        self.kept[key] = value
        while len(self.kept) > SEATS or (len(self.kept) > 2 and not self.fit()):
            self.kept.popitem(last=False)
        return value

    def fit(self) -> bool:
        """Whether all seats, those too that only an opening still holds, take up no more than they may."""
        seats = {each.seat if isinstance(each, Opening) else each for each in self.kept.values()}
        device = next(iter(seats)).progress.tokens.device
        return sum(seat.size for seat in seats) <= room_on(device)

    def check(self, model: object) -> None:
        """Give up all seats if the weights lie elsewhere than they did, or have other shapes."""
        tensors = [*model.parameters(), *model.buffers()] if isinstance(model, nn.Module) else []
        weights = tuple((tensor.data_ptr(), tensor.shape) for tensor in tensors)
        if weights != self.weights:
            self.kept.clear()
        self.weights = weights


def room_on(device: torch.device) -> float:
    """Bytes that the seats of a model may take up there."""
    return SHARE * torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else math.inf


SEATS_OF: weakref.WeakKeyDictionary[Any, Seats] = weakref.WeakKeyDictionary()


@contextmanager
def seats_of(model: Autoregressive) -> Iterator[Seats]:
    """The seats of a model, for one search at a time; none are kept while it is in training."""
    if not isinstance(model, nn.Module):
        yield Seats()
        return
    seats, training = SEATS_OF.setdefault(model, Seats()), is_in_training(model)
    with seats.lock:
        seats.check(model)
        try:
            yield seats
        finally:
            if training:
                seats.kept.clear()


def filled_up(batch: Batch, search: Search, rules: Rules | None) -> tuple[Batch, Search, Rules | None]:
    """As many sentences, source positions and tokens as the short lists have, the last sentence repeated."""
    sentences = len(batch)
    index = torch.tensor(filled(list(range(sentences))), device=batch.tokens.device)
    batch = batch.map(lambda tensor: tensor.index_select(0, index))
    if batch.source is not None:
        batch = replace(batch, source=pad(batch.source, (0, -batch.source.shape[1] % ALIGN)))
    search = hushed(search.keep(index), sentences)
    limit = search.said.shape[1]
    columns = torch.arange(short_list(limit, ALIGN), device=index.device).clamp(max=limit - 1)
    search = map_nest(search, lambda tensor: tensor.index_select(2, columns) if tensor.ndim == 3 else tensor)
    return batch, search, None if rules is None else rules.keep(index)


def hushed(search: Search, sentences: int) -> Search:
    """The same with nothing heard of what lies after so many sentences."""
    spare = torch.arange(len(search.numbers), device=search.numbers.device) >= sentences
    changed = {"numbers": search.numbers.masked_fill(spare, -1), "stopped": search.stopped | spare}
    return replace(search, **changed)


def filled(places: list[int]) -> list[int]:
    """The places with the last repeated up to a number from the short list."""
    return places + places[-1:] * (short_list(len(places)) - len(places))


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
