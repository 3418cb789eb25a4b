"""Systems of `finetuning_speed`, `encoder_speed` and `embedding_speed`: ours, transformers and sentence-transformers.

All read one folder: a BERT of 6 layers of 384 with random weights, as transformers saves it, and a WordPiece tokenizer
that was trained on NSMC. So all compute the same, on texts with the lengths of NSMC.
"""

from __future__ import annotations

import itertools
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contest import Turn

SEED = 1
WORDS = 8000
SHAPE = {
    "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536,
    "max_position_embeddings": 512,
}  # fmt: skip
RATE = 2e-5


def nsmc(split: str, most: int) -> tuple[list[str], list[int]]:
    """The first texts of NSMC and their labels; read here, since other processes may not have mallang."""
    lines = Path(os.environ["MALLANG_DATA"], "nsmc", f"ratings_{split}.txt").read_text("utf-8").split("\n")[1:]
    rows = [line.rstrip("\r").split("\t") for line in lines if line.count("\t") == 2]
    rows = [row for row in rows if row[1].strip()][:most]
    return [row[1] for row in rows], [int(row[2]) for row in rows]


def make_folder(folder: Path, kind: str, texts: Sequence[str]) -> None:
    """Write the folder that all systems read: "ForSequenceClassification", or "Model" with mean pooling."""
    import torch
    import transformers
    from tokenizers import BertWordPieceTokenizer

    backend = BertWordPieceTokenizer(lowercase=False)
    backend.train_from_iterator(texts, vocab_size=WORDS, show_progress=False)
    vocabulary = backend.get_vocab()
    torch.manual_seed(SEED)
    config = transformers.BertConfig(vocab_size=len(vocabulary), num_labels=2, **SHAPE)
    getattr(transformers, f"Bert{kind}")(config).save_pretrained(folder)
    words = sorted(vocabulary, key=vocabulary.__getitem__)
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", "utf-8")
    settings = {"do_lower_case": False, "tokenizer_class": "BertTokenizer", "model_max_length": 512}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")
    if kind == "Model":
        module = "sentence_transformers.models"
        modules = [
            {"idx": 0, "name": "0", "path": "", "type": f"{module}.Transformer"},
            {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{module}.Pooling"},
        ]
        (folder / "modules.json").write_text(json.dumps(modules), "utf-8")
        (folder / "1_Pooling").mkdir()
        pooling = {"word_embedding_dimension": SHAPE["hidden_size"], "pooling_mode_mean_tokens": True}
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling), "utf-8")


def our_run(folder: str, device: str, weights: str = "float32") -> Any:
    """The folder, imported and loaded."""
    import mallang
    from mallang.interop.huggingface_models import import_model

    with tempfile.TemporaryDirectory() as place:
        import_model(Path(folder), Path(place) / "run")
        return mallang.load(Path(place) / "run", device=device, weights=weights)  # type: ignore[arg-type]


def set_threads(threads: int) -> None:
    """So many threads of torch."""
    import torch

    torch.set_num_threads(threads)


# ---- fine-tuning: a turn is some updates, its work their tokens without padding ----


def our_training(folder: str, sentences: int, batch: int, updates: int, device: str, threads: int) -> Turn:
    """Our batches, step and optimizer; on a GPU batches have few shapes, each a captured graph, as in training."""
    import torch

    from mallang.data.batch import Shapes
    from mallang.data.sampler import Buckets
    from mallang.models.contract import longest_of
    from mallang.training import optimizer as optimizers
    from mallang.training.step import Step

    set_threads(threads)
    verbs, (texts, labels) = our_run(folder, device), nsmc("train", sentences)
    task, model = verbs.task, verbs.model.train()
    examples = [(*each[:1], np.array([label])) for each, label in zip(verbs.examples(texts), labels, strict=True)]
    lengths = np.array([[len(ids) + 2] for ids, _ in examples])
    config = optimizers.Config(
        name="adamw", learning_rate=RATE, betas=(0.9, 0.999), epsilon=1e-8, weight_decay=0.01, max_grad_norm=1.0
    )
    optimizer = optimizers.build(config, task.updates(model))
    step = Step(task, model, torch.device(device), "auto", "auto")

    shapes = Shapes(512 * batch, batch, longest=longest_of(model)) if device == "cuda" else None
    how = {"tokens": 512 * batch, "sentences": batch, "multiple": shapes.multiple if shapes else 1, "seed": SEED}

    def batches() -> Iterator[Any]:
        for epoch in itertools.count():
            for rows in Buckets(lengths, epoch=epoch, **how):
                yield task.collate([examples[place] for (place,) in rows])

    stream = batches()

    def run() -> float:
        tokens = 0
        for one in itertools.islice(stream, updates):
            counts = task.counts(one)
            one = one if shapes is None else shapes.fill(one)
            optimizer.zero_grad(set_to_none=not step.keeps_gradients)
            step.run(one.to(device), [counts["loss"]] * len(counts))
            optimizers.clip_gradients(model.parameters(), config)
            optimizer.step()
            tokens += counts["tokens"]
        return float(tokens)

    return run


