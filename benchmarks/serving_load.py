"""64 clients for a minute: mallang serve against itself without batches, and against `transformers serve`.

Two models with random weights: the Transformer of transformer-multi30k, beam 5, 8 to 20 tokens in and 14 out; a GPT of
6 layers of 384 that continues prompts by 8 to 128 tokens, greedily and by sampling. As many workers as cores, of one
thread each. Each client sends its next request when the answer has come; every answer is compared with what the library
gives to the text alone. The requests are the same for all systems, in the same order.
"""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.contest import python_with
from benchmarks.gpt_models import SEED, Shape, ours
from benchmarks.report import Result, show
from benchmarks.serving_clients import Load, Request, Server, load
from mallang.text.vocabulary import SPECIALS

WRITER = Shape(layers=6, dim=384, heads=6, words=8000, context=256)
WORDS = 8000
PEER = ("transformers", "fastapi", "mallang")


def measure(
    seconds: int = 60, clients: int = 64, different: int = 256, peers: int = 1, what: str = "translate,generate"
) -> dict[str, Result]:
    """All systems; `different` requests are sent again and again. peers 0: ours alone."""
    found: dict[str, Result] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for name, prepare, batchings in (
            ("translate", translator, ("joining", "none")),
            ("generate", writer, ("joining", "waiting", "none")),
        ):
            if name not in what.split(","):
                continue
            requests = prepare(folder, different)
            outcomes: dict[str, Load] = {}
            for batching in batchings:
                with Server.ours(folder / name, batching) as server:
                    outcomes[f"mallang {batching}"] = load(server, requests, clients, seconds)
            if name == "generate" and peers and (python := python_with(PEER)) is not None:
                with Server.transformers(python, folder / "hf", len(os.sched_getaffinity(0))) as server:
                    outcomes["transformers serve"] = load(
                        server, [each.for_peer() for each in requests], clients, seconds
                    )
            found |= results(name, outcomes, clients, seconds)
    return found


def results(name: str, outcomes: dict[str, Load], clients: int, seconds: int) -> dict[str, Result]:
    """What was measured, as a table and as values."""
    columns = ("", "requests/s", "tokens/s", "p50 s", "p99 s", "lost", "wrong", "MiB at the middle", "MiB at the end")
    show(
        f"{name}, {clients} clients for {seconds} s",
        [columns, *((label, *each.row()) for label, each in outcomes.items())],
    )
    protocol = (
        f"{clients} clients for {seconds} s on {len(os.sched_getaffinity(0))} cores, a worker of one thread per core, "
        "random weights, every answer compared with the library's for the text alone (benchmarks/serving_load.py)"
    )
    return {
        f"serving-{name}-{label.replace(' ', '-')}": Result(
            system=label, metric=f"{name} over HTTP, {clients} clients, requests/s", value=round(each.rate, 2),
            protocol=protocol, seed=SEED, seconds=seconds, signature=each.signature(),
        )
        for label, each in outcomes.items()
    }  # fmt: skip


def sentences(count: int, shortest: int, longest: int) -> list[str]:
    """Random texts of different lengths."""
    dice = random.Random(SEED)
    return [
        " ".join(f"w{dice.randrange(WORDS - len(SPECIALS))}" for _ in range(dice.randint(shortest, longest)))
        for _ in range(count)
    ]


def tokenizer() -> Any:
    """All words, each a token."""
    from mallang.text.tokenizer import Config, Tokenizer

    words = [f"w{number}" for number in range(WORDS - len(SPECIALS))]
    lines = [" ".join(words[first : first + 20]) for first in range(0, len(words), 20)]
    return Tokenizer.train(lines, Config(unit="space", vocabulary=WORDS))


def translator(folder: Path, count: int) -> list[Request]:
    """The run of the translator, and its requests."""
    import torch

    import mallang
    from mallang import recipe as recipes
    from mallang.find import find
    from mallang.interop.imported_run import write_imported

    torch.manual_seed(SEED)
    resolved = recipes.read("transformer-multi30k-en-de", ["text.unit=space"]).build()
    words = tokenizer()
    task = find("tasks", resolved.task_name).Task(resolved.task, {"source": words, "target": words})
    model = task.build(find("models", resolved.model_name), resolved.model)
    write_imported(folder / "translate", resolved, words, model, about="random", sources={}, fresh=True)
    texts = sentences(count, 8, 20)
    options = {"beam": 5, "min_length": 14, "max_length": 14}
    verbs = mallang.load(folder / "translate", "cpu")
    alone = [verbs.translate(text, **options) for text in texts]
    return [
        Request("/api/translate", {"texts": text, **options}, own.output, own.score, len(own.tokens))
        for text, own in zip(texts, alone, strict=True)
    ]


def writer(folder: Path, count: int) -> list[Request]:
    """The run of the language model, the same weights for the peer, and the requests."""
    import mallang
    from benchmarks.serving_peer import save_peer
    from mallang import recipe as recipes
    from mallang.interop.imported_run import write_imported

    words = tokenizer()
    changes = [
        "text.unit=space",
        f"model.layers={WRITER.layers}",
        f"model.dim={WRITER.dim}",
        f"model.heads={WRITER.heads}",
        f"model.hidden_dim={4 * WRITER.dim}",
    ]
    resolved = recipes.read("gpt-miniworld", [*changes, f"model.max_length={WRITER.context}"]).build()
    model = ours(WRITER)
    write_imported(folder / "generate", resolved, words, model, about="random", sources={}, fresh=True)
    save_peer(folder / "hf", WRITER, words)
    dice, verbs = random.Random(SEED), mallang.load(folder / "generate", "cpu")
    requests = []
    for number, text in enumerate(sentences(count, 2, 20)):
        length = dice.randint(8, 128)
        chosen: dict[str, Any] = {"method": "greedy"} if number % 2 else {"method": "sampling", "seed": number}
        options = {**chosen, "min_length": length, "max_length": length}
        own = verbs.generate(text, **options)
        requests.append(Request("/api/generate", {"prompts": text, **options}, own.output, own.score, length))
    return requests
