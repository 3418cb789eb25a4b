"""Who trains in `gpt_speed`: ours, nanoGPT and Hugging Face's GPT-2, each in its fastest way, on the same batches.

All have the same weights at the start, the same AdamW with float32 weights, clipping and no dropout. A turn is some
whole updates. Run as a module it trains one of them for many updates and prints its losses.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from benchmarks.contest import Turn
from benchmarks.gpt_models import SEED, Shape, hugging_face, nanogpt, ours

RATE, BETAS, DECAY, CLIP = 6e-4, (0.9, 0.95), 0.1, 1.0
KEPT = 8
"""Batches that are drawn before time is taken, and come again and again."""

Update = Callable[[Any], Any]
"""One update by a table of ids, a column wider than what is read; the mean loss before it, as a tensor."""


def turn(system: str, shape: dict[str, Any], rows: int, updates: int, **options: Any) -> Turn:
    """An entrant: so many updates a turn."""
    sizes = Shape(**shape)
    update = UPDATES[system](sizes, **options)
    batches = [batch(sizes, rows, number, options["device"]) for number in range(KEPT)]
    count = 0

    def run() -> float:
        nonlocal count
        for _ in range(updates):
            update(batches[count % KEPT])
            count += 1
        return updates * rows * sizes.context

    return run


def losses(system: str, shape: dict[str, Any], rows: int, updates: int, **options: Any) -> list[float]:
    """The losses of all updates, from the first."""
    sizes = Shape(**shape)
    update = UPDATES[system](sizes, **options)
    found = [update(batch(sizes, rows, number, options["device"])).detach().clone() for number in range(updates)]
    return [float(each) for each in found]


def our_update(shape: Shape, device: str, engine: str, precision: str = "auto", warmup: int = 0, **_: Any) -> Update:
    """The step and the optimizer of our loop, with the task of language models."""
    import torch

    from mallang.data.batch import Batch
    from mallang.tasks import language_modeling
    from mallang.text import tokenizer
    from mallang.training import optimizer as optimizers
    from mallang.training.step import Step

    place = torch.device(device)
    model = ours(shape).to(place).train()
    unused = tokenizer.Tokenizer.train(["a"], tokenizer.Config(unit="char"))  # there is no text
    settings = language_modeling.Config(layout="stream", context=shape.context, order="shuffled")
    task = language_modeling.Task(settings, {"text": unused})
    step = Step(task, model, place, precision, engine, one_shape=True)  # type: ignore[arg-type]
    config = optimizers.Config(
        name="adamw", learning_rate=RATE, betas=BETAS, epsilon=1e-8, weight_decay=DECAY, max_grad_norm=CLIP
    )
    optimizer = optimizers.build(config, task.updates(model))
    parameters, warm = list(model.parameters()), warmed(optimizer, warmup)

    def update(ids: Any) -> Any:
        warm()
        tokens, labels = ids[:, :-1], ids[:, 1:]
        optimizer.zero_grad(set_to_none=not step.keeps_gradients)
        given = Batch(tokens=tokens, labels=labels, lengths=torch.full((len(ids),), tokens.shape[1]))
        loss = step.run(given, [labels.numel()])
        optimizers.clip_gradients(parameters, config)
        optimizer.step()
        return loss.sums["loss"] / labels.numel()

    return update


def warmed(optimizer: Any, steps: int) -> Callable[[], None]:
    """What to call before each update: the rate grows through so many."""
    count = 0

    def warm() -> None:
        nonlocal count
        count += 1
        if count <= steps:
            for group in optimizer.param_groups:
                group["lr"] = RATE * count / steps

    return warm


def nanogpt_update(shape: Shape, device: str, engine: str, path: str, warmup: int = 0, **_: Any) -> Update:
    """nanoGPT as its train.py has it: compiled, autocast, its own optimizer."""
    model = nanogpt(shape, path).to(device).train()
    optimizer = model.configure_optimizers(DECAY, RATE, BETAS, device)
    warm = warmed(optimizer, warmup)
    return trained(model, optimizer, lambda module, tokens, labels: module(tokens, labels)[1], device, engine, warm)


def hugging_face_update(shape: Shape, device: str, engine: str, **_: Any) -> Update:
    """Hugging Face's, with the loss over all logits inside what is compiled."""
    import torch
    import torch.nn.functional as F

    model = hugging_face(shape).to(device).train()
    matrices, others = (
        [each for each in model.parameters() if (each.dim() > 1) == is_matrix] for is_matrix in (True, False)
    )
    groups = [{"params": matrices, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=BETAS, fused=True)

    def loss(module: Any, tokens: Any, labels: Any) -> Any:
        logits = module(input_ids=tokens, use_cache=False).logits
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())

    return trained(model, optimizer, loss, device, engine)


def trained(
    model: Any,
    optimizer: Any,
    loss: Callable[[Any, Any, Any], Any],
    device: str,
    engine: str,
    warm: Callable[[], None] = lambda: None,
) -> Update:
    """A plain loop around the model of others."""
    import torch

    run = torch.compile(loss) if engine == "compile" else loss

    def update(ids: Any) -> Any:
        warm()
        ids = ids.to(device, non_blocking=True)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            found = run(model, ids[:, :-1].contiguous(), ids[:, 1:].contiguous())
        found.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return found

    return update


UPDATES: dict[str, Callable[..., Update]] = {
    "mallang": our_update,
    "nanogpt": nanogpt_update,
    "hugging face": hugging_face_update,
}
SAID, FOLLOWERS = 4096, 16
"""Words that occur at all, and words that may follow each of them."""


def batch(shape: Shape, rows: int, number: int, device: str) -> Any:
    """Random text that can be learned: after every word come a few others, some more often than the rest."""
    import numpy as np
    import torch

    from mallang.text.vocabulary import SPECIALS

    words, first = min(SAID, shape.words - len(SPECIALS)), len(SPECIALS)
    followers = np.random.default_rng(SEED).integers(0, words, (words, FOLLOWERS))
    random = np.random.default_rng([SEED, number])
    choices = (FOLLOWERS * random.random((rows, shape.context)) ** 3).astype(np.int64)
    ids = np.empty((rows, shape.context + 1), np.int64)
    ids[:, 0] = random.integers(0, words, rows)
    for place in range(shape.context):
        ids[:, place + 1] = followers[ids[:, place], choices[:, place]]
    found = torch.from_numpy(ids + first)
    return found.pin_memory() if device == "cuda" else found


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints goes to the error stream
    print(json.dumps(losses(**json.loads(sys.argv[1]))), file=answers, flush=True)
