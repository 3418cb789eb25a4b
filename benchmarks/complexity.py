"""Cost of one layer per token by length of the text: recurrence, convolution, full and windowed self-attention.

Table 1 of "Attention Is All You Need", measured: time and memory of forward and backward, operations counted while they
run, and how many steps a signal takes from the first position to the last. One layer of `dim`, a constant number of
tokens, so that short texts come many at once, the longest two at a time. Layers take turns and the fastest turn counts,
on a CPU in processor time of one thread. Memory is what is kept for the backward pass, without weights. `--out FOLDER`
writes a table and a figure too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import page_figures
from benchmarks.report import Result, show, versions

TOKENS, SHORTEST = 4096, 16
HEADS, WIDTH, WINDOW = 4, 3, 64
"""Attention heads, the kernel size of the convolution, and the window of windowed attention in positions."""
DILATION = WIDTH
"""Positions between the inputs of the dilated convolution, as in the second layer of a stack whose path is log n."""
FULL, ALONE, SIMPLE, DILATED = "self-attention", "attention alone", "recurrence (Elman)", "dilated convolution"


@dataclass(frozen=True)
class Cost:
    """The cost of a layer for texts of one length."""

    seconds: float
    """Time of forward and backward, per token."""
    flops: float
    """Operations of forward, per token."""
    bytes: float
    """Memory kept for the backward pass, per token."""
    path: int
    """Steps, or layers, from the first position to the last."""


def measure(
    dim: int = 128, longest: int = 4096, turns: int = 3, device: str = "cpu", out: str = ""
) -> dict[str, Result]:
    """Every layer at every length."""
    began = time.monotonic()
    lengths = [2**power for power in range(SHORTEST.bit_length() - 1, longest.bit_length())]
    found: dict[str, dict[int, Cost]] = {}
    for length in lengths:
        for name, cost in at_length(dim, length, turns, device).items():
            found.setdefault(name, {})[length] = cost
    table = rows(found, lengths)
    show(f"one layer of {dim}, {TOKENS} tokens, {device}", table)
    if out:
        write(Path(out), f"{device}-{dim}", table)
    about: dict[str, Any] = {
        "protocol": f"one layer of {dim}, {TOKENS} tokens in texts of {lengths[0]} to {lengths[-1]}, forward and "
        f"backward, {device}, the least of {turns} turns; width {WIDTH}, window {WINDOW}, {HEADS} heads",
        "seconds": round(time.monotonic() - began, 1),
        "signature": versions("mallang", "torch"),
    }
    results = {}
    for name, costs in found.items():
        last = [costs[length] for length in lengths[-2:]]
        for what in ("seconds", "bytes", "flops"):
            value = getattr(last[1], what) / getattr(last[0], what)
            quantity = {"seconds": "time", "bytes": "memory", "flops": "operations"}[what]
            results[f"complexity-{device}-{quantity}-{slug(name)}"] = Result(
                **about,
                system=name,
                metric=f"{quantity} a token when the text is twice as long, ratio",
                value=round(value, 3),
            )
    for name, value in crossings(found, lengths).items():
        results[f"complexity-{device}-{slug(name)}"] = Result(
            **about, system=name, metric=f"length at which both cost a token as much, dim {dim}", value=round(value, 1)
        )
    return results


def at_length(dim: int, length: int, turns: int, device: str) -> dict[str, Cost]:
    """All layers on texts of one length."""
    import torch

    from mallang.evaluation.flops import counting

    torch.set_num_threads(1)
    torch.manual_seed(1)
    x = torch.randn(max(2, TOKENS // length), length, dim, device=device, requires_grad=True)
    tokens = x.shape[0] * length
    runs, modules = layers(dim, device)
    known = [x, *(weight for module in modules for weight in module.parameters())]
    steps: dict[str, Callable[[], Any]] = {name: lambda run=run: run(x).sum().backward() for name, run in runs.items()}
    seconds = dict.fromkeys(runs, math.inf)
    for step in steps.values():
        step()
    for _ in range(turns):
        for name, step in steps.items():
            seconds[name] = min(seconds[name], timed(step, device))
    found = {}
    for name, run in runs.items():
        with torch.no_grad(), counting() as count:
            run(x)
        found[name] = Cost(
            seconds[name] / tokens, count.flops / tokens, kept_bytes(run, x, known) / tokens, path(name, length)
        )
    return found


def layers(dim: int, device: str) -> tuple[dict[str, Callable[[Any], Any]], list[Any]]:
    """One layer of each kind, as a function of x; and what holds their weights."""
    import torch.nn.functional as F
    from torch import Tensor

    from mallang.kernels.attention import Window, plain_attention
    from mallang.layers.attention import SelfAttention
    from mallang.layers.convolution import Convolution
    from mallang.layers.recurrent import Recurrent

    share = dim // HEADS
    elman, lstm = Recurrent("tanh", dim, dim).to(device), Recurrent("lstm", dim, dim).to(device)
    convolution = Convolution(dim, WIDTH, causal=True).to(device)
    dilated = Convolution(dim, WIDTH, causal=True, dilation=DILATION).to(device)
    attention = SelfAttention(dim, HEADS, share, share).to(device)

    def alone(x: Tensor) -> Tensor:
        heads = attention.split_heads(x)
        return F.scaled_dot_product_attention(heads, heads, heads, is_causal=True)

    def plain(x: Tensor) -> Tensor:
        queries, keys, values = attention.project(x)
        context = plain_attention(queries, keys, values, "causal")
        return attention.output(context.transpose(1, 2).flatten(2))

    runs = {
        SIMPLE: lambda x: elman(x)[0],
        "recurrence (LSTM)": lambda x: lstm(x)[0],
        "convolution": convolution,
        DILATED: dilated,
        FULL: lambda x: attention(x, "causal")[0],
        f"{FULL}, unfused": plain,
        "windowed self-attention": lambda x: attention(x, Window(WINDOW))[0],
        ALONE: alone,
    }
    return runs, [elman, lstm, convolution, dilated, attention]


def timed(step: Callable[[], Any], device: str) -> float:
    """Seconds of one turn."""
    import torch

    if device == "cpu":
        began = time.process_time()  # not what others do on this machine
        step()
        return time.process_time() - began
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()  # type: ignore[no-untyped-call]
    step()
    end.record()  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) / 1000  # type: ignore[no-untyped-call]


def kept_bytes(run: Callable[[Any], Any], x: Any, known: Sequence[Any]) -> int:
    """The memory of all that is kept for the backward pass, each piece once, without what is there anyway."""
    import torch

    kept: dict[int, int] = {}

    def keep(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = run(x)  # held, so that no piece takes the place of another
    there = {tensor.untyped_storage().data_ptr() for tensor in known}
    assert result.requires_grad
    return sum(size for place, size in kept.items() if place not in there)


def path(name: str, length: int) -> int:
    """The number of steps from the first position to the last: times in a recurrence, layers elsewhere.

    The dilation of convolutions grows by their width from layer to layer.
    """
    if name == DILATED:
        return next(layers for layers in range(1, length + 1) if WIDTH**layers >= length)
    reach = {"convolution": WIDTH - 1, "windowed self-attention": WINDOW}.get(
        name, 1 if "recurrence" in name else length
    )
    return max(1, -(-(length - 1) // reach))


def crossings(found: Mapping[str, Mapping[int, Cost]], lengths: Sequence[int]) -> dict[str, float]:
    """Between which lengths attention begins to cost more than recurrence, by a straight line in logarithms."""
    pairs = {
        "operations of attention alone and of an Elman recurrence": (ALONE, SIMPLE, "flops"),
        "operations of self-attention and of an LSTM": (FULL, "recurrence (LSTM)", "flops"),
        "time of self-attention and of an LSTM": (FULL, "recurrence (LSTM)", "seconds"),
    }
    crossed = {}
    for crossing, (first, second, what) in pairs.items():
        ratios = [math.log(getattr(found[first][n], what) / getattr(found[second][n], what)) for n in lengths]
        for place in range(1, len(lengths)):
            low, high = ratios[place - 1], ratios[place]
            if low < 0 <= high:
                share = -low / (high - low)
                crossed[crossing] = lengths[place - 1] * (lengths[place] / lengths[place - 1]) ** share
    return crossed


def rows(found: Mapping[str, Mapping[int, Cost]], lengths: Sequence[int]) -> list[list[str]]:
    """A table: of every layer time, operations, memory and path at some lengths."""
    shown = [length for length in lengths if length in (64, 256, 1024, 4096)] or list(lengths)
    table = [["layer", "of a token", *(f"n = {length:,}" for length in shown)]]
    for name, costs in found.items():
        some = [costs[length] for length in shown]
        table.append([name, "time, µs", *(f"{cost.seconds * 1e6:.2f}" for cost in some)])
        table.append([name, "operations, k", *(f"{cost.flops / 1e3:,.0f}" for cost in some)])
        table.append([name, "memory, kB", *(f"{cost.bytes / 1e3:.2f}" for cost in some)])
        table.append([name, "path", *(f"{cost.path:,}" for cost in some)])
    return table


def write(folder: Path, name: str, table: list[list[str]]) -> None:
    """The table as Markdown, and the curves drawn from it."""
    folder.mkdir(parents=True, exist_ok=True)
    head, *lines = [f"| {' | '.join(row)} |" for row in table]
    rule = "|---|---" + "|---:" * (len(table[0]) - 2) + "|"
    page = folder / f"{name}.md"
    page.write_text("\n".join([head, rule, *lines]) + "\n", "utf-8")
    (folder / f"{name}.svg").write_text(page_figures.complexity(page), "utf-8")


def slug(name: str) -> str:
    """A name as a part of a file's name."""
    return "-".join("".join(letter if letter.isalnum() else " " for letter in name.lower()).split())
