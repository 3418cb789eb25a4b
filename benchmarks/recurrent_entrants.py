"""Systems of `recurrent_speed`: models of ours by name, and bare loops of torch without attention.

All have the same words, the same Adam and the same plain cross-entropy. A turn is some whole updates: forward,
backward, the norm of the gradients, optimizer.
"""

from __future__ import annotations

from typing import Any

from benchmarks.contest import Turn
from benchmarks.decoding_entrants import SEED
from benchmarks.shape import Shape
from benchmarks.training_entrants import random_ids, repeated, trained


def ours(model: str, config: dict[str, Any], shape: dict[str, Any], updates: int, device: str, engine: str) -> Turn:
    """The step and the optimizer of our loop around a model of that name."""
    import torch

    from mallang.data.batch import Batch
    from mallang.tasks.translation import Config, Task
    from mallang.text import tokenizer
    from mallang.training import optimizer as optimizers
    from mallang.training.step import Step

    sizes, place = Shape(**shape), torch.device(device)
    learner = build(model, config, sizes.words).to(place).train()
    unused = tokenizer.Tokenizer.train(["a"], tokenizer.Config(unit="char"))  # there is no text
    task = Task(Config(label_smoothing=0.0), {"source": unused, "target": unused})
    step = Step(task, learner, place, "auto", engine, one_shape=True)  # type: ignore[arg-type]
    settings = optimizers.Config()
    optimizer = optimizers.build(settings, task.updates(learner))
    source, target = random_ids(sizes)
    batch = Batch(
        tokens=target[:, :-1],
        labels=target[:, 1:],
        source=source,
        source_lengths=torch.full((sizes.sentences,), sizes.source),
        lengths=torch.full((sizes.sentences,), sizes.target),
    )
    totals = [sizes.sentences * sizes.target]

    def update() -> None:
        optimizer.zero_grad(set_to_none=not step.keeps_gradients)
        step.run(batch, totals)
        optimizers.clip_gradients(learner.parameters(), settings)
        optimizer.step()

    return repeated(update, updates, sizes)


def build(model: str, config: dict[str, Any], words: int) -> Any:
    """A model that has learned nothing, with one vocabulary for both sides."""
    import torch

    from mallang.find import find
    from mallang.text.vocabulary import SPECIALS, Vocabulary

    torch.manual_seed(SEED)
    module = find("models", model)
    names = Vocabulary((*SPECIALS, *(f"w{number}" for number in range(words - len(SPECIALS)))))
    return module.Model(module.Config(**config), names, names)


def bare(
    kind: str, layers: int, both_ways: bool, shape: dict[str, Any], updates: int, device: str, graph: bool = False
) -> Turn:
    """Embedding, a recurrent encoder and decoder of torch, projection, `F.cross_entropy`: no attention, no masks."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    sizes = Shape(**shape)
    torch.manual_seed(SEED)
    kinds: dict[str, Any] = {"lstm": nn.LSTM, "gru": nn.GRU}
    options = {"batch_first": True, "dropout": sizes.dropout if layers > 1 else 0.0}
    model = nn.ModuleDict(
        {
            "source_table": nn.Embedding(sizes.words, sizes.dim),
            "table": nn.Embedding(sizes.words, sizes.dim),
            "encoder": kinds[kind](sizes.dim, sizes.dim, layers, bidirectional=both_ways, **options),
            "decoder": kinds[kind](sizes.dim, sizes.dim, layers, **options),
            "head": nn.Linear(sizes.dim, sizes.words, bias=False),
        }
    ).to(device)
    source, target = (ids.to(device) for ids in random_ids(sizes))
    dropout = nn.Dropout(sizes.dropout)

    def loss() -> torch.Tensor:
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            _, state = model["encoder"](dropout(model["source_table"](source)))
            if both_ways:  # the direction that ends at the first word
                state = state[1::2].contiguous()
            hidden, _ = model["decoder"](dropout(model["table"](target[:, :-1])), state)
            logits = model["head"](dropout(hidden))
        return F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=0)

    return trained(model.train(), loss, updates, sizes, graph=graph)
