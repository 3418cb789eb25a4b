"""Highlights: the weights shown are those recorded, and the text stays text."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from torch import Tensor, nn

from mallang.data.columns import LabelSet
from mallang.errors import UserError
from mallang.find import find
from mallang.inspection import attention_by_label, highlight_figures
from mallang.inspection.alignment import attention_of
from mallang.inspection.alignment import in_words as aligned
from mallang.inspection.attention_by_label import attention_to, draw_by_label
from mallang.inspection.highlight_figures import draw_highlights, in_plain_text, in_terminal, write_page
from mallang.inspection.highlights import END, Piece, as_plain, highlights_of, in_words, pools_by_attention
from mallang.layers.attention import SelfAttention, padding_mask, record_attention
from mallang.layers.encoded import Encoded
from mallang.layers.head import ClassificationHead, Headed
from mallang.layers.pooling import masked_mean
from mallang.tasks.classification import Config, Task, Verbs
from mallang.text.tokenizer import Config as TextConfig
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import Vocabulary

LINES = ["나는 물을 마신다.", "그는 책을 읽는다!", "a good film, not bad", "유나는 배를 탔다."]
NASTY = "<script>alert(1)</script> & \"q\" \x1b[31m red \x9b1m 배를 탔다. 'and' <b>"
LABELS = LabelSet(("1", "2", "3"), counts=(1, 1, 1))


def tokenizer_of(unit: str) -> Tokenizer:
    return Tokenizer.train(LINES * 3, TextConfig(unit=unit, vocabulary=400 if unit == "byte" else 90))  # type: ignore[arg-type]


def verbs_of(name: str = "han", unit: str = "word", documents: bool = True, **task: Any) -> Verbs:
    module, tokenizer = find("models", name), tokenizer_of(unit)
    made = Task(Config(documents=documents, **task), {"text": tokenizer}, {"label": LABELS})
    torch.manual_seed(4)
    model = made.build(module, module.Config(**module.SIZES["tiny"])).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)  # weights of attention that differ
    return Verbs(made, model, None, 0)


class Views(nn.Module):
    """An encoder of three views of a text, as self-attentive models have them; one head per view."""

    reads_source = False

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.embedding = nn.Embedding(len(vocabulary), 6)
        self.view_attention = Scores()

    def encode(self, batch: Any) -> Any:
        words = self.embedding(batch.tokens)
        pooled = (self.view_attention(words, batch.mask) @ words).flatten(1)
        return Encoded(layers=[words], mask=batch.mask, pooled=pooled)


class Scores(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.recorders = nn.Linear(6, 3), []  # type: ignore[var-annotated]

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        scores = self.linear(words).mT
        weights = scores.masked_fill(~mask[:, None], -torch.inf).softmax(dim=-1)
        for recorder in self.recorders:
            recorder(scores[:, :, None], weights[:, :, None])
        return weights


class Transformer(nn.Module):
    """An encoder with one layer of self-attention, which takes the mean of its outputs."""

    reads_source = False

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.embedding = nn.Embedding(len(vocabulary), 6)
        self.self_attention = SelfAttention(6, 2, 3, 3)

    def encode(self, batch: Any) -> Any:
        words, _ = self.self_attention(self.embedding(batch.tokens), padding_mask(batch.mask))
        return Encoded(layers=[words], mask=batch.mask, pooled=masked_mean(words, batch.mask))


def around(kind: Any, dim: int) -> Verbs:
    """A classifier with an encoder of this file."""
    tokenizer = tokenizer_of("word")
    torch.manual_seed(6)
    model = Headed(kind(tokenizer.vocabulary), ClassificationHead(dim, 3)).eval()
    return Verbs(Task(Config(), {"text": tokenizer}, {"label": LABELS}), model, None, 0)


def recorded(verbs: Verbs, text: str) -> dict[str, Tensor]:
    """What the layers give for a text alone."""
    batch = verbs.task.collate(verbs.examples([text]))
    with torch.no_grad(), record_attention(verbs.encoder) as maps:
        verbs.task.logits(verbs.model, batch)
    return dict(maps)


@pytest.mark.parametrize(("unit", "most"), [("word", 3), ("bpe", 6), ("char", 6), ("byte", 64), ("jamo", 64)])
def test_weights_are_those_recorded(unit: str, most: int) -> None:
    verbs = verbs_of(unit=unit, max_words=most)
    texts = ["나는 물을. 그는 책을 읽는다!", "a good film, not bad"]
    for text, found in zip(texts, highlights_of(verbs, texts), strict=True):
        maps = recorded(verbs, text)
        assert len(found.sentences) == len(maps["word"]) == maps["sentence"].shape[3]
        for row, sentence in enumerate(found.sentences):
            assert sentence.weight == pytest.approx(float(maps["sentence"][0, 0, 0, row]), abs=1e-5)
            own = maps["word"][row, 0, 0]
            shown = [piece.weight for piece in sentence.pieces]
            assert sum(shown) == pytest.approx(1.0, abs=1e-4) and sentence.pieces[-1].text == END
            if unit == "word":
                np.testing.assert_allclose(shown, own[: len(shown)].numpy(), atol=1e-5)
            assert shown[-1] == pytest.approx(float(own[own > 0][-1]), abs=1e-5)
        said = "".join((" " if each.spaced else "") + each.text for s in found.sentences for each in s.pieces[:-1])
        assert re.sub(r"\s", "", said) == re.sub(r"\s", "", text)
        alone = verbs.classify(text)
        assert (found.label, found.probability) == (alone.label, pytest.approx(alone.probability, abs=1e-5))


def test_words_have_the_sum_of_their_subwords() -> None:
    verbs, text = verbs_of(unit="bpe"), "나는 물을 마신다. 그는 책을!"
    tokens, words = highlights_of(verbs, text), highlights_of(verbs, text, words=True)
    assert [[piece.text for piece in each.pieces] for each in words.sentences] == [
        ["나는", "물을", "마신다.", END], ["그는", "책을!", END],
    ]  # fmt: skip
    for pieces, joined in zip(tokens.sentences, words.sentences, strict=True):
        assert len(pieces.pieces) > len(joined.pieces)
        assert sum(each.weight for each in joined.pieces) == pytest.approx(sum(each.weight for each in pieces.pieces))
    some = [Piece("a", 0.1, False), Piece("b", 0.2, False), Piece("c", 0.3, True), Piece(END, 0.4, True)]
    assert list(in_words(some)) == [Piece("ab", pytest.approx(0.3), False), *some[2:]]


def test_views_are_averaged_or_one_is_chosen() -> None:
    verbs, text = around(Views, 18), "a good film"
    (weights,) = recorded(verbs, text).values()
    for head, expected in ((None, weights.mean(dim=1)), ("mean", weights.mean(dim=1)), ("2", weights[:, 1])):
        found = highlights_of(verbs, text, head=head)
        assert not found.has_sentences and [piece.text for piece in found.sentences[0].pieces[:-1]] == text.split()
        np.testing.assert_allclose([each.weight for each in found.sentences[0].pieces], expected[0, 0], atol=1e-6)
    for wrong in ("0", "4", "first"):
        with pytest.raises(UserError, match=f"no head '{wrong}' in a layer of 3"):
            highlights_of(verbs, text, head=wrong)


def test_a_word_in_a_light_sentence_stays_pale() -> None:
    found = highlights_of(verbs_of(), "나는 물을. 그는 책을 읽는다!")
    for sentence in found.sentences:
        shades = [piece.weight * sentence.weight**0.5 for piece in sentence.pieces]
        assert sentence.shades() == pytest.approx(shades)
    assert found.darkest()[0] == max(shade for each in found.sentences for shade in each.shades())


class Page(HTMLParser):
    """The text of a page, the elements in it, and the weights in titles."""

    def __init__(self) -> None:
        super().__init__()
        self.text, self.tags, self.titles = "", [], []  # type: ignore[var-annotated]

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        self.titles += [float(value) for name, value in attrs if name == "title"]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_escapes_text_and_loads_nothing(tmp_path: Path) -> None:
    found = highlights_of(verbs_of(), [NASTY, "나는 물을"])
    page = write_page(tmp_path / "a.html", found).read_text("utf-8")
    read = Page()
    read.feed(page)
    assert "script" not in read.tags and "default-src 'none'" in page
    assert not re.search(r"(src|href)=|https?://|@import|url\(|\bon\w+=", page)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", page)
    assert "<script>alert(1)</script>" in re.sub(r"\s", "", read.text)
    expected = [piece.weight for each in found for sentence in each.sentences for piece in sentence.pieces]
    assert read.titles == pytest.approx(expected, abs=1e-4)


def in_colors(found: Any) -> str:
    out = StringIO()
    Console(file=out, force_terminal=True, color_system="truecolor", markup=False, width=200).print(in_terminal(found))
    return out.getvalue()


@settings(deadline=None, max_examples=40)
@given(text=st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20), label=st.text(max_size=3))
def test_a_terminal_gets_no_control_characters(text: str, label: str) -> None:
    from dataclasses import replace

    (piece,) = highlights_of(verbs_of(), "나는").sentences[0].pieces[:1]
    found = highlights_of(verbs_of(), "나는 물을.")
    sentence = replace(found.sentences[0], pieces=(piece._replace(text=text), *found.sentences[0].pieces[1:]))
    nasty = replace(found, label=label, sentences=(sentence,))
    colored = re.sub(r"\x1b\[[0-9;]*m", "", in_colors(nasty))
    for shown in (colored, in_plain_text(nasty)):
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown)


def test_a_terminal_shows_the_text_and_the_heaviest_word_darkest() -> None:
    found = highlights_of(verbs_of(), "나는 물을 마신다. 그는 책을!")
    colored = in_colors(found)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", colored)
    assert plain.splitlines()[1:3] == [
        f"{found.sentences[0].weight:.3f} 나는 물을 마신다. {END}", f"{found.sentences[1].weight:.3f} 그는 책을! {END}",
    ]  # fmt: skip
    darkest = max(
        (shade, piece.text) for each in found.sentences for shade, piece in zip(each.shades(), each.pieces, strict=True)
    )
    assert f"48;2;66;135;245m{darkest[1]}" in colored
    assert highlight_figures.shaded(0.01, (1, 2, 3)) == "" and highlight_figures.mixed(0.0, (1, 2, 3)) == "#ffffff"


def test_without_colors_heavy_words_have_their_weight() -> None:
    found = highlights_of(verbs_of(), "나는 물을 마신다.")
    pieces = found.sentences[0].pieces
    heaviest = max(pieces, key=lambda piece: piece.weight)
    assert f"{heaviest.text}[{heaviest.weight:.3f}]" in in_plain_text(found)
    assert in_plain_text(found).count("[") == sum(piece.weight > 1 / len(pieces) for piece in pieces)


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_figures_wrap_long_sentences(tmp_path: Path, ending: str) -> None:
    found = highlights_of(verbs_of(), f"{NASTY} " + "나는 물을 마신다 " * 20)
    path = draw_highlights(tmp_path / f"a.{ending}", found)
    if ending == "svg":
        assert "\x1b" not in path.read_text("utf-8") and "<svg" in path.read_text("utf-8")
    assert path.stat().st_size > 5000
    with pytest.raises(UserError, match=r"cannot be written as a\.doc"):
        draw_highlights(tmp_path / "a.doc", found)


def test_plain_values_are_json() -> None:
    found = highlights_of(verbs_of(), NASTY)
    plain = json.loads(json.dumps(as_plain(found), allow_nan=False))
    assert plain["input"] == NASTY and plain["output"] == found.label
    assert [len(each["tokens"]) for each in plain["sentences"]] == [len(each.pieces) for each in found.sentences]


def test_models_that_do_not_attend_get_one_message() -> None:
    bag = verbs_of("bag_of_means", documents=False)
    assert not pools_by_attention(bag)
    for ask in (highlights_of, attention_of):
        with pytest.raises(UserError, match="BagOfMeans has no attention"):
            ask(bag, "나는")
    with pytest.raises(UserError, match="BagOfMeans has no attention"):
        attention_to(bag, [("나는", "1")], "나는")
    with pytest.raises(UserError, match="Transformer does not pool by attention"):
        highlights_of(around(Transformer, 6), "나는")


def test_a_classifier_with_self_attention_shows_its_maps() -> None:
    verbs, text = around(Transformer, 6), "나는 물을 마신다."
    seen = attention_of(verbs, text)
    assert seen.output == verbs.classify(text).label and list(seen.maps) == ["self"]
    shown = seen.maps["self"]
    assert shown.queries == shown.keys == ("▁나는", "▁물을", "▁마신다", ".", END)
    torch.testing.assert_close(shown.weights.sum(dim=-1), torch.ones_like(shown.weights[..., 0]))
    torch.testing.assert_close(shown.weights, recorded(verbs, text)["self"][0])
    assert aligned(seen).maps["self"].keys == ("나는", "물을", "마신다.", END)
    with pytest.raises(UserError, match="has one weight per token"):
        attention_of(verbs_of(), text)
    with pytest.raises(UserError, match="a classifier has no search"):
        attention_of(verbs, text, beam=2)


ROWS = [("a good film. Good!", "3"), ("not bad", "1"), ("good, not bad", "1"), ("a film", "2"), ("goodness", "3")]


def test_attention_to_a_word_is_that_of_its_occurrences() -> None:
    verbs = verbs_of()
    found = attention_to(verbs, ROWS, "good")
    assert found.texts == 5 and found.labels == LABELS.names
    first, second = recorded(verbs, "a good film. Good!"), recorded(verbs, "good, not bad")
    expected = {
        "1": [float(second["word"][0, 0, 0, 0])],
        "2": [],
        "3": [float(first["word"][0, 0, 0, 1]), float(first["word"][1, 0, 0, 0])],
    }
    for label, weights in found.by_label().items():
        assert weights == pytest.approx(expected[label], abs=1e-5)
    predicted = [each.label for each in verbs.classify(["a good film. Good!"] * 2 + ["good, not bad"])]
    assert [each.predicted for each in found.occurrences] == predicted
    assert sum(map(len, found.by_label(predicted=True).values())) == 3
    label, count, mean, median = found.table()[2]
    assert (label, count) == ("3", 2) and mean == pytest.approx(np.mean(expected["3"]), abs=1e-5)
    assert median == pytest.approx(mean, abs=1e-6) and found.table()[-1][:2] == (attention_by_label.ALL, 3)


def test_a_star_finds_all_words_that_begin_so() -> None:
    assert len(attention_to(verbs_of(), ROWS, "good*").occurrences) == 4
    assert len(attention_to(verbs_of(unit="bpe"), ROWS, "GOOD").occurrences) == 3
    with pytest.raises(UserError, match="no text has the word 'goo'"):
        attention_to(verbs_of(), ROWS, "goo")
    with pytest.raises(UserError, match="is no word"):
        attention_to(verbs_of(), ROWS, "*")
    with pytest.raises(UserError, match="in the part that the model reads"):
        attention_to(verbs_of(max_sentences=1), [("a film. good", "1")], "good")


def test_subwords_of_a_word_are_summed() -> None:
    verbs, text = verbs_of(unit="char"), "a good film"
    found = attention_to(verbs, [(text, "1")], "good")
    own = recorded(verbs, text)["word"][0, 0, 0]
    places = [n for n, (begin, end) in enumerate(verbs.task.text.encode(text).offsets) if begin < 6 and end > 2]
    assert found.occurrences[0].weight == pytest.approx(float(own[places].sum()), abs=1e-5)


def test_histograms_are_drawn(tmp_path: Path) -> None:
    found = attention_to(verbs_of(), ROWS, "good")
    for predicted in (False, True):
        path = draw_by_label(tmp_path / f"{predicted}.svg", found, predicted=predicted)
        assert "<svg" in path.read_text("utf-8")
