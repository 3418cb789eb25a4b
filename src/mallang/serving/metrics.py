"""Metrics in the text format of Prometheus: counters, gauges and histograms, in base units."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""The upper bounds of the buckets of times."""
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""The upper bounds of the buckets of batch sizes."""


@dataclass
class Metric:
    """A metric with a value for each combination of labels."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    kind: str = "counter"
    values: dict[tuple[str, ...], float] = field(default_factory=dict)

    def add(self, amount: float | int, *labels: str) -> None:
        """Count."""
        self.values[labels] = self.values.get(labels, 0.0) + amount

    def put(self, value: float | int, *labels: str) -> None:
        """Set a gauge."""
        self.values[labels] = value

    def lines(self) -> Iterator[str]:
        """The lines of this metric."""
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} {self.kind}"
        for labels, value in sorted(self.values.items()):
            yield f"{self.name}{braces(self.labels, labels)} {value:g}"


@dataclass
class Histogram:
    """A distribution of values."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    bounds: Sequence[float | int] = SECONDS
    counts: dict[tuple[str, ...], list[int]] = field(default_factory=dict)
    sums: dict[tuple[str, ...], float] = field(default_factory=dict)

    def observe(self, value: float | int, *labels: str) -> None:
        """Count a value."""
        counts = self.counts.setdefault(labels, [0] * (len(self.bounds) + 1))
        counts[bisect.bisect_left(self.bounds, value)] += 1
        self.sums[labels] = self.sums.get(labels, 0.0) + value

    def lines(self) -> Iterator[str]:
        """The lines of this metric."""
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} histogram"
        for labels, counts in sorted(self.counts.items()):
            total = 0
            for bound, count in zip([*map(str, self.bounds), "+Inf"], counts, strict=True):
                total += count
                yield f"{self.name}_bucket{braces((*self.labels, 'le'), (*labels, bound))} {total}"
            yield f"{self.name}_sum{braces(self.labels, labels)} {self.sums[labels]:g}"
            yield f"{self.name}_count{braces(self.labels, labels)} {total}"


class Metrics:
    """All metrics of a server."""

    def __init__(self) -> None:
        by_verb = ("run", "verb")
        self.requests = Metric("mallang_requests_total", "Requests answered.", (*by_verb, "status"))
        self.answers = Metric("mallang_http_answers_total", "Answers of every path.", ("path", "status"))
        self.duration = Histogram("mallang_request_duration_seconds", "From request to answer.", by_verb)
        self.waiting = Histogram("mallang_queue_duration_seconds", "From request to worker.", by_verb)
        self.first = Histogram("mallang_time_to_first_token_seconds", "From request to first part.", by_verb)
        self.tokens = Metric("mallang_tokens_total", "Tokens generated.", by_verb)
        self.queued = Metric("mallang_queue_size", "Requests that wait for a worker.", kind="gauge")
        self.connections = Metric("mallang_connections", "Open connections.", kind="gauge")
        self.workers = Metric("mallang_workers", "Workers, by state.", ("state",), "gauge")
        self.replaced = Metric("mallang_workers_replaced_total", "Workers that ended and were replaced.")
        self.batches = Histogram("mallang_batch_size", "Items per batch.", by_verb, SIZES)
        self.info = Metric("mallang_build_info", "The version.", ("version",), "gauge")

    def text(self) -> str:
        """The body of /metrics."""
        return "\n".join(line for each in vars(self).values() for line in each.lines()) + "\n"


def braces(names: Sequence[str], values: Sequence[str]) -> str:
    """Labels as Prometheus writes them."""
    if not names:
        return ""
    return "{" + ",".join(f'{name}="{quoted(value)}"' for name, value in zip(names, values, strict=True)) + "}"


def quoted(text: str) -> str:
    """The value of a label."""
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
