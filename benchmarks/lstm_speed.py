"""A recurrent language model trains at least as fast as a bare loop around `torch.nn.LSTM`, whatever it drops.

On a GPU the bare loop also runs as a CUDA graph, as ours does; ratios are to the faster of the two.

An LSTM of 2 layers of 650, 10,000 words, 64 rows of 70 tokens whose state carries over from update to update: truncated
back-propagation through time. float32 on a CPU, bfloat16 on a GPU. SGD and the norm of the gradients for all.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.contest import Entrant, Outcome, Turn, race
from benchmarks.report import Result, show
from benchmarks.training_entrants import captured

SEED = 1
BARE, BARE_GRAPH = "bare nn.LSTM loop", "bare nn.LSTM loop as a CUDA graph"
PLAIN: dict[str, Any] = {}
REGULARIzED: dict[str, Any] = {"variational": True, "word_dropout": 0.1, "weight_dropout": 0.5, "ar": 2.0, "tar": 1.0}


@dataclass(frozen=True)
class Shape:
    """What all have in common."""

    layers: int = 2
    dim: int = 650
    words: int = 10_000
    rows: int = 64
    time: int = 70
    dropout: float = 0.5


def measure(rounds: int = 7, updates: int = 0, dropout: int = 50) -> dict[str, Result]:
    """All systems; updates per turn: 0 is 1 on a CPU and 40 on a GPU; dropout in percent."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    shape, began = Shape(dropout=dropout / 100), time.monotonic()
    outcomes = race(entrants_of(shape, updates or (40 if device == "cuda" else 1), device), rounds)
    rows = rows_of(outcomes)
    show(f"training an LSTM language model on {device}", [("", "tokens/s", "MiB", "times the bare loop"), *rows])
    seconds = round(time.monotonic() - began, 1)
    return {
        f"lstm-{device}-{label.replace(' ', '-').replace('.', '-').lower()}": Result(
            system=label,
            metric=f"training an LSTM language model on {device}, tokens/s",
            value=round(speed, 1),
            protocol=f"{shape.layers} layers of {shape.dim}, {shape.words} words, {shape.rows} x {shape.time} tokens, "
            f"dropout {shape.dropout}, the state carried, SGD; in processes of their own, by turns, median of {rounds}",
            seed=SEED,
            seconds=seconds,
            signature=f"{label}: peak {memory:.0f} MiB, {ratio} times the bare loop|{outcomes[label].signature}",
        )
        for label, speed, memory, ratio in rows
    }


def entrants_of(shape: Shape, updates: int, device: str) -> list[Entrant]:
    """The bare loop, ours as it is, and ours with all of its regularization."""
    common: dict[str, Any] = {"shape": asdict(shape), "updates": updates, "device": device}
    graphs = [Entrant(BARE_GRAPH, "benchmarks.lstm_speed:bare", common | {"graph": True})] if device == "cuda" else []
    return [
        Entrant(BARE, "benchmarks.lstm_speed:bare", common),
        *graphs,
        Entrant("rnn_lm", "benchmarks.lstm_speed:ours", common | {"config": PLAIN}),
        Entrant("rnn_lm regularized", "benchmarks.lstm_speed:ours", common | {"config": REGULARIzED}),
    ]


def rows_of(outcomes: Mapping[str, Outcome]) -> list[tuple[str, float, float, float]]:
    """Each with its speed, its memory, and its speed over that of the bare loop in its faster form."""
    bare = max(outcomes[label].rate for label in (BARE, BARE_GRAPH) if label in outcomes)
    return [(label, one.rate, one.peak / 2**20, round(one.rate / bare, 3)) for label, one in outcomes.items()]


def ours(config: dict[str, Any], shape: dict[str, Any], updates: int, device: str) -> Turn:
    """The step and the optimizer of our loop around a recurrent language model."""
    import torch

    from mallang.data.batch import Batch
    from mallang.models.rnn_lm import RNNLM, Config
    from mallang.tasks import language_modeling
    from mallang.text import tokenizer
    from mallang.text.vocabulary import SPECIALS, Vocabulary
    from mallang.training import optimizer as optimizers
    from mallang.training.step import Step

    sizes, place = Shape(**shape), torch.device(device)
    torch.manual_seed(SEED)
    words = Vocabulary((*SPECIALS, *(f"w{number}" for number in range(sizes.words - len(SPECIALS)))))
    chosen = {"layers": sizes.layers, "embedding_dim": sizes.dim, "dim": sizes.dim, "dropout": sizes.dropout}
    model = RNNLM(Config(**chosen | config), words).to(place).train()
    unused = tokenizer.Tokenizer.train(["a"], tokenizer.Config(unit="char"))  # there is no text
    task: Any = language_modeling.Task(language_modeling.Config(layout="stream", context=sizes.time), {"text": unused})
    step = Step(task, model, place, "auto", "auto", one_shape=True)
    settings = optimizers.Config(name="sgd", learning_rate=1.0, max_grad_norm=0.25)
    optimizer = optimizers.build(settings, task.updates(model))
    ids = random_ids(sizes)
    lengths = torch.full((sizes.rows,), sizes.time)
    batch = Batch(tokens=ids[:, :-1].contiguous(), labels=ids[:, 1:].contiguous(), lengths=lengths)
    carry: Any = None

    def update() -> None:
        nonlocal carry
        optimizer.zero_grad(set_to_none=not step.keeps_gradients)
        carry = step.run(batch, [sizes.rows * sizes.time], carry).carry
        optimizers.clip_gradients(model.parameters(), settings)
        optimizer.step()

    return repeated(update, updates, sizes)


def bare(shape: dict[str, Any], updates: int, device: str, graph: bool = False) -> Turn:
    """Embedding, `nn.LSTM`, projection, `F.cross_entropy`: the loop that tutorials show."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    sizes = Shape(**shape)
    torch.manual_seed(SEED)
    model = nn.ModuleDict(
        {
            "table": nn.Embedding(sizes.words, sizes.dim),
            "lstm": nn.LSTM(sizes.dim, sizes.dim, sizes.layers, batch_first=True, dropout=sizes.dropout),
            "head": nn.Linear(sizes.dim, sizes.words),
        }
    )
    model, dropout = model.to(device).train(), nn.Dropout(sizes.dropout)
    ids = random_ids(sizes).to(device)
    tokens, labels = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    state = tuple(torch.zeros(sizes.layers, sizes.rows, sizes.dim, device=device, dtype=dtype) for _ in range(2))

    def update() -> None:
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            hidden, after = model["lstm"](dropout(model["table"](tokens)), state)
            logits = model["head"](dropout(hidden))
            loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        for part, new in zip(state, after, strict=True):  # in place: a graph reads where it wrote
            part.copy_(new.detach())
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()

    return repeated(captured(update) if graph else update, updates, sizes)


def repeated(update: Any, updates: int, shape: Shape) -> Turn:
    """Some updates; the work is the tokens they predict."""

    def run() -> float:
        for _ in range(updates):
            update()
        return updates * shape.rows * shape.time

    return run


def random_ids(shape: Shape) -> Any:
    """Inputs and labels: one token more than there are in a row."""
    import torch

    torch.manual_seed(SEED)
    return torch.randint(4, shape.words, (shape.rows, shape.time + 1))
