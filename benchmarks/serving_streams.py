"""256 clients stream from one GPT at once: the server's tokens per second beside those of one offline batch.

A GPT-2 of random weights continues prompts of 2 to 20 tokens, greedily and by sampling in turn, by the same number of
tokens each. Offline the library generates all of them in one process; then `mallang serve` streams them to clients in
other processes, which count the tokens and events that come. On a GPU an event carries up to 8 tokens.

    python -m benchmarks serving_streams --write                                            # on a GPU, 3 minutes
    python -m benchmarks serving_streams --shape tiny --streams 8 --tokens 32 --processes 2     # anywhere, to try it
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.contest import ROOT
from benchmarks.gpt_models import GPT2, SEED, Shape, ours
from benchmarks.report import Result, show
from benchmarks.serving_clients import Server
from mallang.text.vocabulary import SPECIALS

SHAPES = {"gpt2": GPT2, "tiny": Shape(layers=2, dim=64, heads=2, words=1000, context=128)}
WARM = 16
"""Tokens of the first round, which is not measured."""


@dataclass(frozen=True)
class Streamed:
    """What the clients of one process got."""

    begun: float
    ended: float
    tokens: int
    events: int
    first: Sequence[float]
    """Seconds to the first event of each stream."""
    lost: int


def measure(
    streams: int = 256, tokens: int = 256, processes: int = 4, shape: str = "gpt2", device: str = "auto"
) -> dict[str, Result]:
    """Offline, then served; `processes` of clients share the streams."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "gpt"
        write_run(folder, SHAPES[shape])
        asked = requests(SHAPES[shape].words, streams, tokens)
        offline = offline_rate(folder, asked, device)
        command = [sys.executable, "-m", "mallang", "serve", str(folder), "--port", "0", "--device", device]
        with Server([*command, "--workers", "1", "--queue", str(2 * streams), "--timeout", "600"]) as server:
            warm = [{**each, "min_length": WARM, "max_length": WARM} for each in asked]
            streamed(server.port, warm, processes)
            found = streamed(server.port, asked, processes)
    took = max(each.ended for each in found) - min(each.begun for each in found)
    count, events, lost = (sum(getattr(each, name) for each in found) for name in ("tokens", "events", "lost"))
    first = sorted(value for each in found for value in each.first)
    rate, slowest = count / took, first[-1] if first else float("nan")
    rows: list[tuple[object, ...]] = [
        ("", "tokens/s", "of offline", "tokens an event", "slowest first event, s", "lost"),
        ("offline, one batch", round(offline), 1.0, "", "", ""),
        ("served", round(rate), round(rate / offline, 3), round(count / max(1, events), 2), round(slowest, 3), lost),
    ]
    show(f"{streams} streams of {tokens} tokens, {shape}", rows)
    protocol = (
        f"{streams} streams of {tokens} tokens at once, clients in {processes} processes, {shape} with random weights, "
        f"greedy and sampling by turns, {count / max(1, events):.1f} tokens an event; offline: {offline:.0f} tokens/s"
    )
    return {
        f"serving-streams-{shape}": Result(
            system="mallang serve", metric="streamed tokens/s, of offline", value=round(rate / offline, 3),
            protocol=protocol, seed=SEED, seconds=round(took, 1), signature=f"{rate:.0f} tokens/s|{lost} lost",
        )
    }  # fmt: skip


def write_run(folder: Path, shape: Shape) -> None:
    """A run with random weights whose words are tokens."""
    from mallang import recipe as recipes
    from mallang.interop.imported_run import write_imported
    from mallang.text.tokenizer import Config, Tokenizer

    words = [f"w{number}" for number in range(shape.words - len(SPECIALS))]
    lines = [" ".join(words[first : first + 20]) for first in range(0, len(words), 20)]
    tokenizer = Tokenizer.train(lines, Config(unit="space", vocabulary=shape.words))
    sizes = {"layers": shape.layers, "dim": shape.dim, "heads": shape.heads, "hidden_dim": 4 * shape.dim}
    changes = [f"model.{name}={value}" for name, value in sizes.items()]
    resolved = recipes.read("gpt-miniworld", [*changes, "text.unit=space", f"model.max_length={shape.context}"]).build()
    write_imported(folder, resolved, tokenizer, ours(shape), about="random", sources={}, fresh=True)


