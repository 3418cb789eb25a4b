"""Doing the same in the same memory: nests of tensors written in place, and CUDA graphs that replay what was done."""

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
    """Something done in place, again and again: first `warm_ups` times as it is, then captured, then replayed."""

    def __init__(self, run: Callable[[], None], pool: Pool, warm_ups: int = 1) -> None:
        self.run, self.pool, self.warm_ups = run, pool, warm_ups
        self.graph: Any = None

    def __call__(self) -> None:
        """Once more."""
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
    """Memory that graphs share, since only one of them runs at a time and none leaves anything there."""

    def __init__(self) -> None:
        self.handle: Any = None
        self.stream: Any = None
        self.graphs: weakref.WeakSet[Any] = weakref.WeakSet()

    def share(self, graph: Any) -> Any:
        """A handle to the memory for one more graph; it goes with the last of them, and the next gets new memory."""
        if not self.graphs:
            self.handle = torch.cuda.graph_pool_handle()
        self.graphs.add(graph)
        return self.handle

    @contextmanager
    def beside(self) -> Iterator[None]:
        """On a stream of its own, as capturing demands, after all that was asked for and before all that follows."""
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
    """Whether steps on this device are captured."""
    return device.type == "cuda"


def capture(run: Callable[[], None], pool: Pool) -> Any:
    """What `run` does as a CUDA graph; a step that needs the host cannot be captured.

    `torch.cuda.graph` would empty the allocator's cache and collect garbage each time, which takes longer than the
    steps that the graph saves; that nothing is freed meanwhile is enough.
    """
    graph, collecting = torch.cuda.CUDAGraph(), gc.isenabled()
    torch.cuda.synchronize()
    gc.disable()
    try:
        with pool.beside():
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
    finally:
        if collecting:
            gc.enable()
    return graph


def free_random_numbers(pool: Pool) -> None:
    """Take a GPU's random numbers out of capture mode, where torch leaves them after a capture that failed.

    Otherwise the next dropout of this process would fail. A capture that succeeds ends the mode.
    """
    graph, scratch = torch.cuda.CUDAGraph(), torch.zeros(1, device="cuda")
    with suppress(RuntimeError), pool.beside():
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            scratch.zero_()
        finally:
            graph.capture_end()


class NotStaticError(Exception):
    """A step changed the shape of its memory, or needed the host."""


def write(held: Nest, new: Nest) -> None:
    """Copy every tensor of a nest to its place in another of the same shapes."""
    targets, sources = leaves_of(held), leaves_of(new)
    if [described(leaf) for leaf in targets] != [described(leaf) for leaf in sources]:
        raise NotStaticError("its memory changes from step to step")
    pairs = [(a, b) for a, b in zip(targets, sources, strict=True) if isinstance(a, Tensor) and not same(a, b)]
    # What is a view of the memory itself must be read before anything is written there.
    memory = {a.untyped_storage().data_ptr() for a, _ in pairs}
    pairs = [(a, b.clone() if b.untyped_storage().data_ptr() in memory else b) for a, b in pairs]
    # Each kind in one go, one kernel for many small copies; as rows, for torch compares even strides that mean nothing.
    pairs = [(a.view(-1), b.view(-1)) if a.is_contiguous() and b.is_contiguous() else (a, b) for a, b in pairs]
    for kind in {a.dtype for a, _ in pairs}:
        alike = [(a, b) for a, b in pairs if a.dtype == kind]
        torch._foreach_copy_([a for a, _ in alike], [b for _, b in alike])


def same(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors of one shape are the same memory."""
    return a is b or (a.data_ptr() == b.data_ptr() and a.stride() == b.stride())


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
