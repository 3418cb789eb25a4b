"""Fine-tuning gives the losses of Trainer of transformers: the same weights, batches, optimizer and schedule.

Trainer makes its first update with a rate of 0, since it counts updates from 0; ours counts from 1. So its schedule is
one step further here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from interop.test_huggingface_bert import command, wordpiece
from interop.test_huggingface_heads import with_labels
from mallang.data.batch import Batch
from mallang.tasks import classification

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate", reason="Trainer needs the package accelerate")
STEPS, WARMUP, RATE, DECAY, CLIP = 100, 20, 3e-3, 0.01, 1.0


def test_the_first_100_losses_are_those_of_trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    nothing = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "classifier_dropout": 0.0}
    theirs = with_labels(tmp_path / "theirs", "bert", "ForSequenceClassification", ("cat", "mat"), **nothing)
    words = [word for word in wordpiece().get_vocab() if word.isalpha() and word.isascii()]
    random = torch.Generator().manual_seed(2)
    rows = []
    for number in range(240):
        length = int(torch.randint(2, 14, (1,), generator=random))
        text = " ".join(words[int(place)] for place in torch.randint(len(words), (length,), generator=random))
        rows.append(f"{text} {'cat' if number % 2 else 'mat'}\t{'cat' if number % 2 else 'mat'}")
    (tmp_path / "texts.tsv").write_text("\n".join(rows) + "\n", "utf-8")
    seen: list[tuple[Batch, float]] = []
    inner = classification.Task.loss

    def remembered(self: Any, model: Any, batch: Batch, carry: Any) -> Any:
        found = inner(self, model, batch, carry)
        seen.append((batch, float(found.sums["loss"].detach()) / len(batch)))
        return found

    command(monkeypatch, "import", "theirs", "--name", "base")
    monkeypatch.setattr(classification.Task, "loss", remembered)
    command(
        monkeypatch, "train", "bert", "--from", "runs/base", "--name", "mine", f"train.steps={STEPS}", "-q",
        "train.batch_sentences=8", "data.train=texts.tsv", "data.valid=texts.tsv", "train.precision=fp32",
        "optimizer.name=adamw", f"optimizer.learning_rate={RATE}", "optimizer.betas=[0.9,0.999]",
        "optimizer.epsilon=1e-8", f"optimizer.weight_decay={DECAY}", f"optimizer.max_grad_norm={CLIP}",
        "schedule.name=linear", f"schedule.warmup={WARMUP}", f"train.validate_every={STEPS}", "--device", "cpu",
    )  # fmt: skip
    assert len(seen) == STEPS and len({batch.tokens.shape for batch, _ in seen}) > 3
    expected = losses_of_trainer(theirs, [batch for batch, _ in seen], tmp_path / "out")
    assert [loss for _, loss in seen] == pytest.approx(expected, abs=1e-4)
    assert sum(expected[-10:]) < 0.8 * sum(expected[:10]), "it has learned something"


def losses_of_trainer(model: Any, batches: list[Batch], place: Path) -> list[float]:
    """The losses of Trainer on these batches, each followed by an update."""
    given = [
        {"input_ids": batch.tokens, "attention_mask": batch.mask.long(), "labels": batch.classes} for batch in batches
    ]
    losses: list[float] = []

    class Remembering(transformers.Trainer):  # type: ignore[misc, name-defined]
        def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
            schedule = super().create_scheduler(num_training_steps, optimizer)
            self.optimizer.step()  # without a gradient it does nothing; the schedule wants it before its own first step
            schedule.step()
            return schedule

        def compute_loss(self, *arguments: Any, **options: Any) -> Any:
            loss = super().compute_loss(*arguments, **options)
            losses.append(float(loss.detach()))
            return loss

    arguments = transformers.TrainingArguments(
        output_dir=str(place), max_steps=STEPS, per_device_train_batch_size=1, learning_rate=RATE,
        weight_decay=DECAY, max_grad_norm=CLIP, adam_beta1=0.9, adam_beta2=0.999, adam_epsilon=1e-8,
        optim="adamw_torch", lr_scheduler_type=transformers.SchedulerType.LINEAR, warmup_steps=WARMUP,
        train_sampling_strategy="sequential", use_cpu=True, report_to="none", save_strategy="no",
        logging_strategy="no", disable_tqdm=True, dataloader_pin_memory=False, remove_unused_columns=False,
    )  # fmt: skip
    trainer = Remembering(model=model, args=arguments, train_dataset=given, data_collator=lambda rows: rows[0])
    trainer.train()
    return losses
