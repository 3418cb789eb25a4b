"""The modern GPT against its formulas; each part against the option that goes back."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from mallang.data.batch import Batch
from mallang.errors import UserError
from mallang.layers.attention import record_attention
from mallang.layers.head import cross_entropy_of
from mallang.layers.position import RotaryPositions, rotate
from mallang.models.modern_gpt import Config, Model, rms_norm
from mallang.text.vocabulary import SPECIALS, Vocabulary

TINY = {"layers": 2, "dim": 16, "heads": 2, "max_length": 24, "zero_init": False}


def vocabulary(words):
    return Vocabulary((*SPECIALS, *map(str, range(words - 4))))


def make(words=11, seed=1, **changes):
    torch.manual_seed(seed)
    return Model(Config(**{**TINY, **changes}), vocabulary(words)).eval()


def batch_of(rows=2, time=7, words=11, seed=1):
    tokens = torch.randint(4, words, (rows, time), generator=torch.Generator().manual_seed(seed))
    return Batch(tokens=tokens, lengths=torch.full((rows,), time))


def close(found, expected, tolerance=1e-5):
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@torch.no_grad()
def test_a_block_is_the_formula():
    """One block written out: norm, turn, look, add; norm, ReLU², add."""
    model, batch = make(layers=1), batch_of(1, 5)
    block = model.decoder[0]
    x = rms_norm(model.embedding(batch.tokens))
    query, key, value = block.self_attention.query_key_value(rms_norm(x)).split(16, dim=-1)
    angles = RotaryPositions(8)(5)
    looked = []
    for head in (slice(0, 8), slice(8, 16)):
        q, k = (rotate(rms_norm(part[..., head]), angles) for part in (query, key))
        scores = (q @ k.mT / 8**0.5).masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf)
        looked.append(scores.softmax(-1) @ value[..., head])
    x = x + block.self_attention.output(torch.cat(looked, dim=-1))
    widened = block.feedforward.up_proj(rms_norm(x))
    x = x + block.feedforward.down_proj(torch.where(widened > 0, widened, 0.0) ** 2)
    close(model(batch), rms_norm(x))


def test_rotary_positions_tell_differences_alone():
    """The product of a turned query and key is that of two others as far apart; it is no other distance's."""
    torch.manual_seed(1)
    query, key = torch.randn(2, 8).double()
    angles = RotaryPositions(8)(30).double()

    def dot(i, j):
        return (rotate(query[None], angles[i : i + 1]) @ rotate(key[None], angles[j : j + 1]).T).item()

    assert dot(7, 3) == pytest.approx(dot(24, 20), abs=1e-6)
    assert dot(7, 3) != pytest.approx(dot(7, 4), abs=1e-3)
    assert dot(5, 5) == pytest.approx((query @ key).item(), abs=1e-6)
    assert rotate(query[None], angles[9:10]).norm().item() == pytest.approx(query.norm().item())


@torch.no_grad()
def test_the_table_of_angles_reaches_as_far_as_a_text_from_the_start():
    model = make(max_length=1500)
    table = model.angles.table
    assert len(table) == 1500
    model(batch_of(1, 1500))
    assert model.angles.table is table


@torch.no_grad()
def test_queries_and_keys_of_one_length_keep_scores_small():
    """However large the weights, |score| ≤ √(values in a head)."""
    for normed, holds in ((True, True), (False, False)):
        model = make(qk_norm=normed)
        model.decoder[1].self_attention.query_key_value.weight.mul_(50)
        with record_attention(model, scores=True) as maps:
            model(batch_of())
        assert (maps["decoder.1.self.scores"].abs().max() <= 8**0.5 + 1e-4) == holds


@torch.no_grad()
def test_it_starts_from_zero():
    model = make(zero_init=True)
    assert model.output(model(batch_of())).eq(0).all()
    close(model(batch_of()), rms_norm(rms_norm(model.embedding(batch_of().tokens))))
    assert make(zero_init=True, tie_weights=True).head.weight.ne(0).all()


def test_the_logits_bend_towards_the_cap_in_the_loss_too():
    free, capped = make(), make(soft_cap=2.0)
    capped.load_state_dict(
        {key.replace("head.", "head.projection."): value for key, value in free.state_dict().items()}
    )
    hidden = free(batch_of()).flatten(0, 1).detach() * 5
    close(capped.output(hidden), 2 * torch.tanh(free.output(hidden) / 2))
    assert capped.output(hidden).abs().max() < 2 < free.output(hidden).abs().max()
    labels = batch_of(seed=2).tokens.flatten()
    expected = nn.functional.cross_entropy(capped.output(hidden), labels, reduction="sum")
    close(cross_entropy_of(capped, hidden.requires_grad_(), labels)[0], expected)


