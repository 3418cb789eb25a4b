"""Sutskever's model against its paper: explicit loops over layers and words, the reversed source, the parameters."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from mallang.data.batch import Batch, pad_rows
from mallang.errors import UserError
from mallang.layers.quantization import quantize
from mallang.models.sutskever import SIZES, Config, Sutskever
from mallang.text.vocabulary import SPECIALS, Vocabulary

WORDS = Vocabulary((*SPECIALS, *"abcdefgh"))
MORE = Vocabulary((*SPECIALS, *"abcdefghij"))
SOURCES, TARGETS = [[4, 5, 6, 7], [8], [9, 4]], [[5, 6], [7, 8, 9], [4]]


def build(source_vocabulary: Vocabulary = WORDS, **changes: Any) -> Sutskever:
    torch.manual_seed(1)
    model = Sutskever(Config(**{**SIZES["tiny"], "dim": 5, "embedding_dim": 4, **changes}), WORDS, source_vocabulary)
    with torch.no_grad():
        for stack in (model.encoder, model.decoder):
            for name, weight in stack.named_parameters():
                if "bias" in name:
                    weight.view(4, -1)[[0, 1, 3]] += torch.randn(3, 5)  # an encoder must not have the third
    return model.eval()


def batch_of(sources: list[list[int]] = SOURCES, targets: list[list[int]] = TARGETS) -> Batch:
    source, source_lengths = pad_rows(sources, end=3)
    tokens, lengths = pad_rows(targets, begin=2)
    return Batch(tokens=tokens, lengths=lengths, source=source, source_lengths=source_lengths)


def lstm(x: Tensor, state: tuple[Tensor, Tensor], weights: list[Tensor]) -> tuple[Tensor, Tensor]:
    """One step of one layer."""
    (h, c), (w, u, b, d) = state, weights
    i, f, g, o = (w @ x + b + u @ h + d).chunk(4)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def translate_by_hand(model: Sutskever, source: list[int], tokens: list[int]) -> tuple[Tensor, Tensor]:
    """The paper's two loops: the encoder's last top state, and the logits after every token."""
    layers = model.config.layers
    states = [(torch.zeros(5), torch.zeros(5)) for _ in range(layers)]
    own, scale = model.own_source_embedding or model.embedding, model.config.embedding_dim**0.5

    def read(word: Tensor, stack: Any) -> Tensor:
        for layer in range(layers):
            states[layer] = lstm(word, states[layer], stack.weights()[4 * layer : 4 * layer + 4])
            word = states[layer][0]
        return word

    order = reversed([*source, 3]) if model.config.reverse_source else [*source, 3]
    for token in order:
        vector = read(scale * own.weight[token], model.encoder)
    logits = [model.head.weight @ read(scale * model.embedding.weight[token], model.decoder) for token in tokens]
    return vector, torch.stack(logits)


@pytest.mark.parametrize(
    "changes", [{}, {"reverse_source": False}, {"layers": 1}, {"tie_weights": "all", "dim": 5, "embedding_dim": 5}]
)
@torch.no_grad()
def test_it_is_the_loop_of_the_paper(changes: dict[str, Any]) -> None:
    model, batch = build(**changes), batch_of()
    logits, encoded = model.output(model(batch)), model.encode(batch)
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        vector, expected = translate_by_hand(model, source, [2, *target])
        torch.testing.assert_close(encoded.pooled[row], vector, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(logits[row, : len(expected)], expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_one_token_after_the_other_says_the_same() -> None:
    model, batch = build(layers=3), batch_of(targets=[[5, 6, 4], [7, 8, 9], [4, 4, 4]])
    state, found = model.start(batch), []
    for column in torch.split(batch.tokens, 1, dim=1):
        logits, state = model.step(column, state)
        found.append(logits)
    torch.testing.assert_close(torch.cat(found, dim=1), model.output(model(batch)), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_reversal_is_reading_a_reversed_sentence() -> None:
    forwards, backwards = build(reverse_source=False), build()
    whole = [[4, 5, 6, 3], [8, 7, 5, 3]]
    turned = [row[::-1] for row in whole]
    batches = [
        Batch(
            tokens=torch.full((2, 1), 2),
            lengths=torch.ones(2, dtype=torch.long),
            source=torch.tensor(rows),
            source_lengths=torch.tensor([4, 4]),
        )
        for rows in (turned, whole)
    ]
    torch.testing.assert_close(forwards.encode(batches[0]).pooled, backwards.encode(batches[1]).pooled)
    assert not torch.allclose(forwards.encode(batches[1]).pooled, backwards.encode(batches[1]).pooled)


@torch.no_grad()
def test_what_an_encoder_tells_of_a_sentence() -> None:
    model, batch = build(), batch_of()
    encoded = model.encode(batch)
    (words,) = encoded.layers
    assert torch.equal(encoded.mask, batch.source_mask)
    assert words.shape == (3, 5, 5) and not words[~encoded.mask].any()
    torch.testing.assert_close(words[:, 0], encoded.pooled)  # the first word is the last one read


def test_the_paper_has_32_million_weights_in_the_layers_of_each_side() -> None:
    """Section 3.4: 384M parameters, of which 64M are pure recurrent connections; counted at a hundredth of the size."""
    assert (Config().layers, Config().dim, Config().embedding_dim) == (4, 1000, 1000)
    model = Sutskever(Config(dim=10, embedding_dim=10), WORDS, WORDS)
    for stack in (model.encoder, model.decoder):
        assert sum(weight.numel() for weight in stack.parameters() if weight.dim() == 2) * 100**2 == 32_000_000


def test_weights_are_shared_as_asked() -> None:
    sizes: dict[str, Any] = {"dim": 5, "embedding_dim": 5}
    own, target, every = (build(tie_weights=share, **sizes) for share in ("none", "target", "all"))
    count = [sum(weight.numel() for weight in model.parameters()) for model in (own, target, every)]
    assert count[0] - count[1] == count[1] - count[2] == len(WORDS) * 5
    assert every.head.weight is every.embedding.weight
    with pytest.raises(UserError, match="one vocabulary"):
        build(MORE, tie_weights="all", **sizes)
    with pytest.raises(ValueError, match="embedding_dim is 4 and dim 5"):
        build(tie_weights="target")


@pytest.mark.parametrize("wrong", [{"layers": 0}, {"dim": 0}, {"embedding_dim": -1}, {"dropout": 1.0}])
def test_impossible_shapes_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Config(**wrong)


@torch.no_grad()
def test_int8_weights_change_little() -> None:
    torch.manual_seed(1)
    model, batch = Sutskever(Config(**SIZES["tiny"]), WORDS, WORDS).eval(), batch_of()
    exact = model.output(model(batch))
    rough = quantize(model).output(model(batch))
    assert 0 < (rough - exact).norm() / exact.norm() < 0.02
