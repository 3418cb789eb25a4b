"""ALBERT's own facts: its factorized embedding, what its layers share, and its parameters counted."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mallang.data.batch import Batch
from mallang.errors import UserError
from mallang.layers.attention import record_attention
from mallang.models.albert import ALBERT, SIZES, Config
from mallang.text.vocabulary import SPECIALS, Vocabulary

SMALL: dict[str, Any] = {"layers": 3, "dim": 16, "heads": 2, "embedding_dim": 6, "max_length": 12}


def words(count: int) -> Vocabulary:
    return Vocabulary((*SPECIALS, *(f"w{number}" for number in range(len(SPECIALS), count))))


def made(**changes: Any) -> ALBERT:
    torch.manual_seed(2)
    return ALBERT(Config(**{**SMALL, **changes}), words(23)).eval()


def count(model: torch.nn.Module) -> int:
    return sum(each.numel() for each in model.parameters())


def batch() -> Batch:
    return Batch(tokens=torch.tensor([[4, 9, 5, 11, 5], [4, 8, 5, 0, 0]]), lengths=torch.tensor([5, 3]))


@pytest.mark.parametrize(
    ("rows", "dim", "size", "before", "after"), [(4, 4, 2, 16, 8 + 8), (500, 100, 15, 50_000, 7_500 + 1_500)]
)
def test_the_worked_sizes_of_the_factorized_embedding(rows: int, dim: int, size: int, before: int, after: int) -> None:
    """4 × 4 becomes 4 × 2 + 2 × 4; 500 × 100 becomes 500 × 15 + 15 × 100, 9,000 weights where there were 50,000."""
    found = []
    for embedding_dim in (None, size):
        model = ALBERT(Config(layers=1, dim=dim, heads=1, embedding_dim=embedding_dim), words(rows))
        table, projection = model.embedding.words.weight, model.projection
        assert table.shape == (rows, embedding_dim or dim)
        found.append(table.numel() + (0 if projection is None else projection.weight.numel()))
    assert found == [before, after]


@pytest.mark.parametrize(
    ("size", "paper", "tolerance"),
    [("base", 12e6, 0.04), ("large", 18e6, 0.04), ("xlarge", 60e6, 0.04), ("xxlarge", 235e6, 0.06)],
)
def test_the_parameters_are_those_of_transformers_and_of_the_paper(size: str, paper: float, tolerance: float) -> None:
    """The 235M of the paper's largest are 5.3 % above what its sizes give, in transformers too."""
    transformers = pytest.importorskip("transformers")
    shape = {name: value for name, value in SIZES[size].items() if "dropout" not in name}
    config = transformers.AlbertConfig(
        hidden_size=shape["dim"], num_hidden_layers=shape["layers"], num_attention_heads=shape["heads"],
        intermediate_size=4 * shape["dim"],
    )  # fmt: skip
    with torch.device("meta"):
        ours = [ALBERT(Config(**shape, **more), words(30_000)) for more in ({}, {"pretraining_heads": "both"})]
        theirs = [transformers.AlbertModel(config), transformers.AlbertForPreTraining(config)]
    assert [count(model) for model in ours] == [count(model) for model in theirs]
    assert abs(count(ours[0]) / paper - 1) < tolerance


@pytest.mark.parametrize(
    ("sharing", "attentions", "feedforwards"),
    [("none", 3, 3), ("attention", 1, 3), ("feed-forward", 3, 1), ("all", 1, 1)],
)
def test_what_layers_share(sharing: str, attentions: int, feedforwards: int) -> None:
    dim, size = 16, 6
    model = made(sharing=sharing)
    attention, feedforward = 4 * (dim * dim + dim) + 2 * dim, 2 * 4 * dim * dim + 4 * dim + dim + 2 * dim
    embedding = 23 * size + 12 * size + 2 * size + 2 * size + size * dim + dim
    pooler = dim * dim + dim
    assert count(model) == embedding + attentions * attention + feedforwards * feedforward + pooler
    names = {name.split(".")[0:2][1] for name, _ in model.named_parameters() if name.startswith("attention.")}
    assert len(names) == attentions


@torch.no_grad()
@pytest.mark.parametrize("sharing", ["none", "attention", "feed-forward", "all"])
def test_a_shared_layer_is_the_same_function_in_every_place(sharing: Any) -> None:
    """Explicitly: each layer is attention, then the feed-forward network, of the first weights if they are shared."""
    model = made(sharing=sharing)
    for weight in model.parameters():
        weight.add_(torch.randn_like(weight) * 0.2)
    x = model.projection(model.embedding(batch().tokens)) if model.projection is not None else None
    mask = batch().mask[:, None, None, :]
    layers = model.layers_of(batch())
    for number in range(3):
        attention = model.attention[number if sharing in ("none", "feed-forward") else 0]
        feedforward = model.feedforward[number if sharing in ("none", "attention") else 0]
        x = attention.norm(x + attention.self_attention(x, mask)[0])
        x = feedforward.norm(x + feedforward.feedforward(x))
        torch.testing.assert_close(x[batch().mask], layers[number + 1][batch().mask], atol=1e-5, rtol=1e-5)
    with record_attention(model) as maps:
        model(batch())
    assert len(maps) == 3


def test_a_shared_weight_gets_the_gradients_of_all_layers() -> None:
    """The gradient of shared weights is the sum of those of the same weights, copied to every layer."""
    dropouts = {"dropout": 0.0, "attention_dropout": 0.0}
    shared, apart = made(**dropouts), made(sharing="none", **dropouts)
    with torch.no_grad():
        for name, weight in apart.named_parameters():
            parts = name.split(".")
            if parts[0] in ("attention", "feedforward"):
                parts[1] = "0"
            weight.copy_(shared.get_parameter(".".join(parts)))
    for model in (shared, apart):
        model(batch())[batch().mask].square().mean(0).sum().backward()
        model(batch())[batch().mask].sin().sum().backward()
    for kind in ("attention", "feedforward"):
        for name, weight in shared.get_submodule(f"{kind}.0").named_parameters():
            every = [apart.get_submodule(f"{kind}.{layer}").get_parameter(name).grad for layer in range(3)]
            assert weight.grad is not None
            torch.testing.assert_close(weight.grad, sum(every), atol=1e-4, rtol=1e-4)


def test_what_a_model_was_built_without_is_named() -> None:
    model = made(pretraining_heads="masked-lm")
    assert model.output(model(batch())).shape == (2, 5, 23)
    with pytest.raises(UserError, match="this ALBERT was built without its sentence order head"):
        model.next_sentence_logits(model(batch()))
    with pytest.raises(UserError, match="without its masked LM head"):
        made().output(torch.zeros(1, 16))
    assert made(pretraining_heads="both").next_sentence_logits(model(batch())).shape == (2, 2)
    with pytest.raises(ValueError, match="cannot be divided among 5 heads"):
        Config(heads=5)
    with pytest.raises(ValueError, match="embedding_dim must be at least 1"):
        Config(embedding_dim=0)