def test_nothing_has_a_bias_and_norms_learn_nothing():
    model = make()
    assert {parameter.dim() for parameter in model.parameters()} == {2}
    assert {p.dim() for p in make(norm="layer").parameters()} == {1, 2}
    assert not [name for name, _ in make(norm="layer").named_parameters() if "bias" in name]


VARIANTS = {
    "all": {},
    "learned": {"positions": "learned"},
    "back": {"positions": "learned", "qk_norm": False, "norm": "layer", "activation": "gelu", "tie_weights": True},
    "window": {"window": 2, "soft_cap": 3.0},
    "bare": {"positions": "none", "norm": "none"},
}


@pytest.mark.parametrize("variant", VARIANTS)
@torch.no_grad()
def test_every_variant_steps_as_it_reads(variant):
    model, batch = make(**VARIANTS[variant]), batch_of()
    logits = model.output(model(batch))
    with record_attention(model):
        close(model.output(model(batch)), logits)
    state, found = model.start(batch).widen(2), []
    for start, end in ((0, 1), (1, 2), (2, 6), (6, 7)):
        part, state = model.step(batch.tokens[:, start:end].repeat_interleave(2, 0), state)
        found.append(part)
    close(torch.cat(found, dim=1), logits.repeat_interleave(2, 0))
    _, state = model.step(batch.tokens[:, :3], model.start(batch))
    state, found = state.reserve(4, 2), []
    for place in range(3, 7):
        part, state = model.step(batch.tokens[:, place : place + 1].repeat_interleave(2, 0), state)
        found.append(part)
    close(torch.cat(found, dim=1), logits[:, 3:].repeat_interleave(2, 0))


@settings(deadline=None, max_examples=10)
@given(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=4), variant=st.sampled_from(sorted(VARIANTS)))
@torch.no_grad()
def test_packed_texts_are_read_as_each_by_itself(lengths, variant):
    model = make(**VARIANTS[variant])
    texts = [batch_of(1, length, seed=number) for number, length in enumerate(lengths)]
    numbers = [number + 1 for number, length in enumerate(lengths) for _ in range(length)]
    packed = Batch(
        tokens=torch.cat([text.tokens for text in texts], dim=1),
        lengths=torch.tensor([sum(lengths)]),
        segments=torch.tensor([numbers]),
    )
    close(model(packed)[0], torch.cat([model(text)[0] for text in texts]))


@torch.no_grad()
def test_without_positions_the_last_token_sees_a_bag_of_words_before_it():
    batch = batch_of()
    swapped = replace(batch, tokens=batch.tokens[:, [2, 0, 1, 4, 3, 5, 6]])
    for positions, is_same in (("none", True), ("rotary", False)):
        model = make(positions=positions, layers=1)  # a second layer would see the causal masks of the first
        assert torch.allclose(model(swapped)[:, -1], model(batch)[:, -1], rtol=1e-5, atol=1e-5) == is_same


def test_a_text_has_an_end():
    assert make().longest == 24
    with pytest.raises(UserError, match=r"25 tokens.*24 positions"):
        make()(batch_of(time=25))
    packed = replace(batch_of(time=25), segments=torch.ones(2, 25, dtype=torch.long))
    with pytest.raises(UserError, match=r"25 tokens.*24 positions"):
        make()(packed)


@torch.no_grad()
def test_the_cache_is_as_small_as_the_precision_allows():
    model, batch = make(), batch_of()
    with torch.autocast("cpu", torch.bfloat16):
        _, state = model.step(batch.tokens[:, :2], model.start(batch))
    assert {part.dtype for pair in state.moving.layers for part in pair} == {torch.bfloat16}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dim": 10, "heads": 4}, "dim 10 cannot be divided among 4 heads"),
        ({"dim": 9, "heads": 3}, "a head of 3 values is odd"),
        ({"layers": 0}, "layers must be at least 1, but is 0"),
        ({"attention_dropout": 1.0}, "attention_dropout must be at least 0 and less than 1, but is 1.0"),
        ({"window": -1}, "window must be at least 0, but is -1"),
        ({"soft_cap": 0.0}, "soft_cap must be above 0, but is 0.0"),
    ],
)
def test_impossible_shapes_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Config(**changes)
