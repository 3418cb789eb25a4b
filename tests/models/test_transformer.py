from dataclasses import fields, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from mallang.data.batch import Batch, lengths_to_mask
from mallang.errors import UserError
from mallang.layers.attention import record_attention
from mallang.models.transformer import SIZES, Config, Model, Transformer
from mallang.text.vocabulary import SPECIALS, Vocabulary

TINY = {"layers": 2, "dim": 16, "heads": 2, "hidden_dim": 24, "dropout": 0.0}


def vocabulary(words):
    return Vocabulary((*SPECIALS, *map(str, range(words - 4))))


def make(words=11, source_words=11, seed=1, **changes):
    torch.manual_seed(seed)
    return Model(Config(**{**TINY, **changes}), vocabulary(words), vocabulary(source_words)).eval()


def batch_of(source_lengths=(5, 3), lengths=(4, 6), words=11, seed=1):
    random = torch.Generator().manual_seed(seed)
    source_lengths, lengths = torch.tensor(source_lengths), torch.tensor(lengths)
    source = torch.randint(4, words, (len(lengths), int(source_lengths.max())), generator=random)
    tokens = torch.randint(4, words, (len(lengths), int(lengths.max())), generator=random)
    source[~lengths_to_mask(source_lengths, source.shape[1])] = 0
    tokens[~lengths_to_mask(lengths, tokens.shape[1])] = 0
    return Batch(tokens=tokens, lengths=lengths, source=source, source_lengths=source_lengths)


def copy_attention(theirs, ours):
    query, key, value = theirs.in_proj_weight.data.chunk(3)
    for mine, other in zip(ours.input_weights(), (query, key, value), strict=True):
        mine.copy_(other)
    if hasattr(ours, "query"):
        ours.query.bias.data.copy_(theirs.in_proj_bias.data[: len(query)])
        ours.key_value.bias.data.copy_(theirs.in_proj_bias.data[len(query) :])
    else:
        ours.query_key_value.bias.data.copy_(theirs.in_proj_bias.data)
    ours.output.load_state_dict(theirs.out_proj.state_dict())


def copy_block(theirs, ours, cross):
    copy_attention(theirs.self_attn, ours.self_attention)
    ours.self_norm.load_state_dict(theirs.norm1.state_dict())
    if cross:
        copy_attention(theirs.multihead_attn, ours.cross_attention)
        ours.cross_norm.load_state_dict(theirs.norm2.state_dict())
    last = theirs.norm3 if cross else theirs.norm2
    ours.feedforward_norm.load_state_dict(last.state_dict())
    ours.feedforward.up_proj.load_state_dict(theirs.linear1.state_dict())
    ours.feedforward.down_proj.load_state_dict(theirs.linear2.state_dict())


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_it_equals_torch_with_the_same_weights(norm, activation):
    ours, batch = make(norm=norm, activation=activation), batch_of()
    theirs = nn.Transformer(
        16, 2, 2, 2, 24, 0.0, activation=activation, norm_first=norm == "pre", batch_first=True
    ).eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.3)
    if norm == "post":  # torch adds a last norm to each stack, which the paper has not
        theirs.encoder.norm = theirs.decoder.norm = None
    else:
        ours.encoder_norm.load_state_dict(theirs.encoder.norm.state_dict())
        ours.decoder_norm.load_state_dict(theirs.decoder.norm.state_dict())
    for other, mine in zip(theirs.encoder.layers, ours.encoder, strict=True):
        copy_block(other, mine, cross=False)
    for other, mine in zip(theirs.decoder.layers, ours.decoder, strict=True):
        copy_block(other, mine, cross=True)
    hidden_source = ~batch.source_mask
    expected = theirs(
        ours.source_embedding(batch.source),
        ours.embedding(batch.tokens),
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(batch.tokens.shape[1]),
        src_key_padding_mask=hidden_source,
        memory_key_padding_mask=hidden_source,
    )
    torch.testing.assert_close(ours(batch)[batch.mask], expected[batch.mask], rtol=1e-5, atol=1e-5)


def count(layers, dim, hidden, words, tables, final_norms=0):
    """The parameters of a Transformer whose heads share dim evenly, from the paper's formulas."""
    attention = 4 * (dim * dim + dim)
    feedforward = dim * hidden + hidden + hidden * dim + dim
    norm = 2 * dim
    encoder = layers * (attention + feedforward + 2 * norm)
    decoder = layers * (2 * attention + feedforward + 3 * norm)
    return tables * words * dim + encoder + decoder + final_norms * norm


