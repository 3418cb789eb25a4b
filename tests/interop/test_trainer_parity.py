"""Fine-tuning gives the losses of transformers: the same weights, batches, optimizer and schedule.

The loop here is what Trainer runs: torch's AdamW, without decay for biases and norms, clipping, and a linear schedule
with warm-up. Trainer makes its first update with a rate of 0, since it counts updates from 0; ours counts from 1, so
the schedule starts one further here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from interop.test_huggingface_bert import command, wordpiece
from interop.test_huggingface_heads import with_labels
from mallang.data.batch import Batch
from mallang.tasks import classification

transformers = pytest.importorskip("transformers")
STEPS, WARMUP, RATE, DECAY, CLIP = 100, 20, 3e-3, 0.01, 1.0


@pytest.mark.slow
def test_the_first_100_losses_are_those_of_transformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    expected = losses_of(theirs.train(), [batch for batch, _ in seen])
    assert [loss for _, loss in seen] == pytest.approx(expected, abs=1e-4)
    assert sum(expected[-10:]) < 0.8 * sum(expected[:10]), "it has learned something"


def losses_of(model: Any, batches: list[Batch]) -> list[float]:
    """The losses of transformers' model on these batches, each followed by an update."""
    decayed = [one for name, one in model.named_parameters() if not name.endswith("bias") and "LayerNorm" not in name]
    others = [one for name, one in model.named_parameters() if name.endswith("bias") or "LayerNorm" in name]
    groups: list[dict[str, Any]] = [
        {"params": decayed, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0},
    ]  # fmt: skip
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.999), eps=1e-8)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, WARMUP, STEPS)
    optimizer.step()  # without a gradient it does nothing; the schedule wants it before its own first step
    schedule.step()
    found = []
    for batch in batches:
        loss: Tensor = model(input_ids=batch.tokens, attention_mask=batch.mask.long(), labels=batch.classes).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        found.append(float(loss.detach()))
    return found
