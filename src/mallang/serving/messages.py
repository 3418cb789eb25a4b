"""What the server and its workers send each other, over a pipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ServedRun:
    """A run that a worker has loaded."""

    name: str
    task: str
    model: str
    verbs: tuple[str, ...]
    """The verbs of the run that are served."""
    method: str
    """The search method of its recipe."""
    parameters: int
    created: int
    """When its weights were written, in seconds since 1970."""
    is_stepped: bool = False
    """Whether it is a language model, whose outputs can share decode steps."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The values of its recipe's search."""
    reads_pairs: tuple[str, ...] = ()
    """The verbs that read pairs of texts, and no single ones."""
    is_live: bool = False
    """Whether a browser can run it itself."""
    chat: Mapping[str, str] | None = None
    """The template of its chats, of a language model that has one."""


@dataclass(frozen=True)
class Ready:
    """A worker has loaded its runs."""

    runs: tuple[ServedRun, ...]
    room: int = 32
    """How many items its device can serve at once."""


@dataclass(frozen=True)
class Broken:
    """A worker cannot load its runs."""

    message: str


@dataclass(frozen=True)
class Call:
    """A verb for the items of one or several requests, which are one batch."""

    run: str
    verb: str
    options: Mapping[str, Any]
    parts: Sequence[tuple[int, Sequence[Any]]]
    """The items of each request, by its number."""


@dataclass(frozen=True)
class Continue:
    """Prompts to continue step by step; they may join those that the worker continues already."""

    job: int
    run: str
    prompts: Sequence[str | Sequence[int]]
    options: Mapping[str, Any]
    stream: bool = False
    """Whether parts of the outputs are wanted while they grow."""
    alternatives: int = -1
    """The number of most probable tokens that are reported beside each token; −1: no log-probabilities at all."""


@dataclass(frozen=True)
class Cancel:
    """Nobody waits for a request any more."""

    job: int


@dataclass(frozen=True)
class Part:
    """Something of an output that is still growing."""

    job: int
    content: Any


@dataclass(frozen=True)
class Done:
    """The results of a request, one per item."""

    job: int
    results: Sequence[Any]
    tokens: int = 0
    """The number of tokens generated."""
    read: int = 0
    """The number of tokens read, where it is known."""


@dataclass(frozen=True)
class Failed:
    """A request that cannot be served, and why."""

    job: int
    status: int
    message: str
