"""Cho's model against its paper: explicit loops over words, the summary at every step, the readout."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from mallang.data.batch import Batch, pad_rows
from mallang.errors import UserError
from mallang.layers.quantization import quantize
from mallang.models.cho import SIZES, Cho, Config
from mallang.text.vocabulary import SPECIALS, Vocabulary

WORDS = Vocabulary((*SPECIALS, *"abcdefgh"))
MORE = Vocabulary((*SPECIALS, *"abcdefghij"))
SOURCES, TARGETS = [[4, 5, 6, 7], [8], [9, 4]], [[5, 6], [7, 8, 9], [4]]


def build(source_vocabulary: Vocabulary = WORDS, **changes: Any) -> Cho:
    torch.manual_seed(1)
    model = Cho(Config(**{"embedding_dim": 4, "dim": 5, "readout_dim": 4, **changes}), WORDS, source_vocabulary)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "bias" in name:
                weight.add_(torch.randn_like(weight))
        for name in ("bias_ih_l0", "bias_hh_l0"):
            model.encoder.get_parameter(name)[10:] = 0  # what an encoder must not have
    return model.eval()


def batch_of(targets: list[list[int]] = TARGETS) -> Batch:
    source, source_lengths = pad_rows(SOURCES, end=3)
    tokens, lengths = pad_rows(targets, begin=2)
    return Batch(tokens=tokens, lengths=lengths, source=source, source_lengths=source_lengths)


def gru(x: Tensor, h: Tensor, weights: list[Tensor]) -> Tensor:
    """One step that resets after the matmul."""
    w, u, b, d = weights
    (x_r, x_z, x_n), (h_r, h_z, h_n) = (w @ x + b).chunk(3), (u @ h + d).chunk(3)
    r, z = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
    return (1 - z) * torch.tanh(x_n + r * h_n) + z * h


def translate_by_hand(model: Cho, source: list[int], tokens: list[int]) -> tuple[Tensor, Tensor]:
    """The formulas of the paper's appendix: the summary c, and the logits after every token."""
    h, scale = torch.zeros(5), model.config.embedding_dim**0.5
    for token in [*source, 3]:
        x = scale * (model.own_source_embedding or model.embedding).weight[token]
        h = gru(x, h, model.encoder.weights())
    c = torch.tanh(model.summary.weight @ h + model.summary.bias)
    s = torch.tanh(model.first_state.weight @ c + model.first_state.bias)
    of_word, of_state, of_summary = model.readout.pairs.weight.split_with_sizes([4, 5, 5], dim=1)
    logits = []
    for token in tokens:
        y = scale * model.embedding.weight[token]
        s = gru(torch.cat((y, c)), s, model.decoder.weights())
        t = of_word @ y + of_state @ s + of_summary @ c + model.readout.pairs.bias
        logits.append(model.head.weight @ torch.stack([max(t[j], t[4 + j]) for j in range(4)]))
    return c, torch.stack(logits)


@pytest.mark.parametrize("share", ["none", "target", "all"])
@torch.no_grad()
def test_it_is_the_loop_of_the_paper(share: str) -> None:
    model, batch = build(tie_weights=share), batch_of()
    logits, encoded = model.output(model(batch)), model.encode(batch)
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        summary, expected = translate_by_hand(model, source, [2, *target])
        torch.testing.assert_close(encoded.pooled[row], summary, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(logits[row, : len(expected)], expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_one_token_after_the_other_says_the_same_for_every_hypothesis() -> None:
    """The summary has a row per sentence, the state one per hypothesis."""
    model, batch = build(), batch_of([[5, 6, 4], [7, 8, 9], [4, 4, 4]])
    expected = model.output(model(batch))
    state, found = model.start(batch).widen(2), []
    assert len(state.fixed) == 3 and len(state.moving.hidden) == 6
    for column in torch.split(batch.tokens.repeat_interleave(2, dim=0), 1, dim=1):
        logits, state = model.step(column, state)
        found.append(logits)
    torch.testing.assert_close(torch.cat(found, dim=1), expected.repeat_interleave(2, dim=0), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_every_step_and_the_readout_see_the_summary() -> None:
    """Another summary under the same decoder state changes what is said, and how the state goes on."""
    model, batch = build(), batch_of([[5], [5], [5]])
    state = model.start(batch)
    other = type(state)(state.fixed.flip(0), state.moving)
    (said, after), (said_otherwise, after_other) = (model.step(batch.tokens, each) for each in (state, other))
    assert not torch.allclose(said[0], said_otherwise[0])
    assert not torch.allclose(after.moving.hidden[0], after_other.moving.hidden[0])
    torch.testing.assert_close(said[1], said_otherwise[1])  # the one in the middle kept its own


@torch.no_grad()
def test_what_an_encoder_tells_of_a_sentence() -> None:
    model, batch = build(), batch_of()
    encoded = model.encode(batch)
    assert torch.equal(encoded.mask, batch.source_mask)
    assert encoded.layers[0].shape == (3, 5, 5) and encoded.pooled.shape == (3, 5)


def test_weights_are_shared_as_asked() -> None:
    own, target, every = (build(tie_weights=share) for share in ("none", "target", "all"))
    count = [sum(weight.numel() for weight in model.parameters()) for model in (own, target, every)]
    assert count[0] - count[1] == count[1] - count[2] == len(WORDS) * 4
    with pytest.raises(UserError, match="one vocabulary"):
        build(MORE, tie_weights="all")
    with pytest.raises(ValueError, match="embedding_dim is 4 and readout_dim 6"):
        build(tie_weights="target", readout_dim=6)


@pytest.mark.parametrize("wrong", [{"dim": 0}, {"embedding_dim": -1}, {"readout_dim": 0}, {"dropout": 1.0}])
def test_impossible_shapes_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Config(**wrong)


@torch.no_grad()
def test_int8_weights_change_little() -> None:
    torch.manual_seed(1)
    model, batch = Cho(Config(**SIZES["tiny"]), WORDS, WORDS).eval(), batch_of()
    exact = model.output(model(batch))
    rough = quantize(model).output(model(batch))
    assert 0 < (rough - exact).norm() / exact.norm() < 0.02
