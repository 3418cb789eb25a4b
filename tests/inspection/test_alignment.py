from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.test_inspection import verbs_of
from mallang.decoding import contract as decoding
from mallang.errors import UserError
from mallang.inspection.alignment import (
    Words,
    attention_of,
    by_key_word,
    by_query_word,
    choose_head,
    draw_seen,
    in_words,
    labels_of,
    main_layer,
)
from mallang.inspection.text_with_output import words_in, words_said
from mallang.layers.attention import SelfAttention
from mallang.models.transformer import Config, Model
from mallang.tasks import translation
from mallang.text.tokenizer import Config as TextConfig
from mallang.text.tokenizer import Tokenizer

KOREAN = ["나는 물을 마신다.", "나는 책을 읽는다.", "그는 물을 마신다.", "유나는 배를 탔다."]
ENGLISH = ["I drink water.", "I read a book.", "He drinks water.", "Yuna took the ship."]
UNITS = ("bpe", "char", "syllable", "jamo", "byte", "byte-bpe", "word", "unigram")


def tokenizer(texts, unit="bpe", vocabulary=60):
    return Tokenizer.train(texts, TextConfig(unit=unit, vocabulary=vocabulary, min_count=1))


@pytest.fixture(scope="module")
def loaded():
    """An untrained model with the verbs of translation."""
    torch.manual_seed(3)
    sides = {"source": tokenizer(KOREAN), "target": tokenizer(ENGLISH)}
    task = translation.Task(translation.Config(), sides)
    config = Config(layers=2, dim=16, heads=2, hidden_dim=16, tie_weights="target", norm="pre")
    model = Model(config, sides["target"].vocabulary, sides["source"].vocabulary).eval()
    return translation.Verbs(task, model, decoding.Config(beam=3, max_length=12), max_length=30)


@pytest.mark.parametrize("options", [{}, {"beam": 1}, {"method": "greedy"}])
def test_what_is_seen_belongs_to_the_output_of_the_search(loaded, options):
    seen = attention_of(loaded, KOREAN[0], **options)
    made = loaded.translate(KOREAN[0], **options)
    assert (seen.input, seen.output) == (KOREAN[0], made.output)
    assert seen.score == pytest.approx(made.score, abs=1e-4)
    said = seen.maps["decoder.1.cross"].queries
    assert said == (*made.tokens, *([] if made.is_cut else ["</s>"]))  # what it did not say has no row
    assert len(seen.maps) == 6 and main_layer(seen) == "decoder.1.cross"


def test_nothing_is_recorded_while_the_search_runs(loaded, monkeypatch):
    recorded = []
    plain = SelfAttention.attend
    monkeypatch.setattr(SelfAttention, "attend", lambda *args: recorded.append(bool(args[0].recorders)) or plain(*args))
    attention_of(loaded, KOREAN[0])
    assert recorded.count(True) == 4  # one pass over two layers of the encoder and two of the decoder
    assert len(recorded) > 4


def test_a_given_output_is_seen_in_place_of_the_model_s_own(loaded):
    seen = attention_of(loaded, KOREAN[0], target=ENGLISH[1])
    assert seen.output == ENGLISH[1]
    assert seen.maps["decoder.0.cross"].queries == (*loaded.task.target.encode(ENGLISH[1]).tokens, "</s>")
    assert seen.score == pytest.approx(loaded.score([(KOREAN[0], ENGLISH[1])])[0].score, abs=1e-4)
    with pytest.raises(UserError, match="no effect on a given target"):
        attention_of(loaded, KOREAN[0], target=ENGLISH[1], beam=2)


