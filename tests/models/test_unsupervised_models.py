"""What models of two languages promise: directions share their weights, gradients of the discriminator stay apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from contracts.test_models import some_text
from contracts.tiny_models import build
from mallang.data.batch import Batch
from mallang.errors import UserError
from mallang.find import find
from mallang.layers.direction import Direction
from mallang.models.contract import Adversarial, Bilingual
from mallang.text.vocabulary import SPECIALS, Vocabulary

NAMES = ("lample", "artetxe", "unsupervised_transformer")


def logits(model: Any, batch: Batch) -> torch.Tensor:
    found: torch.Tensor = model.output(model(batch))
    return found


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_the_forward_direction_is_the_model_and_the_others_differ(name: str) -> None:
    model, batch = build(name, 13), some_text().batch()
    assert isinstance(model, Bilingual)
    ways = {pair: logits(model.between(*pair), batch) for pair in ((0, 1), (1, 0), (0, 0), (1, 1))}
    assert torch.equal(ways[0, 1], logits(model, batch))
    assert len({round(float(each.sum()), 4) for each in ways.values()}) == 4


@pytest.mark.parametrize("name", ("lample", "artetxe"))
def test_directions_have_the_vocabularies_of_their_languages(name: str) -> None:
    module = find("models", name)
    target, source = (Vocabulary((*SPECIALS, *(f"w{i}" for i in range(count)))) for count in (5, 9))
    model = module.Model(module.Config(**module.SIZES["tiny"]), target, source).eval()
    for pair, sizes in {(0, 1): (13, 9), (1, 0): (9, 13), (0, 0): (13, 13)}.items():
        way = model.between(*pair)
        assert isinstance(way, Direction)
        assert (len(way.source_vocabulary), len(way.vocabulary)) == sizes
        assert logits(way, some_text(words=9).batch()).shape[-1] == sizes[1]
        assert way.input_embedding().num_embeddings == sizes[0]


def test_directions_are_not_saved_again() -> None:
    model = build("lample", 13)
    assert not any("ways" in name or "model." in name for name in model.state_dict())
    assert {id(weight) for weight in model.between(1, 0).parameters()} == {id(weight) for weight in model.parameters()}


def test_one_vocabulary_is_needed_for_shared_subwords() -> None:
    module = find("models", "unsupervised_transformer")
    one, other = (Vocabulary((*SPECIALS, *words)) for words in (("a", "b"), ("c", "d")))
    with pytest.raises(UserError, match="one vocabulary"):
        module.Model(module.Config(**module.SIZES["tiny"]), one, other)


def test_fixed_embeddings_get_no_gradient_and_the_other_decoder_neither() -> None:
    model = build("artetxe", 13).train()
    logits(model.between(1, 0), some_text().batch()).square().mean().backward()
    assert all(table.weight.grad is None and not table.weight.requires_grad for table in model.embeddings)
    assert all(weight.grad is not None for weight in model.decoders[0].parameters())
    assert all(weight.grad is None for weight in model.decoders[1].parameters())


def test_the_discriminator_learns_alone_and_deceiving_it_leaves_it_alone() -> None:
    model, batch = build("lample", 13).train(), some_text().batch()
    assert isinstance(model, Adversarial)
    _, memory = model.states(batch, 0, 1)
    frozen, trained = model.judge(memory, frozen=True), model.judge(memory, frozen=False)
    assert torch.equal(frozen, trained) and frozen.shape == batch.source.shape
    frozen.sum().backward(retain_graph=True)
    assert all(weight.grad is None for weight in model.discriminator.parameters())
    assert model.embeddings[0].weight.grad is not None
    model.zero_grad()
    model.judge(memory.detach(), frozen=False).sum().backward()
    assert all(weight.grad is not None for weight in model.discriminator.parameters())
    assert model.embeddings[0].weight.grad is None


@torch.no_grad()
def test_the_states_of_a_sentence_do_not_depend_on_what_is_predicted() -> None:
    model, batch = build("lample", 13), some_text().batch()
    _, one = model.states(batch, 0, 1)
    _, other = model.states(replace(batch, tokens=batch.tokens.flip(1)), 0, 0)
    assert torch.equal(one, other)
