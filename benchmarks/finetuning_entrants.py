"""One fine-tuning run of published weights, by mallang or by Trainer of transformers, timed and scored alike.

Both start from the same folder and read the same rows with the same epochs, batches, learning rate and schedule. What
is timed is training alone: no validation, no checkpoint, no reading of files. On a CPU the clock counts the seconds of
the process, so that other load does not matter; on a GPU it is that of the wall.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.understanding_runs import opened
from mallang.data.columns import split_cell

SCORES = {"similarity": "Spearman", "classification": "accuracy", "tagging": "span F1", "question_answering": "F1"}
"""The score that each task is compared by."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The data, budget and weights of both systems."""

    name: str
    recipe: str
    weights: str
    """A folder of transformers."""
    seed: int = 1
    overrides: tuple[str, ...] = ()
    device: str = "cpu"
    split: str = "test"
    """The split that the final score is of."""

    def read(self) -> Any:
        """The recipe, checked."""
        from mallang import recipe as recipes

        return recipes.read(self.recipe, [*self.overrides, f"seed={self.seed}"]).build()


@dataclass
class Clock:
    """Seconds of training, and the score on dev after so many."""

    device: str
    spent: float = 0.0
    since: float = 0.0
    points: list[tuple[float, float]] = field(default_factory=list)

    def now(self) -> float:
        """The time by the clock of this device, when the device has done what it was asked."""
        if self.device != "cpu":
            import torch

            torch.cuda.synchronize()
            return time.monotonic()
        return time.process_time()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count what happens inside."""
        self.since = self.now()
        yield
        self.spent += self.now() - self.since

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Do not count what happens inside, which is within `running`."""
        self.spent += self.now() - self.since
        yield
        self.since = self.now()


def line_of(setting: Setting, system: str, clock: Clock, outputs: Sequence[str], memory: int = 0) -> dict[str, Any]:
    """What is known of a run."""
    recipe = setting.read()
    rows = list(opened(recipe).split(setting.split))
    scores = scores_of(recipe, outputs, [row[-1] for row in rows])
    return {
        **dataclasses.asdict(setting),
        "system": system,
        "corpus": opened(recipe).name,
        "metric": SCORES[recipe.task_name],
        "scores": {each.name: each.to_json() for each in scores},
        "seconds": round(clock.spent, 1),
        "curve": [(round(seconds, 1), round(value, 2)) for seconds, value in clock.points],
        "epochs": recipe.train.epochs,
    }


def scores_of(recipe: Any, outputs: Sequence[str], golds: Sequence[str]) -> list[Any]:
    """The scores of outputs: the same code for both systems."""
    from mallang.data.answers import read_answers
    from mallang.data.columns import LabelSet
    from mallang.evaluation.answers import answer_scores
    from mallang.evaluation.classification import classification_scores
    from mallang.evaluation.correlation import correlation_scores
    from mallang.tasks.tag_scores import all_scores

    if recipe.task_name == "similarity":
        return list(
            correlation_scores(*(np.array([float(each) for each in side]) for side in (outputs, golds))).values()
        )
    if recipe.task_name == "classification":
        return list(classification_scores(list(outputs), list(golds)).values())
    if recipe.task_name == "question_answering":
        texts = [[each.text for each in read_answers(gold)] for gold in golds]
        return answer_scores(list(outputs), texts, recipe.task.scored_by)
    cells = [[split_cell(cell, "tags") for cell in column] for column in (outputs, golds)]
    return all_scores(cells[0], cells[1], LabelSet.learn(golds, "tags", "tags").scheme)[:4]


def score_of(recipe: Any, outputs: Sequence[str], golds: Sequence[str]) -> float:
    """The score that a task is compared by."""
    return next(
        float(each.value) for each in scores_of(recipe, outputs, golds) if each.name == SCORES[recipe.task_name]
    )


# ---- ours ----


def ours(setting: Setting) -> dict[str, Any]:
    """`mallang train RECIPE --from WEIGHTS`."""
    import mallang
    from mallang.interop.huggingface_models import import_model
    from mallang.training.loop import Loop
    from mallang.training.train import Options, train

    recipe, clock = setting.read(), Clock(setting.device)
    name = {"accuracy": "accuracy", "f1": "f1", "spearman": "spearman"}[recipe.train.metric]
    run, validate, save = Loop.run, Loop.validate, Loop.save

    def timed(self: Loop, stop: Any) -> bool:
        with clock.running():
            return run(self, stop)

    def apart(inner: Any) -> Any:
        def done(self: Loop, *arguments: Any, **options: Any) -> Any:
            with clock.stopped():
                return inner(self, *arguments, **options)

        return done

    with (
        tempfile.TemporaryDirectory() as place,
        mock.patch.multiple(Loop, run=timed, validate=apart(validate), save=apart(save)),
    ):
        start, folder = Path(place, "start"), Path(place, setting.name)
        import_model(Path(setting.weights), start)
        moments: list[float] = []
        with mock.patch.object(Loop, "validate", noting(Loop.validate, clock, moments)):
            train(recipe, Options(folder=folder, device=setting.device, start=start, quiet=True))
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
        values = [line[name] for line in lines if line["kind"] == "valid"]
        clock.points = list(zip(moments, values, strict=True))
        rows = list(opened(recipe).split(setting.split))
        outputs = mallang.load(folder, device=setting.device).evaluate(rows)[1]
        return line_of(setting, "mallang", clock, outputs)


