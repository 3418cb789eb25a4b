"""Checks that every encoder and every classifier gets for nothing, under the head of the task that classifies.

No model can be left out: whatever declares Encoder or Classifier is found by its file and asked all of this.
"""

from __future__ import annotations

from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from contracts.tiny_models import (
    CLASSES,
    CLASSIFIERS,
    ENCODERS,
    FITTED,
    NAMES,
    examples_of,
    make,
    task_of,
    with_padding,
)
from mallang.data.batch import IGNORE, Batch, Shapes
from mallang.find import find
from mallang.layers.encoded import Encoded
from mallang.layers.head import Headed
from mallang.models.contract import Fitted
from mallang.runs.weights import from_file, own_weights, to_file
from mallang.training.step import Step

LABELING = sorted({*ENCODERS, *CLASSIFIERS})
TRAINED = [name for name in LABELING if name not in FITTED]
every_encoder = pytest.mark.parametrize("name", ENCODERS)
every_labeling = pytest.mark.parametrize("name", LABELING)
every_trained = pytest.mark.parametrize("name", TRAINED)
few = settings(deadline=None, max_examples=5)


def close(found: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def encode(model: nn.Module, batch: Batch) -> Encoded:
    """What the encoder under a head makes of texts; they are the source of one that reads a source."""
    assert isinstance(model, Headed)
    encoder: Any = model.model
    if encoder.reads_source:
        batch = Batch(tokens=batch.tokens, lengths=batch.lengths, source=batch.tokens, source_lengths=batch.lengths)
    found: Encoded = encoder.encode(batch)
    return found


def logits_of(task: Any, model: nn.Module, batch: Batch) -> Tensor:
    found: Tensor = task.logits(model, batch)[0]
    return found


def test_whatever_has_classification_as_its_task_is_tested_here() -> None:
    assert {name for name in NAMES if find("models", name).TASK == "classification"} <= set(LABELING)
    assert {"bag_of_means", "cnn", "cho", "self_attentive"} <= set(TRAINED)


@every_labeling
@few
@given(count=st.integers(1, 5), multiple=st.integers(2, 9), filler=st.integers(0, 23), seed=st.integers(0, 99))
@torch.no_grad()
def test_neither_padding_nor_the_texts_beside_it_change_a_text(
    name: str, count: int, multiple: int, filler: int, seed: int
) -> None:
    task, examples = task_of(name), examples_of(name, count, seed)
    model, batch = make(task, name), task.collate(examples)
    padded = with_padding(Shapes(tokens=128, multiple=multiple).fill(batch), filler)
    logits, penalties = task.logits(model, batch)
    more, penalties_too = task.logits(model, padded)
    assert logits.shape == (count, len(CLASSES)) and more.isfinite().all()
    close(more[:count], logits)
    for place, example in enumerate(examples):
        alone, own = task.logits(model, task.collate([example]))
        close(alone[0], logits[place])
        assert own.keys() == penalties.keys() == penalties_too.keys()
        for each in own:
            close(own[each][0], penalties[each][place])
            close(penalties_too[each][place], penalties[each][place])


@every_encoder
@few
@given(count=st.integers(1, 5), filler=st.integers(0, 23), seed=st.integers(0, 99))
@torch.no_grad()
def test_padding_does_not_change_what_is_encoded(name: str, count: int, filler: int, seed: int) -> None:
    task, examples = task_of(name), examples_of(name, count, seed)
    model, batch = make(task, name), task.collate(examples)
    whole = encode(model, batch)
    padded = encode(model, with_padding(Shapes(tokens=128, multiple=8).fill(batch), filler))
    close(padded.pooled[:count], whole.pooled)
    rows, time = whole.mask.shape
    assert torch.equal(padded.mask[:rows, :time], whole.mask) and torch.equal(whole.mask, batch.mask)
    for layer, longer in zip(whole.layers, padded.layers, strict=True):
        close(longer[:rows, :time][whole.mask], layer[whole.mask])


@every_encoder
@torch.no_grad()
def test_encoder_dims_are_the_sizes_of_what_is_encoded(name: str) -> None:
    task = task_of(name)
    model: Any = make(task, name)
    encoded, dims = encode(model, task.collate(examples_of(name, 4))), model.model.encoder_dims()
    assert encoded.pooled.shape == (4, dims.pooled)
    if dims.token is None:
        assert not encoded.layers
    else:
        assert encoded.layers[-1].shape == (*encoded.mask.shape, dims.token)
    assert all(penalty.shape == (4,) for penalty in encoded.penalties.values())


@every_trained
def test_the_gradient_reaches_every_weight_that_matters(name: str) -> None:
    """A weight matters if the logits change with it; in a model that does nothing but label, every trained one does."""
    task = task_of(name)
    model, batch = make(task, name), task.collate(examples_of(name, 6))
    task.loss(model, batch, None).sums["loss"].backward()
    with torch.no_grad():
        before = logits_of(task, model, batch)
    only_labels = find("models", name).TASK == "classification"
    for key, weight in model.named_parameters():
        if not weight.requires_grad:
            continue
        kept = weight.detach().clone()
        with torch.no_grad():
            weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(3)))
            matters = not torch.equal(logits_of(task, model, batch), before)
            weight.copy_(kept)
        assert matters or not only_labels, f"{key} has no effect"
        reached = weight.grad is not None and bool(weight.grad.abs().sum() > 0)
        assert reached == matters, f"{key} is {'' if reached else 'not '}reached by the gradient"