def their_training(folder: str, sentences: int, batch: int, updates: int, device: str, threads: int) -> Turn:
    """What Trainer runs with group_by_length, dynamic padding and adamw_torch_fused, written out."""
    import torch
    import transformers
    from transformers.trainer_pt_utils import LengthGroupedSampler

    set_threads(threads)
    texts, labels = nsmc("train", sentences)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model: Any = transformers.AutoModelForSequenceClassification.from_pretrained(folder).to(device).train()
    ids = tokenizer(texts, truncation=True, max_length=512)["input_ids"]
    rows = [{"input_ids": each, "labels": label} for each, label in zip(ids, labels, strict=True)]
    collate = transformers.DataCollatorWithPadding(tokenizer)
    decayed = [one for name, one in model.named_parameters() if not name.endswith("bias") and "LayerNorm" not in name]
    others = [one for name, one in model.named_parameters() if name.endswith("bias") or "LayerNorm" in name]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, fused=True)
    forward = torch.compile(model, dynamic=True) if device == "cuda" else model

    def batches() -> Iterator[Any]:
        for epoch in itertools.count():
            order = LengthGroupedSampler(
                batch, lengths=[len(each) for each in ids], generator=torch.Generator().manual_seed(epoch)
            )
            yield from torch.utils.data.DataLoader(rows, batch, sampler=order, collate_fn=collate)  # type: ignore[arg-type]

    stream = batches()

    def run() -> float:
        tokens = 0
        for one in itertools.islice(stream, updates):
            tokens += int(one["attention_mask"].sum())
            inputs = {name: value.to(device, non_blocking=True) for name, value in one.items()}
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                loss = forward(**inputs).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        return float(tokens)

    return run


# ---- inference: a turn reads all texts, its work is their number ----


def our_classifier(folder: str, sentences: int, device: str, threads: int, weights: str) -> Turn:
    """The verb `classify`."""
    set_threads(threads)
    verbs, (texts, _) = our_run(folder, device, weights), nsmc("test", sentences)
    return lambda: float(len(verbs.classify(texts)))


def their_classifier(folder: str, sentences: int, device: str, threads: int, batch: int) -> Turn:
    """The pipeline of transformers, with texts sorted by length so that batches hold little padding."""
    import transformers

    set_threads(threads)
    texts, _ = nsmc("test", sentences)
    pipe = transformers.pipeline("text-classification", model=folder, device=device, top_k=None)
    order = sorted(texts, key=len, reverse=True)
    return lambda: float(len(pipe(order, batch_size=batch, truncation=True)))


def our_embedder(folder: str, sentences: int, device: str, threads: int, weights: str) -> Turn:
    """The verb `embed`."""
    set_threads(threads)
    verbs, (texts, _) = our_run(folder, device, weights), nsmc("test", sentences)
    return lambda: float(len(verbs.embed(texts)))


def their_embedder(folder: str, sentences: int, device: str, threads: int, backend: str, batch: int) -> Turn:
    """SentenceTransformer.encode, which sorts texts by length itself."""
    from sentence_transformers import SentenceTransformer

    set_threads(threads)
    texts, _ = nsmc("test", sentences)
    model = SentenceTransformer(folder, device=device, backend=backend)  # type: ignore[arg-type]
    return lambda: float(len(model.encode(texts, batch_size=batch, show_progress_bar=False)))


def ours(texts: int, batch: int, longest: int, weights: str, device: str) -> Turn:
    """BERT-base with random weights on random tokens, in batches of unequal lengths; a turn reads all texts."""
    import torch

    from mallang.data.batch import Batch
    from mallang.decoding.contract import inference
    from mallang.models.bert import Config, Model
    from mallang.text.vocabulary import SPECIALS, Vocabulary

    torch.manual_seed(SEED)
    optional = tuple((name, len(SPECIALS) + number) for number, name in enumerate(("cls", "sep", "mask")))
    marks = tuple(f"<{name}>" for name, _ in optional)
    vocabulary = Vocabulary((*SPECIALS, *marks, *(f"w{number}" for number in range(WORDS))), optional=optional)
    model = Model(Config(), vocabulary).to(device, getattr(torch, weights)).eval()
    # Most texts are short, as in NSMC; texts come as they come, so that a batch holds long and short ones.
    lengths = (2 + torch.rand(texts).pow(2) * (longest - 2)).long()
    batches = []
    for rows in lengths.split(batch):
        tokens = torch.randint(len(SPECIALS) + len(marks), len(vocabulary), (len(rows), int(rows.max())))
        tokens[torch.arange(tokens.shape[1]) >= rows[:, None]] = vocabulary.pad
        batches.append(Batch(tokens=tokens, lengths=rows).to(device))

    def turn() -> float:
        with inference(model):
            for each in batches:
                model.encode(each)
        if device == "cuda":
            torch.cuda.synchronize()
        return float(texts)

    return turn
