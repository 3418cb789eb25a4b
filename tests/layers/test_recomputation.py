"""Gradient checkpointing: the same gradients bit for bit, with dropout on, and fewer activations kept."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from contracts.tiny_models import examples_of, make, task_of
from mallang.data.batch import Batch
from mallang.find import find
from mallang.layers.recomputation import recompute_blocks
from mallang.text.vocabulary import SPECIALS, Vocabulary

WORDS = 30


def gradients(model: torch.nn.Module, loss_of: Any) -> tuple[list[torch.Tensor], int]:
    """The gradients of a model, and how many values were kept for them besides the weights."""
    kept: list[int] = []
    weights = {each.data_ptr() for each in model.parameters()}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.data_ptr() not in weights:
            kept.append(tensor.numel())
        return tensor

    model.train()
    model.zero_grad()
    torch.manual_seed(7)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = loss_of(model)
    before = sum(kept)
    loss.backward()
    return [each.grad.clone() for each in model.parameters() if each.grad is not None], before


@pytest.mark.parametrize("name", ["bert", "transformer_encoder"])
def test_the_gradients_of_an_encoder_are_the_same_bit_for_bit_with_dropout(name: str) -> None:
    task = task_of(name)
    model = make(task, name)
    batch = task.collate(examples_of(name, 6))

    def loss_of(model: Any) -> torch.Tensor:
        total: torch.Tensor = task.loss(model, batch, None).sums["loss"]
        return total

    before, kept = gradients(model, loss_of)
    assert recompute_blocks(model) == 2
    after, fewer = gradients(model, loss_of)
    assert len(before) == len(after) and all(map(torch.equal, before, after)) and fewer < kept / 2
    with torch.no_grad():
        assert loss_of(model).isfinite()


@pytest.mark.parametrize("name", ["gpt", "modern_gpt", "transformer"])
def test_the_gradients_of_models_that_generate_are_the_same_bit_for_bit_with_dropout(name: str) -> None:
    module = find("models", name)
    vocabulary = Vocabulary((*SPECIALS, *(f"w{number}" for number in range(4, WORDS))))
    torch.manual_seed(1)
    values = {**module.SIZES["tiny"], "dropout": 0.2}
    vocabularies = [vocabulary] * (2 if module.Model.reads_source else 1)
    model = module.Model(module.Config(**values), *vocabularies)
    tokens = torch.randint(4, WORDS, (3, 9), generator=torch.Generator().manual_seed(2))
    lengths = torch.full((3,), 9)
    batch = Batch(tokens=tokens, lengths=lengths, source=tokens, source_lengths=lengths)

    def loss_of(model: Any) -> torch.Tensor:
        total: torch.Tensor = model.output(model(batch)).logsumexp(dim=-1).sum()
        return total

    before, kept = gradients(model, loss_of)
    assert recompute_blocks(model) >= 2
    after, fewer = gradients(model, loss_of)
    assert before and all(map(torch.equal, before, after)) and fewer < kept


def test_blocks_that_are_not_trained_are_left_alone() -> None:
    model = make(task_of("bert", freeze=True), "bert")
    assert recompute_blocks(model) == 0
