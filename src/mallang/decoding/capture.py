"""CUDA graph capture and replay, over nested tensors that are updated in place."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from mallang.layers.cache import Nest


class Replay:
    """An in-place function that is called repeatedly: `warm_ups` times eagerly, then captured, then replayed."""

    def __init__(self, run: Callable[[], None], pool: Pool, warm_ups: int = 1) -> None:
        self.run, self.pool, self.warm_ups = run, pool, warm_ups
        self.graph: Any = None

    def __call__(self) -> None:
        """Run the function once."""
        if self.graph is not None:
            self.graph.replay()
        elif not self.warm_ups:
            self.graph = capture(self.run, self.pool)
            self.graph.replay()
        else:
            self.warm_ups -= 1
            with self.pool.beside():
                self.run()


class Pool:
    """The memory pool that graphs share: one runs at a time, and none leaves results in the pool."""

    def __init__(self) -> None:
        self.handle: Any = None
        self.stream: Any = None
        self.graphs: weakref.WeakSet[Any] = weakref.WeakSet()

    def share(self, graph: Any) -> Any:
        """The pool handle for one more graph; after the last graph is freed, the next one gets a new pool."""
        if not self.graphs:
            self.handle = torch.cuda.graph_pool_handle()
        self.graphs.add(graph)
        return self.handle

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Run on a side stream, as capture requires, ordered after all earlier and before all later work."""
        if torch.cuda.is_available():
            self.stream = self.stream or torch.cuda.Stream()  # type: ignore[no-untyped-call]
            self.stream.wait_stream(torch.cuda.current_stream())
            try:
                with torch.cuda.stream(self.stream):
                    yield
            finally:
                torch.cuda.current_stream().wait_stream(self.stream)
        else:
            yield


def captures(device: torch.device) -> bool:
    """Whether steps on this device are captured as CUDA graphs."""
    return device.type == "cuda"


def capture(run: Callable[[], None], pool: Pool) -> Any:
    """Capture `run` as a CUDA graph; a step that needs the host raises `NotStaticError`.

    `torch.cuda.graph` would empty the allocator's cache and collect garbage each time, which takes longer than the
    graph saves; it suffices to disable garbage collection during the capture.
    """
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    try:
        with without_garbage_collection(), pool.beside():
            graph.capture_begin(pool=pool.share(graph), capture_error_mode="thread_local")
            try:
                run()
            finally:
                graph.capture_end()
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        free_random_numbers(pool)
        raise NotStaticError(str(error).partition("\n")[0]) from error
    return graph


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Keep garbage collection out of a capture: a graph or tensor that it frees there would invalidate the capture."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def free_random_numbers(pool: Pool) -> None:
    """Take the GPU's random number generator out of capture mode, where a failed capture leaves it.

    Otherwise the next dropout of this process would fail. An empty capture that succeeds ends the mode.
    """
    graph, scratch = torch.cuda.CUDAGraph(), torch.zeros(1, device="cuda")
    with suppress(RuntimeError), pool.beside():
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            scratch.zero_()
        finally:
            graph.capture_end()


class NotStaticError(Exception):
    """A step changed the shape of its state, or needed the host."""


def write(held: Nest, new: Nest) -> None:
    """Copy every tensor of a nest into the matching tensor of another nest with the same shapes."""
    targets, sources = leaves_of(held), leaves_of(new)
    if [described(leaf) for leaf in targets] != [described(leaf) for leaf in sources]:
        raise NotStaticError("its state changes its shape from step to step")
    pairs = [(a, b) for a, b in zip(targets, sources, strict=True) if isinstance(a, Tensor) and not same(a, b)]
    # A source that is a view of a target must be read before anything is written there.
    memory = {a.untyped_storage().data_ptr() for a, _ in pairs}
    pairs = [(a, b.clone() if b.untyped_storage().data_ptr() in memory else b) for a, b in pairs]
    # One call per dtype, since one kernel does many small copies; flat, since torch compares even irrelevant strides.
    pairs = [(a.view(-1), b.view(-1)) if a.is_contiguous() and b.is_contiguous() else (a, b) for a, b in pairs]
    for kind in {a.dtype for a, _ in pairs}:
        alike = [(a, b) for a, b in pairs if a.dtype == kind]
        torch._foreach_copy_([a for a, _ in alike], [b for _, b in alike])


def same(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors of one shape are the same memory."""
    return a is b or (a.data_ptr() == b.data_ptr() and a.stride() == b.stride())


def shape_of(nest: Nest) -> tuple[Any, ...]:
    """The shapes and values in which two nests must agree to use the same buffers."""
    return tuple(described(leaf) for leaf in leaves_of(nest))


def described(leaf: Any) -> Any:
    """A tensor's shape and dtype; any other value unchanged."""
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