@every_trained
def test_eight_labeled_texts_are_memorized_in_filled_up_batches(name: str) -> None:
    """Those of class 0 too: rows that fill up a batch have no label, and 0 is one."""
    task, examples = task_of(name), examples_of(name, 8)
    model, batch = make(task, name), Shapes(tokens=256, multiple=8).fill(task.collate(examples))
    optimizer = torch.optim.Adam([each for each in model.parameters() if each.requires_grad], lr=2e-3)
    assert batch.classes is not None
    wanted = batch.classes[:8]
    for _ in range(20):
        model.train()
        for _ in range(15):
            optimizer.zero_grad()
            (task.loss(model, batch, None).sums["loss"] / 8).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            loss = task.loss(model, batch, None).report["nll"] / 8
            if loss < 0.1:
                assert torch.equal(logits_of(task, model, batch)[:8].argmax(dim=1), wanted) and 0 in wanted
                return
    pytest.fail(f"after 300 steps the loss is still {loss:.2f}")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@every_trained
@pytest.mark.parametrize("class_weights", ["none", "balanced"])
def test_labeled_texts_are_memorized_by_replayed_graphs(name: str, class_weights: str) -> None:
    """Those of class 0 too, and nothing in the loss copies from the CPU while a graph is captured."""
    device = torch.device("cuda")
    task, examples = task_of(name, class_weights=class_weights), examples_of(name, 8)
    model, batch = make(task, name).to(device), Shapes(tokens=256, multiple=8).fill(task.collate(examples))
    step = Step(task, model, device, "fp32", "cuda-graphs")
    optimizer = torch.optim.Adam([each for each in model.parameters() if each.requires_grad], lr=5e-3, capturable=True)
    assert batch.classes is not None
    for _ in range(20):
        model.train()
        for _ in range(15):
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.grad.zero_()
            step.run(batch, [8])
            optimizer.step()
        model.eval()
        with torch.no_grad():
            found = logits_of(task, model, batch.to(device))[:8].argmax(dim=1).cpu()
        if torch.equal(found, batch.classes[:8]) and 0 in found:
            return
    pytest.fail("after 300 steps some labels are still wrong")


@pytest.mark.parametrize("name", [name for name in CLASSIFIERS if name in FITTED])
def test_a_classifier_is_fitted_to_eight_labeled_texts(name: str) -> None:
    task, examples = task_of(name), examples_of(name, 8)
    model, batch = make(task, name), task.collate(examples)
    assert isinstance(model, Fitted) and batch.classes is not None
    assert list(model.fit([task.collate([example]) for example in examples]))
    assert torch.equal(logits_of(task, model, batch).argmax(dim=1), batch.classes)


