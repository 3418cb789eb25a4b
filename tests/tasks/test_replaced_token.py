"""Replaced token detection: what is masked, sampled and asked, against explicit loops; exact resume; fine-tuning."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mallang
from mallang.data.batch import IGNORE, Batch, Shapes
from mallang.errors import UserError
from mallang.find import find
from mallang.layers.head import masked_rows
from mallang.models.electra import ELECTRA, Config
from mallang.recipe import read
from mallang.tasks import replaced_token
from mallang.text.tokenizer import Config as Text
from mallang.text.tokenizer import Tokenizer
from mallang.training.seeding import seed_everything
from mallang.training.train import Options, train

WORDS = [f"w{number}" for number in range(30)]
SMALL: dict[str, Any] = {
    "layers": 1, "dim": 16, "heads": 2, "embedding_dim": 8, "generator_width": 0.5, "max_length": 128, "dropout": 0.0,
    "attention_dropout": 0.0, "pretraining_heads": "both",
}  # fmt: skip
TINY = ["model.dim=16", "model.heads=2", "model.embedding_dim=8", "train.log_every=1", "train.batch_tokens=256"]


def task(**changes: Any) -> replaced_token.Task:
    tokenizer = Tokenizer.train([" ".join(WORDS)], Text(unit="space", vocabulary=60), special=("mask", "cls", "sep"))
    return replaced_token.Task(replaced_token.Config(**changes), {"text": tokenizer})


def model_of(given: replaced_token.Task) -> ELECTRA:
    torch.manual_seed(1)
    model = ELECTRA(Config(**SMALL), given.text.vocabulary)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.3)
    return model.eval()


def texts(count: int = 5, seed: int = 0) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [random.integers(7, 37, size=random.integers(3, 20)) for _ in range(count)]


def batch_of(given: replaced_token.Task, seed: int = 0) -> Batch:
    rows = [((ids, np.zeros(0, dtype=np.int64), IGNORE),) for ids in texts(seed=seed)]
    return given.prepare(rows, np.random.default_rng(seed))


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 60), st.integers(0, 1000), st.sampled_from([0.05, 0.15, 0.5]), st.sampled_from([0.0, 0.15]))
def test_the_number_of_masked_tokens_is_exact_and_no_special_one_is_among_them(
    length: int, seed: int, rate: float, kept: float
) -> None:
    asked = task(rate=rate, kept=kept)
    vocabulary, random = asked.text.vocabulary, np.random.default_rng(seed)
    ids = random.integers(0, len(vocabulary), size=length)
    batch = asked.prepare([((ids, ids[:0], IGNORE),)], random)
    assert batch.masked is not None
    maskable = sum(int(token) not in vocabulary.specials for token in ids)
    places = batch.masked[:, 1].tolist()
    assert len(places) == len(set(places)) == round(rate * maskable)
    row = [vocabulary.cls, *ids.tolist(), vocabulary.sep]
    for _, place, original in batch.masked.tolist():
        assert row[place] == original and original not in vocabulary.specials
        assert int(batch.tokens[0, place]) == vocabulary.mask or kept
    untouched = [place for place in range(len(row)) if place not in places]
    assert [int(batch.tokens[0, place]) for place in untouched] == [row[place] for place in untouched]


@torch.no_grad()
def test_the_loss_is_that_of_explicit_loops() -> None:
    asked = task(rate=0.3)
    model, batch = model_of(asked), batch_of(asked)
    seed_everything(1, 2, 3)
    loss = asked.loss(model, batch, None)
    seed_everything(1, 2, 3)
    assert batch.masked is not None
    logits = model.generator_logits(masked_rows(model.generator_hidden(batch), batch.masked))
    found = iter(replaced_token.sample(logits).tolist())
    hidden, original, corrupted = model.generator_hidden(batch), batch.tokens.clone(), batch.tokens.clone()
    generator, right = 0.0, 0
    for row, place, token in batch.masked.tolist():
        scores = model.generator_logits(hidden[row, place])
        generator -= float(scores.log_softmax(0)[token])
        right += int(scores.argmax()) == token
        original[row, place], corrupted[row, place] = token, next(found)
    scores = model.replaced_logits(model(Batch(tokens=corrupted, lengths=batch.lengths)))
    discriminator, hits, replaced = 0.0, 0, 0
    for row, length in enumerate(batch.lengths.tolist()):
        for place in range(length):
            is_replaced = float(corrupted[row, place] != original[row, place])
            odds = torch.sigmoid(scores[row, place])
            discriminator -= float(torch.log(odds if is_replaced else 1 - odds))
            hits, replaced = hits + int((odds > 0.5) == bool(is_replaced)), replaced + int(is_replaced)
    assert float(loss.sums["generator"]) == pytest.approx(generator, rel=1e-4)
    assert float(loss.sums["discriminator"]) == pytest.approx(50 * discriminator, rel=1e-4)
    assert [int(loss.report[name]) for name in ("generator_accuracy", "rtd_accuracy", "replaced")] == [
        right, hits, replaced,
    ]  # fmt: skip
    counts = asked.counts(batch)
    assert counts["generator"] == len(batch.masked) and counts["discriminator"] == int(batch.lengths.sum())


@torch.no_grad()
def test_a_sample_that_equals_the_original_is_no_replacement() -> None:
    asked = task()
    batch = batch_of(asked)
    assert batch.masked is not None
    was = batch.masked[:, 2]
    corrupted, original = replaced_token.replaced_tokens(batch, was)
    assert torch.equal(corrupted, original)
    other, _ = replaced_token.replaced_tokens(batch, was + 1)
    assert int((other != original).sum()) == len(was)


def test_no_gradient_passes_through_the_samples() -> None:
    """The generator's own weights get the gradient of its own loss, whatever the discriminator weighs."""
    found = []
    for weight in (50.0, 1e-9):
        asked = task(discriminator_weight=weight)
        model, batch = model_of(asked), batch_of(asked)
        seed_everything(1, 2, 3)
        sum(asked.loss(model, batch, None).sums.values()).backward()  # type: ignore[union-attr]
        assert model.generator is not None and model.replaced_head is not None
        found.append([each.grad.clone() for each in model.generator.parameters() if each.grad is not None])
        assert model.replaced_head.output.weight.grad is not None
    assert found[0] and all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@torch.no_grad()