def noting(inner: Any, clock: Clock, moments: list[float]) -> Any:
    """A function that calls `inner` and notes at which second of training."""

    def done(self: Any) -> None:
        inner(self)
        moments.append(clock.spent)

    return done


# ---- theirs ----


def theirs(setting: Setting) -> dict[str, Any]:
    """Trainer of transformers, which groups by length, or that of sentence-transformers for a bi-encoder."""
    import torch
    import transformers

    recipe, clock = setting.read(), Clock(setting.device)
    torch.manual_seed(setting.seed)
    reader = peer_of(recipe)(recipe, setting)
    splits = {split: list(opened(recipe).split(split)) for split in {"train", "valid", setting.split}}
    base, arguments = reader.trainer, reader.arguments

    class Timed(base):  # type: ignore[misc, valid-type]
        def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
            with clock.stopped():
                golds = [row[-1] for row in splits["valid"]]
                value = score_of(recipe, reader.outputs(self, splits["valid"]), golds)
                clock.points.append((clock.spent, value))
                return {"eval_score": value}

        def _save_checkpoint(self, *given: Any, **options: Any) -> None:
            with clock.stopped():
                super()._save_checkpoint(*given, **options)

    is_best = recipe.train.final == "best"
    with tempfile.TemporaryDirectory() as place:
        options = dict(
            output_dir=place, num_train_epochs=recipe.train.epochs, seed=setting.seed, report_to="none",
            per_device_train_batch_size=recipe.train.batch_sentences, learning_rate=recipe.optimizer.learning_rate,
            warmup_steps=recipe.schedule.warmup, weight_decay=recipe.optimizer.weight_decay, optim="adamw_torch_fused",
            max_grad_norm=recipe.optimizer.max_grad_norm, lr_scheduler_type="linear", eval_strategy="epoch",
            save_strategy="epoch" if is_best else "no", load_best_model_at_end=is_best, disable_tqdm=True,
            metric_for_best_model="score", greater_is_better=True, save_total_limit=1, use_cpu=setting.device == "cpu",
            bf16=setting.device != "cpu", logging_strategy="no", **reader.options,
        )  # fmt: skip
        trainer = Timed(args=arguments(**options), **reader.parts(splits["train"]))
        with clock.running():
            trainer.train()
        transformers.logging.set_verbosity_error()
        return line_of(setting, reader.label, clock, reader.outputs(trainer, splits[setting.split]))


def peer_of(recipe: Any) -> Any:
    """What Trainer needs for the task of a recipe."""
    from benchmarks.finetuning_questions import Questions

    kinds = {"similarity": Number, "classification": Peer, "tagging": Tags, "question_answering": Questions}
    is_bi = recipe.task_name == "similarity" and recipe.task.kind == "bi"
    return Bi if is_bi else kinds[recipe.task_name]


class Peer:
    """What Trainer needs for a task: a model with a head, rows of token ids, and outputs as ours are."""

    label = "transformers Trainer"
    head = "ForSequenceClassification"
    options: dict[str, Any] = {"train_sampling_strategy": "group_by_length"}

    def __init__(self, recipe: Any, setting: Setting) -> None:
        import transformers

        self.recipe, self.device = recipe, setting.device
        self.trainer, self.arguments = transformers.Trainer, transformers.TrainingArguments
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(setting.weights)
        rows = list(opened(recipe).split("train"))
        self.labels = self.labels_of(rows)
        kind = getattr(transformers, f"AutoModel{self.head}")
        self.model = kind.from_pretrained(setting.weights, num_labels=len(self.labels))

    def labels_of(self, rows: Sequence[Any]) -> list[str]:
        """The labels of the training rows."""
        return sorted({row[-1] for row in rows})

    def encode(self, row: Any) -> dict[str, Any]:
        """The token ids of a row."""
        return dict(self.tokenizer(*row[:-1], truncation=True, max_length=512))

    def target(self, row: Any, encoded: dict[str, Any]) -> Any:
        """What a row is to be."""
        return self.labels.index(row[-1])

    def collator(self) -> Any:
        """Rows as a batch, padded to its longest."""
        import transformers

        return transformers.DataCollatorWithPadding(self.tokenizer)

    def parts(self, rows: Sequence[Any]) -> dict[str, Any]:
        """What Trainer is given besides its arguments."""
        encoded = [self.encode(row) for row in rows]
        examples = [{**ids, "labels": self.target(row, ids)} for ids, row in zip(encoded, rows, strict=True)]
        return {
            "model": self.model, "train_dataset": examples, "eval_dataset": examples[:1],
            "data_collator": self.collator(), "processing_class": self.tokenizer,
        }  # fmt: skip

    def outputs(self, trainer: Any, rows: Sequence[Any], batch: int = 64) -> list[str]:
        """The outputs for rows, in batches of like lengths."""
        import torch

        model, found = trainer.model.eval(), [""] * len(rows)
        encoded = [self.encode(row) for row in rows]
        order = sorted(range(len(rows)), key=lambda place: len(encoded[place]["input_ids"]))
        for first in range(0, len(rows), batch):
            places = order[first : first + batch]
            padded = self.tokenizer.pad([self.inputs(encoded[place]) for place in places], return_tensors="pt")
            with torch.inference_mode():
                logits = model(**padded.to(model.device)).logits.float().cpu()
            for place, row in zip(places, logits, strict=True):
                found[place] = self.output(row, rows[place], encoded[place])
        model.train()
        return found

    def inputs(self, encoded: dict[str, Any]) -> dict[str, Any]:
        """What the model reads."""
        return {name: encoded[name] for name in ("input_ids", "attention_mask", "token_type_ids") if name in encoded}

    def output(self, logits: Any, row: Any, encoded: dict[str, Any]) -> str:
        """The most probable label."""
        return self.labels[int(logits.argmax())]