@every_trained
def test_rows_that_fill_up_a_batch_change_neither_the_loss_nor_the_gradient(name: str) -> None:
    task, examples = task_of(name), examples_of(name, 3)
    model, batch = make(task, name), task.collate(examples)
    filled = Shapes(tokens=128, multiple=8).fill(batch)
    assert filled.classes is not None and (filled.classes == IGNORE).sum() == len(filled.classes) - 3 > 0
    assert task.counts(filled)["loss"] == task.counts(batch)["loss"] == 3
    found = []
    for each in (batch, filled):
        model.zero_grad()
        loss = task.loss(model, each, None)
        loss.sums["loss"].backward()
        gradients = [weight.grad.clone() for weight in model.parameters() if weight.grad is not None]
        found.append([loss.sums["loss"].detach(), *map(torch.as_tensor, loss.report.values()), *gradients])
    assert float(found[0][0]) > 0
    for alone, together in zip(*found, strict=True):
        close(together, alone)


@every_encoder
def test_a_frozen_encoder_stays_bit_equal_while_its_head_is_trained(name: str) -> None:
    task = task_of(name, freeze=True)
    model: Any = make(task, name)
    batch = task.collate(examples_of(name, 6))
    before = {key: value.clone() for key, value in model.state_dict().items()}
    features = encode(model, batch).pooled.clone()
    [group] = task.updates(model)
    assert {key.split(".")[0] for key, _ in group.parameters} == {"head"}
    optimizer = torch.optim.AdamW([weight for _, weight in group.parameters], lr=0.1, weight_decay=0.1)
    for _ in range(3):
        model.train()
        assert not any(part.training for part in model.model.modules())
        optimizer.zero_grad()
        task.loss(model, batch, None).sums["loss"].backward()
        optimizer.step()
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[key]) == key.startswith("model."), key
    assert torch.equal(encode(model, batch).pooled, features)  # in training mode: no dropout either


@every_labeling
@torch.no_grad()
def test_bfloat16_is_close_to_float32(name: str) -> None:
    task = task_of(name)
    model, batch = make(task, name), task.collate(examples_of(name, 6))
    exact = logits_of(task, model, batch)
    with torch.autocast("cpu", torch.bfloat16):
        rough = logits_of(task, model, batch)
    error = (rough.float() - exact).norm() / exact.norm()
    assert error < 0.03 and (error > 0 or not isinstance(model, Headed)), "a head is a matmul, which is rounded"


@every_trained
def test_gradients_in_bfloat16_are_close_to_those_in_float32(name: str) -> None:
    task = task_of(name)
    model, batch = make(task, name), task.collate(examples_of(name, 6))
    found = []
    for enabled in (False, True):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            loss = task.loss(model, batch, None).sums["loss"]
        loss.backward()
        found.append(torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None]))
    assert found[1].isfinite().all() and (found[1] - found[0]).norm() / found[0].norm() < 0.1


@every_labeling
@torch.no_grad()
def test_saving_and_loading_is_exact_with_model_and_head_apart(name: str, tmp_path: Any) -> None:
    task, path = task_of(name), tmp_path / "model.safetensors"
    model, other = make(task, name, seed=1), make(task, name, seed=2)
    batch = task.collate(examples_of(name, 4))
    safetensors.torch.save_file(to_file(own_weights(model)), path)
    read = safetensors.torch.load_file(path)
    assert {key.split(".")[0] for key in read} == ({"model", "head"} if isinstance(model, Headed) else {"model"})
    if name not in FITTED:  # these have nothing to forget yet
        assert not torch.equal(logits_of(task, model, batch), logits_of(task, other, batch))
    other.load_state_dict(from_file(read))
    assert torch.equal(logits_of(task, model, batch), logits_of(task, other, batch))