def test_samples_follow_the_softmax() -> None:
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0]).expand(40_000, 4)
    torch.manual_seed(0)
    shares = torch.bincount(replaced_token.sample(logits), minlength=4) / len(logits)
    wanted = logits[0].softmax(0)
    assert ((shares - wanted).abs() <= 3 * (wanted * (1 - wanted) / len(logits)).sqrt()).all()


@torch.no_grad()
def test_padding_and_rows_that_fill_up_a_batch_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = task()
    model, batch = model_of(asked), batch_of(asked)
    filled = Shapes(tokens=256, multiple=16).fill(batch)
    assert filled.masked is not None and batch.masked is not None and len(filled.masked) > len(batch.masked)
    monkeypatch.setattr(replaced_token, "sample", lambda logits: logits.argmax(dim=1))
    assert len(filled) > len(batch) and asked.counts(filled) == asked.counts(batch)
    changed = replace(filled, tokens=filled.tokens.masked_fill(~filled.mask, 9))
    expected = asked.loss(model, batch, None)
    for other in (filled, changed):
        found = asked.loss(model, other, None)
        for name, value in {**expected.sums, **expected.report}.items():
            torch.testing.assert_close({**found.sums, **found.report}[name], value, rtol=1e-4, atol=1e-3)


def test_a_model_without_a_generator_is_refused() -> None:
    with pytest.raises(UserError, match="bert has no generator"):
        task().build(find("models", "bert"), None)
    with pytest.raises(UserError, match="built without one") as caught:
        task().build(find("models", "electra"), Config(**{**SMALL, "pretraining_heads": "discriminator"}))
    assert caught.value.todo == "model.pretraining_heads=both"
    for name, value in (("rate", 0.0), ("kept", 1.5), ("discriminator_weight", 0.0), ("pairs", "next")):
        with pytest.raises(ValueError, match=name):
            replaced_token.Config(**{name: value})


def test_a_resumed_run_ends_with_the_same_weights_and_is_fine_tuned(tmp_path: Path) -> None:
    """Dropout is on, and two micro-batches make an update: masks and samples are drawn again exactly."""
    lines = ["민수가 사과를 먹는다\tgood", "영희는 서울에 간다\tbad", "고양이가 작은 물을 마신다\tgood"]
    (tmp_path / "some.tsv").write_text("\n".join(lines * 20) + "\n", "utf-8")
    own = [f"data.{split}={tmp_path / 'some.tsv'}" for split in ("train", "valid")]
    changes = [
        *TINY,
        *own,
        "data.columns=[1]",
        "model.dropout=0.1",
        "train.gradient_accumulation=2",
        "train.steps=6",
        "train.save_every=2",
    ]

    def run(name: str, *more: str) -> Path:
        recipe = read("electra-miniworld", [*changes, *more]).build()
        return train(recipe, Options(folder=tmp_path / name, device="cpu", quiet=True)).folder

    whole = run("whole")
    stopped = tmp_path / "stopped"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mallang.training.loop.Loop.log", stop_at(3))
        with pytest.raises(RuntimeError, match="power cut"):
            run("stopped")
    assert not (stopped / "model.safetensors").exists()
    run("stopped")
    assert (whole / "model.safetensors").read_bytes() == (stopped / "model.safetensors").read_bytes()
    verbs = mallang.load(whole, device="cpu")
    assert verbs.embed("민수가 간다").shape == (16,)
    classifier = read(
        "electra-miniworld",
        [*TINY, *own, "task.name=classification", "model.pretraining_heads=none", "train.steps=2",
         "data.columns=[1, 2]"],
    ).build()  # fmt: skip
    tuned = train(classifier, Options(folder=tmp_path / "tuned", device="cpu", quiet=True, start=whole))
    names = tuned.read_weights().keys()
    assert not any("generator" in name or "masked_lm" in name for name in names)
    assert mallang.load(tuned.folder, device="cpu").classify("민수가 간다").label


def stop_at(step: int) -> Any:
    from mallang.training.loop import Loop

    log = Loop.log

    def stopping(loop: Any) -> None:
        log(loop)
        if loop.step == step:
            raise RuntimeError("power cut")

    return stopping
