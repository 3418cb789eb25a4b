"""ConvS2S against the formulas of the paper in explicit loops; contracts/ holds what all models keep."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

import mallang
from mallang import recipe as recipes
from mallang.data.batch import Batch, pad_rows
from mallang.decoding.contract import Config as Search
from mallang.decoding.search import search
from mallang.errors import UserError
from mallang.layers.attention import record_attention
from mallang.layers.convolution import GatedConvolution, fold_weights
from mallang.layers.quantization import quantize
from mallang.models.convs2s import SIZES, Config, ConvS2S
from mallang.runs.beginning import begin
from mallang.runs.weights import own_weights
from mallang.text.tokenizer import Config as Text
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import BOS, EOS, SPECIALS, Vocabulary
from mallang.training.materials import save_tokenizers

WORDS = Vocabulary((*SPECIALS, *"abcdefg"))
HALF = math.sqrt(0.5)


def build(words=WORDS, source_words=WORDS, **changes):
    torch.manual_seed(1)
    return ConvS2S(Config(**{**SIZES["tiny"], **changes}), words, source_words).eval()


def a_batch(sources=((4, 5, 6), (7,)), targets=((5, 4), (6, 7, 8))):
    source, source_lengths = pad_rows([[*row, EOS] for row in sources])
    tokens, lengths = pad_rows([[BOS, *row] for row in targets])
    return Batch(tokens=tokens, lengths=lengths, source=source, source_lengths=source_lengths)


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def gated(layer, inputs, i, kernel_size, left):
    """One position of a gated convolution, a list of vectors in."""
    zero = torch.zeros_like(inputs[0])
    window = [inputs[j] if 0 <= j < len(inputs) else zero for j in range(i - left, i - left + kernel_size)]
    both = layer.linear.weight @ torch.cat(window) + layer.linear.bias
    a, b = both.chunk(2)
    return a * torch.sigmoid(b)


def by_hand(model, source, tokens):
    """The hidden vectors of one sentence, position by position, without a batch."""
    kernel_size = model.config.kernel_size

    def embed(embedding, ids):
        return [embedding.table.weight[word] + embedding.positions.table.weight[i] for i, word in enumerate(ids)]

    e = embed(model.source_embedding, source)
    x = [model.source_input(vector) for vector in e]
    for layer in model.encoder:
        x = [(gated(layer.convolution, x, i, kernel_size, (kernel_size - 1) // 2) + x[i]) * HALF for i in range(len(x))]
    z = [model.source_output(vector) for vector in x]
    g = embed(model.embedding, tokens)
    h = [model.input(vector) for vector in g]
    for layer in model.decoder:
        after = []
        for i in range(len(h)):
            convolved = gated(layer.convolution, h, i, kernel_size, kernel_size - 1)
            query = (layer.cross_attention.query(convolved) + g[i]) * HALF
            scores = [float(query @ key) for key in z]
            weights = [math.exp(score) / sum(map(math.exp, scores)) for score in scores]
            context = sum(weight * (z[j] + e[j]) * HALF for j, weight in enumerate(weights))
            m = len(source)
            looked = layer.cross_attention.output(context * (m * math.sqrt(1 / m)))
            after.append(((convolved + looked) * HALF + h[i]) * HALF)
        h = after
    return torch.stack([model.last(vector) for vector in h])


@pytest.mark.parametrize(
    "changes", [{}, {"kernel_size": 2, "decoder_layers": 1}, {"embedding_dim": 12, "kernel_size": 5}]
)
@torch.no_grad()
def test_it_is_the_papers_formulas(changes):
    model, batch = build(**changes), a_batch()
    found = model(batch)
    for row in range(2):
        source = batch.source[row, : batch.source_lengths[row]].tolist()
        tokens = batch.tokens[row, : batch.lengths[row]].tolist()
        close(found[row, : len(tokens)], by_hand(model, source, tokens))


@torch.no_grad()
def test_every_layer_of_the_decoder_attends():
    model, batch = build(decoder_layers=3), a_batch()
    with record_attention(model) as maps:
        model(batch)
    assert list(maps) == ["decoder.0.cross", "decoder.1.cross", "decoder.2.cross"]
    assert all(weights.shape == (2, 1, 4, 4) for weights in maps.values())
    assert not maps["decoder.0.cross"][1, :, :, 2:].any()  # padding is not looked at


@torch.no_grad()
def test_the_state_keeps_its_shape():
    model, batch = build(), a_batch()
    state = model.start(batch)
    shapes = [window.shape for window in state.moving["windows"]]
    assert shapes == [(2, 2, 32)] * 2
    for tokens in (batch.tokens[:, :1], batch.tokens[:, 1:]):
        _, state = model.step(tokens, state)
        assert [window.shape for window in state.moving["windows"]] == shapes
    assert state.moving["place"].tolist() == [4, 4]


def test_weights_begin_as_the_paper_says():
    torch.manual_seed(1)
    model = ConvS2S(Config(layers=1, dim=256, dropout=0.2, max_length=64), WORDS, WORDS)
    convolution = next(part for part in model.modules() if isinstance(part, GatedConvolution)).linear
    assert convolution.weight.std().item() == pytest.approx(math.sqrt(4 * 0.8 / (3 * 256)), rel=0.02)
    assert model.input.weight.std().item() == pytest.approx(math.sqrt(0.8 / 256), rel=0.02)
    assert model.last.weight.std().item() == pytest.approx(math.sqrt(1 / 256), rel=0.02)
    assert model.embedding.table.weight.std().item() == pytest.approx(0.1, rel=0.05)
    assert not model.head.bias.any() and not convolution.bias.any()


def test_the_encoder_gets_its_gradient_divided():
    """The forward pass is unchanged; the gradient of the encoder's output is scaled by 1/(2 · layers)."""
    model, batch = build(dropout=0.0, decoder_layers=2), a_batch()
    keys = model.read(batch)[0].keys
    keys.sum().backward()
    scaled = model.source_output.bias.grad.clone()
    close(scaled, torch.full_like(scaled, 8 / 4))  # 2 × 4 positions, divided by 2 · 2