def test_words_are_looked_at_as_much_as_their_pieces_together(loaded):
    seen = attention_of(loaded, KOREAN[0], target=ENGLISH[0])
    whole = in_words(seen).maps["decoder.1.cross"]
    pieces = seen.maps["decoder.1.cross"]
    assert whole.keys == (*KOREAN[0].split(), "</s>") and whole.queries == (*ENGLISH[0].split(), "</s>")
    torch.testing.assert_close(whole.weights.sum(dim=-1), torch.ones(2, 4))
    source, target = loaded.task.source.encode(KOREAN[0]), loaded.task.target.encode(ENGLISH[0])
    for column, word in enumerate(KOREAN[0].split()):
        for row, said in enumerate(ENGLISH[0].split()):
            begin, start = KOREAN[0].index(word), ENGLISH[0].index(said)
            keys = [i for i, (_, end) in enumerate(source.offsets) if begin < end <= begin + len(word)]
            queries = [i for i, (_, end) in enumerate(target.offsets) if start < end <= start + len(said)]
            expected = pieces.weights[:, queries][:, :, keys].sum(dim=2).mean(dim=1)
            torch.testing.assert_close(whole.weights[:, row, column], expected)
    assert in_words(in_words(seen)).maps["decoder.1.cross"].keys == whole.keys
    decoder = in_words(seen).maps["decoder.0.self"]
    assert decoder.keys == ("<s>", *ENGLISH[0].split()) and decoder.queries == (*ENGLISH[0].split(), "</s>")


@pytest.mark.parametrize("unit", UNITS)
@settings(deadline=None, max_examples=25)
@given(chosen=st.lists(st.sampled_from(" ".join(KOREAN + ENGLISH).split()), min_size=1, max_size=5))
def test_every_word_has_its_own_tokens_in_every_unit(unit, chosen):
    text = " ".join(chosen)
    cutter = CUTTERS.setdefault(unit, tokenizer(KOREAN + ENGLISH, unit, vocabulary=320))
    encoding = cutter.encode(text)
    for words in (words_in(text, encoding.offsets), words_said(cutter, encoding.ids)):
        assert list(words.words) == chosen
        assert list(words.owners) == sorted(words.owners)
        assert set(words.owners) == set(range(len(chosen)))
        for number, word in enumerate(chosen):
            mine = [token for token, owner in zip(encoding.ids, words.owners, strict=True) if owner == number]
            assert cutter.decode(mine).strip() == word


CUTTERS = {}


def test_tokens_of_no_word_stay_alone_in_their_place():
    words = Words(("ab", "c"), (None, 0, 0, 1, None))
    assert labels_of(words, ["<tag>", "a", "b", "c", "</s>"]) == ("<tag>", "ab", "c", "</s>")
    weights = torch.tensor([[0.1, 0.2, 0.3, 0.4, 0.0]])
    torch.testing.assert_close(by_key_word(weights, words), torch.tensor([[0.1, 0.5, 0.4, 0.0]]))
    torch.testing.assert_close(by_query_word(weights.T, words)[:, 0], torch.tensor([0.1, 0.25, 0.4, 0.0]))


def test_heads_are_counted_from_one():
    weights = torch.arange(12.0).view(2, 2, 3)
    assert torch.equal(choose_head(weights, "2"), weights[1:])
    assert torch.equal(choose_head(weights, "mean")[0], weights.mean(dim=0))
    assert choose_head(weights, None) is weights
    for wrong in ("0", "3", "-1", "first"):
        with pytest.raises(UserError, match="there is no head"):
            choose_head(weights, wrong)


def test_what_cannot_be_seen_is_told(loaded):
    for empty in ("", "  "):
        with pytest.raises(UserError, match="empty text"):
            attention_of(loaded, empty)
    with pytest.raises(UserError, match="reads fewer than 30"):
        attention_of(loaded, "나는 물을 마신다. " * 10)
    with pytest.raises(UserError, match="ensemble"):
        attention_of(loaded.ensemble([loaded]), KOREAN[0])


def test_a_model_without_attention_is_told():
    with pytest.raises(UserError, match="Sutskever has no attention"):
        attention_of(verbs_of("sutskever"), KOREAN[0])


def test_a_picture_is_drawn(loaded, tmp_path):
    seen = attention_of(loaded, KOREAN[0], target=ENGLISH[0])
    assert draw_seen(seen, tmp_path / "a.png", head="mean").stat().st_size > 1000
    svg = draw_seen(in_words(seen), tmp_path / "a.svg", "encoder.0.self").read_text("utf-8")
    assert "<svg" in svg and math.isfinite(seen.score)
