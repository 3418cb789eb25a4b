"""Systems of `training_speed`: ours, Hugging Face's Marian, and torch's own Transformer, on batches of one length.

All have the same shape, the same Adam, the same loss (cross-entropy with label smoothing 0.1) and dropout. A turn is
some whole updates: forward, backward, optimizer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from benchmarks.contest import Turn
from benchmarks.decoding_entrants import SEED, our_model, their_model
from benchmarks.shape import Shape

SMOOTHING = 0.1


def ours(shape: dict[str, Any], updates: int, device: str, engine: str) -> Turn:
    """The step and the optimizer of our loop, with a task that has no text to prepare."""
    import torch

    from mallang.data.batch import Batch
    from mallang.training import optimizer as optimizers
    from mallang.training.step import Step

    sizes = Shape(**shape)
    place = torch.device(device)
    model = our_model(sizes).to(place).train()
    task = our_task()
    step = Step(task, model, place, "auto", engine, one_shape=True)  # type: ignore[arg-type]
    config = optimizers.Config()
    optimizer = optimizers.build(config, task.updates(model))
    source, target = random_ids(sizes)
    lengths = [torch.full((sizes.sentences,), each.shape[1]) for each in (source, target[:, 1:])]
    batch = Batch(
        tokens=target[:, :-1], labels=target[:, 1:], source=source, source_lengths=lengths[0], lengths=lengths[1]
    )
    totals = [sizes.sentences * sizes.target]

    def update() -> None:
        optimizer.zero_grad(set_to_none=not step.keeps_gradients)
        step.run(batch, totals)
        optimizers.clip_gradients(model.parameters(), config)
        optimizer.step()

    return repeated(update, updates, sizes)


def marian(shape: dict[str, Any], updates: int, device: str, engine: str) -> Turn:
    """Marian, trained as its users do: autocast on a GPU, a loss over all logits."""
    import torch
    import torch.nn.functional as F

    sizes = Shape(**shape)
    model = their_model(sizes).to(device).train()
    source, target = (ids.to(device) for ids in random_ids(sizes))

    def loss() -> torch.Tensor:
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            logits = model(input_ids=source, decoder_input_ids=target[:, :-1], use_cache=False).logits
        return F.cross_entropy(
            logits.float().flatten(0, 1), target[:, 1:].flatten(), label_smoothing=SMOOTHING, ignore_index=0
        )

    return trained(model, torch.compile(loss) if engine == "compile" else loss, updates, sizes)


def torch_transformer(shape: dict[str, Any], updates: int, device: str, engine: str, weights: str = "float32") -> Turn:
    """`torch.nn.Transformer` with norms first, tied embeddings and the same loss, compiled.

    float32 weights are cast by autocast on a GPU; bfloat16 weights are trained as they are, without a float32 copy,
    which is the fastest way.
    """
    import torch
    import torch.nn.functional as F
    from torch import nn

    from mallang.layers.position import sinusoids

    sizes = Shape(**shape)
    torch.manual_seed(SEED)
    body = nn.Transformer(
        sizes.dim, sizes.heads, sizes.layers, sizes.layers, sizes.hidden_dim, sizes.dropout, batch_first=True,
        norm_first=True,
    )  # fmt: skip
    dtype: torch.dtype = getattr(torch, weights)
    model = nn.ModuleDict({"body": body, "table": nn.Embedding(sizes.words, sizes.dim)}).to(device, dtype).train()
    source, target = (ids.to(device) for ids in random_ids(sizes))
    places = sinusoids(max(sizes.source, sizes.target), sizes.dim).to(device, dtype)
    causal = nn.Transformer.generate_square_subsequent_mask(sizes.target, device=torch.device(device), dtype=dtype)
    casts = device == "cuda" and dtype == torch.float32

    def embed(ids: torch.Tensor) -> torch.Tensor:
        vectors: torch.Tensor = model["table"](ids) * math.sqrt(sizes.dim) + places[: ids.shape[1]]
        return F.dropout(vectors, sizes.dropout)

    def loss() -> torch.Tensor:
        with torch.autocast(device, torch.bfloat16, enabled=casts):
            hidden = model["body"](embed(source), embed(target[:, :-1]), tgt_mask=causal, tgt_is_causal=True)
            logits = hidden @ model["table"].weight.t()  # type: ignore[operator]
        return F.cross_entropy(
            logits.float().flatten(0, 1), target[:, 1:].flatten(), label_smoothing=SMOOTHING, ignore_index=0
        )

    return trained(model, torch.compile(loss) if engine == "compile" else loss, updates, sizes)


def trained(model: Any, loss: Callable[[], Any], updates: int, shape: Shape, *, graph: bool = False) -> Turn:
    """A plain loop around the model of others; as a CUDA graph, the whole update is launched at once."""
    import torch

    optimizer = torch.optim.Adam(
        model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-9, fused=True, capturable=graph
    )  # fmt: skip

    def update() -> None:
        optimizer.zero_grad()
        loss().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), math.inf)  # ours reports the norm, so all measure it
        optimizer.step()

    return repeated(captured(update) if graph else update, updates, shape)


def captured(update: Callable[[], None]) -> Callable[[], None]:
    """An update as a CUDA graph: forward, backward and optimizer are recorded once, and every call replays them."""
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):  # libraries choose their kernels and allocate before anything is recorded
            update()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        update()
    return graph.replay


def repeated(update: Callable[[], None], updates: int, shape: Shape) -> Turn:
    """Some updates; the work is the target tokens they ask for."""

    def run() -> float:
        for _ in range(updates):
            update()
        return updates * shape.sentences * shape.target

    return run


def random_ids(shape: Shape) -> Any:
    """Sources, and targets with one token more: inputs and labels."""
    import torch

    from mallang.text.vocabulary import SPECIALS

    torch.manual_seed(SEED)
    return [
        torch.randint(len(SPECIALS), shape.words, (shape.sentences, length))
        for length in (shape.source, shape.target + 1)
    ]


def our_task() -> Any:
    """The translation task; its tokenizer is not used, for there is no text."""
    from mallang.tasks.translation import Config, Task
    from mallang.text import tokenizer

    unused = tokenizer.Tokenizer.train(["a"], tokenizer.Config(unit="char"))
    return Task(Config(label_smoothing=SMOOTHING), {"source": unused, "target": unused})
