"""ELECTRA's own facts: two networks over one embedding, the encoder is the discriminator; its parameters counted."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mallang.data.batch import Batch
from mallang.errors import UserError
from mallang.models.electra import ELECTRA, SIZES, Config
from mallang.text.vocabulary import SPECIALS, Vocabulary

SMALL: dict[str, Any] = {
    "layers": 2,
    "dim": 16,
    "heads": 4,
    "embedding_dim": 8,
    "generator_width": 0.5,
    "max_length": 12,
}


def words(count: int) -> Vocabulary:
    return Vocabulary((*SPECIALS, *(f"w{number}" for number in range(len(SPECIALS), count))))


def made(**changes: Any) -> ELECTRA:
    torch.manual_seed(2)
    return ELECTRA(Config(**{**SMALL, "pretraining_heads": "both", **changes}), words(23)).eval()


def batch() -> Batch:
    return Batch(tokens=torch.tensor([[4, 9, 5, 11, 5], [4, 8, 5, 0, 0]]), lengths=torch.tensor([5, 3]))


def count(*models: torch.nn.Module) -> int:
    return sum(each.numel() for model in models for each in model.parameters())


@pytest.mark.parametrize(("size", "paper"), [("small", 14e6), ("base", 110e6), ("large", 335e6)])
def test_the_parameters_are_those_of_transformers_and_of_the_paper(size: str, paper: float) -> None:
    transformers = pytest.importorskip("transformers")
    ours = Config(**SIZES[size])
    narrow, heads, hidden = ours.generator_shape
    shared = {"num_hidden_layers": ours.layers, "embedding_size": ours.embedding_dim or ours.dim}
    whole = transformers.ElectraConfig(
        hidden_size=ours.dim, num_attention_heads=ours.heads, intermediate_size=4 * ours.dim, **shared
    )
    small = transformers.ElectraConfig(
        hidden_size=narrow, num_attention_heads=heads, intermediate_size=hidden, **shared
    )
    with torch.device("meta"):
        encoder, both = (
            ELECTRA(Config(**SIZES[size], pretraining_heads=kind), words(30_522)) for kind in ("none", "both")
        )
        theirs = transformers.ElectraModel(whole)
        generator, discriminator = transformers.ElectraForMaskedLM(small), transformers.ElectraForPreTraining(whole)
        twice = count(generator.electra.embeddings)  # we share them, they have them in both
    assert count(encoder) == count(theirs)
    assert count(both) == count(discriminator) + count(generator) - twice
    assert abs(count(encoder) / paper - 1) < 0.04


@torch.no_grad()
def test_the_encoder_is_the_discriminator_and_the_generator_changes_nothing_of_it() -> None:
    model, alone = made(), made(pretraining_heads="none")
    own = alone.state_dict()
    alone.load_state_dict({name: value for name, value in model.state_dict().items() if name in own})
    assert not any(name.startswith(("generator", "masked_lm", "replaced_head")) for name in own)
    assert torch.equal(model.encode(batch()).pooled, alone.encode(batch()).pooled)
    for weight in (*model.generator.parameters(), *model.masked_lm.parameters()):  # type: ignore[union-attr]
        weight.add_(1.0)
    assert torch.equal(model(batch()), alone(batch()))


def test_both_networks_learn_the_same_embedding() -> None:
    model = made()
    for found in (model.generator_hidden(batch()).sin().sum(), model(batch()).sin().sum()):
        model.zero_grad()
        found.backward()
        for table in (model.embedding.words, model.embedding.positions.table, model.embedding.token_types):
            assert table is not None and table.weight.grad is not None and table.weight.grad.abs().sum() > 0
        for part in model.embedding.norm.parameters():
            assert part.grad is not None and part.grad.abs().sum() > 0, "the norm of the embedding is shared too"
    names = [name for name, _ in model.named_parameters() if "embedding" in name]
    assert len(names) == 5 and all(name.startswith("embedding.") for name in names)


@torch.no_grad()
def test_the_heads_by_hand() -> None:
    model = made()
    head, decoder = model.replaced_head, model.masked_lm
    assert head is not None and decoder is not None
    hidden = model(batch())
    x = torch.nn.functional.gelu(hidden @ head.transform.weight.T + head.transform.bias)
    torch.testing.assert_close(model.replaced_logits(hidden), x @ head.output.weight[0] + head.output.bias)
    narrow = model.generator_hidden(batch())
    assert narrow.shape[-1] == 8
    x = torch.nn.functional.gelu(narrow @ decoder.transform.weight.T + decoder.transform.bias)
    x = torch.nn.functional.layer_norm(x, (8,), decoder.norm.weight, decoder.norm.bias, 1e-12)
    expected = x @ model.embedding.words.weight.T + decoder.decoder.bias
    torch.testing.assert_close(model.generator_logits(narrow), expected, atol=1e-5, rtol=1e-5)


def test_what_a_model_was_built_without_is_named() -> None:
    model = made(pretraining_heads="discriminator")
    with pytest.raises(UserError, match="this ELECTRA was built without its generator"):
        model.generator_hidden(batch())
    with pytest.raises(UserError, match="without its head for replaced tokens"):
        made(pretraining_heads="none").replaced_logits(model(batch()))
    with pytest.raises(ValueError, match="generator_width above 0 and at most 1"):
        Config(generator_width=1.5)
    with pytest.raises(ValueError, match="a generator of dim 77 with 1 heads|cannot be divided"):
        Config(generator_width=0.15)
