"""Systems of `pretraining_speed`: ours and transformers, on the same masked batches of random words.

All batches are masked by our task before time is taken, and given to every system as tables on the host: fixed rows of
one length, or texts with the lengths of Korean film reviews. An update copies a batch to the device, runs forward and
backward, clips the gradient and steps AdamW over float32 weights. A turn's work is its tokens without padding. No
corpus is read, so nothing has to be downloaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle, islice
from typing import Any, Literal

import numpy as np

from benchmarks.contest import Turn

SEED = 1
WORDS, RATE, CLIP, SHARE = 30_522, 1e-4, 1.0, 0.15
REVIEWS = (
    0, 2, 3, 4, 4, 5, 6, 6, 7, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 13, 13, 14, 14, 15, 16, 17, 17, 18, 19, 20, 22, 23,
    25, 27, 31, 35, 41, 50, 60, 140,
)  # fmt: skip
"""Every fortieth quantile of the tokens of a review: NSMC's 142,664 distinct ones in 8,000 WordPieces, mean 16.7."""
SHAPES: dict[str, dict[str, int]] = {
    "base": {"layers": 12, "dim": 768, "heads": 12},
    "mini": {"layers": 4, "dim": 256, "heads": 4},
    "electra-small": {"layers": 12, "dim": 256, "heads": 4},
    "tiny": {"layers": 2, "dim": 16, "heads": 2},
    "electra-tiny": {"layers": 2, "dim": 32, "heads": 4},
}
Lengths = Literal["fixed", "reviews"]
Batches = list[Any]
"""Batches of mallang with masks, on the host."""


def lengths_of(kind: Lengths, count: int, length: int) -> np.ndarray:
    """The tokens of so many texts, special ones included."""
    if kind == "fixed":
        return np.full(count, length)
    drawn = np.random.default_rng(SEED).random(count) * (len(REVIEWS) - 1)
    return np.clip(np.interp(drawn, np.arange(len(REVIEWS)), REVIEWS).round() + 2, 3, length).astype(np.int64)


def texts_of(lengths: np.ndarray, words: int) -> list[Any]:
    """Random texts of these lengths, as our task reads passages."""
    from mallang.data.batch import IGNORE

    random = np.random.default_rng(SEED)
    bodies = (random.integers(7, words, length - 2) for length in lengths.tolist())
    return [((body, np.zeros(0, np.int64), IGNORE),) for body in bodies]


def task_of(objective: str, words: int, length: int, layout: str = "texts") -> Any:
    """Our task for one objective, with a vocabulary of made-up words."""
    from mallang.find import find
    from mallang.tasks.masked_lm import MARKS
    from mallang.text.tokenizer import Config, Tokenizer

    module = find("tasks", objective)
    text = " ".join(f"w{number}" for number in range(words))
    tokenizer = Tokenizer.train([text], Config(unit="space", vocabulary=words - len(MARKS)), special=MARKS)
    if len(tokenizer.vocabulary) != words:
        raise ValueError(f"{len(tokenizer.vocabulary)} words, not {words}")
    config = module.Config(length=length, rate=SHARE, exact=True, layout=layout)
    return module.Task(config, {"text": tokenizer})


def groups_of(how: str, lengths: np.ndarray, tokens: int, task: Any = None) -> list[list[list[int]]]:
    """The texts of each row of each batch: ours in `buckets` or `packed`; theirs `grouped` by length, or `random`.

    Theirs have so many texts in a batch that it holds `tokens` tokens without padding on average, as ours do.
    """
    from mallang.data.sampler import Buckets, Packed

    if how == "buckets":
        plan: Any = Buckets(lengths[:, None], tokens=tokens, multiple=8, seed=SEED, epoch=0)
        return [[[number] for row in batch for number in row] for batch in plan]
    if how == "packed":
        width = task.config.length
        return [[list(row) for row in each] for each in Packed(lengths, width=width, rows=tokens // width,
                                                               seed=SEED, epoch=0)]  # fmt: skip
    rows = max(1, round(tokens / float(lengths.mean())))
    order = np.random.default_rng(SEED).permutation(len(lengths))
    if how == "grouped":  # as group_by_length: sorted within 50 batches
        large = 50 * rows
        parts = [order[start : start + large] for start in range(0, len(order), large)]
        order = np.concatenate([part[np.argsort(-lengths[part], kind="stable")] for part in parts])
    batches = [order[start : start + rows] for start in range(0, len(order) - rows + 1, rows)]
    return [[[number] for number in each] for each in batches]


