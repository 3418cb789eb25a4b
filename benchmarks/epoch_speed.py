"""On real Multi30k, batches of similar lengths train faster than random ones, and several times as fast as JoeyNMT.

English to German, 3 + 3 layers of 256, float32 on a CPU, one tokenizer for all. Random batches hold as many sentences
as ours do on average, so their mean numbers of tokens are equal. JoeyNMT reads the same tokens as words, in batches of
that many sentences too. Speed counts target tokens without padding, and includes the preparation of batches.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contest import Entrant, large_matmul, race
from benchmarks.epoch_entrants import our_data
from benchmarks.report import Result, show
from benchmarks.shape import SMALL

MODEL = [f"model.layers={SMALL.layers}", f"model.dim={SMALL.dim}", f"model.hidden_dim={SMALL.hidden_dim}",
         f"model.heads={SMALL.heads}", f"model.dropout={SMALL.dropout}", "model.norm=pre",
         f"text.vocabulary={SMALL.words}", "task.r_drop=0"]  # fmt: skip
"""The model of all systems, without the R-Drop of the recipe, which runs every batch twice."""


def measure(rounds: int = 5, updates: int = 20, tokens: int = 2048) -> dict[str, Result]:
    """Ours with its batches, ours with random ones, and JoeyNMT."""
    began = time.monotonic()
    overrides = [*MODEL, f"train.batch_tokens={tokens}"]
    _, materials, source = our_data(overrides)
    plan = source.plan(0)
    sentences = round(len(materials.train) / len(plan))
    means = (materials.train.lengths + 1).mean(axis=0)
    with tempfile.TemporaryDirectory() as folder:
        write_words(materials, Path(folder))
        entrants = [
            entrant("mallang", "ours", overrides=overrides, updates=updates, sentences=0),
            entrant("mallang random batches", "ours", overrides=overrides, updates=updates, sentences=sentences),
            entrant(
                "joeynmt", "joeynmt", "joeynmt", folder=folder, settings=joeynmt_settings(folder, sentences),
                updates=updates,
            ),
            large_matmul("cpu"),
        ]  # fmt: skip
        outcomes = race(entrants, rounds)
    rate = outcomes.pop(entrants[-1].label).rate
    shape = replace(
        SMALL, sentences=1, source=round(means[0]), target=round(means[1]), words=len(materials.task.target.vocabulary)
    )
    each = 3 * shape.operations() / shape.target
    rows = [(label, one.rate, one.peak / 2**20, one.rate * each / rate) for label, one in outcomes.items()]
    show(
        f"multi30k en-de, {sentences} sentences per batch",
        [("", "target tokens/s", "MiB", "share of the matmul"), *rows],
    )
    protocol = (
        f"multi30k en-de, 3+3 layers, 256, 1024, {shape.words} words; ours: at most {tokens} padded tokens per batch; "
        f"others: {sentences} sentences, the same mean; by turns of {updates} updates, median of {rounds}; "
        f"target tokens without padding; {entrants[-1].label}: {rate / 1e9:,.0f} GFLOP/s in the same run"
    )
    return {
        f"epoch-{label.replace(' ', '-')}": Result(
            system=label, corpus="multi30k", direction="en-de", split="train", seed=1, protocol=protocol,
            metric="training on multi30k on cpu, target tokens/s", value=round(speed, 1),
            seconds=round(time.monotonic() - began, 1),
            signature=f"{label}: peak {memory:.0f} MiB, {share:.1%} of the matmul|{outcomes[label].signature}",
        )
        for label, speed, memory, share in rows
    }  # fmt: skip


def entrant(label: str, function: str, *needs: str, **options: Any) -> Entrant:
    """One benchmarked system."""
    return Entrant(label, f"benchmarks.epoch_entrants:{function}", options, needs)


def write_words(materials: Any, folder: Path) -> None:
    """The training pairs as tokens with blanks between, and the list of all tokens, for others to read."""
    from mallang.text.vocabulary import SPECIALS

    vocabulary = materials.task.target.vocabulary.tokens
    sides = zip(*(materials.train[place] for place in range(len(materials.train))), strict=True)
    for name, rows in zip(("en", "de"), sides, strict=True):
        lines = [" ".join(vocabulary[i] for i in np.asarray(row).tolist()) for row in rows]
        (folder / f"train.{name}").write_text("".join(f"{line}\n" for line in lines), "utf-8")
        (folder / f"dev.{name}").write_text("".join(f"{line}\n" for line in lines[:10]), "utf-8")
    (folder / "words.txt").write_text("".join(f"{token}\n" for token in vocabulary[len(SPECIALS) :]), "utf-8")


def joeynmt_settings(folder: str, sentences: int) -> dict[str, Any]:
    """The model and its training in JoeyNMT's settings."""
    side = {"level": "word", "voc_file": f"{folder}/words.txt", "max_length": 1000, "lowercase": False}
    stack = {
        "type": "transformer", "num_layers": SMALL.layers, "num_heads": SMALL.heads, "hidden_size": SMALL.dim,
        "ff_size": SMALL.hidden_dim, "dropout": SMALL.dropout, "layer_norm": "pre",
        "embeddings": {"embedding_dim": SMALL.dim, "scale": True, "dropout": SMALL.dropout},
    }  # fmt: skip
    return {
        "name": "epoch", "joeynmt_version": "2.3.0", "use_cuda": False, "fp16": False, "random_seed": 1,
        "data": {
            "train": f"{folder}/train", "dev": f"{folder}/dev", "dataset_type": "plain",
            "src": side | {"lang": "en"}, "trg": side | {"lang": "de"},
            "special_symbols": {
                "pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>",
                "unk_id": 0, "pad_id": 1, "bos_id": 2, "eos_id": 3,
            },
        },
        "testing": {"beam_size": 1, "eval_metrics": ["bleu"]},
        "training": {
            "optimizer": "adam", "adam_betas": [0.9, 0.98], "learning_rate": 0.001,
            "scheduling": "exponential", "loss": "crossentropy",
            "label_smoothing": 0.1, "normalization": "tokens", "batch_size": sentences, "batch_type": "sentence",
            "epochs": 1, "validation_freq": 1000000, "early_stopping_metric": "loss", "clip_grad_norm": 1.0,
        },
        "model": {
            "initializer": "xavier_uniform", "tied_embeddings": True, "tied_softmax": True,
            "encoder": stack, "decoder": stack,
        },
    }  # fmt: skip
