import torch

from mallang.data.batch import Batch, pad_rows
from mallang.inspection.attention import attention_maps
from mallang.models.transformer import Config, Model
from mallang.text.vocabulary import BOS, EOS, SPECIALS, Vocabulary

SOURCE = Vocabulary((*SPECIALS, "나는", "학생", "이다"))
TARGET = Vocabulary((*SPECIALS, "I", "am", "a", "student"))
HEADS = 2


def make():
    torch.manual_seed(1)
    return Model(Config(layers=2, dim=8, heads=HEADS, hidden_dim=8, tie_weights="target", dropout=0.5), TARGET, SOURCE)


def batch(labeled=True):
    source, source_lengths = pad_rows([[4, 5, 6, EOS], [5, EOS]])
    tokens, lengths = pad_rows([[BOS, 4, 5], [BOS, 4, 5, 6, 7]])
    labels, _ = pad_rows([[4, 5, EOS], [4, 5, 6, 7, EOS]])
    return Batch(
        tokens=tokens,
        lengths=lengths,
        labels=labels if labeled else None,
        source=source,
        source_lengths=source_lengths,
    )


def test_every_layer_and_head_of_every_sentence_is_there_without_padding():
    maps = attention_maps(make(), batch())
    assert len(maps) == 2
    assert list(maps[0]) == [
        "encoder.0.self", "encoder.1.self", "decoder.0.self", "decoder.0.cross", "decoder.1.self", "decoder.1.cross",
    ]  # fmt: skip
    source, said, read = ("학생", "</s>"), ("I", "am", "a", "student", "</s>"), ("<s>", "I", "am", "a", "student")
    expected = {"encoder.1.self": (source, source), "decoder.0.self": (said, read), "decoder.1.cross": (said, source)}
    for name, (queries, keys) in expected.items():
        found = maps[1][name]
        assert (found.name, found.queries, found.keys) == (name, queries, keys)
        assert found.weights.shape == (HEADS, len(queries), len(keys))
        torch.testing.assert_close(found.weights.sum(dim=-1), torch.ones(HEADS, len(queries)))
    assert maps[1]["decoder.0.self"].weights.triu(1).eq(0).all()


def test_a_sentence_looks_the_same_in_company_and_alone():
    model, both = make(), batch()
    alone = Batch(
        tokens=both.tokens[:1, :3],
        lengths=both.lengths[:1],
        labels=both.labels[:1, :3],
        source=both.source[:1],
        source_lengths=both.source_lengths[:1],
    )
    for name, found in attention_maps(model, alone)[0].items():
        other = attention_maps(model, both)[0][name]
        assert (other.queries, other.keys) == (found.queries, found.keys)
        torch.testing.assert_close(other.weights, found.weights, rtol=1e-5, atol=1e-5)


def test_without_labels_the_rows_are_what_was_read():
    assert attention_maps(make(), batch(labeled=False))[0]["decoder.1.cross"].queries == ("<s>", "I", "am")


def test_the_model_stays_in_its_mode():
    model = make().train()
    first, second = (attention_maps(model, batch())[0]["encoder.1.self"].weights for _ in range(2))
    assert torch.equal(first, second)  # no dropout while looking
    assert model.training and model.encoder[0].dropout.training