def parameters(model):
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(("size", "millions"), [("base", 63), ("big", 214)])
def test_the_papers_models_have_the_papers_parameters(size, millions):
    shared = vocabulary(37_000)
    with torch.device("meta"):
        model = Model(Config(**SIZES[size]), shared, shared)
    config = model.config
    assert parameters(model) == count(config.layers, config.dim, config.hidden_dim, 37_000, tables=1)
    assert round(parameters(model) / 1e6) == millions
    assert {"tiny", "small", "base", "big"} <= set(SIZES)


@pytest.mark.parametrize(("share", "tables"), [("all", 1), ("target", 2), ("none", 3)])
def test_sharing_saves_tables(share, tables):
    model = make(tie_weights=share)
    assert parameters(model) == count(2, 16, 24, 11, tables)
    assert (model.head.weight is model.embedding.table.weight) == (share != "none")
    assert (model.embedding.table is model.source_embedding.table) == (share == "all")


def test_pre_norm_ends_each_stack_with_a_norm():
    assert parameters(make(norm="pre")) == count(2, 16, 24, 11, tables=1, final_norms=2)


def test_without_norms_nothing_is_normalized():
    model = make(norm="none")
    assert parameters(model) == count(2, 16, 24, 11, tables=1) - (2 * 2 + 2 * 3) * 2 * 16
    assert not [module for module in model.modules() if isinstance(module, nn.LayerNorm)]


@pytest.mark.parametrize("positions", ["none", "sinusoidal"])
@torch.no_grad()
def test_without_positions_the_source_is_a_bag_of_words(positions):
    model, batch = make(positions=positions), batch_of((5, 5), (4, 6))
    order = torch.tensor([3, 0, 4, 2, 1])
    shuffled = replace(batch, source=batch.source[:, order])
    is_same = torch.allclose(model(shuffled), model(batch), rtol=1e-5, atol=1e-5)
    assert is_same == (positions == "none")


def test_values_may_be_larger_than_keys():
    model = make(key_dim=3, value_dim=5, tie_weights="target", source_words=9)
    attention = model.decoder[0].cross_attention
    assert attention.output.weight.shape == (16, 2 * 5)
    assert [tuple(weight.shape) for weight in attention.input_weights()] == [(6, 16), (6, 16), (10, 16)]
    assert model.output(model(batch_of(words=9))).shape == (2, 6, 11)


def test_sharing_all_needs_one_vocabulary():
    with pytest.raises(UserError, match=r"needs one vocabulary.*9 and 11 tokens") as caught:
        make(source_words=9)
    assert 'model.tie_weights = "target"' in str(caught.value)
    assert make(tie_weights="target", source_words=9).source_embedding.table.num_embeddings == 9


def test_the_decoder_may_have_another_depth():
    model = make(decoder_layers=1)
    assert (len(model.encoder), len(model.decoder)) == (2, 1)


def test_weights_start_as_in_the_paper():
    model = make(dim=64, heads=4, hidden_dim=128)
    assert model.embedding.table.weight.std().item() == pytest.approx(64**-0.5, rel=0.1)
    for matrix in (*model.encoder[0].self_attention.input_weights(), model.encoder[0].self_attention.output.weight):
        bound = (6 / (64 + 64)) ** 0.5
        assert matrix.abs().max() <= bound and matrix.std().item() == pytest.approx(bound / 3**0.5, rel=0.1)
    assert all(p.eq(0).all() for name, p in model.named_parameters() if name.endswith("bias"))


def test_learned_positions_are_learned_and_limited():
    model = make(positions="learned", max_length=6)
    assert model(batch_of()).shape == (2, 6, 16)
    with pytest.raises(UserError, match=r"7 tokens.*6 positions"):
        model(batch_of(source_lengths=(7, 3)))
    state = model.start(batch_of())
    _, state = model.step(torch.full((2, 6), 4), state)
    with pytest.raises(UserError, match=r"7 tokens.*6 positions"):
        model.step(torch.full((2, 1), 4), state)


def test_sinusoidal_positions_have_no_limit():
    lengths = (1500, 3)
    assert make(layers=1)(batch_of(lengths, lengths)).isfinite().all()


@settings(deadline=None, max_examples=15)
@given(window=st.integers(0, 4), lengths=st.lists(st.integers(1, 7), min_size=1, max_size=3))
def test_a_window_restricts_self_attention_alone(window, lengths):
    model, batch = make(window=window), batch_of(tuple(lengths), tuple(reversed(lengths)))
    with record_attention(model) as maps:
        assert model(batch).isfinite().all()
    assert list(maps) == [
        "encoder.0.self", "encoder.1.self", "decoder.0.self", "decoder.0.cross", "decoder.1.self", "decoder.1.cross",
    ]  # fmt: skip
    for row, (source, time) in enumerate(zip(lengths, reversed(lengths), strict=True)):
        seen = maps["encoder.1.self"][row, 0] > 0
        assert all(seen[i, j] == (abs(i - j) <= window and j < source) for i in range(source) for j in range(source))
        seen = maps["decoder.1.self"][row, 0] > 0
        assert all(seen[i, j] == (i - window <= j <= i) for i in range(time) for j in range(time))
        assert (maps["decoder.1.cross"][row, :, :time, :source] > 0).all()
        assert maps["decoder.1.cross"][row, :, :time, source:].eq(0).all()