def requests(words: int, streams: int, tokens: int) -> list[dict[str, Any]]:
    """The request of each stream."""
    dice, found = random.Random(SEED), []
    for number in range(streams):
        text = " ".join(f"w{dice.randrange(words - len(SPECIALS))}" for _ in range(dice.randint(2, 20)))
        method: dict[str, Any] = {"method": "sampling", "seed": number} if number % 2 else {"method": "greedy"}
        found.append({"prompts": text, **method, "min_length": tokens, "max_length": tokens})
    return found


def offline_rate(folder: Path, asked: Sequence[dict[str, Any]], device: str) -> float:
    """Tokens per second of the library, in a process of its own, whose memory is free afterwards."""
    command = [sys.executable, "-m", "benchmarks.serving_streams", str(folder), device]
    ended = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=True, cwd=ROOT)
    return float(ended.stdout.splitlines()[-1])


def offline(folder: str, device: str) -> None:
    """Generate what is asked, once to warm up and once measured: all greedy texts as one batch, and all others."""
    import mallang

    verbs, asked = mallang.load(folder, device), json.load(sys.stdin)
    for _ in range(2):
        begun, count = time.perf_counter(), 0
        for method in ("greedy", "sampling"):
            texts = [each["prompts"] for each in asked if each["method"] == method]
            lengths = {name: asked[0][name] for name in ("min_length", "max_length")}
            count += sum(len(each.tokens) for each in verbs.generate(texts, method=method, **lengths))
        rate = count / (time.perf_counter() - begun)
    sys.stdout.write(f"{rate}\n")


def streamed(port: int, asked: Sequence[dict[str, Any]], processes: int) -> list[Streamed]:
    """All streams at once, shared among processes."""
    context = multiprocessing.get_context("spawn")
    start = time.time() + 5.0  # when all processes have begun
    with context.Pool(processes) as pool:
        return pool.starmap(clients, [(port, list(asked[first::processes]), start) for first in range(processes)])


def clients(port: int, asked: Sequence[dict[str, Any]], start: float) -> Streamed:
    """The streams of one process."""
    return asyncio.run(together(port, asked, start))


async def together(port: int, asked: Sequence[dict[str, Any]], start: float) -> Streamed:
    """Begin all streams at one time."""
    await asyncio.sleep(max(0.0, start - time.time()))
    begun = time.time()
    found = await asyncio.gather(*(stream(port, each) for each in asked), return_exceptions=True)
    whole = [each for each in found if not isinstance(each, BaseException)]
    tokens, events = (sum(each[place] for each in whole) for place in (0, 1))
    return Streamed(begun, time.time(), tokens, events, [each[2] for each in whole], len(found) - len(whole))


async def stream(port: int, asked: dict[str, Any]) -> tuple[int, int, float]:
    """The tokens and events of one stream, and the seconds to its first event."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps({**asked, "stream": True}).encode()
    head = "POST /api/generate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    begun, tokens, events, first = time.monotonic(), 0, 0, 0.0
    writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    async for line in reader:
        if not line.startswith(b"data: "):
            continue
        if line.startswith(b"data: [DONE]"):
            break
        event = json.loads(line[6:])
        if "error" in event:
            raise ValueError(event["error"]["message"])
        if "tokens" in event:
            first = first or time.monotonic() - begun
            tokens, events = tokens + len(event["tokens"]), events + 1
    writer.close()
    if tokens != asked["max_length"]:
        raise ValueError(f"{tokens} tokens of {asked['max_length']}")
    return tokens, events, first


if __name__ == "__main__":
    offline(*sys.argv[1:])