def batches_of(task: Any, kind: Lengths, how: str, rows: int, length: int, count: int) -> Batches:
    """About so many batches of rows × length tokens, masked."""
    words, tokens = len(task.text.vocabulary), rows * length
    if kind == "fixed":
        lengths, groups = lengths_of(kind, rows * count, length), None
        groups = [[[batch * rows + row] for row in range(rows)] for batch in range(count)]
    else:
        mean = float(lengths_of(kind, 10_000, length).mean())
        lengths = lengths_of(kind, round(count * tokens / mean), length)
        groups = groups_of(how, lengths, tokens, task)
    texts = texts_of(lengths, words)
    found = []
    for number, group in enumerate(groups):
        given = [tuple(texts[place][0] for place in row) for row in group]
        found.append(task.prepare(given, np.random.default_rng([SEED, number])))
    return found


def our_model(objective: str, shape: str, task: Any, dropout: float = 0.1) -> Any:
    """BERT or ELECTRA of this shape, with the heads of its pre-training and no pooler."""
    import torch

    from mallang.find import find

    torch.manual_seed(SEED)
    usual: dict[str, Any] = {"max_length": 512, "dropout": dropout, "attention_dropout": dropout, **SHAPES[shape]}
    if objective == "masked_lm":
        module = find("models", "bert")
        more = {"pooler": False, "pooling": "mean", "pretraining_heads": "masked-lm"}
    else:
        module, width = find("models", "electra"), usual["dim"]
        more = {"embedding_dim": width // 2, "generator_width": 0.25, "pretraining_heads": "both"}
    return module.Model(module.Config(**usual, **more), task.text.vocabulary)


def ours(
    objective: str, shape: str, kind: Lengths, how: str, rows: int, length: int, count: int, device: str,
    threads: int = 0, words: int = WORDS,
) -> Turn:  # fmt: skip
    """Our task, step and optimizer; compiled on a GPU, with bfloat16 weights beside those in float32."""
    import torch

    from mallang.training import optimizer as optimizers
    from mallang.training.step import Step

    torch.set_num_threads(threads or torch.get_num_threads())
    task = task_of(objective, words, length, "packed" if how == "packed" else "texts")
    place, model = torch.device(device), our_model(objective, shape, task).to(device).train()
    batches, on_gpu = batches_of(task, kind, how, rows, length, count), device == "cuda"
    counted = [task.counts(batch) for batch in batches]
    if on_gpu:
        shapes = task.shapes(rows * length, None)
        batches = [shapes.fill(batch).pin_memory() for batch in batches]
    config = optimizers.Config(
        name="adamw", learning_rate=RATE, betas=(0.9, 0.999), epsilon=1e-6, weight_decay=0.01, max_grad_norm=CLIP
    )
    optimizer, parameters = optimizers.build(config, task.updates(model)), list(model.parameters())
    precision, engine = ("bf16-weights", "compile") if on_gpu else ("auto", "eager")
    step = Step(task, model, place, precision, engine, one_shape=how == "packed" or kind == "fixed")  # type: ignore[arg-type]

    def update(number: int) -> int:
        optimizer.zero_grad(set_to_none=not step.keeps_gradients)
        step.run(batches[number], [counted[number][part] for part in task.parts])
        optimizers.clip_gradients(parameters, config)
        optimizer.step()
        return counted[number]["tokens"]

    return turn_of(update, len(batches))


def turn_of(update: Callable[[int], int], count: int) -> Turn:
    """A turn over all batches once."""
    numbers = cycle(range(count))
    return lambda: float(sum(update(number) for number in islice(numbers, count)))


def their_tables(batch: Any, *, needs_mask: bool) -> dict[str, Any]:
    """A batch of ours as theirs: ids, labels, where there is a text, and the flat places of the masked tokens."""
    import torch

    tokens, masked = batch.tokens, batch.masked
    rows, columns, originals = masked.unbind(dim=1)
    labels = torch.full_like(tokens, -100)
    labels[rows, columns] = originals
    found = {"tokens": tokens, "labels": labels, "places": rows * tokens.shape[1] + columns, "originals": originals}
    return {**found, "mask": batch.mask.long()} if needs_mask else found


def their_bert(shape: str, words: int, dropout: float = 0.1) -> Any:
    """BertForMaskedLM of transformers with random weights."""
    import torch
    import transformers

    torch.manual_seed(SEED)
    sizes = SHAPES[shape]
    config = transformers.BertConfig(
        vocab_size=words, hidden_size=sizes["dim"], num_hidden_layers=sizes["layers"],
        num_attention_heads=sizes["heads"], intermediate_size=4 * sizes["dim"], max_position_embeddings=512,
        hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
    )  # fmt: skip
    return transformers.BertForMaskedLM(config)


def whole_head(model: Any, tables: dict[str, Any]) -> Any:
    """The loss as transformers computes it: logits of all tokens."""
    return model(input_ids=tables["tokens"], attention_mask=tables.get("mask"), labels=tables["labels"]).loss


def masked_head(model: Any, tables: dict[str, Any]) -> Any:
    """The loss of BertForMaskedLM with logits of the masked tokens alone."""
    import torch.nn.functional as F

    hidden = model.bert(input_ids=tables["tokens"], attention_mask=tables.get("mask")).last_hidden_state
    logits = model.cls(hidden.flatten(0, 1)[tables["places"]])
    return F.cross_entropy(logits.float(), tables["originals"])


def their_electra(shape: str, words: int, dropout: float = 0.1) -> Any:
    """A generator and a discriminator of transformers that share their embeddings."""
    import torch
    import transformers

    torch.manual_seed(SEED)
    sizes = SHAPES[shape]
    dim = sizes["dim"]
    usual = {
        "vocab_size": words, "embedding_size": dim // 2, "max_position_embeddings": 512,
        "num_hidden_layers": sizes["layers"], "hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout,
    }  # fmt: skip
    both = torch.nn.Module()
    narrow = {"hidden_size": dim // 4, "num_attention_heads": sizes["heads"] // 4, "intermediate_size": dim}
    wide = {"hidden_size": dim, "num_attention_heads": sizes["heads"], "intermediate_size": 4 * dim}
    both.generator = transformers.ElectraForMaskedLM(transformers.ElectraConfig(**usual, **narrow))
    both.discriminator = transformers.ElectraForPreTraining(transformers.ElectraConfig(**usual, **wide))
    shared: Any = both.discriminator.electra.embeddings
    both.generator.electra.embeddings = shared
    both.generator.generator_lm_head.weight = shared.word_embeddings.weight
    return both


def replaced(model: Any, tables: dict[str, Any]) -> Any:
    """ELECTRA's loss, with logits of the generator at the masked tokens alone: 50 · RTD + MLM."""
    import torch
    import torch.nn.functional as F

    tokens, places, mask = tables["tokens"], tables["places"], tables.get("mask")
    hidden = model.generator.electra(input_ids=tokens, attention_mask=mask).last_hidden_state.flatten(0, 1)[places]
    logits = model.generator.generator_lm_head(model.generator.generator_predictions(hidden)).float()
    loss = F.cross_entropy(logits, tables["originals"])
    with torch.no_grad():
        drawn = (logits - torch.empty_like(logits).exponential_().log()).argmax(dim=1)
        flat = tokens.flatten()
        original = flat.scatter(0, places, tables["originals"]).view_as(tokens)
        corrupted = flat.scatter(0, places, drawn).view_as(tokens)
    scores = model.discriminator(input_ids=corrupted, attention_mask=mask).logits.float()
    each = F.binary_cross_entropy_with_logits(scores, (corrupted != original).float(), reduction="none")
    real = torch.ones_like(each) if mask is None else mask
    return loss + 50 * (each * real).sum() / real.sum()


LOSSES: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "whole": whole_head, "masked": masked_head, "electra": replaced,
}  # fmt: skip
"""What their update computes, by name."""


def theirs(
    loss: str, shape: str, kind: Lengths, how: str, rows: int, length: int, count: int, device: str,
    threads: int = 0, words: int = WORDS,
) -> Turn:  # fmt: skip
    """Modules of transformers in a plain loop, compiled on a GPU, with bfloat16 autocast and a fused AdamW."""
    import torch

    torch.set_num_threads(threads or torch.get_num_threads())
    is_electra, on_gpu = loss == "electra", device == "cuda"
    task = task_of("replaced_token" if is_electra else "masked_lm", words, length)
    model: Any = (their_electra if is_electra else their_bert)(shape, words).to(device).train()
    batches = batches_of(task, kind, how, rows, length, count)
    counted = [int(batch.lengths.sum()) for batch in batches]
    tables = [their_tables(batch, needs_mask=kind != "fixed") for batch in batches]
    if on_gpu:
        tables = [{name: value.pin_memory() for name, value in each.items()} for each in tables]
    optimizer = torch.optim.AdamW(groups_for_adamw(model), lr=RATE, eps=1e-6, fused=on_gpu)
    computed = torch.compile(LOSSES[loss], dynamic=kind != "fixed") if on_gpu else LOSSES[loss]

    def update(number: int) -> int:
        given = {name: value.to(device, non_blocking=True) for name, value in tables[number].items()}
        with torch.autocast(device, torch.bfloat16, enabled=on_gpu):
            found = computed(model, given)
        found.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return counted[number]

    return turn_of(update, len(batches))


def groups_for_adamw(model: Any) -> Sequence[dict[str, Any]]:
    """Weight decay for matrices alone."""
    matrices, others = (
        [each for each in model.parameters() if (each.dim() > 1) == is_matrix] for is_matrix in (True, False)
    )
    return [{"params": matrices, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