VARIANTS = {
    "window": {"window": 2},
    "pre": {"norm": "pre"},
    "learned": {"positions": "learned", "max_length": 12},
    "uneven": {"key_dim": 3, "value_dim": 5, "heads": 3, "decoder_layers": 1, "activation": "gelu"},
    "no-norm": {"norm": "none"},
    "no-positions": {"positions": "none"},
    "window-pre": {"window": 1, "norm": "pre", "tie_weights": "none"},
}


@pytest.mark.parametrize("variant", VARIANTS)
@torch.no_grad()
def test_every_variant_steps_as_it_reads_and_ignores_padding(variant):
    model, batch = make(**VARIANTS[variant]), batch_of((5, 3), (7, 7))
    logits = model.output(model(batch))
    with record_attention(model):
        torch.testing.assert_close(model.output(model(batch)), logits, rtol=1e-5, atol=1e-5)
    state, found = model.start(batch).widen(2), []
    for start, end in ((0, 1), (1, 2), (2, 6), (6, 7)):
        part, state = model.step(batch.tokens[:, start:end].repeat_interleave(2, 0), state)
        found.append(part)
    expected = logits.repeat_interleave(2, 0)
    torch.testing.assert_close(torch.cat(found, dim=1), expected, rtol=1e-5, atol=1e-5)
    alone = Batch(
        tokens=batch.tokens[1:],
        lengths=batch.lengths[1:],
        source=batch.source[1:, :3],
        source_lengths=torch.tensor([3]),
    )
    torch.testing.assert_close(model.output(model(alone))[0], logits[1], rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_the_cache_is_as_small_as_the_precision_allows():
    model, batch = make(), batch_of()
    with torch.autocast("cpu", torch.bfloat16):
        _, state = model.step(batch.tokens[:, :2], model.start(batch))
    assert {part.dtype for pair in (*state.moving.layers, *state.fixed["memory"]) for part in pair} == {torch.bfloat16}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dim": 10, "heads": 4}, "dim 10 cannot be divided among 4 heads"),
        ({"dim": 10, "heads": 4, "key_dim": 2}, "dim 10 cannot be divided among 4 heads"),
        ({"dim": 9, "heads": 3}, "dim 9 is odd"),
        ({"layers": 0}, "layers must be at least 1, but is 0"),
        ({"decoder_layers": 0}, "decoder_layers must be at least 1, but is 0"),
        ({"dropout": 1.0}, "dropout must be at least 0 and less than 1, but is 1.0"),
        ({"attention_dropout": -0.1}, "attention_dropout must be at least 0 and less than 1, but is -0.1"),
        ({"window": -1}, "window must be at least 0, but is -1"),
        ({"max_length": 9}, "max_length 9 has no effect"),
        ({"positions": "none", "max_length": 9}, "max_length 9 has no effect: none positions have no limit"),
        ({"positions": "learned"}, "learned positions need max_length"),
    ],
)
def test_impossible_shapes_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Config(**changes)


def test_heads_need_not_divide_dim_when_their_sizes_are_given():
    assert make(dim=10, heads=4, key_dim=2, value_dim=3)(batch_of()).shape == (2, 6, 10)


def test_the_defaults_are_the_base_model():
    config = Config()
    assert (config.layers, config.dim, config.heads, config.hidden_dim, config.dropout) == (6, 512, 8, 2048, 0.1)
    assert len(fields(Config)) <= 15 and Model is Transformer


def test_the_source_is_projected_once_and_not_copied_for_each_hypothesis():
    model, batch = make(), batch_of()
    state = model.start(batch).widen(3)
    memory = state.fixed["memory"]
    logits, after = model.step(torch.full((6, 2), 4), state)
    assert logits.shape == (6, 2, 11)
    assert after.fixed["memory"] is memory
    assert memory[0][0].shape == (2, 2, 5, 8) and state.fixed["mask"].shape == (2, 1, 1, 5)
    assert after.moving.layers[1].keys.shape == (6, 2, 2, 8)


def test_dropout_falls_on_the_embedding_and_every_sublayer():
    model = make(dropout=0.1)
    assert {module.p for module in model.modules() if isinstance(module, nn.Dropout)} == {0.1}
    assert sum(isinstance(module, nn.Dropout) for module in model.modules()) == 2 + 2 + 2
