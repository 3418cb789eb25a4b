"""GPT against `transformers`, its sizes against the papers, packed rows and windows against each text alone."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from mallang.data.batch import Batch
from mallang.errors import UserError
from mallang.layers.attention import record_attention
from mallang.layers.quantization import quantize
from mallang.models.gpt import GPT, HF_NAMES, SIZES, Config, Model
from mallang.text.vocabulary import SPECIALS, Vocabulary

TINY = {"layers": 2, "dim": 16, "heads": 2, "max_length": 12, "dropout": 0.0, "attention_dropout": 0.0}


def vocabulary(words):
    return Vocabulary((*SPECIALS, *map(str, range(words - 4))))


def make(words=11, seed=1, **changes):
    torch.manual_seed(seed)
    model = Model(Config(**{**TINY, **changes}), vocabulary(words)).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


def batch_of(rows=2, time=7, words=11, seed=1):
    tokens = torch.randint(4, words, (rows, time), generator=torch.Generator().manual_seed(seed))
    return Batch(tokens=tokens, lengths=torch.full((rows,), time))


def close(found, expected, tolerance=1e-5):
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def copied(ours, theirs, generation):
    """Put the weights of a `transformers` model into ours, by the table of names."""
    given_weights, used = dict(theirs.transformer.state_dict()), set()
    for name, parameter in ours.named_parameters():
        part, kind = name.rsplit(".", 1)
        number = next((piece for piece in part.split(".") if piece.isdigit()), "")
        other = HF_NAMES[part.replace(f".{number}", ".{}", 1) if number else part][0 if generation == 2 else 1]
        key = f"{other.format(number)}.{kind}"
        value = given_weights[key]
        parameter.data.copy_(value.T if ".c_" in key and kind == "weight" else value)
        used.add(key)
    assert {key for key in given_weights if not key.endswith((".attn.bias", "position_ids"))} == used
    return ours


@torch.no_grad()
def test_gpt_2_of_transformers_with_the_same_weights_says_the_same():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(3)
    config = transformers.GPT2Config(vocab_size=11, n_positions=12, n_embd=16, n_layer=2, n_head=2)
    theirs = transformers.GPT2LMHeadModel(config).eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.3)
    ours, batch = copied(make(), theirs, generation=2), batch_of()
    close(ours.output(ours(batch)), theirs(batch.tokens).logits)


@torch.no_grad()
def test_gpt_1_of_transformers_with_the_same_weights_says_the_same():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(3)
    config = transformers.OpenAIGPTConfig(vocab_size=11, n_positions=12, n_embd=16, n_layer=2, n_head=2)
    theirs = transformers.OpenAIGPTLMHeadModel(config).eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.3)
    ours, batch = copied(make(norm="post"), theirs, generation=1), batch_of()
    close(ours.output(ours(batch)), theirs(batch.tokens).logits)


PUBLISHED = {
    "gpt1": (40_478, 116_534_784),
    "gpt2": (50_257, 124_439_808),
    "gpt2-medium": (50_257, 354_823_168),
    "gpt2-large": (50_257, 774_030_080),
    "gpt2-xl": (50_257, 1_557_611_200),
}
NAMED = {"125m": 125e6, "350m": 356e6, "760m": 760e6, "1.3b": 1.3e9, "2.7b": 2.65e9, "6.7b": 6.66e9, "13b": 12.85e9,
         "175b": 174.6e9}  # fmt: skip


@pytest.mark.parametrize("size", PUBLISHED)
def test_the_published_models_have_their_published_number_of_parameters(size):
    words, expected = PUBLISHED[size]
    assert parameters(size, words) == expected


@pytest.mark.parametrize("size", NAMED)
def test_gpt_3_has_the_sizes_it_is_named_after(size):
    found = parameters(f"gpt3-{size}", 50_257)
    config = Config(**SIZES[f"gpt3-{size}"])
    assert found == count(config, 50_257)
    assert found == pytest.approx(NAMED[size], rel=0.015)
    assert config.dim // config.heads in (64, 80, 96, 128)


def parameters(size, words):
    with torch.device("meta"):
        model = Model(Config(**SIZES[size]), vocabulary(words))
    return sum(parameter.numel() for parameter in model.parameters())


def count(config, words):
    """The number of parameters from the formula: embeddings, and 12 dim² + 13 dim for each block."""
    dim = config.dim
    return (words + config.max_length) * dim + config.layers * (12 * dim * dim + 13 * dim) + 2 * dim


def test_weights_start_as_in_the_papers():
    torch.manual_seed(1)
    model = GPT(Config(layers=8, dim=64, heads=4, max_length=32), vocabulary(200))
    block = model.decoder[3]
    first = (model.embedding.table, model.embedding.positions.table, block.feedforward.up_proj)
    assert all(part.weight.std().item() == pytest.approx(0.02, rel=0.05) for part in first)
    for last in (block.self_attention.output, block.feedforward.down_proj):
        assert last.weight.std().item() == pytest.approx(0.02 / 4, rel=0.05)
    assert all(p.eq(0).all() for name, p in model.named_parameters() if name.endswith("bias"))
    model = GPT(Config(layers=8, dim=64, heads=4, max_length=32, scaled_residuals=False), vocabulary(9))
    assert model.decoder[3].feedforward.down_proj.weight.std().item() == pytest.approx(0.02, rel=0.05)


def test_the_output_is_the_embedding_and_biases_can_be_left_out():
    model = make(biases="none")
    assert model.head.weight is model.embedding.table.weight
    assert not [name for name, _ in model.named_parameters() if "bias" in name]
    assert model(batch_of()).shape == (2, 7, 16)
    model, plain = make(biases="all"), make()
    plain.load_state_dict({key: value for key, value in model.state_dict().items() if key != "head.bias"})
    close(model.output(model(batch_of())), plain.output(plain(batch_of())) + model.head.bias)


def test_dropouts_are_where_they_should_be():
    model = make(dropout=0.1, embedding_dropout=0.2, output_dropout=0.3, attention_dropout=0.4)
    assert (model.embedding.dropout.p, model.output_dropout.p) == (0.2, 0.3)
    assert {block.dropout.p for block in model.decoder} == {0.1}
    assert {block.self_attention.dropout for block in model.decoder} == {0.4}
    assert make(dropout=0.1).embedding.dropout.p == 0.1


VARIANTS = {
    "gpt-1": {"norm": "post", "scaled_residuals": False},
    "window": {"window": 2},
    "alternate": {"window": 1, "windowed": "alternate", "layers": 3},
    "no-norm": {"norm": "none"},
    "down_proj": {"hidden_dim": 24, "biases": "none", "activation": "relu"},
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
    state, found = model.start(batch).reserve(7, 1), []
    for place in range(7):
        part, state = model.step(batch.tokens[:, place : place + 1], state)
        found.append(part)
    close(torch.cat(found, dim=1), logits)


def test_a_window_reaches_back_so_far_in_the_layers_that_have_one():
    model = make(window=2, windowed="alternate", layers=3)
    with record_attention(model) as maps:
        model(batch_of(time=6))
    assert list(maps) == ["decoder.0.self", "decoder.1.self", "decoder.2.self"]
    back = torch.arange(6)[:, None] - torch.arange(6)
    for layer in (0, 1, 2):
        expected = (back >= 0) & (back <= 2) if layer == 1 else back >= 0
        assert ((maps[f"decoder.{layer}.self"] > 0) == expected).all()


@settings(deadline=None, max_examples=15)
@given(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=4), padding=st.integers(0, 3), window=st.booleans())
@torch.no_grad()
def test_packed_texts_are_read_as_each_by_itself(lengths, padding, window):
    model = make(max_length=24, window=2 if window else None)
    texts = [batch_of(1, length, seed=number) for number, length in enumerate(lengths)]
    row = torch.cat([*(text.tokens for text in texts), torch.zeros(1, padding, dtype=torch.long)], dim=1)
    numbers = [number + 1 for number, length in enumerate(lengths) for _ in range(length)] + [0] * padding
    other = torch.randint(4, 11, row.shape)
    packed = Batch(
        tokens=torch.cat([row, other]),
        lengths=torch.tensor([sum(lengths), row.shape[1]]),
        segments=torch.tensor([numbers, [1] * row.shape[1]]),
    )
    found = model(packed)
    assert found.isfinite().all()
    close(found[0, : sum(lengths)], torch.cat([model(text)[0] for text in texts]))
    close(found[1:], model(Batch(tokens=other, lengths=packed.lengths[1:])))


def test_a_row_without_other_texts_needs_no_segments():
    model, batch = make(), batch_of()
    close(model(replace(batch, segments=torch.ones_like(batch.tokens))), model(batch))


def test_positions_end_with_a_clear_message():
    model = make()
    assert model.longest == 12
    with pytest.raises(UserError, match=r"13 tokens.*12 positions"):
        model(batch_of(time=13))
    with pytest.raises(UserError, match=r"13 tokens.*12 positions"):
        model(replace(batch_of(time=13), segments=torch.ones(2, 13, dtype=torch.long)))


@torch.no_grad()
def test_without_positions_a_gpt_reads_texts_of_any_length_and_no_order_in_one_block():
    torch.manual_seed(1)
    model = GPT(Config(**{**SIZES["tiny"], "max_length": None, "layers": 1}), vocabulary(11)).eval()
    assert model.longest is None and model(batch_of(time=70)).shape[1] == 70
    first, other = ([[2, 5, 6, 7, 8]], [[2, 7, 5, 6, 8]])  # the last token attends to the same bag of words

    def last(model, rows):
        tokens = torch.tensor(rows)
        return model(Batch(tokens=tokens, lengths=torch.tensor([tokens.shape[1]])))[0, -1]

    close(last(model, first), last(model, other))
    torch.manual_seed(1)
    ordered = GPT(Config(**{**SIZES["tiny"], "layers": 1}), vocabulary(11)).eval()
    assert (last(ordered, first) - last(ordered, other)).abs().max() > 1e-4
    batch = batch_of(time=9)
    packed = replace(batch, segments=torch.ones_like(batch.tokens))
    close(model(packed), model(batch))
    logits, state = model.step(batch.tokens[:, :4], model.start(batch))
    more, _ = model.step(batch.tokens[:, 4:], state)
    close(torch.cat((logits, more), dim=1), model.output(model(batch)))


@torch.no_grad()
def test_the_cache_is_as_small_as_the_precision_allows():
    model, batch = make(), batch_of()
    with torch.autocast("cpu", torch.bfloat16):
        _, state = model.step(batch.tokens[:, :2], model.start(batch))
    assert {part.dtype for pair in state.moving.layers for part in pair} == {torch.bfloat16}


@torch.no_grad()
def test_eight_bit_weights_step_too():
    model, batch = make(dim=32), batch_of()
    expected = model.output(model(batch))
    found, _ = quantize(model).step(batch.tokens, model.start(batch))
    assert (found - expected).norm() / expected.norm() < 0.05


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dim": 10, "heads": 4}, "dim 10 cannot be divided among 4 heads"),
        ({"layers": 0}, "layers must be at least 1, but is 0"),
        ({"hidden_dim": 0}, "hidden_dim must be at least 1, but is 0"),
        ({"max_length": 0}, "max_length must be at least 1, but is 0"),
        ({"dropout": 1.0}, "dropout must be at least 0 and less than 1, but is 1.0"),
        ({"embedding_dropout": -0.1}, "embedding_dropout must be at least 0"),
        ({"window": -1}, "window must be at least 0, but is -1"),
        ({"windowed": "alternate"}, 'windowed = "alternate" has no effect without a window'),
    ],
)
def test_impossible_shapes_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Config(**changes)