class Number(Peer):
    """A pair of texts and a number: one output, squared error."""

    def labels_of(self, rows: Sequence[Any]) -> list[str]:
        """One output."""
        return ["score"]

    def target(self, row: Any, encoded: dict[str, Any]) -> float:
        """The number as it is, as in run_glue."""
        return float(row[-1])

    def output(self, logits: Any, row: Any, encoded: dict[str, Any]) -> str:
        """The number."""
        return str(float(logits[0]))


class Tags(Peer):
    """Tags of words, each read off the first piece of its word."""

    head = "ForTokenClassification"

    def labels_of(self, rows: Sequence[Any]) -> list[str]:
        """The tags of the training rows."""
        return sorted({tag for row in rows for tag in split_cell(row[-1], "tags")})

    def encode(self, row: Any) -> dict[str, Any]:
        """The token ids of a sentence, and the word of every token."""
        found = self.tokenizer(split_cell(row[0], "words"), is_split_into_words=True, truncation=True, max_length=512)
        return {**found, "words": found.word_ids()}

    def firsts(self, encoded: dict[str, Any]) -> list[int]:
        """The places of the first piece of each word."""
        words = encoded["words"]
        return [place for place, word in enumerate(words) if word is not None and word != words[place - 1]]

    def target(self, row: Any, encoded: dict[str, Any]) -> list[int]:
        """The tags at first pieces, -100 elsewhere."""
        found, tags = [-100] * len(encoded["input_ids"]), split_cell(row[-1], "tags")
        for place in self.firsts(encoded):
            found[place] = self.labels.index(tags[encoded["words"][place]])
        return found

    def collator(self) -> Any:
        """Rows as a batch, their tags padded too."""
        import transformers

        inner = transformers.DataCollatorForTokenClassification(self.tokenizer)
        return lambda rows: inner([{**self.inputs(row), "labels": row["labels"]} for row in rows])

    def parts(self, rows: Sequence[Any]) -> dict[str, Any]:
        """Rows without what the model does not read."""
        found = super().parts(rows)
        for row in found["train_dataset"]:
            row.pop("words")
        return found

    def output(self, logits: Any, row: Any, encoded: dict[str, Any]) -> str:
        """The most probable tags; O for words that were cut off."""
        found = ["O"] * len(split_cell(row[0], "words"))
        for place in self.firsts(encoded):
            found[encoded["words"][place]] = self.labels[int(logits[place].argmax())]
        return "\t".join(found)


class Bi:
    """Trainer of sentence-transformers with the loss CoSENT."""

    label = "sentence-transformers Trainer"
    options: dict[str, Any] = {}

    def __init__(self, recipe: Any, setting: Setting) -> None:
        import sentence_transformers as library

        self.trainer, self.arguments = library.SentenceTransformerTrainer, library.SentenceTransformerTrainingArguments
        self.model = library.SentenceTransformer(setting.weights, device=setting.device)

    def parts(self, rows: Sequence[Any]) -> dict[str, Any]:
        """The model, pairs with numbers from 0 to 1, and the loss."""
        import datasets
        from sentence_transformers.losses import CoSENTLoss

        named = {
            "sentence1": [row[0] for row in rows], "sentence2": [row[1] for row in rows],
            "score": [float(row[2]) / 5 for row in rows],
        }  # fmt: skip
        whole = datasets.Dataset.from_dict(named)
        return {
            "model": self.model, "train_dataset": whole, "eval_dataset": whole.select([0]),
            "loss": CoSENTLoss(self.model),
        }  # fmt: skip

    def outputs(self, trainer: Any, rows: Sequence[Any]) -> list[str]:
        """Cosines."""
        sides = [
            self.model.encode([row[place] for row in rows], normalize_embeddings=True, show_progress_bar=False)
            for place in (0, 1)
        ]
        return [str(float(each)) for each in (sides[0] * sides[1]).sum(1)]