@torch.no_grad()
def test_normalized_weights_are_length_and_direction():
    model, plain = build(weight_norm=True), build(weight_norm=False)
    close(model(a_batch()), plain(a_batch()))  # the lengths begin as they are
    parts = model.input.parametrizations.weight
    close(parts.original0, plain.input.weight.norm(dim=1, keepdim=True))
    parts.original0.mul_(2)
    close(model.input.weight, 2 * plain.input.weight)
    assert not any("parametrizations" in name for name in plain.state_dict())


@torch.no_grad()
def test_folded_weights_say_the_same():
    model, batch = build(), a_batch()
    for name, weight in model.named_parameters():
        if name.endswith("original0"):  # lengths that are no longer those of the directions
            weight.mul_(torch.rand_like(weight) + 0.5)
    whole, stepped = model.output(model(batch)), model.step(batch.tokens, model.start(batch))[0]
    folded = copy.deepcopy(model)
    fold_weights(folded)
    close(folded.output(folded(batch)), whole)
    close(folded.step(batch.tokens, folded.start(batch))[0], stepped)
    assert folded.state_dict().keys() == build(weight_norm=False).state_dict().keys()
    assert torch.equal(model.output(model(batch)), whole), "what it was copied from is as it was"


def test_a_loaded_run_has_folded_weights(tmp_path):
    tokenizer = Tokenizer.train(["a b c d e f g h"], Text(unit="char", vocabulary=20))
    torch.manual_seed(1)
    trained = ConvS2S(Config(**SIZES["tiny"]), tokenizer.vocabulary, tokenizer.vocabulary).eval()
    run = begin(tmp_path / "run", recipes.read("convs2s", ["model.size=tiny"]).build(), fresh=False)
    save_tokenizers(run.folder, {"source": tokenizer, "target": tokenizer})
    run.write_weights(own_weights(trained))
    loaded = mallang.load(run.folder, "cpu").model
    assert any(parametrize.is_parametrized(part) for part in trained.modules())
    assert not any(parametrize.is_parametrized(part) for part in loaded.modules())
    with torch.no_grad():
        close(loaded(a_batch()), trained(a_batch()))


@torch.no_grad()
def test_all_matrices_can_be_8_bit_integers():
    model, batch = build(), a_batch()
    exact = model.output(model(batch))
    rough = quantize(model)
    assert not any(isinstance(part, nn.Linear) for part in rough.modules())
    found = rough.output(rough(batch))
    assert 0 < (found - exact)[batch.mask].norm() / exact[batch.mask].norm() < 0.05


def test_a_search_in_bfloat16_finds_much_the_same():
    model, batch = build(), a_batch()
    exact, rough = (
        search(model, batch, Search(method="greedy", max_length=6, precision=bits)) for bits in ("fp32", "bf16")
    )
    for one, other in zip(exact, rough, strict=True):
        assert one[0].score == pytest.approx(other[0].score, rel=0.05)


def test_shared_weights_are_one():
    counts = {
        share: sum(p.numel() for p in build(tie_weights=share, weight_norm=False).parameters())
        for share in ("none", "target", "all")
    }
    table = len(WORDS) * 32
    assert counts["none"] - counts["target"] == counts["target"] - counts["all"] == table


def test_one_table_needs_one_vocabulary():
    with pytest.raises(UserError, match="needs one vocabulary"):
        build(source_words=Vocabulary((*SPECIALS, "x")), tie_weights="all")


def test_texts_are_no_longer_than_the_positions():
    model = build(max_length=4)
    assert model.longest == 4
    with pytest.raises(UserError, match="a text has 5 tokens, but the model learned only 4 positions") as caught:
        model(a_batch(sources=((4, 5, 6, 7),), targets=((4,),)))
    assert "model.max_length" in str(caught.value) and "sinusoidal" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"layers": 0}, "layers must be at least 1, but is 0"),
        ({"kernel_size": 0}, "kernel_size must be at least 1, but is 0"),
        ({"dropout": 1.0}, "dropout must be at least 0 and less than 1, but is 1.0"),
    ],
)
def test_impossible_shapes_are_refused(changes, complaint):
    with pytest.raises(ValueError, match=complaint):
        Config(**changes)
